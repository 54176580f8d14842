"""A run in a process of its own whose disk fails: `python failing_disk.py PATH WITNESS TROUBLE [ARGUMENT]`.

It tells on standard output, a line each, what it did: `durable N` after a barrier, `refused` when one failed, `tool N`
when a tool starts, `turn N` before the model answers, and `result` with a JSON object at the end. With the troubles
"pause", "patience" and "lease" it waits at the turn that the argument names for a line on standard input, so that another
process can make trouble meanwhile; with the last two its journal tries for as long as by default, with "lease" the run
has one of a second.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from loopwright import ConfigError, ReActEngine, Request, Runtime, tool
from loopwright.errors import JournalError
from loopwright.journals import Claim, Journal, SQLiteJournal
from loopwright.messages import ToolCall
from loopwright.testing import ScriptedProvider, call

RUN, ANSWER, TURNS = "the-run", "five letters", 5
TASK = (
    "Send five letters. " + "They may be long. " * 1000
)  # so that each barrier needs more room than the last
NOBODY = 65534
PATIENT = ("patience", "lease")


class Telling(SQLiteJournal):
    """A journal that tells what became of each barrier."""

    def __init__(
        self, path: Path, tell: Callable[[str], None], retry_timeout: float = 0.6
    ) -> None:
        super().__init__(path, busy_timeout=0.3, retry_timeout=retry_timeout)
        self._tell = tell

    async def barrier(self, claim: Claim) -> None:
        """Wait, and tell how it ended."""
        head = claim.head_seq
        try:
            await super().barrier(claim)
        except BaseException:
            self._tell("refused")
            raise
        self._tell(f"durable {head}")


def letters(
    journal: Journal,
    witness: Path,
    tell: Callable[[str], None],
    turn: Callable[[int], None],
    lease: float | None = None,
) -> ReActEngine:
    """The engine: five turns with a letter each, which is witnessed before it is sent."""

    @tool(effect="write")
    def send(number: int) -> str:
        """Send a letter."""
        tell(f"tool {number}")
        with open(witness, "a") as file:
            file.write(f"{number}\n")
        return f"letter {number} sent, {'and so on ' * 300}"

    def model(request: Request) -> str | ToolCall:
        number = sum(
            message.role == "assistant" for message in request.conversation.messages
        )
        turn(number)
        return call("send", number=number) if number < TURNS else ANSWER

    return ReActEngine(
        Runtime(ScriptedProvider(model), tools=[send], journal=journal, lease=lease)
    )


def _say(line: str) -> None:
    print(line, flush=True)


def _pause(at: int, number: int) -> None:
    _say(f"turn {number}")
    if number == at:
        sys.stdin.readline()


async def _work(path: str, witness: str, trouble: str, argument: str) -> None:
    Path(path).as_uri()  # loads what Python loads late, while it can still be read
    at = int(argument) if trouble in ("pause", *PATIENT) else -1
    told = dict[str, object]()
    try:
        journal = Telling(Path(path), _say, 30.0 if trouble in PATIENT else 0.6)
        engine = letters(
            journal, Path(witness), _say, lambda number: _pause(at, number),
            1.0 if trouble == "lease" else None,
        )  # fmt: skip
        TROUBLES[trouble](argument)
        result = await engine.run(TASK, run_id=RUN)
        told = {
            "status": result.status,
            "stop_reason": result.stop_reason,
            "head": result.head_hash,
        }
        told |= {"error": type(result.error).__name__, "text": str(result.error)}
    except (ConfigError, JournalError) as error:
        told = {
            "status": "raised",
            "stop_reason": "",
            "error": type(error).__name__,
            "text": str(error),
        }
    _say(f"result {json.dumps(told)}")


def _small_files(size: str) -> None:
    import resource

    resource.setrlimit(
        resource.RLIMIT_FSIZE, (int(size), int(size))
    )  # Python ignores the signal that comes with it


def _few_files(more: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    opened = list[int]()
    with contextlib.suppress(OSError):
        while True:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    for descriptor in opened[: int(more)]:
        os.close(descriptor)


def _as_nobody(_: str) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def _nothing(_: str) -> None:
    pass


TROUBLES: dict[str, Callable[[str], None]] = {
    "none": _nothing, "pause": _nothing, "patience": _nothing, "lease": _nothing,
    "small-files": _small_files, "few-files": _few_files, "nobody": _as_nobody,
}  # fmt: skip


if __name__ == "__main__":
    asyncio.run(
        _work(
            sys.argv[1],
            sys.argv[2],
            sys.argv[3],
            sys.argv[4] if len(sys.argv) > 4 else "",
        )
    )
