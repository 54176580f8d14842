"""The log of runs: one event for each entry, once, in the application's own log, and without anybody's words."""

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from journal_positions import cut_after
from loopwright import (
    Completion,
    ConfigError,
    DenyAll,
    Limits,
    LoopEngine,
    ProviderError,
    ReActEngine,
    Run,
    Runtime,
    ToolError,
    Usage,
    tool,
)
from loopwright.events import EVENT_TYPES, Entry
from loopwright.observers import StructlogObserver
from loopwright.providers import Request
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from sample_tools import look

SECRET = "xyzzy-4711"
Line = MutableMapping[str, Any]


@tool(effect="read")
async def broken(what: str) -> str:
    """Break."""
    raise ToolError(f"no {what}")


class Log:
    """A logger that keeps its lines."""

    def __init__(self, **options: Any) -> None:
        self.lines: list[Line] = []
        logger = structlog.wrap_logger(CapturingLogger(), processors=[self._keep])
        self.observer = StructlogObserver(logger, **options)

    def _keep(self, _: Any, level: str, line: Line) -> Line:
        self.lines.append({"level": level, **line})
        raise structlog.DropEvent

    def levels(self) -> list[tuple[str, str]]:
        """Level and event of each line."""
        return [(line["level"], line["event"]) for line in self.lines]

    def line(self, event: str) -> Line:
        """The one line of that event."""
        [found] = [line for line in self.lines if line["event"] == event]
        return found


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def runtime(script: Any, log: Log, **parts: Any) -> Runtime:
    parts.setdefault("clock", FakeClock())
    return Runtime(
        ScriptedProvider(script),
        tools=[look, broken],
        observers=[log.observer],
        **parts,
    )


async def test_every_entry_is_one_event_with_run_key_and_engine() -> None:
    log = Log()
    parts = runtime([call("look", what="sky"), "blue"], log)

    await ReActEngine(parts).run("go", run_id="r")

    entries = parts.journal.read("r")
    assert [(line["event"], line["key"], line["seq"]) for line in log.lines] == [
        (entry.kind, entry.key, entry.seq) for entry in entries
    ]
    assert {(line["run_id"], line["engine"]) for line in log.lines} == {("r", "react")}
    assert log.levels() == [
        ("info", "run_started"),
        ("debug", "model_requested"),
        ("info", "model_replied"),
        ("debug", "gate_decided"),
        ("debug", "tool_started"),
        ("info", "tool_finished"),
        ("debug", "model_requested"),
        ("info", "model_replied"),
        ("info", "run_finished"),
    ]


async def test_events_tell_what_happened_in_plain_fields() -> None:
    log = Log()
    reply = Completion(
        "so", answer="so", usage=Usage(7, 3, cost=0.5), model="script-2025"
    )

    await ReActEngine(runtime([reply], log)).run("go", run_id="r")

    place = {"run_id": "r", "engine": "react"}
    assert log.lines == [
        {"level": "info", "event": "run_started", "seq": 1, "key": "", "output": None, "app_version": "", **place},
        {
            "level": "debug", "event": "model_requested", "seq": 2, "key": "0", "verb": "reason", "purpose": "",
            "provider": "scripted", "model": "script", "iteration": 1, **place,
        },
        {
            "level": "info", "event": "model_replied", "seq": 3, "key": "0", "seconds": 0.0, "finish_reason": "stop",
            "calls": 0, "replied": "script-2025", "input_tokens": 7, "output_tokens": 3, "cost": 0.5,
            "provider": "scripted", "model": "script", "purpose": "", **place,
        },
        {
            "level": "info", "event": "run_finished", "seq": 4, "key": "", "status": "completed",
            "stop_reason": "answered", "llm_calls": 1, "tool_calls": 0, "iterations": 1, "input_tokens": 7,
            "output_tokens": 3, "cost": 0.5, "trimmed": 0, **place,
        },
    ]  # fmt: skip


async def test_what_does_not_go_well_is_a_warning_and_a_failed_run_an_error() -> None:
    log = Log()
    down = [ProviderError("down", status=503), ProviderError("down", status=502)]
    wrong = ProviderError("no such model", status=404)

    await ReActEngine(runtime([call("broken", what="x"), *down, wrong], log)).run("go")

    loud = [
        (line["level"], line["event"])
        for line in log.lines
        if line["level"] in ("warning", "error")
    ]
    assert loud == [
        ("warning", "tool_finished"),
        ("warning", "attempt_failed"),
        ("warning", "attempt_failed"),
        ("warning", "model_failed"),
        ("error", "run_finished"),
    ]
    assert log.line("tool_finished")["status"] == "error"
    assert (
        log.line("model_failed")["error"],
        log.line("model_failed")["http_status"],
    ) == ("ProviderError", 404)


async def test_denials_and_limits_are_warnings() -> None:
    log = Log()
    parts = runtime(
        [call("look", what="sky"), "x"],
        log,
        gate=DenyAll(),
        limits=Limits(max_llm_calls=2),
    )

    await ReActEngine(parts).run("go")

    assert (log.line("gate_decided")["level"], log.line("gate_decided")["verdict"]) == (
        "warning",
        "deny",
    )
    assert (log.line("limit_hit")["level"], log.line("limit_hit")["limit"]) == (
        "warning",
        "max_llm_calls",
    )
    assert (log.line("run_finished")["level"], log.line("run_finished")["status"]) == (
        "warning",
        "limit",
    )


async def test_a_child_engine_is_named_in_its_own_lines() -> None:
    log = Log()

    class Parent(LoopEngine):
        name = "parent"

        async def solve(self, run: Run) -> str:
            run.note({"plan": "let another do it"})
            result = await run.delegate(ReActEngine(self.runtime), "Look.")
            return await run.ask(f"Say {result.answer}")

    await Parent(runtime([call("look", what="sky"), "blue", "It is blue."], log)).run(
        "go"
    )

    assert [(line["engine"], line["event"]) for line in log.lines] == [
        ("parent", "run_started"),
        ("parent", "fact_noted"),
        ("parent", "gate_decided"),
        ("react", "child_started"),
        ("react", "model_requested"),
        ("react", "model_replied"),
        ("react", "gate_decided"),
        ("react", "tool_started"),
        ("react", "tool_finished"),
        ("react", "model_requested"),
        ("react", "model_replied"),
        ("react", "child_finished"),
        ("parent", "model_requested"),
        ("parent", "model_replied"),
        ("parent", "run_finished"),
    ]


def lines(request: Request) -> Any:
    """Looks twice, then answers."""
    seen = sum(message.role == "tool" for message in request.conversation.messages)
    return call("look", what=("sky", "sea")[seen]) if seen < 2 else "blue"


async def test_nothing_is_logged_again_when_a_run_is_resumed() -> None:
    whole = Log()
    parts = runtime(lines, whole)
    await ReActEngine(parts).run("go", run_id="r")
    entries: list[Entry] = parts.journal.read("r")

    for keep in range(1, len(entries)):
        log = Log()
        parts = runtime(lines, log, journal=crashed(entries, keep))
        await ReActEngine(parts).resume("r")

        fresh = parts.journal.read("r")[keep:]
        assert [(line["seq"], line["event"]) for line in log.lines] == [
            (entry.seq, entry.kind) for entry in fresh
        ]
        assert log.lines[0]["event"] == "run_resumed"


async def test_an_outcome_whose_beginning_another_process_recorded_is_logged_too() -> (
    None
):
    whole = Log()
    parts = runtime(lines, whole)
    await ReActEngine(parts).run("go", run_id="r")
    entries = parts.journal.read("r")

    log = Log()
    parts = runtime(
        lines, log, journal=crashed(entries, cut_after(entries, "tool_started"))
    )
    await ReActEngine(parts).resume("r")

    assert [line["event"] for line in log.lines][:2] == ["run_resumed", "tool_finished"]
    assert log.lines[1]["tool"] == "look"


def secretive() -> list[Any]:
    """A conversation in which every text is secret."""
    return [
        Completion(
            f"I think {SECRET}", (call("look", what=SECRET), call(f"no {SECRET}", a=SECRET)),
            finish_reason="tool_calls", usage=Usage(1, 1), thought=SECRET,
        ),
        call("broken", what=SECRET),
        ProviderError(f"bad {SECRET}", status=500, retryable=True),
        f"answer {SECRET}",
    ]  # fmt: skip


class Noting(LoopEngine):
    """Notes and does what is secret."""

    name = "noting"

    async def solve(self, run: Run) -> str:
        async def effect() -> str:
            return SECRET

        run.note({"fact": SECRET})
        await run.effect("effect", effect, into=str)
        await run.act(await run.gate(run.propose(call("look", what=SECRET))))
        return str(SECRET)


async def test_without_content_nobodys_words_are_logged() -> None:
    log = Log()

    await ReActEngine(runtime(secretive(), log)).run(
        f"task {SECRET}", system=f"system {SECRET}"
    )
    await ReActEngine(runtime([ProviderError(f"bad {SECRET}")], log)).run(
        f"task {SECRET}"
    )
    await Noting(runtime([], log)).run(f"task {SECRET}")

    assert SECRET not in repr(log.lines)
    assert [line["tool"] for line in log.lines if line["event"] == "gate_decided"][
        :2
    ] == ["look", "_OTHER"]


async def test_with_content_words_are_logged() -> None:
    log = Log(content=True)

    await ReActEngine(runtime([call("look", what="sky"), "It is blue."], log)).run(
        "Which colour?"
    )
    await ReActEngine(runtime([ProviderError("no model")], log)).run("go")

    assert log.lines[0]["messages"][0].content == "Which colour?"
    assert log.line("tool_finished")["content"] == "sky is blue"
    assert [
        line["answer"] for line in log.lines if line["event"] == "run_finished"
    ] == ["It is blue.", None]
    assert log.line("model_failed")["error_message"] == "no model"


def test_every_kind_of_entry_has_a_level_and_no_field_reserved_by_loggers() -> None:
    from loopwright.events.describe import fields_of

    reserved = set(vars(logging.makeLogRecord({}))) | {
        "message",
        "asctime",
        "event",
        "level",
        "timestamp",
        "logger",
    }
    fields = {
        event_type: {field.log_name for field in fields_of(event_type)}
        for event_type in EVENT_TYPES.values()
    }

    assert set(fields) <= set(EVENT_TYPES.values())
    assert {
        kind: names & reserved for kind, names in fields.items() if names & reserved
    } == {}


async def test_lines_reach_the_standard_library_where_structlog_is_sent_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.render_to_log_kwargs,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    caplog.set_level(logging.DEBUG, logger="loopwright")
    parts = Runtime(
        ScriptedProvider([call("look", what="sky"), "x"]),
        tools=[look],
        observers=[StructlogObserver()],
    )

    await ReActEngine(parts).run("go", run_id="r")

    messages = [
        record.getMessage() for record in caplog.records if record.name == "loopwright"
    ]
    assert messages == [entry.kind for entry in parts.journal.read("r")]
    assert {
        vars(record)["run_id"]
        for record in caplog.records
        if record.name == "loopwright"
    } == {"r"}


async def test_a_level_that_the_application_does_not_want_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.render_to_log_kwargs,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    caplog.set_level(logging.WARNING, logger="loopwright")
    parts = Runtime(ScriptedProvider(["x"]), observers=[StructlogObserver()])

    await ReActEngine(parts).run("go")

    assert [
        record.getMessage() for record in caplog.records if record.name == "loopwright"
    ] == []


async def test_nothing_is_configured_and_lines_go_to_stderr_where_nobody_did(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handlers = list(logging.getLogger().handlers)
    parts = Runtime(ScriptedProvider(["x"]), observers=[StructlogObserver()])

    await ReActEngine(parts).run("go", run_id="r")

    printed = capsys.readouterr()
    assert printed.out == ""
    assert [
        kind
        for kind in ("run_started", "model_replied", "run_finished")
        if kind not in printed.err
    ] == []
    assert not structlog.is_configured()
    assert logging.getLogger().handlers == handlers


async def test_a_logger_that_raises_hurts_no_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: Any) -> Line:
        raise RuntimeError("the disk is full")

    observer = StructlogObserver(
        structlog.wrap_logger(CapturingLogger(), processors=[fails])
    )
    result = await ReActEngine(
        Runtime(ScriptedProvider(["x"]), observers=[observer])
    ).run("go")

    assert result.answer == "x"
    assert "observer_failed" in capsys.readouterr().err


async def test_nothing_is_kept_of_runs_that_ended() -> None:
    log = Log()
    parts = runtime(lambda _: "blue", log)

    for _ in range(200):
        await ReActEngine(parts).run("go")

    assert len(log.observer._tracker) == 0


@pytest.mark.parametrize("logger", [logging.getLogger("x"), 5, "loopwright"])
def test_a_logger_of_another_kind_is_refused_with_the_cure(logger: Any) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^logger: needs a structlog logger, got \w+: structlog.get_logger\(\)",
    ):
        StructlogObserver(logger)


def test_room_for_no_run_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^max_runs must be at least 1, got 0$"):
        StructlogObserver(max_runs=0)
