"""Whether an engine's code is running, also where its coroutine is freed in another context than the one it ran in."""

import asyncio
import gc

import structlog

from function_engine import FunctionEngine
from loopwright import MemoryJournal, Run, Runtime
from loopwright.testing import ScriptedProvider


def lose_run(journal: MemoryJournal) -> None:
    """Begin a run, and drop its event loop, its engine and its runtime while it waits."""
    has_begun = asyncio.Event()

    async def body(run: Run) -> None:
        await run.ask("What?")
        has_begun.set()
        await asyncio.Event().wait()

    runtime = Runtime(ScriptedProvider(["so"]), journal=journal)
    engine = FunctionEngine(runtime, body=body)

    async def begin() -> None:
        asyncio.ensure_future(engine.run("Go.", run_id="r"))  # noqa: RUF006 - it is to be lost
        await has_begun.wait()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # told of the lost tasks
    loop.run_until_complete(begin())
    loop.close()


def test_a_run_whose_event_loop_is_dropped_does_not_fail() -> None:
    """Its engine ends by `GeneratorExit` as it is freed, and its journal stays as it was."""
    journal = MemoryJournal()
    with structlog.testing.capture_logs() as logs:
        lose_run(journal)
        gc.collect()

    assert logs == []
    assert (journal.runs()[0].status, len(journal.read("r"))) == ("running", 2)
