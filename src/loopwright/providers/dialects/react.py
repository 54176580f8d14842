"""The ReAct dialect: thought, action, observation and answer at line starts (Yao et al., arXiv:2210.03629)."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from ..._internal import dataclasses
from ...errors import ConfigError
from ...messages import Conversation, Json, JsonObject, ToolCall, ToolSpec
from ...parsing import find_closing_bracket
from ...parsing.arguments import (
    Signature,
    find_tool,
    get_parameters,
    read_plain_arguments,
)
from ...parsing.react_text import EXTENDED_TOKENIZER, read_reply
from ...prompts import PromptSet
from ..base import Request
from .dialect import Parsed
from .react_reader import ReplyReader
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
            sampling=request.sampling.change(stop=stop),
            label=request.label,
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
