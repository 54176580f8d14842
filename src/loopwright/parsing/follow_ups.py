"""Self-Ask's lines in model text: follow-up questions, calls of a named tool, intermediate and final answers."""

import dataclasses
import re
from collections.abc import Sequence

from ..messages import ToolCall
from .answers import read_closing_answer
from .arguments import (
    EMPTY_INPUTS,
    Signature,
    find_tool,
    list_tool_names,
    read_arguments,
    read_name,
)
from .fences import LINE_BREAKS
from .tokenizer import Token, Tokenizer, find_value_end

TOKENIZER = Tokenizer(
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
_LINE = re.compile(rf"\s*+([^{LINE_BREAKS}]*+)")


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
                f"There is no tool {self.tool!r}. Tools: {list_tool_names(tools)}."
            )
        return ToolCall(name, read_arguments(self.input, name, tool)[0])


@dataclasses.dataclass(frozen=True)
class ParsedFollowUps:
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

    def first(self, most: int) -> "ParsedFollowUps":
        """The reading as if the reply had ended behind its first `most` follow-ups, one or more."""
        if len(self.follow_ups) <= most:
            return self
        end = self.follow_ups[most - 1].end
        return ParsedFollowUps(
            self.text[:end],
            self.follow_ups[:most],
            None,
            f"{self.text[end:]}\n{self.dropped}".strip(),
        )


def read_follow_ups(text: str, *, cut: bool = False) -> ParsedFollowUps:
    """The follow-ups that `text` asks, or its final answer; what it says behind a follow-up is invented, and dropped.

    Of a reply that was `cut` short, nothing counts that its end belongs to.
    """
    text = _LISTED.sub("", text)
    return _read(text, _meant(text), cut)


def read_sub_answer(text: str) -> str:
    """What a model says to one sub-question: the text before any marker, else the value of the first that answers."""
    tokens = _meant(text)
    if not tokens:
        return _bare(text)
    before = _bare(text[: tokens[0].start])
    answers = tokens[0].kind in ("intermediate", *FINALS)
    return before or (
        _value(text, tokens[0], find_value_end(text, tokens, 0)) if answers else ""
    )


def read_final_answer(text: str) -> str | None:
    """The answer that a text gives when nothing but an answer is asked for; `None` for protocol text or a lead-in."""
    text = _LISTED.sub("", text)
    tokens = _meant(text)
    answer = (
        _read(text, tokens, False).answer
        if tokens
        else read_closing_answer(text, "text") or _bare(text)
    )
    return None if not answer or answer.endswith(":") else answer


def quoted(text: str) -> str:
    """A text that is not the model's, with its lines quoted that look like markers."""
    return TOKENIZER.quote(_LISTED.sub(r"> \g<0>", text))


def _read(text: str, tokens: list[Token], cut: bool) -> ParsedFollowUps:
    """What the first marker with something behind it says."""
    for index, token in enumerate(tokens):
        first, _ = _line(text, token, find_value_end(text, tokens, index))
        if token.kind in FINALS and first:
            return _final(text, tokens[index:], cut)
        if token.kind == "tool" or (
            token.kind in FOLLOW_UPS and not _is_nothing(first)
        ):
            return _asked(text, tokens[index:], cut)
    return ParsedFollowUps(text.strip())


def _meant(text: str) -> list[Token]:
    """The markers of a text without those that only look so: `Tool:` or `Question:` in an answer."""
    tokens = TOKENIZER.tokenize(text).tokens
    kinds = ["", *(token.kind for token in tokens), ""]
    meant: list[Token] = []
    for token, before, after in zip(tokens, kinds, kinds[2:], strict=False):
        opens = WHOLE.get(token.kind, after) == after
        if opens and (token.kind != "tool_input" or before == "tool"):
            meant.append(token)
    return meant


def _final(text: str, tokens: list[Token], cut: bool) -> ParsedFollowUps:
    """The last of the final answers that stand one after the other: a model may correct itself."""
    last = (
        next(
            (i for i, token in enumerate(tokens) if token.kind not in FINALS),
            len(tokens),
        )
        - 1
    )
    end = find_value_end(text, tokens, last)
    answer = _value(text, tokens[last], end)
    if not answer or (cut and end == len(text)):
        return ParsedFollowUps(text[: tokens[0].start].strip())
    return ParsedFollowUps(text[:end].strip(), (), answer, text[end:].strip())


def _asked(text: str, tokens: list[Token], cut: bool) -> ParsedFollowUps:
    """The follow-ups that stand one below the other, each with the call below it if there is one."""
    found: list[FollowUp] = []
    for index, token in enumerate(tokens):
        joined = (
            found[-1] if token.kind == "tool" and found and not found[-1].tool else None
        )
        parted = (
            bool(found)
            and joined is None
            and bool(text[found[-1].end : token.start].strip())
        )
        if token.kind == "tool_input":
            continue
        if parted or token.kind not in (*FOLLOW_UPS, "tool"):
            break
        if token.kind == "tool":
            found[len(found) - (joined is not None) :] = [
                _call(text, tokens, index, joined)
            ]
        else:
            question, end = _line(text, token, find_value_end(text, tokens, index))
            found += [] if _is_nothing(question) else [FollowUp(question, end)]
    if cut and not any(c in text[found[-1].end :] for c in "\r\n"):
        found.pop()
    end = found[-1].end if found else tokens[0].start
    return ParsedFollowUps(
        text[:end].strip(), tuple(found), None, text[end:].strip() if found else ""
    )


def _call(
    text: str, tokens: list[Token], index: int, follow_up: FollowUp | None
) -> FollowUp:
    """The call that starts at `index`, for the follow-up before it if there is one."""
    given, end = tokens[index + 1], find_value_end(text, tokens, index + 1)
    tool, _ = _line(text, tokens[index], given.start)
    written = text[given.value_start : end].strip()
    if written.startswith(("{", "```", "~~~")):
        question, end = (
            f"{tool} {written}",
            given.value_start + len(text[given.value_start : end].rstrip()),
        )
    else:
        written, end = _line(text, given, end)
        question = written or tool
    return FollowUp(follow_up.question if follow_up else question, end, tool, written)


def _value(text: str, token: Token, end: int) -> str:
    return _plain(text[token.value_start : end], token)


def _line(text: str, token: Token, end: int) -> tuple[str, int]:
    """The first line of a marker's value, and where it ends."""
    found = _LINE.match(text, token.value_start, end)
    return (_plain(found[1], token), found.end()) if found else ("", end)


def _plain(value: str, token: Token) -> str:
    value = value.strip()
    return value.removesuffix(token.markup).rstrip() if token.markup else _bare(value)


def _bare(text: str) -> str:
    """A text without the bold that is around the whole of it."""
    text = text.strip()
    inner = text[2:-2]
    return inner.strip() if text == f"**{inner}**" and "**" not in inner else text


def _is_nothing(question: str) -> bool:
    return question.rstrip(".").casefold() in EMPTY_INPUTS
