"""A message that a redactor has found to be clean is searched once by it, and again by any other."""

import itertools
import pickle

import pytest

from loopwright import Conversation
from loopwright.messages import Message
from loopwright.security.redaction import Redactor
from loopwright.security.redaction.messages import redact_conversation

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class CountingRedactor(Redactor):
    """Counts the texts that it searches."""

    searched = 0

    def redact_text(self, text: str) -> str:
        self.searched += 1
        return super().redact_text(text)


def test_messages_of_earlier_turns_are_not_searched_again() -> None:
    redactor, conversation = CountingRedactor(), Conversation.of("Hello")
    counts: list[int] = []
    for number in range(20):
        conversation = conversation.assistant(f"answer {number}").user(f"more {number}")
        conversation = redact_conversation(redactor, conversation)
        counts.append(redactor.searched)

    new = {after - before for before, after in itertools.pairwise(counts)}
    assert new == {4}, "the text and the call id of two messages"


@pytest.mark.parametrize("secret", ["hunter-two-hunter", TOKEN])
@pytest.mark.parametrize("is_part", [True, False])
def test_another_redactor_searches_what_one_found_clean(
    secret: str, is_part: bool
) -> None:
    whole = Redactor()
    weak = whole.registered_values if is_part else Redactor(patterns=False)
    given = Conversation.of(f"it is {secret}")

    assert redact_conversation(weak, given) == given
    assert (redact_conversation(whole, given) == given) is (secret != TOKEN)
    clean = redact_conversation(whole.with_secrets(secret), given)
    assert secret not in clean.messages[0].content


def test_mark_of_a_clean_message_holds_no_secret_and_no_other_process() -> None:
    redactor = Redactor(["hunter-two-hunter"])
    message = Message("user", "Hello")
    redact_conversation(redactor, Conversation([message]))

    stored = pickle.dumps(message)
    assert b"hunter" not in stored
    read = pickle.loads(stored)
    redacted = Redactor(["Hello, Ada"])
    assert read == message
    assert redact_conversation(redacted, Conversation([read])).messages == (message,)
