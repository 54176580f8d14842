"""Capture what tools and plug-ins print: whole lines for the watcher of a run, nothing on standard output."""

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, TextIO

MAX_LINE_BYTES = 65_536
"""Bytes kept of a line that has not ended; a longer one is broken."""


@contextlib.contextmanager
def capture_output(write_text: Callable[[str], None]) -> Generator[None]:
    """Pass what is printed to a function in whole lines; output of child processes goes to standard error."""
    printed = CapturedOutput(write_text, sys.stderr)
    # A wrapper has a `buffer`, for tools that write bytes.
    stream = io.TextIOWrapper(
        printed,
        encoding="utf-8",
        errors="backslashreplace",
        newline="\n",
        write_through=True,
    )
    with (
        _descriptor_to(sys.stderr, sys.stdout),
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        try:
            yield
        finally:
            printed.finish()


@contextlib.contextmanager
def _descriptor_to(target: TextIO, stream: TextIO) -> Generator[None]:
    """Redirect the stream's file descriptor, which child processes inherit, to that of the target."""
    try:
        descriptor, other = stream.fileno(), target.fileno()
    except OSError:  # kept in memory, not by the system
        yield
        return
    stream.flush()
    saved = os.dup(descriptor)
    os.dup2(other, descriptor)
    with (
        contextlib.ExitStack() as back
    ):  # undone in reverse, each even if another fails
        back.callback(os.close, saved)
        back.callback(os.dup2, saved, descriptor)
        back.callback(
            stream.flush
        )  # output written to the stream itself, not to sys.stdout
        yield


class CapturedOutput(io.BufferedIOBase):
    """A stream that passes bytes on as text, in whole lines; a line that is too long is broken."""

    name = "<printed>"

    def __init__(self, write_text: Callable[[str], None], behind: TextIO) -> None:
        super().__init__()
        self._write_text, self._behind = write_text, behind
        self._lock = threading.Lock()  # tools print from threads, too
        self._pending: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return that it can be written to."""
        return True

    def fileno(self) -> int:
        """Return that of the stream behind it, for child processes that get it as their output."""
        return self._behind.fileno()

    def write(self, data: Any, /) -> int:
        """Pass on complete lines, keep the rest for the next call."""
        chunk = bytes(data)
        end = chunk.rfind(b"\n") + 1
        with self._lock:
            if not end and self._size + len(chunk) > MAX_LINE_BYTES:
                end = len(chunk)
            if not end:
                self._pending.append(chunk)
                self._size += len(chunk)
                return len(chunk)
            whole = b"".join([*self._pending, chunk[:end]])
            self._pending, self._size = [chunk[end:]], len(chunk) - end
        self._pass_on(whole)
        return len(chunk)

    def finish(self) -> None:
        """Pass on a last line without an end."""
        with self._lock:
            rest = b"".join(self._pending)
            self._pending, self._size = [], 0
        if rest:
            self._pass_on(rest)

    def _pass_on(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "backslashreplace")
        self._write_text(text if text.endswith("\n") else text + "\n")
