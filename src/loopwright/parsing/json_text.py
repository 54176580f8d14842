"""Strict JSON, and Python literals where it is none: no key twice, no NaN, bounded in depth and length."""

import json
import math
import re
from typing import Never, cast

from ..messages import Json
from .fences import read_fence

MAX_JSON_CHARS = 262_144
MAX_JSON_DEPTH = 64
MAX_LITERAL_CHARS = 16_384

_LITERAL = re.compile(
    r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[A-Za-z_]\w*+|[\[\]{}]|[^'"A-Za-z_\[\]{}]++|['"]""",
    re.S,
)
_QUOTED = re.compile(r"""\\.|["]""", re.S)
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large a number")
    return number


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse
)


def read_json(text: str, start: int = 0) -> tuple[Json, int]:
    """The JSON value that starts at `start` (RFC 8259), and where it ends.

    Raises ValueError for what is not JSON, and beyond it for a key given twice, NaN, Infinity or a number without a
    finite value, a lone surrogate, more than 64 levels, or more than 262,144 characters.
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
        below: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = [item for item in below if isinstance(item, (dict, list))]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels")


def _check_surrogates(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("a string holds half a surrogate pair") from None


def read_object(text: str, start: int = 0) -> tuple[dict[str, Json], int]:
    """The JSON object that starts at `start`, or the Python dict literal where it is no JSON, and where it ends.

    Raises ValueError, saying whether a brace or quote is never closed or what else is wrong. A literal is held to the
    same rules as JSON (strings as keys, lists, no key twice) and to 16,384 characters.
    """
    if not text.startswith("{", start):
        raise ValueError("it is not an object")
    try:
        value, end = read_json(text, start)
    except ValueError as error:
        closing = _as_json(text[start : start + MAX_LITERAL_CHARS])
        if closing is None:
            raise ValueError("a brace or a quote is never closed") from None
        written, length = closing
        try:
            value, _ = read_json(written)
        except ValueError as second:
            raise ValueError(
                _reason(error if isinstance(second, json.JSONDecodeError) else second)
            ) from None
        end = start + length
    return cast(
        "dict[str, Json]", value
    ), end  # what begins with a brace is an object or an error


def _reason(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"
    return str(error)


def _as_json(text: str) -> tuple[str, int] | None:
    """The Python literal that `text` starts with, in JSON's spelling, and its length; `None` if it never closes."""
    written: list[str] = []
    depth = 0
    for found in _LITERAL.finditer(text):
        token = found[0]
        if token in ("'", '"'):
            return None
        if token[0] in "'\"":
            token = f'"{_QUOTED.sub(_requote, token[1:-1])}"'
        elif token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
            _drop_last_comma(written)
        written.append(_JSON_WORDS.get(token, token))
        if depth == 0:
            return "".join(written), found.end()
    return None


def _drop_last_comma(written: list[str]) -> None:
    """Take away the comma that Python allows after the last item."""
    last = written[-1].strip()
    if last.endswith(",") and not (last == "," and written[-2] in ("[", "{")):
        written[-1] = last[:-1]


def _requote(found: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(found[0], found[0])


def read_json_document(text: str) -> Json:
    """The one JSON value that `text` is, or that the one code fence around it holds.

    Raises ValueError as `read_json` does, and if anything else stands beside the value.
    """
    body = text.strip()
    if body.startswith(("```", "~~~")):
        contents, end = read_fence(body)
        if body[end:].strip():
            raise ValueError("there is text after the code fence")
        body = contents.strip()
    value, end = read_json(body)
    if body[end:].strip():
        raise ValueError("there is text after the JSON value")
    return value
