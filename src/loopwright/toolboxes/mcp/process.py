"""The process of an MCP server: lines of limited length in and out, and a certain end."""

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

INHERITED = ("HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ")
"""Variables of our environment that a server gets besides PATH: programs look up their files there."""
MAX_ERROR_BYTES = 2_000
"""Last bytes of its standard error that an error message quotes."""
MAX_LINES = 64
"""Unread lines; at that number, or at one message's worth of bytes, the server must wait."""
DRAIN_TIMEOUT = 0.25
"""Seconds in which lines may still arrive after its end."""
GRACE_SECONDS = (1.0, 0.5, 1.0)
"""Seconds to end after its input is closed, after SIGTERM, and after SIGKILL."""


class _Stream(asyncio.Protocol):
    """Passes the output of a process to a function."""

    def __init__(
        self, on_data: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> None:
        self._on_data, self._on_close = on_data, on_close

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_close()


class ServerProcess(asyncio.BaseProtocol):
    """A started server. Read it with `read_line`, write with `send`, end it with `stop`.

    Args:
        server: the program.
        max_bytes: the longest line; a server that sends a longer one is killed.
    """

    def __init__(self, server: StdioServer, max_bytes: int) -> None:
        self._server, self._max_bytes = server, max_bytes
        self._child: subprocess.Popen[bytes] | None = None
        self._input: asyncio.WriteTransport | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._held = 0  # bytes of the line that is being read
        self._unread = 0  # bytes of the lines that wait to be read
        self._errors = bytearray()
        self._fault = ""
        self._more, self._ended = asyncio.Event(), asyncio.Event()
        self._exited = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    async def start(self) -> None:
        """Start it in a new process group. Raises `OSError` or `ValueError` if that fails."""
        server, loop = self._server, asyncio.get_running_loop()
        # Not asyncio's: that reaps the program at once, and its number may then be reused.
        child = self._child = subprocess.Popen(  # noqa: ASYNC220, S603 - no shell; the caller named it
            [server.command, *server.args],
            env=bare_environment(INHERITED) | dict(server.env),
            cwd=server.cwd,
            start_new_session=True,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        threading.Thread(
            target=self._watch,
            args=(child, loop),
            name="loopwright-mcp-watch",
            daemon=True,
        ).start()
        try:
            for pipe, on_data, on_close in (
                (child.stdout, self._on_output, self._end),
                (child.stderr, self._on_error_output, _ignore),
            ):
                output, _ = await loop.connect_read_pipe(
                    functools.partial(_Stream, on_data, on_close), pipe
                )
                self._outputs.append(output)
            self._input, _ = await loop.connect_write_pipe(lambda: self, child.stdin)
        except BaseException:
            self._release(child)
            raise

    def _watch(
        self, child: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Wait, in a thread, for the end of the server, and leave a zombie, so its number is not reused."""
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):  # it was released
                os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        else:  # macOS
            child.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._exit)

    @property
    def ending(self) -> str:
        """Return how it ended and its last errors, for the person who configured it."""
        how = self._fault or self._describe_exit()
        errors = self._errors.decode("utf-8", "replace").strip()
        return f"{how}; it wrote: {errors}" if errors else how

    def _describe_exit(self) -> str:
        code = self._child.returncode if self._child is not None else None
        if code is None:
            return "it closed its output"
        return f"it ended with exit code {code}"

    @property
    def fault(self) -> str:
        """Return its violation of the limits; empty if there is none."""
        return self._fault

    async def read_line(self) -> bytes | None:
        """Return the next line, without its end; `None` if there will be no more."""
        while not self._lines:
            if self._ended.is_set():
                return None
            self._more.clear()
            await self._more.wait()
        line = self._lines.popleft()
        self._unread -= len(line)
        if not self._lines and not self._ended.is_set():
            self._outputs[0].resume_reading()
        return line

    async def send(self, line: bytes) -> None:
        """Write a line, and wait while the server is slow to read. Unread lines are lost at its end."""
        if self._input is not None and not self._input.is_closing():
            self._input.write(line + b"\n")
        await self._writable.wait()

    async def stop(self) -> None:
        """End it: close its input, then SIGTERM, then SIGKILL, each after a grace period.

        Processes that it started are killed with it, also if it ended by itself.
        """
        child = self._child
        if child is None:
            return
        if self._input is not None:
            self._input.close()
        try:
            for grace, number in zip(
                GRACE_SECONDS, (signal.SIGTERM, signal.SIGKILL, None), strict=True
            ):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._exited.wait(), grace)
                    return
                self._signal(number)
        finally:
            self._release(child)

    def _release(self, child: subprocess.Popen[bytes]) -> None:
        end(child)
        if self._input is not None:
            self._input.abort()
        for output in self._outputs:
            output.close()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()

    # --- callbacks of asyncio ---

    def _on_output(self, data: bytes) -> None:
        """Collect the lines of its standard output."""
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._hold(part)
            line = b"".join(self._parts)
            self._parts, self._held = [], 0
            if line.strip() and not self._fault:
                self._lines.append(line)
                self._unread += len(line)
        self._hold(rest)
        self._more.set()
        if len(self._lines) > MAX_LINES or self._unread > self._max_bytes:
            self._outputs[0].pause_reading()

    def _on_error_output(self, data: bytes) -> None:
        """Keep the end of its standard error."""
        self._errors = (self._errors + data)[-MAX_ERROR_BYTES:]
        if self._server.show_stderr:
            sys.stderr.write(data.decode("utf-8", "replace"))

    def _exit(self) -> None:
        """Note its end; a child of it may still keep its output open."""
        self._exited.set()
        asyncio.get_running_loop().call_later(DRAIN_TIMEOUT, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it closed its input."""
        self._input = None
        self._writable.set()

    def pause_writing(self) -> None:
        """Wait: it does not read its input."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continue: it reads its input again."""
        self._writable.set()

    def _hold(self, part: bytes) -> None:
        """Keep a part of a line; kill the server if the line is too long."""
        self._held += len(part)
        if self._held <= self._max_bytes:
            self._parts.append(part)
        elif not self._fault:
            self._fault = f"it sent a message of more than {self._max_bytes:,} bytes"
            self._lines.clear()
            self._unread = 0
            self._signal(signal.SIGKILL)
            self._end()

    def _end(self) -> None:
        self._ended.set()
        self._more.set()
        self._writable.set()

    def _signal(self, number: signal.Signals | None) -> None:
        child = self._child
        if number is None or child is None or child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)


def _ignore() -> None:
    """Ignore that a server closes its standard error."""
