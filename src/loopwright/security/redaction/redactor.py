"""`Redactor`, which removes secrets from texts and JSON values."""

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import cast

from ...messages import Json, JsonObject
from .findings import Finding, replace_secrets
from .heuristics import MAX_NAME_LENGTH, REDACTED, classify_name, is_quoted_secret
from .known_values import MIN_SECRET_LENGTH, KnownValues
from .patterns import MAX_MATCH_LENGTH
from .prefilter import select_open_patterns, select_patterns
from .stream import StreamRedactor

CUT_MARGIN = (
    8192  # characters behind a cut that must be searched too: no secret is longer
)
MAX_LEARNED = 100  # values; each has to be looked for in every text from then on

_MIN_TEXT_LENGTH = 5  # characters; no shorter text looks like a secret
_MIN_NUMBER_LENGTH = 4  # digits of a number that may be a password
_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "set-cookie"))


class Redactor:
    """Removes secrets from what enters a run, and leaves `[redacted]` where they stood.

    It finds the registered values, in the encodings they take inside JSON (as Python, JavaScript,
    PHP, Go, Java and .NET write it, and that inside JSON again), addresses, HTML, base64 and
    Python's `repr`, `ascii` and bytes, and what looks like a secret: known token prefixes, values
    named `password`, `api_key` and the like, headers, addresses with a password, private keys. Text
    that is redacted already stays as it is. Time is linear in the text.

    Args:
        secrets: values to be removed, of 6 characters or more each.
        patterns: whether to look for texts that look like secrets too.

    Raises `ConfigError` for a value that is too short, or is a part of the placeholder.
    """

    def __init__(self, secrets: Iterable[str] = (), *, patterns: bool = True) -> None:
        self._known = KnownValues(secrets)
        self._uses_patterns = patterns
        self._learned = 0
        self.token = object()
        """Stands for what this redactor finds, on values that it has found to be clean."""
        self.max_length = max(MAX_MATCH_LENGTH, self._known.max_length + 1)
        """Characters: no finding is longer."""

    def __repr__(self) -> str:
        count = len(self._known.secrets)
        return f"Redactor(<{count} secrets>, patterns={self._uses_patterns})"

    @functools.cached_property
    def registered_values(self) -> "Redactor":
        """A redactor for the registered values alone, without patterns."""
        if not self._uses_patterns:
            return self
        alone = copy.copy(self)
        alone._uses_patterns, alone.token = False, object()
        return alone

    def with_secrets(self, *secrets: str) -> "Redactor":
        """Return a redactor that removes these values too."""
        more = Redactor((*self._known.secrets, *secrets), patterns=self._uses_patterns)
        more._learned = self._learned
        return more

    def merge(self, other: "Redactor") -> "Redactor":
        """Return a redactor that removes the registered values of another one too."""
        return self.with_new_secrets(other._known.secrets)

    def with_new_secrets(self, *several: Iterable[str]) -> "Redactor":
        """Return a redactor that removes all these values too; itself if it knows them all."""
        known = self._known.secrets
        given = (secret for secrets in several for secret in secrets)
        new = dict.fromkeys(secret for secret in given if secret not in known)
        return self.with_secrets(*new) if new else self

    def with_secrets_found_in(self, *values: Json | JsonObject) -> "Redactor":
        """Return a redactor that removes the secrets in these values everywhere, also where no name
        gives them away.
        """
        known = self._known.secrets
        found = self.find_secrets(*values)
        new = [secret for secret in found if secret not in known]
        more = self.with_new_secrets(new[: MAX_LEARNED - self._learned])
        more._learned += len(more._known.secrets) - len(known)
        return more

    def find_secrets(self, *values: Json | JsonObject) -> tuple[str, ...]:
        """Return the secrets in these values, each once, as far as they are long enough to be told
        from words.
        """
        found: dict[str, None] = {}
        for value in values:
            found |= dict.fromkeys(self._iterate_secrets(value, None))
        return tuple(filter(_can_be_registered, found))

    def redact_text(self, text: str) -> str:
        """Return a text without secrets; the same object if there are none."""
        if len(text) < _MIN_TEXT_LENGTH:
            return text
        found = self.find(text, 0)
        if not found:
            return text
        secrets = [one for one in found if one.is_secret]
        return replace_secrets(text, secrets, 0, len(text)) if secrets else text

    def redact_value(self, value: Json | JsonObject) -> Json:
        """Return a JSON value without secrets, in its texts, names of fields and fields that are
        named like a secret.

        A value without secrets is returned as the same object. Nesting that Python cannot follow
        becomes the placeholder, and so does a number that Python does not write out.
        """
        if not value:
            return cast("Json", value)
        texts: list[str] = []
        try:
            if self._collect_texts(value, texts) and not self.find("\n".join(texts), 0):
                return cast("Json", value)
            return self._redact(value, None)
        except RecursionError:
            return REDACTED

    def open_stream(self) -> StreamRedactor:
        """Return a redactor for a text that comes in chunks."""
        return StreamRedactor(self)

    def find(self, text: str, start: int) -> list[Finding]:
        """Return all matches from `start` on, secret or not, pattern by pattern."""
        found = self._known.find(text, start) if self._known.secrets else []
        if self._uses_patterns:
            for pattern in select_patterns(text):
                found += pattern.find(text, start)
        return found

    def find_opening(self, text: str, start: int) -> int:
        """Return where the first match may begin that continues over the next space; the end of the
        text without.
        """
        first = self._known.find_opening(text, start)
        if not self._uses_patterns:
            return first
        start = max(start, len(text) - MAX_MATCH_LENGTH)
        for pattern in select_open_patterns(text):
            found = pattern.opening.search(text, start)
            if found is not None:
                first = min(first, found.start())
        return first

    # --- values without the name of a secret, which most are: all their texts are searched at once ---

    def _collect_texts(self, value: object, texts: list[str]) -> bool:
        """Add all texts of a value; return False if it has the name of a secret, or is not plain
        JSON.
        """
        if type(value) is not dict:
            items = cast("list[object]", value) if type(value) is list else [value]
            return self._collect_item_texts(items, texts)
        fields = cast("dict[str, object]", value)
        if self._uses_patterns:
            are_short = max(map(len, fields), default=0) <= MAX_NAME_LENGTH
            is_harmless = are_short and all(map(_has_harmless_name, fields))
            if not is_harmless or _find_value_name(fields) is not None:
                return False
        return self._collect_item_texts(chain.from_iterable(fields.items()), texts)

    def _collect_item_texts(self, items: Iterable[object], texts: list[str]) -> bool:
        for item in items:
            kind = type(item)
            if kind is str:
                texts.append(cast("str", item))
            elif kind is dict or kind is list:
                if not self._collect_texts(item, texts):
                    return False
            elif kind is int or kind is float:
                written = _write_number(cast("float", item))
                if written == REDACTED:  # it is not written out
                    return False
                texts.append(written)
            elif item is not None and kind is not bool:  # it is not plain JSON
                return False
        return True

    # --- values that may hold secrets: each text by itself, with the name of its field ---

    def _redact(self, value: Json | JsonObject, name: str | None) -> Json:
        if isinstance(value, str):
            if name is None or not self._uses_patterns:
                return self.redact_text(value)
            return self._redact_named_text(name, value)
        if isinstance(value, Mapping):
            return self._redact_fields(value)
        if isinstance(value, list):
            items = [self._redact(item, name) for item in value]
            return value if _are_same(items, value) else items
        if isinstance(value, bool) or value is None:
            return value
        return self._redact_number(value, name)

    def _redact_fields(self, fields: Mapping[str, Json]) -> Json:
        names = [self.redact_text(name) for name in fields]
        named = _find_value_name(fields)
        values = [
            self._redact(value, named if named and name in _VALUE_FIELDS else name)
            for name, value in fields.items()
        ]
        if _are_same(names, fields) and _are_same(values, fields.values()):
            return cast("Json", fields)
        return dict(zip(names, values, strict=True))

    def _redact_named_text(self, name: str, value: str) -> str:
        """Return the text of a field without secrets, as far as its name says that it is one."""
        kind = classify_name(name)
        if kind is not None and is_quoted_secret(kind, value):
            return REDACTED
        line = _write_line(name, value)
        redacted = self.redact_text(line)
        return value if redacted is line else redacted[len(line) - len(value) :]

    def _redact_number(self, number: float, name: str | None) -> Json:
        written = _write_number(number)
        if written == REDACTED or written in self._known:
            return REDACTED
        if name is None or not self._uses_patterns or len(written) < _MIN_NUMBER_LENGTH:
            return number
        return REDACTED if classify_name(name) in {"password", "pwd"} else number

    def _iterate_secrets(
        self, value: Json | JsonObject, name: str | None
    ) -> Iterator[str]:
        """Iterate over the secrets in a value, as they are written there."""
        if isinstance(value, str):
            yield from self._iterate_text_secrets(value, name)
        elif isinstance(value, Mapping):
            named = _find_value_name(value)
            for field, inner in value.items():
                yield from self._iterate_secrets(field, None)
                is_value = named is not None and field in _VALUE_FIELDS
                yield from self._iterate_secrets(inner, named if is_value else field)
        elif isinstance(value, list):
            for item in value:
                yield from self._iterate_secrets(item, name)
        elif self._redact(value, name) is not value:
            yield _write_number(cast("float", value))

    def _iterate_text_secrets(self, text: str, name: str | None) -> Iterator[str]:
        line = text
        if name is not None:
            line = _write_line(name, text)
            if self._redact_named_text(name, text) == REDACTED:
                yield text
        for found in self.find(line, 0):
            if found.is_secret:
                yield line[found.secret_start : found.secret_end]


_NAME_FIELDS = ("name", "Name", "key", "Key", "variable")
_VALUE_FIELDS = frozenset({"value", "Value"})


def _write_line(name: str, value: str) -> str:
    """Return the text of a field as patterns know it: behind its name if that is a header."""
    return f"{name}: {value}" if name.lower() in _HEADERS else value


def _can_be_registered(secret: str) -> bool:
    overlaps_placeholder = REDACTED in secret or secret in REDACTED
    return len(secret) >= MIN_SECRET_LENGTH and not overlaps_placeholder


def _are_same(new: Iterable[object], old: Iterable[object]) -> bool:
    """Return whether two collections of the same length hold the same objects."""
    return all(one is other for one, other in zip(new, old, strict=True))


def _find_value_name(fields: Mapping[str, object]) -> str | None:
    """Return the name of the secret whose value another field holds: a name beside its value."""
    if _VALUE_FIELDS.isdisjoint(fields):
        return None
    for field in _NAME_FIELDS:
        name = fields.get(field)
        if isinstance(name, str) and classify_name(name) is not None:
            return name
    return None


@functools.lru_cache(2048)
def _has_harmless_name(name: str) -> bool:
    """Return whether a field is certainly not named like something secret."""
    return classify_name(name) is None and name.lower() not in _HEADERS


def _write_number(number: float) -> str:
    """Return a number in digits; the placeholder if it has more than Python writes."""
    try:
        return str(number)
    except ValueError:
        return REDACTED
