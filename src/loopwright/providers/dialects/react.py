"""The ReAct dialect: Thought, Action, Action Input and Final Answer at line starts (Yao et al., arXiv:2210.03629)."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from ...messages import ToolCall
from ...parsing import Markers, Scan, find_close, read_object
from ...parsing.arguments import Signature, find_tool, list_tools, plain_arguments, read_arguments, read_name
from ...prompts import PromptSet
from ...provider import Request
from .dialect import Parsed
from .turns import compact_json, instructions, tell

PROMPTS = PromptSet(
    instructions="""\
You can use these tools:
{tools}

Use one tool at a time. To use one, write exactly these lines and then stop:
Thought: what you need to find out
Action: the name of one tool
Action Input: a JSON object with its arguments

The result comes back after `Observation:`, which you never write yourself. When you know the answer, write:
Thought: why you are done
Final Answer: the answer""",
    tool="- {name}: {description}\n  Arguments, as JSON schema: {schema}",
    answer_now="No tool can be used now. Write `Final Answer:` and your answer.",
    answer_schema="The text after `Final Answer:` must be JSON that fits this schema: {schema}",
)

MARKERS = Markers(
    {
        "thought": "thought",
        "action": "action",
        "input": "action input",
        "answer": "final answer",
        "observation": "observation",
    }
)
STOP = "\nObservation:"
ENDINGS = {"finish", "final answer", "final_answer", "finalanswer"}
NO_ACTION = {"none", "n/a"}
CUT_STOP_WORD = 4  # letters of "Observation" that a server may leave behind when it cuts at the stop sequence


@dataclasses.dataclass(frozen=True)
class Reading:
    """A reply up to its first self-written observation, and the markers in it."""

    text: str
    scan: Scan
    flags: tuple[str, ...]

    def value(self, index: int) -> str:
        """What stands between a marker and the next one."""
        mark = self.scan.marks[index]
        value = self.text[mark.value : self.end(index)].strip()
        return value.removesuffix(mark.markup).rstrip() if mark.markup else value

    def end(self, index: int) -> int:
        """Where the value of a marker ends."""
        marks = self.scan.marks
        return marks[index + 1].start if index + 1 < len(marks) else len(self.text)

    def decides(self, index: int) -> bool:
        """Whether a marker is an answer or an action; `Action: None` is none."""
        kind = self.scan.marks[index].kind
        return kind == "answer" or (kind == "action" and self.value(index).rstrip(".").casefold() not in NO_ACTION)

    def goes_on_behind(self, index: int) -> bool:
        """Whether the reply went on behind the value of a marker, so that the value cannot have been cut short."""
        return index + 1 < len(self.scan.marks) or bool(self.flags)

    def thought(self, index: int) -> str:
        """The text before a marker, without the words `Thought:`."""
        parts: list[str] = []
        position = 0
        for mark in self.scan.marks[:index]:
            if mark.kind == "thought":
                parts.append(self.text[position : mark.start].strip())
                position = mark.value
        end = self.scan.marks[index].start if index < len(self.scan.marks) else len(self.text)
        parts.append(self.text[position:end].strip())
        return "\n".join(filter(None, parts))


def read(text: str) -> Reading:
    """The part of `text` that is the model's to say: what comes after its own `Observation:` is cut off and flagged."""
    text = _without_cut_stop_word(text)
    scan = MARKERS.scan(text)
    for index, mark in enumerate(scan.marks):
        if mark.kind == "observation":
            return Reading(text[: mark.start], Scan(scan.marks[:index]), ("invented_observation",))
    return Reading(text, scan, ())


def _without_cut_stop_word(text: str) -> str:
    body = text.rstrip()
    start = body.rfind("\n") + 1
    last = body[start:].strip(" \t*#").casefold()
    return body[:start] if len(last) >= CUT_STOP_WORD and "observation".startswith(last) else text


@dataclasses.dataclass(frozen=True)
class ReActDialect:
    """ReAct as text, with a stop sequence before the observation.

    Reads `Action:` with `Action Input:` (JSON, a Python dict, or plain text for a tool with one parameter), the paper's
    `Action 3: name[input]` and `Finish[answer]`, `Final Answer:` and `FINAL_ANSWER:`. Of several actions or answers the
    first counts. A marker in prose, in a code fence or in a JSON string is none.

    Args:
        prompts: what the model is told; see `PROMPTS`.
    """

    prompts: PromptSet = PROMPTS
    name: str = dataclasses.field(default="react", init=False)

    def render(self, request: Request) -> Request:
        """The request as plain text: instructions in the system message, results as observations, a stop sequence."""
        conversation = request.conversation
        if not request.tools:
            return dataclasses.replace(request, conversation=tell(conversation, self))
        if request.tool_choice == "none":
            conversation = conversation.user(self.prompts.fill("answer_now"), origin="runtime")
        told = tell(conversation, self).with_system(instructions(self.prompts, request))
        stop = tuple(dict.fromkeys([*request.sampling.stop, STOP]))
        return Request(told, sampling=dataclasses.replace(request.sampling, stop=stop))

    def say_call(self, thought: str, call: ToolCall) -> str:
        """A turn that calls a tool."""
        action = f"Action: {call.name}\nAction Input: {compact_json(dict(call.arguments))}"
        return f"Thought: {thought}\n{action}" if thought else action

    def say_answer(self, answer: str) -> str:
        """A turn that answers."""
        return f"Final Answer: {answer}"

    def say_observation(self, result: str) -> str:
        """A tool's result; its lines that start like markers are quoted."""
        return f"Observation: {MARKERS.quote(result)}"

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """The first call or answer in `text`, or what is wrong with it."""
        reading = read(text)
        marks = reading.scan.marks
        first = next((i for i in range(len(marks)) if reading.decides(i)), len(marks))
        thought = reading.thought(first)
        try:
            if first == len(marks):
                raise ValueError(_nothing_to_do(reading, tools))
            if marks[first].kind == "answer":
                return _answer(reading, first, thought, reading.value(first), "")
            return _action(reading, first, thought, tools)
        except ValueError as error:
            return Parsed(thought, (), None, str(error), reading.flags)


def _nothing_to_do(reading: Reading, tools: Sequence[Signature]) -> str:
    cure = "Write `Final Answer:` and the answer."
    if tools:
        cure = (
            f"Write `Action:` with one of these tools: {list_tools(tools)}, and `Action Input:` on the next line; "
            "or, if you know the answer, write `Final Answer:` and the answer."
        )
    if "invented_observation" in reading.flags:
        return f"Never write `Observation:` yourself: it comes after your action. {cure}"
    if reading.scan.unread is not None:
        return f"A code fence is never closed, so nothing after it is read. {cure}"
    return f"The reply has neither an action nor a final answer, each at the start of a line and outside code. {cure}"


def _answer(reading: Reading, last: int, thought: str, answer: str, rest: str = "") -> Parsed:
    if not answer:
        raise ValueError("The final answer is empty. Write `Final Answer:` and the answer behind it.")
    return Parsed(thought, (), answer, None, _flags(reading, last, rest))


def _flags(reading: Reading, last: int, rest: str) -> tuple[str, ...]:
    """What is dropped behind the marker `last` and behind its input: actions, answers, an observation, other text."""
    several = any(mark.kind in ("action", "answer") for mark in reading.scan.marks[last + 1 :])
    behind = rest.strip(" \t\r\n.,;*`")
    if several or "[" in behind.partition("\n")[0]:
        return ("several_actions", *reading.flags)
    return ("trailing_text", *reading.flags) if behind else reading.flags


def _action(reading: Reading, index: int, thought: str, tools: Sequence[Signature]) -> Parsed:
    value = reading.value(index)
    line, _, behind = value.partition("\n")
    opening = line.find("[")
    name = read_name(line[:opening], tools) if opening > 0 else ""
    if name:
        return _bracketed(reading, index, thought, Bracketed(name, value, opening), tools)
    name = read_name(line, tools)
    given = index + 1 < len(reading.scan.marks) and reading.scan.marks[index + 1].kind == "input"
    if not name or (not given and " " in name and find_tool(name, tools) is None):
        raise ValueError(f"`Action:` must be followed by the name of one tool alone: {list_tools(tools)}.")
    if behind.strip() and not given:
        raise ValueError(f"The arguments of {name} must stand behind `Action Input:` on the line after `Action:`.")
    return _with_input(reading, index + given, thought, Named(name, reading.value(index + 1) if given else ""), tools)


class Bracketed(NamedTuple):
    """A call in the paper's form, `name[input]`, and where in `text` its bracket opens."""

    name: str
    text: str
    opening: int


class Named(NamedTuple):
    """A call whose input stands behind `Action Input:`."""

    name: str
    input: str


def _bracketed(reading: Reading, last: int, thought: str, call: Bracketed, tools: Sequence[Signature]) -> Parsed:
    close = _close(call)
    inside, rest = call.text[call.opening + 1 : close].strip(), call.text[close + 1 :]
    tool = find_tool(call.name, tools)
    if tool is None and call.name.casefold() in ENDINGS:
        return _answer(reading, last, thought, inside, rest)
    if inside.startswith("{"):
        arguments, _ = read_arguments(inside, call.name, tool)
    else:
        arguments = plain_arguments(inside, call.name, tool, quotes_are_text=True)
    return Parsed(thought, (ToolCall(call.name, arguments),), None, None, _flags(reading, last, rest))


def _close(call: Bracketed) -> int:
    """Where the bracket of a call closes; brackets in the strings of an object mean nothing."""
    inside = call.text[call.opening + 1 :].lstrip()
    if not inside.startswith("{"):
        close = find_close(call.text, call.opening)
    else:
        try:
            _, length = read_object(inside)
        except ValueError as error:
            raise ValueError(f"The input of {call.name} cannot be read: {error}. Write the whole call again.") from None
        behind = inside[length:].lstrip()
        close = len(call.text) - len(behind) if behind.startswith("]") else None
    if close is None:
        raise ValueError(f"The bracket of {call.name}[ is never closed. Write the whole call again.")
    return close


def _with_input(reading: Reading, last: int, thought: str, call: Named, tools: Sequence[Signature]) -> Parsed:
    tool = find_tool(call.name, tools)
    if tool is None and call.name.casefold() in ENDINGS:
        return _answer(reading, last, thought, _only_text(call.input))
    closes_itself = call.input.startswith(("{", "```", "~~~"))
    unread = reading.scan.unread
    if unread is not None and unread >= reading.scan.marks[last].value and not closes_itself:
        raise ValueError(f"A code fence in the input of {call.name} is never closed. Write the whole call again.")
    arguments, rest = read_arguments(call.input, call.name, tool)
    complete = closes_itself or reading.goes_on_behind(last)
    return Parsed(thought, (ToolCall(call.name, arguments),), None, None, _flags(reading, last, rest), complete)


def _only_text(text: str) -> str:
    """The string in an object such as `{"answer": "…"}`, else the text itself."""
    try:
        found, _ = read_object(text)
    except ValueError:
        return text
    values = list(found.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else text
