"""The XML dialect: calls as JSON in `<tool_call>` tags, which Hermes and Qwen models were trained to write."""

from collections.abc import Iterator, Mapping, Sequence

from ..._internal import dataclasses
from ..._internal.regex import compile_late
from ...messages import Conversation, Json, JsonObject, Message, ToolCall, ToolSpec
from ...parsing.arguments import (
    Signature,
    find_tool,
    get_parameters,
    list_tool_names,
    read_name,
    read_plain_arguments,
)
from ...parsing.xml_text import (
    MAX_TAG,
    TaggedCall,
    TaggedReply,
    WrittenCall,
    has_tag,
    may_become_tag,
    read_calls,
    read_tagged_reply,
    read_thought_before_call,
)
from ...prompts import PromptSet
from ..base import Delta, Request
from .call_arguments import read_call_arguments
from .dialect import Parsed
from .streaming import PlainParser, StreamParser, StreamStripper
from .transcript import build_instructions, compact_json, merge_user_turns

PROMPTS = PromptSet(
    instructions="""\
You can use these tools:
{tools}

To use a tool, write its call between tags, as JSON, and then stop:
<tool_call>{{"name": "the tool's name", "arguments": {{its arguments}}}}</tool_call>

Calls that do not wait for each other may stand in one reply, each between tags of its own. What you write before them
is your thought. The results come back between `<tool_response>` and `</tool_response>`, which you never write yourself.
When you know the answer, reply with the answer alone, without tags.""",
    tool="- {name}: {description}\n  Arguments, as JSON schema: {schema}",
    answer_now="No tool can be used now. Reply with your answer alone, without tags.",
    answer_schema="The answer must be JSON that fits this schema: {schema}",
    how_to_call='<tool_call>{{"name": "…", "arguments": {{…}}}}</tool_call> with one of these tools: {tools}',
    how_to_answer="the answer as plain text, with backticks around a tag that is only mentioned",
)

NAMES = ("name", "tool", "tool_name", "function")
ARGUMENTS = ("arguments", "args", "parameters", "input")
MAX_CHECKS = (
    8  # tags that are checked in a stream, each at the cost of the text before it
)
IGNORED = {"id", "type"}  # keys that some models wrap a call in
SCHEMA_KEYWORDS = {"type", "properties"}
# The beginning of a reply that was meant as a call without tags, in JSON or nearly so.
_CALL_START = compile_late(
    r"""\s*+(?:(?:`{3,}+|~{3,}+)\w*+)?+[\[{\s]*+(?:["']function["']\s*+:\s*+\{\s*+)?+"""
    r"""["'](?:name|tool|tool_name|function)["']\s*+:\s*+["'](?P<name>[^"'\n]{1,256}+)["']"""
)
# White space, commas and semicolons before a call without tags are not text of a reply.
_TEXT = compile_late(r"[^\s,;]")


@dataclasses.dataclass(frozen=True)
class XmlDialect:
    """Calls as `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, also several in a reply.

    The text before a call is the thought; a reply without a call is the answer. Accepted are also other names for the
    two keys (`tool`, `function`, `args`, `parameters`, `input`), several objects or a list of them in one block, a
    code fence in the block, and Qwen's `<function=name><parameter=x>…</parameter></function>` in place of JSON.
    Without any tags, a reply that is nothing but JSON (or one code fence with JSON) is a call if it names a registered
    tool. A tag in code is an example. A tag that is never closed is a problem, and so is a misplaced one: behind a
    quote, in an indented example, in thinking, in a JSON string, or with more text behind it on its line.

    Args:
        prompts: what the model is told; see `PROMPTS`.
    """

    prompts: PromptSet = PROMPTS
    name: str = dataclasses.field(default="xml", init=False)

    def render(self, request: Request) -> Request:
        """Return the request as plain text: tools in the system message, results in tags, a stop sequence."""
        conversation = request.conversation
        if not request.tools:
            plain = write_transcript(conversation)
            return dataclasses.replace(request, conversation=plain)
        if request.tool_choice == "none":
            reminder = self.prompts.fill("answer_now")
            conversation = conversation.user(reminder, origin="runtime")
        instructions = build_instructions(self.prompts, request)
        stop = tuple(dict.fromkeys([*request.sampling.stop, "<tool_response>"]))
        return Request(
            write_transcript(conversation).with_system(instructions),
            sampling=request.sampling.change(stop=stop),
            label=request.label,
        )

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """Return the calls or the answer in `text`, or what is wrong with it."""
        try:
            reply = read_tagged_reply(text)
            if not reply.calls:
                return _read_untagged(reply, tools)
            calls = tuple([_read_call(written, tools) for written in reply.calls])
        except ValueError as error:
            return Parsed("", (), None, f"{error} {self._explain_form(tools)}")
        return Parsed(reply.thought, calls, None, None, _list_flags(reply))

    def parse_stream(self, request: Request) -> StreamParser:
        """Return a parser that shows an answer if no call is allowed, else only the thought before a call."""
        if not request.tools:
            return PlainParser()
        if request.tool_choice == "none":
            return AnswerParser()
        return ThoughtParser()

    def _explain_form(self, tools: Sequence[Signature]) -> str:
        answer = self.prompts.fill("how_to_answer")
        if not tools:
            return f"Write {answer}."
        call = self.prompts.fill("how_to_call", tools=list_tool_names(tools))
        return f"Write {call}; or, if you know it, {answer}."


# --- writing ---


def write_transcript(conversation: Conversation) -> Conversation:
    """Return the conversation in plain turns: calls in one, their results in the next; user turns are merged."""
    return Conversation(merge_user_turns(_write_turns(conversation.messages)))


def _write_turns(messages: Sequence[Message]) -> Iterator[Message]:
    for position, message in enumerate(messages, 1):
        if message.calls:
            blocks = map(format_call, message.calls)
            content = "\n".join(filter(None, [message.content, *blocks]))
            yield dataclasses.replace(message, content=content, calls=())
            results = messages[position : position + len(message.calls)]
            yield _write_results(message.calls, results)
        elif message.role != "tool":
            yield message


def _write_results(calls: Sequence[ToolCall], results: Sequence[Message]) -> Message:
    contents = {result.call_id: result.content for result in results}
    blocks = [format_result(call.name, contents[call.id]) for call in calls]
    return Message("user", "\n".join(blocks), origin="tool")


def format_call(call: ToolCall) -> str:
    """Return a call between its tags."""
    wire = compact_json({"name": call.name, "arguments": dict(call.arguments)})
    return f"<tool_call>{wire}</tool_call>"


def format_result(name: str, result: str) -> str:
    """Return a tool's result, third-party text, as a JSON string in which nothing is a tag."""
    wire = compact_json({"name": name, "content": result}).replace("<", "\\u003c")
    return f"<tool_response>{wire}</tool_response>"


# --- reading ---


def _list_flags(reply: TaggedReply) -> tuple[str, ...]:
    """Return what of a reply is dropped."""
    flags: list[str] = []
    if reply.rest.strip(" \t\r\n.,;*`"):
        flags.append("trailing_text")
    if reply.invented:
        flags.append("invented_observation")
    return tuple(flags)


def _read_untagged(reply: TaggedReply, tools: Sequence[Signature]) -> Parsed:
    """Read a reply without tags, which is an answer, or nothing but JSON for a call."""
    if reply.invented:
        raise ValueError(
            "Never write `<tool_response>` yourself: it comes after your call."
        )
    if reply.only_code:
        raise ValueError("What stands in code is an example and no call.")
    answer = reply.rest.strip()
    if not answer:
        raise ValueError("The reply is empty.")
    calls = _read_bare_calls(answer, tools)
    if calls:
        return Parsed("", calls, None, None, complete=False)
    return Parsed("", (), answer, None)


def _read_call(written: WrittenCall, tools: Sequence[Signature]) -> ToolCall:
    if isinstance(written, TaggedCall):
        name = _read_tool_name(written.name, tools)
        tool = find_tool(name, tools)
        return ToolCall(name, _read_values(written.values, name, tool))
    wrapped = written.get("function")
    if isinstance(wrapped, dict):
        _check_keys(written.keys() - IGNORED - {"function"})
        written = wrapped
    _check_keys(written.keys() - IGNORED - {*NAMES, *ARGUMENTS})
    names = _select_values(written, NAMES)
    arguments = _select_values(written, ARGUMENTS)
    if len(names) != 1 or len(arguments) > 1:
        raise ValueError("The JSON of a call must have one `name` and one `arguments`.")
    name = _read_tool_name(names[0], tools)
    tool, value = find_tool(name, tools), next(iter(arguments), None)
    return ToolCall(name, read_call_arguments(value, "arguments", name, tool))


def _select_values(written: Mapping[str, Json], keys: Sequence[str]) -> list[Json]:
    return [written[key] for key in keys if key in written]


def _check_keys(unknown: set[str]) -> None:
    if unknown:
        raise ValueError(
            f"The JSON of a call has a key that means nothing here: {min(unknown)!r}."
        )


def _read_tool_name(written: Json, tools: Sequence[Signature]) -> str:
    name = read_name(written, tools) if isinstance(written, str) else ""
    if not name:
        raise ValueError("The `name` of a call must be the name of one tool.")
    return name


def _read_values(
    values: Mapping[str, str], name: str, tool: Signature | None
) -> JsonObject:
    """Return values that came as plain text, each in the type of its parameter."""
    known: Mapping[str, Json] = {} if tool is None else get_parameters(tool)
    arguments: dict[str, Json] = {}
    for parameter, text in values.items():
        if not text:
            arguments[parameter] = ""
            continue
        properties = {parameter: known.get(parameter, {})}
        alone = ToolSpec(name, "", {"properties": properties, "required": [parameter]})
        arguments |= read_plain_arguments(text, name, alone, quotes_are_text=True)
    return arguments


def _read_bare_calls(text: str, tools: Sequence[Signature]) -> tuple[ToolCall, ...]:
    """Return the calls of registered tools in a text without tags; raise ValueError for one that cannot be read."""
    try:
        calls = read_calls(text)
    except ValueError:
        start = _CALL_START.match(text)
        if start is not None and find_tool(start["name"].strip(), tools) is not None:
            raise
        return ()
    if not all(_is_meant_as_call(written, tools) for written in calls):
        return ()
    return tuple([_read_call(written, tools) for written in calls])


def _is_meant_as_call(written: WrittenCall, tools: Sequence[Signature]) -> bool:
    """Return whether JSON without tags is a call: it names a registered tool and is not merely an object with a name."""
    if isinstance(written, TaggedCall):
        return False
    wrapped = written.get("function")
    inner = wrapped if isinstance(wrapped, dict) else written
    name = next(iter(_select_values(inner, NAMES)), None)
    tool = find_tool(name.strip(), tools) if isinstance(name, str) else None
    if tool is None or _describes_tool(inner, tool):
        return False
    return "name" not in inner or bool(_select_values(inner, ARGUMENTS))


def _describes_tool(written: JsonObject, tool: Signature) -> bool:
    """Return whether JSON has the schema of a tool's arguments rather than arguments."""
    if get_parameters(tool).keys() >= SCHEMA_KEYWORDS:
        return False
    return any(map(_is_schema, _select_values(written, ARGUMENTS)))


def _is_schema(value: Json) -> bool:
    if not isinstance(value, dict) or not value.keys() >= SCHEMA_KEYWORDS:
        return False
    return value["type"] == "object"


# --- streaming ---


class ThoughtParser:
    """Holds everything back until a call begins, since only then the text before it is certain to be a thought.

    A text without calls is shown at its end, since until then a call may follow it.
    """

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._tail = ""
        self._checks_left = MAX_CHECKS

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the thought, as one delta, once the tag of a call is complete."""
        if not self._checks_left:
            return
        self._chunks.append(text)
        window = self._tail + text
        _, bracket, tail = window.rpartition("<")
        self._tail = (bracket + tail)[:MAX_TAG] if bracket else ""
        if not has_tag(window):
            return
        self._checks_left -= 1
        self._tail = ""
        thought = read_thought_before_call("".join(self._chunks))
        if thought is None:
            return
        self._checks_left = 0
        if thought:
            yield Delta(reasoning=thought)


class AnswerParser:
    """Shows a reply that must be an answer, up to the first tag or what may become one.

    A reply that begins like JSON or a code fence, even behind commas, is held back: it may be a call without tags.
    """

    def __init__(self) -> None:
        self._stripper = StreamStripper()
        self._leading: list[str] = []
        self._held = ""
        self._has_begun = self._is_over = False

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the text before any tag."""
        if not self._has_begun:
            text = self._read_start(text)
        if self._is_over or not self._has_begun:
            return
        text, self._held = self._held + text, ""
        certain = self._stripper.feed(self._cut_before_tag(text))
        if certain:
            yield Delta(text=certain)

    def _read_start(self, text: str) -> str:
        """Find out whether the reply begins like an answer; return all of it so far."""
        self._leading.append(text)
        first = _TEXT.search(text)
        if first is None:
            return ""
        self._has_begun, self._is_over = True, first[0] in "{[`~"
        return "".join(self._leading)

    def _cut_before_tag(self, text: str) -> str:
        if has_tag(text):
            self._is_over = True
            return text[: text.find("<")]
        start = text.rfind("<")
        if start < 0 or not may_become_tag(text[start:]):
            return text
        self._held = text[start:]
        self._is_over = len(self._held) > MAX_TAG
        return text[:start]
