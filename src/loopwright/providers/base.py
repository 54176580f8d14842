"""The port to a model: one request in, one completion out."""

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from ..errors import ProviderError
from ..messages import Completion, Conversation, Json, JsonObject, ToolSpec

ToolChoice: TypeAlias = Literal["auto", "none"]

CALL = 20  # characters at least, beside its name, its id and its arguments
MAX_REPLY = 2_000_000  # characters; to look for secrets in more, and to record it, would hold up every other run


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a model picks its words; `None` leaves it to the provider."""

    temperature: float | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None

    @property
    def chosen(self) -> dict[str, Json]:
        """What is set, by name."""
        values: dict[str, Any] = {**vars(self), "stop": list(self.stop)}
        return {
            name: value for name, value in values.items() if value not in (None, [])
        }


@dataclasses.dataclass(frozen=True)
class OutputSchema:
    """The JSON schema that a reply must fit, and the name it goes by."""

    name: str
    schema: JsonObject


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a model can do by itself.

    Args:
        native_tools: it takes tool schemas and returns calls; without that, wrap it in `TextTools`.
        json_schema: it can be held to a JSON schema (`Request.schema`).
        stop: it honours stop sequences.
    """

    native_tools: bool = True
    json_schema: bool = False
    stop: bool = True


@dataclasses.dataclass(frozen=True)
class Request:
    """One model call: the conversation, the tools on offer, how to sample, and the schema of the reply if it has one.

    `tool_choice="none"` asks for an answer: tools that the conversation mentions stay described, but none may be
    called. `as_text` says that an engine reads the reply by itself: a dialect leaves it as it is.
    """

    conversation: Conversation
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    sampling: Sampling = Sampling()
    schema: OutputSchema | None = None
    as_text: bool = False


@dataclasses.dataclass(frozen=True)
class CallDelta:
    """A piece of a tool call as it is streamed: `arguments` is the next stretch of their JSON.

    `index` counts the calls of one reply from 0; `id` and `name` are there as soon as they are known.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclasses.dataclass(frozen=True)
class Delta:
    """A piece of a reply as it comes. It is for people who watch: no journal holds it.

    Args:
        text: the next words.
        reasoning: the next words of the model's thinking.
        call: a piece of a tool call.
        completion: the whole reply, in the last piece only; that one is what counts.
        key: the effect that it belongs to, filled in by the run; branches at work at the same time have different ones.
    """

    text: str = ""
    reasoning: str = ""
    call: CallDelta | None = None
    completion: Completion | None = None
    key: str = ""


class Provider(Protocol):
    """A model behind an API or in the process.

    `complete` makes one wire call: no retries, no repair. It raises `ProviderError` (or a subclass) and nothing else,
    with `retryable` and `retry_after` filled in; the runtime retries, counts and journals.
    """

    @property
    def name(self) -> str:
        """Who serves the model, for people and traces: "openai"."""
        ...

    @property
    def model(self) -> str:
        """Which model it is."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do by itself."""
        ...

    async def complete(self, request: Request) -> Completion:
        """Ask the model once."""
        ...


class StreamingProvider(Provider, Protocol):
    """A provider that can also tell its reply piece by piece; one that cannot is watched in one piece."""

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Ask the model once; the last delta carries the completion, equal to what `complete` would have returned."""
        ...


def check_size(provider: Provider, reply: Completion) -> None:
    """Raise `ProviderError` if a reply, with all that it is made of, has more than 2,000,000 characters."""
    words = {
        reply.text,
        reply.thought,
        reply.answer or "",
        reply.problem or "",
        reply.model,
        reply.finish_reason,
    }
    size = sum(map(len, words.union(reply.flags)))
    size += sum(
        [
            len(call.name) + len(call.id) + _length(call.arguments) + CALL
            for call in reply.calls
        ]
    )
    size += sum(
        [max(len(thought.text), _length(thought.block)) for thought in reply.reasoning]
    )
    _check(provider, size)


def _length(value: object) -> int:
    """About how many characters a JSON value has when it is written, or more than there may be."""
    size, waiting = 0, [value]
    while waiting and size <= MAX_REPLY:
        inner: Any = waiting.pop()
        size += 1
        if isinstance(inner, str):
            size += len(inner)
        elif isinstance(inner, int):
            size += inner.bit_length() // 3
        elif isinstance(inner, Mapping):
            waiting += (*inner, *inner.values())
        elif isinstance(inner, (list, tuple)):
            waiting += inner
    return size


def _size_of(delta: Delta) -> int:
    size, call = len(delta.text) + len(delta.reasoning), delta.call
    return (
        size
        if call is None
        else size + len(call.id) + len(call.name) + len(call.arguments)
    )


def _check(provider: Provider, size: int) -> None:
    if size > MAX_REPLY:
        raise ProviderError(
            f"{provider.name}: the reply has more than {MAX_REPLY:,} characters"
        )


async def deltas_of(provider: Provider, request: Request) -> AsyncGenerator[Delta]:
    """The deltas of a provider that can stream, the reply in one piece of one that cannot.

    Close the generator to close the stream. Raises `ProviderError` for a stream that ends without a completion, and for
    a reply that is too large, as soon as it is.
    """
    stream = getattr(provider, "stream", None)
    if stream is None:
        reply = await provider.complete(request)
        check_size(provider, reply)
        yield Delta(text=reply.answer or "", reasoning=reply.thought, completion=reply)
        return
    deltas: AsyncIterator[Delta] = stream(request)
    ended: Completion | None = None
    size = 0
    try:
        async for delta in deltas:
            size += _size_of(delta)
            _check(provider, size)
            if delta.completion is not None:
                check_size(provider, delta.completion)
                ended = delta.completion
            yield delta
    finally:
        if isinstance(deltas, AsyncGenerator):
            await deltas.aclose()
    if ended is None:
        raise ProviderError(f"{provider.name}: the stream ended without a completion")
