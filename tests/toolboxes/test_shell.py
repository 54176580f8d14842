"""The shell toolbox: nothing runs unless it is named with its arguments, and nothing is left running."""

import asyncio
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import ConfigError, ReActEngine, Runtime, Tool, ToolError
from loopwright.plugins import build_tools
from loopwright.testing import ScriptedProvider, call
from loopwright.toolboxes.shell import Command, _parse_form, shell

PYTHON = Command(sys.executable, ("-c **",), name="run_python")


def python(**options: object) -> Tool:
    """A tool that runs Python code."""
    (made,) = shell([PYTHON], **options)  # type: ignore[arg-type]
    return made


async def ran(code: str, *arguments: str, **options: object) -> str:
    """What the tool says of a run of that code, or how it refuses."""
    try:
        return str(await python(**options)(["-c", code, *arguments]))
    except ToolError as error:
        return str(error)


async def refused(tool: Tool, arguments: Sequence[str]) -> str:
    with pytest.raises(ToolError) as raised:
        await tool(list(arguments))
    return str(raised.value)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and only waits to be collected does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(
        f"/proc/{pid}/stat"
    )  # other systems collect what has lost its parent at once
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in (
        "Z",
        "X",
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what is about to happen; the test's time-out ends it if it does not."""
    while not condition():  # noqa: ASYNC110 - what happens is in other processes
        await asyncio.sleep(0.01)


# --- off by default ---


@pytest.mark.parametrize("nothing", [(), "", " , ", []])
def test_without_a_command_there_is_no_shell(nothing: str | list[str]) -> None:
    with pytest.raises(
        ConfigError,
        match=r'commands: no program may run unless it is named, .*like shell\(\["git status"',
    ):
        shell(nothing)
    with pytest.raises(ConfigError, match="commands: no program may run"):
        build_tools("shell")


def test_by_name_commands_stand_between_commas() -> None:
    made = build_tools("shell:echo [-n] *,cat,echo one")

    assert [tool.name for tool in made] == ["run_echo", "run_cat"]
    assert "Allowed are: `echo [-n] *`; `echo one`" in made[0].description


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "  \t "])
def test_the_form_of_a_command_is_what_stands_behind_its_program_whatever_the_blank(
    blank: str,
) -> None:
    (echo,) = shell([f"{blank}echo{blank}one{blank}[-n]{blank}"])

    assert "Allowed are: `echo one" in echo.description
    assert asyncio.run(echo(["one", "-n"])) == "[exit code 0]\none -n"
    for arguments in (["two"], ["-n"], []):
        with pytest.raises(ToolError, match="echo may not be run with these arguments"):
            asyncio.run(echo(arguments))


@pytest.mark.parametrize(
    ("commands", "options", "says"),
    [
        (["no-such-program"], {}, "there is no program 'no-such-program' in /"),
        (
            ["./tool"],
            {},
            "'./tool': give a name to look up in PATH, or an absolute path",
        ),
        (
            ["echo * late"],
            {},
            r"'\* late': 'late' is required, so it must stand before",
        ),
        (["echo 'half"], {}, "cannot be read: No closing quotation"),
        (
            ["'my echo' one"],
            {},
            r"write a program with blanks in its name as Command\(program, \(form,\)\)",
        ),
        (["ec'ho x' *"], {}, "write a program with blanks in its name as Command"),
        (["echo\u00a0one"], {}, "write a program with blanks in its name as Command"),
        ([Command("echo", ())], {}, "echo: arguments must be a tuple of forms"),
        ([Command("echo", "status")], {}, "echo: arguments must be a tuple of forms"),  # type: ignore[arg-type]
        (
            ["echo", Command("echo", ("x",))],
            {},
            "two tools 'run_echo'; give one Command another name",
        ),
        ([Command("")], {}, "there is no program ''"),
        ([Command("echo", effect="none")], {}, "effect must be one of"),  # type: ignore[arg-type]
        (["echo"], {"cwd": "/missing"}, "cwd: '/missing' is not a directory"),
        (["echo"], {"timeout": 0}, "timeout, max_output_bytes: must be greater than 0"),
        (["echo"], {"timeout": float("nan")}, "must be greater than 0"),
        (["echo"], {"max_output_bytes": 0}, "must be greater than 0"),
    ],
)
def test_a_bad_set_up_is_refused(
    commands: list[str], options: dict[str, float], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        shell(commands, **options)  # type: ignore[arg-type]


def test_the_effect_is_write_unless_it_is_said_otherwise() -> None:
    commands = [
        "cat *",
        Command("echo", effect="read"),
        Command("rm", ("*",), effect="destructive", name="remove"),
    ]

    assert {tool.name: (tool.effect, tool.trusted) for tool in shell(commands)} == {
        "run_echo": ("read", False),
        "remove": ("destructive", False),
        "run_cat": ("write", False),
    }


def test_a_program_is_found_once_and_not_where_the_process_happens_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text(f"#!/bin/sh\necho {folder}\n")
        (tmp_path / folder / "tool").chmod(0o755)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", f".::{tmp_path / 'first'}:{os.environ['PATH']}")
    (tool,) = shell(["tool"])
    monkeypatch.setenv("PATH", f"{tmp_path / 'second'}")

    assert asyncio.run(tool([])) == "[exit code 0]\nfirst"


# --- which arguments ---


@pytest.mark.parametrize(
    ("forms", "fits", "does_not"),
    [
        (("",), [[]], [["x"], ["-v"], [""]]),
        (
            ("status",),
            [["status"]],
            [
                [],
                ["status", "x"],
                ["-c", "core.pager=sh", "status"],
                ["STATUS"],
                ["status "],
            ],
        ),
        (
            ("log [--oneline] [-n*] *",),
            [
                ["log"],
                ["log", "--oneline", "-n5", "a", "b"],
                ["log", "a", "-n", "5"],
                ["log", ""],
            ],
            [
                ["log", "--output=x"],
                ["log", "--", "x"],
                ["log", "--Oneline"],
                ["-n5", "log"],
                ["--oneline"],
                ["log", "-"],
            ],
        ),
        (
            ("-m pytest [-q] [tests/*]",),
            [["-m", "pytest", "-q", "tests/a"]],
            [["-m", "pip"], ["-m"], ["-m", "pytest", "a"]],
        ),
        (("a", "b *"), [["a"], ["b"], ["b", "c"]], [["a", "c"], ["c"]]),
        (("run **",), [["run", "-x", "--", "y"], ["run"]], [["-x", "run"], []]),
        (("*",), [["-".join("ab")], []], [["-a"], ["a", "--b"]]),
        (("'two words' *",), [["two words", "x"]], [["two", "words"]]),
    ],
)
async def test_only_the_forms_that_are_listed_are_run(
    forms: tuple[str, ...], fits: list[list[str]], does_not: list[list[str]]
) -> None:
    (tool,) = shell([Command("true", forms)])

    assert [await tool(arguments) for arguments in fits] == ["[exit code 0]"] * len(
        fits
    )
    for arguments in does_not:
        told = await refused(tool, arguments)
        assert told.startswith(
            "true may not be run with these arguments. Allowed: `true"
        )
        assert all(form in told for form in forms)


DANGEROUS = {
    "tar": [
        ["-xf", "a.tar", "--to-command=sh"],
        ["--checkpoint-action=exec=sh", "-xf", "a.tar"],
        ["--checkpoint-a=exec=sh"],
        ["-xIsh", "-f", "a.tar"],
        ["xfI", "a.tar", "sh"],
    ],
    "find": [[".", "-exec", "sh", ";"], [".", "-delete"], ["-fprintf", "x", "y"]],
    "git": [["-c", "core.pager=sh", "log"], ["fetch", "ext::sh -c id"], ["log", "--outp=x"]],
    "sort": [["--compress-program=sh"], ["-o", "x"], ["-ro", "x"]],
    "grep": [["-f", "/etc/shadow"]],
}  # fmt: skip
HARMLESS = {
    "tar": [["-tf", "a.tar"], ["tf", "a.tar"], ["--list", "--file=a.tar"]],
    "find": [[".", "-name", "x", "-type", "f"]],
    "git": [["log", "--oneline", "-n5"]],
    "sort": [["-r", "-n", "--key=2"]],
    "grep": [["-n", "--count", "x"]],
}


@pytest.mark.parametrize("program", DANGEROUS)
def test_options_that_start_programs_are_refused_unless_a_form_names_them(
    program: str,
) -> None:
    form = _parse_form("**", program)
    open_form = _parse_form("[-*] *", program)

    for arguments in DANGEROUS[program]:
        assert not form.matches(arguments), arguments
        assert not open_form.matches(arguments), arguments
    assert all(form.matches(arguments) for arguments in HARMLESS[program])


def test_a_form_that_names_a_dangerous_option_allows_it() -> None:
    named = _parse_form("[--to-command=*] [-x*] *", "tar")
    required = _parse_form("-exec echo ;", "find")

    assert named.matches(["-xf", "a.tar", "--to-command=cat"])
    assert not named.matches(["-xf", "a.tar", "--checkpoint-action=exec=sh"])
    assert required.matches(["-exec", "echo", ";"])


async def test_a_refused_option_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tar,) = shell(["tar **"], cwd=tmp_path)
    await tar(["-cf", "a.tar", "a"])
    told = await refused(
        tar, ["-xf", "a.tar", "--checkpoint=1", "--checkpoint-action=exec=touch x"]
    )

    assert told.startswith("tar may not be run with these arguments")
    assert sorted(os.listdir(tmp_path)) == ["a", "a.tar"]


@pytest.mark.parametrize("text", ["env *", "bash **", "python3.11 [-q] *"])
def test_a_program_that_runs_anything_needs_a_first_argument(text: str) -> None:
    program, _, form = text.partition(" ")
    with pytest.raises(ConfigError, match="runs whatever its arguments say"):
        _parse_form(form, program)
    assert _parse_form("-m pytest [-q] *", program).matches(["-m", "pytest", "-q"])


@given(st.lists(st.text(max_size=8), max_size=4))
def test_what_is_not_listed_is_never_run(arguments: list[str]) -> None:
    (tool,) = shell([Command("false", ("only this",))])
    with pytest.raises(ToolError, match=r"may not be run|NUL"):
        asyncio.run(tool(arguments))


async def test_there_is_no_shell_in_between(tmp_path: Path) -> None:
    (echo,) = shell(["echo *"], cwd=tmp_path)

    assert await echo(
        ["$HOME", "*", "`id`", "$(id)", ";", "id", "|", "id", ">", "x", "a b", "\n"]
    ) == ("[exit code 0]\n$HOME * `id` $(id) ; id | id > x a b ")
    assert os.listdir(tmp_path) == []


async def test_an_argument_that_no_program_can_be_given_is_told() -> None:
    (echo,) = shell(["echo *"])

    assert (
        await refused(echo, ["a\0b"])
        == "An argument has a NUL character, which no program can be given."
    )
    assert "cannot be started" in await refused(echo, ["\ud800"])
    assert "cannot be started" in await refused(echo, ["x" * 10_000_000])


# --- what it runs in ---


async def test_the_environment_is_bare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("HOME", "/home/of/tests")
    code = "import os; print(sorted(os.environ.keys() - {'LC_CTYPE'}), os.environ['HOME'], os.getcwd())"

    told = await ran(code, cwd=tmp_path, env={"EDITOR": "true"})

    names = ["EDITOR", "HOME", "LANG", "LC_ALL", "PATH"]
    assert told == f"[exit code 0]\n{names} /home/of/tests {tmp_path}"


async def test_it_has_no_input_and_no_terminal() -> None:
    code = "import os, sys; print(repr(sys.stdin.read()), os.getsid(0) == os.getpid())"

    assert await ran(code) == "[exit code 0]\n'' True"


async def test_both_outputs_and_the_exit_code_are_told() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"

    assert await ran(code) == "[exit code 3]\nout\n[standard error]\nerr"
    assert await ran("import os; os.kill(os.getpid(), 11)") == "[killed by SIGSEGV]"
    assert (
        await ran("import sys; sys.stdout.buffer.write(b'\\xff')")
        == "[exit code 0]\n\N{REPLACEMENT CHARACTER}"
    )


async def test_a_program_that_is_gone_by_now_is_told(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tool,) = shell([Command(str(program))])
    program.unlink()

    assert (
        await refused(tool, [])
        == "program cannot be started: No such file or directory"
    )


# --- limits ---


async def test_output_is_cut_while_it_is_read() -> None:
    """100 MB pass through, and none of it stays."""
    code = "import sys\nfor _ in range(100): sys.stdout.write('x' * 1_000_000)"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    told = await ran(code, max_output_bytes=10)

    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (
        told
        == f"[exit code 0]\n{'x' * 10}\n[cut: the first 10 bytes of an output are kept]"
    )
    assert grown < 20_000 * (1_024 if sys.platform == "darwin" else 1)  # in kilobytes


async def test_a_program_that_takes_too_long_is_killed_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    for seconds in (1.5, 15.0):  # a busy machine may take long to start a program
        started = time.monotonic()
        told = await ran(FAMILY, str(tmp_path / "pids"), "2", timeout=seconds)
        took = time.monotonic() - started
        first, *output = told.splitlines()
        if output:
            break
    name = Path(sys.executable).name
    assert (
        first
        == f"{name} did not end within {seconds:g} s and was killed; what it did until then stays done."
    )
    assert output in (
        ["2"],
        ["2", "1"],
        ["2", "1", "0"],
    )  # as far as a busy machine let them come
    assert took < seconds + 8.5
    await until(lambda: nobody_is_alive(tmp_path / "pids"))


FAMILY = """
import os, subprocess, sys, time
with open(sys.argv[1], "a") as file:
    print(os.getpid(), file=file)
print(sys.argv[2], flush=True)
if sys.argv[2] == "0":
    time.sleep(1_000)
subprocess.run([*sys.orig_argv[:-1], str(int(sys.argv[2]) - 1)])
"""
"""A program whose child has a child; each tells its number in a file."""


def pids(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def family_is_alive(file: Path) -> bool:
    return len(pids(file)) == 3 and all(map(is_alive, pids(file)))


def nobody_is_alive(file: Path) -> bool:
    return not any(map(is_alive, pids(file)))


@pytest.mark.parametrize(
    "session", [False, True], ids=["in its group", "in a session of its own"]
)
async def test_a_grandchild_that_keeps_the_output_open_is_not_waited_for(
    session: bool, tmp_path: Path
) -> None:
    code = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '1000'], start_new_session=len(sys.argv) > 2)\n"
        "open(sys.argv[1], 'w').write(str(p.pid)); print('bye')"
    )
    started = time.monotonic()

    told = await ran(code, str(tmp_path / "pid"), *["x"] * session)

    assert told == "[exit code 0]\nbye"
    assert time.monotonic() - started < 10
    (pid,) = pids(tmp_path / "pid")
    if session:  # nothing in reach of this process tells who it belongs to
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))


async def test_a_call_that_is_cancelled_leaves_nothing_running(tmp_path: Path) -> None:
    task = asyncio.create_task(ran(FAMILY, str(tmp_path / "pids"), "2"))
    await until(lambda: family_is_alive(tmp_path / "pids"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await until(lambda: nobody_is_alive(tmp_path / "pids"))


async def test_many_at_once_leave_no_file_open() -> None:
    await ran("pass")  # what the loop opens for itself
    gc.collect()  # what other tests left
    before = len(os.listdir("/dev/fd"))
    told = await asyncio.gather(
        *(ran("print(1)") for _ in range(12)),
        *(ran("x", max_output_bytes=1) for _ in range(3)),
    )

    assert told[:12] == ["[exit code 0]\n1"] * 12
    assert len(os.listdir("/dev/fd")) <= before


# --- in a run ---


async def test_a_model_runs_a_program() -> None:
    script = [
        [
            call("run_echo", arguments=["-e", "x"]),
            call("run_echo", arguments=["hello"]),
        ],
        "It says hello.",
    ]
    result = await ReActEngine(
        Runtime(ScriptedProvider(script), tools=shell(["echo *"]))
    ).run("Say hello.")

    told = [
        message.content for message in result.conversation if message.role == "tool"
    ]
    assert result.answer == "It says hello."
    assert "echo may not be run with these arguments. Allowed: `echo *`" in told[0]
    assert "[exit code 0]\nhello" in told[1]


async def test_a_run_that_is_aborted_kills_its_programs(tmp_path: Path) -> None:
    script = [call("run_python", arguments=["-c", FAMILY, str(tmp_path / "pids"), "2"])]
    async with ReActEngine(Runtime(ScriptedProvider(script), tools=[python()])).start(
        "Wait."
    ) as run:
        await until(lambda: family_is_alive(tmp_path / "pids"))
        result = await run.abort()

    await until(lambda: nobody_is_alive(tmp_path / "pids"))
    assert result.status == "aborted"
