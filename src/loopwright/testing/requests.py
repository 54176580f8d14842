"""A model request as plain JSON without secrets, which cassettes compare, and the difference of two requests."""

import base64
import difflib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast
from urllib.parse import quote, quote_plus

from pydantic_core import from_json, to_json

from ..errors import ConfigError
from ..messages import Json, Message, canonical_json
from ..providers.base import Request
from ..security.redaction import REDACTED, Redactor
from ..security.redaction.messages import redact_messages
from ..security.spotlighting import mask_delimiters

Rendered: TypeAlias = dict[str, Json]

SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
"""Suffixes of environment variables that hold secrets."""
MIN_SECRET_LENGTH = 8  # a shorter value may be an ordinary word
PATTERNS = Redactor()
MAX_LINES, MAX_COLUMNS = 40, 300  # of a difference in an error


class CassetteMiss(AssertionError):
    """Raised for a request that a cassette has no reply to; the text shows the nearest request and the difference.

    Like any bug of a provider, it ends a run as `failed` and is not retried; `cassette` raises it at the end of its
    block. Record the cassette again if the request was changed on purpose.
    """


class Secrets:
    """Texts that must not be written: given ones, and the values of environment variables that hold secrets.

    Such variables end in `_KEY`, `_TOKEN`, `_SECRET` or `_PASSWORD` and have at least 8 characters. Each secret is
    found as it is, inside JSON, percent-encoded and in base64. Texts that match the pattern of a secret are not written
    either; see `Redactor`. Raises `ConfigError` for an empty text.
    """

    def __init__(
        self, texts: Iterable[str] = (), environment: Mapping[str, str] = os.environ
    ) -> None:
        given = list(texts)
        if isinstance(texts, str) or not all(given):
            raise ConfigError(
                f"secrets: must be a list of texts, none of them empty, got {texts!r}"
            )
        named = {
            name: v
            for name, v in environment.items()
            if name.endswith(SECRET_SUFFIXES) and len(v) >= MIN_SECRET_LENGTH
        }
        self.names = frozenset(named)
        """The environment variables whose values are left out."""
        self.found: set[str] = set()
        """The variables whose values were found."""
        self._names: dict[str, set[str]] = {
            form: set() for text in given for form in _list_encodings(text)
        }
        for name, text in named.items():
            for form in _list_encodings(text):
                self._names.setdefault(form, set()).add(name)
        self._texts = self._sort_texts()

    def _sort_texts(self) -> list[str]:
        """Return the texts, longer ones first, because one may contain another."""
        return sorted(self._names, key=lambda text: (-len(text), text))

    def add(self, texts: Iterable[str]) -> None:
        """Add secrets."""
        self._names.update(
            (form, set())
            for text in texts
            for form in _list_encodings(text)
            if form not in self._names
        )
        self._texts = self._sort_texts()

    def redact_value(self, value: Json) -> Json:
        """Remove secrets from a JSON value, at any depth; a number that is a secret becomes a text."""
        return PATTERNS.redact_value(self._remove_known(value))

    def redact_text(self, value: str) -> str:
        """Remove secrets from a text."""
        return PATTERNS.redact_text(self._remove_known_text(value))

    def _remove_known(self, value: Json) -> Json:
        if isinstance(value, str):
            return self._remove_known_text(value)
        if isinstance(value, Mapping):
            return {
                self._remove_known_text(name): self._remove_known(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._remove_known(inner) for inner in value]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and str(value) in self._names:
            return self._remove_known_text(str(value))
        return value

    def _remove_known_text(self, value: str) -> str:
        for text in self._texts:
            if text in value:
                value = value.replace(text, REDACTED)
                self.found |= self._names[text]
        return value


def _list_encodings(secret: str) -> set[str]:
    """Return a secret as it is, percent-encoded, in base64, and inside JSON once and twice."""
    plain = secret.encode("utf-8", "surrogatepass")
    encodings = {secret, quote(plain), quote(plain, safe=""), quote_plus(plain)}
    if len(secret) >= MIN_SECRET_LENGTH:  # shorter base64 occurs in ordinary words
        for encoded in (base64.b64encode(plain), base64.urlsafe_b64encode(plain)):
            text = encoded.decode()
            encodings |= {text, text.rstrip("=")}
    for _ in range(2):
        encodings |= {
            json.dumps(text, ensure_ascii=is_ascii)[1:-1]
            for text in encodings
            for is_ascii in (True, False)
        }
    return encodings


def render_request(request: Request, model: str, secrets: Secrets) -> Rendered:
    """Render a request as it is compared: everything the model reads, attachments by hash, without empty fields.

    The delimiters of third-party text differ in every run and are masked.
    """
    schema = request.schema and {
        "name": request.schema.name,
        "schema": request.schema.schema,
    }
    whole = {
        "model": model,
        "messages": [
            _render_message(message)
            for message in redact_messages(PATTERNS, request.conversation)
        ],
        "tools": [
            {"name": t.name, "description": t.description, "schema": t.schema}
            for t in request.tools
        ],
        "tool_choice": request.tool_choice,
        "sampling": request.sampling.options,
        "schema": schema,
        "as_text": request.as_text,
    }
    text = mask_delimiters(to_json(_drop_empty(whole)).decode())
    return cast("Rendered", secrets.redact_value(from_json(text)))


def redact_recorded(request: Rendered) -> Rendered:
    """Remove texts that match a secret's pattern from a recorded request; older files have some."""
    return cast("Rendered", PATTERNS.redact_value(request))


def hash_request(request: Rendered) -> str:
    """Return the SHA-256 (hex) of a rendered request, whatever the bound of its reply: what a run has left decides that."""
    compared = dict(request)
    sampling = compared.pop("sampling", {})
    if isinstance(sampling, dict):
        unbounded = {name: sampling[name] for name in sampling if name != "max_tokens"}
        compared |= {"sampling": unbounded} if unbounded else {}
    return hashlib.sha256(canonical_json(compared)).hexdigest()


def _render_message(message: Message) -> dict[str, object]:
    return _drop_empty({
        "role": message.role,
        "content": message.content,
        "calls": [_drop_empty({"id": c.id, "name": c.name, "arguments": c.arguments}) for c in message.calls],
        "call_id": message.call_id,
        "attachments": [
            _drop_empty({"kind": a.kind, "media_type": a.media_type, "name": a.name, "sha256": a.digest})
            for a in message.attachments
        ],
        "reasoning": [_drop_empty({"form": r.form, "text": r.text, "block": r.block}) for r in message.reasoning],
    })  # fmt: skip


def _drop_empty(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that are not empty."""
    return {
        name: value
        for name, value in fields.items()
        if value not in (None, "", [], {}, False)
    }


# --- a request that is not known ---


def build_miss(
    asked: Rendered, known: Sequence[Rendered], place: str, times: int, hint: str = ""
) -> CassetteMiss:
    """Return the error for a request to which `place` has no reply, or no more than the `times` it was asked.

    `hint` names another possible cause.
    """
    cure = f"If the change is meant, record it again: LOOPWRIGHT_RECORD=always, or delete the file.{hint}"
    if times:
        return CassetteMiss(
            f"{place} has {times} replies to this request, which is asked once more: {_show_last(asked)}"
        )
    if not known:
        return CassetteMiss(f"{place} is empty; asked was: {_show_last(asked)}. {cure}")
    nearest = max(known, key=lambda other: _compute_similarity(asked, other))
    shown = "\n".join(compute_difference(nearest, asked))
    return CassetteMiss(
        f"{place} has no reply to this request. The nearest that it knows (-) differs:\n{shown}\n{cure}"
    )


def compute_difference(recorded: Rendered, asked: Rendered) -> list[str]:
    """Return the first difference of two requests as the lines of a unified diff."""
    lines = list(
        difflib.unified_diff(
            _to_lines(recorded), _to_lines(asked), "recorded", "asked", lineterm="", n=3
        )
    )
    first = lines[:3]
    for line in lines[3:]:
        if line.startswith("@@"):
            break
        first.append(line)
    return _shorten_lines(first[:MAX_LINES])


def _to_lines(request: Rendered) -> list[str]:
    """Return a request as lines of JSON, in which line breaks in texts are line breaks."""
    return (
        json.dumps(request, indent=1, sort_keys=True, ensure_ascii=False)
        .replace("\\n", "\n")
        .splitlines()
    )


def _shorten_lines(lines: list[str]) -> list[str]:
    """Cut long lines to the position where they differ."""
    removed = next((line for line in lines[2:] if line.startswith("-")), "")
    added = next((line for line in lines[2:] if line.startswith("+")), "")
    common = _count_equal(removed[1:], added[1:], default=0)
    begin = max(common - MAX_COLUMNS // 3, 0) + 1
    return [
        line
        if len(line) <= MAX_COLUMNS
        else f"{line[0]}…{line[begin : begin + MAX_COLUMNS]}…"
        for line in lines
    ]


def _count_equal(
    one: Sequence[object], other: Sequence[object], *, default: int
) -> int:
    """Return how many items at the start are equal; `default` if one is the start of the other."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return default


def _compute_similarity(asked: Rendered, other: Rendered) -> tuple[int, int, float]:
    """Return how similar two requests are.

    Compared are the messages from the start, then the other fields, then the words of the first different message.
    """
    ours, theirs = _messages(asked), _messages(other)
    common = _count_equal(ours, theirs, default=min(len(ours), len(theirs)))
    names = ("model", "tools", "tool_choice", "schema", "sampling")
    fields = sum(asked.get(name) == other.get(name) for name in names)
    here, there = (
        str(messages[common])[:2000].split() if common < len(messages) else list[str]()
        for messages in (ours, theirs)
    )
    ratio = difflib.SequenceMatcher(None, here, there).ratio()
    return common, fields, ratio


def _messages(request: Rendered) -> list[Json]:
    messages = request.get("messages")
    return messages if isinstance(messages, list) else []


def _show_last(request: Rendered) -> str:
    messages = _messages(request)
    return repr(messages[-1])[:MAX_COLUMNS] if messages else "nothing"
