"""Anybody may put anything into an inbox: what does not fit is refused, secrets stay out, and nothing is lost."""

import asyncio
import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import structlog.testing

from held_tool import HeldTool, events_of
from loopwright import (
    ConfigError,
    MemoryJournal,
    ReActEngine,
    Request,
    Runtime,
    Suspend,
    tool,
)
from loopwright._kernel.control.command_log import CommandLog
from loopwright._kernel.control.commands import read_command
from loopwright._kernel.control.run_control import RunControl
from loopwright.errors import JournalError
from loopwright.events import (
    CommandReceived,
    FollowedUp,
    GateDecided,
    ModelRequested,
    encode_event,
)
from loopwright.gates import ApprovalGate
from loopwright.journals import Command, SQLiteJournal, chain_hash, encode_command_body
from loopwright.security import AESCodec, Redactor
from loopwright.testing import ScriptedProvider, call, crashed
from waiting import eventually

SECRET = "correct-horse-battery-staple-77"
ON_A_CALL = {
    "key": "0#0",
    "question": 3,
    "tool": "pay",
    "arguments_hash": "x",
    "policy_version": "y",
}
MALFORMED = [
    ("override", {}),
    ("override", {"tool": "pay"}),
    ("override", {"tool": "pay", "arguments": None}),
    ("override", {"tool": "pay", "arguments": [1]}),
    ("override", {"tool": "pay", "arguments": "x"}),
    ("override", {"tool": {"a": 1}, "arguments": {}}),
    ("override", {"tool": " ", "arguments": {}}),
    ("steer", {}),
    ("steer", {"text": None}),
    ("add_context", {"text": [1]}),
    ("follow_up", {}),
    ("follow_up", {"text": "\n"}),
    ("answer", {"key": "0", "question": True, "text": "x"}),
    ("approve", {}),
    ("approve", {**ON_A_CALL, "key": None}),
    ("approve", {**ON_A_CALL, "arguments": None}),
    ("approve", {**ON_A_CALL, "seconds": 10**400}),
    ("approve", {**ON_A_CALL, "seconds": 0}),
    ("approve", {**ON_A_CALL, "seconds": True}),
    ("deny", {**ON_A_CALL, "reason": 3}),
    ("declassify", {"label": ["public"]}),
    ("declassify", {"label": "public", "reason": 3}),
    ("resolve", {"key": "0#0", "question": 3, "verdict": "perhaps"}),
    ("nonsense", {"a": [1]}),
]  # fmt: skip


@pytest.fixture
def held() -> HeldTool:
    return HeldTool()


async def told(held: HeldTool, runtime: Runtime, say: Callable[[], Any]) -> Any:
    """A run that is told something between its two model calls; its result."""
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        said = len(runtime.journal.inbox("r"))
        say()
        sent = len(runtime.journal.inbox("r"))
        assert sent > said
        await eventually(
            lambda: len(events_of(runtime.journal, "r", CommandReceived)) == sent
        )
        held.go.set()
        return await run.result()


@pytest.mark.parametrize(("kind", "body"), MALFORMED)
async def test_what_does_not_fit_is_recorded_and_refused(
    held: HeldTool, kind: str, body: dict[str, Any]
) -> None:
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a"), "first"]), tools=held.tools()
    )
    with structlog.testing.capture_logs() as logs:
        result = await told(
            held, runtime, lambda: runtime.journal.send("r", kind, body)
        )

    [received] = events_of(runtime.journal, "r", CommandReceived)
    assert (received.command, received.body) == (kind, body)
    assert received.refused
    assert [line["problem"] for line in logs if line["event"] == "command_refused"] == [
        received.refused
    ]
    assert (result.status, result.answer, result.llm_calls, held.ran) == (
        "completed",
        "first",
        2,
        ["a"],
    )
    assert [e.commands for e in events_of(runtime.journal, "r", ModelRequested)] == [
        (),
        (),
    ]
    assert not events_of(runtime.journal, "r", FollowedUp)


async def test_what_was_refused_is_refused_again_when_the_run_is_resumed(
    held: HeldTool,
) -> None:
    held.go.set()
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a"), "first"]), tools=held.tools()
    )
    journal = runtime.journal
    await ReActEngine(runtime).run("Go.", run_id="r")
    whole = journal.read("r")

    for cut in range(1, len(whole)):
        journal = crashed(whole, cut)
        for kind, body in MALFORMED:
            journal.send("r", kind, body)
        done = sum(entry.kind == "model_replied" for entry in whole[:cut])
        script = [call("hold", what="a"), "first"][done:]
        for _ in range(2):  # the second time from what the first has recorded
            result = await ReActEngine(
                Runtime(ScriptedProvider(script), tools=held.tools(), journal=journal)
            ).resume("r")
            assert (result.status, result.answer) == ("completed", "first")
            recorded = events_of(journal, "r", CommandReceived)
            assert [e.number for e in recorded if e.refused] == list(
                range(1, len(MALFORMED) + 1)
            )
            journal = crashed(journal.read("r"), len(journal.read("r")) - 1)


async def test_what_an_older_version_recorded_and_could_not_use_is_refused(
    held: HeldTool,
) -> None:
    held.go.set()
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a"), "first"]), tools=held.tools()
    )
    await ReActEngine(runtime).run("Go.", run_id="r")
    first = runtime.journal.read("r")[0]
    head, written = first.hash, [first]
    for number, (kind, body) in enumerate(MALFORMED, 1):
        recorded = encode_event(CommandReceived(number, kind, body, 1.0)).replace(
            b',"refused":""', b""
        )
        assert b"refused" not in recorded
        entry = dataclasses.replace(
            first, seq=number + 1, kind="command_received", body=recorded, hash=""
        )
        head = chain_hash(head, entry)
        written.append(dataclasses.replace(entry, hash=head))
    journal = crashed(written, len(written))
    for kind, body in MALFORMED:
        journal.send("r", kind, body)

    again = Runtime(ScriptedProvider(["done"]), tools=held.tools(), journal=journal)
    assert (await ReActEngine(again).resume("r")).answer == "done"
    assert len(events_of(journal, "r", CommandReceived)) == len(MALFORMED)


def sent(kind: str, body: Any, at: float = 1.0) -> Command:
    return Command(1, "r", at, kind, body)


@pytest.mark.parametrize("at", [float("inf"), float("nan"), -1.0, 1e300])
def test_a_command_from_no_time_is_refused(at: float) -> None:
    command, problem = read_command(sent("stop", {}, at), Redactor())

    assert (command.at, problem) == (0.0, "the time at which it was sent is not a time")


@pytest.mark.parametrize(
    "body",
    [None, [1], {"text": "\ud800"}, {"text": object()}, {1: 2}],
    ids=["null", "a list", "a lone surrogate", "an object", "a number as key"],
)
def test_what_cannot_be_written_down_is_refused(body: Any) -> None:
    command, problem = read_command(sent("steer", body), Redactor())

    assert problem
    assert command.body in ({}, {"1": 2})


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=repr)
def test_a_number_that_is_none_in_json_is_refused_and_not_kept(number: float) -> None:
    for command, problem in (
        read_command(sent("steer", {"text": "x", "e": number}), Redactor()),
        read_command(sent("pause", {"e": [{"f": number}]}), Redactor()),
    ):
        assert (command.body, problem) == ({}, "its body is not a JSON object")
    with pytest.raises(ConfigError, match="JSON"):
        encode_command_body("steer", {"text": "x", "e": number})


@pytest.mark.parametrize("kind", [["steer"], {}, None, 3, b"stop"], ids=repr)
def test_a_kind_that_is_no_text_is_refused(kind: Any) -> None:
    command, problem = read_command(sent(kind, {"text": "x"}), Redactor())

    assert (command.kind, command.body, problem) == (
        type(kind).__name__,
        {},
        "its kind is not a text",
    )


def test_a_command_that_was_refused_is_one_that_has_come() -> None:
    told = CommandLog()
    told.accept(sent("steer", {"text": "x"}))
    told.refuse(dataclasses.replace(sent("approve", {}), number=2))

    assert told.last == 2
    assert [command.number for command in told.commands] == [1]


def one_that_deletes(
    journal: MemoryJournal, ran: list[str]
) -> Callable[..., ReActEngine]:
    """Makes engines whose tool notes what it deleted, and asks for leave first."""

    @tool(effect="destructive")
    async def delete(path: str) -> str:
        """Delete."""
        ran.append(path)
        return "gone"

    def engine(*script: Any) -> ReActEngine:
        provider = ScriptedProvider(list(script))
        return ReActEngine(
            Runtime(provider, tools=[delete], journal=journal, approver=Suspend())
        )

    return engine


async def test_an_approval_that_does_not_fit_is_no_leave() -> None:
    journal, ran = MemoryJournal(), list[str]()
    engine = one_that_deletes(journal, ran)
    await engine(call("delete", path="x")).run("Go.", run_id="r")
    await engine().runtime.control("r").approve("0#0", seconds=60)
    [good] = journal.inbox("r")
    for number, name in enumerate(
        ("tool", "policy_version", "arguments_hash", "key", "seconds", "same"), 1
    ):
        run_id = await engine().fork(
            "r", at=len(journal.read("r")), new_id=f"f{number}"
        )
        journal.send(run_id, "approve", {**good.body, name: None})
        assert (await engine().resume(run_id)).status == "waiting"

    assert ran == []
    assert (await engine("done").resume("r")).status == "completed"
    assert ran == ["x"]


# --- secrets ---


async def test_what_another_process_says_is_redacted_where_it_is_heard(
    held: HeldTool,
) -> None:
    seen: list[str] = []

    def second(request: Request) -> str:
        seen.extend(
            message.content
            for message in request.conversation
            if message.origin == "operator"
        )
        return "first"

    script = [call("hold", what="a"), second, "second"]
    runtime = Runtime(
        ScriptedProvider(script), tools=held.tools(), redactor=Redactor([SECRET])
    )
    journal = runtime.journal
    control = RunControl(
        journal, Redactor(), "r"
    )  # of a process that does not know what is secret
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        await control.steer(f"Use {SECRET}.")
        await control.follow_up(f"And {SECRET}?")
        await eventually(lambda: len(events_of(journal, "r", CommandReceived)) == 2)
        held.go.set()
        result = await run.result()

    assert seen == ["Guidance from the operator of this run:\nUse [redacted]."]
    assert [m.content for m in result.conversation if m.origin == "operator"] == [
        *seen,
        "And [redacted]?",
    ]
    assert not [
        entry.kind for entry in journal.read("r") if SECRET.encode() in entry.body
    ]


async def test_an_override_with_a_secret_is_refused(held: HeldTool) -> None:
    script = [call("hold", what="a"), "first"]
    runtime = Runtime(
        ScriptedProvider(script), tools=held.tools(), redactor=Redactor([SECRET])
    )
    body = {"tool": "hold", "arguments": {"what": SECRET}}
    await told(held, runtime, lambda: runtime.journal.send("r", "override", body))

    [received] = events_of(runtime.journal, "r", CommandReceived)
    assert received.body == {"tool": "hold", "arguments": {"what": "[redacted]"}}
    assert "secret" in received.refused
    assert held.ran == ["a"]
    assert [e.tool for e in events_of(runtime.journal, "r", GateDecided)] == ["hold"]


async def test_what_was_recorded_counts_when_the_run_is_resumed(held: HeldTool) -> None:
    """Also where the process that resumes it knows of no secret."""
    held.go.set()
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a"), "first"]), tools=held.tools()
    )
    await ReActEngine(runtime).run("Go.", run_id="r")
    first = crashed(runtime.journal.read("r"), 1)
    first.send("r", "steer", {"text": f"Use {SECRET}."})
    knows = Runtime(
        ScriptedProvider([]),
        tools=held.tools(),
        redactor=Redactor([SECRET]),
        journal=first,
    )
    await ReActEngine(knows).resume(
        "r"
    )  # fails, since the script is empty: what matters is what it heard
    heard = next(
        n
        for n, entry in enumerate(first.read("r"), 1)
        if entry.kind == "command_received"
    )

    again = crashed(first.read("r"), heard)
    again.send("r", "steer", {"text": f"Use {SECRET}."})
    seen: list[str] = []

    def reply(request: Request) -> str:
        seen.extend(message.content for message in request.conversation)
        return "done"

    await ReActEngine(
        Runtime(ScriptedProvider([reply]), tools=held.tools(), journal=again)
    ).resume("r")
    assert seen == ["Go.", "Guidance from the operator of this run:\nUse [redacted]."]


# --- what the run would refuse, and who says it can still know ---


@pytest.mark.parametrize(
    ("say", "field"),
    [
        (lambda control: control.override(None, {}), "override: tool"),
        (lambda control: control.override(" ", {}), "override: tool"),
        (lambda control: control.approve("0#0", seconds=True), "approve: seconds"),
        (lambda control: control.approve("0#0", by=7), "approve: by"),
        (lambda control: control.deny("0#0", by=["Ada"]), "deny: by"),
    ],
)
async def test_what_the_run_would_refuse_its_sender_learns_at_once(
    say: Callable[[Any], Any], field: str
) -> None:
    journal, ran = MemoryJournal(), list[str]()
    engine = one_that_deletes(journal, ran)
    await engine(call("delete", path="x")).run("Go.", run_id="r")

    with pytest.raises(ConfigError, match=field):
        await say(engine().runtime.control("r"))
    assert journal.inbox("r") == []


async def test_an_approval_by_nobody_in_particular_is_leave() -> None:
    journal, ran = MemoryJournal(), list[str]()
    engine = one_that_deletes(journal, ran)
    await engine(call("delete", path="x")).run("Go.", run_id="r")

    await engine().runtime.control("r").approve("0#0", by=None)
    assert (await engine("done").resume("r")).status == "completed"
    assert ran == ["x"]
    [received] = events_of(journal, "r", CommandReceived)
    assert (received.body["by"], received.refused) == ("", "")


async def test_a_denial_by_nobody_in_particular_is_one() -> None:
    journal, ran = MemoryJournal(), list[str]()
    engine = one_that_deletes(journal, ran)
    await engine(call("delete", path="x")).run("Go.", run_id="r")

    await engine().runtime.control("r").deny("0#0", "not that", by=None)
    result = await engine("done").resume("r")
    assert (result.status, ran) == ("completed", [])
    assert "not that" in str(result.conversation.messages)


# --- hearing it ---


class Foreign(MemoryJournal):
    """A journal that hands out what it was given, whatever that is."""

    found: Sequence[Command] = ()
    looks = 0

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        self.looks += 1
        return list(self.found)

    def inbox_mark(self) -> object:
        return object()


class Flaky(MemoryJournal):
    """A journal whose inbox, or its mark, cannot be read now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.problem: Exception | None = None
        self.blind: Exception | None = None
        self.between: Callable[[], object] = lambda: None

    def inbox(self, run_id: str, after: int = 0) -> list[Command]:
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem
        found = super().inbox(run_id, after)
        between, self.between = self.between, lambda: None
        between()
        return found

    def inbox_mark(self) -> object:
        blind, self.blind = self.blind, None
        if blind is not None:
            raise blind
        return super().inbox_mark()


@pytest.mark.parametrize(
    "problem", [JournalError("locked"), OSError("disk"), ConfigError("what?")], ids=repr
)
async def test_a_word_is_heard_although_the_inbox_could_not_be_read_at_once(
    held: HeldTool, problem: Exception
) -> None:
    journal = Flaky()
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a")]), tools=held.tools(), journal=journal
    )
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        await asyncio.sleep(0.4)  # the first look is over
        journal.problem = problem
        journal.send("r", "abort", {})
        assert (await asyncio.wait_for(run.result(), 60)).status == "aborted"
    assert journal.problem is None


async def test_an_unreadable_inbox_is_logged_once_and_other_runs_still_receive(
    held: HeldTool,
) -> None:
    class Damaged(MemoryJournal):
        reads = 0

        def inbox(self, run_id: str, after: int = 0) -> list[Command]:
            if run_id == "damaged":
                self.reads += 1
                raise JournalError("damaged")
            return super().inbox(run_id, after)

    def reply(request: Request) -> Any:
        return (
            "done"
            if any(message.role == "tool" for message in request.conversation)
            else call("hold", what="a")
        )

    journal = Damaged()
    engine = ReActEngine(
        Runtime(ScriptedProvider(reply), tools=held.tools(), journal=journal)
    )
    with structlog.testing.capture_logs() as logs:
        async with (
            engine.start("Go.", run_id="damaged") as damaged,
            engine.start("Go.", run_id="r") as run,
        ):
            await eventually(lambda: len(held.ran) == 2 and journal.reads >= 3)
            journal.send("r", "abort", {})
            assert (await asyncio.wait_for(run.result(), 60)).status == "aborted"
            held.go.set()
            assert (await damaged.result()).status == "completed"

    assert [line["run_id"] for line in logs if line["event"] == "inbox_unreadable"] == [
        "damaged"
    ]


@pytest.mark.parametrize("trouble", [False, True], ids=["", "which cannot be said"])
async def test_only_those_read_their_inbox_to_whom_something_was_sent(
    tmp_path: Path, held: HeldTool, trouble: bool
) -> None:
    class Counting(SQLiteJournal):
        read_of: ClassVar[list[str]] = []

        def inbox(self, run_id: str, after: int = 0) -> list[Command]:
            self.read_of.append(run_id)
            return super().inbox(run_id, after)

        def inbox_news(self, after: int) -> tuple[int, frozenset[str]]:
            if trouble:
                raise JournalError("locked")
            return super().inbox_news(after)

    def reply(request: Request) -> Any:
        return (
            "done"
            if any(message.role == "tool" for message in request.conversation)
            else call("hold", what="a")
        )

    journal, names = Counting(tmp_path / "runs.db"), ["one", "two", "three"]
    engine = ReActEngine(
        Runtime(ScriptedProvider(reply), tools=held.tools(), journal=journal)
    )
    runs = {
        name: asyncio.ensure_future(engine.run("Go.", run_id=name)) for name in names
    }
    await eventually(
        lambda: len(held.ran) == 3 and sorted(journal.read_of) == sorted(names)
    )  # each once, at first
    for name in ("two", "three"):
        journal.read_of.clear()
        await asyncio.to_thread(
            journal.send, name, "steer", {"text": "Mind the budget."}
        )
        await eventually(lambda name=name: events_of(journal, name, CommandReceived))
        if trouble:  # then each has to read its own
            await eventually(lambda: set(journal.read_of) == set(names))
        await asyncio.sleep(0.3)  # until the others would have read, too
        assert (set(journal.read_of) == {name}) is not trouble

    held.go.set()
    assert [(await run).status for run in runs.values()] == ["completed"] * 3
    await journal.close()


async def test_a_word_is_heard_although_it_could_not_be_seen_at_once_that_it_came(
    held: HeldTool,
) -> None:
    journal = Flaky()
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a")]), tools=held.tools(), journal=journal
    )
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        with structlog.testing.capture_logs() as logs:
            journal.blind = OSError("stat")
            await eventually(lambda: journal.blind is None)
            journal.send("r", "abort", {})
            assert (await asyncio.wait_for(run.result(), 60)).status == "aborted"
    assert [line["event"] for line in logs] == ["inbox_not_looked_at"]


async def test_a_word_that_comes_while_a_run_is_resumed_is_heard(
    held: HeldTool,
) -> None:
    journal = Flaky()

    def runtime() -> Runtime:
        return Runtime(
            ScriptedProvider([call("hold", what="a")]),
            tools=held.tools(),
            journal=journal,
        )

    first = asyncio.ensure_future(ReActEngine(runtime()).run("Go.", run_id="r"))
    await held.reached.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    journal.between = lambda: journal.send(
        "r", "abort", {}
    )  # right after the run has read its inbox
    again = Runtime(ScriptedProvider([]), tools=held.tools(), journal=journal)
    result = await asyncio.wait_for(ReActEngine(again).resume("r"), 60)
    assert result.status == "aborted"


async def test_a_fork_is_told_its_own_follow_up_after_those_of_the_run_it_was_copied_from(
    held: HeldTool,
) -> None:
    journal = MemoryJournal()

    def engine(*script: Any) -> ReActEngine:
        return ReActEngine(
            Runtime(ScriptedProvider(list(script)), tools=held.tools(), journal=journal)
        )

    async with engine(call("hold", what="a"), "first", "second").start(
        "Go.", run_id="r"
    ) as run:
        await held.reached.wait()
        await run.follow_up("And then?")
        held.go.set()
        await run.result()
    said = next(
        entry.seq for entry in journal.read("r") if isinstance(entry.event, FollowedUp)
    )
    await engine().fork("r", at=said, new_id="f")

    await engine().runtime.control("f").follow_up("And now?")
    result = await engine("second", "third").resume("f")

    assert [m.content for m in result.conversation if m.origin == "operator"] == [
        "And then?",
        "And now?",
    ]
    assert result.answer == "third"


@pytest.mark.parametrize(
    "bad",
    [
        Command(2, "r", 1.0, ["steer"], {"text": "x"}),  # type: ignore[arg-type]
        Command(2, "r", 1.0, "steer", {"text": "x", "e": float("nan")}),
        Command(2, "r", 1.0, "damaged", {}, "it cannot be read"),
        Command(2, "r", 1.0, "stop", {}, "it cannot be read"),
    ],
    ids=["kind", "nan", "damaged", "a damaged stop"],
)
async def test_a_command_from_a_journal_of_anybodys_hides_none_that_comes_after_it(
    held: HeldTool, bad: Command
) -> None:
    journal = Foreign()
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a")]), tools=held.tools(), journal=journal
    )
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        journal.found = [
            Command(1, "r", 1.0, "steer", {"text": "Mind."}),
            bad,
            Command(3, "r", 1.0, "abort", {}),
        ]
        assert (await asyncio.wait_for(run.result(), 60)).status == "aborted"

    told = events_of(journal, "r", CommandReceived)
    assert [(event.number, bool(event.refused)) for event in told] == [
        (1, False),
        (2, True),
        (3, False),
    ]
    assert not bad.damage or told[1].refused == bad.damage
    assert journal.verify("r").ok


@pytest.mark.parametrize("number", ["1", None, True, 1.5, -1, [1]], ids=repr)
async def test_a_command_without_a_number_is_left_out_and_said_once_by_the_run(
    held: HeldTool, number: Any
) -> None:
    journal = Foreign()
    script = [call("hold", what="a"), "first"]
    runtime = Runtime(ScriptedProvider(script), tools=held.tools(), journal=journal)
    with structlog.testing.capture_logs() as logs:
        async with ReActEngine(runtime).start("Go.", run_id="r") as run:
            await held.reached.wait()
            journal.found = [
                Command(number, "r", 1.0, "stop", {}),
                Command(1, "r", 1.0, "steer", {"text": "x"}),
            ]
            await eventually(lambda: events_of(journal, "r", CommandReceived))
            looked = journal.looks
            await eventually(lambda: journal.looks > looked + 1)
            held.go.set()
            assert (await run.result()).status == "completed"

    assert [event.command for event in events_of(journal, "r", CommandReceived)] == [
        "steer"
    ]
    assert [
        line["run_id"] for line in logs if line["event"] == "command_without_number"
    ] == ["r"]


async def test_one_damaged_command_in_a_file_hides_none_before_or_after_it(
    tmp_path: Path, held: HeldTool
) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a")]), tools=held.tools(), journal=journal
    )
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        journal.send("r", "steer", {"text": "Mind the budget."})
        with contextlib.closing(
            sqlite3.connect(tmp_path / "runs.db.inbox", isolation_level=None)
        ) as connection:
            connection.execute(
                "INSERT INTO commands (number, run_id, at, kind, body, hash) VALUES (2, 'r', 1.0, 'steer', x'ff', 'x')"
            )
        journal.send("r", "stop", {})
        await eventually(lambda: len(events_of(journal, "r", CommandReceived)) == 3)
        held.go.set()
        result = await run.result()

    told = events_of(journal, "r", CommandReceived)
    assert result.status == "aborted"
    assert [(event.command, bool(event.refused)) for event in told] == [
        ("steer", False),
        ("damaged", True),
        ("stop", False),
    ]
    assert "command 2 was changed" in told[1].refused
    await journal.close()


async def test_a_command_under_another_key_hides_no_later_abort(
    tmp_path: Path, held: HeldTool
) -> None:
    path, keys = tmp_path / "runs.db", {"old": "A" * 43 + "=", "new": "B" * 42 + "A="}
    journal = SQLiteJournal(path, codec=AESCodec({"old": keys["old"]}, current="old"))
    rotated = SQLiteJournal(path, codec=AESCodec(keys, current="new"))
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a")]), tools=held.tools(), journal=journal
    )
    with structlog.testing.capture_logs() as logs:
        async with ReActEngine(runtime).start("Go.", run_id="r") as run:
            await held.reached.wait()
            rotated.send("r", "steer", {"text": "Mind the budget."})
            rotated.send("r", "steer", {"text": "Mind it."})
            journal.send("r", "abort", {})
            result = await asyncio.wait_for(run.result(), 60)
        await journal.close()

    assert result.status == "aborted"
    received = events_of(rotated, "r", CommandReceived)
    assert [(event.number, event.command) for event in received] == [(3, "abort")]
    skipped = [line for line in logs if line["event"] == "command_skipped"]
    assert [(line["run_id"], line["number"]) for line in skipped] == [
        ("r", 1),
        ("r", 2),
    ]
    assert "encrypted with key" in skipped[0]["error"]
    assert "send it again" in skipped[0]["error"]
    assert [one.kind for one in rotated.inbox("r")] == ["steer", "steer", "abort"]
    await rotated.close()


@pytest.mark.parametrize("kind", ["deny", "stop", "abort"])
async def test_a_revocation_under_another_key_lets_no_approved_call_run(
    tmp_path: Path, kind: str
) -> None:
    path, keys = tmp_path / "runs.db", {"old": "A" * 43 + "=", "new": "B" * 42 + "A="}
    journal = SQLiteJournal(path, codec=AESCodec({"old": keys["old"]}, current="old"))
    rotated = SQLiteJournal(path, codec=AESCodec(keys, current="new"))
    started: list[str] = []

    @tool
    def pay(sum: int) -> str:
        """Pay."""
        started.append("paid")
        return "paid"

    runtime = Runtime(
        ScriptedProvider([call("pay", sum=1), "Done."]), tools=[pay], journal=journal,
        gate=ApprovalGate(["pay"]), approver=Suspend(),
    )  # fmt: skip
    waiting = await ReActEngine(runtime).run("Pay.", run_id="r")
    await runtime.control("r").approve(waiting.pending[0].id)
    body = dict(rotated.inbox("r")[0].body) if kind == "deny" else {}
    rotated.send("r", kind, body)
    result = await runtime.resume("r")

    assert (result.status, started) == ("waiting", [])
    refused = events_of(rotated, "r", CommandReceived)[-1]
    assert (refused.number, refused.command) == (2, kind)
    assert "send it again under a key" in refused.refused
    await runtime.control("r").approve(result.pending[0].id)
    assert (await runtime.resume("r")).answer == "Done."
    for opened in (journal, rotated):
        await opened.close()


async def test_who_begins_to_listen_asks_for_no_news_of_before(
    tmp_path: Path, held: HeldTool
) -> None:
    class Asked(SQLiteJournal):
        asked: ClassVar[list[int]] = []

        def inbox_news(self, after: int) -> tuple[int, frozenset[str]]:
            self.asked.append(after)
            return super().inbox_news(after)

    journal = Asked(tmp_path / "runs.db")
    held.go.set()
    await ReActEngine(
        Runtime(ScriptedProvider(["done"]), tools=held.tools(), journal=journal)
    ).run("Go.", run_id="old")
    for number in range(3):
        journal.send("old", "steer", {"n": number})

    held.go.clear()
    journal.asked.clear()
    runtime = Runtime(
        ScriptedProvider([call("hold", what="a")]), tools=held.tools(), journal=journal
    )
    async with ReActEngine(runtime).start("Go.", run_id="r") as run:
        await held.reached.wait()
        await eventually(lambda: journal.asked)
        journal.send("r", "abort", {})
        assert (await asyncio.wait_for(run.result(), 60)).status == "aborted"

    assert journal.asked[0] < 0
    assert all(after >= 3 for after in journal.asked[1:])
    await journal.close()
