"""A model's request as plain JSON: what cassettes compare, with secrets left out, and how two of them differ."""

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

SECRET_NAMES = (
    "_KEY",
    "_TOKEN",
    "_SECRET",
    "_PASSWORD",
)  # how environment variables end that hold secrets
SHORTEST = (
    8  # characters; a shorter value of such a variable is an ordinary word now and then
)
BY_SHAPE = Redactor()
URL_SAFE = str.maketrans("+/", "-_")
MOST_LINES, MOST_COLUMNS = 40, 300  # of a difference that is shown


class CassetteMiss(AssertionError):
    """A request that a cassette has no reply for; the text shows the nearest one it has, and the first difference.

    Like any bug of a provider, it ends a run as `failed` and is not retried; `cassette` raises it at the block's end.
    """


class Secrets:
    """What must not be written: the texts given, and what environment variables hold whose names sound like it.

    Those are the ones that end in `_KEY`, `_TOKEN`, `_SECRET` or `_PASSWORD` and have 8 characters or more. Each is
    looked for as it is, as it stands inside JSON, and percent-encoded. What has the shape of a secret must not be
    written either; see `Redactor`. Raises `ConfigError` for an empty text.
    """

    def __init__(
        self, texts: Iterable[str] = (), environment: Mapping[str, str] = os.environ
    ) -> None:
        given = list(texts)
        if isinstance(texts, str) or not all(given):
            raise ConfigError(
                f"secrets: give a list of texts, none of them empty, got {texts!r}"
            )
        named = {
            name: v
            for name, v in environment.items()
            if name.endswith(SECRET_NAMES) and len(v) >= SHORTEST
        }
        self.names = frozenset(named)
        """The environment variables whose values are left out."""
        self.met: set[str] = set()
        """Those of them whose values were found."""
        self._names: dict[str, set[str]] = {
            form: set() for text in given for form in _forms(text)
        }
        for name, text in named.items():
            for form in _forms(text):
                self._names.setdefault(form, set()).add(name)
        self._texts = sorted(
            self._names, key=lambda text: (-len(text), text)
        )  # one may be part of another

    def add(self, texts: Iterable[str]) -> None:
        """Leave these out, too."""
        self._names.update(
            (form, set())
            for text in texts
            for form in _forms(text)
            if form not in self._names
        )
        self._texts = sorted(self._names, key=lambda text: (-len(text), text))

    def out_of(self, value: Json) -> Json:
        """A JSON value without them: in texts, in names, at any depth; a number that is one becomes a text."""
        return BY_SHAPE.redact_value(self._without_known(value))

    def out_of_text(self, value: str) -> str:
        """A text without them."""
        return BY_SHAPE.redact_text(self._without_known_text(value))

    def _without_known(self, value: Json) -> Json:
        if isinstance(value, str):
            return self._without_known_text(value)
        if isinstance(value, Mapping):
            return {
                self._without_known_text(name): self._without_known(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._without_known(inner) for inner in value]
        if isinstance(value, bool) or value is None or str(value) not in self._names:
            return value
        return self._without_known_text(str(value))

    def _without_known_text(self, value: str) -> str:
        for text in self._texts:
            if text in value:
                value = value.replace(text, REDACTED)
                self.met |= self._names[text]
        return value


def _forms(secret: str) -> set[str]:
    """A text as it is, inside JSON once and twice, in both ways to write that, inside an address, and in base64."""
    plain = secret.encode("utf-8", "surrogatepass")
    forms = {secret, quote(plain), quote(plain, safe=""), quote_plus(plain)}
    if (
        len(secret) >= SHORTEST
    ):  # that of a shorter one would be found in ordinary words
        encoded = base64.b64encode(plain).decode()
        forms |= {
            encoded,
            encoded.rstrip("="),
            encoded.translate(URL_SAFE),
            encoded.translate(URL_SAFE).rstrip("="),
        }
    for _ in range(2):
        forms |= {
            json.dumps(form, ensure_ascii=ascii_)[1:-1]
            for form in forms
            for ascii_ in (True, False)
        }
    return forms


def rendered(request: Request, model: str, secrets: Secrets) -> Rendered:
    """A request as it counts: all that the model is told, attachments by their hash, what is empty left out.

    The boundaries of fences around text from outside are another run's: they do not count.
    """
    schema = request.schema and {
        "name": request.schema.name,
        "schema": request.schema.schema,
    }
    whole = {
        "model": model,
        "messages": [
            _message(message)
            for message in redact_messages(BY_SHAPE, request.conversation)
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
    told = mask_delimiters(to_json(_filled(whole)).decode())
    return cast("Rendered", secrets.out_of(from_json(told)))


def without_shapes(request: Rendered) -> Rendered:
    """A recorded request without what has the shape of a secret, for comparing it; older files have some."""
    return cast("Rendered", BY_SHAPE.redact_value(request))


def digest(request: Rendered) -> str:
    """SHA-256 (hex) of a rendered request."""
    return hashlib.sha256(canonical_json(request)).hexdigest()


def _message(message: Message) -> dict[str, object]:
    return _filled({
        "role": message.role,
        "content": message.content,
        "calls": [_filled({"id": c.id, "name": c.name, "arguments": c.arguments}) for c in message.calls],
        "call_id": message.call_id,
        "attachments": [
            _filled({"kind": a.kind, "media_type": a.media_type, "name": a.name, "sha256": a.digest})
            for a in message.attachments
        ],
        "reasoning": [_filled({"form": r.form, "text": r.text, "block": r.block}) for r in message.reasoning],
    })  # fmt: skip


def _filled(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields that say something."""
    return {
        name: value
        for name, value in fields.items()
        if value not in (None, "", [], {}, False)
    }


# --- a request that is not known ---


def miss(
    asked: Rendered, known: Sequence[Rendered], place: str, times: int, hint: str = ""
) -> CassetteMiss:
    """The error for a request that `place` has no reply for, or no more replies than it has given already (`times`).

    `hint` is one more thing that may be the cause.
    """
    cure = f"If the change is meant, record it again: LOOPWRIGHT_RECORD=always, or delete the file.{hint}"
    if times:
        return CassetteMiss(
            f"{place} has {times} replies to this request, which is asked once more: {_last(asked)}"
        )
    if not known:
        return CassetteMiss(f"{place} is empty; asked was: {_last(asked)}. {cure}")
    nearest = max(known, key=lambda other: _likeness(asked, other))
    shown = "\n".join(difference(nearest, asked))
    return CassetteMiss(
        f"{place} has no reply to this request. The nearest that it knows (-) differs:\n{shown}\n{cure}"
    )


def difference(recorded: Rendered, asked: Rendered) -> list[str]:
    """The first difference of two requests, as the lines of a unified diff."""
    lines = list(
        difflib.unified_diff(
            _lines(recorded), _lines(asked), "recorded", "asked", lineterm="", n=3
        )
    )
    first = lines[:3]
    for line in lines[3:]:
        if line.startswith("@@"):
            break
        first.append(line)
    return _narrowed(first[:MOST_LINES])


def _lines(request: Rendered) -> list[str]:
    """A request as lines of text: JSON, with the lines of each text on lines of their own."""
    return (
        json.dumps(request, indent=1, sort_keys=True, ensure_ascii=False)
        .replace("\\n", "\n")
        .splitlines()
    )


def _narrowed(lines: list[str]) -> list[str]:
    """Long lines cut to the place where they differ."""
    removed = next((line for line in lines[2:] if line.startswith("-")), "")
    added = next((line for line in lines[2:] if line.startswith("+")), "")
    pairs = enumerate(zip(removed[1:], added[1:], strict=False))
    same = next((place for place, (one, other) in pairs if one != other), 0)
    begin = max(same - MOST_COLUMNS // 3, 0)
    return [
        line
        if len(line) <= MOST_COLUMNS
        else f"{line[0]}…{line[1 + begin : 1 + begin + MOST_COLUMNS]}…"
        for line in lines
    ]


def _likeness(asked: Rendered, other: Rendered) -> tuple[int, int, float]:
    """How much two requests have in common: messages from the start, other fields, words of the message after those."""
    ours, theirs = _messages(asked), _messages(other)
    same = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    fields = sum(
        asked.get(name) == other.get(name)
        for name in ("model", "tools", "tool_choice", "schema", "sampling")
    )
    here, there = (
        str(m[same])[:2000].split() if same < len(m) else list[str]()
        for m in (ours, theirs)
    )
    return same, fields, difflib.SequenceMatcher(None, here, there).ratio()


def _messages(request: Rendered) -> list[Json]:
    messages = request.get("messages")
    return messages if isinstance(messages, list) else []


def _last(request: Rendered) -> str:
    messages = _messages(request)
    return repr(messages[-1])[:MOST_COLUMNS] if messages else "nothing"
