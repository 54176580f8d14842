"""What tools and plug-ins print while a run is watched: whole lines for its watcher, and nothing on standard output."""

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, TextIO

MAX_LINE_BYTES = 65_536  # bytes that are kept for a line that does not end


@contextlib.contextmanager
def capture_output(tell: Callable[[str], None]) -> Generator[None]:
    """Hands what is printed to a function in whole lines; what started programs print goes to standard error."""
    printed = CapturedOutput(tell, sys.stderr)
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
    """Meanwhile the stream's file descriptor, which started programs inherit, leads where that of the target does."""
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
    ):  # the last one first, each even if another fails
        back.callback(os.close, saved)
        back.callback(os.dup2, saved, descriptor)
        back.callback(
            stream.flush
        )  # what was printed past `sys.stdout`, on the stream itself
        yield


class CapturedOutput(io.BufferedIOBase):
    """Bytes that are handed over as text, in whole lines; a line that is too long is broken."""

    name = "<printed>"

    def __init__(self, tell: Callable[[str], None], behind: TextIO) -> None:
        super().__init__()
        self._hand_over, self._behind = tell, behind
        self._lock = threading.Lock()  # tools print from threads, too
        self._begun: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """That of the stream behind it, for programs that are started with it as their output."""
        return self._behind.fileno()

    def write(self, data: Any, /) -> int:
        """Hand over what is complete, keep the rest for the next time."""
        piece = bytes(data)
        end = piece.rfind(b"\n") + 1
        with self._lock:
            if not end and self._size + len(piece) > MAX_LINE_BYTES:
                end = len(piece)
            if not end:
                self._begun.append(piece)
                self._size += len(piece)
                return len(piece)
            whole = b"".join([*self._begun, piece[:end]])
            self._begun, self._size = [piece[end:]], len(piece) - end
        self._pass_on(whole)
        return len(piece)

    def finish(self) -> None:
        """Hand over a last line that has no end."""
        with self._lock:
            rest = b"".join(self._begun)
            self._begun, self._size = [], 0
        if rest:
            self._pass_on(rest)

    def _pass_on(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "backslashreplace")
        self._hand_over(text if text.endswith("\n") else text + "\n")
