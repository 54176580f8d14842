"""Strict JSON, and Python literals accepted as JSON: no key twice, no NaN, bounded in depth
and length.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Never, cast

from .._internal.regex import compile_late
from ..messages import Json
from .fences import FENCE_STARTS, read_fence

MAX_JSON_CHARS = 262_144
MAX_JSON_DEPTH = 64
MAX_LITERAL_CHARS = 16_384

_LITERAL_TOKEN = compile_late(
    r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[A-Za-z_]\w*+|[\[\]{}]|[^'"A-Za-z_\[\]{}]++|['"]""",
    re.S,
)
_QUOTE_OR_ESCAPE = compile_late(r"""\\.|["]""", re.S)
_REQUOTED = {"\\'": "'", '"': '\\"'}
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


def _build_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _read_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large a number")
    return number


def _refuse_constant(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_build_object,
    parse_float=_read_float,
    parse_constant=_refuse_constant,
)


def read_json(text: str, start: int = 0) -> tuple[Json, int]:
    """Return the JSON value that starts at `start` (RFC 8259), and where it ends.

    Raises ValueError for what is not JSON, and beyond it for a key given twice, NaN, Infinity or a
    number without a finite value, a lone surrogate, more than 64 levels, or more than 262,144
    characters.
    """
    window = text[start : start + MAX_JSON_CHARS]
    try:
        value, end = _DECODER.raw_decode(window)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels") from None
    _check_depth(value)
    if "\\u" in window or not window.isascii():
        _check_surrogates(value)
    return value, start + end


def _check_depth(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = _collect_containers(level)
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels")


def _collect_containers(level: list[Json]) -> list[Json]:
    """Return the objects and lists directly inside those of a level."""
    below: list[Json] = []
    for item in level:
        if isinstance(item, dict):
            below.extend(item.values())
        elif isinstance(item, list):
            below.extend(item)
    return [item for item in below if isinstance(item, (dict, list))]


def _check_surrogates(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a string holds half a surrogate pair") from None


def read_object(text: str, start: int = 0) -> tuple[dict[str, Json], int]:
    """Return the JSON object that starts at `start`, or an equivalent Python dict literal, and
    where it ends.

    A literal follows the same rules as JSON (strings as keys, lists, no key twice) and has at most
    16,384 characters. Raises ValueError, saying whether a brace or quote is never closed or what
    else is wrong.
    """
    if not text.startswith("{", start):
        raise ValueError("it is not an object")
    try:
        value, end = read_json(text, start)
    except ValueError as error:
        value, length = _read_literal(text[start : start + MAX_LITERAL_CHARS], error)
        end = start + length
    # what begins with a brace is an object or an error
    return cast("dict[str, Json]", value), end


def _read_literal(text: str, json_error: ValueError) -> tuple[Json, int]:
    """Return the value of the Python literal that a text starts with, and its length."""
    converted = _convert_literal(text)
    if converted is None:
        raise ValueError("a brace or a quote is never closed") from None
    written, length = converted
    try:
        value, _ = read_json(written)
    except json.JSONDecodeError:
        # positions in the converted text mean nothing to the writer
        raise ValueError(_explain(json_error)) from None
    except ValueError as error:
        raise ValueError(_explain(error)) from None
    return value, length


def _explain(error: ValueError) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    return f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"


def _convert_literal(text: str) -> tuple[str, int] | None:
    """Return the Python literal that a text starts with as JSON, and its length; `None` if it never
    closes.
    """
    written: list[str] = []
    depth = 0
    for found in _LITERAL_TOKEN.finditer(text):
        token = found[0]
        if token in ("'", '"'):
            return None
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
            _drop_trailing_comma(written)
        written.append(_convert_token(token))
        if depth == 0:
            return "".join(written), found.end()
    return None


def _convert_token(token: str) -> str:
    if token[0] in "'\"":
        contents = _QUOTE_OR_ESCAPE.sub(_requote, token[1:-1])
        return f'"{contents}"'
    return _JSON_WORDS.get(token, token)


def _drop_trailing_comma(written: list[str]) -> None:
    """Remove the comma that Python allows after the last item."""
    last = written[-1].strip()
    if not last.endswith(","):
        return
    has_no_item = last == "," and written[-2] in ("[", "{")
    if not has_no_item:
        written[-1] = last[:-1]


def _requote(found: re.Match[str]) -> str:
    return _REQUOTED.get(found[0], found[0])


def as_object(value: Json) -> Mapping[str, Json]:
    """Return a value that is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return a value that is a list, else an empty list."""
    return value if isinstance(value, list) else []


def read_json_document(text: str) -> Json:
    """Return the one JSON value that a text is, or that the one code fence around it holds.

    Raises ValueError as `read_json` does, and if anything else stands beside the value.
    """
    body = text.strip()
    if body.startswith(FENCE_STARTS):
        contents, end = read_fence(body)
        if body[end:].strip():
            raise ValueError("there is text after the code fence")
        body = contents.strip()
    value, end = read_json(body)
    if body[end:].strip():
        raise ValueError("there is text after the JSON value")
    return value
