"""Self-Ask's lines in model text: follow-up questions, calls of a named tool, intermediate and final answers."""

import dataclasses
import re
from collections.abc import Sequence

from ..messages import ToolCall
from .answers import read_ending
from .arguments import (
    NOTHING,
    Signature,
    find_tool,
    list_tools,
    read_arguments,
    read_name,
)
from .fences import BREAKS
from .markers import Mark, Markers, end_of

MARKERS = Markers(
    {
        "question": "question",
        "needed": "are follow up questions needed here",
        "follow_up": "follow up",
        "follow_up_question": "follow up question",
        "tool": "tool",
        "tool_input": "tool input",
        "intermediate": "intermediate answer",
        "final": "so the final answer is",
        "the_final": "the final answer is",
        "final_answer": "final answer",
    }
)
FOLLOW_UPS = ("follow_up", "follow_up_question")
FINALS = ("final", "the_final", "final_answer")
WHOLE = {
    "tool": "tool_input",
    "question": "needed",
}  # a marker of these is one only if that other comes next

_LISTED = re.compile(  # a list of markers is markers
    r"^[ \t]*+(?:[-+*\u2022]|[0-9]{1,2}[.)])[ \t]++(?=[*_]{0,3}(?:follow[ _-]?up|tool|so the final|final answer)\b)",
    re.MULTILINE | re.IGNORECASE,
)
_LINE = re.compile(rf"\s*+([^{BREAKS}]*+)")


@dataclasses.dataclass(frozen=True)
class FollowUp:
    """A sub-question.

    Args:
        question: one line; for a call without a follow-up, its input.
        end: where in the reply it ends.
        tool: the tool that the reply names itself, as written, or an empty text.
        input: what it gives that tool: an object, or plain text.
    """

    question: str
    end: int
    tool: str = ""
    input: str = ""

    @property
    def key(self) -> str:
        """By what it is known again: its words, or the call that it writes."""
        if self.tool:
            return f"{self.tool.casefold()}\n{self.input}"
        return " ".join(self.question.casefold().split()).rstrip(" ?.!")

    def call(self, tools: Sequence[Signature]) -> ToolCall:
        """The call that the reply writes itself; ValueError with a cure if it names no tool or cannot be read."""
        name = read_name(self.tool, tools)
        tool = find_tool(name, tools)
        if tool is None:
            raise ValueError(
                f"There is no tool {self.tool!r}. Tools: {list_tools(tools)}."
            )
        return ToolCall(name, read_arguments(self.input, name, tool)[0])


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a reply says.

    Args:
        text: the part of it that counts: up to the end of the last follow-up, if there is one.
        follow_ups: the questions it asks, one right after the other: none can depend on another's answer.
        answer: the final answer, if the reply asks nothing before it.
        dropped: what stood behind `text` and was not read.
    """

    text: str
    follow_ups: tuple[FollowUp, ...] = ()
    answer: str | None = None
    dropped: str = ""

    def first(self, most: int) -> "Reading":
        """The reading as if the reply had ended behind its first `most` follow-ups, one or more."""
        if len(self.follow_ups) <= most:
            return self
        end = self.follow_ups[most - 1].end
        return Reading(
            self.text[:end],
            self.follow_ups[:most],
            None,
            f"{self.text[end:]}\n{self.dropped}".strip(),
        )


def read_follow_ups(text: str, *, cut: bool = False) -> Reading:
    """The follow-ups that `text` asks, or its final answer; what it says behind a follow-up is invented, and dropped.

    Of a reply that was `cut` short, nothing counts that its end belongs to.
    """
    text = _LISTED.sub("", text)
    return _read(text, _meant(text), cut)


def read_sub_answer(text: str) -> str:
    """What a model says to one sub-question: the text before any marker, else the value of the first that answers."""
    marks = _meant(text)
    if not marks:
        return _bare(text)
    before = _bare(text[: marks[0].start])
    answers = marks[0].kind in ("intermediate", *FINALS)
    return before or (_value(text, marks[0], end_of(text, marks, 0)) if answers else "")


def read_final(text: str) -> str | None:
    """The answer that a text gives when nothing but an answer is asked for; `None` for protocol text or a lead-in."""
    text = _LISTED.sub("", text)
    marks = _meant(text)
    answer = (
        _read(text, marks, False).answer
        if marks
        else read_ending(text, "text") or _bare(text)
    )
    return None if not answer or answer.endswith(":") else answer


def quoted(text: str) -> str:
    """A text that is not the model's, with its lines quoted that look like markers."""
    return MARKERS.quote(_LISTED.sub(r"> \g<0>", text))


def _read(text: str, marks: list[Mark], cut: bool) -> Reading:
    """What the first marker with something behind it says."""
    for index, mark in enumerate(marks):
        first, _ = _line(text, mark, end_of(text, marks, index))
        if mark.kind in FINALS and first:
            return _final(text, marks[index:], cut)
        if mark.kind == "tool" or (mark.kind in FOLLOW_UPS and not _is_nothing(first)):
            return _asked(text, marks[index:], cut)
    return Reading(text.strip())


def _meant(text: str) -> list[Mark]:
    """The markers of a text without those that only look so: `Tool:` or `Question:` in an answer."""
    marks = MARKERS.scan(text).marks
    kinds = ["", *(mark.kind for mark in marks), ""]
    meant: list[Mark] = []
    for mark, before, after in zip(marks, kinds, kinds[2:], strict=False):
        opens = WHOLE.get(mark.kind, after) == after
        if opens and (mark.kind != "tool_input" or before == "tool"):
            meant.append(mark)
    return meant


def _final(text: str, marks: list[Mark], cut: bool) -> Reading:
    """The last of the final answers that stand one after the other: a model may correct itself."""
    last = (
        next((i for i, mark in enumerate(marks) if mark.kind not in FINALS), len(marks))
        - 1
    )
    end = end_of(text, marks, last)
    answer = _value(text, marks[last], end)
    if not answer or (cut and end == len(text)):
        return Reading(text[: marks[0].start].strip())
    return Reading(text[:end].strip(), (), answer, text[end:].strip())


def _asked(text: str, marks: list[Mark], cut: bool) -> Reading:
    """The follow-ups that stand one below the other, each with the call below it if there is one."""
    found: list[FollowUp] = []
    for index, mark in enumerate(marks):
        joined = (
            found[-1] if mark.kind == "tool" and found and not found[-1].tool else None
        )
        parted = (
            bool(found)
            and joined is None
            and bool(text[found[-1].end : mark.start].strip())
        )
        if mark.kind == "tool_input":
            continue
        if parted or mark.kind not in (*FOLLOW_UPS, "tool"):
            break
        if mark.kind == "tool":
            found[len(found) - (joined is not None) :] = [
                _call(text, marks, index, joined)
            ]
        else:
            question, end = _line(text, mark, end_of(text, marks, index))
            found += [] if _is_nothing(question) else [FollowUp(question, end)]
    if cut and not any(c in text[found[-1].end :] for c in "\r\n"):
        found.pop()
    end = found[-1].end if found else marks[0].start
    return Reading(
        text[:end].strip(), tuple(found), None, text[end:].strip() if found else ""
    )


def _call(
    text: str, marks: list[Mark], index: int, follow_up: FollowUp | None
) -> FollowUp:
    """The call that starts at `index`, for the follow-up before it if there is one."""
    given, end = marks[index + 1], end_of(text, marks, index + 1)
    tool, _ = _line(text, marks[index], given.start)
    written = text[given.value : end].strip()
    if written.startswith(("{", "```", "~~~")):
        question, end = (
            f"{tool} {written}",
            given.value + len(text[given.value : end].rstrip()),
        )
    else:
        written, end = _line(text, given, end)
        question = written or tool
    return FollowUp(follow_up.question if follow_up else question, end, tool, written)


def _value(text: str, mark: Mark, end: int) -> str:
    return _plain(text[mark.value : end], mark)


def _line(text: str, mark: Mark, end: int) -> tuple[str, int]:
    """The first line of a marker's value, and where it ends."""
    found = _LINE.match(text, mark.value, end)
    return (_plain(found[1], mark), found.end()) if found else ("", end)


def _plain(value: str, mark: Mark) -> str:
    value = value.strip()
    return value.removesuffix(mark.markup).rstrip() if mark.markup else _bare(value)


def _bare(text: str) -> str:
    """A text without the bold that is around the whole of it."""
    text = text.strip()
    inner = text[2:-2]
    return inner.strip() if text == f"**{inner}**" and "**" not in inner else text


def _is_nothing(question: str) -> bool:
    return question.rstrip(".").casefold() in NOTHING
