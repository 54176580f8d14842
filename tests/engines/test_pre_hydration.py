"""Pre-hydration: references of a task are resolved through the gate before the first call, once."""

import asyncio
import contextlib
from typing import Any

import pytest

from function_engine import FunctionEngine
from loopwright import (
    Action,
    Allow,
    ConfigError,
    Decision,
    Deny,
    MemoryJournal,
    PolicyState,
    Run,
    Runtime,
    ToolCall,
    ToolError,
    tool,
)
from loopwright.engines import PreHydration
from loopwright.engines.pre_hydration import find_references
from loopwright.errors import TimedOut
from loopwright.testing import ScriptedProvider, crashed
from sample_tools import RAN
from virtual_time import LoopClock, in_virtual_time

TASK = (
    "Fix #12 in src/app.py, see https://example.org/a(b). and PR #7; not 3.14 or x@y.z"
)
TOOLS = {"url": "fetch", "file": "read", "issue": "issue", "pr": "no_such_tool"}


@tool(effect="read")
async def fetch(url: str) -> str:
    """Fetch."""
    RAN.append(url)
    if "slow" in url:
        await asyncio.sleep(600)
    return f"page {url} " + "x" * 500


@tool(effect="read")
async def read(path: str, offset: int = 0) -> str:
    """Read."""
    RAN.append(path)
    raise ToolError("no such file")


@tool(effect="read", trusted=True)
async def issue(number: int) -> str:
    """Issue."""
    RAN.append(str(number))
    return f"issue {number}: it crashes"


class NoPages:
    """Denies every page."""

    version = "1"

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        return Deny("no pages") if action.tool == "fetch" else Allow()


def engine(hydration: PreHydration, journal: Any = None, **options: Any) -> Any:
    async def body(run: Run) -> object:
        return await run.ask(await hydration.hydrate(run))

    model = ScriptedProvider(
        lambda request: str(request.conversation.messages[-1].content)
    )
    runtime = Runtime(model, tools=[fetch, read, issue], journal=journal, **options)
    return FunctionEngine(runtime, body=body)


def test_references_are_found_in_order_each_once() -> None:
    assert find_references(f"{TASK} e.g. a.b, setup.py, {TASK}") == [
        ("issue", "12"),
        ("file", "src/app.py"),
        ("url", "https://example.org/a(b"),
        ("pr", "7"),
        ("file", "setup.py"),
    ]


def test_files_are_found_as_people_name_them() -> None:
    names = {
        "What is wrong in @src/sums.py?": ["src/sums.py"],
        "@README.md and @docs/blåbær.md": ["README.md", "docs/blåbær.md"],
        'Read @"my docs/read me.md" or @"Makefile" or @"Who am I?".': [
            "my docs/read me.md",
            "Makefile",
            "Who am I?",
        ],
        "src/sums.test.ts, types.d.ts:12 and (a/b.tar.gz)": [
            "src/sums.test.ts",
            "types.d.ts",
            "a/b.tar.gz",
        ],
        'ada@example.com, git@host.org:a/b.git, x@"a.py", @ada said "e.g."': [],
    }
    for task, files in names.items():
        assert find_references(task) == [("file", name) for name in files], task


async def test_what_a_task_refers_to_is_fetched_before_the_first_call() -> None:
    RAN.clear()
    result = await engine(PreHydration(TOOLS, tokens=50)).run(TASK)
    fact = result.fact("Hydrated")

    assert RAN[:1] == ["12"]
    assert fact["resolved"] == ["issue 12", "url https://example.org/a(b"]
    assert fact["failed"]["file src/app.py"] == "error"
    assert "issue 12:\nissue 12: it crashes" in str(result.answer)
    assert "[cut: the first 100 of 5" in str(result.answer)


async def test_a_run_cut_after_any_entry_fetches_nothing_again() -> None:
    whole = engine(PreHydration(TOOLS), MemoryJournal())
    result = await whole.run(TASK, run_id="r")
    entries = whole.runtime.journal.read("r")

    for keep in range(1, len(entries)):
        RAN.clear()
        resumed = await engine(PreHydration(TOOLS), crashed(entries, keep)).resume("r")
        finished = sum(e.kind == "tool_finished" for e in entries[:keep])
        calls = sum(e.kind == "tool_finished" for e in entries)
        assert resumed.answer == result.answer
        assert len(RAN) == calls - finished


@in_virtual_time
async def test_a_gate_decides_and_a_slow_page_does_not_hold_up_the_run() -> None:
    denied = await engine(PreHydration(TOOLS), gate=NoPages()).run(
        "See https://a.example/"
    )
    hydration, clock = PreHydration(TOOLS, timeout=15.0), LoopClock()
    slow = await engine(hydration, clock=clock).run("See https://slow.example/")

    assert denied.fact("Hydrated")["failed"] == {"url https://a.example/": "denied"}
    assert slow.fact("Hydrated")["failed"] == {"url https://slow.example/": "timed_out"}
    assert slow.answer == "See https://slow.example/"
    assert asyncio.get_running_loop().time() == pytest.approx(15.0)


@in_virtual_time
async def test_a_page_that_hangs_does_not_take_the_others_along() -> None:
    hydration, clock = PreHydration(TOOLS, timeout=15.0), LoopClock()
    started = engine(hydration, MemoryJournal(), clock=clock)
    task = "See https://slow.example/ for #12."
    result = await started.run(task, run_id="r")
    entries = started.runtime.journal.read("r")

    assert asyncio.get_running_loop().time() == pytest.approx(15.0)
    fact = result.fact("Hydrated")
    assert fact["resolved"] == ["issue 12"]
    assert fact["failed"] == {"url https://slow.example/": "timed_out"}
    assert "issue 12: it crashes" in str(result.answer)
    ended = next(at for at, e in enumerate(entries) if e.kind == "fact_noted")
    for keep in range(1, len(entries)):
        RAN.clear()
        again = engine(hydration, crashed(entries, keep), clock=clock)
        assert (await again.resume("r")).answer == result.answer
        assert keep < ended or RAN == []


@pytest.mark.parametrize("host", ["slow", "fast"])
@in_virtual_time
async def test_a_run_that_began_with_one_bound_for_all_is_resumed(
    host: str,
) -> None:
    address, clock = f"https://{host}.example/", LoopClock()
    calls = ToolCall("issue", {"number": 12}), ToolCall("fetch", {"url": address})

    async def work(branch: Run) -> object:
        return await branch.act(await branch.gate(branch.propose(*calls)))

    async def body(run: Run) -> object:
        with contextlib.suppress(TimedOut):
            await run.timeout(15.0, work)
        run.note("from here on it is as today")
        return "done"

    journal = MemoryJournal()
    runtime = Runtime(
        ScriptedProvider([]), tools=[fetch, issue], journal=journal, clock=clock
    )
    await FunctionEngine(runtime, body=body).run(f"#12 {address}", run_id="r")
    entries = journal.read("r")
    ended = next(at for at, e in enumerate(entries) if e.kind == "fact_noted")
    RAN.clear()
    hydration = PreHydration(TOOLS, timeout=15.0)
    cut = crashed(entries, ended)
    resumed = await engine(hydration, cut, clock=clock).resume("r")

    found = ["issue 12", f"url {address}"]
    fact = resumed.fact("Hydrated")
    assert (fact["found"], RAN) == (found, [])
    assert fact["resolved"] == (found if host == "fast" else [])


async def test_what_was_fetched_is_as_sensitive_and_untrusted_as_its_tools_say() -> (
    None
):
    result = await engine(PreHydration(TOOLS)).run("Fix #12 and https://a.example/")
    trusted = await engine(PreHydration(TOOLS)).run("Fix #12")

    assert [one.untrusted for one in result.conversation][:2] == [None, True]
    assert not trusted.conversation.messages[1].untrusted


async def test_without_references_nothing_is_recorded() -> None:
    started = engine(PreHydration(TOOLS), MemoryJournal())
    result = await started.run("Say hello.", run_id="r")

    assert result.answer == "Say hello."
    assert "calls_proposed" not in {e.kind for e in started.runtime.journal.read("r")}
    assert result.facts == ()


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="resolve: must name kinds"):
        PreHydration({"mail": "fetch"})
    wrong: list[tuple[str, Any]] = [
        ("timeout", 0), ("timeout", "15"), ("timeout", True), ("max_references", True), ("max_references", "10"),
        ("tokens", 4000.0), ("tokens", 0),
    ]  # fmt: skip
    for name, value in wrong:
        given = {name: value}
        with pytest.raises(ConfigError, match=f"^{name}: .*got {value!r}"):
            PreHydration(TOOLS, **given)


@pytest.mark.parametrize(
    ("task", "found"), [("Fix sums.test.ts.", ["sums.test"]), ("Fix @src/sums.py.", [])]
)
async def test_a_run_that_began_with_other_names_of_files_is_resumed(
    task: str, found: list[str]
) -> None:
    calls = [ToolCall("read", {"path": name}) for name in found]

    async def work(branch: Run) -> object:
        return await branch.act(await branch.gate(branch.propose(*calls)))

    async def body(run: Run) -> object:
        if calls:
            await run.timeout(15.0, work)
            run.note("from here on it is as today")
        return await run.ask(run.conversation)

    journal = MemoryJournal()
    runtime = Runtime(ScriptedProvider(["Done."]), tools=[read], journal=journal)
    await FunctionEngine(runtime, body=body).run(task, run_id="r")
    entries = journal.read("r")
    last = "fact_noted" if found else "run_finished"
    ended = next(at for at, entry in enumerate(entries) if entry.kind == last)
    RAN.clear()
    cut = crashed(entries, ended)
    resumed = await engine(PreHydration(TOOLS, timeout=15.0), cut).resume("r")

    noted = resumed.fact("Hydrated")["found"] if found else []
    assert (noted, RAN) == ([f"file {name}" for name in found], [])
