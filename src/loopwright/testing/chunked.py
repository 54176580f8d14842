"""A whole reply told piece by piece, for providers that have it at once."""

import json
import re
from collections.abc import Iterator

from ..messages import Completion
from ..providers.base import CallDelta, Delta


def pieces(completion: Completion) -> Iterator[Delta]:
    """The deltas of a reply: thoughts, the text word by word, each call in three pieces, and the reply itself."""
    for thought in completion.reasoning:
        yield Delta(reasoning=thought.text)
    for word in re.findall(r"\S*\s*", completion.text)[:-1]:
        yield Delta(text=word)
    for index, made in enumerate(completion.calls):
        arguments = json.dumps(
            made.arguments, default=dict, separators=(",", ":")
        )  # ASCII: half a pair is told, too
        yield Delta(call=CallDelta(index, made.id, made.name))
        yield Delta(call=CallDelta(index, arguments=arguments[:1]))
        yield Delta(call=CallDelta(index, arguments=arguments[1:]))
    yield Delta(completion=completion)
