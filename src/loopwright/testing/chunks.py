"""A whole reply as a stream of deltas, for providers that do not stream."""

import json
import re
from collections.abc import Iterator

from ..messages import Completion
from ..providers.base import CallDelta, Delta


def split_completion(completion: Completion) -> Iterator[Delta]:
    """Yield the deltas of a reply: reasoning, text by word, each call in three chunks, and the reply itself."""
    for thought in completion.reasoning:
        yield Delta(reasoning=thought.text)
    for word in re.findall(r"\S*\s*", completion.text)[:-1]:
        yield Delta(text=word)
    for index, call in enumerate(completion.calls):
        # ASCII, so that half a surrogate pair is encoded as well.
        arguments = json.dumps(call.arguments, default=dict, separators=(",", ":"))
        yield Delta(call=CallDelta(index, call.id, call.name))
        yield Delta(call=CallDelta(index, arguments=arguments[:1]))
        yield Delta(call=CallDelta(index, arguments=arguments[1:]))
    yield Delta(completion=completion)
