"""Cassettes: recorded replies of a model, so that a test calls it once and needs no network afterwards."""

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from ..errors import ConfigError, ProviderError
from ..messages import Completion
from ..plugins import build_provider
from ..providers.base import (
    Capabilities,
    Delta,
    Provider,
    Request,
    StreamingProvider,
    bounds_attempts,
)
from .cassette_file import Cassette, Place, RecordedModel, Slot, read_cassette
from .chunks import split_completion
from .requests import (
    CassetteMiss,
    Secrets,
    build_miss,
    hash_request,
    redact_recorded,
    render_request,
)

Mode: TypeAlias = Literal["once", "never", "always"]

SWITCH = "LOOPWRIGHT_RECORD"
"""Environment variable: the mode of each `cassette` without `record`."""


class RecordingProvider:
    """Calls another provider and records its replies and failures (`ProviderError`).

    Args:
        provider: the model to call.
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
        self.cassette.add_secrets(self.secrets)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API keys of the provider, if it reports them."""
        return tuple(getattr(self._provider, "secrets", ()))

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._provider.name

    @property
    def model(self) -> str:
        """The model's name."""
        return self._provider.model

    @property
    def capabilities(self) -> Capabilities:
        """The model's capabilities."""
        return self._provider.capabilities

    @property
    def bounds_attempts(self) -> bool:
        """Whether the provider asks several others."""
        return bounds_attempts(self._provider)

    async def complete(self, request: Request) -> Completion:
        """Call the model and record the reply."""
        slot = self._expect(request)
        try:
            completion = await self._provider.complete(request)
        except ProviderError as error:
            await self.cassette.keep(slot, error)
            raise
        await self.cassette.keep(slot, completion)
        return completion

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Stream the model's deltas and record the whole reply; without streaming, yield it in one delta."""
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
    """Replies from a cassette without a network: equal requests get their recorded replies in order.

    Requests are equal if the model would read the same: conversation, tools, sampling, schema, model. A request that is
    not recorded, or not as often, is a `CassetteMiss`.

    Args:
        path: the recorded file. Raises `ConfigError` if it cannot be read.
        model: the model to replay, if the file has several.
        secrets: the texts that were removed when it was recorded.
    """

    def __init__(
        self, path: Place, *, model: str | None = None, secrets: Iterable[str] = ()
    ) -> None:
        self._path = Path(path)
        content = read_cassette(self._path)
        self._secrets = Secrets(secrets)
        found = _choose_model(
            self._path, content.models, model and self._secrets.redact_text(model)
        )
        self.name, self.model, self.capabilities = (
            found.provider,
            found.model,
            found.capabilities,
        )
        self._redacted = frozenset(content.redacted)
        self._known = {
            hash_request(redact_recorded(exchange.request)): exchange
            for exchange in content.exchanges
        }
        self._given: dict[str, int] = {}
        self.misses: list[CassetteMiss] = []
        """The requests without a reply."""

    @property
    def left(self) -> int:
        """The number of replies that were not used."""
        return sum(
            len(exchange.replies) - self._given.get(key, 0)
            for key, exchange in self._known.items()
        )

    async def complete(self, request: Request) -> Completion:
        """Return the recorded reply or raise the recorded failure."""
        asked = render_request(request, self.model, self._secrets)
        key = hash_request(asked)
        known, given = self._known.get(key), self._given.get(key, 0)
        if known is None or given >= len(known.replies):
            requests = [exchange.request for exchange in self._known.values()]
            missed = build_miss(
                asked, requests, f"cassette {self._path}", given, self._hint()
            )
            self.misses.append(missed)
            raise missed
        self._given[key] = given + 1
        reply = known.replies[given]
        if reply.completion is not None:
            return reply.completion
        error = None if reply.error is None else reply.error.restore()
        if isinstance(error, ProviderError):
            raise error
        raise ProviderError(f"recorded: {error}")

    def _hint(self) -> str:
        """Return which secrets differ from those of the recording."""
        unset = sorted(self._redacted - self._secrets.names)
        new = sorted(self._secrets.found - self._redacted)
        hint = ""
        if unset:
            hint += f"\nWhat {', '.join(unset)} held was left out when it was recorded, and is not known here."
        if new:
            hint += f"\nWhat {', '.join(new)} holds here is left out, and was not when it was recorded."
        return hint

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Stream the recorded reply."""
        for delta in split_completion(await self.complete(request)):
            yield delta


@contextlib.contextmanager
def cassette(
    path: Place,
    provider: Provider | str | Callable[[], Provider] | None = None,
    *,
    record: Mode | None = None,
    secrets: Iterable[str] = (),
) -> Generator[StreamingProvider]:
    """Record a model for a test if the file is missing, and replay it from the file afterwards.

        with cassette("tests/cassettes/sky.json", "openai:gpt-4.1-mini") as model:
            result = await ReActEngine(Runtime(model)).run("What colour is the sky?")

    Replies are recorded into `path` with the suffix `.partial`, which becomes the file only if the block ends without an
    error. When replaying, a request that the file does not have raises its `CassetteMiss` at the end of the block.

    Args:
        path: the file.
        provider: the model to record: a provider, a name like "openai:gpt-4.1-mini", or a function that makes one.
            Names and functions are not resolved unless something is recorded, so that replaying needs no key.
        record: "once" calls the model if there is no file, "always" records again, "never" only replays. `None` uses
            the environment variable `LOOPWRIGHT_RECORD`, else "once".
        secrets: texts that are never written; see `Cassette`.
    """
    hidden = list(secrets)
    if _should_record(Path(path), record):
        recorded = Cassette(f"{os.fspath(path)}.partial", secrets=hidden)
        yield RecordingProvider(_resolve_provider(path, provider), recorded)
        if recorded.count:
            recorded.save(path)
            recorded.path.unlink(missing_ok=True)
        return
    replaying = ReplayingProvider(path, secrets=hidden)
    try:
        yield replaying
    except Exception as error:
        if replaying.misses:  # why the block failed
            raise replaying.misses[0] from error
        raise
    if replaying.misses:
        raise replaying.misses[0]


def _should_record(path: Path, record: Mode | None) -> bool:
    mode = record or os.environ.get(SWITCH) or "once"
    if mode not in get_args(Mode):
        named = "record" if record else SWITCH
        raise ConfigError(
            f"{named}: must be one of {', '.join(get_args(Mode))}, got {mode!r}"
        )
    return mode == "always" or (mode == "once" and not path.exists())


def _resolve_provider(
    path: Place, provider: Provider | str | Callable[[], Provider] | None
) -> Provider:
    if provider is None:
        raise ConfigError(
            f"cassette {os.fspath(path)}: the file does not exist, and there is no provider to record; pass one"
        )
    if isinstance(provider, str):
        return build_provider(provider)
    if callable(getattr(provider, "complete", None)):
        return cast("Provider", provider)
    return cast("Callable[[], Provider]", provider)()


def _choose_model(
    path: Path, models: list[RecordedModel], model: str | None
) -> RecordedModel:
    if model is None and len(models) == 1:
        return models[0]
    found = [known for known in models if known.model == model]
    if len(found) == 1:
        return found[0]
    known = ", ".join(repr(recorded.model) for recorded in models) or "none"
    raise ConfigError(
        f"model: cassette {path} holds the models {known}: say which of them with model=, got {model!r}"
    )
