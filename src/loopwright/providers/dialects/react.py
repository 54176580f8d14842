"""The ReAct dialect: thought, action, observation and answer at line starts (Yao et al., arXiv:2210.03629)."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from ...errors import ConfigError
from ...messages import Conversation, Json, JsonObject, ToolCall, ToolSpec
from ...parsing import find_closing_bracket, read_object
from ...parsing.arguments import (
    Signature,
    find_tool,
    get_parameters,
    list_tool_names,
    read_arguments,
    read_name,
    read_plain_arguments,
)
from ...parsing.react_text import EXTENDED_TOKENIZER, ParsedReply, read_reply
from ...prompts import PromptSet
from ..base import Request
from .dialect import Parsed
from .react_stream import ReActStreamParser
from .streaming import StreamParser
from .transcript import build_instructions, compact_json, find_next_step, write_steps

Form: TypeAlias = Literal["input", "bracket", "numbered"]

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
    thoughts_alone="A reply may also be a thought alone, behind `Thought:`; you then go on in your next reply.",
    answer_now="No tool can be used now. Write `Final Answer:` and your answer.",
    answer_schema="The text after `Final Answer:` must be JSON that fits this schema: {schema}",
    how_to_call="`Action:` with one of these tools: {tools}, and `Action Input:` on the next line",
    how_to_answer="`Final Answer:` and the answer",
    bad_name="`Action:` must be followed by the name of one tool alone: {tools}.",
    bad_input="The arguments of {name} must stand behind `Action Input:` on the line after `Action:`.",
)
BRACKET = PROMPTS.override(
    instructions="""\
You can use these tools:
{tools}

Use one tool at a time. To use one, write exactly these lines and then stop:
Thought: what you need to find out
Action: tool[input]

The input of a tool with one parameter is the value alone, as plain text. With several it is a JSON object:
Action: tool[{{"first": 1, "second": "two"}}]

The result comes back after `Observation:`, which you never write yourself. When you know the answer, write:
Thought: why you are done
Action: Finish[the answer]""",
    tool="- {name}[{schema}]: {description}",
    answer_now="No tool can be used now. Write `Action: Finish[your answer]`.",
    answer_schema="The answer must be JSON that fits the schema below. Write it behind `Final Answer:`, in place of "
    "`Action: Finish[...]`.\n{schema}",
    how_to_call="`Action: tool[input]` with one of these tools: {tools}",
    how_to_answer="`Action: Finish[the answer]`",
    bad_name="`Action:` must be followed by a call, `tool[input]`, of one of these tools: {tools}.",
    bad_input="The input of {name} must stand in brackets right behind its name: {name}[input].",
)
NUMBERED = BRACKET.override(
    instructions="""\
You can use these tools:
{tools}

Solve the task in numbered steps: a thought, an action, and the observation that it brings. In each reply write one
thought and one action, exactly so, with the number of the step, and then stop:
Thought 1: what you need to find out
Action 1: tool[input]

The input of a tool with one parameter is the value alone, as plain text. With several it is a JSON object:
Action 1: tool[{{"first": 1, "second": "two"}}]

The result comes back after `Observation 1:`, which you never write yourself; go on with step 2. When you know the
answer, finish in place of using a tool:
Thought 4: why you are done
Action 4: Finish[the answer]""",
)
PROMPTS_BY_FORM: dict[Form, PromptSet] = {
    "input": PROMPTS,
    "bracket": BRACKET,
    "numbered": NUMBERED,
}
ENDINGS = {"finish", "final answer", "final_answer", "finalanswer"}
THINK = "think"


@dataclasses.dataclass(frozen=True)
class ReActDialect:
    """ReAct as text, with a stop sequence before the observation.

    It reads, in every form, `Action:` with `Action Input:` (JSON, a Python dict, or plain text for a tool with one
    parameter), the paper's `Action 3: name[input]` and `Finish[answer]`, `Final Answer:` and `FINAL_ANSWER:`. The first
    of several actions or answers counts; without any, `STEP_RESULT:` is an answer. A marker in prose, in a code fence or
    in a JSON string is ignored.

    Args:
        form: what the model is told to write, and how its earlier turns are written. "input" is `Action:` and
            `Action Input:` with JSON. "bracket" is the paper's `Action: name[input]` and `Action: Finish[answer]`, with
            a JSON object in the brackets for a tool with several parameters. "numbered" adds the number of the step to
            each marker and to the stop sequence; steps are counted from 1 for each question of the user.
        prompts: replace some or all of the form's own prompts (see `PROMPTS`, `BRACKET` and `NUMBERED`).
        thoughts_alone: whether a reply with nothing but `Thought:`, or with `think[...]` as its action if no tool has
            that name, is a turn without calls, answer and problem. Otherwise it is a problem, which asks for the
            missing action.

    Raises:
        ConfigError: the form is unknown.
    """

    form: Form = "input"
    prompts: PromptSet = PROMPTS
    thoughts_alone: bool = False
    name: str = dataclasses.field(default="react", init=False)

    def __post_init__(self) -> None:
        """Complete the prompts, and name the dialect after its form."""
        if self.form not in PROMPTS_BY_FORM:
            raise ConfigError(
                f"form: there is no {self.form!r}; use {', '.join(map(repr, PROMPTS_BY_FORM))}"
            )
        prompts = PROMPTS_BY_FORM[self.form].override(**self.prompts.changes(PROMPTS))
        object.__setattr__(self, "prompts", prompts)
        if self.form != "input":
            object.__setattr__(self, "name", f"react-{self.form}")

    def render(self, request: Request) -> Request:
        """Return the request as plain text: tools in the system message, results as observations, a stop sequence."""
        conversation = request.conversation
        if not request.tools:
            plain = self._write(conversation, ())
            return dataclasses.replace(request, conversation=plain)
        if request.tool_choice == "none":
            reminder = self.prompts.fill("answer_now")
            conversation = conversation.user(reminder, origin="runtime")
        plain = self._write(conversation, request.tools)
        observation = f"\nObservation{self._number(find_next_step(conversation))}:"
        stop = tuple(dict.fromkeys([*request.sampling.stop, observation]))
        return Request(
            plain.with_system(self._build_instructions(request)),
            sampling=dataclasses.replace(request.sampling, stop=stop),
        )

    def _build_instructions(self, request: Request) -> str:
        format_schema = None if self.form == "input" else _format_bracket_schema
        instructions = build_instructions(self.prompts, request, format_schema)
        if not self.thoughts_alone:
            return instructions
        return f"{instructions}\n\n{self.prompts.fill('thoughts_alone')}"

    def _write(
        self, conversation: Conversation, tools: Sequence[ToolSpec]
    ) -> Conversation:
        return write_steps(
            conversation,
            lambda step: ReActFormatter(self.form, self._number(step), tools),
            self._format_thought if self.thoughts_alone else None,
        )

    def _number(self, step: int) -> str:
        if self.form != "numbered":
            return ""
        return f" {step}"

    def _format_thought(self, step: int, text: str) -> str:
        """Return a turn with a thought alone; a text with a marker stays as it came."""
        if not text or EXTENDED_TOKENIZER.tokenize(text).tokens:
            return text
        return f"Thought{self._number(step)}: {text}"

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """Return the first call or answer in `text`, a thought alone, or what is wrong with it."""
        reading = read_reply(text)
        if reading.decision is None:
            reading = reading.with_results()
        decision = reading.decision
        thought = reading.thought(decision)
        reader = ReplyReader(reading, thought, tools, self.prompts, self.thoughts_alone)
        try:
            return reader.read(decision)
        except ValueError as error:
            return Parsed(thought, (), None, str(error), reading.flags)

    def parse_stream(self, request: Request) -> StreamParser:
        """Return a parser that shows the thoughts, and the answer behind its marker."""
        return ReActStreamParser()


# --- writing ---


class ReActFormatter(NamedTuple):
    """How one step is written in a form; `number` goes into its markers."""

    form: Form
    number: str
    tools: Sequence[ToolSpec]

    def format_call(self, thought: str, call: ToolCall) -> str:
        """Return a turn that calls a tool."""
        action = self._format_action(call)
        return f"Thought{self.number}: {thought}\n{action}" if thought else action

    def format_answer(self, answer: str) -> str:
        """Return a turn that answers."""
        if self.form != "input" and _fits_in_brackets(answer):
            return f"Action{self.number}: Finish[{answer}]"
        return f"Final Answer: {answer}"

    def format_observation(self, result: str) -> str:
        """Return a tool's result; its lines that start like markers are quoted."""
        return f"Observation{self.number}: {EXTENDED_TOKENIZER.quote(result)}"

    def _format_action(self, call: ToolCall) -> str:
        if self.form == "input":
            arguments = compact_json(dict(call.arguments))
            return f"Action: {call.name}\nAction Input: {arguments}"
        arguments = _format_bracket_input(call, self.tools)
        return f"Action{self.number}: {call.name}[{arguments}]"


def _format_bracket_schema(schema: JsonObject) -> str:
    """Return what a tool takes in its brackets: its only parameter, or an object of all."""
    parameters = get_parameters(ToolSpec("", "", schema))
    if len(parameters) > 1:
        return f"JSON object, as JSON schema: {compact_json(schema)}"
    name = "".join(parameters)
    if all(map(_has_type_only, parameters.values())):
        return name
    return f"{name}, as JSON schema: {compact_json(schema)}"


def _has_type_only(parameter: Json) -> bool:
    return isinstance(parameter, dict) and parameter.keys() <= {"type", "title"}


def _format_bracket_input(call: ToolCall, tools: Sequence[Signature]) -> str:
    """Return the arguments as plain text if it is read back as the same, else as a JSON object."""
    arguments = dict(call.arguments)
    if not arguments:
        plain = ""
    elif len(arguments) > 1:
        return compact_json(arguments)
    else:
        (value,) = arguments.values()
        plain = value if isinstance(value, str) else compact_json(value)
        if not _fits_in_brackets(plain):
            return compact_json(arguments)
    unknown = ToolSpec(call.name, "", {"properties": {name: {} for name in arguments}})
    tool = find_tool(call.name, tools) or unknown
    try:
        read = read_plain_arguments(plain, call.name, tool, quotes_are_text=True)
    except ValueError:
        return compact_json(arguments)
    return plain if read == arguments else compact_json(arguments)


def _fits_in_brackets(text: str) -> bool:
    """Return whether `[text]` is one line that is read back as this text."""
    if text != text.strip() or len(text.splitlines()) != 1:
        return False
    closing = find_closing_bracket(f"[{text}]", 0)
    return closing == len(text) + 1 and not text.startswith("{")


# --- reading ---


class BracketedCall(NamedTuple):
    """A call in the paper's form, `name[input]`, and where in `text` its bracket opens."""

    name: str
    text: str
    opening: int


class ReplyReader(NamedTuple):
    """A reply and what is needed to read it; the methods raise ValueError with a text that tells the model why."""

    reading: ParsedReply
    thought: str
    tools: Sequence[Signature]
    prompts: PromptSet
    thoughts_alone: bool

    def read(self, decision: int | None) -> Parsed:
        """Return the call or the answer behind the marker `decision`, or a thought alone."""
        if decision is None:
            return self._read_thought()
        if self.reading.tokenized.tokens[decision].kind == "action":
            return self._read_action(decision)
        return self._read_answer(decision, self.reading.value(decision), "")

    def _read_thought(self) -> Parsed:
        if self.thoughts_alone:
            if self.reading.thinks_only:
                return Parsed(self.thought, (), None, None)
            text = self.reading.text.strip()
            if _is_think_call(text):
                inside = text[len(THINK) + 1 : -1].strip()
                return self._build_thought(inside, self.reading.flags)
        raise ValueError(self._explain_no_action())

    def _build_thought(self, thought: str, flags: tuple[str, ...]) -> Parsed:
        if not thought:
            raise ValueError(self._explain_no_action())
        return Parsed(thought, (), None, None, flags)

    def _explain_no_action(self) -> str:
        cure = self._explain_form()
        if "invented_observation" in self.reading.flags:
            return f"Never write `Observation:` yourself: it comes after your action. {cure}"
        if self.reading.tokenized.unread_start is not None:
            return f"A code fence is never closed, so nothing after it is read. {cure}"
        return f"The reply has neither an action nor a final answer, each at the start of a line and outside code. {cure}"

    def _explain_form(self) -> str:
        answer = self.prompts.fill("how_to_answer")
        if not self.tools:
            return f"Write {answer}."
        call = self.prompts.fill("how_to_call", tools=list_tool_names(self.tools))
        return f"Write {call}; or, if you know the answer, write {answer}."

    def _read_answer(self, last: int, answer: str, rest: str) -> Parsed:
        if not answer:
            raise ValueError(
                f"The final answer is empty. Write {self.prompts.fill('how_to_answer')}."
            )
        return Parsed(self.thought, (), answer, None, self._list_flags(last, rest))

    def _list_flags(self, last: int, rest: str) -> tuple[str, ...]:
        """Return what is dropped behind the marker `last` and its input: actions, an observation, other text."""
        behind = rest.strip(" \t\r\n.,;*`")
        if self.reading.decides_behind(last) or "[" in behind.partition("\n")[0]:
            return ("several_actions", *self.reading.flags)
        if behind:
            return ("trailing_text", *self.reading.flags)
        return self.reading.flags

    def _read_action(self, index: int) -> Parsed:
        value = self.reading.value(index)
        line, _, behind = value.partition("\n")
        opening = line.find("[")
        name = read_name(line[:opening], self.tools) if opening > 0 else ""
        if name:
            return self._read_bracketed(index, BracketedCall(name, value, opening))
        name = read_name(line, self.tools)
        has_input = self._has_input(index)
        if not self._is_plausible(name, has_input=has_input):
            raise ValueError(
                self.prompts.fill("bad_name", tools=list_tool_names(self.tools))
            )
        if has_input:
            return self._read_input(index + 1, name, self.reading.value(index + 1))
        if behind.strip():
            raise ValueError(self.prompts.fill("bad_input", name=name))
        return self._read_input(index, name, "")

    def _has_input(self, index: int) -> bool:
        """Return whether an `Action Input:` follows the marker at `index`."""
        following = self.reading.tokenized.tokens[index + 1 : index + 2]
        return any(token.kind == "input" for token in following)

    def _is_plausible(self, name: str, *, has_input: bool) -> bool:
        """Return whether a name is that of a tool; several words without an input are rather prose."""
        if not name or has_input or " " not in name:
            return bool(name)
        return find_tool(name, self.tools) is not None

    def _read_bracketed(self, last: int, call: BracketedCall) -> Parsed:
        close = _find_close(call)
        inside = call.text[call.opening + 1 : close].strip()
        rest = call.text[close + 1 :]
        tool = find_tool(call.name, self.tools)
        special = call.name.casefold() if tool is None else ""
        if special in ENDINGS:
            return self._read_answer(last, inside, rest)
        flags = self._list_flags(last, rest)
        if special == THINK and self.thoughts_alone:
            thought = "\n".join(filter(None, (self.thought, inside)))
            return self._build_thought(thought, flags)
        if inside.startswith("{"):
            arguments, _ = read_arguments(inside, call.name, tool)
        else:
            arguments = read_plain_arguments(
                inside, call.name, tool, quotes_are_text=True
            )
        return self._build_call(call.name, arguments, flags)

    def _read_input(self, last: int, name: str, text: str) -> Parsed:
        tool = find_tool(name, self.tools)
        if tool is None and name.casefold() in ENDINGS:
            return self._read_answer(last, _unwrap_text(text), "")
        is_enclosed = text.startswith(("{", "```", "~~~"))
        if not is_enclosed and self._is_unread(last):
            raise ValueError(
                f"A code fence in the input of {name} is never closed. Write the whole call again."
            )
        arguments, rest = read_arguments(text, name, tool)
        complete = is_enclosed or self.reading.continues_behind(last)
        flags = self._list_flags(last, rest)
        return self._build_call(name, arguments, flags, complete=complete)

    def _is_unread(self, index: int) -> bool:
        """Return whether a code fence that never closes begins behind the marker at `index`."""
        tokenized = self.reading.tokenized
        if tokenized.unread_start is None:
            return False
        return tokenized.unread_start >= tokenized.tokens[index].value_start

    def _build_call(
        self,
        name: str,
        arguments: JsonObject,
        flags: tuple[str, ...],
        *,
        complete: bool = True,
    ) -> Parsed:
        call = ToolCall(name, arguments)
        return Parsed(self.thought, (call,), None, None, flags, complete)


def _is_think_call(text: str) -> bool:
    """Return whether a text is nothing but `think[...]`."""
    if not text.casefold().startswith(f"{THINK}["):
        return False
    return find_closing_bracket(text, len(THINK)) == len(text) - 1


def _find_close(call: BracketedCall) -> int:
    """Return where the bracket of a call closes; brackets in the strings of an object are ignored."""
    inside = call.text[call.opening + 1 :].lstrip()
    if not inside.startswith("{"):
        close = find_closing_bracket(call.text, call.opening)
    else:
        close = _find_close_behind_object(call, inside)
    if close is None:
        raise ValueError(
            f"The bracket of {call.name}[ is never closed. Write the whole call again."
        )
    return close


def _find_close_behind_object(call: BracketedCall, inside: str) -> int | None:
    try:
        _, length = read_object(inside)
    except ValueError as error:
        raise ValueError(
            f"The input of {call.name} cannot be read: {error}. Write the whole call again."
        ) from None
    behind = inside[length:].lstrip()
    if not behind.startswith("]"):
        return None
    return len(call.text) - len(behind)


def _unwrap_text(text: str) -> str:
    """Return the text in an object such as `{"answer": "…"}`, else the text itself."""
    try:
        found, _ = read_object(text)
    except ValueError:
        return text
    values = list(found.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return text
