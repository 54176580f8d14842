"""Calls as a plan writes them: where one closes, which results it refers to, and the arguments that it means."""

import re
from collections.abc import Collection, Iterator, Mapping

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
from ..json_text import read_json, read_object

NEAR = 20  # characters before a `$5` that may say that it is an amount

# After `$`: no letter (`$5M`), no decimals (`$1.50`, `$1,000`), no word of magnitude. `${1}` and `#E1` are never money.
_REFERENCE = re.compile(
    r"\$\{(\d{1,4})\}|#E(\d{1,4})(?!\w)"
    r"|(?<![\w$\\])\$(?P<plain>\d{1,4}+)(?!\w|\.\d|,\d{3}(?!\d)|\s(?:thousand|million|billion|trillion|dollars?)\b)",
    re.IGNORECASE,
)
_MONEY_BEFORE = re.compile(
    r"\b(?:under|below|above|than|at least|at most|up to|worth|costs?|pays?|spends?)\s*\Z",
    re.IGNORECASE,
)
_SAID = re.compile(
    r"\b(?:step|task)[ _]?#?(\d{1,4})\b", re.IGNORECASE
)  # "the result of step 1"
_PLACEHOLDER = re.compile(  # `{step1}`, `{{E1}}`, `$step1`, `<result of step 1>`: meant as a reference, and none here
    r"\{[ \t]*+(?:step|task|result|output|E)[ _]?(\d{1,4})[^{}\n]{0,20}\}|\$\{?(?:step|task|E)_?(\d{1,4})\b\}?"
    r"|\b(?:results?|outputs?|answers?|values?) (?:of|from) (?:step|task) ?#?(\d{1,4})\b",
    re.IGNORECASE,
)
_MARK = re.compile(r"[()\[\]{},:=]\s*+")
# A quote closes a string only where something may follow a value: 'Arthur's Magazine' is one string.
_STRINGS = {
    quote: re.compile(
        rf"""{quote}(?:[^{quote}\\]|\\.|{quote}(?!\s*+(?:[,)\]}}:+*/-]|\Z)))*+{quote}""",
        re.DOTALL,
    )
    for quote in ("'", '"')
}
_BARE = re.compile(
    rf"""\\.|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|(?P<reference>{_REFERENCE.pattern})""",
    re.DOTALL | re.IGNORECASE,
)
_NAMED = re.compile(r"(?P<name>[A-Za-z_]\w*+)\s*+=(?!=)\s*+(?P<value>.*)", re.DOTALL)


def find_references(
    text: str, own: int, known: Collection[int], *, prose: bool
) -> tuple[int, ...]:
    """The ids of the results that the text of step `own` refers to, in order: `$1`, `${1}`, `#E1`.

    `$5` can be an amount of money. In a call it is a reference if there is a step 5, and if there is none (so that it
    is dangling) where it is a value of its own. In prose it is one if it names an earlier step, unless a word such as
    "under" stands before it. What is in doubt is a reference if there are others beside it.
    """
    found: dict[int, None] = {}
    doubtful: list[int] = []
    for match in _REFERENCE.finditer(text):
        named = int(match[1] or match[2] or match["plain"])
        if match["plain"] is None:
            found[named] = None
        elif prose and _MONEY_BEFORE.search(_before(match)):
            continue
        elif (named in known and (named < own or not prose)) or (
            not prose and _is_whole_value(match)
        ):
            found[named] = None
        else:
            doubtful.append(named)
    return tuple(dict.fromkeys([*found, *(doubtful if found else ())]))


def find_step_mentions(text: str, own: int, known: Collection[int]) -> tuple[int, ...]:
    """The earlier steps that a text names in words: `step 1`."""
    return tuple(
        one
        for one in dict.fromkeys(map(int, _SAID.findall(text)))
        if one in known and one < own
    )


def find_placeholder(text: str, own: int) -> str:
    """What looks like a reference to a step before `own` and would reach the tool as it is, or an empty text."""
    numbered = (
        (found[0], int(found[1] or found[2] or found[3]))
        for found in _PLACEHOLDER.finditer(text)
    )
    return next((written for written, number in numbered if number < own), "")


def _before(match: re.Match[str]) -> str:
    return match.string[max(match.start() - NEAR, 0) : match.start()]


def _is_whole_value(match: re.Match[str]) -> bool:
    before, after = (
        _before(match).rstrip()[-1:],
        match.string[match.end() : match.end() + NEAR].lstrip()[:1],
    )
    return (not before or before in "\"'([{,=+*/-") and (
        not after or after in "\"')]},+*/-"
    )


def insert_results(text: str, results: Mapping[int, str]) -> str:
    """The text with each reference to one of `results` replaced, in one pass: what is put in is not looked at again."""

    def replaced(match: re.Match[str]) -> str:
        return results.get(int(match[1] or match[2] or match["plain"]), match[0])

    return _REFERENCE.sub(replaced, text)


def find_call_end(text: str, opening: int) -> int | None:
    """Where the round bracket at `opening` closes; brackets in strings mean nothing. `None` if it does not close."""
    depth = 0
    for position, mark in _marks(text, opening):
        depth += (mark == "(") - (mark == ")")
        if depth == 0:
            return position
    return None


def _marks(text: str, start: int) -> Iterator[tuple[int, str]]:
    """The brackets, commas, colons and equals signs outside strings. A string starts right behind one of those."""
    unclosed = ""
    while found := _MARK.search(text, start):
        yield found.start(), found[0][0]
        start = found.end()
        quote = text[start : start + 1]
        if quote in _STRINGS and quote not in unclosed:
            string = _STRINGS[quote].match(text, start)
            if string is None:
                unclosed += quote  # there is no other one behind it either, so that nobody looks twice
            else:
                start = string.end()


def split_values(text: str) -> list[str]:
    """The values of a call, parted by the commas that stand in no bracket and no string."""
    wrapped = f"({text})"
    values: list[str] = []
    depth, begin = 0, 1
    for position, mark in _marks(wrapped, 0):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and depth == 1:
            values.append(wrapped[begin:position].strip())
            begin = position + 1
    return [*values, wrapped[begin:-1].strip()]


def read_call_arguments(
    text: str, tool: Signature, results: Mapping[int, str]
) -> JsonObject:
    """The arguments that a call in a plan means, with the results that it refers to put in.

    Args:
        text: what stands between the brackets: a JSON object, values in the order of the tool's parameters (JSON or
            Python literals), `name=value` pairs, or plain text for a tool with one parameter.
        tool: name and schema of the tool.
        results: texts by step id; they are inserted as text into strings, and a value that is a reference and nothing
            else becomes a number, list or object where the parameter takes no text.

    Raises ValueError naming the tool and its parameters.
    """
    body = text.strip()
    if body.startswith(("{", "```", "~~~")):
        arguments, rest = read_arguments(_quote_bare(body), tool.name, tool)
        if rest.strip():
            raise ValueError(
                f"There is text behind the object of {tool.name}: {rest.strip()[:40]!r}."
            )
    else:
        arguments = _by_place(body, tool)
    missing = [name for name in get_required(tool) if name not in arguments]
    if missing:
        raise ValueError(
            f"{tool.name} needs {', '.join(missing)}. Its parameters: {describe_parameters(tool)}."
        )
    return {
        name: _filled(name, value, tool, results) for name, value in arguments.items()
    }


def _by_place(body: str, tool: Signature) -> JsonObject:
    """The arguments that values in order mean; plain text where they are none, or where the tool takes one value."""
    values = split_values(body)
    alone = len(values) == 1 and len(get_required(tool)) == 1
    places, known = (
        get_required(tool) if alone else list(get_parameters(tool)),
        get_parameters(tool),
    )
    named = [_NAMED.fullmatch(value) for value in values[: len(places) + 1]]
    names = [
        match["name"] if match and match["name"] in known else None for match in named
    ]
    written = [
        m["value"] if m and name else value
        for m, name, value in zip(named, names, values, strict=False)
    ]
    takes_one = (
        len(known) == 1
        and names[0] is None
        and not written[0].startswith(("'", '"', "["))
    )
    try:
        read = [_literal(text, name) for text, name in zip(written, names, strict=True)]
    except ValueError:
        read = []
    if takes_one or not read or body.casefold() in EMPTY_INPUTS:
        return read_plain_arguments(body, tool.name, tool)
    arguments: dict[str, Json] = {}
    for name, text, value in zip(names, written, read, strict=True):
        place = name or next((free for free in places if free not in arguments), None)
        if place is None or place in arguments:
            raise ValueError(
                f"{tool.name} takes {len(places)} value(s), each once, and the call gives {len(values)}. "
                f"Its parameters: {describe_parameters(tool)}."
            )
        arguments[place] = (
            text
            if isinstance(value, (int, float)) and _is_text(known[place])
            else value
        )
    return arguments


def _is_text(schema: Json) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string"


def _literal(text: str, name: str | None) -> Json:
    """A value of a call; a reference, and text that has a name, as they stand. Raises ValueError for other text."""
    if _REFERENCE.fullmatch(text):
        return text
    try:
        return _value(_quote_bare(text))
    except ValueError:
        if len(text) > 1 and text[0] in "'\"" and _STRINGS[text[0]].fullmatch(text):
            return text[1:-1]
        if name:
            return text
        raise


def _value(text: str) -> Json:
    """The JSON value or Python literal that the whole text is."""
    try:
        value, end = read_json(text)
    except ValueError:
        whole = f'{{"value": {text}}}'
        found, end = read_object(whole)
        value, end = found.get("value"), end - len(whole) + len(text)
    if text[end:].strip():
        raise ValueError("there is text behind the value")
    return value


def _quote_bare(text: str) -> str:
    """The text with quotes around the references that stand outside strings: `[$1]` means `["$1"]`."""
    return _BARE.sub(
        lambda found: f'"{found[0]}"' if found["reference"] else found[0], text
    )


def _typed(name: str, text: str, tool: Signature) -> Json:
    """A result as the value of one parameter: read as JSON where the parameter takes no text."""
    if not text:
        return text
    schema: JsonObject = {
        "properties": {name: get_parameters(tool).get(name, {})},
        "required": [name],
    }
    return read_plain_arguments(
        text, tool.name, ToolSpec(tool.name, "", schema), quotes_are_text=True
    )[name]


def _filled(
    name: str, value: Json, tool: Signature, results: Mapping[int, str]
) -> Json:
    """A value with the results put into its strings."""
    if isinstance(value, str):
        text = insert_results(value, results)
        alone = text != value and _REFERENCE.fullmatch(value.strip())
        return _typed(name, text, tool) if alone else text
    if isinstance(value, list):
        schema = get_parameters(tool).get(name)
        items = schema.get("items") if isinstance(schema, dict) else None
        one = ToolSpec(
            tool.name, "", {"properties": {name: items or {}}, "required": [name]}
        )
        return [_filled(name, item, one, results) for item in value]
    return _within(value, results)


def _within(value: Json, results: Mapping[int, str]) -> Json:
    if isinstance(value, str):
        return insert_results(value, results)
    if isinstance(value, list):
        return [_within(item, results) for item in value]
    if isinstance(value, dict):
        return {key: _within(item, results) for key, item in value.items()}
    return value
