"""A worker that fires a schedule and is killed at the commit of its journal that the command line names."""

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any, Literal

from loopwright import Runtime, Worker
from loopwright.journals import SQLiteJournal
from loopwright.testing import FakeClock, ScriptedProvider

HOUR = 3600.0
START = 1_700_000_000.0
SCHEDULE = {"cron": "0 * * * *", "missed": "all", "overlap": "queue"}


class DoomedCursor(sqlite3.Cursor):
    """Kills the process before or after a commit."""

    left = 0
    moment: Literal["before", "after"] = "before"

    def execute(self, sql: str, *arguments: Any) -> "DoomedCursor":
        """Execute, and die at the commit whose turn it is."""
        is_last = False
        if sql == "COMMIT":
            DoomedCursor.left -= 1
            is_last = DoomedCursor.left == 0
        if is_last and self.moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().execute(sql, *arguments)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return self


class DoomedConnection(sqlite3.Connection):
    """A connection with such cursors."""

    def cursor(self, factory: Any = None) -> Any:
        """Return one."""
        return super().cursor(DoomedCursor)


def application(path: Path, clock: FakeClock, told: Path) -> Runtime:
    """The process: its model writes a line for each answer that it gives."""

    def answer(request: Any) -> str:
        with told.open("a") as file:
            file.write("asked\n")
        return "done"

    journal = SQLiteJournal(path, clock=clock)
    runtime = Runtime(ScriptedProvider(answer), journal=journal, clock=clock, lease=30.0)  # fmt: skip
    runtime.agent("digest", engine="react")
    return runtime


async def main(path: Path, told: Path, hours: float) -> None:
    """Fire what is due at so many hours after the start, and do it."""
    runtime = application(path, FakeClock(wall=START + hours * HOUR), told)
    connect = sqlite3.connect

    def connect_doomed(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **options, factory=DoomedConnection)

    sqlite3.connect = connect_doomed  # type: ignore[assignment]
    await runtime.schedule("d", "digest", "Sum up.", **SCHEDULE)  # type: ignore[arg-type]
    await Worker(runtime).drain()
    await runtime.journal.close()


if __name__ == "__main__":
    DoomedCursor.left, DoomedCursor.moment = int(sys.argv[4]), sys.argv[5]  # type: ignore[assignment]
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))
