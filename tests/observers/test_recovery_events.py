"""What is done about failed calls, what is learnt of those in doubt, and what is undone: in logs, spans, counters."""

from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import ProviderError, ReActEngine, Runtime, Tool, tool
from loopwright.events import Entry
from loopwright.observers import StructlogObserver
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from loopwright.tools import (
    CallCompleted,
    CallNotExecuted,
    DeadLetter,
    Fallback,
    LlmRecovery,
    OutcomeUnknown,
    Retry,
)
from telemetry import Telemetry, events

SECRET = "xyzzy-4711"
FAILS: list[int] = [0]


@pytest.fixture(autouse=True)
def _every_first_call_fails() -> None:
    FAILS[0] = 1


def failing(recovery: Any) -> Tool:
    @tool(name="fetch", effect="read", recovery=recovery)
    async def fetch(what: str) -> str:
        """Fetch."""
        FAILS[0] -= 1
        if FAILS[0] >= 0:
            raise OSError(f"no {what}")
        return f"{what} fetched"

    return fetch


@tool(effect="read")
async def mirror(what: str) -> str:
    """Fetch from elsewhere."""
    return f"{what} of the mirror"


@tool(compensate=lambda ctx, result: f"gave back {result}")
async def take(what: str) -> str:
    """Take."""
    return what


def runtime(script: Any, told: Any, *tools: Tool, **parts: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(script),
        tools=tools,
        observers=[told],
        clock=FakeClock(),
        **parts,
    )


def lines(told: Telemetry) -> list[tuple[str, dict[str, Any]]]:
    """The events of all spans that are not decisions of the gate."""
    found = [event for span in told.spans for event in events(span)]
    return [(name, said) for name, said in found if name != "loopwright.gate_decided"]


async def test_a_retry_is_an_event_of_the_call_and_one_call_is_one_span() -> None:
    told = Telemetry()
    parts = runtime(
        [call("fetch", what="tea"), "done"], told.observer, failing(Retry(base_delay=0))
    )

    await ReActEngine(parts).run("go")

    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool fetch",
        "  chat script",
    ]
    assert events(told.span("execute_tool fetch"))[-1] == (
        "loopwright.recovery_triggered",
        {
            "gen_ai.tool.name": "fetch",
            "gen_ai.tool.call.id": "call_0_0",
            "loopwright.tool.status": "error",
            "loopwright.recovery.strategy": "retry",
            "loopwright.recovery.attempt": 1,
            "loopwright.delay": 0.0,
            "loopwright.key": "0#0",
        },
    )
    assert told.count(
        "loopwright.tool.recoveries",
        "gen_ai.tool.name",
        "loopwright.recovery.strategy",
    ) == {("fetch", "retry"): 1}
    assert told.count("loopwright.tool.calls", "loopwright.tool.status") == {"ok": 1}


async def test_what_is_called_or_asked_in_place_of_a_call_is_below_it() -> None:
    told = Telemetry()
    fetch = failing([LlmRecovery(), Fallback("mirror")])
    FAILS[0] = 9
    mended = '{"arguments": {"what": "coffee"}}'
    parts = runtime(
        [call("fetch", what="tea"), mended, "done"], told.observer, fetch, mirror
    )

    await ReActEngine(parts).run("go")

    assert told.tree() == [
        "invoke_agent react",
        "  chat script",
        "  execute_tool fetch",
        "    execute_tool fetch !tool_error",
        "    chat script",
        "    execute_tool mirror",
        "  chat script",
    ]
    assert told.count("loopwright.tool.recoveries", "loopwright.recovery.strategy") == {
        "llm_recovery": 1, "fallback": 1,
    }  # fmt: skip


async def test_a_dead_letter_is_an_event_with_its_queue() -> None:
    told = Telemetry()
    parts = runtime(
        [call("fetch", what="tea"), "done"],
        told.observer,
        failing(DeadLetter("billing")),
    )

    await ReActEngine(parts).run("go")

    [said] = [
        event[1] for event in lines(told) if event[0] == "loopwright.call_dead_lettered"
    ]
    assert said == {
        "gen_ai.tool.name": "fetch", "gen_ai.tool.call.id": "call_0_0", "loopwright.tool.status": "error",
        "loopwright.recovery.queue": "billing", "loopwright.key": "0#0",
    }  # fmt: skip
    assert told.count("loopwright.tool.dead_letters", "loopwright.recovery.queue") == {
        "billing": 1
    }


async def begun(pay: Tool) -> list[Entry]:
    """A run that died while its payment was at work."""
    parts = Runtime(
        ScriptedProvider([call("pay"), "done"]), tools=[pay], clock=FakeClock()
    )
    await ReActEngine(parts).run("Pay.", run_id="r")
    return parts.journal.read("r")


@pytest.mark.parametrize(
    ("found", "verdict", "status", "spans"),
    [
        (CallCompleted("paid"), "done", "ok", 0),
        (OutcomeUnknown(), "unknown", "unknown", 0),
        (CallNotExecuted(), "not_done", "ok", 1),
    ],
)
async def test_a_call_that_was_looked_up_is_counted_and_is_a_span_only_if_it_was_made(
    found: Any, verdict: str, status: str, spans: int
) -> None:
    @tool(lookup=lambda ctx: found)
    async def pay() -> str:
        """Pay."""
        return "paid"

    entries, told = await begun(pay), Telemetry()
    journal = crashed(entries, cut_after(entries, "tool_started"))
    await ReActEngine(runtime(["done"], told.observer, pay, journal=journal)).resume(
        "r"
    )

    assert [said for name, said in lines(told) if name == "loopwright.doubt_resolved"] == [
        {
            "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "call_0_0", "loopwright.doubt.by": "lookup",
            "loopwright.doubt.verdict": verdict, "loopwright.key": "0#0",
        }
    ]  # fmt: skip
    assert told.count(
        "loopwright.tool.doubts",
        "loopwright.doubt.by",
        "loopwright.doubt.verdict",
    ) == {("lookup", verdict): 1}
    assert (
        len([span for span in told.spans if span.name.startswith("execute_tool")])
        == spans
    )
    assert told.count(
        "loopwright.tool.calls", "gen_ai.tool.name", "loopwright.tool.status"
    ) == {("pay", status): 1}
    assert (told.observer.followed, told.open) == (0, 0)


FAILURE = ProviderError("the model is gone", status=400)


async def test_undoing_is_told_and_counted() -> None:
    told = Telemetry()
    parts = runtime([call("take", what="tea"), FAILURE], told.observer, take)

    await ReActEngine(parts).run("go", saga=True)

    assert [event for event in lines(told) if "undo" in event[0]] == [
        (
            "loopwright.undo_begun",
            {
                "loopwright.status": "failed", "loopwright.stop_reason": "provider_error", "loopwright.undo.calls": 1,
                "loopwright.key": "",
            },
        ),
        (
            "loopwright.undo_finished",
            {
                "gen_ai.tool.name": "take", "gen_ai.tool.call.id": "call_0_0", "loopwright.tool.status": "ok",
                "loopwright.key": "undo:0#0",
            },
        ),
    ]  # fmt: skip
    assert told.count(
        "loopwright.tool.undos", "gen_ai.tool.name", "loopwright.tool.status"
    ) == {("take", "ok"): 1}


STORIES: dict[str, tuple[list[Any], list[Tool]]] = {
    "retry": ([call("fetch", what="tea"), "done"], [failing(Retry(base_delay=0))]),
    "fallback": (
        [call("fetch", what="tea"), "done"],
        [failing(Fallback("mirror")), mirror],
    ),
    "dead letter": ([call("fetch", what="tea"), "done"], [failing(DeadLetter())]),
    "saga": ([call("take", what="tea"), FAILURE], [take]),
}
COUNTED = {
    "recovery_triggered": "loopwright.tool.recoveries",
    "doubt_resolved": "loopwright.tool.doubts",
    "call_dead_lettered": "loopwright.tool.dead_letters",
    "undo_finished": "loopwright.tool.undos",
}


@pytest.mark.parametrize("story", STORIES)
async def test_nothing_is_told_twice_when_a_run_is_resumed_at_any_entry(
    story: str,
) -> None:
    script, tools = STORIES[story]
    whole = Runtime(ScriptedProvider(script), tools=tools, clock=FakeClock())
    await ReActEngine(whole).run("go", run_id="r", saga=story == "saga")
    entries = whole.journal.read("r")

    for keep in range(1, len(entries)):
        FAILS[0] = 1
        told = Telemetry()
        replied = sum(
            entry.kind in ("model_replied", "model_failed") for entry in entries[:keep]
        )
        parts = runtime(
            script[replied:], told.observer, *tools, journal=crashed(entries, keep)
        )
        await ReActEngine(parts).resume("r")
        fresh = [entry.kind for entry in parts.journal.read("r")[keep:]]

        for kind, counter in COUNTED.items():
            assert sum(told.count(counter).values()) == fresh.count(kind), (
                f"{kind}, cut after {keep}"
            )
        said = [name.removeprefix("loopwright.") for name, _ in lines(told)]
        for kind in (*COUNTED, "undo_begun"):
            assert said.count(kind) == fresh.count(kind), f"{kind}, cut after {keep}"
        assert (told.observer.followed, told.open) == (0, 0)


@pytest.mark.parametrize("content", [True, False])
async def test_words_of_failures_and_results_are_told_with_content_only(
    content: bool,
) -> None:
    told, log = Telemetry(content=content), Log(content=content)

    @tool(lookup=lambda ctx: CallCompleted(SECRET))
    async def pay() -> str:
        """Pay."""
        return "paid"

    entries = await begun(pay)
    parts = runtime(
        ["done"],
        told.observer,
        pay,
        journal=crashed(entries, cut_after(entries, "tool_started")),
    )
    await ReActEngine(parts).resume("r")
    for script, tools in (
        (
            [call("fetch", what=SECRET), "done"],
            [failing([Retry(base_delay=0), DeadLetter()])],
        ),
        ([call("take", what=SECRET), FAILURE], [take]),
    ):
        FAILS[0] = 9
        for observer in (told.observer, log.observer):
            parts = runtime(script, observer, *tools)
            await ReActEngine(parts).run("go", saga=True)

    said = [
        (name, value)
        for name, facts in lines(told)
        for value in facts.values()
        if SECRET in str(value)
    ]
    assert {name for name, _ in said} == (
        {
            f"loopwright.{kind}"
            for kind in (
                "recovery_triggered",
                "doubt_resolved",
                "call_dead_lettered",
                "undo_finished",
            )
        }
        if content
        else set()
    )
    assert (SECRET in repr(log.lines)) == content
    assert SECRET not in str(told.measured())


class Log:
    """A structlog logger that keeps its lines."""

    def __init__(self, **options: Any) -> None:
        self.lines: list[dict[str, Any]] = []
        self.observer = StructlogObserver(self, **options)

    def bind(self, **bound: Any) -> "Bound":
        return Bound(self.lines, bound)


class Bound:
    def __init__(self, kept: list[dict[str, Any]], bound: dict[str, Any]) -> None:
        self._kept, self._bound = kept, bound

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self._kept.append(
            {"level": level, "event": event, **self._bound, **fields}
        )


async def test_the_log_has_a_line_for_each_of_them() -> None:
    log = Log()
    script = [call("fetch", what="tea"), "done"]
    await ReActEngine(
        runtime(
            script, log.observer, failing([Fallback("mirror"), DeadLetter()]), mirror
        )
    ).run("go")
    await ReActEngine(
        runtime([call("take", what="tea"), FAILURE], log.observer, take)
    ).run("go", saga=True)

    told = {line["event"]: line for line in log.lines}
    fields = {
        "recovery_triggered": (
            "warning",
            "tool",
            "call_id",
            "strategy",
            "attempt",
            "status",
            "delay",
        ),
        "undo_begun": ("warning", "status", "stop_reason", "error", "http_status"),
        "undo_started": ("debug", "tool", "call_id", "idempotency_key"),
        "undo_finished": ("info", "tool", "call_id", "status", "seconds"),
    }
    bound = {"level", "event", "run_id", "seq", "key", "engine"}
    assert {
        kind: (told[kind]["level"], told[kind].keys() - bound) for kind in fields
    } == {kind: (level, set(names)) for kind, (level, *names) in fields.items()}
