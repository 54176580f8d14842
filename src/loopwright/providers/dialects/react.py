"""The ReAct dialect: Thought, Action, Observation and the answer at line starts (Yao et al., arXiv:2210.03629)."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from ...errors import ConfigError
from ...messages import Conversation, JsonObject, ToolCall, ToolSpec
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
from .react_stream import ReActWatch
from .streaming import Watch
from .transcript import compact_json, instructions, next_step, tell_steps

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
PROMPTS_OF: dict[Form, PromptSet] = {
    "input": PROMPTS,
    "bracket": BRACKET,
    "numbered": NUMBERED,
}
ENDINGS = {"finish", "final answer", "final_answer", "finalanswer"}
THINK = "think"


@dataclasses.dataclass(frozen=True)
class ReActDialect:
    """ReAct as text, with a stop sequence before the observation.

    Reads, in every form, `Action:` with `Action Input:` (JSON, a Python dict, or plain text for a tool with one
    parameter), the paper's `Action 3: name[input]` and `Finish[answer]`, `Final Answer:` and `FINAL_ANSWER:`. Of
    several actions or answers the first counts; where there is none, `STEP_RESULT:` is an answer. A marker in prose, in
    a code fence or in a JSON string is none.

    Args:
        form: what the model is told to write, and how its earlier turns are told: "input" is `Action:` and
            `Action Input:` with JSON; "bracket" is the paper's `Action: name[input]` and `Action: Finish[answer]`, with
            a JSON object in the brackets for a tool with several parameters; "numbered" is that with the number of the
            step in each marker, also in the stop sequence. Steps are counted from 1 for each question of the user's.
        prompts: what the model is told in place of the form's own prompts (see `PROMPTS`, `BRACKET` and `NUMBERED`); a
            set may hold some of them only.
        thoughts_alone: whether a reply with nothing but `Thought:`, or with `think[...]` as its action where no tool
            has that name, is a turn of its own, without calls, answer and problem. Otherwise it is a problem, which
            asks for the missing action.

    Raises `ConfigError` for an unknown form.
    """

    form: Form = "input"
    prompts: PromptSet = PROMPTS
    thoughts_alone: bool = False
    name: str = dataclasses.field(default="react", init=False)

    def __post_init__(self) -> None:
        """Complete the prompts, and name the dialect after its form."""
        if self.form not in PROMPTS_OF:
            raise ConfigError(
                f"form: there is no {self.form!r}; use {', '.join(map(repr, PROMPTS_OF))}"
            )
        prompts = PROMPTS_OF[self.form].override(**self.prompts.changes(PROMPTS))
        object.__setattr__(self, "prompts", prompts)
        if self.form != "input":
            object.__setattr__(self, "name", f"react-{self.form}")

    def render(self, request: Request) -> Request:
        """The request as plain text: instructions in the system message, results as observations, a stop sequence."""
        conversation = request.conversation
        if not request.tools:
            return dataclasses.replace(
                request, conversation=self._tell(conversation, ())
            )
        if request.tool_choice == "none":
            conversation = conversation.user(
                self.prompts.fill("answer_now"), origin="runtime"
            )
        told = self._tell(conversation, request.tools).with_system(
            self._instructions(request)
        )
        observation = f"\nObservation{self._number(next_step(conversation))}:"
        stop = tuple(dict.fromkeys([*request.sampling.stop, observation]))
        return Request(told, sampling=dataclasses.replace(request.sampling, stop=stop))

    def _instructions(self, request: Request) -> str:
        told = instructions(
            self.prompts, request, None if self.form == "input" else _inside
        )
        return (
            f"{told}\n\n{self.prompts.fill('thoughts_alone')}"
            if self.thoughts_alone
            else told
        )

    def _tell(
        self, conversation: Conversation, tools: Sequence[ToolSpec]
    ) -> Conversation:
        return tell_steps(
            conversation,
            lambda step: Telling(self.form, self._number(step), tools),
            self._remark if self.thoughts_alone else None,
        )

    def _number(self, step: int) -> str:
        return f" {step}" if self.form == "numbered" else ""

    def _remark(self, step: int, text: str) -> str:
        """A thought that was a turn of its own; a reply with a marker is told as it came."""
        plain = text and not EXTENDED_TOKENIZER.tokenize(text).tokens
        return f"Thought{self._number(step)}: {text}" if plain else text

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """The first call or answer in `text`, a thought alone, or what is wrong with it."""
        reading = read_reply(text)
        if reading.decision is None:
            reading = reading.with_results()
        decision = reading.decision
        thought = reading.thought(decision)
        try:
            return Reader(
                reading, thought, tools, self.prompts, self.thoughts_alone
            ).read(decision)
        except ValueError as error:
            return Parsed(thought, (), None, str(error), reading.flags)

    def watch(self, request: Request) -> Watch:
        """Tells the thoughts, and the answer behind its marker."""
        return ReActWatch()


# --- telling ---


class Telling(NamedTuple):
    """How one step is told in a form; `number` goes into its markers."""

    form: Form
    number: str
    tools: Sequence[Signature]

    def say_call(self, thought: str, call: ToolCall) -> str:
        """A turn that calls a tool."""
        if self.form == "input":
            action = f"Action: {call.name}\nAction Input: {compact_json(dict(call.arguments))}"
        else:
            action = (
                f"Action{self.number}: {call.name}[{_bracket_input(call, self.tools)}]"
            )
        return f"Thought{self.number}: {thought}\n{action}" if thought else action

    def say_answer(self, answer: str) -> str:
        """A turn that answers."""
        fits = self.form != "input" and _fits_in_brackets(answer)
        return (
            f"Action{self.number}: Finish[{answer}]"
            if fits
            else f"Final Answer: {answer}"
        )

    def say_observation(self, result: str) -> str:
        """A tool's result; its lines that start like markers are quoted."""
        return f"Observation{self.number}: {EXTENDED_TOKENIZER.quote(result)}"


def _inside(schema: JsonObject) -> str:
    """What stands in the brackets of a tool: its only parameter, or an object of all."""
    parameters = get_parameters(ToolSpec("", "", schema))
    if len(parameters) > 1:
        return f"JSON object, as JSON schema: {compact_json(schema)}"
    plain = all(
        isinstance(one, dict) and one.keys() <= {"type", "title"}
        for one in parameters.values()
    )
    name = "".join(parameters)
    return name if plain else f"{name}, as JSON schema: {compact_json(schema)}"


def _bracket_input(call: ToolCall, tools: Sequence[Signature]) -> str:
    """The arguments as plain text (or nothing at all) where that is read back as the same, else as a JSON object."""
    arguments = dict(call.arguments)
    plain = "".join(
        value if isinstance(value, str) else compact_json(value)
        for value in arguments.values()
    )
    if len(arguments) > 1 or (arguments and not _fits_in_brackets(plain)):
        return compact_json(arguments)
    unknown = ToolSpec(call.name, "", {"properties": {name: {} for name in arguments}})
    try:
        read = read_plain_arguments(
            plain,
            call.name,
            find_tool(call.name, tools) or unknown,
            quotes_are_text=True,
        )
    except ValueError:
        return compact_json(arguments)
    return plain if read == arguments else compact_json(arguments)


def _fits_in_brackets(text: str) -> bool:
    """Whether `[text]` is one line that is read back as this text."""
    one_line = text == text.strip() and len(text.splitlines()) == 1
    return (
        one_line
        and not text.startswith("{")
        and find_closing_bracket(f"[{text}]", 0) == len(text) + 1
    )


# --- reading ---


class Bracketed(NamedTuple):
    """A call in the paper's form, `name[input]`, and where in `text` its bracket opens."""

    name: str
    text: str
    opening: int


class Reader(NamedTuple):
    """What a reply says, and what must be known to read it; its methods raise ValueError saying what is wrong."""

    reading: ParsedReply
    thought: str
    tools: Sequence[Signature]
    prompts: PromptSet
    thoughts_alone: bool

    def read(self, decision: int | None) -> Parsed:
        """The call or the answer that stands behind the marker `decision`."""
        if decision is None:
            return self._undecided()
        if self.reading.tokenized.tokens[decision].kind == "action":
            return self._action(decision)
        return self._answer(decision, self.reading.value(decision), "")

    def _undecided(self) -> Parsed:
        """A thought alone, where that is allowed."""
        if self.thoughts_alone:
            if self.reading.thinks_only:
                return Parsed(self.thought, (), None, None)
            words = self.reading.text.strip()
            if (
                words.casefold().startswith(f"{THINK}[")
                and find_closing_bracket(words, len(THINK)) == len(words) - 1
            ):
                return self._thought_alone(
                    words[len(THINK) + 1 : -1].strip(), self.reading.flags
                )
        raise ValueError(self._nothing_to_do())

    def _thought_alone(self, thought: str, flags: tuple[str, ...]) -> Parsed:
        if not thought:
            raise ValueError(self._nothing_to_do())
        return Parsed(thought, (), None, None, flags)

    def _nothing_to_do(self) -> str:
        answer = self.prompts.fill("how_to_answer")
        cure = f"Write {answer}."
        if self.tools:
            call = self.prompts.fill("how_to_call", tools=list_tool_names(self.tools))
            cure = f"Write {call}; or, if you know the answer, write {answer}."
        if "invented_observation" in self.reading.flags:
            return f"Never write `Observation:` yourself: it comes after your action. {cure}"
        if self.reading.tokenized.unread_start is not None:
            return f"A code fence is never closed, so nothing after it is read. {cure}"
        return f"The reply has neither an action nor a final answer, each at the start of a line and outside code. {cure}"

    def _answer(self, last: int, answer: str, rest: str) -> Parsed:
        if not answer:
            raise ValueError(
                f"The final answer is empty. Write {self.prompts.fill('how_to_answer')}."
            )
        return Parsed(self.thought, (), answer, None, self._flags(last, rest))

    def _flags(self, last: int, rest: str) -> tuple[str, ...]:
        """What is dropped behind the marker `last` and its input: actions, answers, an observation, other text."""
        behind = rest.strip(" \t\r\n.,;*`")
        if self.reading.decides_behind(last) or "[" in behind.partition("\n")[0]:
            return ("several_actions", *self.reading.flags)
        return ("trailing_text", *self.reading.flags) if behind else self.reading.flags

    def _action(self, index: int) -> Parsed:
        value = self.reading.value(index)
        line, _, behind = value.partition("\n")
        opening = line.find("[")
        name = read_name(line[:opening], self.tools) if opening > 0 else ""
        if name:
            return self._bracketed(index, Bracketed(name, value, opening))
        name = read_name(line, self.tools)
        tokens = self.reading.tokenized.tokens
        given = index + 1 < len(tokens) and tokens[index + 1].kind == "input"
        if not name or (
            not given and " " in name and find_tool(name, self.tools) is None
        ):
            raise ValueError(
                self.prompts.fill("bad_name", tools=list_tool_names(self.tools))
            )
        if behind.strip() and not given:
            raise ValueError(self.prompts.fill("bad_input", name=name))
        return self._with_input(
            index + given, name, self.reading.value(index + 1) if given else ""
        )

    def _bracketed(self, last: int, call: Bracketed) -> Parsed:
        close = _close(call)
        inside, rest = (
            call.text[call.opening + 1 : close].strip(),
            call.text[close + 1 :],
        )
        tool = find_tool(call.name, self.tools)
        if tool is None and call.name.casefold() in ENDINGS:
            return self._answer(last, inside, rest)
        if tool is None and self.thoughts_alone and call.name.casefold() == THINK:
            return self._thought_alone(
                "\n".join(filter(None, (self.thought, inside))), self._flags(last, rest)
            )
        if inside.startswith("{"):
            arguments, _ = read_arguments(inside, call.name, tool)
        else:
            arguments = read_plain_arguments(
                inside, call.name, tool, quotes_are_text=True
            )
        return self._call(call.name, arguments, self._flags(last, rest))

    def _with_input(self, last: int, name: str, given: str) -> Parsed:
        tool = find_tool(name, self.tools)
        if tool is None and name.casefold() in ENDINGS:
            return self._answer(last, _only_text(given), "")
        closes_itself = given.startswith(("{", "```", "~~~"))
        unread = self.reading.tokenized.unread_start
        if (
            unread is not None
            and unread >= self.reading.tokenized.tokens[last].value_start
            and not closes_itself
        ):
            raise ValueError(
                f"A code fence in the input of {name} is never closed. Write the whole call again."
            )
        arguments, rest = read_arguments(given, name, tool)
        complete = closes_itself or self.reading.continues_behind(last)
        return self._call(name, arguments, self._flags(last, rest), complete=complete)

    def _call(
        self,
        name: str,
        arguments: JsonObject,
        flags: tuple[str, ...],
        *,
        complete: bool = True,
    ) -> Parsed:
        return Parsed(
            self.thought, (ToolCall(name, arguments),), None, None, flags, complete
        )


def _close(call: Bracketed) -> int:
    """Where the bracket of a call closes; brackets in the strings of an object mean nothing."""
    inside = call.text[call.opening + 1 :].lstrip()
    if not inside.startswith("{"):
        close = find_closing_bracket(call.text, call.opening)
    else:
        try:
            _, length = read_object(inside)
        except ValueError as error:
            raise ValueError(
                f"The input of {call.name} cannot be read: {error}. Write the whole call again."
            ) from None
        behind = inside[length:].lstrip()
        close = len(call.text) - len(behind) if behind.startswith("]") else None
    if close is None:
        raise ValueError(
            f"The bracket of {call.name}[ is never closed. Write the whole call again."
        )
    return close


def _only_text(text: str) -> str:
    """The string in an object such as `{"answer": "…"}`, else the text itself."""
    try:
        found, _ = read_object(text)
    except ValueError:
        return text
    values = list(found.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else text
