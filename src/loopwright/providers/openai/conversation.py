"""A conversation in OpenAI's form, for other code that speaks Chat Completions."""

import json
from typing import Any

from ...messages import Conversation
from .arrangement import arrange_messages
from .quirks import OPENAI
from .request import get_message_encoder


def to_openai_messages(conversation: Conversation) -> list[dict[str, Any]]:
    """Return a conversation as the field `messages` of Chat Completions.

    Arguments of calls are JSON texts, as that API has them. Attachments of tool results follow in a message of the user,
    since the API takes text alone there. Reasoning, which is of the model that wrote it, is left out.

    Raises:
        ProviderError: the API does not take an attachment.
    """
    encode = get_message_encoder(OPENAI, None)
    arranged = arrange_messages(conversation, OPENAI)
    return [json.loads(encode(message)) for message in arranged]
