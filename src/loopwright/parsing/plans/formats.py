"""The dialects of plans: from lines, labels or JSON to the drafts of steps that they hold."""

import dataclasses
import json
import re
from collections.abc import Iterator

from ...messages import Json
from ..fences import find_fences, read_fence
from ..json_text import read_json, read_object
from ..tokenizer import find_closing_bracket
from .calls import find_call_end

MAX_STEP_NUMBER = 99  # a higher number at the start of a line is a year or the like
THINKER = "llm"  # ReWOO's name for a step without a tool: `#E2 = LLM[question]`
JOIN = "join"

_STEP = re.compile(
    r"[ \t]*+(?:[-*+\u2022][ \t]++)?+(?:#{1,6}+[ \t]*+)?+(?P<markup>\*{1,3}+|_{1,3}+)?+[ \t]*+"
    r"(?P<word>(?:step|task)[ \t]*+#?)?+(?P<id>\d{1,4}+)(?P<closed>\*{1,3}+|_{1,3}+)?+"
    r"(?:[.):]|(?(word)[ \t]*+[-\u2013\u2014]|(?!)))(?!\d)(?P<closed_behind>\*{1,3}+|_{1,3}+)?+[ \t]*+(?P<body>.*)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"[ \t]*+[-*+\u2022][ \t]++(?:\[[ xX]?\][ \t]++)?+(?P<body>.*)")
_BELOW = re.compile(
    r"[ \t]++\S|[-*+\u2022][ \t]|\d{1,4}+\.\d|[A-Za-z][.)][ \t]"
)  # what belongs to the step above
_THOUGHT = re.compile(
    r"[ \t]*+[*_]{0,3}thought[ \t]*+\d{0,4}[*_]{0,3}:[*_]{0,3}[ \t]*+(?P<thought>.*)",
    re.IGNORECASE,
)
_CALL = re.compile(r"[`*]*+(?P<name>[A-Za-z_][\w.-]*+)(?P<gap>[`*]*+ ?)(?P<open>[(\[])")
_JOIN = re.compile(r"[`*]*+join[`*]*+\s*+(?:\(.*\))?+[`*.;]*+\s*+", re.IGNORECASE)
_LABEL = re.compile(
    r"(?:^|(?<=[\s*`]))(?:#E(?P<id>\d{1,4}+)|E(?P<bare>\d{1,4}+))[*`]*+[ \t]*+=(?!=)[ \t]*+",
    re.MULTILINE,
)
_BARE_LABEL = re.compile(r"(?<![\w#$])E(\d{1,4}+)\b")
_PLAN = re.compile(
    r"^[ \t]*+(?:\d{1,4}+[.)][ \t]*+)?+[*_#]*+[ \t]*+plan[ \t]*+#?\d{0,4}[*_]*+:[*_]*+",
    re.I | re.M,
)
_BEHIND = " \t`*.;,"
_COMMENT = ("#", "//", "--", "- ", "->", "\u2013", "\u2014")


@dataclasses.dataclass
class Draft:
    """A step as it is being read; `depends_on` is `None` where the plan does not say, `lines` are the text behind."""

    id: int
    text: str
    thought: str = ""
    tool: str | None = None
    arguments: str = ""
    goal: str = ""
    depends_on: tuple[int, ...] | None = None
    lines: list[str] = dataclasses.field(default_factory=list[str])
    open: bool = True  # whether lines that are indented still belong to it


class PlanReader:
    """Reads one reply; `joined` says then whether the plan ended in `join()`.

    Args:
        tools: names of the known tools, in small letters.
        first: the number of the first step.
    """

    def __init__(self, tools: set[str], first: int) -> None:
        self._tools, self._first, self.joined = tools, first, False

    def is_tool(self, name: str) -> bool:
        """Whether a tool is named so."""
        return name.casefold() in self._tools

    def is_subgoal(self, draft: Draft) -> bool:
        """Whether a step calls no tool."""
        return draft.tool is None or (
            draft.tool.casefold() == THINKER and not self.is_tool(draft.tool)
        )

    def read(self, text: str) -> list[Draft]:
        """The steps in a text, in order; none if there are none. Raises ValueError with the reason for half a plan."""
        found = _find_json(text)
        if found is not None:
            return self._without_join(
                [self._from_json(step, self._first + i) for i, step in enumerate(found)]
            )
        labels = [
            label
            for label in _LABEL.finditer(text)
            if label["id"] or _CALL.match(text, label.end())
        ]
        if labels:
            return self._labelled(text, labels)
        lines = list(_lines(text))
        drafts = self._listed(lines) or self._bulleted(lines)
        if not drafts:
            inside = [
                (line, False) for fence in _fenced(text) for line in fence.splitlines()
            ]
            drafts = self._listed(inside) or self._bulleted(inside)
        self.joined = not drafts and _JOIN.fullmatch(text.strip()) is not None
        return self._without_join([self._read_call(draft) for draft in drafts])

    # --- numbered and bulleted lines: LLMCompiler and prose ---

    def _listed(self, lines: list[tuple[str, bool]]) -> list[Draft]:
        drafts: list[Draft] = []
        thought, outer = "", 0
        for line, fenced in lines:
            step = None if fenced else _STEP.match(line)
            indent = len(line) - len(line.lstrip())
            said = _THOUGHT.match(line)
            if (
                step
                and int(step["id"]) <= MAX_STEP_NUMBER
                and (not drafts or indent <= outer)
            ):
                self._check_number(int(step["id"]), drafts)
                outer = indent if not drafts else outer
                drafts.append(Draft(int(step["id"]), _body(step), thought))
                thought = ""
            elif said and not fenced:
                thought = said["thought"].strip()
            elif drafts:
                _add_line(drafts[-1], line, fenced)
        return drafts

    def _check_number(self, number: int, drafts: list[Draft]) -> None:
        expected = {drafts[-1].id + 1} if drafts else {self._first, 1}
        if number not in expected:
            after = (
                f"{drafts[-1].id} is followed by {number}"
                if drafts
                else f"the first is {number}"
            )
            raise ValueError(
                f"The steps must be numbered one by one from {self._first} on, in one list, but {after}."
            )

    def _bulleted(self, lines: list[tuple[str, bool]]) -> list[Draft]:
        drafts: list[Draft] = []
        outer = 0
        for line, fenced in lines:
            bullet = None if fenced else _BULLET.match(line)
            indent = len(line) - len(line.lstrip())
            if bullet and (not drafts or indent <= outer):
                outer = indent if not drafts else outer
                drafts.append(Draft(self._first + len(drafts), bullet["body"].strip()))
            elif drafts:
                _add_line(drafts[-1], line, fenced)
        return drafts

    def _read_call(self, draft: Draft) -> Draft:
        """The step as a call if its text is one; a call may go on over several lines."""
        whole = "\n".join([draft.text, *draft.lines])
        called = _CALL.match(whole)
        if called is None or not self._may_call(called):
            self._check_lost(draft)
            return draft
        name, opening = called["name"], called.start("open")
        close = (
            find_call_end(whole, opening)
            if called["open"] == "("
            else find_closing_bracket(whole, opening)
        )
        if close is None:
            raise ValueError(
                f"Step {draft.id}: the bracket of {name}{called['open']} is never closed."
            )
        behind = whole[close + 1 :].partition("\n")[0].strip(_BEHIND)
        if not self.is_tool(name) and behind and not behind.startswith(_COMMENT):
            return draft  # prose that begins like a call: "f(x) is even"
        other = next(
            (c for c in _CALL.finditer(behind) if self.is_tool(c["name"])), None
        )
        if other is not None:
            raise ValueError(
                f"Step {draft.id} calls {name} and {other['name']}: write one call a step."
            )
        draft.tool, draft.arguments = name, whole[opening + 1 : close].strip()
        draft.goal = behind.lstrip("#/->\u2013\u2014: ")
        return draft

    def _check_lost(self, draft: Draft) -> None:
        """A call on a line of its own, which belongs to no step, would be lost."""
        for line in draft.lines:
            called = _CALL.match(line)
            if called and self.is_tool(called["name"]) and line not in draft.goal:
                raise ValueError(
                    f"Step {draft.id}: write the call of {called['name']} right behind its number."
                )

    def _may_call(self, called: re.Match[str]) -> bool:
        plainly = called["open"] == "(" and not called["gap"].endswith(" ")
        return (
            plainly
            or self.is_tool(called["name"])
            or (called["open"] == "[" and called["name"].casefold() == THINKER)
        )

    def _without_join(self, drafts: list[Draft]) -> list[Draft]:
        for index, draft in enumerate(drafts):
            ends = (draft.tool or "").casefold() == JOIN or _JOIN.fullmatch(draft.text)
            if ends and not self.is_tool(JOIN):
                if index + 1 < len(drafts):
                    raise ValueError(
                        f"Step {draft.id} is join(), which must be the last line, but more steps follow."
                    )
                self.joined = True
                return drafts[:-1]
        return drafts

    # --- ReWOO ---

    def _labelled(self, text: str, labels: list[re.Match[str]]) -> list[Draft]:
        drafts: list[Draft] = []
        begin = 0
        for index, label in enumerate(labels):
            end = labels[index + 1].start() if index + 1 < len(labels) else len(text)
            plans = list(_PLAN.finditer(text, begin, label.start()))
            goal = (
                " ".join(text[plans[-1].end() : label.start()].split()) if plans else ""
            )
            next_plan = _PLAN.search(text, label.end(), end)
            said = text[label.end() : next_plan.start() if next_plan else end].strip()
            said = _BARE_LABEL.sub(r"#E\1", said) if label["bare"] else said
            draft = Draft(int(label["id"] or label["bare"]), said.rstrip("*`"))
            self._read_evidence(draft)
            draft.goal = (goal or draft.goal) if draft.tool else ""
            drafts.append(draft)
            begin = label.end()
        return drafts

    def _read_evidence(self, draft: Draft) -> None:
        called = _CALL.match(draft.text)
        if called is not None and called["open"] == "[":
            close = find_closing_bracket(draft.text, called.start("open"))
            if close is None:
                raise ValueError(
                    f"#E{draft.id}: the bracket of {called['name']}[ is never closed."
                )
            draft.tool, draft.arguments = (
                called["name"],
                draft.text[called.end() : close].strip(),
            )
            draft.goal = draft.text[close + 1 :].strip()
        else:
            self._read_call(draft)

    # --- JSON ---

    def _from_json(self, step: Json, number: int) -> Draft:
        if isinstance(step, str):
            return Draft(number, step)
        if not isinstance(step, dict):
            raise ValueError(
                f"Step {number} must be an object with `tool` or `goal`, or a text."
            )
        named = step.get("step")
        given = step.get(
            "id",
            named if not isinstance(named, str) or named.strip().isdigit() else None,
        )
        draft = Draft(
            number
            if given is None
            else _whole_number(given, f"the id of step {number}"),
            "",
        )
        tool = _first_text(step, "tool", "tool_name", "skill", "skill_name", "name")
        others = (_first_text(step, key) for key in ("step", "function", "action"))
        tool = tool or next((other for other in others if self.is_tool(other)), "")
        arguments = _first(
            step,
            "arguments",
            "args",
            "input",
            "input_description",
            "query",
            "parameters",
            "tool_input",
            "action_input",
        )
        written = (
            arguments
            if isinstance(arguments, str)
            else json.dumps(arguments, ensure_ascii=False)
        )
        about = _first_text(
            step, "goal", "description", "task", "instruction", "step", "reason"
        )
        if tool.casefold() in ("", "none", "null"):
            draft.text = (
                about
                if about and not about.isdigit()
                else written
                if arguments is not None
                else ""
            )
        else:
            draft.tool, draft.arguments, draft.goal = (
                tool,
                written if arguments is not None else "",
                about,
            )
        draft.thought = _first_text(step, "thought")
        draft.depends_on = _dependencies(step, number)
        return draft


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """The lines of a text, and whether each begins inside a code fence."""
    fences, unread = find_fences(text)
    position = upcoming = 0
    for line in text.splitlines(keepends=True):
        while upcoming < len(fences) and fences[upcoming][1] <= position:
            upcoming += 1
        inside = upcoming < len(fences) and fences[upcoming][0] <= position
        yield line.rstrip(), inside or (unread is not None and unread <= position)
        position += len(line)


def _fenced(text: str) -> Iterator[str]:
    for start, _ in find_fences(text)[0]:
        yield read_fence(text, start)[0]


def _body(step: re.Match[str]) -> str:
    """A step's text without the markup that its number opened and left open."""
    markup, body = step["markup"], step["body"].strip()
    open_still = markup and not (step["closed"] or step["closed_behind"])
    return body.replace(markup, "", 1).strip() if open_still else body


def _add_line(draft: Draft, line: str, fenced: bool) -> None:
    """Keep a line behind a step: as its text if it is indented, a sub-item or in a code fence, else as filler."""
    if not draft.text:
        draft.text = line.strip()
    else:
        draft.lines.append(line)
        draft.open = draft.open and (
            fenced or not line.strip() or _BELOW.match(line) is not None
        )
        if draft.open and line.strip():
            draft.goal += f"\n{line}"


def _find_json(text: str) -> list[Json] | None:
    """The steps of a JSON plan; `None` if the text holds none."""
    unfenced = [
        match.start() for match in re.finditer(r"^[ \t]*+[{\[]", text, re.MULTILINE)
    ][:1]
    for body in [*_fenced(text), *(text[start:] for start in unfenced)]:
        value = _json_value(body.strip())
        steps = (
            _first(value, "steps", "plan", "new_plan")
            if isinstance(value, dict)
            else value
        )
        if isinstance(steps, list) and (
            isinstance(value, dict) or any(isinstance(step, dict) for step in steps)
        ):
            return steps
    return None


def _json_value(body: str) -> Json:
    """The object or list that a text begins with, `None` if it begins with none; ValueError for a broken plan."""
    if not body.startswith(("{", "[")):
        return None
    try:
        return read_json(body)[0] if body[0] == "[" else read_object(body)[0]
    except ValueError as error:
        try:
            return (
                read_object(f'{{"steps": {body}}}')[0]["steps"]
                if body[0] == "["
                else None
            )
        except ValueError:
            return None
        finally:
            if body[0] == "{" and re.match(
                r"""\{\s*+["'](?:steps|plan|new_plan)["']""", body
            ):
                raise ValueError(
                    f"The JSON of the plan cannot be read: {error}. Write it again, whole."
                ) from None


def _first(step: dict[str, Json], *names: str) -> Json:
    return next((step[name] for name in names if step.get(name) is not None), None)


def _first_text(step: dict[str, Json], *names: str) -> str:
    return next(
        (
            value.strip()
            for value in map(step.get, names)
            if isinstance(value, str) and value.strip()
        ),
        "",
    )


def _whole_number(value: Json, what: str) -> int:
    digits = re.fullmatch(
        r"(?:[$#]|#?E|step)?[ _]?\{?(\d{1,4})\}?", str(value).strip(), re.IGNORECASE
    )
    if digits is None:
        raise ValueError(
            f"It must be a whole number, and {what} is {str(value)[:40]!r}."
        )
    return int(digits[1])


def _dependencies(step: dict[str, Json], number: int) -> tuple[int, ...] | None:
    given = _first(step, "depends_on", "dependencies", "deps")
    if given is None:
        return None
    listed = given if isinstance(given, list) else [given]
    return tuple(_whole_number(one, f"a dependency of step {number}") for one in listed)
