"""Text for people's screens: what models and tools wrote cannot move the cursor, ring the bell or reorder a line."""

import json
import math
import re
import unicodedata

from pydantic_core import to_jsonable_python

from ..messages import Json, JsonObject, canonical_json

# All controls but newline and tab (C0, DEL, C1), line and paragraph separators, marks that reorder a line, half pairs.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """The text with every control character but newline and tab written out, as in `\\x1b`."""
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """The text, cleaned, on one line: every stretch of white space is one space."""
    return " ".join(clean(text).split())


def cut(text: str, width: int) -> str:
    """At most `width` columns of a line, with an ellipsis where something is left out."""
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
    """How many columns of a terminal a text takes: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def exact_call(name: str, arguments: JsonObject) -> str:
    """A tool call as a person is asked about it, word for word on one line, fit for a terminal."""
    return f"{one_line(name)}({clean(canonical_json(dict(arguments)).decode())})"


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON for programs, in ASCII, so that no terminal minds what is in it; NaN and the infinities are null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def readable_json(value: object) -> str:
    """JSON for people and programs: its texts as they are, but for what `clean` would write out."""
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
