"""The JSON dialect: the model is held to a JSON schema with one branch for each tool and one for the final answer."""

import dataclasses
from collections.abc import Iterable, Sequence

from ...messages import Conversation, Json, JsonObject, ToolCall, ToolSpec
from ...parsing import read_object
from ...parsing.arguments import (
    Signature,
    find_tool,
    list_tool_names,
    read_arguments,
    read_name,
)
from ...prompts import PromptSet
from ..base import OutputSchema, Request
from .dialect import Parsed
from .json_stream import JsonWatch
from .streaming import Watch
from .transcript import compact_json, instructions, tell

PROMPTS = PromptSet(
    instructions="""\
Reply with one JSON object and nothing else. To use a tool:
{{"thought": "why", "action": "the tool's name", "action_input": {{its arguments}}}}
Its result comes back as {{"observation": "..."}}. When you know the answer:
{{"thought": "why", "action": "final_answer", "action_input": "the answer"}}

Tools:
{tools}""",
    tool="- {name}({schema}): {description}",
    answer_schema="The final answer must be JSON, written as a string, that fits this schema: {schema}",
)

FINAL = "final_answer"
KEYS = {"thought", "action", "action_input", "answer"}


@dataclasses.dataclass(frozen=True)
class JsonDialect:
    """Calls and answers as one JSON object, which the provider's schema support enforces; small models need that.

    Args:
        repeats: whether a tool may be called again after its result. Very small models do not know when to stop: with
            `False` a tool called since the user last spoke is no longer on offer, and in the end only the answer is.
        prompts: what the model is told; see `PROMPTS`.
    """

    repeats: bool = True
    prompts: PromptSet = PROMPTS
    name: str = dataclasses.field(default="json", init=False)

    def render(self, request: Request) -> Request:
        """The request as plain text, with the schema of the reply."""
        told = tell(request.conversation, self)
        if not request.tools:
            return dataclasses.replace(request, conversation=told)
        used = set[str]() if self.repeats else called_since_user(request.conversation)
        offered = [
            tool
            for tool in request.tools
            if request.tool_choice == "auto" and tool.name not in used
        ]
        return Request(
            told.with_system(instructions(self.prompts, request, signature)),
            sampling=request.sampling,
            schema=OutputSchema("reply", reply_schema(offered)),
        )

    def say_call(self, thought: str, call: ToolCall) -> str:
        """A turn that calls a tool."""
        said = {"action": call.name, "action_input": dict(call.arguments)}
        return compact_json({"thought": thought, **said} if thought else said)

    def say_answer(self, answer: str) -> str:
        """A turn that answers."""
        return compact_json({"action": FINAL, "action_input": answer})

    def say_observation(self, result: str) -> str:
        """A tool's result as a JSON string, in which no brace is one."""
        return compact_json({"observation": result})

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """The call or answer in `text`, or what is wrong with it."""
        try:
            return _read(_the_object(text), tools)
        except ValueError as error:
            form = (
                f'{{"action": one of {list_tool_names(tools)}, "action_input": {{…}}}} or '
                if tools
                else ""
            )
            cure = f'Reply with one JSON object: {form}{{"action": "{FINAL}", "action_input": "the answer"}}.'
            return Parsed("", (), None, f"{error} {cure}")

    def watch(self, request: Request) -> Watch:
        """Tells the thought, and the answer as its string is written."""
        return JsonWatch(
            lambda action: _is_final(read_name(action, request.tools), request.tools)
        )


def signature(schema: JsonObject) -> str:
    """A tool's parameters as a small model reads them best: `city: string, unit?: celsius|kelvin`; a `?` is optional.

    Where one says more of itself than a type or a choice of words, all are told as JSON schema.
    """
    parameters, needed = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(parameters, dict) or not isinstance(needed, list):
        return compact_json(schema)
    told = {name: _kind(parameter) for name, parameter in parameters.items()}
    if not all(told.values()):
        return compact_json(schema)
    return ", ".join(
        [
            f"{name}{'' if name in needed else '?'}: {kind}"
            for name, kind in told.items()
        ]
    )


def _kind(parameter: Json) -> str:
    """The type of a plain parameter, or its choices; an empty string for one that is more than that."""
    if not isinstance(parameter, dict) or parameter.keys() - {
        "type",
        "enum",
        "default",
    }:
        return ""
    choices, kind = parameter.get("enum"), parameter.get("type")
    if isinstance(choices, list):
        return "|".join(
            [
                choice if isinstance(choice, str) else compact_json(choice)
                for choice in choices
            ]
        )
    return kind if isinstance(kind, str) and kind not in {"object", "array"} else ""


def called_since_user(conversation: Conversation) -> set[str]:
    """The tools that were called since the last user message that is not the runtime's own."""
    called: set[str] = set()
    for message in reversed(conversation.messages):
        if message.role == "user" and message.origin != "runtime":
            break
        called.update(call.name for call in message.calls)
    return called


def reply_schema(tools: Iterable[ToolSpec]) -> JsonObject:
    """The schema of a reply: a branch for each tool, with its arguments, and one for the final answer."""
    definitions: dict[str, Json] = {}
    calls: list[Json] = [
        _branch(tool.name, _arguments_schema(tool, definitions)) for tool in tools
    ]
    answer = _branch(FINAL, {"type": "string", "minLength": 1})
    schema: JsonObject = {"anyOf": [*calls, answer]} if calls else answer
    return {**schema, "$defs": definitions} if definitions else schema


def _branch(action: str, action_input: dict[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "action": {"const": action},
            "action_input": action_input,
        },
        "required": ["action", "action_input"],
        "additionalProperties": False,
    }


def _arguments_schema(tool: ToolSpec, definitions: dict[str, Json]) -> dict[str, Json]:
    """The schema of a tool's arguments inside a larger one: its definitions move to the top, under the tool's name."""
    prefix = f"{tool.name.replace(' ', '_')}."
    own = {key: _moved(part, prefix) for key, part in tool.schema.items()}
    moved = own.pop("$defs", None)
    if isinstance(moved, dict):
        definitions.update({prefix + name: part for name, part in moved.items()})
    return {"type": "object", **own, "additionalProperties": False}


def _moved(schema: Json, prefix: str) -> Json:
    """The schema with its references to definitions pointing to where those were moved."""
    if isinstance(schema, list):
        return [_moved(part, prefix) for part in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(part, prefix) for key, part in schema.items()}
    reference = moved.get("$ref")
    if isinstance(reference, str):
        moved["$ref"] = reference.replace("#/$defs/", f"#/$defs/{prefix}", 1)
    return moved


def _the_object(text: str) -> dict[str, Json]:
    """The one JSON object in a text, alone, in a code fence or with prose around it."""
    start = text.find("{")
    if start < 0:
        raise ValueError("The reply is no JSON object.")
    if text[start - 1 : start] == "`" and not text[:start].endswith("```"):
        raise ValueError("JSON between backticks is only an example.")
    try:
        found, end = read_object(text, start)
    except ValueError as error:
        raise ValueError(f"The JSON cannot be read: {error}.") from None
    if "{" in text[end:]:
        raise ValueError("There is more than one JSON object in the reply.")
    return found


def _read(reply: dict[str, Json], tools: Sequence[Signature]) -> Parsed:
    strange = sorted(reply.keys() - KEYS)
    if strange:
        raise ValueError(
            f"The object has a key that means nothing here: {strange[0]!r}."
        )
    thought, action = reply.get("thought") or "", reply.get("action")
    if not isinstance(thought, str) or not isinstance(action, str):
        raise ValueError(
            "`action` must be there, and it and `thought` must be strings."
        )
    name = read_name(action, tools)
    tool = find_tool(name, tools)
    if _is_final(name, tools):
        return Parsed(thought, (), _final(reply), None)
    if not name or "answer" in reply:
        raise ValueError(
            "`action` must be the name of one tool, with its arguments in `action_input`."
        )
    return Parsed(
        thought,
        (ToolCall(name, _arguments(reply.get("action_input"), name, tool)),),
        None,
        None,
    )


def _is_final(name: str, tools: Sequence[Signature]) -> bool:
    return name.casefold() == FINAL and find_tool(name, tools) is None


def _final(reply: dict[str, Json]) -> str:
    answers = [reply[key] for key in ("action_input", "answer") if key in reply]
    answer = answers[0] if len(answers) == 1 else None
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(
            "The `action_input` of the final answer must be a string that is not empty."
        )
    return answer.strip()


def _arguments(given: Json, name: str, tool: Signature | None) -> JsonObject:
    if isinstance(given, dict):
        return given
    if given is not None and not isinstance(given, str):
        raise ValueError(f"The `action_input` of {name} must be a JSON object.")
    arguments, rest = read_arguments(given or "", name, tool)
    if rest.strip():
        raise ValueError(f"There is text behind the arguments of {name}.")
    return arguments
