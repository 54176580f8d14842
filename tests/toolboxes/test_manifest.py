"""Tools from a manifest: what a file declares is what runs, each value in one element, and nothing is left behind."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwright import ConfigError, ReActEngine, Runtime, Tool, ToolError
from loopwright.plugins import build_tools
from loopwright.testing import ScriptedProvider, call
from loopwright.toolboxes.manifest import manifest
from loopwright.toolboxes.processes import ProcessResult, bare_environment, run_process

SHOW = f"#!{sys.executable} -IS\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program that prints its arguments as JSON, and a folder for files."""
    program(tmp_path, "show", SHOW)
    (tmp_path / "files").mkdir()
    return tmp_path


def program(folder: Path, name: str, code: str) -> None:
    (folder / name).write_text(code, encoding="utf-8")
    (folder / name).chmod(0o755)


def load(folder: Path, text: str) -> list[Tool]:
    (folder / "tools.toml").write_text(text, encoding="utf-8")
    return manifest(folder / "tools.toml")


def one(home: Path, argv: str, arguments: str = "", **fields: str) -> Tool:
    """A tool with this `argv`, each argument as a line of inline TOML."""
    own = "\n".join(f"{name} = {value}" for name, value in fields.items())
    [tool] = load(
        home,
        f'[[tool]]\nname = "run"\ndescription = "Runs."\nargv = {argv}\n{own}\n[tool.arguments]\n{arguments}',
    )
    return tool


async def observed(tool: Tool, **arguments: Any) -> str:
    """What a model reads of a call."""
    model = ScriptedProvider([call(tool.name, **arguments), "Done."])
    result = await ReActEngine(Runtime(model, tools=[tool])).run("Go.")
    return result.conversation.messages[-2].content


async def given_to(tool: Tool, **arguments: Any) -> list[str]:
    """What the program was given."""
    return json.loads(await tool.function(**tool.bind_arguments(arguments)))


async def told_by(tool: Tool) -> str:
    """What the program wrote, or what went wrong with it."""
    try:
        return await tool.function()
    except ToolError as error:
        return str(error)


# --- what a file declares ---


def test_a_file_declares_tools(folder: Path) -> None:
    ping, echo = load(
        folder,
        """
[[tool]]
name = "ping"
description = "Whether a host answers."
effect = "read"
label = "sensitive"
timeout = 5
verified = true
max_output_chars = 500
argv = ["./show", "-c", "{count}", "{host}"]

[tool.arguments.host]
type = "host"

[tool.arguments.count]
type = "integer"
description = "how often"
minimum = 1
maximum = 5
default = 1

[[tool]]
name = "echo"
description = "Says nothing new."
argv = ["echo", "same"]
""",
    )

    assert (ping.name, ping.description, ping.effect) == (
        "ping",
        "Whether a host answers.",
        "read",
    )
    assert (ping.label, ping.timeout, ping.verified, ping.max_output_chars) == (
        "sensitive",
        5,
        True,
        500,
    )
    assert ping.schema == {
        "type": "object",
        "properties": {
            "host": {
                "type": "string",
                "maxLength": 253,
                "description": "A host name or an IP address, such as db1.example.org or 192.0.2.7",
            },
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": 5,
                "default": 1,
                "description": "how often",
            },
        },
        "required": ["host"],
        "additionalProperties": False,
    }
    assert (echo.effect, echo.label, echo.timeout, echo.trusted, echo.verified) == (
        "write",
        "normal",
        60,
        False,
        False,
    )
    assert echo.schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


async def test_the_tools_are_had_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one(folder, '["./show", "{word}"]', 'word = {type = "word"}')
    monkeypatch.chdir(folder)
    [tool] = build_tools("manifest:tools.toml")

    assert await observed(tool, word="hello") == '["hello"]'


TYPES = [
    ('type = "text"', "a b", ["a b"], "a;b"),
    ('type = "word"', "main", ["main"], "-rf"),
    ('type = "port"', 80, ["80"], 0),
    ('type = "host"', "192.0.2.7", ["192.0.2.7"], "a b"),
    ('type = "host_name"', "DB.example", ["db.example"], "192.0.2.7"),
    ('type = "url"', "HTTP://a.org?b", ["http://a.org?b"], "ftp://a.org"),
    ('type = "ip_address"', "2001:DB8::7", ["2001:db8::7"], "::1%x"),
    ('type = "cidr"', "10.0.0.0/8", ["10.0.0.0/8"], "10.0.0.1/8"),
    ('type = "boolean"', True, ["true"], "true"),
    ('type = "boolean"', False, ["false"], 0),
    ('type = "integer"', 7, ["7"], -1),
    ('type = "integer", minimum = -5, maximum = 5', -5, ["-5"], 6),
    ('type = "number"', 0.5, ["0.5"], -0.5),
    ('type = "number"', -0.0, ["0.0"], True),
    ('type = "number"', 1e-7, ["0.0000001"], "5"),
    ('type = "number"', 5, ["5.0"], "0x5"),
    ('type = "enum", values = ["-4", "-6"]', "-6", ["-6"], "-7"),
    ('type = "duration"', "1h30m", ["5400"], "soon"),
    ('type = "duration"', "0.00001s", ["0.00001"], "-1s"),
    ('type = "duration", minimum = "1s", maximum = "1m"', "1.5s", ["1.5"], "61s"),
    ('type = "matching", pattern = "[a-z-]+"', "a-b", ["a-b"], "--exec"),
    ('type = "matching", pattern = ".+", max_length = 3', "a b", ["a b"], "abcd"),
]


@pytest.mark.parametrize(
    ("declared", "value", "words", "bad"), TYPES, ids=lambda value: str(value)
)
async def test_a_value_is_checked_by_its_type(
    folder: Path, declared: str, value: Any, words: list[str], bad: Any
) -> None:
    tool = one(folder, '["./show", "{value}"]', f"value = {{{declared}}}")

    assert await given_to(tool, value=value) == words
    for wrong in (bad, None, ["a"], {}, "a\nb", "a\x00b"):
        told = await observed(tool, value=wrong)
        assert told.startswith("The arguments do not fit"), told


async def test_a_path_stays_below_its_folder(folder: Path) -> None:
    (folder / "files" / "out").symlink_to("/etc")
    tool = one(folder, '["./show", "{file}"]', 'file = {type = "path", root = "files"}')

    assert await given_to(tool, file="-notes/a.txt") == [
        str(folder / "files" / "-notes" / "a.txt")
    ]
    for wrong in ("../tools.toml", "/etc/passwd", "out/passwd", "a/../../b", "~/x", ""):
        assert (await observed(tool, file=wrong)).startswith("The arguments do not fit")


async def test_a_default_stands_for_what_is_not_given(folder: Path) -> None:
    arguments = """
wait = {type = "duration", default = "5m"}
file = {type = "path", root = "files", default = "a.txt"}
count = {type = "integer", default = 0}
loud = {type = "boolean", default = false}
"""
    tool = one(folder, '["./show", "{wait}", "{file}", "{count}", "{loud}"]', arguments)

    assert await given_to(tool) == [
        "300",
        str(folder / "files" / "a.txt"),
        "0",
        "false",
    ]
    assert tool.schema["properties"]["wait"]["default"] == "5m"  # type: ignore[index, call-overload]


async def test_a_placeholder_fills_one_element_or_a_part_of_one(folder: Path) -> None:
    argv = '["./show", "{host}:{port}", "--to={text}", "{{text}}", "{{}}", "$(id)", "{text}{text}", "*", "a b", ""]'
    arguments = 'host = {type = "host"}\nport = {type = "port"}\ntext = {type = "text"}'
    tool = one(folder, argv, arguments)

    assert await given_to(tool, host="db", port=80, text="one two") == [
        "db:80", "--to=one two", "{text}", "{}", "$(id)", "one twoone two", "*", "a b", "",
    ]  # fmt: skip


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    value=st.text(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
        min_size=1,
        max_size=20,
    )
)
async def test_whatever_a_pattern_lets_through_is_one_element(
    folder: Path, value: str
) -> None:
    tool = one(
        folder,
        '["./show", "{value}", "end"]',
        'value = {type = "matching", pattern = "(?s).*"}',
    )
    if value.startswith("-"):
        with pytest.raises(ValueError, match="does not begin with '-'"):
            tool.bind_arguments({"value": value})
    else:
        assert await given_to(tool, value=value) == [value, "end"]


# --- how it runs ---


@pytest.fixture
def typing() -> Iterator[None]:
    """Somebody has typed something into our own standard input."""
    ours, (reads, writes) = os.dup(0), os.pipe()
    os.write(writes, b"typed\n")
    os.close(writes)
    os.dup2(reads, 0)
    os.close(reads)
    yield
    os.dup2(ours, 0)
    os.close(ours)


@pytest.mark.usefixtures("typing")
async def test_a_program_gets_a_bare_environment_and_no_input(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("REGION", "north")
    told = "[sorted(os.environ), os.getcwd(), sys.stdin.read(), os.environ['REGION']]"
    program(
        folder,
        "look",
        f"#!{sys.executable} -IS\nimport json, os, sys\nprint(json.dumps({told}))\n",
    )
    tool = one(
        folder, '["./look"]', environment='["REGION", "NOT_SET"]', folder='"files"'
    )
    names, cwd, text, region = json.loads(await told_by(tool))

    assert (set(names) - {"LC_CTYPE"}, cwd, text, region) == (
        {"LANG", "LC_ALL", "PATH", "REGION"}, str(folder / "files"), "", "north",
    )  # fmt: skip


async def test_what_fails_is_told_with_what_it_wrote(folder: Path) -> None:
    program(folder, "fail", "#!/bin/sh\necho some\necho 'no such thing' >&2\nexit 3\n")
    program(folder, "warn", "#!/bin/sh\necho some\necho careful >&2\n")
    program(folder, "die", "#!/bin/sh\nkill -9 $$\n")
    program(folder, "broken", "no program at all")

    assert await told_by(one(folder, '["./fail"]')) == (
        "run ended with exit code 3. It wrote:\nsome\n[standard error]\nno such thing"
    )
    assert await told_by(one(folder, '["./warn"]')) == "some\n[standard error]\ncareful"
    assert await told_by(one(folder, '["./die"]')) == "run ended by signal 9."
    assert (
        await told_by(one(folder, '["./broken"]'))
        == "broken cannot be started: Exec format error"
    )
    assert await told_by(one(folder, '["true"]')) == "It wrote nothing."


async def test_output_is_kept_up_to_a_limit(folder: Path) -> None:
    program(
        folder,
        "flood",
        "#!/bin/sh\nyes | head -c 1000000\nyes no | head -c 1000000 >&2\n",
    )
    tool = one(folder, '["./flood"]', max_bytes="6")

    assert (
        await told_by(tool)
        == "y\ny\ny\n[standard error]\nno\nno\n[cut: more than 6 bytes]"
    )


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended, and that nobody has asked about yet, does not."""
    try:
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8")
            .rpartition(")")[2]
            .split()[0]
            != "Z"
        )
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], object]) -> None:
    """Wait for what comes soon, but nobody can say when."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)


FAMILY = "#!/bin/sh\nsleep 600 &\necho $! > pids.tmp\necho $$ >> pids.tmp\nmv pids.tmp pids\n"


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="asks Linux for its processes"
)
@pytest.mark.parametrize("end", ["time-out", "cancelled", "ended"])
async def test_nothing_is_left_of_a_program_and_its_children(
    folder: Path, end: str
) -> None:
    program(folder, "family", FAMILY + ("echo done\n" if end == "ended" else "wait\n"))
    for seconds in ("1.5", "15"):  # a busy machine may take long to start a program
        timeout = seconds if end == "time-out" else "60"
        working = asyncio.create_task(
            observed(one(folder, '["./family"]', timeout=timeout))
        )
        await until(lambda work=working: (folder / "pids").exists() or work.done())
        if (folder / "pids").exists():
            break
    pids = [int(line) for line in (folder / "pids").read_text(encoding="utf-8").split()]
    if end == "cancelled":
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    else:
        told = (
            f"run gave no result within {seconds} s; it may still take effect."
            if end == "time-out"
            else "done"
        )
        assert await working == told

    await until(
        lambda: not any(map(alive, pids))
    )  # the system takes its time with a process that was killed


async def test_a_process_that_got_away_holds_nobody_up(folder: Path) -> None:
    away = f"""#!{sys.executable} -IS
import os, time
if not os.fork():
    os.setsid()  # a session of its own, and the pipes of its parent
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists("pid") or not os.path.getsize("pid"):
    time.sleep(0.01)
print("done", flush=True)
"""
    program(folder, "away", away)
    before = time.monotonic()
    told = await observed(one(folder, '["./away"]'))
    os.kill(int((folder / "pid").read_text(encoding="utf-8")), signal.SIGKILL)

    assert told == "done"
    assert time.monotonic() - before < 30


async def test_a_program_has_its_time_without_a_run_too() -> None:
    before = time.monotonic()
    ran = await run_process(["sleep", "600"], env=bare_environment(), timeout=0.1)

    assert ran == ProcessResult(-signal.SIGKILL, "", "", timed_out=True)
    assert time.monotonic() - before < 30


async def test_what_cannot_be_started_is_told(folder: Path) -> None:
    for argv, told in (
        (["/nowhere/x"], "x cannot be started: No such file or directory"),
        (
            ["echo", "a\0b"],
            "echo cannot be started: an argument is not a text that a program can be given",
        ),
        (
            ["echo", "a\ud800"],
            "echo cannot be started: an argument is not a text that a program can be given",
        ),
    ):
        with pytest.raises(ToolError, match=f"^{re.escape(told)}$"):
            await run_process(argv, env=bare_environment(), timeout=5)


# --- what is wrong with a file ---

A = "tool 'run': arguments.a."
RUN = "tool 'run': "
TOOL = '[[tool]]\nname = "run"\ndescription = "Runs."\nargv = ["./show", "{a}"]\n'
ARGUMENT = "[tool.arguments.a]\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "declares no tool; begin each with [[tool]]"),
        ("tool = []", "declares no tool; begin each with [[tool]]"),
        ("tool = 5", "declares no tool; begin each with [[tool]]"),
        ("tool = [5]", "declares no tool; begin each with [[tool]]"),
        ("[[tools]]\n", "tools: there is no such table; tools are declared with [[tool]]"),
        ("[[tool]\n", "cannot be read as TOML: "),
        ("[[tool]]\n", "tool 'number 1': name: Field required"),
        ('[[tool]]\nname = "a"\nargv = ["true"]', "tool 'a': description: Field required"),
        (TOOL + 'efect = "read"', RUN + "efect: there is no such field; did you mean effect?"),
        (TOOL + "zzz = 1", RUN + "zzz: there is no such field; there are name, description, argv, effect, "),
        (TOOL + 'effect = "reads"', RUN + "effect: Input should be 'read', 'idempotent', 'write' or 'destructive'"),
        (TOOL + 'label = "top"', RUN + "label: Input should be 'public', 'normal', 'sensitive' or 'secret', got "),
        (TOOL + 'timeout = "5"', RUN + "timeout: Input should be a valid number, got '5'"),
        (TOOL + "timeout = 0", RUN + "timeout: Input should be greater than 0, got 0"),
        (TOOL + "timeout = inf", RUN + "timeout: Input should be a finite number, got inf"),
        (TOOL + 'folder = "nowhere"\n' + ARGUMENT + 'type = "word"', RUN + "folder: 'FOLDER/nowhere' is not a directory"),
        (TOOL, RUN + "argv: there is no argument 'a'; declare it as [tool.arguments.a]"),
        (TOOL + '[tool.arguments.b]\ntype = "word"', RUN + "argv: there is no argument 'a'; declare it as "),
        (TOOL + '[tool.arguments.aa]\ntype = "word"', RUN + "argv: there is no argument 'a'; did you mean aa?"),
        (TOOL + ARGUMENT, A + "type: must be the type of the argument, got None; there are boolean, "),
        (TOOL + ARGUMENT + 'type = "hots"', A + "type: must be the type of the argument, got 'hots'; did you mean "),
        (TOOL + "[tool.arguments]\na = 5", RUN + "arguments.a: "),
        (TOOL + ARGUMENT + 'type = "word"\nlest = 1', A + "lest: there is no such field; there are "),
        (TOOL + ARGUMENT + 'type = "integer"\nminimun = 1', A + "minimun: there is no such field; did you mean minimum"),
        (TOOL + ARGUMENT + 'type = "integer"\nminimum = "1"', A + "minimum: Input should be a valid integer, got '1'"),
        (TOOL + ARGUMENT + 'type = "integer"\nminimum = 2\nmaximum = 1', A + "minimum: must not be greater than"),
        (TOOL + ARGUMENT + 'type = "integer"\ndefault = -1', A + "default: Input should be greater than "),
        (TOOL + ARGUMENT + 'type = "host"\ndefault = "a b"', A + "default: must be a host name or an IP address"),
        (TOOL + ARGUMENT + 'type = "duration"\nmaximum = "long"', A + "maximum: must be a duration such as"),
        (TOOL + ARGUMENT + 'type = "enum"', A + "values: Field required"),
        (TOOL + ARGUMENT + 'type = "enum"\nvalues = []', A + "values: List should have at least 1 item"),
        (TOOL + ARGUMENT + 'type = "path"', A + "root: Field required"),
        (TOOL + ARGUMENT + 'type = "path"\nroot = "nowhere"', A + "root: 'FOLDER/nowhere' is not a directory; create it or"),
        (TOOL + ARGUMENT + 'type = "matching"\npattern = "("', A + "pattern: '(' cannot be used: "),
        (TOOL + ARGUMENT + 'type = "matching"\npattern = "a"\nmax_length = 0', A + "max_length: Input should be greater"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_the_file_the_tool_and_the_field(
    folder: Path, text: str, problem: str
) -> None:
    with pytest.raises(
        ConfigError,
        match="^"
        + re.escape(f"{folder}/tools.toml: {problem.replace('FOLDER', str(folder))}"),
    ):
        load(folder, text)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ("[]", "argv: List should have at least 1 item"),
        ('"show {a}"', "argv: Input should be a valid list, got 'show {a}'"),
        ('["./show", 5]', "argv.1: Input should be a valid string, got 5"),
        ('["{a}"]', "argv.0: the program itself cannot be an argument, got '{a}'"),
        (
            '["./nothing", "{a}"]',
            "argv.0: there is no program './nothing' that can be run here",
        ),
        (
            '["no-such-program-anywhere", "{a}"]',
            "argv.0: there is no program 'no-such-program-anywhere' that can be run",
        ),
        (
            '["./tools.toml", "{a}"]',
            "argv.0: there is no program './tools.toml' that can be run here",
        ),
        (
            '["./files", "{a}"]',
            "argv.0: there is no program './files' that can be run here",
        ),
        ('["", "{a}"]', "argv.0: there is no program '' that can be run here"),
        ('["./show"]', "arguments.a: is not used in argv; write {a} where it belongs"),
        (
            '["./show", "{a", "{a}"]',
            "argv.1: expected '}' before end of string in '{a'; a brace itself is written twice",
        ),
        (
            '["./show", "a}", "{a}"]',
            "argv.1: Single '}' encountered in format string in 'a}'; a brace itself is written",
        ),
        (
            '["./show", "{}"]',
            "argv.1: a placeholder is the name of an argument in braces, got '{}'",
        ),
        (
            '["./show", "{0}"]',
            "argv.1: a placeholder is the name of an argument in braces, got '{0}'",
        ),
        (
            '["./show", "{a.__class__}"]',
            "argv.1: a placeholder is the name of an argument in braces, got ",
        ),
        (
            '["./show", "{a[0]}"]',
            "argv.1: a placeholder is the name of an argument in braces, got '{a[0]}'",
        ),
        (
            '["./show", "{a!r}"]',
            "argv.1: a placeholder is the name of an argument in braces, got '{a!r}'",
        ),
        (
            '["./show", "{a:>9}"]',
            "argv.1: a placeholder is the name of an argument in braces, got '{a:>9}'",
        ),
        (
            '["./show", "{a}", "\\u0000"]',
            "argv.2: an argument of a program cannot contain NUL, got '\\x00'",
        ),
        (
            '["./show", "{b}"]',
            "argv: there is no argument 'b'; declare it as [tool.arguments.b]",
        ),
    ],
)
def test_a_template_is_a_program_and_names_in_braces(
    folder: Path, argv: str, problem: str
) -> None:
    with pytest.raises(
        ConfigError, match="^" + re.escape(f"{folder}/tools.toml: {RUN}{problem}")
    ):
        one(folder, argv, 'a = {type = "word"}')


def test_names_are_unique_and_tools_names(folder: Path) -> None:
    text = '[[tool]]\nname = "{}"\ndescription = "Runs."\nargv = ["true"]\n'
    with pytest.raises(
        ConfigError, match=r"tools\.toml: tool 'a': name: an earlier tool has it"
    ):
        load(folder, text.format("a") * 2)
    with pytest.raises(
        ConfigError, match=r"tools\.toml: tool 'a;b': tool name 'a;b': use letters"
    ):
        load(folder, text.format("a;b"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"nowhere\.toml: cannot be read as TOML: .*No such file"
    ):
        manifest(tmp_path / "nowhere.toml")
