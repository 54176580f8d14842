"""Programs at once: an interpreter that has loaded the package forks a process for each one that it is told to run.

What such a program finds is its own: arguments, environment, folder, streams and terminal, and it ends as Python ends.
Only how Python itself begins is not tried: the encoding and the buffers of its streams, or what it does without one.
"""

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, TextIO, TypeAlias

PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL
Stream: TypeAlias = (
    int | TextIO | None
)  # PIPE, DEVNULL, a descriptor, a file, or what this process has
SOURCE = Path(__file__).parents[2] / "src"
LOADED = (
    "loopwright.testing", "loopwright.journals.sqlite.journal", "loopwright.cli.app", "loopwright.cli.run",
    "loopwright.observers.structlog", "loopwright.providers.openai.provider",
)  # fmt: skip


class Forked:
    """A program at work in a process of its own, to be used like a `subprocess.Popen` of texts."""

    def __init__(self, pid: int, status: int, ours: Mapping[str, int]) -> None:
        self.pid, self._status = pid, status
        self.returncode: int | None = None
        self.stdin: TextIO | None = _text(ours.get("stdin"), "w")
        self.stdout: TextIO | None = _text(ours.get("stdout"), "r")
        self.stderr: TextIO | None = _text(ours.get("stderr"), "r")

    def poll(self) -> int | None:
        """How it ended, if it did: a status, or a negative signal."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(os.read(self._status, 64)))
            os.close(self._status)
        return self.returncode

    def communicate(
        self, input: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        """Hand it a text, and wait for its end; what it wrote, of what is left to read."""
        with ThreadPoolExecutor(2) as threads:
            written = [
                threads.submit(_all_of, stream) for stream in (self.stdout, self.stderr)
            ]
            if self.stdin is not None and not self.stdin.closed:
                with contextlib.suppress(BrokenPipeError), self.stdin:
                    self.stdin.write(input or "")
            try:
                out, err = (text.result(timeout) for text in written)
            except TimeoutError:
                self.kill()
                raise
        self.wait(timeout)
        return out, err

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill it if it is at work, and close what is open."""
        self.kill()
        self.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _text(descriptor: int | None, mode: str) -> Any:
    return None if descriptor is None else open(descriptor, mode, encoding="utf-8")


def _all_of(stream: TextIO | None) -> str:
    if stream is None or stream.closed:
        return ""
    with stream:
        return stream.read()


class _Interpreter:
    """An interpreter that forks, until this process ends."""

    def __init__(self, options: Sequence[str]) -> None:
        self._ours, theirs = socket.socketpair()
        path = os.pathsep.join((str(SOURCE), str(Path(__file__).parent)))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *options, __file__, str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": path}, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._answers = self._ours.makefile("r")
        atexit.register(self._close)

    def fork(self, told: Mapping[str, object], streams: Sequence[int]) -> int:
        """The number of a process that does as it is told, with these streams."""
        message = json.dumps(told).encode() + b"\n"
        sent = socket.send_fds(self._ours, [message], streams)
        self._ours.sendall(message[sent:])
        return int(self._answers.readline())

    def _close(self) -> None:
        self._answers.close()
        self._ours.close()
        self._process.wait()


@functools.cache
def _interpreter(options: tuple[str, ...]) -> _Interpreter:
    return _Interpreter(options)


def fork(
    *arguments: object, options: tuple[str, ...] = (), env: Mapping[str, str] | None = None,
    folder: Path | None = None, columns: int = 0,
    stdin: Stream = None, stdout: Stream = None, stderr: Stream = None,
) -> Forked:  # fmt: skip
    """Run what `python *arguments` would.

    Args:
        arguments: a file, `-m` and a module, or `-c` and code; and its arguments.
        options: of Python itself, such as `("-W", "error")`; programs with the same ones share an interpreter.
        env: its environment; `None` is that of this process.
        folder: where it is at work; `None` is where this process is.
        columns: make standard input its terminal, so wide.
        stdin, stdout, stderr: its streams.
    """
    ours, theirs = dict[str, int](), list[int]()
    with contextlib.ExitStack() as opened:
        for number, (name, stream) in enumerate(
            (("stdin", stdin), ("stdout", stdout), ("stderr", stderr))
        ):
            if stream == PIPE:
                ends = os.pipe()
                ours[name], given = ends if number else ends[::-1]
                opened.callback(os.close, given)
            elif stream == DEVNULL:
                given = os.open(os.devnull, os.O_RDWR)
                opened.callback(os.close, given)
            elif stream is None:
                given = number
            else:
                given = stream if isinstance(stream, int) else stream.fileno()
            theirs.append(given)
        status, ended = os.pipe()
        opened.callback(os.close, ended)
        told = {
            "arguments": [*map(str, arguments)],
            "env": dict(os.environ if env is None else env),
        }
        told |= {"folder": str(folder or Path.cwd()), "columns": columns}
        pid = _interpreter(options).fork(told, [*theirs, ended])
    return Forked(pid, status, ours)


def run(
    *arguments: object, timeout: float = 100, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """The same to its end; the streams are pipes, with nothing to read."""
    with fork(
        *arguments, **{"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE, **options}
    ) as process:
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, process.wait(), out, err)


# --- the interpreter ---


def _load() -> None:
    """Load the package, and use it once: what is made at first use is made here, for all forks."""
    for module in LOADED:
        importlib.import_module(module)
    loopwright, testing, sqlite = map(
        importlib.import_module, ("loopwright", *LOADED[:2])
    )
    for name in loopwright.__all__:  # they are loaded when they are asked for
        getattr(loopwright, name)

    @loopwright.tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return what

    async def use() -> None:
        with tempfile.TemporaryDirectory() as folder:
            journal = sqlite.SQLiteJournal(f"{folder}/runs.db")
            provider = testing.ScriptedProvider(
                [testing.call("look", what="sky"), "blue"]
            )
            runtime = loopwright.Runtime(provider, tools=[look], journal=journal)
            await runtime.engine("react").run("What is blue?")
            await journal.close()

    asyncio.run(use())
    importlib.import_module(
        "loopwright.plugins"
    )._find_installed.cache_clear()  # others may be installed by then
    gc.collect()
    gc.freeze()


def _serve(connection: socket.socket) -> dict[str, Any]:
    """Fork a process for each message: it comes back from here with what it was told, and this one never does."""
    at_work = 0
    while True:
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        if not message:
            os._exit(0)
        while not message.endswith(b"\n"):
            message += connection.recv(1 << 20)
        while at_work and os.waitpid(-1, os.WNOHANG)[0]:
            at_work -= 1
        if os.fork() == 0:
            return _begin(connection, streams, json.loads(message))
        at_work += 1
        for stream in streams:
            os.close(stream)


def _begin(
    connection: socket.socket, streams: list[int], told: dict[str, Any]
) -> dict[str, Any]:
    """Be the process that waits for the program, and tells its number and its ending; or be the program."""
    *standard, ended = streams
    pid = os.fork()
    if pid:
        for stream in standard:
            os.close(stream)
        connection.sendall(f"{pid}\n".encode())
        connection.close()
        _, status = os.waitpid(pid, 0)
        os.write(ended, str(status).encode())
        os._exit(0)
    connection.close()
    if told["columns"]:
        import fcntl
        import struct
        import termios

        os.setsid()
        fcntl.ioctl(standard[0], termios.TIOCSCTTY, 0)
        fcntl.ioctl(
            standard[0],
            termios.TIOCSWINSZ,
            struct.pack("HHHH", 24, told["columns"], 0, 0),
        )
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    return told


def _be(told: dict[str, Any]) -> None:
    """Run the program, as Python would that begins with these streams, this folder and this environment."""
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["env"])
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(  # noqa: SIM115 - as above
            number, "w", buffering=1 if number == 2 or os.isatty(number) else -1, closefd=False,
            errors=("strict", "backslashreplace")[number - 1],
        )  # fmt: skip
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    program, *arguments = told["arguments"]
    known = {*sys.path, ""}
    places = [
        place
        for place in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if place not in known
    ]
    match program:
        case "-m":
            sys.argv, sys.path[:1] = arguments, [os.getcwd(), *places]
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        case "-c":
            code, *arguments = arguments
            sys.argv, sys.path[:1] = ["-c", *arguments], ["", *places]
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(main))
        case _:
            sys.argv, sys.path[:1] = (
                [program, *arguments],
                [str(Path(program).parent), *places],
            )
            runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell has what it runs in the background ignore Ctrl-C
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        told = _serve(listening)
    _be(told)
