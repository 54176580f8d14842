"""The process that dies: it begins runs or goes on with them, and notes what is said to be kept and what its tools do.

As a program it is the interpreter that forks such a process for each life that standard input names, kills it when its
time has come, and tells how it ended.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from kill_notes import Ending, Life, Notes, Scenario
from kill_programs import ENDLESS, KILL_PROGRAMS, tools_of
from loopwright import Limits, LoopEngine, Result, Runtime
from loopwright.errors import UnknownRun
from loopwright.journals import Claim, SQLiteJournal
from loopwright.providers import Delta, OpenAIProvider, Quirks
from loopwright.testing.crash_harness import WITNESS
from programs import Program

QUIRKS = Quirks(stream_usage=True)


# --- what is noted ---


class Acknowledged(SQLiteJournal):
    """Notes who writes which run and each barrier that returned, and dies at a chosen barrier."""

    def __init__(self, life: Life, notes: Notes) -> None:
        super().__init__(life.folder / "runs.db")
        self._death, self._left, self._notes = life.death, life.death.barrier, notes

    async def barrier(self, claim: Claim) -> None:
        """Wait, then note what is promised to be kept: all that was handed over before."""
        self._notes.add(claim.run_id, "claimed", fence=claim.fence)
        self._left -= 1
        doomed = self._left == 0
        if doomed and self._death.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        seq, head = claim.head_seq, claim.head_hash
        await super().barrier(claim)
        self._notes.add(claim.run_id, "kept", seq=seq, hash=head)
        if doomed:
            os.kill(os.getpid(), signal.SIGKILL)


# --- what is done ---


async def live(life: Life) -> list[Ending]:
    """Begin each run of the scenario, or go on with those that the journal has, all at the same time."""
    notes = Notes(life.folder, life.number, life.death)
    journal = Acknowledged(life, notes)
    try:
        runs = life.scenario.runs.items()
        return await asyncio.gather(
            *(_bring_to_its_end(life, journal, notes, *run) for run in runs)
        )
    finally:
        await journal.close()


async def _bring_to_its_end(
    life: Life, journal: Acknowledged, notes: Notes, run: str, name: str
) -> Ending:
    scenario, program = life.scenario, KILL_PROGRAMS[name]
    url = f"{life.url}/{life.folder.name}/{run}/{life.number}/v1"
    provider = OpenAIProvider(name, base_url=url, api_key="", quirks=QUIRKS)
    limits: dict[str, Any] = dict(scenario.limits)
    runtime = Runtime(
        provider, tools=tools_of(program, threads=scenario.threads), journal=journal, limits=Limits(**limits),
        approver=program.approver, gate=program.gate,
    )  # fmt: skip
    async with runtime, contextlib.aclosing(provider):
        engine, deltas = program.engine(runtime), 0
        try:
            result: Result[object] = await engine.resume(run, deps=notes)
        except UnknownRun:
            result, deltas = await _begin(
                engine, program, run, notes, streaming=scenario.streaming
            )
        used = result.usage
        tokens = [used.input_tokens or 0, used.output_tokens or 0]
        return Ending(
            run=run, status=result.status, answer=result.answer, llm_calls=result.llm_calls, deltas=deltas,
            tool_calls=result.tool_calls, tokens=tokens, iterations=result.iterations, head=result.head_hash,
        )  # fmt: skip


async def _begin(
    engine: LoopEngine, program: Program, run: str, notes: Notes, *, streaming: bool
) -> tuple[Result[object], int]:
    """A new run, watched piece by piece if it is to stream; the result, and how many pieces were told."""
    if not streaming:
        return await engine.run(
            program.task, run_id=run, deps=notes, saga=program.saga
        ), 0
    deltas = 0
    async with engine.start(
        program.task, run_id=run, deps=notes, saga=program.saga, deltas=True
    ) as handle:
        async for item in handle:
            deltas += isinstance(item, Delta)
        return await handle.result(), deltas


# --- the interpreter that forks, and kills ---


def serve() -> None:
    """Fork a process for each life, one after the other, and kill it when its seconds are over.

    The answer is a line too: how it ended (a negative signal, or 0), after how many seconds, and what it told.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is no answer
    warm = False
    for line in sys.stdin:
        life = Life.read(line)
        if not warm:
            _warm_up(life.url)
            warm = True
        reading, writing = os.pipe()
        since = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _live_and_tell(life, writing)
        os.close(writing)
        said, modules = _heard(reading, pid, life.death.seconds)
        _, status = os.waitpid(pid, 0)
        ended = [os.waitstatus_to_exitcode(status), time.monotonic() - since, said]
        print(json.dumps(ended), file=answers, flush=True)
        for module in modules:  # and what it had to import
            importlib.import_module(module)


def _warm_up(url: str) -> None:
    """What is made at first use is made here, once for all forks: half of what a life would cost."""
    for number, (name, program) in enumerate(KILL_PROGRAMS.items()):
        tools_of(program, threads=True)
        if name not in ENDLESS:
            with tempfile.TemporaryDirectory() as folder:
                asyncio.run(
                    live(
                        Life(
                            Scenario((name,), streaming=number % 2 == 0),
                            Path(folder),
                            url,
                            0,
                        )
                    )
                )
    gc.collect()
    gc.freeze()


def _live_and_tell(life: Life, telling: int) -> None:
    os.environ[WITNESS] = str(life.folder / "witness")
    known = set(sys.modules)
    try:
        said: object = asyncio.run(live(life))
    except BaseException:  # noqa: BLE001 - the watching process tells the test
        said = traceback.format_exc()
    os.write(telling, json.dumps([said, sorted(sys.modules.keys() - known)]).encode())
    os._exit(0)


def _heard(reading: int, pid: int, seconds: float | None) -> tuple[object, list[str]]:
    """What a process tells, and what it imported; once its time is over it is killed, and mostly tells nothing."""
    end = None if seconds is None else time.monotonic() + seconds
    told = b""
    while True:
        left = None if end is None else max(end - time.monotonic(), 0.0)
        if not select.select([reading], [], [], left)[0]:
            os.kill(
                pid, signal.SIGKILL
            )  # it is not yet waited for, so this is nobody else
            end = None
            continue
        piece = os.read(reading, 65536)
        if not piece:
            os.close(reading)
            break
        told += piece
    try:
        said, modules = json.loads(told)
    except ValueError:  # it died before it had told all
        return None, []
    return said, modules


if __name__ == "__main__":
    serve()
