"""Programs run for tools: no shell, no standard input, a bare environment, and nothing left of them afterwards."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from ..errors import ToolError

DRAINING = 0.25
"""Seconds in which output may still arrive once a program has ended."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """What came of a program.

    Args:
        code: its exit code; minus the number of the signal that ended it.
        output: what it wrote to its standard output, as far as that was kept; bytes that are no UTF-8 become U+FFFD.
        errors: the same of its standard error.
        cut: whether it wrote more than was kept of either.
        timed_out: whether it was killed because its time was over.
    """

    code: int
    output: str
    errors: str
    cut: bool = False
    timed_out: bool = False


def bare_environment(names: Iterable[str] = ()) -> dict[str, str]:
    """The environment for a program: where programs are, a UTF-8 locale, and those of our own variables in `names`."""
    kept = {name: os.environ[name] for name in ("PATH", *names) if name in os.environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **kept}


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str],
    timeout: float,
    max_bytes: int = 100_000,
) -> Ran:
    """Run a program and wait for its end, at most `timeout` seconds.

    It runs in a process group of its own. When it has ended, when its time is over and when the caller is cancelled,
    all that is left in that group is killed; only a process that made itself a session of its own gets away.
    Of each of its two streams the first `max_bytes` are kept. Raises `ToolError` if it cannot be started.
    """
    try:
        # Not asyncio's own: that one reaps the program at once, and then its number may be somebody else's.
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - there is no shell; what runs was checked by who asks
            list(argv), cwd=cwd, env=dict(env), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        reason = (
            error.strerror
            if isinstance(error, OSError)
            else "an argument is no text that a program can be given"
        )
        raise ToolError(f"{Path(argv[0]).name} cannot be started: {reason}") from error
    with contextlib.ExitStack() as stack:
        stack.callback(end, process)
        output = await _kept(process.stdout, max_bytes, stack)
        errors = await _kept(process.stderr, max_bytes, stack)
        timed_out = False
        try:
            async with asyncio.timeout(timeout):
                await _ended(process)
        except TimeoutError:
            timed_out = True
        end(process)
        await asyncio.wait([output.closed, errors.closed], timeout=DRAINING)
    code = -signal.SIGKILL if process.returncode is None else process.returncode
    return Ran(code, output.text(), errors.text(), output.cut or errors.cut, timed_out)


class _Kept(asyncio.Protocol):
    """The first bytes of a stream; the rest is read, so that nobody waits for room in a pipe, and dropped."""

    def __init__(self, most: int) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.cut = False
        self._bytes, self._most = bytearray(), most

    def data_received(self, data: bytes) -> None:
        room = self._most - len(self._bytes)
        self._bytes += data[:room]
        self.cut = self.cut or len(data) > room

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def text(self) -> str:
        return self._bytes.decode("utf-8", "replace")


async def _kept(
    stream: IO[bytes] | None, most: int, stack: contextlib.ExitStack
) -> _Kept:
    pipe = cast("IO[bytes]", stream)  # it was asked for
    stack.callback(pipe.close)
    transport, kept = await asyncio.get_running_loop().connect_read_pipe(
        lambda: _Kept(most), pipe
    )
    stack.callback(transport.close)
    return kept


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until a program has ended, and leave it a zombie: as long as it is one, nobody else gets its number."""
    pause = 0.001
    while not _is_zombie(process):
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.05)


def _is_zombie(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):  # macOS
        return process.poll() is not None
    return (
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        is not None
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program and its children, and let go of its number.

    The program must not have been reaped before: its children may have outlived it, and its number is their group's.
    """
    if process.returncode is not None and hasattr(os, "waitid"):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # there is none left
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(
        subprocess.TimeoutExpired
    ):  # it hangs in the system; it ends when that lets it
        process.wait(1.0)
