"""The console: agents that plan, search a tree, ask for an approval, fail and can be steered, with the page on them.

`make console-demo` (or `python examples/console_demo.py --page`) opens the page; there you approve the order and steer the
thermometer, and Ctrl-C ends it. The page is served by another process, which has nothing but the journal's file. Without
`--page` a made-up person does both. No model is needed: `model` plays one.
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Awaitable
from pathlib import Path

from loopwright import (
    Limits,
    PlanExecuteEngine,
    Price,
    ProviderError,
    ReActEngine,
    Request,
    Result,
    Runtime,
    Suspend,
    TreeOfThoughtsEngine,
    Worker,
    tool,
)
from loopwright.journals import SQLiteJournal
from loopwright.testing import Line, ScriptedProvider, call

PLAN = """\
1. look_up("lamps")
2. look_up("prices")
3. look_up("deliveries")
4. Compare $1, $2 and $3.
5. order(item="12 desk lamps", total="428 EUR", note="$4")
join()"""
SLOGANS = ["A lamp for every desk.", "Light where you work.", "Bright ideas, lit."]
pause = 0.02  # seconds that each look-up takes, so that a person can watch


@tool(effect="read", repeatable=True)
async def look_up(topic: str) -> str:
    """Look something up in the shop's files."""
    await asyncio.sleep(pause)
    return f"three notes about {topic}"


@tool(effect="destructive")
async def order(item: str, total: str, note: str = "") -> str:
    """Order something, which costs money."""
    await asyncio.sleep(pause)
    return f"ordered {item} for {total}"


def model(request: Request) -> Line:
    """Reply as the task asks: plan, measure, search for words, or score them."""
    messages = list(request.conversation)
    text = "\n".join(message.content for message in messages)
    guidance = [one.content for one in messages if one.origin == "operator"]
    if "supplier" in text:
        return ProviderError("the key was refused (401)")
    if "temperature" in text:
        if not guidance:
            return call("look_up", topic="weather")
        return f"21 °C. You say: {guidance[-1].splitlines()[-1]}"
    if "slogan" in text:
        number = re.search(r"0 to 10", messages[-1].content)
        chosen = SLOGANS[len(text) % len(SLOGANS)]
        return f"Score: {4 + len(text) % 6}" if number else chosen
    if "ordered 12" in text:
        return "Twelve lamps are ordered for 428 EUR."
    if "Compare" in messages[-1].content:
        return "The twelve for 428 EUR are the best."
    return PLAN


def build_runtime(path: Path) -> Runtime:
    """Return a runtime whose calls wait for approval in the journal."""
    return Runtime(
        ScriptedProvider(model, model="demo"),
        tools=[look_up, order],
        journal=SQLiteJournal(path),
        approver=Suspend(expires=3600),
        lease=30.0,
        limits=Limits(
            max_iterations=None, max_llm_calls=None, max_tool_calls=None, timeout=None
        ),
        prices={"demo": Price(0.4, 1.6)},
    )


async def start_runs(runtime: Runtime) -> list[Result]:
    """Run four engines at the same time, until each has ended or waits."""
    works: list[Awaitable[Result]] = [
        PlanExecuteEngine(runtime).run("Order lamps for the office.", run_id="lamps"),
        ReActEngine(runtime).run(
            "Watch the temperature until I say stop.", run_id="thermometer"
        ),
        TreeOfThoughtsEngine(runtime, n_branches=3, max_depth=2).run(
            "Find a slogan for a shop of lamps.", run_id="slogan"
        ),
        ReActEngine(runtime).run("Write to the supplier.", run_id="letter"),
    ]
    return await asyncio.gather(*works)


async def wait_for(runtime: Runtime, run_id: str, status: str) -> None:
    """Wait until the journal lists a run with a status."""
    for _ in range(2000):
        listed = [one.info for one in await runtime.runs()]
        if (run_id, status) in [(info.run_id, info.status) for info in listed]:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"{run_id} is never {status}")


async def play_person(runtime: Runtime) -> None:
    """Steer one run and approve what the other asks, as a person does on the page."""
    await wait_for(runtime, "thermometer", "running")
    await runtime.control("thermometer").steer("That is enough.", by="Ada")
    await wait_for(runtime, "lamps", "waiting")
    control = runtime.control("lamps")
    [question] = await control.questions()
    await control.approve(question.id, by="Ada")


async def main(*, has_page: bool) -> None:
    """Start the runs, and the page or a made-up person."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        runtime = build_runtime(path)
        runs = asyncio.create_task(start_runs(runtime))
        if has_page:
            await serve_page(runtime, path)
        else:
            await play_person(runtime)
            for result in await runs:
                print(f"{result.run_id}: {result.status} ({result.stop_reason})")
            lamps = await runtime.resume("lamps")
            print(f"{lamps.run_id}: {lamps.status}: {lamps.answer}")
        runs.cancel()
        await asyncio.gather(runs, return_exceptions=True)


async def serve_page(runtime: Runtime, path: Path) -> None:
    """Serve the page from another process, and work on runs that were decided about."""
    command = ["-m", "loopwright", "console", str(path), *sys.argv[2:]]
    page = await asyncio.create_subprocess_exec(sys.executable, *command)
    worker = asyncio.create_task(Worker(runtime, poll=0.2).serve())
    try:
        await page.wait()
    finally:
        worker.cancel()
        if page.returncode is None:
            page.terminate()
            await page.wait()


if __name__ == "__main__":
    if "--page" in sys.argv:
        pause = 0.8
    asyncio.run(main(has_page="--page" in sys.argv))
