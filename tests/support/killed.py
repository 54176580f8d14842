"""A server of processes that work on one run each and kill themselves at a chosen barrier of its journal.

    python killed.py

It reads jobs from its standard input, a line each: the names of a program (see `programs.py`), of a database and of a
log, the number of a barrier (0 kills nothing), and "before" or "after". For each job it forks; the child starts the
run, or resumes it if the journal has it. What the model and the tools do goes into the log, a line each, flushed to the
disk before the process goes on. Answered is a line of JSON: the signal that ended the child, and what it printed.
"""

import asyncio
import json
import os
import signal
import sys

from loopwright import UnknownRun
from loopwright.journal import Claim
from loopwright.journals import SQLiteJournal
from programs import PROGRAMS, Program

RUN = "the-run"


class Mortal(SQLiteJournal):
    """A journal whose process dies at a barrier."""

    def __init__(self, path: str, barrier: int, when: str) -> None:
        super().__init__(path)
        self._left, self._when = barrier, when

    async def barrier(self, claim: Claim) -> None:
        """Die before or after the chosen one."""
        self._left -= 1
        this = self._left
        if (this, self._when) == (0, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().barrier(claim)
        if (this, self._when) == (0, "after"):
            os.kill(os.getpid(), signal.SIGKILL)


async def work(program: Program, journal: Mortal) -> str:
    """Start or resume, and give the answer."""
    async with program.runtime(journal) as runtime:
        engine = program.engine(runtime)
        try:
            result = await engine.resume(RUN)
        except UnknownRun:
            result = await engine.run(program.task, run_id=RUN)
        result.raise_for_status()
        check = journal.verify(RUN, result.head_hash)
        await journal.close()
        return f"{result.answer} {check.problem or 'verified'} {result.llm_calls} {result.tool_calls}"


def child(job: list[str], answers: int) -> None:
    """One process's work: what it prints goes to `answers`; an error leaves a traceback there."""
    name, database, log, barrier, when = job
    os.environ["KILLED_LOG"] = log
    try:
        said = asyncio.run(work(PROGRAMS[name], Mortal(database, int(barrier), when)))
    except BaseException as error:  # noqa: BLE001 - the parent tells the test
        said = f"{type(error).__name__}: {error}"
    os.write(answers, said.encode())
    os._exit(0)


def serve() -> None:
    """Do each job in a fork, one after the other."""
    for line in sys.stdin:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            child(line.split(), writing)
        os.close(writing)
        with os.fdopen(reading) as answers:
            said = answers.read()
        _, status = os.waitpid(pid, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), said]), flush=True)


if __name__ == "__main__":
    serve()
