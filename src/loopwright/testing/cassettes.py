"""Cassettes: a model's replies kept in a file, so that a test asks it once and needs no network afterwards."""

import asyncio
import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from .._internal.options import explain
from ..errors import ConfigError, ProviderError
from ..events.run import ErrorRecord
from ..messages import Completion, Json
from ..plugins import build_provider
from ..providers.base import Capabilities, Delta, Provider, Request, StreamingProvider
from ..security.redaction.messages import redact_completion
from .chunked import pieces
from .requests import (
    BY_SHAPE,
    CassetteMiss,
    Rendered,
    Secrets,
    digest,
    miss,
    rendered,
    without_shapes,
)

Place: TypeAlias = str | os.PathLike[str]
Mode: TypeAlias = Literal["once", "never", "always"]

FORMAT = "loopwright-cassette"
VERSION = 1
SWITCH = "LOOPWRIGHT_RECORD"  # the mode of each `cassette` that does not say its own


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Model(_Strict):
    """A model that was recorded."""

    provider: str
    model: str
    capabilities: Capabilities = Capabilities()


class _Reply(_Strict):
    """What came of one call: one of the two."""

    completion: Completion | None = None
    error: ErrorRecord | None = None


class _Exchange(_Strict):
    """A request and what it was answered each time, in the order in which it was asked."""

    request: Rendered
    replies: list[_Reply]


class _File(_Strict):
    """A cassette as it lies on the disk."""

    format: Literal["loopwright-cassette"]
    version: Literal[1]
    models: list[_Model]
    exchanges: list[_Exchange]
    redacted: list[str] = []
    """The environment variables whose values were left out."""


@dataclasses.dataclass
class Slot:
    """The place of one reply: taken when its request is made, so that replies are kept in the order of requests.

    Args:
        key: the hash of the request.
        reply: the reply as it is written, as soon as there is one.
    """

    key: str
    reply: str | None = None


class _Asked:
    """A request and the places of its replies, as they are written: each is encoded once, however often the file is."""

    def __init__(self, request: Rendered, key: str) -> None:
        self.order = len(str(request.get("messages"))), key
        self._request = _deeper(_encoded(request), 3)
        self.slots: list[Slot] = []

    def written(self) -> str:
        """Its part of the file; empty as long as it has no reply."""
        replies = ",\n".join(
            slot.reply for slot in self.slots if slot.reply is not None
        )
        return (
            replies
            and f'  {{\n   "request": {self._request},\n   "replies": [\n{replies}\n   ]\n  }}'
        )


class Cassette:
    """A file of requests and replies that is being recorded; each reply is written at once, the file always whole.

    Several models may record into one, branches of a run and threads too. The order of the file does not depend on who
    came first: short conversations first, then by hash.

    Args:
        path: the JSON file; its folder is made if it is missing. What it holds is replaced by the first reply.
        secrets: texts that are never written. Values of environment variables whose names end in `_KEY`, `_TOKEN`,
            `_SECRET` or `_PASSWORD` are not written either, if they have 8 characters or more. The names of those that
            were left out are written. What has the shape of a secret is not written either, nor are the keys of
            providers that tell them; so a call that was recorded with a password replays with `[redacted]`.
    """

    def __init__(self, path: Place, *, secrets: Iterable[str] = ()) -> None:
        self.path = Path(path)
        self._secrets = Secrets(secrets)
        self._models: list[_Model] = []
        self._asked: dict[str, _Asked] = {}
        self.kept = 0
        """How many replies it has."""
        self._written = 0  # how many of those are in the file
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def leave_out(self, secrets: Iterable[str]) -> None:
        """Write these texts no more."""
        self._secrets.add(secrets)

    def expect(
        self, request: Request, provider: str, model: str, capabilities: Capabilities
    ) -> Slot:
        """The place of the reply to a request that is about to be made."""
        asked = rendered(request, model, self._secrets)
        slot = Slot(digest(asked))
        plain = self._secrets.out_of_text
        recorded = _Model(
            provider=plain(provider), model=plain(model), capabilities=capabilities
        )
        with self._lock:
            if recorded not in self._models:
                self._models.append(recorded)
            if slot.key not in self._asked:
                self._asked[slot.key] = _Asked(asked, slot.key)
            self._asked[slot.key].slots.append(slot)
        return slot

    async def keep(self, slot: Slot, reply: Completion | ProviderError) -> None:
        """Write a reply into its place. Raises `ConfigError` if the file cannot be written."""
        written = "    " + _deeper(_encoded(self._plain(reply)), 4)
        with self._lock:
            slot.reply = written
            self.kept += 1
            number = self.kept
        await asyncio.to_thread(self._write, number)

    def save(self, path: Place) -> None:
        """Write all that was kept so far to a file. Raises `ConfigError` if it cannot be written."""
        with self._lock:
            text = self._text()
        target = Path(path)
        beside = target.with_name(f".{target.name}.{os.getpid()}.{id(self)}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(
                text.encode("utf-8", "replace")
            )  # lone surrogates: a run does the same to a reply
            beside.replace(target)
        except OSError as error:
            raise ConfigError(
                f"cassette {target}: cannot be written: {error.strerror}"
            ) from error

    def _write(self, number: int) -> None:
        """Write the file, unless the n-th reply came into it with another one while this waited."""
        with self._writing:
            if self._written < number:
                kept = (
                    self.kept
                )  # before the text is made: it has these, and maybe more
                self.save(self.path)
                self._written = kept

    def _text(self) -> str:
        models = [
            TypeAdapter(_Model).dump_python(m, mode="json")
            for m in sorted(self._models, key=str)
        ]
        whole: dict[str, Json] = {
            "format": FORMAT,
            "version": VERSION,
            "models": models,
        }
        if self._secrets.met:
            whole["redacted"] = [*sorted(self._secrets.met)]
        asked = sorted(self._asked.values(), key=lambda asked: asked.order)
        exchanges = ",\n".join(written for one in asked if (written := one.written()))
        return f'{_encoded(whole)[:-2]},\n "exchanges": [\n{exchanges}\n ]\n}}\n'

    def _plain(self, reply: Completion | ProviderError) -> Json:
        """A reply as JSON, without secrets and without what is as always; numbers of its own are no secrets."""
        if isinstance(reply, ProviderError):
            error = ErrorRecord.of(reply)
            message = self._secrets.out_of_text(error.message)
            return {
                "error": {
                    "type": error.type,
                    "message": message,
                    "details": {**error.details},
                }
            }
        reply = redact_completion(
            BY_SHAPE, reply
        ).completion  # as a run does: thinking that changes goes
        said = cast(
            "dict[str, Json]",
            json.loads(json.dumps(dataclasses.asdict(reply), default=dict)),
        )
        usual = cast(
            "dict[str, Json]", json.loads(json.dumps(dataclasses.asdict(Completion())))
        )
        told = {
            name: v if name == "usage" else self._secrets.out_of(v)
            for name, v in said.items()
            if v != usual[name]
        }
        return {"completion": told}


def _encoded(value: Json) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


def _deeper(text: str, depth: int) -> str:
    """JSON as it stands so deep in a file; in JSON, only the indentation has line breaks."""
    return text.replace("\n", "\n" + depth * " ")


class RecordingProvider:
    """Passes calls on to another provider and keeps what it replies; failures (`ProviderError`) too.

    Args:
        provider: the model to ask.
        into: the file, or a `Cassette` that several providers share.
        secrets: texts that are never written; see `Cassette`.
    """

    def __init__(
        self,
        provider: Provider,
        into: "Place | Cassette",
        *,
        secrets: Iterable[str] = (),
    ) -> None:
        self._provider = provider
        self.cassette = (
            into if isinstance(into, Cassette) else Cassette(into, secrets=secrets)
        )
        self.cassette.leave_out(self.secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API keys of the provider, if it tells them."""
        return tuple(getattr(self._provider, "secrets", ()))

    @property
    def name(self) -> str:
        """Who serves the model."""
        return self._provider.name

    @property
    def model(self) -> str:
        """Which model it is."""
        return self._provider.model

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do by itself."""
        return self._provider.capabilities

    async def complete(self, request: Request) -> Completion:
        """Ask the model, and keep the reply."""
        slot = self._expect(request)
        try:
            completion = await self._provider.complete(request)
        except ProviderError as error:
            await self.cassette.keep(slot, error)
            raise
        await self.cassette.keep(slot, completion)
        return completion

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Ask the model, pass on what it streams, keep the whole reply; one that cannot stream is told in one piece."""
        stream = getattr(self._provider, "stream", None)
        if stream is None:
            completion = await self.complete(request)
            yield Delta(
                text=completion.text or completion.answer or "", completion=completion
            )
            return
        slot = self._expect(request)
        deltas: AsyncIterator[Delta] = stream(request)
        try:
            async for delta in deltas:
                if delta.completion is not None:
                    await self.cassette.keep(slot, delta.completion)
                yield delta
        except ProviderError as error:
            await self.cassette.keep(slot, error)
            raise
        finally:
            if isinstance(deltas, AsyncGenerator):
                await deltas.aclose()

    def _expect(self, request: Request) -> Slot:
        return self.cassette.expect(request, self.name, self.model, self.capabilities)


class ReplayingProvider:
    """Replies from a cassette, without a network: to the same request the same reply, in recorded order.

    A request is the same if all is the same that a model is told: conversation, tools, sampling, schema, model. One
    that is not known, or is asked more often than it was recorded, is a `CassetteMiss`.

    Args:
        path: the file that was recorded. Raises `ConfigError` if it cannot be read.
        model: which model of the file to be, where it holds several.
        secrets: the texts that were left out when it was recorded.
    """

    def __init__(
        self, path: Place, *, model: str | None = None, secrets: Iterable[str] = ()
    ) -> None:
        self._path = Path(path)
        kept = _read(self._path)
        self._secrets = Secrets(secrets)
        found = _chosen(
            self._path, kept.models, model and self._secrets.out_of_text(model)
        )
        self.name, self.model, self.capabilities = (
            found.provider,
            found.model,
            found.capabilities,
        )
        self._redacted = frozenset(kept.redacted)
        self._known = {
            digest(without_shapes(exchange.request)): exchange
            for exchange in kept.exchanges
        }
        self._given: dict[str, int] = {}
        self.misses: list[CassetteMiss] = []
        """The requests that it had no reply to."""

    @property
    def left(self) -> int:
        """How many replies were not asked for."""
        return sum(
            len(exchange.replies) - self._given.get(key, 0)
            for key, exchange in self._known.items()
        )

    async def complete(self, request: Request) -> Completion:
        """The recorded reply, or the recorded failure."""
        asked = rendered(request, self.model, self._secrets)
        key = digest(asked)
        known, given = self._known.get(key), self._given.get(key, 0)
        if known is None or given >= len(known.replies):
            requests = [exchange.request for exchange in self._known.values()]
            missed = miss(
                asked, requests, f"cassette {self._path}", given, self._hint()
            )
            self.misses.append(missed)
            raise missed
        self._given[key] = given + 1
        reply = known.replies[given]
        if reply.completion is not None:
            return reply.completion
        error = None if reply.error is None else reply.error.restore()
        raise (
            error
            if isinstance(error, ProviderError)
            else ProviderError(f"recorded: {error}")
        )

    def _hint(self) -> str:
        """Which secrets are not the same as when it was recorded."""
        unset, new = (
            sorted(self._redacted - self._secrets.names),
            sorted(self._secrets.met - self._redacted),
        )
        gone = (
            f"\nWhat {', '.join(unset)} held was left out when it was recorded, and is not known here."
            if unset
            else ""
        )
        more = (
            f"\nWhat {', '.join(new)} holds here is left out, and was not when it was recorded."
            if new
            else ""
        )
        return gone + more

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """The recorded reply, piece by piece."""
        for delta in pieces(await self.complete(request)):
            yield delta


@contextlib.contextmanager
def cassette(
    path: Place,
    provider: Provider | str | Callable[[], Provider] | None = None,
    *,
    record: Mode | None = None,
    secrets: Iterable[str] = (),
) -> Generator[StreamingProvider]:
    """The model of a test: recorded when the file is not there, from the file ever after.

        with cassette("tests/cassettes/sky.json", "openai:gpt-4.1-mini") as model:
            result = await ReActEngine(Runtime(model)).run("What colour is the sky?")

    While it records, replies go into `path` with `.partial` behind it; only a block that ends without an error makes
    the file of it. At the end of a block that replays, a request that the file did not know raises its `CassetteMiss`.

    Args:
        path: the file.
        provider: the model to record: a provider, a name like "openai:gpt-4.1-mini", or a function that makes one.
            Names and functions are not touched unless something is recorded, so that replaying needs no key.
        record: "once" asks the model if there is no file, "always" records anew, "never" only replays. `None` takes
            the environment variable `LOOPWRIGHT_RECORD`, else "once".
        secrets: texts that are never written; see `Cassette`.
    """
    given = list(secrets)
    if _records(Path(path), record):
        recorded = Cassette(f"{os.fspath(path)}.partial", secrets=given)
        yield RecordingProvider(_made(path, provider), recorded)
        if recorded.kept:
            recorded.save(path)
            recorded.path.unlink(missing_ok=True)
        return
    replaying = ReplayingProvider(path, secrets=given)
    try:
        yield replaying
    except Exception as error:
        if replaying.misses:  # why the block failed
            raise replaying.misses[0] from error
        raise
    if replaying.misses:
        raise replaying.misses[0]


def _records(path: Path, record: Mode | None) -> bool:
    mode = record or os.environ.get(SWITCH) or "once"
    if mode not in get_args(Mode):
        named = "record" if record else SWITCH
        raise ConfigError(
            f"{named}: must be one of {', '.join(get_args(Mode))}, got {mode!r}"
        )
    return mode == "always" or (mode == "once" and not path.exists())


def _made(
    path: Place, provider: Provider | str | Callable[[], Provider] | None
) -> Provider:
    if provider is None:
        raise ConfigError(
            f"cassette {os.fspath(path)}: there is nothing to replay, and no provider to record"
        )
    if isinstance(provider, str):
        return build_provider(provider)
    if callable(getattr(provider, "complete", None)):
        return cast("Provider", provider)
    return cast("Callable[[], Provider]", provider)()


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(json.loads(path.read_bytes()))
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
        raise ConfigError(f"cassette {path}: is no JSON: {error}") from None


def _chosen(path: Path, models: list[_Model], model: str | None) -> _Model:
    if model is None and len(models) == 1:
        return models[0]
    found = [known for known in models if known.model == model]
    if len(found) == 1:
        return found[0]
    known = ", ".join(repr(recorded.model) for recorded in models) or "none"
    raise ConfigError(
        f"model: cassette {path} holds the models {known}: say which of them with model=, got {model!r}"
    )
