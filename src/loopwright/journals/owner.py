"""The owner of a run: a process, and whether it is alive."""

import asyncio
import functools
import os
import secrets
import socket
import sys
from pathlib import Path

from .._internal import dataclasses

ENDED_STATES = (b"Z", b"X")
"""The states of a process that has ended and is still listed, until its parent asks for its exit status."""


class _ActiveTokens:
    """The tokens of the runs that a process works on; those of a closed event loop do not count."""

    def __init__(self) -> None:
        self._loops: dict[str, asyncio.AbstractEventLoop | None] = {}

    def add(self, token: str) -> None:
        """Add the token of a run, with the running event loop if there is one."""
        try:
            self._loops[token] = asyncio.get_running_loop()
        except RuntimeError:
            self._loops[token] = None

    def discard(self, token: str) -> None:
        """Remove the token of a run that is not worked on any more."""
        self._loops.pop(token, None)

    def __contains__(self, token: str) -> bool:
        if token not in self._loops:
            return False
        loop = self._loops[token]
        return loop is None or not loop.is_closed()

    def __len__(self) -> int:
        return len(self._loops)


ACTIVE_TOKENS = _ActiveTokens()  # of this process


@dataclasses.dataclass(frozen=True)
class Owner:
    """The owner of a run: a host, a process on it (with its start time, because pids are reused), and a token.

    If the system has PID namespaces, as containers do, `host` is the host's name, `/`, and the namespace's number.
    """

    host: str
    pid: int
    started: str
    token: str

    def __str__(self) -> str:
        return f"{self.host}|{self.pid}|{self.started}|{self.token}"

    @classmethod
    def parse(cls, text: str) -> "Owner":
        """Parse what `str(owner)` wrote."""
        host, pid, started, token = text.split("|")
        return cls(host, int(pid), started, token)

    @classmethod
    def of_this_process(cls, token: str) -> "Owner":
        """Return this process as an owner; `token` distinguishes its runs."""
        return cls(*_identity(os.getpid()), token)

    @property
    def has_comparable_pid(self) -> bool:
        """Whether the owner's pid belongs to the PID namespace of this process, as far as it says."""
        return self.host in (socket.gethostname(), _identity(os.getpid())[0])

    @property
    def is_alive(self) -> bool:
        """Whether the owner may still be at work; an owner on another host counts as alive.

        The pid is looked up even if it is not `has_comparable_pid`: check the lease first, if there is one.
        """
        if self.host.partition("/")[0] != socket.gethostname():
            return True
        if self.pid == os.getpid():
            return self.token in ACTIVE_TOKENS
        if sys.platform == "win32":
            return True  # signal 0 would end the process there, so a take-over must be explicit
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return process_start(self.pid) == self.started


@functools.cache
def _identity(pid: int) -> tuple[str, int, str]:
    """Return host, pid and start of this process; the pid is an argument because a fork changes it."""
    try:
        host = f"{socket.gethostname()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        host = socket.gethostname()
    return host, pid, process_start(pid)


def process_start(pid: int) -> str:
    """Return when a process started, in the system's unit; empty if it has ended or the system does not say."""
    try:
        # Bytes, since the name of a process need not be UTF-8.
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        state, *fields = stat.rpartition(b")")[2].split()
        return "" if state in ENDED_STATES else fields[18].decode()
    except (OSError, ValueError, IndexError):
        return ""


def new_owner() -> Owner:
    """Return this process as an owner with a new token."""
    return Owner.of_this_process(secrets.token_hex(8))
