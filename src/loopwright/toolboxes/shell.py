"""Tools that run named programs, each with the listed forms of arguments, without a shell."""

import fnmatch
import itertools
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from .._internal import dataclasses
from ..errors import ConfigError, ToolError
from ..messages import Effect
from ..tools.base import Tool, tool
from .dangerous_options import DangerousOptions, is_runner, options_of
from .processes import ProcessResult, bare_environment, run_process
from .sandbox import Sandbox, can_find_programs, choose_sandbox

SPARE = 5.0
"""Seconds after `timeout` before the run itself gives up on the tool."""
NO_COMMANDS = (
    "commands: no program may run unless it is named, with its arguments, "
    'like shell(["git status", "git log [--oneline] *"]) or "shell:git status,ls [-l] *"'
)


@dataclasses.dataclass(frozen=True)
class Command:
    """A program that a model may run, as one tool.

    Args:
        program: its name, looked up once in PATH, or its absolute path.
        arguments: the allowed forms of its arguments; "" is none at all. A form is words: first the
            required ones, in order ("log"); then, in any order, patterns of optional arguments
            (`[--oneline]`, `[-n*]`), and `*` for any number of arguments that do not begin with "-".
            `**` is any arguments, options too, but for those by which a known program starts others
            or writes to other files (`tar --checkpoint-action`, `find -exec`): only a form that names
            such an option allows it, as a required word or a pattern (`[--to-command=*]`).
        effect: of all these forms; list a program twice, under two names, if they differ.
        name: the tool's name, by default ``run_`` and the program's.
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
    sandbox: Sandbox | str | None = None,
) -> list[Tool]:
    """Return one tool for each program named in `commands`; without any, raise an error.

    A program gets a list of arguments, no shell, no standard input, and an environment of PATH, LANG,
    LC_ALL, HOME and `env` only. Without a sandbox it is not confined to `cwd`: ``cat *`` may
    name any file that this process can read.

    Args:
        commands: `Command` values, or texts of a program and one form of its arguments
            (``git log [--oneline] *``); also one text with commas between them.
        cwd: the directory in which programs start.
        timeout: seconds after which a program is killed, with all that it has started.
        max_output_bytes: how much of each of its two outputs is kept.
        env: more variables for its environment.
        sandbox: confines the programs: "bubblewrap", or a `Sandbox`, such as a `BubblewrapSandbox`
            that says what else they may read.

    Raises:
        ConfigError: there is no command, a program is not found or not visible in the sandbox, or a
            form cannot be parsed.
    """
    variables = {**bare_environment(("HOME",)), **(env or {})}
    confining = choose_sandbox(sandbox)
    settings = _Settings(
        Path(cwd).resolve(), variables, timeout, max_output_bytes, confining
    )
    tools = [_build_tool(command, settings) for command in _group(commands)]
    if not tools:
        raise ConfigError(NO_COMMANDS)
    _check_names([made.name for made in tools])
    return tools


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"commands: there are two tools {name!r}; give one Command another name"
            )


@dataclasses.dataclass(frozen=True)
class _Settings:
    """The settings of all programs."""

    cwd: Path
    env: Mapping[str, str]
    timeout: float
    max_bytes: int
    sandbox: Sandbox | None

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a setting that cannot be."""
        if not self.cwd.is_dir():
            raise ConfigError(f"cwd: {str(self.cwd)!r} is not a directory")
        if not self.timeout > 0 or self.max_bytes < 1:
            raise ConfigError(
                f"timeout, max_output_bytes: must be greater than 0, got {self.timeout}, {self.max_bytes}"
            )


@dataclasses.dataclass(frozen=True)
class _Form:
    """One form of a program's arguments."""

    text: str
    fixed: tuple[str, ...]
    patterns: tuple[str, ...]
    operands: bool
    anything: bool
    dangerous: DangerousOptions

    def matches(self, arguments: list[str]) -> bool:
        """Whether arguments have this form."""
        required = len(self.fixed)
        if tuple(arguments[:required]) != self.fixed:
            return False
        rest = enumerate(arguments[required:], required)
        return all(self._allows(argument, position) for position, argument in rest)

    def _allows(self, argument: str, position: int) -> bool:
        """Whether an argument is allowed; a dangerous option only by a pattern that names it."""
        patterns: Iterable[str] = self.patterns
        if self.dangerous.find(argument, position):
            patterns = filter(self.dangerous.is_named_by, patterns)
        elif self.anything or (self.operands and not argument.startswith("-")):
            return True
        return any(fnmatch.fnmatchcase(argument, pattern) for pattern in patterns)


def _parse_form(text: str, program: str) -> _Form:
    words = _split(text)
    fixed = tuple(itertools.takewhile(lambda word: not _is_pattern(word), words))
    rest = words[len(fixed) :]
    late = next(itertools.filterfalse(_is_pattern, rest), None)
    if late is not None:
        raise ConfigError(
            f"commands: {text!r}: {late!r} is required, so it must stand before patterns and '*'"
        )
    patterns = tuple(word[1:-1] for word in rest if word.startswith("["))
    is_open = "*" in rest or "**" in rest
    if is_open and not fixed and is_runner(program):
        raise ConfigError(
            f"commands: '{program} {text}': {program} runs whatever its arguments say; "
            "name at least the first of them, as in 'python -m pytest [-q]'"
        )
    return _Form(text, fixed, patterns, "*" in rest, "**" in rest, options_of(program))


def _is_pattern(word: str) -> bool:
    return word in ("*", "**") or (word.startswith("[") and word.endswith("]"))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"commands: {text!r} cannot be read: {error}") from None


def _group(commands: str | Iterable[str | Command]) -> list[Command]:
    """Return the commands; texts of one program are one command with several forms."""
    given = commands.split(",") if isinstance(commands, str) else list(commands)
    ready = [command for command in given if isinstance(command, Command)]
    texts = [text for text in given if isinstance(text, str) and text.strip()]
    forms: dict[str, list[str]] = {}
    for program, form in map(_split_program, texts):
        forms.setdefault(program, []).append(form)
    return ready + [
        Command(program, tuple(listed)) for program, listed in forms.items()
    ]


def _split_program(text: str) -> tuple[str, str]:
    """Return a program and the form of its arguments, which is the rest of the text."""
    program, *words = _split(text) or [""]
    form = "".join(text.split(maxsplit=1)[1:]).strip()
    try:
        is_rest = shlex.split(form) == words
    except ValueError:
        is_rest = False
    if not is_rest:
        raise ConfigError(
            f"commands: {text!r}: write a program with blanks in its name as Command(program, (form,))"
        )
    return program, form


def _choose_program(named: str, settings: _Settings) -> Path:
    """Return the program to start: one of this machine, or of a sandbox that looks programs up itself."""
    if not can_find_programs(settings.sandbox):
        return _find_program(named, settings.env.get("PATH", os.defpath))
    # One of the directory is named by its path there: without its slash it would be one of the sandbox.
    return settings.cwd / named if "/" in named else Path(named)


def _build_tool(command: Command, settings: _Settings) -> Tool:
    program = _choose_program(command.program, settings)
    if settings.sandbox is not None:  # what it cannot show is an error now
        settings.sandbox.confine([str(program)], cwd=settings.cwd, env=settings.env)
    forms = [_parse_form(text, program.name) for text in command.arguments]
    if not forms or isinstance(command.arguments, str):
        raise ConfigError(
            f"commands: {command.program}: arguments must be a tuple of forms, ('',) for none"
        )
    allowed = "; ".join(f"`{program.name} {form.text}".rstrip() + "`" for form in forms)

    async def run(arguments: list[str]) -> str:
        _check_arguments(arguments, forms, program.name, allowed)
        result = await run_process(
            [str(program), *arguments],
            cwd=settings.cwd,
            env=settings.env,
            timeout=settings.timeout,
            max_bytes=settings.max_bytes,
            sandbox=settings.sandbox,
        )
        return _format_result(program.name, result, settings)

    run.__doc__ = (
        f"Run {program.name} without a shell: no pipes, no variables, and `*` is only a character.\n\n"
        f"Allowed are: {allowed}\n\n"
        "In these forms [...] may be left out or repeated, and a `*` at the end stands for arguments that do not begin "
        "with '-'.\n\nArgs:\n    arguments: Its arguments, each as a text of its own, without the program."
    )
    name = command.name or f"run_{re.sub('[^A-Za-z0-9_-]', '_', program.name)}"
    return tool(
        name=name,
        effect=command.effect,
        timeout=settings.timeout + SPARE,
        outbound=True,  # most programs can send what they are given
    )(run)


def _check_arguments(
    arguments: list[str], forms: Iterable[_Form], program: str, allowed: str
) -> None:
    if any("\0" in argument for argument in arguments):
        raise ToolError(
            "An argument has a NUL character, which no program can be given."
        )
    if not any(form.matches(arguments) for form in forms):
        raise ToolError(
            f"{program} may not be run with these arguments. Allowed: {allowed}"
        )


def _find_program(program: str, path: str) -> Path:
    """Return the absolute path of a program; relative places in PATH are ignored."""
    if os.sep in program and not os.path.isabs(program):
        raise ConfigError(
            f"commands: {program!r}: give a name to look up in PATH, or an absolute path"
        )
    places = os.pathsep.join(filter(os.path.isabs, path.split(os.pathsep)))
    found = shutil.which(program, path=places) if program else None
    if found is None:
        raise ConfigError(
            f"commands: there is no program {program!r} in {places}; install it, or give its path"
        )
    return Path(found)


def _format_result(name: str, result: ProcessResult, settings: _Settings) -> str:
    """Return the exit code and the outputs of a program, for a model."""
    parts: list[str] = []
    if result.output:
        parts.append(result.output.rstrip("\n"))
    if result.errors:
        parts += ["[standard error]", result.errors.rstrip("\n")]
    if result.cut:
        kept = settings.max_bytes
        parts.append(f"[cut: the first {kept:,} bytes of an output are kept]")
    if result.timed_out:
        head = f"{name} did not end within {settings.timeout:g} s and was killed; what it did until then stays done."
        raise ToolError("\n".join([head, *parts]))
    return "\n".join([_format_ending(result.code), *parts])


def _format_ending(code: int) -> str:
    if code >= 0:
        return f"[exit code {code}]"
    names = {value.value: value.name for value in signal.Signals}
    return f"[killed by {names.get(-code, f'signal {-code}')}]"
