"""`Redactor`, which takes secrets out of texts and JSON values, and `StreamRedactor`, which does so piece by piece."""

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import cast

from ...errors import ConfigError
from ...messages import Json, JsonObject
from .encodings import spellings
from .heuristics import LONGEST_NAME, REDACTED, is_quoted_secret, kind_of_name
from .patterns import GAPS, LONGEST, Found
from .prefilter import hinted, hinted_at_end

CUT_MARGIN = (
    8192  # characters behind a cut that must be searched too: no secret is longer
)
MAX_LEARNED = 100  # values; each has to be looked for in every text from then on
MIN_SECRET_LENGTH = 6  # characters; a shorter value is a part of ordinary words
_NO_SECRET = 5  # characters; nothing shorter has the shape of a secret
_CONTEXT = 64  # characters that the patterns look back at, at most
_ORDINARY = re.compile("[A-Za-z0-9]+")
_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "set-cookie"))


@functools.cache
def _gap() -> "re.Pattern[str]":
    return re.compile(f"[{GAPS}]")


class Redactor:
    """Takes secrets out of what a run is told, and puts `[redacted]` in their place.

    Found are the values given, in the spellings they take inside JSON (as Python, JavaScript, PHP, Go, Java and .NET
    write it, and that inside JSON again), addresses, HTML, base64 and what Python shows (`repr`, `ascii`, bytes), and
    what has the shape of a secret: known token prefixes, values named `password`, `api_key` and the like, headers,
    addresses with a password, private keys. What is redacted already stays as it is. Time is linear in the text.

    Args:
        secrets: values that must not be told, of 6 characters or more each.
        patterns: whether to look for texts that look like secrets too.

    Raises `ConfigError` for a value that is too short, or is a part of the mark.
    """

    def __init__(self, secrets: Iterable[str] = (), *, patterns: bool = True) -> None:
        if isinstance(secrets, str):
            raise ConfigError("secrets: give a list of texts, not one text")
        self._secrets = tuple(
            _checked(place, secret) for place, secret in enumerate(secrets)
        )
        roots = {
            s: _root(secret, s)
            for secret in self._secrets
            for s in spellings(secret)
            if s not in REDACTED
        }
        self._spellings = sorted(roots, key=lambda s: (-len(s), s))
        self._by_root: defaultdict[str, list[str]] = defaultdict(list)
        for spelling in self._spellings:
            self._by_root[roots[spelling]].append(spelling)
        self._spaced = [
            spelling for spelling in self._spellings if _gap().search(spelling)
        ]
        self._by_shape = patterns
        self._learned = 0
        self.longest = max(
            [LONGEST, *(len(spelling) + 1 for spelling in self._spellings)]
        )
        """Characters: nothing that is found is longer."""

    def __repr__(self) -> str:
        return f"Redactor(<{len(self._secrets)} secrets>, patterns={self._by_shape})"

    def with_secrets(self, *secrets: str) -> "Redactor":
        """The same, with more values that must not be told."""
        more = Redactor((*self._secrets, *secrets), patterns=self._by_shape)
        more._learned = self._learned
        return more

    def merge(self, other: "Redactor") -> "Redactor":
        """The same, with the values that another one must not tell."""
        return self.with_new_secrets(other._secrets)

    def with_new_secrets(self, *several: Iterable[str]) -> "Redactor":
        """The same, with the values of these that it does not know yet; itself if it knows all."""
        more = dict.fromkeys(
            secret
            for secrets in several
            for secret in secrets
            if secret not in self._secrets
        )
        return self.with_secrets(*more) if more else self

    def with_secrets_found_in(self, *values: Json | JsonObject) -> "Redactor":
        """The same, with the secrets that it finds in these: elsewhere they may come without what gives them away."""
        new = [
            secret
            for secret in self.find_secrets(*values)
            if secret not in self._secrets
        ]
        more = self.with_new_secrets(new[: MAX_LEARNED - self._learned])
        more._learned += len(more._secrets) - len(self._secrets)
        return more

    def find_secrets(self, *values: Json | JsonObject) -> tuple[str, ...]:
        """The secrets that it finds in these, each once, as far as they are long enough to be told from words."""
        found = dict.fromkeys(
            secret for value in values for secret in self._found_in(value, None)
        )
        return tuple(
            s
            for s in found
            if len(s) >= MIN_SECRET_LENGTH and REDACTED not in s and s not in REDACTED
        )

    def redact_text(self, text: str) -> str:
        """A text without secrets; the same object if there are none."""
        if len(text) < _NO_SECRET:
            return text
        found = self.found(text, 0)
        if found:
            found = [match for match in found if match.start < match.stop]
        return without(text, found, 0, len(text)) if found else text

    def redact_value(self, value: Json | JsonObject) -> Json:
        """A JSON value without secrets, in its texts, names of fields and fields that are named like a secret.

        What holds no secret is the same object as before. Nesting that Python cannot follow becomes the mark, and so
        does a number that it does not write out.
        """
        texts: list[str] = []
        try:
            if self._reads_plain(value, texts) and not self.found("\n".join(texts), 0):
                return cast("Json", value)
            return self._value(value, None)
        except RecursionError:
            return REDACTED

    def open_stream(self) -> "StreamRedactor":
        """For a text that comes in pieces."""
        return StreamRedactor(self)

    def found(self, text: str, at: int) -> list[Found]:
        """Everything that matches from `at` on, secret or not, kind by kind."""
        found: list[Found] = []
        for root, spelled in self._by_root.items():
            if root in text:
                found += (
                    match
                    for spelling in spelled
                    for match in _occurrences(spelling, text, at)
                )
        if self._by_shape:
            for shape in hinted(text):
                found += shape.matches(text, at)
        return found

    def open_from(self, text: str, at: int) -> int:
        """Where from `at` on the first thing begins that more text could make a secret of, over the next space."""
        first = len(text)
        for shape in hinted_at_end(text) if self._by_shape else ():
            found = shape.opening.search(text, max(at, len(text) - LONGEST))
            first = min(first, found.start()) if found else first
        for spelling in self._spaced:
            first = min(first, _begun(spelling, text, at))
        return first

    def _reads_plain(self, value: object, texts: list[str]) -> bool:
        """Whether a value is plain JSON without the name of a secret; all that can hold one is added to `texts`."""
        kind = type(value)
        if kind is str:
            texts.append(cast("str", value))
        elif kind is dict:
            return self._reads_plain_fields(cast("dict[str, object]", value), texts)
        elif kind is list:
            return all(
                self._reads_plain(inner, texts) for inner in cast("list[object]", value)
            )
        elif kind is int or kind is float:
            texts.append(_written(cast("float", value)))
            return texts[-1] != REDACTED
        else:
            return value is None or kind is bool
        return True

    def _reads_plain_fields(self, fields: dict[str, object], texts: list[str]) -> bool:
        for name, value in fields.items():
            texts.append(name)
            if (self._by_shape and _asks_for_a_look(name)) or not self._reads_plain(
                value, texts
            ):
                return False
        return True

    def _value(self, value: Json | JsonObject, name: str | None) -> Json:
        if isinstance(value, str):
            return (
                self._named(name, value)
                if name is not None and self._by_shape
                else self.redact_text(value)
            )
        if isinstance(value, Mapping):
            return self._fields(value)
        if isinstance(value, list):
            changed, kept = False, list[Json]()
            for item in value:
                new = self._value(item, name)
                changed = changed or new is not item
                kept.append(new)
            return kept if changed else value
        if isinstance(value, bool) or value is None:
            return value
        return self._number(value, name)

    def _named(self, name: str, value: str) -> str:
        kind = kind_of_name(name)
        if kind is not None and is_quoted_secret(kind, value):
            return REDACTED
        if name.lower() in _HEADERS:
            line = f"{name}: {value}"
            told = self.redact_text(line)
            return value if told is line else told[len(name) + 2 :]
        return self.redact_text(value)

    def _fields(self, fields: Mapping[str, Json]) -> Json:
        changed, kept = False, dict[str, Json]()
        for name, value in fields.items():
            new_name, new = self.redact_text(name), self._value(value, name)
            changed = changed or new is not value or new_name is not name
            kept[new_name] = new
        return kept if changed else cast("Json", fields)

    def _found_in(self, value: Json | JsonObject, name: str | None) -> Iterator[str]:
        """The secrets in a value, as they stand there."""
        if isinstance(value, str):
            if name is not None and self._named(name, value) == REDACTED:
                yield value
            line = (
                f"{name}: {value}"
                if name is not None and name.lower() in _HEADERS
                else value
            )
            yield from (
                line[match.start : match.stop]
                for match in self.found(line, 0)
                if match.start < match.stop
            )
        elif isinstance(value, Mapping):
            for field, inner in value.items():
                yield from self._found_in(field, None)
                yield from self._found_in(inner, field)
        elif isinstance(value, list):
            for item in value:
                yield from self._found_in(item, name)
        elif self._value(value, name) is not value:
            yield _written(cast("float", value))

    def _number(self, number: float, name: str | None) -> Json:
        written = _written(number)
        secret = (
            self._by_shape
            and name is not None
            and len(written) > 3
            and kind_of_name(name) in {"password", "pwd"}
        )
        return (
            REDACTED
            if secret or written == REDACTED or written in self._spellings
            else number
        )


class StreamRedactor:
    """Takes the secrets out of a text that comes in pieces.

    What it gives is, put together, what `Redactor.redact_text` makes of the whole text. The last word is held back, and
    whatever could yet become a secret: a name that waits for its value, a key that has not ended. That is some kB at
    most; only registered values that overlap over and over hold more, and become marks at once.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._text = ""  # what was let go lately, for what looks back, and what is held
        self._done = 0  # how much of `_text` was let go
        self._enough = (
            0  # length of `_text` before which another look would tell nothing new
        )

    def feed(self, piece: str) -> str:
        """What may be shown by now."""
        self._text += piece
        too_long = len(self._text) - self._done > 3 * self._redactor.longest
        if len(self._text) < self._enough or not (too_long or _gap().search(piece)):
            return ""
        return self._let_go(self._text, last=False)

    def end(self) -> str:
        """The rest; the stream is new after it."""
        rest = self._let_go(self._text, last=True)
        self._text, self._done, self._enough = "", 0, 0
        return rest

    def _let_go(self, text: str, *, last: bool) -> str:
        done = self._done
        found = self._redactor.found(text, done)
        cut = len(text) if last else self._cut(text, found)
        if len(text) - cut > 4 * self._redactor.longest:
            cut, shown = len(text) - self._redactor.longest, REDACTED
        else:
            secrets = [m for m in found if m.start < m.stop <= cut]
            shown = without(text, secrets, done, cut) if secrets else text[done:cut]
        begin = max(0, cut - _CONTEXT)
        self._text, self._done = text[begin:], cut - begin
        held = len(text) - cut
        self._enough = (
            len(self._text) + held // 8
        )  # so that a long wait costs no more than a short one
        return shown

    def _cut(self, text: str, found: list[Found]) -> int:
        """Up to where nothing can change any more, whatever follows."""
        cut = _last_word(text, self._done, len(text))
        first = self._redactor.open_from(text, self._done)
        if found or first < cut:
            cut = _before(found, min(cut, first), len(text))
            word = _last_word(
                text, self._done, cut
            )  # a name is told as a whole, if it can be
            cut = word if _before(found, word, len(text)) == word else cut
        longest = self._redactor.longest
        if len(text) - cut <= 2 * longest:
            return cut
        return _before(found, len(text) - longest, len(text) + 1)


@functools.lru_cache(2048)
def _is_known_harmless(name: str) -> bool:
    return kind_of_name(name) is None and name.lower() not in _HEADERS


def _asks_for_a_look(name: str) -> bool:
    """Whether a field may be named like something secret."""
    return len(name) > LONGEST_NAME or not _is_known_harmless(name)


def without(text: str, found: Iterable[Found], begin: int, end: int) -> str:
    """`text[begin:end]` with the mark in place of what was found; what overlaps becomes one mark."""
    kept: list[str] = []
    at, start, stop = begin, 0, 0
    for match in sorted(found, key=attrgetter("start")):
        if match.start < stop:
            stop = max(stop, match.stop)
            continue
        if stop:
            kept += text[at:start], REDACTED
            at = stop
        start, stop = match.start, match.stop
    if stop:
        kept += text[at:start], REDACTED
        at = stop
    return "".join((*kept, text[at:end]))


def _before(found: list[Found], cut: int, end: int) -> int:
    """The last place up to `cut` that no match goes over; one that reaches `end` may go on."""
    for match in sorted(found, key=lambda match: -match.end):
        if match.end <= cut and match.end < end:
            break
        if match.begin < cut:
            cut = match.begin
    return cut


def _last_word(text: str, at: int, end: int) -> int:
    """Where the last word of `text[at:end]` begins: behind its last gap."""
    if text[end - 1 : end] == " ":
        return max(at, end)
    gap = _gap().search(text[at:end][::-1])
    return end - gap.start() if gap else at


def _written(number: float) -> str:
    """A number in digits; the mark, if it has more than Python writes."""
    try:
        return str(number)
    except ValueError:
        return REDACTED


def _root(secret: str, spelling: str) -> str:
    """What to look for before a spelling: letters that nearly all spellings of a value share, or else itself."""
    root = max(_ORDINARY.findall(secret), key=len, default=secret)
    return root if root in spelling else spelling


def _occurrences(spelling: str, text: str, at: int) -> Iterator[Found]:
    place = text.find(spelling, at)
    while place >= 0:
        end = place + len(spelling)
        yield Found(place, end, place, end)
        place = text.find(spelling, end)


def _begun(spelling: str, text: str, at: int) -> int:
    """Where at the end of `text[at:]` a spelling begins that is not complete; the end if nowhere."""
    place = text.find(spelling[0], max(at, len(text) - len(spelling) + 1))
    while place >= 0 and not spelling.startswith(text[place:]):
        place = text.find(spelling[0], place + 1)
    return place if place >= 0 else len(text)


def _checked(place: int, secret: object) -> str:
    if not isinstance(secret, str) or len(secret) < MIN_SECRET_LENGTH:
        raise ConfigError(
            f"secrets[{place}]: give a text of {MIN_SECRET_LENGTH} characters or more, "
            "since ordinary words hold shorter ones"
        )
    if secret in REDACTED or REDACTED in secret:
        raise ConfigError(
            f"secrets[{place}]: {REDACTED} is what secrets are replaced with, so it cannot be one"
        )
    return secret
