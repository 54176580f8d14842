"""The process of an MCP server: lines go in and come out, no line without an end, and it is ended in any case."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from typing import cast

from .mcp_servers import StdioServer
from .processes import bare_environment

PASSED_ON = ("HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ")
"""Of our environment, besides the PATH, a server gets these: programs look for their files there."""
LAST_WORDS = 2_000  # bytes of what it wrote to its standard error, for who set it up
MOST_LINES = 64  # that wait to be read; then the server waits
DRAINING = 0.25  # seconds in which lines may still arrive once it has ended
GRACE = (1.0, 0.5, 1.0)  # seconds to end once its input is closed, once it was asked to, once it was killed


class ServerProcess(asyncio.SubprocessProtocol):
    """A started server. Read it with `line`, write to it with `send`, end it with `stop`.

    Args:
        server: what to start.
        max_bytes: the longest line that is taken; a server that sends a longer one is killed.
    """

    def __init__(self, server: StdioServer, max_bytes: int) -> None:
        self._server, self._max_bytes = server, max_bytes
        self._transport: asyncio.SubprocessTransport | None = None
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._held = 0
        self._errors = bytearray()
        self._fault = ""
        self._more, self._ended, self._exited = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    async def start(self) -> None:
        """Start it, in a process group of its own. Raises OSError or ValueError if that cannot be done."""
        server = self._server
        environment = bare_environment(PASSED_ON) | dict(server.env)
        await asyncio.get_running_loop().subprocess_exec(
            lambda: self, server.command, *server.args, env=environment, cwd=server.cwd, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.get_pid()

    @property
    def ending(self) -> str:
        """How it ended, and what it said last, for who set it up."""
        code = self._child.get_returncode() if self._transport is not None else None
        how = self._fault or (f"it ended with exit code {code}" if code is not None else "it closed its output")
        said = self._errors.decode("utf-8", "replace").strip()
        return f"{how}; it wrote: {said}" if said else how

    @property
    def fault(self) -> str:
        """What it did that no server may do; empty if nothing."""
        return self._fault

    async def line(self) -> bytes | None:
        """The next line, without its end; `None` when there will be no more."""
        while not self._lines:
            if self._ended.is_set():
                return None
            self._more.clear()
            await self._more.wait()
        line = self._lines.popleft()
        if not self._lines and not self._ended.is_set():
            self._reading.resume_reading()
        return line

    async def send(self, line: bytes) -> None:
        """Write a line; waits while the server is slow to read. What a server does not read any more is lost."""
        pipe = cast("asyncio.WriteTransport", self._child.get_pipe_transport(0))
        if not pipe.is_closing():
            pipe.write(line + b"\n")
        await self._writable.wait()

    async def stop(self) -> None:
        """End it: close its input, ask it, kill it; each if the one before did not do it in time."""
        if self._transport is None:
            return
        cast("asyncio.WriteTransport", self._child.get_pipe_transport(0)).close()
        try:
            for grace, number in zip(GRACE, (signal.SIGTERM, signal.SIGKILL, None), strict=True):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._exited.wait(), grace)
                    return
                self._signal(number)
        finally:
            self._signal(signal.SIGKILL)
            self._child.close()

    # --- what asyncio tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It runs."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It wrote something: to its standard output (1), or to its standard error (2)."""
        if fd != 1:
            self._errors = (self._errors + data)[-LAST_WORDS:]
            if self._server.show_stderr:
                sys.stderr.write(data.decode("utf-8", "replace"))
            return
        *complete, rest = data.split(b"\n")
        for end in complete:
            self._hold(end)
            line = b"".join(self._parts)
            self._parts, self._held = [], 0
            if line.strip() and not self._fault:
                self._lines.append(line)
        self._hold(rest)
        self._more.set()
        if len(self._lines) > MOST_LINES:
            self._reading.pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """It closed a stream."""
        if fd == 1:
            self._end()

    def process_exited(self) -> None:
        """It has ended; a child of it may still hold its output open."""
        self._exited.set()
        asyncio.get_running_loop().call_later(DRAINING, self._end)

    def pause_writing(self) -> None:
        """It does not read what was sent to it."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self._writable.set()

    @property
    def _child(self) -> asyncio.SubprocessTransport:
        return cast("asyncio.SubprocessTransport", self._transport)

    @property
    def _reading(self) -> asyncio.ReadTransport:
        return cast("asyncio.ReadTransport", self._child.get_pipe_transport(1))

    def _hold(self, part: bytes) -> None:
        """Keep a part of a line, as long as the line is no longer than it may be."""
        self._held += len(part)
        if self._held <= self._max_bytes:
            self._parts.append(part)
        elif not self._fault:
            self._fault = f"it sent a message of more than {self._max_bytes:,} bytes"
            self._lines.clear()
            self._signal(signal.SIGKILL)
            self._end()

    def _end(self) -> None:
        self._ended.set()
        self._more.set()
        self._writable.set()

    def _signal(self, number: signal.Signals | None) -> None:
        if number is not None and self._child.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.get_pid(), number)
