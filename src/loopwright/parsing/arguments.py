"""From the text of a model's call to its tool and arguments; what cannot be read is a ValueError with a cure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..errors import ConfigError
from ..messages import Json, JsonObject, ToolSpec
from .fences import read_fence
from .json_text import read_json, read_object

EMPTY_INPUTS = {"", "none", "null", "n/a", "()", "{}", "[]"}
MAX_NAME = 128
MARKUP = "*`\"'"
MAX_LISTED_TOOLS = 20


class Signature(Protocol):
    """What a reader of calls must know of a tool; `Tool` and `ToolSpec` both fit."""

    @property
    def name(self) -> str:
        """The registered spelling."""
        ...

    @property
    def schema(self) -> JsonObject:
        """JSON schema of the arguments, an object."""
        ...


def find_tool(name: str, tools: Sequence[Signature]) -> Signature | None:
    """The tool of that name: spelled exactly so, else the only one spelled so without regard to case."""
    exact = [tool for tool in tools if tool.name == name]
    folded = [tool for tool in tools if tool.name.casefold() == name.casefold()]
    found = exact or folded
    return found[0] if len(found) == 1 else None


def read_name(written: str, tools: Sequence[Signature]) -> str:
    """The registered spelling of a tool's name, or the name as written (without markup) if there is no such tool.

    An empty string says that it is no name at all.
    """
    bare = written.strip()
    if len(bare) > 2 * MAX_NAME:
        return ""
    plain = bare.strip(MARKUP + " \t").rstrip(".,:;")
    for candidate in (bare, plain, plain.strip("[]()<> ")):
        tool = find_tool(candidate, tools)
        if tool is not None:
            return tool.name
    name = plain.strip("[]()<> ")
    return (
        name
        if len(name) <= MAX_NAME and all(c.isalnum() or c in "_-. " for c in name)
        else ""
    )


def get_parameters(tool: Signature) -> Mapping[str, Json]:
    """The schemas of a tool's parameters by name."""
    found = tool.schema.get("properties")
    return found if isinstance(found, dict) else {}


def get_required(tool: Signature) -> list[str]:
    """The parameters that a call must give."""
    found = tool.schema.get("required")
    return (
        [name for name in found if isinstance(name, str)]
        if isinstance(found, list)
        else []
    )


def describe_parameters(tool: Signature) -> str:
    """A tool's parameters in words: `query (string, required), limit (integer)`."""
    words: list[str] = []
    for name, schema in get_parameters(tool).items():
        kind = schema.get("type") if isinstance(schema, dict) else None
        facts = [kind] if isinstance(kind, str) else []
        facts += ["required"] if name in get_required(tool) else []
        words.append(f"{name} ({', '.join(facts)})" if facts else name)
    return ", ".join(words) or "no parameters"


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """The tools a line each, with what they do and take."""
    return (
        "\n".join(
            f"- {t.name}: {t.description} Takes {describe_parameters(t)}."
            for t in tools
        )
        or "none"
    )


def can_take_plain_text(tool: Signature) -> bool:
    """Whether plain text is enough to call a tool: a digit stays a text only where a text is wanted."""
    try:
        return (
            "0"
            in read_plain_arguments("0", tool.name, tool, quotes_are_text=True).values()
        )
    except ValueError:
        return False


def check_plain_text_tool(option: str, name: str, tools: Iterable[Signature]) -> None:
    """Raise `ConfigError` naming the option unless plain text is enough to call the tool that it names."""
    fit = [tool for tool in tools if can_take_plain_text(tool)]
    if name not in {tool.name for tool in fit}:
        raise ConfigError(
            f"{option}: {name!r} is no tool that takes one text; those are {list_tool_names(fit)}"
        )


def list_tool_names(tools: Sequence[Signature]) -> str:
    """The names of the tools, the first twenty."""
    names = [tool.name for tool in tools[:MAX_LISTED_TOOLS]]
    return (
        ", ".join([*names, "…"] if len(tools) > MAX_LISTED_TOOLS else names) or "none"
    )


def read_arguments(
    text: str, name: str, tool: Signature | None
) -> tuple[JsonObject, str]:
    """The arguments that the input of a call means, and the text behind them.

    An object (alone or in a code fence) is the arguments; other text is the value of a tool's only parameter, or of
    `input` where there is no such tool. Raises ValueError naming the tool and its parameters.
    """
    body, rest = text.strip(), ""
    if body.startswith(("```", "~~~")):
        body, rest = _inside_fence(body, name)
    if body.startswith("{"):
        try:
            arguments, end = read_object(body)
        except ValueError as error:
            raise ValueError(
                f"The input of {name} cannot be read: {error}. {_cure(tool)}"
            ) from None
        return arguments, body[end:] + rest
    return read_plain_arguments(body, name, tool), rest


def _inside_fence(body: str, name: str) -> tuple[str, str]:
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
    """The arguments that plain text means: the value of the only parameter, or of the only one that is required.

    Raises ValueError if there is none such.

    `quotes_are_text` keeps the quotes around a text, which are otherwise read as those of a JSON string.
    """
    if tool is None:
        return {"input": text} if text else {}
    parameters = get_parameters(tool)
    if text.casefold() in EMPTY_INPUTS and not get_required(tool):
        return {}
    if len(parameters) != 1:
        parameters = {
            one: parameters[one] for one in get_required(tool) if one in parameters
        }
    if len(parameters) != 1:
        raise ValueError(f"The input of {name} must be a JSON object. {_cure(tool)}")
    if not text:
        raise ValueError(f"The call of {name} has no input. {_cure(tool)}")
    [(parameter, schema)] = parameters.items()
    value = _json_value(text)
    as_text = value is None or (
        _takes_text(schema) and (quotes_are_text or not isinstance(value, str))
    )
    return {parameter: text if as_text else value}


def _json_value(text: str) -> Json:
    """The JSON value that the whole text is, or `None`."""
    try:
        value, end = read_json(text)
    except ValueError:
        return None
    return None if text[end:].strip() else value


def _takes_text(schema: Json) -> bool:
    if not isinstance(schema, dict):
        return True
    kinds = schema.get("type")
    if kinds is not None:
        return kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    for choice in ("anyOf", "oneOf"):
        options = schema.get(choice)
        if isinstance(options, list):
            return any(_takes_text(option) for option in options)
    choices = schema.get("enum")
    return not isinstance(choices, list) or any(
        isinstance(item, str) for item in choices
    )


def _cure(tool: Signature | None) -> str:
    if tool is None:
        return "Write it as a JSON object."
    if not get_parameters(tool):
        return f"{tool.name} takes no parameters: write {{}}."
    return f"Write a JSON object with the parameters of {tool.name}: {describe_parameters(tool)}."
