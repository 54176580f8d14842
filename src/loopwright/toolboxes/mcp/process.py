"""The process of an MCP server: lines go in and come out, no line without an end, and it is ended in any case."""

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable

from ..processes import bare_environment, end
from .servers import StdioServer

PASSED_ON = ("HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ")
"""Of our environment, besides the PATH, a server gets these: programs look for their files there."""
LAST_WORDS = 2_000  # bytes of what it wrote to its standard error, for who set it up
MAX_LINES = (
    64  # that wait to be read, or one message's worth of bytes; then the server waits
)
DRAINING = 0.25  # seconds in which lines may still arrive once it has ended
GRACE = (
    1.0,
    0.5,
    1.0,
)  # seconds to end once its input is closed, once it was asked to, once it was killed


class _Stream(asyncio.Protocol):
    """What comes out of a process, told to somebody."""

    def __init__(
        self, heard: Callable[[bytes], None], closed: Callable[[], None]
    ) -> None:
        self._heard, self._closed = heard, closed

    def data_received(self, data: bytes) -> None:
        self._heard(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()


class ServerProcess(asyncio.BaseProtocol):
    """A started server. Read it with `line`, write to it with `send`, end it with `stop`.

    Args:
        server: what to start.
        max_bytes: the longest line that is taken; a server that sends a longer one is killed.
    """

    def __init__(self, server: StdioServer, max_bytes: int) -> None:
        self._server, self._max_bytes = server, max_bytes
        self._child: subprocess.Popen[bytes] | None = None
        self._input: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._held = self._waiting = (
            0  # bytes of the line that is being read, and of those that wait
        )
        self._errors = bytearray()
        self._fault = ""
        self._more, self._ended, self._exited = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )
        self._writable = asyncio.Event()
        self._writable.set()

    async def start(self) -> None:
        """Start it, in a process group of its own. Raises OSError or ValueError if that cannot be done."""
        server, loop = self._server, asyncio.get_running_loop()
        environment = bare_environment(PASSED_ON) | dict(server.env)
        # Not asyncio's own: that one reaps the program at once, and then its number may be somebody else's.
        child = self._child = subprocess.Popen(  # noqa: ASYNC220, S603 - there is no shell; who set it up named it
            [server.command, *server.args], env=environment, cwd=server.cwd, start_new_session=True, bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        threading.Thread(
            target=self._watch,
            args=(child, loop),
            name="loopwright-mcp-watch",
            daemon=True,
        ).start()
        try:
            for pipe, heard, closed in (
                (child.stdout, self._hear, self._end),
                (child.stderr, self._complain, _nothing),
            ):
                output, _ = await loop.connect_read_pipe(
                    functools.partial(_Stream, heard, closed), pipe
                )
                self._outputs.append(output)
            self._input, _ = await loop.connect_write_pipe(lambda: self, child.stdin)
        except BaseException:
            self._let_go(child)
            raise

    def _watch(
        self, child: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Wait, in a thread, until the server has ended, and leave it a zombie: nobody else gets its number so."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):  # it was let go of
                os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS
            child.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._exit)

    @property
    def ending(self) -> str:
        """How it ended, and what it said last, for who set it up."""
        code = self._child.returncode if self._child is not None else None
        how = self._fault or (
            f"it ended with exit code {code}"
            if code is not None
            else "it closed its output"
        )
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
        self._waiting -= len(line)
        if not self._lines and not self._ended.is_set():
            self._outputs[0].resume_reading()
        return line

    async def send(self, line: bytes) -> None:
        """Write a line; waits while the server is slow to read. What a server does not read any more is lost."""
        if self._input is not None and not self._input.is_closing():
            self._input.write(line + b"\n")
        await self._writable.wait()

    async def stop(self) -> None:
        """End it: close its input, ask it, kill it; each if the one before did not do it in time.

        What it started and did not end is killed with it, also if it ended by itself.
        """
        child = self._child
        if child is None:
            return
        if self._input is not None:
            self._input.close()
        try:
            for grace, number in zip(
                GRACE, (signal.SIGTERM, signal.SIGKILL, None), strict=True
            ):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._exited.wait(), grace)
                    return
                self._signal(number)
        finally:
            self._let_go(child)

    def _let_go(self, child: subprocess.Popen[bytes]) -> None:
        end(child)
        if self._input is not None:
            self._input.abort()
        for output in self._outputs:
            output.close()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()

    # --- what asyncio tells ---

    def _hear(self, data: bytes) -> None:
        """It wrote something to its standard output."""
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._hold(part)
            line = b"".join(self._parts)
            self._parts, self._held = [], 0
            if line.strip() and not self._fault:
                self._lines.append(line)
                self._waiting += len(line)
        self._hold(rest)
        self._more.set()
        if len(self._lines) > MAX_LINES or self._waiting > self._max_bytes:
            self._outputs[0].pause_reading()

    def _complain(self, data: bytes) -> None:
        """It wrote something to its standard error."""
        self._errors = (self._errors + data)[-LAST_WORDS:]
        if self._server.show_stderr:
            sys.stderr.write(data.decode("utf-8", "replace"))

    def _exit(self) -> None:
        """It has ended; a child of it may still hold its output open."""
        self._exited.set()
        asyncio.get_running_loop().call_later(DRAINING, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        """It closed its input."""
        self._input = None
        self._writable.set()

    def pause_writing(self) -> None:
        """It does not read what was sent to it."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self._writable.set()

    def _hold(self, part: bytes) -> None:
        """Keep a part of a line, as long as the line is no longer than it may be."""
        self._held += len(part)
        if self._held <= self._max_bytes:
            self._parts.append(part)
        elif not self._fault:
            self._fault = f"it sent a message of more than {self._max_bytes:,} bytes"
            self._lines.clear()
            self._waiting = 0
            self._signal(signal.SIGKILL)
            self._end()

    def _end(self) -> None:
        self._ended.set()
        self._more.set()
        self._writable.set()

    def _signal(self, number: signal.Signals | None) -> None:
        if (
            number is not None
            and self._child is not None
            and self._child.returncode is None
        ):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)


def _nothing() -> None:
    """That a server closes its standard error means nothing."""
