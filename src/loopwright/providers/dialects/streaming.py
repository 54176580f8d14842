"""Streaming in a dialect: the answer and the thoughts as they arrive, without the text of the protocol."""

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from ..base import Delta, Request


class StreamParser(Protocol):
    """Parses one reply in chunks of any size.

    The text of its deltas is always a prefix of the answer that `Dialect.parse` returns in the end. It holds back what
    is not certain yet; `TextTools` adds the rest of the answer at the end of the reply.
    """

    def feed(self, text: str) -> Iterable[Delta]:
        """Return what is certain now that `text` has arrived: the answer as `text`, thoughts as `reasoning`."""
        ...


@runtime_checkable
class StreamingDialect(Protocol):
    """A dialect that can show a reply while it arrives; the reply in any other dialect is shown at its end."""

    def parse_stream(self, request: Request) -> StreamParser:
        """Return a parser for the reply to `request`."""
        ...


class HoldingParser:
    """Holds everything back."""

    def feed(self, text: str) -> Iterable[Delta]:
        """Return nothing."""
        return ()


class PlainParser:
    """Passes every text on."""

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the text."""
        if text:
            yield Delta(text=text)


class StreamStripper:
    """Strips a text that arrives in chunks.

    Args:
        markup: characters that are stripped from its end together with white space.
    """

    def __init__(self, markup: str = "") -> None:
        self._markup = markup
        self._held: list[str] = []
        self._has_begun = False

    def feed(self, text: str) -> str:
        """Return what certainly belongs to the stripped text, and hold back a possible end."""
        if not self._has_begun:
            text = text.lstrip()
            self._has_begun = bool(text)
        end = self._find_end(text)
        if not end:
            self._held.append(text)
            return ""
        certain = "".join([*self._held, text[:end]])
        self._held = [text[end:]]
        return certain

    def _find_end(self, text: str) -> int:
        """Return the length of the part that no later text can make strippable."""
        end = len(text)
        while end and (text[end - 1].isspace() or text[end - 1] in self._markup):
            end -= 1
        return end
