"""Let time pass in a run that a command may stop meanwhile."""

import asyncio

from .session import Session

POLL_SECONDS = 1.0
"""A sleep of at most this length is not cut short by a command."""


async def sleep_or_stop(session: Session, seconds: float) -> None:
    """Sleep; return early from a long pause when a command arrives that stops the run."""
    if seconds <= POLL_SECONDS:
        await session.services.clock.sleep(seconds)
        return
    sleep = asyncio.ensure_future(session.services.clock.sleep(seconds))
    command = asyncio.ensure_future(session.command_log.wait_for_next())
    try:
        while not (sleep.done() or session.command_log.stopping):
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait((sleep, command), return_when=first)
            if command.done():
                command = asyncio.ensure_future(session.command_log.wait_for_next())
    finally:
        sleep.cancel()
        command.cancel()
        await asyncio.gather(sleep, command, return_exceptions=True)
