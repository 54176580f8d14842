"""The `<think>` block that some servers leave in front of a reply: taken off a whole text, or off one that streams."""

from ...parsing.thinking import CLOSE, OPEN, strip_thinking

LONGEST_SPACE = 1_000  # characters of white space before a block that streams


def read_thinking(text: str) -> str:
    """What stands in the block that `strip_thinking` takes off; nothing if there is none."""
    if CLOSE not in text and not text.lstrip().startswith(OPEN):
        return ""
    if strip_thinking(text) == text:
        return ""
    return text.partition(CLOSE)[0].lstrip().removeprefix(OPEN).strip()


class ThinkBlock:
    """Tells thinking from words in a text that comes in pieces, tags cut anywhere.

    A block is one only at the very beginning. Where a chat template opened it before the reply began, nothing tells
    thinking from words until `</think>` comes: what came before is words then, and only the whole reply, which is read
    again at its end, is without it.
    """

    def __init__(self) -> None:
        self._take = self._at_the_start
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """The words and the thinking that can be told by now."""
        return self._take(text)

    def end(self) -> tuple[str, str]:
        """What was held back, words and thinking: half a tag that never became one."""
        held, self._held = self._held, ""
        return ("", held) if self._take == self._inside else (held, "")

    def _at_the_start(self, text: str) -> tuple[str, str]:
        self._held += text
        begins = self._held.lstrip()
        if begins.startswith(OPEN):
            self._take, self._held = self._inside, ""
            return self._inside(begins.removeprefix(OPEN))
        if OPEN.startswith(begins) and len(self._held) < LONGEST_SPACE:
            return "", ""
        words, self._held, self._take = self._held, "", self._outside
        return words, ""

    def _inside(self, text: str) -> tuple[str, str]:
        thinking, closed, rest = (self._held + text).partition(CLOSE)
        if closed:
            self._held, self._take = "", self._behind
            return self._behind(rest)[0], thinking
        kept = next(
            (
                size
                for size in range(len(CLOSE) - 1, 0, -1)
                if thinking.endswith(CLOSE[:size])
            ),
            0,
        )
        self._held = thinking[len(thinking) - kept :]
        return "", thinking[: len(thinking) - kept]

    def _behind(self, text: str) -> tuple[str, str]:
        words = text.lstrip()
        if words:
            self._take = self._outside
        return words, ""

    @staticmethod
    def _outside(text: str) -> tuple[str, str]:
        return text, ""
