"""The file of a cassette: recorded requests with their replies, without secrets."""

import asyncio
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from .._internal import dataclasses
from .._internal.options import explain
from ..errors import ConfigError, ProviderError
from ..events.run import ErrorRecord
from ..messages import Completion, Json
from ..providers.base import Capabilities, Request
from ..security.redaction.messages import redact_completion
from .requests import PATTERNS, Rendered, Secrets, hash_request, render_request

Place: TypeAlias = str | os.PathLike[str]

FORMAT = "loopwright-cassette"
VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RecordedModel(_Record):
    """A model that was recorded."""

    provider: str
    model: str
    capabilities: Capabilities = Capabilities()


class RecordedReply(_Record):
    """The outcome of one call: a completion or an error."""

    completion: Completion | None = None
    error: ErrorRecord | None = None


class RecordedExchange(_Record):
    """A request and its replies, in the order of the calls."""

    request: Rendered
    replies: list[RecordedReply]


class CassetteFile(_Record):
    """The content of a cassette's file."""

    format: Literal["loopwright-cassette"]
    version: Literal[1]
    models: list[RecordedModel]
    exchanges: list[RecordedExchange]
    redacted: list[str] = []
    """The environment variables whose values were left out."""


@dataclasses.dataclass
class Slot:
    """The slot of one reply, reserved with its request, so that replies are in the order of the requests.

    Args:
        key: the hash of the request.
        reply: the encoded reply, once there is one.
    """

    key: str
    reply: str | None = None


class _Entry:
    """A request with the slots of its replies; each is encoded once, however often the file is written."""

    def __init__(self, request: Rendered, key: str) -> None:
        self.order = len(str(request.get("messages"))), key
        self._request = _indent(_encode(request), 3)
        self.slots: list[Slot] = []

    def encode(self) -> str:
        """Return its section of the file; empty without a reply."""
        replies = ",\n".join(
            slot.reply for slot in self.slots if slot.reply is not None
        )
        if not replies:
            return ""
        return f'  {{\n   "request": {self._request},\n   "replies": [\n{replies}\n   ]\n  }}'


class Cassette:
    """Records requests and replies in a file, which is rewritten as a whole with each reply.

    Several models, branches of a run and threads may record into one cassette. The order in the file does not depend on
    their timing: short conversations first, then by hash.

    Args:
        path: the JSON file; its directory is created if it is missing. The first reply replaces an existing file.
        secrets: texts that are never written. Values of environment variables whose names end in `_KEY`, `_TOKEN`,
            `_SECRET` or `_PASSWORD` are not written either, if they have at least 8 characters; the file names the
            variables. Texts that match the pattern of a secret and the keys that providers report are not written
            either, so a call that was recorded with a password replays with `[redacted]`.
    """

    def __init__(self, path: Place, *, secrets: Iterable[str] = ()) -> None:
        self.path = Path(path)
        self._secrets = Secrets(secrets)
        self._models: list[RecordedModel] = []
        self._entries: dict[str, _Entry] = {}
        self.count = 0
        """The number of replies."""
        self._written = 0  # the number of replies in the file
        self._lock, self._file_lock = threading.Lock(), threading.Lock()

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Never write these texts from now on."""
        self._secrets.add(secrets)

    def expect(
        self, request: Request, provider: str, model: str, capabilities: Capabilities
    ) -> Slot:
        """Reserve the slot of the reply to a request."""
        rendered = render_request(request, model, self._secrets)
        slot = Slot(hash_request(rendered))
        redact = self._secrets.redact_text
        recorded = RecordedModel(
            provider=redact(provider), model=redact(model), capabilities=capabilities
        )
        with self._lock:
            if recorded not in self._models:
                self._models.append(recorded)
            if slot.key not in self._entries:
                self._entries[slot.key] = _Entry(rendered, slot.key)
            self._entries[slot.key].slots.append(slot)
        return slot

    async def keep(self, slot: Slot, reply: Completion | ProviderError) -> None:
        """Write a reply into its slot; raise `ConfigError` if the file cannot be written."""
        encoded = "    " + _indent(_encode(self._to_json(reply)), 4)
        with self._lock:
            slot.reply = encoded
            self.count += 1
            number = self.count
        await asyncio.to_thread(self._write, number)

    def save(self, path: Place) -> None:
        """Write all replies so far to a file; raise `ConfigError` if it cannot be written."""
        with self._lock:
            text = self._encode_file()
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{id(self)}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # A run replaces lone surrogates of a reply in the same way.
            temporary.write_bytes(text.encode("utf-8", "replace"))
            temporary.replace(target)
        except OSError as error:
            raise ConfigError(
                f"cassette {target}: cannot be written: {error.strerror}"
            ) from error

    def _write(self, number: int) -> None:
        """Write the file, unless another thread wrote the n-th reply meanwhile."""
        with self._file_lock:
            if self._written < number:
                count = self.count  # read before the text is built, which may have more
                self.save(self.path)
                self._written = count

    def _encode_file(self) -> str:
        models = [
            TypeAdapter(RecordedModel).dump_python(m, mode="json")
            for m in sorted(self._models, key=str)
        ]
        whole: dict[str, Json] = {
            "format": FORMAT,
            "version": VERSION,
            "models": models,
        }
        if self._secrets.found:
            whole["redacted"] = [*sorted(self._secrets.found)]
        entries = sorted(self._entries.values(), key=lambda entry: entry.order)
        exchanges = ",\n".join(filter(None, (entry.encode() for entry in entries)))
        return f'{_encode(whole)[:-2]},\n "exchanges": [\n{exchanges}\n ]\n}}\n'

    def _to_json(self, reply: Completion | ProviderError) -> Json:
        """Return a reply as JSON without secrets and default values; token counts are not secrets."""
        if isinstance(reply, ProviderError):
            error = ErrorRecord.of(reply)
            message = self._secrets.redact_text(error.message)
            details = {**error.details}
            return {
                "error": {"type": error.type, "message": message, "details": details}
            }
        # A run redacts a reply in the same way: changed reasoning is dropped.
        reply = redact_completion(PATTERNS, reply).completion
        fields, defaults = _to_fields(reply), _to_fields(Completion())
        changed = {
            name: value for name, value in fields.items() if value != defaults[name]
        }
        redacted = {
            name: value if name == "usage" else self._secrets.redact_value(value)
            for name, value in changed.items()
        }
        return {"completion": redacted}


def _to_fields(completion: Completion) -> dict[str, Json]:
    text = json.dumps(dataclasses.asdict(completion), default=dict)
    return cast("dict[str, Json]", json.loads(text))


def _encode(value: Json) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


def _indent(text: str, depth: int) -> str:
    """Indent JSON; line breaks occur in its indentation only."""
    return text.replace("\n", "\n" + depth * " ")


def read_cassette(path: Path) -> CassetteFile:
    """Read the file of a cassette; raise `ConfigError` if it is missing or invalid."""
    try:
        return CassetteFile.model_validate(json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise ConfigError(
            f"cassette {path}: there is no such file; record it with RecordingProvider"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cassette {path}: cannot be read: {error.strerror}"
        ) from error
    except ValidationError as error:
        raise ConfigError(
            f"cassette {path}: is not what was recorded: {explain(error, 'cassette')}"
        ) from None
    except ValueError as error:
        raise ConfigError(f"cassette {path}: is not JSON: {error}") from None
