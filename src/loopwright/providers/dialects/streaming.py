"""How a dialect tells a reply while it comes: words of the answer and thoughts, never a word of the protocol."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from ..base import Delta, Request


class Watch(Protocol):
    """Reads one reply in pieces, cut anywhere.

    The text that it tells is a beginning of the answer as `Dialect.parse` reads it in the end. What is not certain yet
    is held back: whoever asked tells the rest of the answer when the reply has ended.
    """

    def feed(self, text: str) -> Iterable[Delta]:
        """What can be told now that `text` has come too: words of the answer, and thoughts as `reasoning`."""
        ...


@runtime_checkable
class Watched(Protocol):
    """A dialect whose replies can be told while they come; those of any other are told at their end."""

    def watch(self, request: Request) -> Watch:
        """A reader for the reply to `request`."""
        ...


class Silent:
    """Tells nothing."""

    def feed(self, text: str) -> Iterable[Delta]:
        """Nothing."""
        return ()


class Open:
    """Tells everything as it comes."""

    def feed(self, text: str) -> Iterable[Delta]:
        """The text itself."""
        return (Delta(text=text),) if text else ()


class Trimmed:
    """Lets a text through in pieces as it will be once it is stripped.

    Args:
        markup: letters that may be taken off its end too, with the blanks.
    """

    def __init__(self, markup: str = "") -> None:
        self._markup = markup
        self._held: list[str] = []
        self._begun = False

    def feed(self, text: str) -> str:
        """What belongs to the stripped text for certain: nothing of a blank beginning, and no blank end."""
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        certain = self._certain(text)
        if not certain:
            self._held.append(text)
            return ""
        told = "".join([*self._held, text[:certain]])
        self._held = [text[certain:]]
        return told

    def _certain(self, text: str) -> int:
        """How much of `text` stays whatever comes behind it."""
        end = len(text)
        while end and (text[end - 1].isspace() or text[end - 1] in self._markup):
            end -= 1
        return end
