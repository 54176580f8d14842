"""Pure readers of model text: markers at line starts, code fences, brackets and strict JSON, each in one linear pass.

The regular expressions here are made of single characters, fixed words and possessive quantifiers (`*+`), which never
give back what they took: reading takes time linear in the text, whatever the text.
"""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping
from typing import NamedTuple, Never

from .messages import Json

MAX_JSON_CHARS = 262_144
MAX_JSON_DEPTH = 64
MAX_LITERAL_CHARS = 16_384
MAX_BRACKETS = 10_000

BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"  # what ends a line for str.splitlines, hence for a reader of the text
BLANK = rf"[^\S{BREAKS}]"
LINE_START = rf"(?:\A|(?<=[{BREAKS}]))"
FENCE = r"(?:`{3,}+|~{3,}+)"
CLOSING = rf"(?P<closing>{FENCE}(?={BLANK}*+(?:[{BREAKS}]|\Z)))"  # a run at the end of its line
OPENING = rf"(?P<opening>{FENCE})"

_FENCES = re.compile(rf"{CLOSING}|{OPENING}")
_BRACKETS = re.compile(r"[\[\]]")
_LITERAL = re.compile(
    r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[A-Za-z_]\w*+|[\[\]{}]|[^'"A-Za-z_\[\]{}]++|['"]""", re.S
)
_QUOTED = re.compile(r"""\\.|["]""", re.S)
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


class Mark(NamedTuple):
    """A marker at a line start: its kind, where its line and its value start, the markup that it opens and leaves open."""

    kind: str
    start: int
    value: int
    markup: str = ""


@dataclasses.dataclass(frozen=True)
class Scan:
    """The markers of a text in order, and where a code fence starts that is never closed."""

    marks: tuple[Mark, ...]
    open_fence: int | None = None


class Markers:
    """Finds a protocol's markers, such as `Action:` or `**Action 3:**`, in a text.

    Args:
        words: kind of marker → its words: `{"input": "action input"}`.

    A marker stands at the start of a line and outside code fences, in any case, bold or as a heading, with a number
    behind it or not, its words parted by blanks, hyphens, underscores or nothing. In the middle of a line it is prose.
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        longest_first = sorted(words.items(), key=lambda item: -len(item[1].split()))
        gap = rf"(?:{BLANK}|[_-])*+"
        kinds = "|".join(f"(?P<{kind}>{gap.join(map(re.escape, phrase.split()))})" for kind, phrase in longest_first)
        mark = (
            rf"{LINE_START}{BLANK}*+(?:#{{1,6}}+{BLANK}*+)?+(?P<markup>\*{{1,3}}+|_{{1,3}}+)?"
            rf"(?:(?<=\*\*){BLANK}*+)?+"  # "** Action:**"; a single star and a blank are a bullet, not a marker
            rf"(?:{kinds}){BLANK}*+(?:\#?\d{{1,4}}+)?+{BLANK}*+(?(markup)[*_]{{0,3}}+){BLANK}*+[:\uff1a](?(markup)[*_]{{0,3}}+)"
        )
        self._mark = re.compile(mark, re.IGNORECASE)
        self._token = re.compile(rf"{_FENCES.pattern}|{mark}", re.IGNORECASE)

    def scan(self, text: str) -> Scan:
        """Every marker of `text` that is no prose and not inside a code fence."""
        marks: list[Mark] = []
        fence, opened, line_end = "", 0, -1
        for found in self._token.finditer(text):
            kind = found.lastgroup or ""
            if kind not in ("closing", "opening"):
                if not fence:
                    marks.append(_mark_of(found, kind))
            elif not fence:
                fence, opened = found[0], found.start()
                if line_end < opened:
                    line_end = _line_end(text, opened)
            elif found[0].startswith(fence) and (kind == "closing" or found.start() < line_end):
                fence = ""
        return Scan(tuple(marks), opened if fence else None)

    def quote(self, text: str) -> str:
        """`text` with every line that starts like a marker quoted (`> Action: …`), so that no reader takes it for one."""
        return self._mark.sub(_quote, text)


def _mark_of(found: re.Match[str], kind: str) -> Mark:
    markup = found["markup"] or ""
    closed = not markup or markup in found[0][found.end(kind) - found.start() :]
    return Mark(kind, found.start(), found.end(), "" if closed else markup)


def _quote(found: re.Match[str]) -> str:
    return f"> {found[0]}"


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def read_fence(text: str, start: int = 0) -> tuple[str, int]:
    """The contents of the code fence that starts at `start`, and where it ends; raises ValueError if it does not close."""
    runs = _FENCES.finditer(text, start)
    opening = next(runs, None)
    if opening is None or opening.start() != start:
        raise ValueError("no code fence starts here")
    line_end = _line_end(text, start)
    for run in runs:
        inline = run.start() < line_end
        if run[0].startswith(opening[0]) and (inline or run.lastgroup == "closing"):
            return _without_language(text[opening.end() : run.start()], inline), run.end()
    raise ValueError("a code fence is never closed")


def _without_language(contents: str, inline: bool) -> str:
    first, _, rest = contents.partition(" " if inline else "\n")
    language = first.strip()
    if inline:
        return rest if language.casefold() == "json" else contents
    is_name = not language or all(c.isalnum() or c in "_+.#-" for c in language)
    return rest if is_name else contents


def find_close(text: str, start: int) -> int | None:
    """Where the `[` at `start` closes, counting the brackets in between; `None` if it does not.

    Quotes mean nothing: what stands in such brackets is plain text, in which an apostrophe is an apostrophe.
    """
    depth = 0
    for found in itertools.islice(_BRACKETS.finditer(text, start), MAX_BRACKETS):
        depth += 1 if found[0] == "[" else -1
        if depth == 0:
            return found.start()
    return None


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


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)


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
    for _ in range(MAX_JSON_DEPTH + 1):
        below: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
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
            raise ValueError(_reason(error if isinstance(second, json.JSONDecodeError) else second)) from None
        end = start + length
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value, end


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


def strict_json(text: str) -> Json:
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
