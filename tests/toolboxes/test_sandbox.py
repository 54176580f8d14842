"""Programs of tools in a sandbox: what they cannot read, write, reach or outlive, tried with real programs."""

import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from loopwright import ConfigError, ReActEngine, Runtime
from loopwright.errors import ToolError
from loopwright.testing import ScriptedProvider, call
from loopwright.toolboxes.manifest import manifest
from loopwright.toolboxes.sandbox import BubblewrapSandbox, ConfinedProgram
from loopwright.toolboxes.shell import Command, shell


@pytest.fixture
def sandbox() -> BubblewrapSandbox:
    try:
        return BubblewrapSandbox()
    except ConfigError as error:
        pytest.skip(str(error))


def run(arguments: list[str], work: Path, sandbox: BubblewrapSandbox | None) -> str:
    """Return what a model reads of a program that it runs."""
    program, *rest = arguments
    form = "-c **" if program == "bash" else "**"
    tools = shell([Command(program, (form,), name="it")], cwd=work, sandbox=sandbox)
    model = ScriptedProvider([call("it", arguments=[*rest]), "Done."])
    result = ReActEngine(Runtime(model, tools=tools)).run_sync("Go.")
    return next(one.content for one in result.conversation if one.role == "tool")


@pytest.fixture
def server() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_program_in_a_sandbox_reads_and_writes_its_directory_only(
    work: Path, sandbox: BubblewrapSandbox
) -> None:
    secret = str(work.parent / "secret")

    for path in (secret, str(work / "link")):
        assert "swordfish" in run(["cat", path], work, None)
        assert "No such file" in run(["cat", path], work, sandbox)
    assert "[exit code 0]" in run(["touch", str(work / "made")], work, sandbox)
    assert (work / "made").exists()
    for path in (str(work.parent / "other"), "/usr/bin/other", "/etc/other"):
        run(["touch", path], work, sandbox)
        assert not os.path.exists(path)
    closed = BubblewrapSandbox(write_cwd=False)
    assert "Read-only" in run(["touch", str(work / "more")], work, closed)
    opened = BubblewrapSandbox(readable=[secret])
    assert "swordfish" in run(["cat", secret], work, opened)


def test_a_program_in_a_sandbox_reaches_no_network_and_no_process(
    work: Path, sandbox: BubblewrapSandbox, server: int
) -> None:
    # bash opens the connection, so that no other program is needed.
    talk = f"exec 3<>/dev/tcp/127.0.0.1/{server} && echo reached"
    arguments = ["bash", "-c", talk]
    shared = BubblewrapSandbox(network=True)

    assert "reached" in run(arguments, work, shared)
    assert "reached" not in run(arguments, work, sandbox)
    seen = run(["ls", "/proc"], work, sandbox)
    assert str(os.getpid()) not in seen.split()


def test_a_program_in_a_sandbox_ends_with_all_that_it_started(
    work: Path, sandbox: BubblewrapSandbox
) -> None:
    # A session of its own is what escapes a process group.
    program = (
        "setsid sh -c 'while :; do date +%s%N > beat; sleep 0.02; done' & sleep 60"
    )
    for seconds in (1.0, 15.0):  # a busy machine may take long to start a program
        tools = shell([Command("bash", ("-c **",), name="it")], cwd=work, timeout=seconds, sandbox=sandbox)  # fmt: skip
        model = ScriptedProvider([call("it", arguments=["-c", program]), "Done."])
        result = ReActEngine(Runtime(model, tools=tools)).run_sync("Go.")
        said = [one.content for one in result.conversation if one.role == "tool"]
        assert f"did not end within {seconds:g} s" in said[0]
        if (work / "beat").exists():
            break

    last = (work / "beat").read_text()
    time.sleep(0.2)
    assert (work / "beat").read_text() == last, "it still runs"


def test_a_program_that_a_sandbox_does_not_show_is_an_error_when_made(
    work: Path, sandbox: BubblewrapSandbox
) -> None:
    program = work.parent / "program"
    shutil.copy("/bin/true", program)

    with pytest.raises(ConfigError, match="is not visible in it; add its directory"):
        shell([Command(str(program))], cwd=work, sandbox=sandbox)
    with pytest.raises(ConfigError, match="readable: '/not/there' does not exist"):
        BubblewrapSandbox(readable=["/not/there"])
    with pytest.raises(ConfigError, match="writable: '/' is everything"):
        BubblewrapSandbox(writable=["/"])
    with pytest.raises(ConfigError, match='sandbox: must be "bubblewrap" or an object'):
        shell("true", sandbox="chroot")


def test_a_program_is_not_started_where_it_would_see_the_system_or_the_home(
    work: Path, sandbox: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(work.parent))
    (work / "root").symlink_to("/")
    file = work / "tools.toml"
    file.write_text(
        '[[tool]]\nname = "peek"\ndescription = "Peek."\neffect = "read"\nargv = ["ls"]\nfolder = "root"\n'
    )
    refused = ["/", "/usr", "/etc", "/proc", "/tmp", work.parent, work.parent.parent]

    for cwd in refused:
        with pytest.raises(ConfigError, match=f"cwd '{cwd}' cannot be .* start in a"):
            shell("ls", cwd=cwd, sandbox=sandbox)
    with pytest.raises(ConfigError, match=r"'peek': sandbox: cwd '.*/root' cannot be"):
        manifest(file, sandbox=sandbox)
    for cwd in ("/proc/sys", "/sys/kernel", "/dev/shm"):
        with pytest.raises(ConfigError, match=f"'{cwd}' cannot be .* start in a"):
            shell("ls", cwd=cwd, sandbox=sandbox)
    monkeypatch.chdir("/")
    with pytest.raises(ConfigError, match="cwd '/' cannot be confined"):
        shell("ls", sandbox="bubblewrap")
    assert "[exit code 0]" in run(["ls"], work, sandbox)


class Prefixed:
    """A sandbox of an application's own."""

    guarantees = ("none",)

    def confine(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> ConfinedProgram:
        return ConfinedProgram(("/usr/bin/env", "MARK=1", *argv), env)


async def test_programs_of_a_manifest_and_of_own_sandboxes_are_confined(
    work: Path, sandbox: BubblewrapSandbox
) -> None:
    file = work / "tools.toml"
    file.write_text(
        '[[tool]]\nname = "peek"\ndescription = "Peek."\neffect = "read"\n'
        f'argv = ["cat", "{work.parent / "secret"}"]\n'
    )
    [plain], [confined] = manifest(file), manifest(file, sandbox=sandbox)
    [mine] = shell("env", cwd=work, sandbox=Prefixed())

    assert "swordfish" in await plain.function()
    with pytest.raises(ToolError, match="No such file"):
        await confined.function()
    assert "MARK=1" in await mine.function(arguments=[])


async def test_a_confined_program_of_a_manifest_changes_no_tool_unless_asked_for(
    work: Path, sandbox: BubblewrapSandbox
) -> None:
    file, program = work / "tools.toml", work / "greet.sh"
    program.write_text("#!/bin/sh\necho '#' >> tools.toml\necho '#' >> greet.sh\n")
    program.chmod(0o755)
    file.write_text(
        '[[tool]]\nname = "greet"\ndescription = "Greet."\nargv = ["./greet.sh"]\n'
    )
    before = file.read_text(), program.read_text()
    open_sandbox = BubblewrapSandbox(write_cwd=True)

    for confining in ("bubblewrap", sandbox):
        [greet] = manifest(file, sandbox=confining)
        with pytest.raises(ToolError, match="Read-only file system"):
            await greet.function()
        assert (file.read_text(), program.read_text()) == before
    [greet] = manifest(file, sandbox=open_sandbox)
    await greet.function()
    assert file.read_text() == before[0] + "#\n"


def test_without_bubblewrap_no_tool_is_made(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def which(name: str, path: str | None = None) -> str | None:
        return None if name == "bwrap" else f"/bin/{name}"

    monkeypatch.setattr(shutil, "which", which)

    with pytest.raises(
        ConfigError, match="needs the program bwrap; install bubblewrap"
    ):
        shell("true", cwd=work, sandbox="bubblewrap")
