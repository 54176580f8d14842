"""Text for terminals: what models and tools wrote cannot move the cursor, ring the bell, reorder a line or hide."""

import json
import math
import re
import unicodedata

from pydantic_core import to_jsonable_python

from ..messages import Json, JsonObject, canonical_json
from ..parsing.spotlighting import EMOJI, JOINING

# All controls but newline and tab (C0, DEL, C1), line and paragraph separators, bidirectional controls, surrogates,
# and what takes no place on a screen: format characters, fillers, variation selectors, tags (`Cf` and
# `Default_Ignorable_Code_Point` of Unicode 15.1). Joiners and selectors stay where an emoji or a word is written so.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    rf"|(?<![{EMOJI}#*0-9])[\ufe0e\ufe0f]|(?<![{EMOJI}{JOINING}\ufe0f])[\u200c\u200d]"
    rf"|[\u200c\u200d](?![{EMOJI}{JOINING}])|(?<=[{EMOJI}\ufe0f])\u200c"
)


def clean(text: str) -> str:
    """Return the text with what a reader cannot see escaped, as in `\\x1b` and `\\u200b`.

    That is every control character but newline and tab, and every character without width that is
    no part of how an emoji or a word is written.
    """
    return _UNSAFE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
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
    return _UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)


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
