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
MAX_MARKS = 10_000

BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"  # what ends a line for str.splitlines, hence for a reader of the text
BLANK = rf"[^\S{BREAKS}]"

_FENCES = re.compile("`{3,}+|~{3,}+")
_REST_IS_BLANK = re.compile(rf"{BLANK}*+(?:[{BREAKS}]|\Z)")
_BRACKETS = re.compile(r"[\[\]]")
_LITERAL = re.compile(
    r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[A-Za-z_]\w*+|[\[\]{}]|[^'"A-Za-z_\[\]{}]++|['"]""", re.S
)
_QUOTED = re.compile(r"""\\.|["]""", re.S)
_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


class Mark(NamedTuple):
    """A marker: its kind, where its line and its value start, and the markup that it opens and leaves open."""

    kind: str
    start: int
    value: int
    markup: str = ""


@dataclasses.dataclass(frozen=True)
class Scan:
    """The markers of a text in order; none is read from `unread` on, where a code fence starts that never closes.

    More than 10,000 markers or fences are not read either.
    """

    marks: tuple[Mark, ...]
    unread: int | None = None


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
        letters = {letter for phrase in words.values() for letter in (phrase[0].lower(), phrase[0].upper())}
        first = re.escape("".join(sorted(letters)))
        # The break before the line is part of the match, since a search for a set of characters skips the rest fastest.
        self._mark = re.compile(
            rf"[{BREAKS}]{BLANK}*+(?=[*_#{first}])(?:#{{1,6}}+{BLANK}*+)?+(?P<markup>\*{{1,3}}+|_{{1,3}}+)?"
            rf"(?:(?<=\*\*){BLANK}*+)?+"  # "** Action:**", while a single star and a blank are a bullet
            rf"(?:{kinds}){BLANK}*+(?:#?\d{{1,4}}+)?+{BLANK}*+"
            rf"(?(markup)[*_]{{0,3}}+){BLANK}*+[:\uff1a](?(markup)[*_]{{0,3}}+)",
            re.IGNORECASE,
        )

    def scan(self, text: str) -> Scan:
        """Every marker of `text` that is no prose and not inside a code fence."""
        fences, unread = code_fences(text)
        marks: list[Mark] = []
        upcoming = 0
        for found in self._mark.finditer("\n" + text):
            start = found.start()
            while upcoming < len(fences) and fences[upcoming][1] <= start:
                upcoming += 1
            if unread is not None and unread <= start:
                break
            if upcoming < len(fences) and fences[upcoming][0] < start:
                continue
            if len(marks) == MAX_MARKS:
                return Scan(tuple(marks), start)
            marks.append(_mark_of(found))
        return Scan(tuple(marks), unread)

    def quote(self, text: str) -> str:
        """`text` with each line that starts like a marker quoted (`> Action: …`), so that none is read as one."""
        return self._mark.sub(lambda found: f"{found[0][0]}> {found[0][1:]}", "\n" + text)[1:]


def _mark_of(found: re.Match[str]) -> Mark:
    """The marker of a match in the text with a line break put before it, so that places there are one too high."""
    kind, markup = found.lastgroup or "", found["markup"] or ""
    closed = not markup or markup in found[0][found.end(kind) - found.start() :]
    return Mark(kind, found.start(), found.end() - 1, "" if closed else markup)


def code_fences(text: str) -> tuple[list[tuple[int, int]], int | None]:
    """Where the code fences of a text start and end, and where one starts that never closes (or the 10,000th).

    A fence is a run of three or more backticks or tildes, anywhere in a line. It closes with as long a run of the same
    kind, on the same line or at the end of a later one (CommonMark 0.31, section 4.5, and inline code).
    """
    fences: list[tuple[int, int]] = []
    if "```" not in text and "~~~" not in text:
        return fences, None
    runs = list(itertools.islice(_FENCES.finditer(text), MAX_MARKS + 1))
    opening: re.Match[str] | None = None
    line_end = -1
    for run in runs[:MAX_MARKS]:
        if opening is None:
            opening = run
            line_end = line_end if run.start() < line_end else _line_end(text, run.start())
        elif _closes(opening, run, line_end):
            fences.append((opening.start(), run.end()))
            opening = None
    if opening is None and len(runs) > MAX_MARKS:
        opening = runs[-1]
    return fences, opening.start() if opening else None


def _closes(opening: re.Match[str], run: re.Match[str], line_end: int) -> bool:
    same_kind = run[0].startswith(opening[0])
    return same_kind and (run.start() < line_end or _REST_IS_BLANK.match(run.string, run.end()) is not None)


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def read_fence(text: str, start: int = 0) -> tuple[str, int]:
    """The contents of the code fence that starts at `start`, and where it ends; ValueError if it does not close."""
    runs = itertools.islice(_FENCES.finditer(text, start), MAX_MARKS)
    opening = next(runs, None)
    if opening is None or opening.start() != start:
        raise ValueError("no code fence starts here")
    line_end = _line_end(text, start)
    for run in runs:
        if _closes(opening, run, line_end):
            return _without_language(text[opening.end() : run.start()], run.start() < line_end), run.end()
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
