"""The XML dialect: calls as JSON in `<tool_call>` tags, as Hermes and Qwen models were trained to write them."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from ...messages import Conversation, Json, JsonObject, Message, ToolCall, ToolSpec
from ...parsing.arguments import (
    Signature,
    find_tool,
    get_parameters,
    list_tool_names,
    read_arguments,
    read_name,
    read_plain_arguments,
)
from ...parsing.xml_text import (
    MAX_TAG,
    TaggedCall,
    TaggedReply,
    Written,
    has_tag,
    may_become_tag,
    read_calls,
    read_tagged_reply,
    read_thought_before_call,
)
from ...prompts import PromptSet
from ..base import Delta, Request
from .dialect import Parsed
from .streaming import Open, Trimmed, Watch
from .transcript import compact_json, instructions, merged

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
MAX_LOOKS = 8  # so many tags are looked at while a reply comes, each at the cost of the text before it
MEANINGLESS = {"id", "type"}  # how some wrap a call; nothing depends on them
# What a reply begins with that was to be a call without tags, in JSON or nearly so.
_BEGINS_AS_CALL = re.compile(
    r"""\s*+(?:(?:`{3,}+|~{3,}+)\w*+)?+[\[{\s]*+(?:["']function["']\s*+:\s*+\{\s*+)?+"""
    r"""["'](?:name|tool|tool_name|function)["']\s*+:\s*+["'](?P<name>[^"'\n]{1,256}+)["']"""
)
_WORDS = re.compile(
    r"[^\s,;]"
)  # what may stand before a call without tags is none of it


@dataclasses.dataclass(frozen=True)
class XmlDialect:
    """Calls as `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, several in a reply if need be.

    The text before a call is the thought; a reply without a call is the answer. Read are also other spellings of the
    two keys (`tool`, `function`, `args`, `parameters`, `input`), several objects or a list of them in one block, a
    code fence in the block, and Qwen's `<function=name><parameter=x>…</parameter></function>` in place of JSON.
    Without any tags, a reply that is nothing but JSON (or one code fence with JSON) is a call if it names a registered
    tool. A tag in code is an example. A tag that is never closed is a problem, and so is one out of place: behind a
    quote, in an indented example, in thinking, in a JSON string, or with more words behind it on its line.

    Args:
        prompts: what the model is told; see `PROMPTS`.
    """

    prompts: PromptSet = PROMPTS
    name: str = dataclasses.field(default="xml", init=False)

    def render(self, request: Request) -> Request:
        """The request as plain text: instructions in the system message, results in tags, a stop sequence."""
        conversation = request.conversation
        if not request.tools:
            return dataclasses.replace(request, conversation=tell(conversation))
        if request.tool_choice == "none":
            conversation = conversation.user(
                self.prompts.fill("answer_now"), origin="runtime"
            )
        told = tell(conversation).with_system(instructions(self.prompts, request))
        stop = tuple(dict.fromkeys([*request.sampling.stop, "<tool_response>"]))
        return Request(told, sampling=dataclasses.replace(request.sampling, stop=stop))

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """The calls or the answer in `text`, or what is wrong with it."""
        try:
            reply = read_tagged_reply(text)
            if not reply.calls:
                return self._without_tags(reply, tools)
            calls = tuple(_call(written, tools) for written in reply.calls)
        except ValueError as error:
            return Parsed("", (), None, f"{error} {self._cure(tools)}")
        trailing = ("trailing_text",) if reply.rest.strip(" \t\r\n.,;*`") else ()
        invented = ("invented_observation",) if reply.invented else ()
        return Parsed(reply.thought, calls, None, None, (*trailing, *invented))

    def watch(self, request: Request) -> Watch:
        """Tells the text of a reply that may not call; in any other, only what stands before a call, as a thought."""
        if not request.tools:
            return Open()
        return AnswerWatch() if request.tool_choice == "none" else CallWatch()

    def _without_tags(self, reply: TaggedReply, tools: Sequence[Signature]) -> Parsed:
        answer = reply.rest.strip()
        if reply.invented:
            raise ValueError(
                "Never write `<tool_response>` yourself: it comes after your call."
            )
        if reply.only_code:
            raise ValueError("What stands in code is an example and no call.")
        if not answer:
            raise ValueError("The reply is empty.")
        calls = _bare_calls(answer, tools)
        return (
            Parsed("", calls, None, None, complete=False)
            if calls
            else Parsed("", (), answer, None)
        )

    def _cure(self, tools: Sequence[Signature]) -> str:
        answer = self.prompts.fill("how_to_answer")
        if not tools:
            return f"Write {answer}."
        return f"Write {self.prompts.fill('how_to_call', tools=list_tool_names(tools))}; or, if you know it, {answer}."


# --- telling ---


def tell(conversation: Conversation) -> Conversation:
    """The conversation in plain turns: calls in one, their results in the next; users' turns in a row become one."""
    return Conversation(merged(_turns(conversation.messages)))


def _turns(messages: Sequence[Message]) -> Iterator[Message]:
    for position, message in enumerate(messages):
        if message.calls:
            blocks = [say_call(call) for call in message.calls]
            yield dataclasses.replace(
                message,
                content="\n".join(filter(None, [message.content, *blocks])),
                calls=(),
            )
            results = {
                m.call_id: m.content
                for m in messages[position + 1 : position + 1 + len(message.calls)]
            }
            told = "\n".join(
                say_result(call.name, results[call.id]) for call in message.calls
            )
            yield Message("user", told, origin="tool")
        elif message.role != "tool":
            yield message


def say_call(call: ToolCall) -> str:
    """A call between its tags."""
    return f"<tool_call>{compact_json({'name': call.name, 'arguments': dict(call.arguments)})}</tool_call>"


def say_result(name: str, result: str) -> str:
    """A tool's result, which is a stranger's text: a JSON string in which nothing is a tag."""
    said = compact_json({"name": name, "content": result}).replace("<", "\\u003c")
    return f"<tool_response>{said}</tool_response>"


# --- reading ---


def _call(written: Written, tools: Sequence[Signature]) -> ToolCall:
    if isinstance(written, TaggedCall):
        name = _registered(written.name, tools)
        return ToolCall(name, _typed(written.values, name, find_tool(name, tools)))
    wrapped = written.get("function")
    if isinstance(wrapped, dict):
        _check_keys(written.keys() - MEANINGLESS - {"function"})
        written = wrapped
    _check_keys(written.keys() - MEANINGLESS - {*NAMES, *ARGUMENTS})
    names, given = (
        [written[key] for key in keys if key in written] for keys in (NAMES, ARGUMENTS)
    )
    if len(names) != 1 or len(given) > 1:
        raise ValueError("The JSON of a call must have one `name` and one `arguments`.")
    name = _registered(names[0], tools)
    return ToolCall(
        name, _arguments(given[0] if given else None, name, find_tool(name, tools))
    )


def _check_keys(strange: set[str]) -> None:
    if strange:
        raise ValueError(
            f"The JSON of a call has a key that means nothing here: {min(strange)!r}."
        )


def _registered(written: Json, tools: Sequence[Signature]) -> str:
    name = read_name(written, tools) if isinstance(written, str) else ""
    if not name:
        raise ValueError("The `name` of a call must be the name of one tool.")
    return name


def _arguments(given: Json, name: str, tool: Signature | None) -> JsonObject:
    if isinstance(given, dict):
        return given
    if given is not None and not isinstance(given, str):
        raise ValueError(f"The `arguments` of {name} must be a JSON object.")
    arguments, rest = read_arguments(given or "", name, tool)
    if rest.strip():
        raise ValueError(f"There is text behind the arguments of {name}.")
    return arguments


def _typed(values: Mapping[str, str], name: str, tool: Signature | None) -> JsonObject:
    """Values that came as plain text, each as what its parameter takes."""
    known: Mapping[str, Json] = {} if tool is None else get_parameters(tool)
    arguments: dict[str, Json] = {}
    for parameter, value in values.items():
        schema: JsonObject = {
            "properties": {parameter: known.get(parameter, {})},
            "required": [parameter],
        }
        alone = ToolSpec(name, "", schema)
        arguments |= (
            read_plain_arguments(value, name, alone, quotes_are_text=True)
            if value
            else {parameter: ""}
        )
    return arguments


def _bare_calls(text: str, tools: Sequence[Signature]) -> tuple[ToolCall, ...]:
    """The calls of registered tools that a text without tags consists of; ValueError for one that cannot be read."""
    begins = _BEGINS_AS_CALL.match(text)
    try:
        written = read_calls(text)
    except ValueError:
        if begins is not None and find_tool(begins["name"].strip(), tools) is not None:
            raise
        return ()
    means_calls = all(_means_call(one, tools) for one in written)
    return tuple(_call(one, tools) for one in written) if means_calls else ()


def _means_call(written: Written, tools: Sequence[Signature]) -> bool:
    """Whether JSON without tags is a call: it names a registered tool, and is no mere object with a name."""
    if isinstance(written, TaggedCall):
        return False
    wrapped = written.get("function")
    inner = wrapped if isinstance(wrapped, dict) else written
    name = next((inner[key] for key in NAMES if key in inner), None)
    known = isinstance(name, str) and find_tool(name.strip(), tools) is not None
    if not known or _describes_tool(inner, find_tool(str(name).strip(), tools)):
        return False
    return "name" not in inner or any(key in inner for key in ARGUMENTS)


def _describes_tool(written: JsonObject, tool: Signature | None) -> bool:
    """Whether JSON tells what arguments a tool takes, as a schema, rather than giving them."""
    schema_words = {"type", "properties"}
    if tool is None or schema_words <= get_parameters(tool).keys():
        return False
    given = [value for key in ARGUMENTS if isinstance(value := written.get(key), dict)]
    return any(
        schema_words <= value.keys() and value["type"] == "object" for value in given
    )


# --- watching ---


class CallWatch:
    """Holds everything back until a call begins: only then is it certain that what stands before it is a thought.

    A text without calls is told when it has ended, since until then a call may follow it.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._tail = ""
        self._looks = MAX_LOOKS

    def feed(self, text: str) -> Iterator[Delta]:
        """The thought, in one piece, once the tag of a call is whole."""
        if not self._looks:
            return
        self._parts.append(text)
        window = self._tail + text
        self._tail = window[window.rfind("<") :][:MAX_TAG] if "<" in window else ""
        if not has_tag(window):
            return
        self._looks -= 1
        self._tail = ""
        thought = read_thought_before_call("".join(self._parts))
        if thought is not None:
            self._looks = 0
            yield from [Delta(reasoning=thought)] if thought else []


class AnswerWatch:
    """Tells a reply that must be an answer as it comes, up to the first tag or what may become one.

    A reply that begins like JSON or a code fence, commas before it or not, is held back: it may be a call without tags.
    """

    def __init__(self) -> None:
        self._trimmed = Trimmed()
        self._leading: list[str] = []
        self._held = ""
        self._begun = self._over = False

    def feed(self, text: str) -> Iterator[Delta]:
        """The words that stand before any tag."""
        if self._over:
            return
        if not self._begun:
            self._leading.append(text)
            first = _WORDS.search(text)
            if first is None:
                return
            self._begun, self._over = True, first[0] in "{[`~"
            text = "".join(self._leading)
        text, self._held = self._held + text, ""
        words = self._trimmed.feed("" if self._over else self._before_tag(text))
        if words:
            yield Delta(text=words)

    def _before_tag(self, text: str) -> str:
        if has_tag(text):
            self._over = True
            return text[: text.find("<")]
        start = text.rfind("<")
        if start < 0 or not may_become_tag(text[start:]):
            return text
        self._held = text[start:]
        self._over = len(self._held) > MAX_TAG
        return text[:start]
