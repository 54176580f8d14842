"""The JSON dialect: the reply is constrained to a JSON schema with a branch for each tool and one for the answer."""

from collections.abc import Callable, Iterable, Sequence

from ..._internal import dataclasses
from ...messages import Conversation, Json, JsonObject, ToolCall, ToolSpec
from ...parsing import read_object
from ...parsing.arguments import (
    Signature,
    find_tool,
    list_tool_names,
    read_name,
)
from ...prompts import PromptSet
from ..base import OutputSchema, Request
from .call_arguments import read_call_arguments
from .dialect import Parsed
from .json_stream import JsonStreamParser
from .streaming import StreamParser
from .transcript import build_instructions, compact_json, write_transcript

PROMPTS = PromptSet(
    instructions="""\
Reply with one JSON object and nothing else. To use a tool:
{{"thought": "why", "action": "the tool's name", "action_input": {{its arguments}}}}
Its result comes back as {{"observation": "..."}}. When you know the answer:
{{"thought": "why", "action": "final_answer", "action_input": "the answer"}}

Tools:
{tools}""",
    tool="- {name}({schema}): {description}",
    answer_schema="The `action_input` of the final answer must be JSON that fits this schema: {schema}",
)

FINAL = "final_answer"
KEYS = {"thought", "action", "action_input", "answer"}
PLAIN_KEYWORDS = {"type", "enum", "default"}  # of a parameter that needs no schema


@dataclasses.dataclass(frozen=True)
class JsonDialect:
    """Calls and answers as one JSON object, which the provider's schema support enforces; small models need that.

    Args:
        repeats: whether a tool may be called again after its result. Very small models do not know when to stop: with
            `False` a tool that was called since the last user message is no longer offered, and in the end only the
            answer is.
        prompts: what the model is told; see `PROMPTS`.
    """

    repeats: bool = True
    prompts: PromptSet = PROMPTS
    name: str = dataclasses.field(default="json", init=False)

    def render(self, request: Request) -> Request:
        """Return the request as plain text, with the schema of the reply."""
        plain = write_transcript(request.conversation, self)
        if not request.tools:
            return dataclasses.replace(request, conversation=plain)
        instructions = build_instructions(self.prompts, request, format_parameters)
        answer = None if request.schema is None else request.schema.schema
        schema = build_reply_schema(self._list_offered(request), answer)
        return Request(
            plain.with_system(instructions),
            sampling=request.sampling,
            schema=OutputSchema("reply", schema),
            label=request.label,
        )

    def _list_offered(self, request: Request) -> list[ToolSpec]:
        if request.tool_choice == "none":
            return []
        if self.repeats:
            return list(request.tools)
        called = find_called_tools(request.conversation)
        return [tool for tool in request.tools if tool.name not in called]

    def format_call(self, thought: str, call: ToolCall) -> str:
        """Return a turn that calls a tool."""
        turn: dict[str, Json] = {"thought": thought} if thought else {}
        turn |= {"action": call.name, "action_input": dict(call.arguments)}
        return compact_json(turn)

    def format_answer(self, answer: str) -> str:
        """Return a turn that answers."""
        return compact_json({"action": FINAL, "action_input": answer})

    def format_observation(self, result: str) -> str:
        """Return a tool's result as a JSON string, in which a brace has no meaning."""
        return compact_json({"observation": result})

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """Return the call or answer in `text`, or what is wrong with it."""
        return self._parse(text, tools, _read_text_answer)

    def parse_typed(self, text: str, tools: Sequence[Signature]) -> Parsed:
        """Return the call or answer in `text`, the answer as JSON, or what is wrong with it."""
        return self._parse(text, tools, _read_typed_answer)

    def _parse(
        self,
        text: str,
        tools: Sequence[Signature],
        read_answer: Callable[[dict[str, Json]], str],
    ) -> Parsed:
        try:
            return _read_reply(_find_object(text), tools, read_answer)
        except ValueError as error:
            return Parsed("", (), None, f"{error} {_explain_form(tools)}")

    def parse_stream(self, request: Request) -> StreamParser:
        """Return a parser that shows the thought, and the answer as its string is written."""

        def is_answer(action: str) -> bool:
            return _is_final(read_name(action, request.tools), request.tools)

        return JsonStreamParser(is_answer)


def _explain_form(tools: Sequence[Signature]) -> str:
    names = list_tool_names(tools)
    call = f'{{"action": one of {names}, "action_input": {{…}}}} or ' if tools else ""
    return f'Reply with one JSON object: {call}{{"action": "{FINAL}", "action_input": "the answer"}}.'


def format_parameters(schema: JsonObject) -> str:
    """Return a tool's parameters as a small model reads them best: `city: string, unit?: celsius|kelvin`.

    A `?` means optional. If a parameter has more than a type or choices, all are written as JSON schema.
    """
    parameters, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(parameters, dict) or not isinstance(required, list):
        return compact_json(schema)
    texts: list[str] = []
    for name, parameter in parameters.items():
        kind = _format_type(parameter)
        if not kind:
            return compact_json(schema)
        optional = "" if name in required else "?"
        texts.append(f"{name}{optional}: {kind}")
    return ", ".join(texts)


def _format_type(parameter: Json) -> str:
    """Return the type of a plain parameter, or its choices; empty if it is more than that."""
    if not isinstance(parameter, dict) or parameter.keys() - PLAIN_KEYWORDS:
        return ""
    choices, kind = parameter.get("enum"), parameter.get("type")
    if isinstance(choices, list):
        return "|".join(map(_format_choice, choices))
    if not isinstance(kind, str) or kind in {"object", "array"}:
        return ""
    return kind


def _format_choice(choice: Json) -> str:
    if isinstance(choice, str):
        return choice
    return compact_json(choice)


def find_called_tools(conversation: Conversation) -> set[str]:
    """Return the tools that were called since the last user message that is not the runtime's own."""
    names: set[str] = set()
    for message in reversed(conversation.messages):
        if message.role == "user" and message.origin not in (
            "runtime",
            "memory",
            "hook",
        ):
            break
        names.update(call.name for call in message.calls)
    return names


def build_reply_schema(
    tools: Iterable[ToolSpec], answer: JsonObject | None = None
) -> JsonObject:
    """Return the schema of a reply: a branch for each tool, with its arguments, and one for the final answer.

    The final answer is a text, or fits `answer`.
    """
    definitions: dict[str, Json] = {}
    branches: list[Json] = []
    for tool in tools:
        arguments = _build_arguments_schema(tool, definitions)
        branches.append(_build_branch(tool.name, arguments))
    final: dict[str, Json] = {"type": "string", "minLength": 1}
    if answer is not None:
        final = _move_definitions(answer, f"{FINAL}.", definitions)
    schema: dict[str, Json] = _build_branch(FINAL, final)
    if branches:
        branches.append(schema)
        schema = {"anyOf": branches}
    if definitions:
        schema["$defs"] = definitions
    return schema


def _build_branch(action: str, action_input: dict[str, Json]) -> dict[str, Json]:
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


def _build_arguments_schema(
    tool: ToolSpec, definitions: dict[str, Json]
) -> dict[str, Json]:
    """Return the schema of a tool's arguments, its definitions moved to the top under the tool's name."""
    prefix = f"{tool.name.replace(' ', '_')}."
    own = _move_definitions(tool.schema, prefix, definitions)
    return {"type": "object", **own, "additionalProperties": False}


def _move_definitions(
    schema: JsonObject, prefix: str, definitions: dict[str, Json]
) -> dict[str, Json]:
    """Return a schema without its definitions, which get the prefix and become those of the whole.

    A schema with other references, as to the `definitions` of older ones or to itself, becomes a definition, too.
    """
    renamed = _prefix_references(dict(schema), prefix)
    own = renamed if isinstance(renamed, dict) else {}
    moved = own.pop("$defs", None)
    if _refers_to(renamed, f"#/$defs/{prefix}"):
        definitions[prefix] = dict(own)
    if isinstance(moved, dict):
        for name, definition in moved.items():
            definitions[prefix + name] = definition
    return own


def _prefix_references(schema: Json, prefix: str) -> Json:
    """Return the schema with its references changed to the new names of the definitions."""
    if isinstance(schema, list):
        return [_prefix_references(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {
        keyword: _prefix_references(value, prefix) for keyword, value in schema.items()
    }
    reference = changed.get("$ref")
    if isinstance(reference, str):
        changed["$ref"] = _move_reference(reference, prefix)
    return changed


def _move_reference(reference: str, prefix: str) -> str:
    if not reference.startswith("#"):
        return reference
    return f"#/$defs/{prefix}{reference.removeprefix('#').removeprefix('/$defs/')}"


def _refers_to(schema: Json, target: str) -> bool:
    """Return whether a schema has a reference to a definition, or to something within."""
    if isinstance(schema, list):
        return any(_refers_to(one, target) for one in schema)
    if not isinstance(schema, dict):
        return False
    found = f"{schema.get('$ref')}/".startswith(f"{target}/")
    return found or any(_refers_to(one, target) for one in schema.values())


def _find_object(text: str) -> dict[str, Json]:
    """Return the one JSON object in a text, which may stand in a code fence or in prose."""
    start = text.find("{")
    if start < 0:
        raise ValueError("The reply is not a JSON object.")
    if _is_inline_code(text[:start]):
        raise ValueError("JSON between backticks is only an example.")
    try:
        found, end = read_object(text, start)
    except ValueError as error:
        raise ValueError(f"The JSON cannot be read: {error}.") from None
    if "{" in text[end:]:
        raise ValueError("There is more than one JSON object in the reply.")
    return found


def _is_inline_code(before: str) -> bool:
    return before.endswith("`") and not before.endswith("```")


def _read_reply(
    reply: dict[str, Json],
    tools: Sequence[Signature],
    read_answer: Callable[[dict[str, Json]], str],
) -> Parsed:
    unknown = sorted(reply.keys() - KEYS)
    if unknown:
        raise ValueError(
            f"The object has a key that means nothing here: {unknown[0]!r}."
        )
    thought, action = reply.get("thought") or "", reply.get("action")
    if not isinstance(thought, str) or not isinstance(action, str):
        raise ValueError(
            "`action` must be there, and it and `thought` must be strings."
        )
    name = read_name(action, tools)
    if _is_final(name, tools):
        return Parsed(thought, (), read_answer(reply), None)
    if not name or "answer" in reply:
        raise ValueError(
            "`action` must be the name of one tool, with its arguments in `action_input`."
        )
    tool = find_tool(name, tools)
    value = reply.get("action_input")
    arguments = read_call_arguments(value, "action_input", name, tool)
    return Parsed(thought, (ToolCall(name, arguments),), None, None)


def _is_final(name: str, tools: Sequence[Signature]) -> bool:
    return name.casefold() == FINAL and find_tool(name, tools) is None


def _get_answer(reply: dict[str, Json]) -> Json:
    answers = [reply[key] for key in ("action_input", "answer") if key in reply]
    return answers[0] if len(answers) == 1 else None


def _read_typed_answer(reply: dict[str, Json]) -> str:
    """Return an answer that has a schema: JSON, or a text with that JSON."""
    answer = _get_answer(reply)
    return _read_text_answer(reply) if isinstance(answer, str) else compact_json(answer)


def _read_text_answer(reply: dict[str, Json]) -> str:
    answer = _get_answer(reply)
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(
            "The `action_input` of the final answer must be a string that is not empty."
        )
    return answer.strip()
