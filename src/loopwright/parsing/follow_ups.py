"""Self-Ask's lines in model text: follow-up questions, calls of a named tool, intermediate and
final answers.
"""

import re
from collections.abc import Sequence

from .._internal import dataclasses
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
from .fences import FENCE_STARTS, LINE_BREAKS
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
ANSWERS = ("intermediate", *FINALS)
FOLLOWED_BY = {
    "tool": "tool_input",
    "question": "needed",
}  # these are markers only before those

_LISTED = re.compile(  # a list of markers is markers
    r"^[ \t]*+(?:[-+*\u2022]|[0-9]{1,2}[.)])[ \t]++(?=[*_]{0,3}(?:follow[ _-]?up|tool|so the final|final answer)\b)",
    re.MULTILINE | re.IGNORECASE,
)
_FIRST_LINE = re.compile(rf"\s*+([^{LINE_BREAKS}]*+)")


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
        """What identifies an equal question: its words, or the call that it writes."""
        if self.tool:
            return f"{self.tool.casefold()}\n{self.input}"
        return " ".join(self.question.casefold().split()).rstrip(" ?.!")

    def call(self, tools: Sequence[Signature]) -> ToolCall:
        """Return the call that the reply writes itself.

        Raises ValueError with a cure if it names no tool or cannot be read.
        """
        name = read_name(self.tool, tools)
        tool = find_tool(name, tools)
        if tool is None:
            raise ValueError(
                f"There is no tool {self.tool!r}. Tools: {list_tool_names(tools)}."
            )
        arguments, _ = read_arguments(self.input, name, tool)
        return ToolCall(name, arguments)


@dataclasses.dataclass(frozen=True)
class ParsedFollowUps:
    """What a reply asks or answers.

    Args:
        text: the part of it that counts: up to the end of the last follow-up, if there is one.
        follow_ups: the questions it asks, one right after the other: none can depend on another's
            answer.
        answer: the final answer, if the reply asks nothing before it.
        dropped: the text behind `text`, which was not read.
    """

    text: str
    follow_ups: tuple[FollowUp, ...] = ()
    answer: str | None = None
    dropped: str = ""

    def first(self, count: int) -> "ParsedFollowUps":
        """Return the reply as if it had ended behind its first `count` follow-ups, one or more."""
        if len(self.follow_ups) <= count:
            return self
        end = self.follow_ups[count - 1].end
        dropped = f"{self.text[end:]}\n{self.dropped}".strip()
        return ParsedFollowUps(self.text[:end], self.follow_ups[:count], None, dropped)


def read_follow_ups(text: str, *, cut: bool = False) -> ParsedFollowUps:
    """Return the follow-ups that a text asks, or its final answer.

    What stands behind a follow-up was made up by the model, and is dropped. If the reply was `cut`
    short, nothing counts that its end belongs to.
    """
    return _Reader(_LISTED.sub("", text), cut).read()


def read_sub_answer(text: str) -> str:
    """Return a model's answer to one sub-question: the text before any marker, else the value of
    the first answer.
    """
    reader = _Reader(text, cut=False)
    if not reader.tokens:
        return _strip_bold(text)
    first = reader.tokens[0]
    before = _strip_bold(text[: first.start])
    if before or first.kind not in ANSWERS:
        return before
    return reader.get_value(0)


def read_final_answer(text: str) -> str | None:
    """Return the answer of a text where nothing else is asked for; `None` for protocol text or a
    lead-in.
    """
    text = _LISTED.sub("", text)
    reader = _Reader(text, cut=False)
    answer = reader.read().answer if reader.tokens else _read_prose(text)
    if not answer or answer.endswith(":"):
        return None
    return answer


def _read_prose(text: str) -> str:
    return read_closing_answer(text, "text") or _strip_bold(text)


def quote_markers(text: str) -> str:
    """Return a text that is not the model's, with `> ` before lines that look like markers."""
    return TOKENIZER.quote(_LISTED.sub(r"> \g<0>", text))


class _Reader:
    """Reads the lines of Self-Ask in one text.

    Args:
        text: the text, without the bullets of a list of markers.
        cut: whether the model's reply was cut short.
    """

    def __init__(self, text: str, cut: bool) -> None:
        self._text, self._cut = text, cut
        self.tokens = _select_meant(TOKENIZER.tokenize(text).tokens)

    def read(self) -> ParsedFollowUps:
        """Return what the first marker with something behind it says."""
        for index, token in enumerate(self.tokens):
            line, _ = self._get_line(index)
            if token.kind in FINALS and line:
                return self._read_final(index)
            is_question = token.kind in FOLLOW_UPS and not _is_empty(line)
            if is_question or token.kind == "tool":
                return self._read_questions(index)
        return ParsedFollowUps(self._text.strip())

    def get_value(self, index: int) -> str:
        """Return the text behind a marker, without markup around it."""
        token = self.tokens[index]
        value = self._text[token.value_start : self._find_end(index)]
        return _strip_markup(value, token)

    def _find_end(self, index: int) -> int:
        return find_value_end(self._text, self.tokens, index)

    def _get_line(self, index: int) -> tuple[str, int]:
        """Return the first line of a marker's value, and where it ends."""
        token, end = self.tokens[index], self._find_end(index)
        found = _FIRST_LINE.match(self._text, token.value_start, end)
        if found is None:
            return "", end
        return _strip_markup(found[1], token), found.end()

    def _read_final(self, index: int) -> ParsedFollowUps:
        """Return the last of the final answers one after the other: a model may correct itself."""
        start = self.tokens[index].start
        last = index
        while last + 1 < len(self.tokens) and self.tokens[last + 1].kind in FINALS:
            last += 1
        end = self._find_end(last)
        answer = self.get_value(last)
        may_continue = self._cut and end == len(self._text)
        if not answer or may_continue:
            return ParsedFollowUps(self._text[:start].strip())
        text, dropped = self._text[:end].strip(), self._text[end:].strip()
        return ParsedFollowUps(text, (), answer, dropped)

    def _read_questions(self, index: int) -> ParsedFollowUps:
        """Return the follow-ups one below the other, each with the call below it if there is one."""
        questions = self._collect_questions(index)
        if self._cut and not self._has_line_break(questions[-1].end):
            questions.pop()
        if not questions:
            return ParsedFollowUps(self._text[: self.tokens[index].start].strip())
        end = questions[-1].end
        text, dropped = self._text[:end].strip(), self._text[end:].strip()
        return ParsedFollowUps(text, tuple(questions), None, dropped)

    def _has_line_break(self, start: int) -> bool:
        behind = self._text[start:]
        return "\r" in behind or "\n" in behind

    def _collect_questions(self, index: int) -> list[FollowUp]:
        questions: list[FollowUp] = []
        for number in range(index, len(self.tokens)):
            token = self.tokens[number]
            if token.kind == "tool_input":
                continue  # read with its tool
            asked = questions[-1] if questions else None
            if token.kind == "tool" and asked is not None and not asked.tool:
                questions[-1] = self._read_call(number, asked.question)
                continue
            if asked is not None and self._text[asked.end : token.start].strip():
                break
            if token.kind == "tool":
                questions.append(self._read_call(number, None))
            elif token.kind in FOLLOW_UPS:
                question, end = self._get_line(number)
                if not _is_empty(question):
                    questions.append(FollowUp(question, end))
            else:
                break
        return questions

    def _read_call(self, index: int, question: str | None) -> FollowUp:
        """Return the call of the tool at `index`, for the question before it if there is one."""
        token, end = self.tokens[index + 1], self._find_end(index + 1)
        tool, _ = self._get_line(index)
        written = self._text[token.value_start : end].strip()
        if written.startswith(("{", *FENCE_STARTS)):
            asked = f"{tool} {written}"
            whole = self._text[token.value_start : end].rstrip()
            end = token.value_start + len(whole)
        else:
            written, end = self._get_line(index + 1)
            asked = written or tool
        return FollowUp(question or asked, end, tool, written)


def _select_meant(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens without those that only look so: `Tool:` or `Question:` in an answer."""
    kinds = ["", *(token.kind for token in tokens), ""]
    meant: list[Token] = []
    for token, before, after in zip(tokens, kinds, kinds[2:], strict=False):
        wanted_after = FOLLOWED_BY.get(token.kind, after)
        is_stray_input = token.kind == "tool_input" and before != "tool"
        if after == wanted_after and not is_stray_input:
            meant.append(token)
    return meant


def _strip_markup(value: str, token: Token) -> str:
    value = value.strip()
    if not token.markup:
        return _strip_bold(value)
    return value.removesuffix(token.markup).rstrip()


def _strip_bold(text: str) -> str:
    """Return a text without the bold that is around the whole of it."""
    text = text.strip()
    inner = text[2:-2]
    is_bold = text == f"**{inner}**" and "**" not in inner
    return inner.strip() if is_bold else text


def _is_empty(question: str) -> bool:
    return question.rstrip(".").casefold() in EMPTY_INPUTS
