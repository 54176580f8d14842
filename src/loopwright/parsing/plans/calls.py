"""Calls as a plan writes them: where they close, and the arguments that they mean."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..._internal.regex import compile_late
from ...messages import Json, JsonObject, ToolSpec
from ..arguments import (
    EMPTY_INPUTS,
    Signature,
    describe_parameters,
    get_parameters,
    get_required,
    read_arguments,
    read_plain_arguments,
)
from ..fences import FENCE_STARTS
from ..json_text import as_object, read_json, read_object
from .references import REFERENCE, insert_results

_DELIMITER = compile_late(r"[()\[\]{},:=]\s*+")
# A quote closes a string only where something may follow a value: 'Arthur's Magazine' is one string.
_STRINGS = {
    quote: re.compile(
        rf"""{quote}(?:[^{quote}\\]|\\.|{quote}(?!\s*+(?:[,)\]}}:+*/-]|\Z)))*+{quote}""",
        re.DOTALL,
    )
    for quote in ("'", '"')
}
_STRING_OR_REFERENCE = compile_late(
    rf"""\\.|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|(?P<reference>{REFERENCE.pattern})""",
    re.DOTALL | re.IGNORECASE,
)
_NAMED = compile_late(r"(?P<name>[A-Za-z_]\w*+)\s*+=(?!=)\s*+(?P<value>.*)", re.DOTALL)


class _WrittenValue(NamedTuple):
    """A value of a call as it is written, and the name of its parameter if that stands before it."""

    name: str | None
    text: str


def find_call_end(text: str, opening: int) -> int | None:
    """Return where the round bracket at `opening` closes, strings left out; `None` if it does not
    close.
    """
    depth = 0
    for position, delimiter in _scan_delimiters(text, opening):
        depth += (delimiter == "(") - (delimiter == ")")
        if depth == 0:
            return position
    return None


def _scan_delimiters(text: str, start: int) -> Iterator[tuple[int, str]]:
    """Iterate over brackets, commas, colons and equals signs outside strings; a string starts right
    behind one.
    """
    unclosed = ""
    while found := _DELIMITER.search(text, start):
        yield found.start(), found[0][0]
        start = found.end()
        quote = text[start : start + 1]
        if quote not in _STRINGS or quote in unclosed:
            continue
        string = _STRINGS[quote].match(text, start)
        if string is None:
            unclosed += (
                quote  # none closes behind it either, so it is not searched for again
            )
        else:
            start = string.end()


def split_values(text: str) -> list[str]:
    """Split the values of a call at the commas that stand in no bracket and no string."""
    wrapped = f"({text})"
    values: list[str] = []
    depth, begin = 0, 1
    for position, delimiter in _scan_delimiters(wrapped, 0):
        depth += (delimiter in "([{") - (delimiter in ")]}")
        if delimiter == "," and depth == 1:
            values.append(wrapped[begin:position].strip())
            begin = position + 1
    return [*values, wrapped[begin:-1].strip()]


def read_call_arguments(
    text: str, tool: Signature, results: Mapping[int, str]
) -> JsonObject:
    """Return the arguments that a call in a plan means, with the results inserted that it refers
    to.

    Args:
        text: what stands between the brackets: a JSON object, values in the order of the tool's
            parameters (JSON or Python literals), `name=value` pairs, or plain text for a tool with
            one parameter.
        tool: name and schema of the tool.
        results: texts by step id; they are inserted as text into strings, and a value that is a
            reference and nothing else becomes a number, list or object where the parameter takes no
            text.

    Raises ValueError naming the tool and its parameters.
    """
    arguments = read_written_arguments(text, tool)
    missing = [name for name in get_required(tool) if name not in arguments]
    if missing:
        raise ValueError(
            f"{tool.name} needs {', '.join(missing)}. Its parameters: {describe_parameters(tool)}."
        )
    return {
        name: _fill_parameter(name, value, tool, results)
        for name, value in arguments.items()
    }


def read_written_arguments(text: str, tool: Signature) -> JsonObject:
    """Return the arguments between the brackets of a call as they are written; references stay
    texts.

    Raises ValueError naming the tool and its parameters.
    """
    body = text.strip()
    if body.startswith(("{", *FENCE_STARTS)):
        return _read_object_arguments(body, tool)
    return _read_listed_arguments(body, tool)


def _read_object_arguments(body: str, tool: Signature) -> JsonObject:
    """Return the arguments of a call that is written as one object."""
    arguments, rest = read_arguments(_quote_references(body), tool.name, tool)
    behind = rest.strip()
    if behind:
        raise ValueError(
            f"There is text behind the object of {tool.name}: {behind[:40]!r}."
        )
    return arguments


def _read_listed_arguments(body: str, tool: Signature) -> JsonObject:
    """Return the arguments that listed values mean; plain text where they are none, or where the
    tool takes one.
    """
    values = split_values(body)
    places = _list_places(tool, len(values))
    parameters = get_parameters(tool)
    written = [
        _split_name(value, parameters) for value in values[: len(places) + 1]
    ]  # one value too many is enough to know
    if body.casefold() in EMPTY_INPUTS or _is_one_plain_text(written, parameters):
        return read_plain_arguments(body, tool.name, tool)
    try:
        read = [_read_value(value) for value in written]
    except ValueError:
        return read_plain_arguments(body, tool.name, tool)
    arguments: dict[str, Json] = {}
    for one, value in zip(written, read, strict=True):
        place = one.name or _find_free(places, arguments)
        if place is None or place in arguments:
            raise ValueError(
                f"{tool.name} takes {len(places)} value(s), each once, and the call gives {len(values)}. "
                f"Its parameters: {describe_parameters(tool)}."
            )
        is_number = isinstance(value, (int, float))
        keeps_text = is_number and _is_text_schema(parameters[place])
        arguments[place] = one.text if keeps_text else value
    return arguments


def _list_places(tool: Signature, count: int) -> list[str]:
    """Return the parameters to which positional values are assigned, in order."""
    required = get_required(tool)
    if count == 1 and len(required) == 1:
        return required
    return list(get_parameters(tool))


def _find_free(places: Sequence[str], taken: Mapping[str, Json]) -> str | None:
    return next((place for place in places if place not in taken), None)


def _split_name(value: str, parameters: Mapping[str, Json]) -> _WrittenValue:
    """Split `name=value` if a parameter has that name."""
    named = _NAMED.fullmatch(value)
    if named is None or named["name"] not in parameters:
        return _WrittenValue(None, value)
    return _WrittenValue(named["name"], named["value"])


def _is_one_plain_text(
    written: Sequence[_WrittenValue], parameters: Mapping[str, Json]
) -> bool:
    """Return whether a tool has one parameter and a call gives it neither by name nor as a string
    or list.
    """
    first = written[0]
    is_literal = first.text.startswith(("'", '"', "["))
    return len(parameters) == 1 and first.name is None and not is_literal


def _is_text_schema(schema: Json) -> bool:
    return as_object(schema).get("type") == "string"


def _read_value(written: _WrittenValue) -> Json:
    """Return a value of a call; references, and text that has a name, stay as written.

    Raises ValueError for other text.
    """
    text = written.text
    if REFERENCE.fullmatch(text):
        return text
    try:
        return _read_literal(_quote_references(text))
    except ValueError:
        quote = text[:1]
        if quote in _STRINGS and _STRINGS[quote].fullmatch(text):
            return text[1:-1]
        if written.name:
            return text
        raise


def _read_literal(text: str) -> Json:
    """Return the JSON value or Python literal that the whole text is."""
    try:
        value, end = read_json(text)
    except ValueError:
        wrapped = f'{{"value": {text}}}'
        found, wrapped_end = read_object(wrapped)
        value = found.get("value")
        end = wrapped_end - len(wrapped) + len(text)
    if text[end:].strip():
        raise ValueError("there is text behind the value")
    return value


def _quote_references(text: str) -> str:
    """Return the text with quotes around the references outside strings: `[$1]` means `["$1"]`."""
    return _STRING_OR_REFERENCE.sub(_quote_reference, text)


def _quote_reference(found: re.Match[str]) -> str:
    return f'"{found[0]}"' if found["reference"] else found[0]


def _fill_parameter(
    name: str, value: Json, tool: Signature, results: Mapping[int, str]
) -> Json:
    """Return the value of a parameter with the results inserted into its strings."""
    if isinstance(value, str):
        text = insert_results(value, results)
        is_result = text != value and REFERENCE.fullmatch(value.strip())
        return _convert_result(name, text, tool) if is_result else text
    if isinstance(value, list):
        items = _build_item_tool(name, tool)
        return [_fill_parameter(name, item, items, results) for item in value]
    return _fill_strings(value, results)


def _build_item_tool(name: str, tool: Signature) -> ToolSpec:
    """Return a tool whose one parameter is an item of a list parameter."""
    schema = as_object(get_parameters(tool).get(name))
    return _build_one_parameter_tool(name, schema.get("items") or {}, tool)


def _build_one_parameter_tool(name: str, schema: Json, tool: Signature) -> ToolSpec:
    parameters: JsonObject = {"properties": {name: schema}, "required": [name]}
    return ToolSpec(tool.name, "", parameters)


def _convert_result(name: str, text: str, tool: Signature) -> Json:
    """Return a result as the value of one parameter: read as JSON where the parameter takes no
    text.
    """
    if not text:
        return text
    schema = get_parameters(tool).get(name, {})
    alone = _build_one_parameter_tool(name, schema, tool)
    read = read_plain_arguments(text, tool.name, alone, quotes_are_text=True)
    return read[name]


def _fill_strings(value: Json, results: Mapping[int, str]) -> Json:
    """Return a value with the results inserted into its strings, at any depth."""
    if isinstance(value, str):
        return insert_results(value, results)
    if isinstance(value, list):
        return [_fill_strings(item, results) for item in value]
    if isinstance(value, dict):
        return {key: _fill_strings(item, results) for key, item in value.items()}
    return value
