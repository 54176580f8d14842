"""The port for sandboxes, in which the programs of tools run, and Bubblewrap."""

import copy
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from .._internal import dataclasses
from ..errors import ConfigError

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
"""What programs need of a Linux system."""
SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl", "/etc/localtime")
NETWORK_SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")
PRIVATE = ("/etc", "/proc", "/sys", "/dev", "/tmp")  # noqa: S108 - named to be refused
"""Directories that a sandbox replaces or leaves out, and that a starting directory must not bring back."""
KERNEL = ("/proc", "/sys", "/dev")
"""Directories of the kernel, of which no part is a directory to start in: each shows other processes or devices."""
PROBE_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class ConfinedProgram:
    """How a program is started in a sandbox: its arguments, the first of which is a program, and its environment.

    `cleanup` is a command that ends what is left of it, for a sandbox in which killing the process that is started does
    not. It is run, with the same environment, when the program is killed.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cleanup: tuple[str, ...] = ()


@runtime_checkable
class Sandbox(Protocol):
    """Confines programs. Killing the process that is started, and `cleanup`, must end all that it started.

    One with a true attribute `finds_programs` is given their names as they were written: they are not looked up on this
    machine.
    """

    @property
    def guarantees(self) -> tuple[str, ...]:
        """Return what holds for a program in it, a sentence each."""
        ...

    def confine(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> ConfinedProgram:
        """Return how a program is started; raise `ConfigError` for one that cannot run there.

        Args:
            argv: the absolute path of the program, and its arguments.
            cwd: the directory that it starts in, which is all that it may write to if nothing else is said.
            env: its environment.
        """
        ...


class BubblewrapSandbox:
    """Runs programs in namespaces of their own (Linux), by the program `bwrap`, without rights of root.

    A program sees the directory that it starts in, the system's programs, an empty /tmp and what is named here; no other
    files, processes or users, and no network. It gets no capability, and ends with the process that started it, also if it
    begins a session of its own. The kernel is shared, and memory and CPU are not limited.

    Args:
        writable: more directories that it may write to.
        readable: more files and directories that it may read, such as a virtual environment.
        write_cwd: whether it may write to the directory that it starts in; if it is not said, programs of `shell` may and
            those of a `manifest` may not.
        network: whether it has the network of this machine, its local services too.

    Raises `ConfigError` where `bwrap` is missing or the system does not let it make namespaces, and for a path that is
    not there. A program cannot start in "/", in /tmp or in the home directory itself: it would see all of it.
    """

    def __init__(
        self,
        *,
        writable: Iterable[str | os.PathLike[str]] = (),
        readable: Iterable[str | os.PathLike[str]] = (),
        write_cwd: bool | None = None,
        network: bool = False,
    ) -> None:
        self._writable = check_paths("writable", writable)
        self._readable = check_paths("readable", readable)
        self._write_cwd, self._network = write_cwd, network
        self._program = _find_bubblewrap()
        _probe(self._build_arguments(Path("/usr"), write_cwd=False))

    @property
    def guarantees(self) -> tuple[str, ...]:
        """Return what holds for a program in it."""
        kept = list[str]() if self._write_cwd is False else ["its directory"]
        written = ", ".join([*kept, *map(str, self._writable)]) or "no file"
        network = "the network of this machine" if self._network else "no network"
        return (
            f"it writes to {written}; all else that it writes, as in its own empty /tmp, is gone with it",
            "it reads these, the system's programs and what is named as readable, and no other file",
            f"it has {network}",
            "it sees and signals no process from outside, and ends with the one that started it",
            "it has no capability and gets none",
            "not limited: memory, CPU and what it writes",
        )

    def confine(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> ConfinedProgram:
        """Return how a program is started.

        Raises `ConfigError` for a program that is not visible there, and for a `cwd` that would show the system, /etc, /tmp
        or the whole home directory, or that is one of the kernel's, in /proc, /sys or /dev.
        """
        check_cwd(cwd)
        program = Path(argv[0])
        seen = (*map(Path, SYSTEM), *self._writable, *self._readable, cwd)
        for path in (program, program.resolve()):
            if not any(path.is_relative_to(place) for place in seen):
                raise ConfigError(
                    f"sandbox: {str(path)!r} is not visible in it; add its directory to readable"
                )
        arguments = self._build_arguments(cwd, write_cwd=self._write_cwd is not False)
        return ConfinedProgram((*arguments, *argv), {**env, "HOME": "/tmp"})  # noqa: S108 - its own

    def with_default(self, *, write_cwd: bool) -> Self:
        """Return the same sandbox with a `write_cwd` for one that was made without it."""
        chosen = copy.copy(self)
        if chosen._write_cwd is None:
            chosen._write_cwd = write_cwd
        return chosen

    def _build_arguments(self, cwd: Path, *, write_cwd: bool) -> list[str]:
        arguments = [
            self._program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
            "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",  # noqa: S108 - its own
        ]  # fmt: skip
        settings: tuple[str, ...] = SETTINGS
        if self._network:
            arguments.append("--share-net")
            settings += NETWORK_SETTINGS
        for place in map(Path, (*SYSTEM, *settings)):
            if place.is_symlink() and place.parent == Path("/"):
                arguments += ["--symlink", os.readlink(place), str(place)]
            else:
                arguments += ["--ro-bind-try", str(place), str(place)]
        for path in self._readable:
            arguments += ["--ro-bind", str(path), str(path)]
        for path in self._writable:
            arguments += ["--bind", str(path), str(path)]
        bind = "--bind" if write_cwd else "--ro-bind"
        return [*arguments, bind, str(cwd), str(cwd), "--chdir", str(cwd), "--"]

    def __repr__(self) -> str:
        return f"BubblewrapSandbox({'; '.join(self.guarantees)})"


def choose_sandbox(sandbox: Sandbox | str | None) -> Sandbox | None:
    """Return a sandbox, also by the name "bubblewrap"; raise `ConfigError` for anything else."""
    if sandbox is None or (
        not isinstance(sandbox, str) and hasattr(sandbox, "confine")
    ):
        return sandbox
    if sandbox == "bubblewrap":
        return BubblewrapSandbox()
    raise ConfigError(
        f'sandbox: must be "bubblewrap" or an object with a method `confine`, got {sandbox!r:.80}'
    )


def can_find_programs(sandbox: Sandbox | None) -> bool:
    """Return whether programs are looked up in the sandbox, and not on this machine."""
    return bool(getattr(sandbox, "finds_programs", False))


def check_paths(
    field: str, paths: Iterable[str | os.PathLike[str]]
) -> tuple[Path, ...]:
    """Return absolute paths; raise `ConfigError` for one that does not exist, or for everything."""
    found = [Path(path).resolve() for path in paths]
    for path in found:
        if not path.exists():
            raise ConfigError(f"{field}: {str(path)!r} does not exist; create it, or leave it out")  # fmt: skip
        if path == Path("/"):
            raise ConfigError(f"{field}: '/' is everything; name what is needed")
    return tuple(found)


def check_cwd(cwd: Path) -> None:
    """Raise `ConfigError` for a directory with which a program would see what the sandbox is to hide."""
    for path in (cwd.absolute(), cwd.resolve()):
        if any(path.is_relative_to(place) for place in KERNEL):
            raise ConfigError(
                f"sandbox: cwd {str(cwd)!r} cannot be confined, since it is the kernel's; start in a directory of "
                "its own"
            )
    home = os.path.expanduser("~")
    for hidden in (*SYSTEM, *PRIVATE, *filter(os.path.isabs, [home])):
        if Path(hidden).resolve().is_relative_to(cwd.resolve()):
            raise ConfigError(
                f"sandbox: cwd {str(cwd)!r} cannot be confined, since a program would see all of {hidden} in it; start "
                "in a directory of its own (`cwd` of shell, `folder` of a tool in a manifest)"
            )


def _find_bubblewrap() -> str:
    found = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    if found is None:
        raise ConfigError(
            "sandbox: BubblewrapSandbox needs the program bwrap; install bubblewrap with the system's packages (Linux)"
        )
    return found


def _probe(arguments: Sequence[str]) -> None:
    """Run nothing in a sandbox; raise `ConfigError` if the system does not let one be made."""
    command = [*arguments, "/usr/bin/env", "true"]
    try:
        ran = subprocess.run(  # noqa: S603 - our own words
            command, capture_output=True, timeout=PROBE_SECONDS, check=False, env={"PATH": os.defpath}
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"sandbox: bwrap cannot be run: {error}") from error
    if ran.returncode != 0:
        problem = ran.stderr.decode("utf-8", "replace").strip()
        raise ConfigError(
            f"sandbox: bwrap cannot make one here: {problem}; allow user namespaces, or run tools in another process "
            "with RemoteExecutor"
        )
