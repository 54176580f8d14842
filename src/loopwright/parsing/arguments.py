"""Tool names and arguments as models write them; what cannot be read is a ValueError that says how
to write it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..errors import ConfigError
from ..messages import Json, JsonObject, ToolSpec
from .fences import FENCE_STARTS, read_fence
from .json_text import as_list, as_object, read_json, read_object

EMPTY_INPUTS = {"", "none", "null", "n/a", "()", "{}", "[]"}
MAX_NAME = 128
MARKUP = "*`\"'"
MAX_LISTED_TOOLS = 20


class Signature(Protocol):
    """What a reader of calls must know about a tool; `Tool` and `ToolSpec` both fit."""

    @property
    def name(self) -> str:
        """The registered name."""
        ...

    @property
    def schema(self) -> JsonObject:
        """JSON schema of the arguments, an object."""
        ...


def find_tool(name: str, tools: Sequence[Signature]) -> Signature | None:
    """Return the tool of that exact name, else the only one whose name differs in case alone."""
    exact = [tool for tool in tools if tool.name == name]
    folded = name.casefold()
    found = exact or [tool for tool in tools if tool.name.casefold() == folded]
    return found[0] if len(found) == 1 else None


def read_name(written: str, tools: Sequence[Signature]) -> str:
    """Return the registered name of a tool, or the name as written (without markup) if there is no
    such tool.

    An empty text means that it is not a name at all.
    """
    bare = written.strip()
    if len(bare) > 2 * MAX_NAME:
        return ""
    plain = bare.strip(MARKUP + " \t").rstrip(".,:;")
    name = plain.strip("[]()<> ")
    for candidate in (bare, plain, name):
        tool = find_tool(candidate, tools)
        if tool is not None:
            return tool.name
    return name if _is_name(name) else ""


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME and all(c.isalnum() or c in "_-. " for c in text)


def get_parameters(tool: Signature) -> Mapping[str, Json]:
    """Return the schemas of a tool's parameters by name."""
    return as_object(tool.schema.get("properties"))


def get_required(tool: Signature) -> list[str]:
    """Return the names of the parameters that a call must give."""
    names = as_list(tool.schema.get("required"))
    return [name for name in names if isinstance(name, str)]


def describe_parameters(tool: Signature) -> str:
    """Describe a tool's parameters: `query (string, required), limit (integer)`."""
    required = get_required(tool)
    described = [
        _describe_parameter(name, schema, is_required=name in required)
        for name, schema in get_parameters(tool).items()
    ]
    return ", ".join(described) or "no parameters"


def _describe_parameter(name: str, schema: Json, *, is_required: bool) -> str:
    kind = as_object(schema).get("type")
    facts = [kind] if isinstance(kind, str) else []
    if is_required:
        facts.append("required")
    return f"{name} ({', '.join(facts)})" if facts else name


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Describe the tools on a line each: what they do and which parameters they take."""
    lines = map(_describe_tool, tools)
    return "\n".join(lines) or "none"


def _describe_tool(tool: ToolSpec) -> str:
    return f"- {tool.name}: {tool.description} Takes {describe_parameters(tool)}."


def can_take_plain_text(tool: Signature) -> bool:
    """Return whether plain text is enough to call a tool: a digit stays a text only where a text is
    wanted.
    """
    try:
        read = read_plain_arguments("0", tool.name, tool, quotes_are_text=True)
    except ValueError:
        return False
    return "0" in read.values()


def check_plain_text_tool(option: str, name: str, tools: Iterable[Signature]) -> None:
    """Raise `ConfigError` naming the option unless plain text is enough to call the tool that it
    names.
    """
    usable = [tool for tool in tools if can_take_plain_text(tool)]
    if name not in {tool.name for tool in usable}:
        raise ConfigError(
            f"{option}: {name!r} is not a tool that takes one text; those are {list_tool_names(usable)}"
        )


def list_tool_names(tools: Sequence[Signature]) -> str:
    """Return the names of the tools in one line, at most twenty."""
    names = [tool.name for tool in tools[:MAX_LISTED_TOOLS]]
    if len(tools) > MAX_LISTED_TOOLS:
        names.append("…")
    return ", ".join(names) or "none"


def read_arguments(
    text: str, name: str, tool: Signature | None
) -> tuple[JsonObject, str]:
    """Return the arguments that the input of a call means, and the text behind them.

    An object (alone or in a code fence) is the arguments; other text is the value of a tool's only
    parameter, or of `input` where there is no such tool. Raises ValueError naming the tool and its
    parameters.
    """
    body, rest = text.strip(), ""
    if body.startswith(FENCE_STARTS):
        body, rest = _read_fenced_input(body, name)
    if not body.startswith("{"):
        return read_plain_arguments(body, name, tool), rest
    try:
        arguments, end = read_object(body)
    except ValueError as error:
        raise ValueError(
            f"The input of {name} cannot be read: {error}. {_suggest_form(tool)}"
        ) from None
    return arguments, body[end:] + rest


def _read_fenced_input(body: str, name: str) -> tuple[str, str]:
    """Return the contents of the fence that an input begins with, and the text behind it."""
    try:
        contents, end = read_fence(body)
    except ValueError as error:
        raise ValueError(
            f"The input of {name} cannot be read: {error}. Write it again, whole."
        ) from None
    return contents.strip(), body[end:]


def read_plain_arguments(
    text: str, name: str, tool: Signature | None, *, quotes_are_text: bool = False
) -> JsonObject:
    """Return the arguments that plain text means: the value of the only parameter, or of the only
    required one.

    Args:
        text: the input.
        name: the name of the tool, for errors.
        tool: the tool, if it is known.
        quotes_are_text: whether to keep the quotes around a text, which are otherwise read as those
            of a JSON string.

    Raises ValueError if the tool has no parameter that the text could be the value of.
    """
    if tool is None:
        return {"input": text} if text else {}
    if text.casefold() in EMPTY_INPUTS and not get_required(tool):
        return {}
    parameters = _select_main_parameters(tool)
    if len(parameters) != 1:
        raise ValueError(
            f"The input of {name} must be a JSON object. {_suggest_form(tool)}"
        )
    if not text:
        raise ValueError(f"The call of {name} has no input. {_suggest_form(tool)}")
    [(parameter, schema)] = parameters.items()
    value = _read_json_value(text)
    if value is None:
        return {parameter: text}
    reads_quotes = isinstance(value, str) and not quotes_are_text
    if _can_be_text(schema) and not reads_quotes:
        return {parameter: text}
    return {parameter: value}


def _select_main_parameters(tool: Signature) -> Mapping[str, Json]:
    """Return a tool's parameters if there is one alone, else those that are required."""
    parameters = get_parameters(tool)
    if len(parameters) == 1:
        return parameters
    required = get_required(tool)
    return {name: parameters[name] for name in required if name in parameters}


def _read_json_value(text: str) -> Json:
    """Return the JSON value that the whole text is, or `None`."""
    try:
        value, end = read_json(text)
    except ValueError:
        return None
    return None if text[end:].strip() else value


def _can_be_text(schema: Json) -> bool:
    """Return whether the schema of a parameter allows a text."""
    keywords = as_object(schema)
    kinds = keywords.get("type")
    if kinds is not None:
        return kinds == "string" or "string" in as_list(kinds)
    for keyword in ("anyOf", "oneOf"):
        options = keywords.get(keyword)
        if isinstance(options, list):
            return any(map(_can_be_text, options))
    choices = keywords.get("enum")
    if not isinstance(choices, list):
        return True
    return any(isinstance(choice, str) for choice in choices)


def _suggest_form(tool: Signature | None) -> str:
    """Say how the arguments of a call must be written."""
    if tool is None:
        return "Write it as a JSON object."
    if not get_parameters(tool):
        return f"{tool.name} takes no parameters: write {{}}."
    parameters = describe_parameters(tool)
    return f"Write a JSON object with the parameters of {tool.name}: {parameters}."
