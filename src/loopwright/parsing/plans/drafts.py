"""Drafts: the steps of a plan while it is read, and the calls that stand in their texts."""

import re
from collections.abc import Collection, Sequence

from ..._internal import dataclasses
from ..tokenizer import find_closing_bracket
from .calls import find_call_end

THINKER = "llm"  # ReWOO's name for a step without a tool: `#E2 = LLM[question]`
JOIN = "join"

CALL = re.compile(r"[`*]*+(?P<name>[A-Za-z_][\w.-]*+)(?P<gap>[`*]*+ ?)(?P<open>[(\[])")
_JOIN_CALL = re.compile(r"[`*]*+join[`*]*+\s*+(?:\(.*\))?+[`*.;]*+\s*+", re.IGNORECASE)
_BELOW = re.compile(  # what belongs to the step above
    r"[ \t]++\S|[-*+\u2022][ \t]|\d{1,4}+\.\d|[A-Za-z][.)][ \t]"
)
_AROUND_REMARK = " \t`*.;,"
_COMMENT_STARTS = ("#", "//", "--", "- ", "->", "\u2013", "\u2014")


@dataclasses.dataclass
class Draft:
    """A step while it is read.

    Args:
        id: its number.
        text: what stands behind its number.
        thought: what the model thought just before it.
        tool: the tool that it calls, as written; `None` for a goal in words.
        arguments: the input of the call as written.
        goal: what it is to find out or do.
        depends_on: the steps that it needs; `None` where the plan does not say.
        lines: the lines below it.
        is_open: whether lines that are indented still belong to it.
    """

    id: int
    text: str
    thought: str = ""
    tool: str | None = None
    arguments: str = ""
    goal: str = ""
    depends_on: tuple[int, ...] | None = None
    lines: list[str] = dataclasses.field(default_factory=list[str])
    is_open: bool = True

    def add_line(self, line: str, *, is_fenced: bool) -> None:
        """Keep a line below the step: in its goal if it is indented, a sub-item or in a code fence."""
        if not self.text:
            self.text = line.strip()
            return
        self.lines.append(line)
        is_blank = not line.strip()
        belongs = is_fenced or is_blank or _BELOW.match(line) is not None
        self.is_open = self.is_open and belongs
        if self.is_open and not is_blank:
            self.goal += f"\n{line}"


class CallReader:
    """Reads the calls in the texts of drafts.

    Args:
        tools: names of the known tools, in lower case.
    """

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools

    def is_tool(self, name: str) -> bool:
        """Return whether a tool has that name."""
        return name.casefold() in self._tools

    def is_subgoal(self, draft: Draft) -> bool:
        """Return whether a step calls no tool."""
        if draft.tool is None:
            return True
        return draft.tool.casefold() == THINKER and not self.is_tool(draft.tool)

    def read_call(self, draft: Draft) -> None:
        """Turn a draft into a call if its text is one; a call may continue over several lines."""
        whole = "\n".join([draft.text, *draft.lines])
        called = CALL.match(whole)
        if called is None or not self._can_be_call(called):
            self._check_lines(draft)
            return
        name, opening = called["name"], called.start("open")
        close = _find_close(called)
        if close is None:
            raise ValueError(
                f"Step {draft.id}: the bracket of {name}{called['open']} is never closed."
            )
        remark = whole[close + 1 :].partition("\n")[0].strip(_AROUND_REMARK)
        is_comment = not remark or remark.startswith(_COMMENT_STARTS)
        if not self.is_tool(name) and not is_comment:
            return  # prose that begins like a call: "f(x) is even"
        other = self._find_tool_call(remark)
        if other is not None:
            raise ValueError(
                f"Step {draft.id} calls {name} and {other}: write one call a step."
            )
        draft.tool, draft.arguments = name, whole[opening + 1 : close].strip()
        draft.goal = remark.lstrip("#/->\u2013\u2014: ")

    def read_evidence(self, draft: Draft) -> None:
        """Turn a draft of ReWOO into a call, `Search[x]`, in which brackets alone count."""
        called = CALL.match(draft.text)
        if called is None or called["open"] != "[":
            self.read_call(draft)
            return
        close = find_closing_bracket(draft.text, called.start("open"))
        if close is None:
            raise ValueError(
                f"#E{draft.id}: the bracket of {called['name']}[ is never closed."
            )
        draft.tool = called["name"]
        draft.arguments = draft.text[called.end() : close].strip()
        draft.goal = draft.text[close + 1 :].strip()

    def is_join(self, draft: Draft) -> bool:
        """Return whether a step is the `join()` that ends a plan."""
        if self.is_tool(JOIN):
            return False
        calls_join = draft.tool is not None and draft.tool.casefold() == JOIN
        return calls_join or is_join_call(draft.text)

    def _can_be_call(self, called: re.Match[str]) -> bool:
        if self.is_tool(called["name"]):
            return True
        if called["open"] == "(":
            return not called["gap"].endswith(" ")
        return called["name"].casefold() == THINKER

    def _check_lines(self, draft: Draft) -> None:
        """Raise ValueError for a call on a line by itself, which belongs to no step and would be
        lost.
        """
        for line in draft.lines:
            called = CALL.match(line)
            if called is None or line in draft.goal:
                continue
            if self.is_tool(called["name"]):
                raise ValueError(
                    f"Step {draft.id}: write the call of {called['name']} right behind its number."
                )

    def _find_tool_call(self, text: str) -> str | None:
        """Return the name of the first known tool that a text calls."""
        names = (called["name"] for called in CALL.finditer(text))
        return next(filter(self.is_tool, names), None)


def is_join_call(text: str) -> bool:
    """Return whether a text is `join()` and nothing else."""
    return _JOIN_CALL.fullmatch(text) is not None


def _find_close(called: re.Match[str]) -> int | None:
    """Return where the bracket of a call closes; in round brackets strings count, in square ones
    they do not.
    """
    find = find_call_end if called["open"] == "(" else find_closing_bracket
    return find(called.string, called.start("open"))


def split_join(drafts: list[Draft], calls: CallReader) -> tuple[list[Draft], bool]:
    """Return the steps before the `join()` of a plan, and whether there was one; raise ValueError
    for steps behind.
    """
    index = _find_join(drafts, calls)
    if index is None:
        return drafts, False
    if index + 1 < len(drafts):
        raise ValueError(
            f"Step {drafts[index].id} is join(), which must be the last line, but more steps follow."
        )
    return drafts[:-1], True


def _find_join(drafts: Sequence[Draft], calls: CallReader) -> int | None:
    joins = (index for index, draft in enumerate(drafts) if calls.is_join(draft))
    return next(joins, None)
