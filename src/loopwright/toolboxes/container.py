"""ContainerSandbox: programs of tools in containers, by the command line of podman or docker."""

import copy
import hashlib
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from .._internal import dataclasses
from ..errors import ConfigError
from ..journals.owner import Owner
from .sandbox import ConfinedProgram, check_cwd, check_paths

CLIENTS = ("podman", "docker")
PREFIX = "loopwright-"
SECONDS = 60.0
"""Seconds for a command of the client that runs no program of a tool."""
MAX_REMOVALS, REMOVAL_PAUSE = 10, 0.2
"""How often abandoned containers are removed that another process may be removing, and the seconds between two times."""
NO_SUCH_PROGRAM = 127
"""The exit code of `run` for a container that was made and in which the program is not there."""
_CLIENT_VARIABLES = re.compile(
    r"PATH|HOME|XDG_\w+|(DOCKER|CONTAINERS?|BUILDAH|REGISTRY|STORAGE)_\w+"
)
_NAME = re.compile(r"loopwright-(\d+)-(\d*)-[0-9a-f]+-(\w+)")


@dataclasses.dataclass(frozen=True)
class ContainerLimits:
    """What one program may use.

    Args:
        memory: bytes of memory, without swap.
        pids: processes and threads.
        cpus: processors, also parts of one.
        files: files that one process has open.
        tmp: bytes in its /tmp, which count as memory.
    """

    memory: int = 512 * 1024 * 1024
    pids: int = 128
    cpus: float = 1.0
    files: int = 1024
    tmp: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a limit that is none."""
        for name, value in vars(self).items():
            if not value > 0:
                raise ConfigError(
                    f"limits: {name} must be greater than 0, got {value!r}"
                )


class ContainerSandbox:
    """Runs each program in a container of its own, by the command line of podman or docker.

    A program sees its image, which is read-only, the directory that it starts in, under the same path, and what is named
    here. It has no network, no capability, gains no rights, and may use memory, processes and CPU up to `limits`. A program
    that is named without a directory is that of the image. Its container is removed when it ends, when its time is over and
    when its call is cancelled; those of a process that was killed are, when a process of the same machine makes the next
    sandbox. The kernel is shared, unless the runtime of the containers brings one (`options`).

    Args:
        image: an image that is there: none is pulled. Name it by its digest, so that it stays the same.
        client: the program, by default podman, or docker where there is no podman.
        limits: what each program may use; by default those of `ContainerLimits()`.
        writable: more directories that it may write to.
        readable: more files and directories that it may read.
        write_cwd: whether it may write to the directory that it starts in; if it is not said, programs of `shell` may and
            those of a `manifest` may not.
        user: the user and group that it is in the container, `1000:1000`; by default those of this process.
        options: more options for `run`, such as `("--runtime", "runsc")`. They can take away what is promised here.

    Raises `ConfigError` where the client is missing, or cannot start a container of the image with these limits, and for a
    path that is not there. A program cannot start in "/", in /tmp or in the home directory itself.
    """

    finds_programs = True
    """Programs are those of the image, and not looked up on this machine."""

    def __init__(
        self,
        image: str,
        *,
        client: str = "",
        limits: ContainerLimits | None = None,
        writable: Iterable[str | os.PathLike[str]] = (),
        readable: Iterable[str | os.PathLike[str]] = (),
        write_cwd: bool | None = None,
        user: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self._image, self._limits = _check_image(image), limits or ContainerLimits()
        self._writable = check_paths("writable", writable)
        self._readable = check_paths("readable", readable)
        self._write_cwd, self._options = write_cwd, tuple(options)
        self._client = _find_client(client)
        self._user = tuple(_list_user(user, self._client))
        self._remove_abandoned()
        self._probe()

    @property
    def guarantees(self) -> tuple[str, ...]:
        """Return what holds for a program in it."""
        limits = self._limits
        kept = list[str]() if self._write_cwd is False else ["its directory"]
        written = ", ".join([*kept, *map(str, self._writable)]) or "no file"
        return (
            f"it writes to {written}; all else that it writes, in its own /tmp, is gone with it",
            "it reads these, its image and what is named as readable, and no other file",
            "it has no network",
            "it sees and signals no process from outside, and its container is removed when it ends or its time is over",
            "it has no capability and gets none",
            f"it uses at most {limits.memory:,} bytes of memory, {limits.pids} processes and {limits.cpus:g} CPUs",
            "not limited: what it writes to its directory",
        )

    def confine(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> ConfinedProgram:
        """Return how a program is started, and how its container is removed.

        Raises `ConfigError` for a `cwd` that would show the system, /etc, /tmp or the whole home directory.
        """
        check_cwd(cwd)
        name = _name_container()
        program, own = argv[0], _read_client_environment()
        passed = {key: value for key, value in env.items() if key not in ("PATH", "HOME")}  # fmt: skip
        arguments = [
            *self._build_options(name), *self._mount(cwd), "--workdir", str(cwd),
            "--env", "HOME=/tmp", *_pass_variables(passed, own), "--entrypoint", program, self._image, *argv[1:],
        ]  # fmt: skip
        return ConfinedProgram(
            (self._client, *arguments),
            {**passed, **own},
            (self._client, "rm", "--force", name),
        )

    def with_default(self, *, write_cwd: bool) -> Self:
        """Return the same sandbox with a `write_cwd` for one that was made without it."""
        chosen = copy.copy(self)
        if chosen._write_cwd is None:
            chosen._write_cwd = write_cwd
        return chosen

    def _build_options(self, name: str) -> list[str]:
        limits = self._limits
        return [
            "run", "--rm", "--name", name, "--pull", "never", "--network", "none", "--read-only",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--stop-signal", "KILL",
            "--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--pids-limit", str(limits.pids),
            "--cpus", f"{limits.cpus:g}", "--ulimit", f"nofile={limits.files}:{limits.files}",
            "--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.tmp}", *self._user, *self._options,  # noqa: S108 - its own
        ]  # fmt: skip

    def _mount(self, cwd: Path) -> Iterator[str]:
        """Yield the options that show a program its directories."""
        for path in self._readable:
            yield from _bind(path, can_write=False)
        for path in self._writable:
            yield from _bind(path, can_write=True)
        yield from _bind(cwd, can_write=self._write_cwd is not False)

    def _remove_abandoned(self) -> None:
        """Remove the containers of processes of this machine that are not alive any more.

        Another process may be removing them as well: docker refuses the second removal of a container.
        """
        failures = list[ConfigError]()
        while gone := self._list_abandoned():
            try:
                self._call("rm", "--force", *gone)
                return
            except ConfigError as error:
                if error.__cause__ is not None:  # the client itself fails or hangs
                    raise
                failures.append(error)
            if len(failures) == MAX_REMOVALS:
                raise failures[0]
            time.sleep(REMOVAL_PAUSE)

    def _list_abandoned(self) -> list[str]:
        names = self._call("ps", "--all", "--filter", f"name={PREFIX}", "--format", "{{.Names}}")  # fmt: skip
        return [name for name in names.split() if _is_abandoned(name)]

    def _probe(self) -> None:
        """Start a container with all the limits; raise `ConfigError` if that cannot be done."""
        options = self._build_options(_name_container())
        self._call(*options, "--entrypoint", "true", self._image, accepted=(NO_SUCH_PROGRAM,))  # fmt: skip

    def _call(self, *arguments: str, accepted: Sequence[int] = ()) -> str:
        """Return what the client says; raise `ConfigError` if it fails."""
        client = Path(self._client).name
        try:
            ran = subprocess.run(  # noqa: S603 - our own words
                [self._client, *arguments], capture_output=True, timeout=SECONDS, check=False,
                env=_read_client_environment(), stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"sandbox: {client} cannot be run: {error}") from error
        if ran.returncode not in (0, *accepted):
            problem = ran.stderr.decode("utf-8", "replace").strip()
            raise ConfigError(
                f"sandbox: {client} cannot make a container of {self._image!r} here: {problem[-500:]}; start its service, "
                "build or pull the image first, or choose other limits"
            )
        return ran.stdout.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"ContainerSandbox({self._image!r}: {'; '.join(self.guarantees)})"


def _check_image(image: str) -> str:
    if not image or image.startswith("-") or any(map(str.isspace, image)):
        raise ConfigError(
            f"image: must be the name of an image, got {image!r:.80}; name it by its digest"
        )
    return image


def _find_client(client: str) -> str:
    names = (client,) if client else CLIENTS
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    raise ConfigError(
        f"client: ContainerSandbox needs one of the programs {', '.join(names)}; install it with the system's packages"
    )


def _list_user(user: str, client: str) -> Iterator[str]:
    """Yield the options that make files which the container writes belong to this process."""
    if user or not hasattr(os, "getuid"):
        yield from ("--user", user) if user else ()
        return
    if os.getuid() != 0 and Path(client).name == "podman":
        yield from ("--userns", "keep-id")
    yield from ("--user", f"{os.getuid()}:{os.getgid()}")


def _bind(path: Path, *, can_write: bool) -> tuple[str, str]:
    if "," in str(path) or '"' in str(path):
        raise ConfigError(
            f"sandbox: {str(path)!r} cannot be mounted, since it has a comma or a quote; choose another directory"
        )
    ending = "" if can_write else ",readonly"
    return "--mount", f"type=bind,source={path},target={path}{ending}"


def _pass_variables(env: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    """Yield the options that set variables, by their names alone, since everybody sees arguments."""
    for name, value in env.items():
        yield from ("--env", f"{name}={value}" if name in own else name)


def _read_client_environment() -> dict[str, str]:
    """Return the variables of this process that the client needs."""
    return {
        name: value
        for name, value in os.environ.items()
        if _CLIENT_VARIABLES.fullmatch(name)
    }


def _name_container() -> str:
    """Return a new name, which says whose container it is: process, its start, the machine."""
    owner = Owner.of_this_process(secrets.token_hex(8))
    return f"{PREFIX}{owner.pid}-{owner.started}-{owner.token}-{_hash_host(owner)}"


def _hash_host(owner: Owner) -> str:
    """Return what tells machines apart, and on one of them the containers that processes work in."""
    return hashlib.sha256(owner.host.encode()).hexdigest()[:12]


def _is_abandoned(name: str) -> bool:
    """Return whether the process that a container was made for is gone, as far as this machine can know."""
    found = _NAME.fullmatch(name)
    if found is None:
        return False
    pid, started, host = found.groups()
    owner = Owner.of_this_process("")
    if host != _hash_host(owner) or int(pid) == owner.pid:
        return False
    return not Owner(owner.host, int(pid), started, "").is_alive
