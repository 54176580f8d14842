"""Text for terminals: what models and tools wrote cannot move the cursor, ring the bell or reorder a line."""

import json
import math
import re
import unicodedata

from pydantic_core import to_jsonable_python

from ..messages import Json, JsonObject, canonical_json

# All controls but newline and tab (C0, DEL, C1), line and paragraph separators, bidirectional controls, surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Return the text with every control character but newline and tab escaped, as in `\\x1b`."""
    return _UNSAFE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """Return the cleaned text on one line: every run of white space becomes one space."""
    return " ".join(clean(text).split())


def cut(text: str, width: int) -> str:
    """Return at most `width` columns of a line, with an ellipsis where it was cut."""
    if len(text) * 2 <= width or columns(text) <= width:
        return text
    kept: list[str] = []
    room = width - 1
    for character in text:
        room -= columns(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def columns(text: str) -> int:
    """Return the columns of a terminal that a text takes: East Asian wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def exact_call(name: str, arguments: JsonObject) -> str:
    """Return the tool call that a person is asked about, complete, on one line, safe for a terminal."""
    return f"{one_line(name)}({clean(canonical_json(dict(arguments)).decode())})"


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return JSON for programs, in ASCII, so that it is safe for a terminal; NaN and the infinities are null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def readable_json(value: object) -> str:
    """Return JSON for people and programs: not escaped but for what `clean` would escape."""
    text = json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(value: object) -> Json:
    try:
        return _finite(to_jsonable_python(value, by_alias=False, fallback=repr))
    except UnicodeEncodeError:  # half a surrogate pair in a name
        return _finite(json.loads(json.dumps(value, default=repr)))


def _finite(value: Json) -> Json:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _finite(inner) for name, inner in value.items()}
        case list():
            return [_finite(inner) for inner in value]
        case _:
            return value
