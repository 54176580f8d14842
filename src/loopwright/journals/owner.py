"""Who works on a run: this process or another one, alive or dead."""

import asyncio
import dataclasses
import functools
import os
import secrets
import socket
import sys
from pathlib import Path


class _AtWork:
    """The tokens of runs that a process works on; those of an event loop that was closed are none any more."""

    def __init__(self) -> None:
        self._loops: dict[str, asyncio.AbstractEventLoop | None] = {}

    def add(self, token: str) -> None:
        """Work begins, in the running event loop if there is one."""
        try:
            self._loops[token] = asyncio.get_running_loop()
        except RuntimeError:
            self._loops[token] = None

    def discard(self, token: str) -> None:
        """Work is over."""
        self._loops.pop(token, None)

    def __contains__(self, token: str) -> bool:
        loop = self._loops.get(token)
        return token in self._loops and not (loop is not None and loop.is_closed())

    def __len__(self) -> int:
        return len(self._loops)


AT_WORK = _AtWork()  # of this process


@dataclasses.dataclass(frozen=True)
class Owner:
    """Who writes a run: a host, a process on it (with its start time, since numbers come again), and one run of it.

    Where processes have namespaces, as in containers, `host` is the host's name, `/`, and the number of theirs.
    """

    host: str
    pid: int
    started: str
    token: str

    def __str__(self) -> str:
        return f"{self.host}|{self.pid}|{self.started}|{self.token}"

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """Read what `str(owner)` wrote."""
        host, pid, started, token = text.split("|")
        return cls(host, int(pid), started, token)

    @classmethod
    def of_this_process(cls, token: str) -> "Owner":
        """This process as an owner; `token` tells its runs apart."""
        return cls(*_identity(os.getpid()), token)

    @property
    def in_sight(self) -> bool:
        """Whether the numbers of processes mean the same to that owner and here, as far as it says."""
        return self.host in (socket.gethostname(), _identity(os.getpid())[0])

    @property
    def alive(self) -> bool:
        """Whether that owner may still be at work; one on another host counts as alive.

        One whose number is not `in_sight` is judged by it all the same: hold that against a lease, where there is one.
        """
        if self.host.partition("/")[0] != socket.gethostname():
            return True
        if self.pid == os.getpid():
            return self.token in AT_WORK
        if sys.platform == "win32":
            return True  # signal 0 is no question there: a take-over must be asked for
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return process_start(self.pid) == self.started


@functools.cache
def _identity(pid: int) -> tuple[str, int, str]:
    """Host, number and start of this process; the number is an argument because a fork changes it."""
    try:
        host = f"{socket.gethostname()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        host = socket.gethostname()
    return host, pid, process_start(pid)


def process_start(pid: int) -> str:
    """When a process started, in the system's own unit; empty where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def new_owner() -> Owner:
    """This process, with a token for one more run."""
    return Owner.of_this_process(secrets.token_hex(8))
