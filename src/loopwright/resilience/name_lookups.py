"""Look-ups of host names, in threads that hold up nothing else."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, TypeAlias

from .timeouts import WorkerThreads

SocketAddress: TypeAlias = Sequence[Any]
"""What the system says of an address: its text, the port, and for IPv6 the flow and the scope."""


async def look_up(
    threads: WorkerThreads, host: str, port: int, max_hanging: int
) -> list[SocketAddress]:
    """Return the addresses of a host, from the operating system. Raises `OSError`.

    A look-up cannot be cancelled, and a name server may be slow. So it runs in one of `threads`,
    not in one for which the event loop, other code and the end of the program wait. None begins
    while `max_hanging` others still run whose callers gave up.
    """
    if threads.abandoned >= max_hanging:
        raise OSError(
            f"{max_hanging} look-ups of host names are still waiting for an answer"
        )
    try:
        found = await threads.run(
            lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    except asyncio.CancelledError:
        raise asyncio.CancelledError from None  # a timeout recognizes only this exact class
    return [address for *_, address in found]
