"""Programs run for tools: no shell, no standard input, a bare environment, and no surviving children."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from .._internal import dataclasses
from ..errors import ToolError
from .sandbox import ConfinedProgram, Sandbox

CLEANING = 30.0
"""Seconds for the command that ends what killing a confined program left."""
DRAINING = 0.25
"""Seconds in which output may still arrive once a program has ended."""


@dataclasses.dataclass(frozen=True)
class ProcessResult:
    """The outcome of a program.

    Args:
        code: its exit code, or the negative number of the signal that ended it.
        output: what it wrote to its standard output, within the limit; bytes that are not UTF-8
            become U+FFFD.
        errors: the same for its standard error.
        cut: whether it wrote more than the limit to either.
        timed_out: whether it was killed because its time was over.
    """

    code: int
    output: str
    errors: str
    cut: bool = False
    timed_out: bool = False


def bare_environment(names: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment for a program: PATH, a UTF-8 locale, and our own variables in `names`."""
    kept = {name: os.environ[name] for name in ("PATH", *names) if name in os.environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **kept}


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str],
    timeout: float,
    max_bytes: int = 100_000,
    sandbox: Sandbox | None = None,
) -> ProcessResult:
    """Run a program and wait for its end, at most `timeout` seconds.

    It runs in a new process group. When it has ended, when its time is over and when the caller is
    cancelled, all remaining processes of the group are killed; only a process that started a new
    session escapes, and in a sandbox none. The first `max_bytes` of each of its two streams are kept.
    Raises `ToolError` if it cannot be started.
    """
    confined = _confine(argv, cwd, env, sandbox)
    process = _start(confined, cwd)
    with contextlib.ExitStack() as stack:
        cleanup = Cleanup(confined)
        stack.callback(cleanup.begin)
        stack.callback(end, process)
        output = await _read_bounded(process.stdout, max_bytes, stack)
        errors = await _read_bounded(process.stderr, max_bytes, stack)
        timed_out = False
        try:
            async with asyncio.timeout(timeout):
                await _wait_for_end(process)
        except TimeoutError:
            timed_out = True
        end(process)
        code = -signal.SIGKILL if process.returncode is None else process.returncode
        await cleanup.finish(is_killed=timed_out or code < 0)
        await asyncio.wait([output.closed, errors.closed], timeout=DRAINING)
    return ProcessResult(
        code, output.text(), errors.text(), output.cut or errors.cut, timed_out
    )


def _confine(
    argv: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    sandbox: Sandbox | None,
) -> ConfinedProgram:
    if sandbox is None:
        return ConfinedProgram(tuple(argv), env)
    folder = Path.cwd() if cwd is None else Path(cwd).absolute()
    return sandbox.confine(argv, cwd=folder, env=env)


class Cleanup:
    """Ends once what killing a confined program left, such as its container."""

    def __init__(self, confined: ConfinedProgram) -> None:
        self._confined = confined
        self._is_due = bool(confined.cleanup)

    async def finish(self, *, is_killed: bool) -> None:
        """Wait until a program that was killed has left nothing; one that ended by itself leaves nothing."""
        is_due, self._is_due = self._is_due and is_killed, False
        if is_due:
            await asyncio.to_thread(self._run)

    def begin(self) -> None:
        """Have it done beside the event loop, for a call that is cancelled and cannot wait."""
        if self._is_due:
            self._is_due = False
            threading.Thread(target=self._run, name="loopwright-cleanup").start()

    def _run(self) -> None:
        confined = self._confined
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - the sandbox's own words
                list(confined.cleanup), env=dict(confined.env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, timeout=CLEANING, check=False,
            )  # fmt: skip


def _start(
    confined: ConfinedProgram, cwd: str | os.PathLike[str] | None
) -> subprocess.Popen[bytes]:
    argv, env = confined.argv, confined.env
    try:
        # Not asyncio's: that reaps the program at once, and its number may then be reused.
        return subprocess.Popen(  # noqa: S603 - without a shell; the caller has checked argv
            list(argv),
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        reason = "an argument is not a text that a program can be given"
        if isinstance(error, OSError):
            reason = str(error.strerror)
        raise ToolError(f"{Path(argv[0]).name} cannot be started: {reason}") from error


class _BoundedReader(asyncio.Protocol):
    """Keeps the first bytes of a stream and drops the rest, so that the writer never blocks."""

    def __init__(self, max_bytes: int) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.cut = False
        self._bytes, self._max_bytes = bytearray(), max_bytes

    def data_received(self, data: bytes) -> None:
        room = self._max_bytes - len(self._bytes)
        self._bytes += data[:room]
        self.cut = self.cut or len(data) > room

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def text(self) -> str:
        return self._bytes.decode("utf-8", "replace")


async def _read_bounded(
    stream: IO[bytes] | None, max_bytes: int, stack: contextlib.ExitStack
) -> _BoundedReader:
    pipe = cast("IO[bytes]", stream)  # `subprocess.PIPE` made it
    stack.callback(pipe.close)
    transport, kept = await asyncio.get_running_loop().connect_read_pipe(
        lambda: _BoundedReader(max_bytes), pipe
    )
    stack.callback(transport.close)
    return kept


async def _wait_for_end(process: subprocess.Popen[bytes]) -> None:
    """Wait until a program has ended, and leave it a zombie, so that its number is not reused."""
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
    """Kill the remaining processes of a program's group, and reap the program.

    It must not have been reaped before: its children may outlive it, and its number is their group's.
    """
    if process.returncode is not None and hasattr(os, "waitid"):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # there is none left
        os.killpg(process.pid, signal.SIGKILL)
    # A process that hangs in a system call ends when the call returns.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
