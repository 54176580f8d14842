"""Asks any provider for a reply in pieces, whether it can stream or not."""

from collections.abc import AsyncGenerator, AsyncIterator

from ..errors import ProviderError
from ..messages import Completion
from ..provider import Delta, Provider, Request


async def deltas_of(provider: Provider, request: Request) -> AsyncGenerator[Delta]:
    """The deltas of a provider that can stream, the reply in one piece of one that cannot.

    Close the generator to close the stream. Raises `ProviderError` for a stream that ends without a completion.
    """
    stream = getattr(provider, "stream", None)
    if stream is None:
        reply = await provider.complete(request)
        yield Delta(text=reply.answer or "", reasoning=reply.thought, completion=reply)
        return
    deltas: AsyncIterator[Delta] = stream(request)
    ended: Completion | None = None
    try:
        async for delta in deltas:
            ended = delta.completion or ended
            yield delta
    finally:
        if isinstance(deltas, AsyncGenerator):
            await deltas.aclose()
    if ended is None:
        raise ProviderError(f"{provider.name}: the stream ended without a completion")
