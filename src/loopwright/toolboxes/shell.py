"""Tools that run the programs which are named for them, each with the arguments that are listed, and no shell."""

import dataclasses
import fnmatch
import itertools
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import ConfigError, ToolError
from ..messages import Effect
from ..tools.base import Tool, tool
from .processes import Ran, bare_environment, run_process

SPARE = 5.0  # seconds beyond `timeout` before the run itself gives up on the tool
OFF = (
    "commands: no program may run unless it is named, with its arguments, "
    'like shell(["git status", "git log [--oneline] *"]) or "shell:git status,ls [-l] *"'
)


@dataclasses.dataclass(frozen=True)
class Command:
    """A program that a model may run, as one tool.

    Args:
        program: its name, looked up once in PATH, or its absolute path.
        arguments: the forms that its arguments may have; "" is none at all. A form is words: first those that are
            required, in order ("log"); then, in any order, patterns of what may follow (`[--oneline]`, `[-n*]`), and
            `*` for any number of arguments that do not begin with "-". `**` is anything at all, options too.
        effect: of all these forms; give a program twice, under two names, where they differ.
        name: the tool's, else ``run_`` and the program's.
    """

    program: str
    arguments: tuple[str, ...] = ("",)
    effect: Effect = "write"
    name: str = ""


def shell(
    commands: str | Iterable[str | Command] = (),
    *,
    cwd: str | os.PathLike[str] = ".",
    timeout: float = 30.0,
    max_output_bytes: int = 20_000,
    env: Mapping[str, str] | None = None,
) -> list[Tool]:
    """One tool for each program named in `commands`; without any this is an error, as nothing is allowed by itself.

    A program gets a list of arguments, no shell, no standard input, and an environment of PATH, LANG, LC_ALL, HOME and
    `env` alone. It is not kept to `cwd`: what ``cat *`` may name is any file that this process can read.

    Args:
        commands: `Command` values, or texts of a program and one form of its arguments (``git log [--oneline] *``);
            also one text with commas between them.
        cwd: the folder that programs start in.
        timeout: seconds after which a program is killed, with all that it has started.
        max_output_bytes: how much is kept of each of its two outputs.
        env: more variables for its environment.

    Raises:
        ConfigError: if there is no command, a program is not found, or a form cannot be read.
    """
    folder = Path(cwd).resolve()
    if not folder.is_dir():
        raise ConfigError(f"cwd: {folder} is no folder")
    if not timeout > 0 or max_output_bytes < 1:
        raise ConfigError(
            f"timeout, max_output_bytes: must be greater than 0, got {timeout}, {max_output_bytes}"
        )
    variables = {**bare_environment(("HOME",)), **(env or {})}
    room = _Room(folder, variables, timeout, max_output_bytes)
    tools = [_tool(command, room) for command in _grouped(commands)]
    if not tools:
        raise ConfigError(OFF)
    names = [made.name for made in tools]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"commands: there are two tools {name!r}: give one Command another name"
            )
    return tools


@dataclasses.dataclass(frozen=True)
class _Room:
    """What all programs have in common."""

    cwd: Path
    env: Mapping[str, str]
    timeout: float
    most: int


@dataclasses.dataclass(frozen=True)
class _Form:
    """One form of a program's arguments."""

    text: str
    fixed: tuple[str, ...]
    patterns: tuple[str, ...]
    operands: bool
    anything: bool

    def fits(self, arguments: list[str]) -> bool:
        """Whether arguments have this form."""
        fixed = len(self.fixed)
        return tuple(arguments[:fixed]) == self.fixed and all(
            map(self._may_follow, arguments[fixed:])
        )

    def _may_follow(self, argument: str) -> bool:
        if self.anything or (self.operands and not argument.startswith("-")):
            return True
        return any(fnmatch.fnmatchcase(argument, pattern) for pattern in self.patterns)


def _form(text: str) -> _Form:
    words = _words(text)
    fixed = tuple(itertools.takewhile(lambda word: not _is_pattern(word), words))
    rest = words[len(fixed) :]
    late = [word for word in rest if not _is_pattern(word)]
    if late:
        raise ConfigError(
            f"commands: {text!r}: {late[0]!r} is required, so it must stand before patterns and '*'"
        )
    patterns = tuple(word[1:-1] for word in rest if word.startswith("["))
    return _Form(text, fixed, patterns, operands="*" in rest, anything="**" in rest)


def _is_pattern(word: str) -> bool:
    return word in ("*", "**") or (word.startswith("[") and word.endswith("]"))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"commands: {text!r} cannot be read: {error}") from None


def _grouped(commands: str | Iterable[str | Command]) -> list[Command]:
    """The commands; texts of one program are one command with several forms."""
    given = commands.split(",") if isinstance(commands, str) else list(commands)
    grouped: dict[str, list[str]] = {}
    for text in given:
        if isinstance(text, str) and text.strip():
            program, form = _parted(text)
            grouped.setdefault(program, []).append(form)
    written = [Command(program, tuple(forms)) for program, forms in grouped.items()]
    return [command for command in given if isinstance(command, Command)] + written


def _parted(text: str) -> tuple[str, str]:
    """A program and the form of its arguments, which has to be made of the words behind the program's and no others."""
    program, *words = _words(text) or [""]
    form = "".join(text.split(maxsplit=1)[1:]).strip()
    try:
        same = shlex.split(form) == words
    except ValueError:
        same = False
    if not same:
        raise ConfigError(
            f"commands: {text!r}: write a program with blanks in its name as Command(program, (form,))"
        )
    return program, form


def _tool(command: Command, room: _Room) -> Tool:
    program = _located(command.program, room.env.get("PATH", os.defpath))
    forms = [_form(text) for text in command.arguments]
    if not forms or isinstance(command.arguments, str):
        raise ConfigError(
            f"commands: {command.program}: give a tuple of forms of its arguments, ('',) for none"
        )
    shown = "; ".join(
        f"`{program.name} {form.text}`".replace(" `", "`") for form in forms
    )

    async def run(arguments: list[str]) -> str:
        if any("\0" in argument for argument in arguments):
            raise ToolError(
                "An argument has a NUL character, which no program can be given."
            )
        if not any(form.fits(arguments) for form in forms):
            raise ToolError(
                f"{program.name} may not be run with these arguments. Allowed: {shown}"
            )
        done = await run_process(
            [str(program), *arguments],
            cwd=room.cwd,
            env=room.env,
            timeout=room.timeout,
            max_bytes=room.most,
        )
        return _told(program.name, done, room)

    run.__doc__ = (
        f"Run {program.name} without a shell: no pipes, no variables, and `*` is only a character.\n\n"
        f"Allowed are: {shown}\n\n"
        "In these forms [...] may be left out or repeated, and a `*` at the end stands for arguments that do not begin "
        "with '-'.\n\nArgs:\n    arguments: Its arguments, each as a text of its own, without the program."
    )
    name = command.name or f"run_{re.sub('[^A-Za-z0-9_-]', '_', program.name)}"
    return tool(name=name, effect=command.effect, timeout=room.timeout + SPARE)(run)


def _located(program: str, path: str) -> Path:
    """The absolute path of a program; places that are relative to wherever this process is are not looked at."""
    places = os.pathsep.join(
        place for place in path.split(os.pathsep) if os.path.isabs(place)
    )
    if os.sep in program and not os.path.isabs(program):
        raise ConfigError(
            f"commands: {program!r}: give a name to look up in PATH, or an absolute path"
        )
    found = shutil.which(program, path=places) if program else None
    if found is None:
        raise ConfigError(
            f"commands: there is no program {program!r} in {places}: install it, or give its path"
        )
    return Path(found)


def _told(name: str, done: Ran, room: _Room) -> str:
    """How a program ended and what it said, for a model."""
    parts = [done.output.rstrip("\n")] if done.output else []
    parts += ["[standard error]", done.errors.rstrip("\n")] if done.errors else []
    parts += (
        [f"[cut: the first {room.most:,} bytes of an output are kept]"]
        if done.cut
        else []
    )
    if done.timed_out:
        head = f"{name} did not end within {room.timeout:g} s and was killed; what it did until then stays done."
        raise ToolError("\n".join([head, *parts]))
    return "\n".join([_ending(done.code), *parts])


def _ending(code: int) -> str:
    if code >= 0:
        return f"[exit code {code}]"
    names = {value.value: value.name for value in signal.Signals}
    return f"[killed by {names.get(-code, f'signal {-code}')}]"
