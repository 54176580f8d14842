"""The `<think>` block that some servers leave in front of a reply, in a whole text or in a stream."""

from ...parsing.thinking import CLOSE, OPEN, strip_thinking

MAX_SPACE = 1_000  # characters of white space before a block in a stream


def read_thinking(text: str) -> str:
    """Return the content of the block that `strip_thinking` removes; empty if there is none."""
    if CLOSE not in text and not text.lstrip().startswith(OPEN):
        return ""
    if strip_thinking(text) == text:
        return ""
    return text.partition(CLOSE)[0].lstrip().removeprefix(OPEN).strip()


class ThinkBlock:
    """Separates thinking from the reply in a text that arrives in chunks of any size.

    A block must be at the very beginning. If a chat template opened it before the reply began, only `</think>` tells
    thinking from the reply: what came before was shown as text, and only the completion at the end is without it.
    """

    def __init__(self) -> None:
        self._read = self._read_start
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the reply's text and the thinking that are certain now."""
        return self._read(text)

    def end(self) -> tuple[str, str]:
        """Return what was held back, as text and thinking: the beginning of a tag that was not one."""
        held, self._held = self._held, ""
        if self._read == self._read_inside:
            return "", held
        return held, ""

    def _read_start(self, text: str) -> tuple[str, str]:
        self._held += text
        start = self._held.lstrip()
        if start.startswith(OPEN):
            self._read, self._held = self._read_inside, ""
            return self._read_inside(start.removeprefix(OPEN))
        if OPEN.startswith(start) and len(self._held) < MAX_SPACE:
            return "", ""
        reply, self._held, self._read = self._held, "", self._read_outside
        return reply, ""

    def _read_inside(self, text: str) -> tuple[str, str]:
        thinking, closed, rest = (self._held + text).partition(CLOSE)
        if closed:
            self._held, self._read = "", self._read_behind
            return self._read_behind(rest)[0], thinking
        end = len(thinking) - _measure_partial_tag(thinking)
        self._held = thinking[end:]
        return "", thinking[:end]

    def _read_behind(self, text: str) -> tuple[str, str]:
        """Read behind the block, where white space is dropped."""
        reply = text.lstrip()
        if reply:
            self._read = self._read_outside
        return reply, ""

    @staticmethod
    def _read_outside(text: str) -> tuple[str, str]:
        return text, ""


def _measure_partial_tag(text: str) -> int:
    """Return how many characters at the end of a text may begin a closing tag."""
    for size in range(len(CLOSE) - 1, 0, -1):
        if text.endswith(CLOSE[:size]):
            return size
    return 0
