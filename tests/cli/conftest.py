"""An installed distribution with a scripted provider, and the three ways to use the command: in process, as a process,
and as a process at a terminal."""

import contextlib
import functools
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from forked_processes import Forked, fork
from loopwright import plugins
from loopwright.cli.app import app

from .using import AtTerminal, Invoke, Start

HERE = Path(__file__).parent
BUILT = functools.cache(get_command)
"""The commands, built once: typer's runner would build all of them for each of several hundred invocations."""
ENTRY_POINTS = """\
[loopwright.providers]
scripted = scripted_cli:provider
[loopwright.toolboxes]
box = scripted_cli:box
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, beside which the distribution `scripted-cli` is installed."""
    installed, work = tmp_path / "installed", tmp_path / "work"
    metadata = installed / "scripted_cli-1.0.dist-info"
    metadata.mkdir(parents=True)
    work.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: scripted-cli\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (installed / "scripted_cli.py").write_text((HERE / "scripted_cli.py").read_text())
    for variable in (
        "LOOPWRIGHT_JOURNAL",
        "LOOPWRIGHT_PROVIDER",
        "LOOPWRIGHT_PLUGINS",
        "OPENAI_API_KEY",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setenv("SCRIPTED_LOG", str(tmp_path / "log"))
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.chdir(work)
    before = set(sys.modules)
    plugins._find_installed.cache_clear()
    yield work
    plugins._find_installed.cache_clear()
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]
    if str(work) in sys.path:  # the command puts the current folder there
        sys.path.remove(str(work))


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs the command in this process."""
    monkeypatch.setattr("typer.testing._get_command", BUILT)

    def invoke(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, arguments, input=input, prog_name="loopwright")

    return invoke


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the command as a process of its own, with pipes."""
    with contextlib.ExitStack() as begun:

        def start(*arguments: str, **options: Any) -> Forked:
            pipes = {
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            }
            return begun.enter_context(fork("-m", "loopwright", *arguments, **pipes))

        yield start


@pytest.fixture
def start_python() -> Iterator[Start]:
    """The same, where it matters how Python itself begins."""
    with contextlib.ExitStack() as begun:

        def start(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
            pipes = {
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            }
            command = [sys.executable, "-m", "loopwright", *arguments]
            process = begun.enter_context(subprocess.Popen(command, text=True, **pipes))
            begun.callback(process.kill)
            return process

        yield start


@pytest.fixture
def log(tmp_path: Path) -> Callable[[], list[str]]:
    """What models and tools really did so far, in all processes."""
    return lambda: (
        (tmp_path / "log").read_text().splitlines()
        if (tmp_path / "log").exists()
        else []
    )


@pytest.fixture
def at_terminal() -> AtTerminal:
    """Runs the command at a terminal; types each text when the words before it are on the screen."""

    def run(
        *arguments: str,
        typed: Sequence[tuple[str, str]] = (),
        columns: int = 100,
        env: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        ours, theirs = os.openpty()
        # The width is that of the terminal: a parallel run exports another one.
        inherited = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
        environment = {**inherited, "TERM": "xterm-256color", **(env or {})}
        command = ("-m", "loopwright", *arguments)
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        process = fork(*command, env=environment, columns=columns, **streams)
        os.close(theirs)
        try:
            screen = converse(ours, typed)
            return process.wait(timeout=60), screen.replace("\r\n", "\n")
        finally:
            process.close()
            os.close(ours)

    return run


def converse(terminal: int, typed: Sequence[tuple[str, str]]) -> str:
    """Type each text when the words before it have come; gives all that came until the end."""
    screen, left, seen = "", list(typed), 0
    while True:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"nothing more comes: {screen}"
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return screen
        if not piece:
            return screen
        screen += piece.decode("utf-8", "replace")
        while left and left[0][0] in screen[seen:]:
            seen = screen.index(left[0][0], seen) + len(left[0][0])
            os.write(terminal, left.pop(0)[1].encode())
