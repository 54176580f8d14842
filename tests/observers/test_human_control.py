"""What people say to runs, in logs and traces: who said which kind of thing, and what came of it, without the words."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.testing import CapturingLogger

from loopwright import MemoryJournal, ReActEngine, Runtime, Suspend, tool
from loopwright._kernel.session.services import Observer
from loopwright.events import Entry, RunContinued, RunPaused, decode_event
from loopwright.events.entry import EVENT_VERSION
from loopwright.events.timeline import Timeline
from loopwright.observers import StructlogObserver
from loopwright.observers.semconv import event_attributes
from loopwright.testing import FakeClock, ScriptedProvider, call
from telemetry import Telemetry, events, everything_said
from waiting import eventually

SECRET = "xyzzy-4711"
PEOPLE = (
    "command_received",
    "run_paused",
    "run_continued",
    "declassified",
    "followed_up",
)
Line = MutableMapping[str, Any]


@tool(effect="destructive")
async def erase(what: str) -> str:
    """Erase."""
    return f"erased {what}"


class Log:
    """A structlog observer that keeps its lines."""

    def __init__(self, *, content: bool = False) -> None:
        self.lines: list[Line] = []
        logger = structlog.wrap_logger(CapturingLogger(), processors=[self._keep])
        self.observer = StructlogObserver(logger, content=content)

    def _keep(self, _: Any, level: str, line: Line) -> Line:
        self.lines.append({"level": level, **line})
        raise structlog.DropEvent

    def of_people(self) -> list[Line]:
        """The lines about what people said, by their own fields."""
        bound = ("run_id", "engine", "seq", "key", "sent")
        told = [line for line in self.lines if line["event"] in PEOPLE]
        return [
            {name: value for name, value in line.items() if name not in bound}
            for line in told
        ]


async def a_hand_on_a_run(*observers: Observer) -> None:
    """A run that waits for leave; resumed, it stands still for 20 s, and goes on twice."""
    clock = FakeClock()
    journal = MemoryJournal(clock=clock)

    def engine(*script: Any) -> ReActEngine:
        parts: dict[str, Any] = {
            "journal": journal,
            "clock": clock,
            "approver": Suspend(),
            "observers": observers,
        }
        return ReActEngine(Runtime(ScriptedProvider(script), tools=[erase], **parts))

    await engine(call("erase", what="disk")).run("Go.", run_id="r")
    hand = engine().runtime.control("r")
    await hand.steer(f"Mind {SECRET}.")
    await hand.follow_up(f"And {SECRET}?")
    await hand.declassify("normal", SECRET)
    await hand.approve("0#0", by=SECRET)
    await hand.pause()
    resumed = asyncio.ensure_future(engine("First.", "Second.").resume("r"))
    await eventually(
        lambda: any(isinstance(entry.event, RunPaused) for entry in journal.read("r"))
    )
    clock.advance(20)
    await hand.unpause()
    await resumed


async def test_what_people_say_is_logged_without_their_words() -> None:
    log = Log()

    await a_hand_on_a_run(log.observer)

    assert log.of_people() == [
        {"level": "info", "event": "command_received", "number": 1, "command": "steer"},
        {
            "level": "info",
            "event": "command_received",
            "number": 2,
            "command": "follow_up",
        },
        {
            "level": "info",
            "event": "command_received",
            "number": 3,
            "command": "declassify",
        },
        {"level": "warning", "event": "declassified", "label": "normal", "command": 3},
        {
            "level": "info",
            "event": "command_received",
            "number": 4,
            "command": "approve",
        },
        {"level": "info", "event": "command_received", "number": 5, "command": "pause"},
        {"level": "info", "event": "run_paused"},
        {
            "level": "info",
            "event": "command_received",
            "number": 6,
            "command": "resume",
        },
        {"level": "info", "event": "run_continued", "seconds": 20.0},
        {"level": "info", "event": "followed_up", "command": 2},
    ]
    decided = [
        (line["verdict"], line["command"])
        for line in log.lines
        if line["event"] == "gate_decided"
    ]
    assert decided == [("ask", 0), ("allow", 4)]  # what the permission rests on
    assert SECRET not in str(log.lines)


def test_a_pause_of_an_older_journal_is_as_long_as_it_was_waited_for() -> None:
    event = decode_event("run_continued", b'{"waited":42.0}')
    log, entry = (
        Log(),
        Entry(
            "r", 1, "", "run_continued", 0.0, EVENT_VERSION, 1, b'{"waited":42.0}', ""
        ),
    )
    log.observer(entry)

    assert isinstance(event, RunContinued)
    assert (event.seconds, event.lasted, RunContinued(1.0, 20.0).lasted) == (
        0.0,
        42.0,
        20.0,
    )
    assert log.of_people() == [
        {"level": "info", "event": "run_continued", "seconds": 42.0}
    ]
    assert event_attributes(event, content=False) == {"loopwright.paused": 42.0}
    assert [line.text for line in Timeline().lines(entry)] == ["after 42.0 s"]


async def test_with_content_their_words_are_logged_too() -> None:
    log = Log(content=True)

    await a_hand_on_a_run(log.observer)

    told = {line.get("number", line["event"]): line for line in log.of_people()}
    assert (told[1]["body"], told[2]["body"]) == (
        {"text": f"Mind {SECRET}."},
        {"text": f"And {SECRET}?"},
    )
    assert (told["declassified"]["reason"], told["followed_up"]["text"]) == (
        SECRET,
        f"And {SECRET}?",
    )
    assert told[4]["body"]["by"] == SECRET


async def test_what_people_say_is_an_event_of_the_run_that_heard_it() -> None:
    told = Telemetry()

    await a_hand_on_a_run(told.observer)

    waiting, resumed = (
        span for span in told.spans if span.name == "invoke_agent react"
    )
    assert [name for name, _ in events(waiting)] == ["loopwright.gate_decided"]
    heard = [
        (name, fields)
        for name, fields in events(resumed)
        if name != "loopwright.gate_decided"
    ]
    place = {"loopwright.key": ""}

    def received(number: int, command: str) -> tuple[str, dict[str, Any]]:
        fields = {
            "loopwright.command": command,
            "loopwright.command.number": number,
            **place,
        }
        return "loopwright.command_received", fields

    assert heard == [
        received(1, "steer"),
        received(2, "follow_up"),
        received(3, "declassify"),
        (
            "loopwright.declassified",
            {"loopwright.label": "normal", "loopwright.command.number": 3, **place},
        ),
        received(4, "approve"),
        received(5, "pause"),
        received(6, "resume"),
        ("loopwright.run_continued", {"loopwright.paused": 20.0, **place}),
    ]
    assert SECRET not in everything_said(told.spans)
