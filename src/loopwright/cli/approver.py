"""Approvers of the command line: the person at the terminal, approve all, or a person later."""

import asyncio
import os
import sys
import termios
from typing import Literal, TextIO, TypeAlias

from ..errors import ConfigError
from ..gates.base import Action, Allow, Approver, Deny, Suspend
from .progress import Watcher
from .terminal import is_terminal
from .text import exact_call, one_line

Approval: TypeAlias = Literal["ask", "yes", "wait"]
NO_TERMINAL = (
    "it needs a person's approval, and there is no terminal to ask at "
    "(--yes approves everything, --wait keeps the run waiting for `loopwright approve`)"
)


def choose_approver(approval: Approval | None, watcher: Watcher) -> Approver | Suspend:
    """Return the approver. Without a choice the person at the terminal is asked; without a terminal calls are denied."""
    if approval == "yes":
        return approve_all
    if approval == "wait":
        return Suspend()
    terminal = _asking_terminal()
    if terminal is not None:
        return TerminalApprover(terminal, sys.stderr, watcher)
    if approval == "ask":
        raise ConfigError(
            "--ask: there is no terminal to ask at; choose --yes or --wait"
        )
    return _refuse_all


async def approve_all(action: Action, question: str) -> Allow:
    """Approve a call, whatever it is."""
    return Allow()


async def _refuse_all(action: Action, question: str) -> Deny:
    return Deny(f"{action.tool} was not run: {NO_TERMINAL}")


def _asking_terminal() -> int | None:
    """Return the file descriptor that a person types on, also if standard input is a file."""
    if not is_terminal(sys.stderr):
        return None
    if sys.stdin.isatty():
        return sys.stdin.fileno()
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None


class TerminalApprover:
    """Ask the person at a terminal, one question at a time; any answer but yes denies."""

    def __init__(self, terminal: int, screen: TextIO, watcher: Watcher) -> None:
        self._terminal, self._screen, self._watcher = terminal, screen, watcher
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, action: Action, question: str) -> Allow | Deny:
        """Show the call and wait for a line; a text that is neither yes nor no denies, as the reason."""
        async with self._one_at_a_time:
            with self._watcher.paused():
                # Input typed before the question is not an answer to it.
                termios.tcflush(self._terminal, termios.TCIFLUSH)
                self._screen.write(
                    f"\n{one_line(question)}\n  {exact_call(action.tool, action.arguments)}  [{action.effect}]\n"
                    "y approves it; n or a reason denies it: "
                )
                self._screen.flush()
                answer = (await read_line(self._terminal)).strip()
        if answer.casefold() in ("y", "yes"):
            return Allow()
        reason = "" if answer.casefold() in ("", "n", "no") else f": {answer}"
        return Deny(f"a person refused it{reason}")


async def read_line(descriptor: int) -> str:
    """Return the next line typed; empty at the end of the input. It can be cancelled, unlike a thread's read."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()
    received = bytearray()

    def readable() -> None:
        try:
            chunk = os.read(descriptor, 4096)
        except OSError:  # the terminal is gone
            chunk = b""
        received.extend(chunk)
        if (not chunk or b"\n" in chunk) and not typed.done():
            typed.set_result(bytes(received))

    loop.add_reader(descriptor, readable)
    try:
        line = await typed
    finally:
        loop.remove_reader(descriptor)
    return line.partition(b"\n")[0].decode("utf-8", "replace")
