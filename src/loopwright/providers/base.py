"""The provider port: what a model is asked (`Request`) and how it replies (`Completion`, or `Delta` by `Delta`)."""

import contextlib
import operator
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from .._internal import dataclasses
from ..errors import ProviderError
from ..labels import Label
from ..messages import (
    Completion,
    Conversation,
    JsonObject,
    ToolCall,
    ToolSpec,
    Usage,
)
from ..resilience.call_guard import CallGuard
from .provider_tools import ProviderTool, ProviderToolKind
from .settings import Sampling as Sampling

ToolChoice: TypeAlias = Literal["auto", "none"]

_get_arguments: Callable[[ToolCall], object] = operator.attrgetter("arguments")
CALL_OVERHEAD = 20  # characters that a call needs beside its name, id and arguments
# Looking for secrets in a longer reply, and recording it, would block every other run.
MAX_REPLY = 2_000_000  # characters


@dataclasses.dataclass(frozen=True)
class OutputSchema:
    """The JSON schema that a reply must fit, with a name for it.

    Args:
        name: a short identifier, which some endpoints require.
        schema: the JSON schema.
    """

    name: str
    schema: JsonObject


@dataclasses.dataclass(frozen=True)
class Capabilities:
    """What a model supports natively.

    Args:
        native_tools: it accepts tool schemas and returns calls; without it, wrap the provider in `TextTools`.
        json_schema: its reply can be constrained to a JSON schema (`Request.schema`).
        stop: it honours `Sampling.stop`.
        schema_with_tools: it holds to a schema also in a request that offers tools; without it, the schema of an
            answer is offered as one more tool.
        context_tokens: tokens of a request and its reply together; `None` where that is not known.
        max_output_tokens: tokens of the longest reply that it gives by itself.
        images: it takes the images of tool results; without it, they are described to it.
        documents: it takes their documents.
        max_samples: how many replies one request can bring (`SamplingProvider`).
        provider_tools: the kinds of tools that it can run by itself (`ProviderTool`).
    """

    native_tools: bool = True
    json_schema: bool = False
    stop: bool = True
    schema_with_tools: bool = False
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    images: bool = False
    documents: bool = False
    max_samples: int = 1
    provider_tools: tuple[ProviderToolKind, ...] = ()


@dataclasses.dataclass(frozen=True)
class Request:
    """One model call.

    Args:
        conversation: the messages, from the system message to the newest.
        tools: the tools that the model may call.
        tool_choice: "none" requires an answer: the tools stay described, since the conversation may mention them, but
            none may be called.
        sampling: takes precedence over the provider's own defaults.
        schema: the JSON schema that the reply must fit, if there is one.
        as_text: the engine reads the reply itself, so a text dialect must return it unchanged.
        timeout: seconds that one attempt may take, `None` without a bound. The runtime enforces it; a provider that
            asks several others (`bounds_attempts`) applies it to each of them.
        system: the instructions of the agent that asks; the system message of the conversation begins with them.
        guard: the circuit breakers of the run, which no model reads; a provider that asks several others makes each
            attempt in `with admit_attempt(provider, request):`.
        provider_tools: the tools that the provider may run by itself.
        max_provider_calls: how often it may run them all together, where its API has a field for that.
        redacted: whether a request that a journal gives back lacks something secret that was sent.
        label: how sensitive what it holds is: what the run has read. Without one it counts as secret.
    """

    conversation: Conversation
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    sampling: Sampling = Sampling()
    schema: OutputSchema | None = None
    as_text: bool = False
    timeout: float | None = None
    system: str = ""
    guard: CallGuard | None = dataclasses.field(default=None, compare=False, repr=False)
    provider_tools: tuple[ProviderTool, ...] = ()
    max_provider_calls: int | None = None
    redacted: bool = dataclasses.field(default=False, compare=False)
    label: Label = dataclasses.field(default="secret", compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class CallDelta:
    """A fragment of a tool call in a stream.

    Args:
        index: which call of the reply it belongs to, counted from 0.
        id: the call's id, in the first fragment that has it.
        name: the tool's name, in the first fragment that has it.
        arguments: the next characters of the arguments, which are JSON.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclasses.dataclass(frozen=True)
class Delta:
    """A fragment of a reply in a stream, for display only: no journal records it.

    Args:
        text: the next characters of the reply.
        reasoning: the next characters of the model's reasoning.
        call: a fragment of a tool call.
        completion: the whole reply, in the last delta only; the run uses nothing else.
        key: the effect that it belongs to, which the run fills in; concurrent branches have different keys.
        attempt: the attempt of the model call, from 1: where it grows, the text of the attempt before is void.
        agent: the name of the agent whose model replies; empty for none.
    """

    text: str = ""
    reasoning: str = ""
    call: CallDelta | None = None
    completion: Completion | None = None
    key: str = ""
    attempt: int = 1
    agent: str = ""


class Provider(Protocol):
    """A model, behind an API or in the process. Any object with these four members is a provider.

    A provider makes one call for each `complete` and neither retries nor repairs: the runtime retries, counts, keeps
    circuit breakers and writes the journal. `secrets`, a tuple of texts that the runtime removes from everything it
    records, `aclose()`, and `bounds_attempts`, which is true of one that asks several others, are optional.
    """

    @property
    def name(self) -> str:
        """Who serves the model, such as "openai"; prices and circuit breakers use it."""
        ...

    @property
    def model(self) -> str:
        """The model's name, as the endpoint knows it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the model supports natively."""
        ...

    async def complete(self, request: Request) -> Completion:
        """Call the model once and return its reply.

        A reply that cannot be read is not an error: return a `Completion` whose `problem` tells the model why.

        Raises:
            ContextTooLong: the conversation does not fit the model's context.
            ProviderTimeout: no reply in time.
            ProviderError: any other failure, with `retryable` and `retry_after` set. Nothing else may be raised.
        """
        ...


@runtime_checkable
class CountingProvider(Protocol):
    """A provider that can count the tokens of a request; those of any other are estimated from what replies report."""

    async def count(self, request: Request) -> int:
        """Return how many input tokens a request has; raise `ProviderError` if that cannot be told."""
        ...


@runtime_checkable
class SamplingProvider(Protocol):
    """A provider that can bring several replies by one request; any other is asked once for each."""

    async def sample(self, request: Request) -> tuple[Completion, ...]:
        """Call the model once and return `request.sampling.n` replies, or fewer; raise as `complete` does.

        The usage of the first is that of the request.
        """
        ...


class StreamingProvider(Provider, Protocol):
    """A provider that can also stream its reply; the reply of any other provider arrives as one delta."""

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Call the model once and yield its reply; raise as `complete` does.

        The last delta carries the completion, equal to what `complete` would have returned. Closing the iterator
        cancels the call.
        """
        ...


def bounds_attempts(provider: Provider) -> bool:
    """Return whether a provider asks several others, so that time-outs and breakers are for each of them."""
    return bool(getattr(provider, "bounds_attempts", False))


def admit_attempt(
    provider: Provider, request: Request
) -> contextlib.AbstractContextManager[object]:
    """Return the context of one attempt, whose end is told to the breaker of the provider's model.

    Raises `CircuitOpen` if that breaker rejects it. Outside a run, and for a provider that asks several others, there is
    no breaker.
    """
    if request.guard is None or bounds_attempts(provider):
        return contextlib.nullcontext()
    return request.guard.admit(f"{provider.name}/{provider.model}")


def split_samples(request: Request) -> tuple[int, Request]:
    """Return how many replies a request asks for, and the same request for one."""
    one = request.sampling.change(n=None)
    return request.sampling.n or 1, dataclasses.replace(request, sampling=one)


def share_usage(replies: Sequence[Completion], usage: Usage) -> tuple[Completion, ...]:
    """Return the replies to one request with its usage in the first of them, so that it counts once."""
    return tuple(
        dataclasses.replace(reply, usage=Usage() if number else usage)
        for number, reply in enumerate(replies)
    )


def check_size(provider: Provider, reply: Completion) -> None:
    """Raise `ProviderError` if a reply has more than 2,000,000 characters in total."""
    texts = {
        reply.text,
        reply.thought,
        reply.answer or "",
        reply.problem or "",
        reply.model,
        reply.finish_reason,
    }
    size = sum(map(len, texts.union(reply.flags)))
    for call in reply.calls:
        size += len(call.name) + len(call.id) + CALL_OVERHEAD
    size += _measure_json(map(_get_arguments, reply.calls))
    for reasoning in reply.reasoning:
        size += max(len(reasoning.text), _measure_json([reasoning.block]))
    if size > MAX_REPLY:
        raise _build_size_error(provider)


def _measure_json(values: Iterable[object]) -> int:
    """Return about how many characters values have as JSON, or any number above the limit."""
    size, waiting = 0, [*values]
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


def _measure_delta(delta: Delta) -> int:
    size, call = len(delta.text) + len(delta.reasoning), delta.call
    if call is None:
        return size
    return size + len(call.id) + len(call.name) + len(call.arguments)


def _build_size_error(provider: Provider) -> ProviderError:
    text = f"{provider.name}: the reply has more than {MAX_REPLY:,} characters"
    return ProviderError(text)


async def stream_deltas(provider: Provider, request: Request) -> AsyncGenerator[Delta]:
    """Yield the deltas of a provider, or the whole reply as one delta if it cannot stream.

    Close the generator to close the stream.

    Raises:
        ProviderError: the stream ended without a completion, or the reply exceeds 2,000,000 characters; a longer
            stream fails as soon as it passes the limit.
    """
    stream = getattr(provider, "stream", None)
    if stream is None:
        reply = await provider.complete(request)
        check_size(provider, reply)
        yield Delta(text=reply.answer or "", reasoning=reply.thought, completion=reply)
        return
    deltas: AsyncIterator[Delta] = stream(request)
    completion: Completion | None = None
    size = 0
    try:
        async for delta in deltas:
            size += _measure_delta(delta)
            if size > MAX_REPLY:
                raise _build_size_error(provider)
            if delta.completion is not None:
                check_size(provider, delta.completion)
                completion = delta.completion
            yield delta
    finally:
        if isinstance(deltas, AsyncGenerator):
            await deltas.aclose()
    if completion is None:
        raise ProviderError(f"{provider.name}: the stream ended without a completion")
