"""Approvals for a whole thread: which later turns need no question, who gave them, until when, and their revocation."""

import asyncio
import functools
from pathlib import Path
from typing import Any, ClassVar

import pytest

from interruptions import cancel_host
from loopwright import (
    ConfigError,
    LoopEngine,
    ReActEngine,
    ReflexionEngine,
    Run,
    Runtime,
    Suspend,
    Worker,
    tool,
)
from loopwright._kernel.control.run_control import RunControl
from loopwright._kernel.durability.fork import fork
from loopwright._kernel.session.session import SUSPEND_REASON
from loopwright.agents import AgentsToolbox, Thread
from loopwright.events import CommandReceived
from loopwright.gates import ApprovalGate
from loopwright.journals import SQLiteJournal
from loopwright.principals import ApprovalRule, Principal
from loopwright.security import Redactor
from loopwright.security.redaction import REDACTED
from loopwright.testing import FakeClock, Line, Script, ScriptedProvider, call

SENT: list[str] = []
ANN, BOB = Principal("ann", "acme", ("manager",)), Principal("bob", "acme")


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    SENT.clear()


@tool(outbound=True, destinations=("to",), content=("text",))
def send(to: str, text: str) -> str:
    """Send a mail."""
    SENT.append(f"{to}: {text}")
    return "sent"


def mail(to: str, text: str) -> list[Line]:
    return [call("send", to=to, text=text), f"Sent {text}."]


def open_thread(
    folder: Path, script: Script, clock: FakeClock, **options: Any
) -> tuple[Runtime, Thread[Any]]:
    """Open the thread as a process does that was just started."""
    runtime = Runtime(
        ScriptedProvider(script), tools=[send], gate=ApprovalGate(["send"]), approver=Suspend(),
        journal=SQLiteJournal(folder / "runs.db", clock=clock), clock=clock, lease=30.0,
    )  # fmt: skip
    return runtime, runtime.agent("clerk").thread("t-1", **options)


async def approve_first(folder: Path, clock: FakeClock, **options: Any) -> str:
    """Take a turn whose call is approved for the thread, and return its run."""
    runtime, thread = open_thread(folder, mail("ada@x.org", "one"), clock)
    waiting = await thread.run("Write to Ada.", **options)
    by = ANN if options else "ann"
    await runtime.control(waiting.run_id).approve(
        waiting.pending[0].id, seconds=3_600, scope="thread", by=by
    )
    assert (await thread.resume()).answer == "Sent one."
    await runtime.aclose()
    return waiting.run_id


async def test_a_later_turn_calls_the_same_destination_without_a_question(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    first = await approve_first(tmp_path, clock)
    clock.advance(60)
    script = [*mail("ada@x.org", "two"), *mail("eve@x.org", "three")]
    runtime, thread = open_thread(tmp_path, script, clock)
    again = await thread.run("Once more.")
    [approval] = await thread.approvals()
    other = await thread.run("And to Eve.")

    assert again.answer == "Sent two."
    assert (approval.tool, approval.by) == ("send", "ann")
    assert approval.arguments == {"to": "ada@x.org", "text": "one"}
    assert approval.until == approval.at + 3_600
    assert approval.id.startswith(first)
    events = [entry.event for entry in runtime.journal.read(again.run_id)]
    [used] = [one for one in events if isinstance(one, CommandReceived)]
    assert (used.command, used.body["by"]) == ("approve", "ann")
    assert used.body["granted"] == approval.id
    assert used.sent + float(str(used.body["seconds"])) == approval.until
    assert other.status == "waiting", "that is another destination"
    assert SENT == ["ada@x.org: one", "ada@x.org: two"]
    await runtime.aclose()


@pytest.mark.parametrize("how", ["time", "revoked", "denied", "run only"])
async def test_an_approval_of_a_thread_that_has_ended_lets_nothing_run(
    tmp_path: Path, how: str
) -> None:
    clock = FakeClock()
    script = [*mail("ada@x.org", "two"), *mail("ada@x.org", "three")]
    if how == "run only":
        runtime, thread = open_thread(tmp_path, mail("ada@x.org", "one"), clock)
        waiting = await thread.run("Write to Ada.")
        control = runtime.control(waiting.run_id)
        await control.approve(waiting.pending[0].id, seconds=3_600)
        await thread.resume()
        await runtime.aclose()
    else:
        await approve_first(tmp_path, clock)
    runtime, thread = open_thread(tmp_path, script, clock)
    if how == "time":
        clock.advance(3_601)
    elif how == "revoked":
        [approval] = await thread.approvals()
        await thread.revoke(approval, "she left", by="bob")
    elif how == "denied":
        runtime, thread = open_thread(tmp_path, [*mail("eve@x.org", "no"), *script], clock)  # fmt: skip
        waiting = await thread.run("Write to Eve.")
        await runtime.control(waiting.run_id).deny(waiting.pending[0].id, "never")
        await thread.resume()

    assert await thread.approvals() == []
    assert (await thread.run("Once more.")).status == "waiting"
    assert SENT == ["ada@x.org: one"]
    await runtime.aclose()


async def test_a_revocation_takes_effect_in_a_turn_that_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock)
    script: list[Line] = [
        [call("send", to="ada@x.org", text="two"), call("send", to="eve@x.org", text="x")],
        call("send", to="ada@x.org", text="three"), "Not sent.",
    ]  # fmt: skip
    runtime, thread = open_thread(tmp_path, script, clock)
    waiting = await thread.run("Once more, and to Eve.")
    [approval] = await thread.approvals()
    assert [one.arguments["to"] for one in waiting.pending] == ["eve@x.org"]

    await thread.revoke(approval.id, by="bob")
    await runtime.control(waiting.run_id).approve(waiting.pending[0].id)
    result = await thread.resume()

    assert [one.arguments["text"] for one in result.pending] == ["three"]
    assert "three" not in str(SENT)
    with pytest.raises(ConfigError, match=r"has no approval .* there are: none"):
        await thread.revoke(approval)
    await runtime.aclose()


async def test_a_revocation_takes_effect_in_a_turn_that_is_suspended(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock)
    script: Script = [call("send", to="ada@x.org", text="two"), cancel_host]
    runtime, thread = open_thread(tmp_path, script, clock)
    with pytest.raises(asyncio.CancelledError):
        await thread.run("Once more.")
    assert (await thread.turns())[-1].status == "suspended"
    [approval] = await thread.approvals()
    await thread.revoke(approval, by="bob")
    await runtime.aclose()
    runtime, thread = open_thread(tmp_path, mail("ada@x.org", "three"), clock)

    assert (await thread.resume()).status == "waiting"
    assert SENT == ["ada@x.org: one", "ada@x.org: two"]
    await runtime.aclose()


async def test_a_revocation_denies_no_other_call_and_ends_no_other_approval(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock)
    script = [*mail("eve@x.org", "two"), *mail("eve@x.org", "three")]
    runtime, thread = open_thread(tmp_path, script, clock)
    waiting = await thread.run("Write to Eve.")
    await runtime.control(waiting.run_id).approve(
        waiting.pending[0].id, seconds=3_600, scope="thread", by="bob"
    )
    [approval] = await thread.approvals()
    await thread.revoke(approval, by="ann")

    assert (await thread.resume()).answer == "Sent two."
    assert [one.by for one in await thread.approvals()] == ["bob"]
    assert (await thread.run("And again.")).answer == "Sent three."
    await runtime.aclose()


async def test_an_approval_that_is_revoked_while_a_turn_takes_it_lets_nothing_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock)
    runtime, thread = open_thread(tmp_path, mail("ada@x.org", "two"), clock)
    approve = RunControl._asked_approval

    async def approve_late(control: RunControl, question: str) -> Any:
        for one in await thread.approvals():
            await thread.revoke(one, by="bob")
        return await approve(control, question)

    monkeypatch.setattr(RunControl, "_asked_approval", approve_late)
    result = await thread.run("Once more.")

    assert (result.answer, SENT) == ("Sent two.", ["ada@x.org: one"])
    assert any("was revoked" in one.content for one in result.conversation)
    await runtime.aclose()


async def test_an_approval_given_in_a_fork_is_read_by_the_numbers_of_the_fork(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    first = await approve_first(tmp_path, clock)
    ada, eve = (call("send", to=f"{name}@x.org", text="x") for name in ("ada", "eve"))
    script: list[Line] = [ada, eve, "Sent."]
    runtime, thread = open_thread(tmp_path, script, clock)
    await thread.revoke((await thread.approvals())[0])
    waiting = await thread.run("To Ada.")
    control = runtime.control(waiting.run_id)
    await control.steer("Mind the tone.")  # number 1, as the approval of the fork
    await control.approve(waiting.pending[0].id)
    end = len(runtime.journal.read((await thread.resume()).run_id))
    copy = await fork(runtime.journal, waiting.run_id, at=end, clock=clock)
    asked = await runtime.resume(copy)
    await runtime.control(copy).approve(
        asked.pending[0].id, seconds=60, scope="thread", by="eve"
    )
    await runtime.resume(copy)

    [approval] = await thread.approvals()
    assert (approval.id, approval.by) == (f"{copy}#1", "eve")
    assert approval.arguments["to"] == "eve@x.org"
    assert first != copy
    await runtime.aclose()


def build_pay(made: list[str], *destinations: str) -> Any:
    """A tool that pays to declared destinations, and notes the accounts."""

    @tool(destinations=destinations)
    def pay(to: str, account: str) -> str:
        """Pay."""
        made.append(account)
        return "paid"

    return pay


async def test_a_call_of_an_agent_that_was_handed_the_run_is_judged_by_its_own_tool(
    tmp_path: Path,
) -> None:
    made: list[str] = []
    build = functools.partial(build_pay, made)
    script: list[Line] = [
        call("pay", to="ada", account="1"),
        "Paid.",
        call("transfer_to_back"),
    ]
    script += [call("pay", to="ada", account=number) for number in ("1", "2")]
    runtime = Runtime(
        ScriptedProvider(script), gate=ApprovalGate(["pay"]), approver=Suspend(),
        journal=SQLiteJournal(tmp_path / "runs.db"),
    )  # fmt: skip
    runtime.agent("back", tools=[build("to", "account")])
    front = runtime.agent("front", tools=[build("to")], handoffs=["back"])
    thread = front.thread("t-1")
    waiting = await thread.run("Pay Ada.")
    await runtime.control(waiting.run_id).approve(
        waiting.pending[0].id, seconds=60, scope="thread"
    )
    await thread.resume()
    result = await thread.run("Again.")

    assert [one.arguments["account"] for one in result.pending] == ["2"]
    assert made == ["1", "1"]
    await runtime.aclose()


@pytest.mark.parametrize(
    ("front", "back"), [(("to", "account"), ("to",)), (("to",), ("to", "account"))]
)
@pytest.mark.parametrize("first", [{}, {"account": "1"}])
async def test_a_destination_that_one_of_the_calls_leaves_out_is_another_one(
    front: tuple[str, ...], back: tuple[str, ...], first: dict[str, str]
) -> None:
    made: list[str] = []

    def build(*destinations: str) -> Any:
        @tool(destinations=destinations)
        def pay(to: str, account: str = "usual") -> str:
            """Pay."""
            made.append(account)
            return "paid"

        return pay

    later = {} if first else {"account": "2"}
    script = [call("pay", to="ada", **first), "Paid.", call("transfer_to_back"), call("pay", to="ada", **later)]  # fmt: skip
    runtime = Runtime(ScriptedProvider(script), gate=ApprovalGate(["pay"]), approver=Suspend())  # fmt: skip
    runtime.agent("back", tools=[build(*back)])
    agent = runtime.agent("front", tools=[build(*front)], handoffs=["back"])
    thread = agent.thread("t-1")
    waiting = await thread.run("Pay Ada.")
    asked = waiting.pending[0].id
    await runtime.control(waiting.run_id).approve(asked, seconds=60, scope="thread")
    await thread.resume()
    result = await thread.run("Again.")

    assert [one.arguments for one in result.pending] == [{"to": "ada", **later}]
    assert made == [first.get("account", "usual")]


class MakingEngine(LoopEngine):
    """Makes an engine while it runs, on a runtime that only its code knows, and delegates to it."""

    name = "making"
    others: ClassVar[list[Runtime]] = []

    async def solve(self, run: Run) -> str:
        return (await run.delegate(ReActEngine(self.others[-1]), run.task)).answer or ""


@pytest.mark.parametrize("kind", ["agent", "engine", "part", "toolbox", "made"])
async def test_a_call_of_an_engine_with_its_own_runtime_is_judged_by_its_own_tool(
    tmp_path: Path, kind: str
) -> None:
    made: list[str] = []
    build = functools.partial(build_pay, made)
    script: list[Line] = [call("pay", to="ada", account="1"), "Paid."]
    asked = call("back", task="Pay Ada.")
    if kind == "toolbox":
        asked = call("delegate", agent="back", task="Pay Ada.")
    script += [asked, call("pay", to="ada", account="2")]
    model, policy = ScriptedProvider(script), ApprovalGate(["pay"])
    other = Runtime(model, tools=[build("to", "account")], gate=policy, approver=Suspend())  # fmt: skip
    inner = ReActEngine(other)
    MakingEngine.others.append(other)
    outer = Runtime(model, gate=policy, approver=Suspend())
    parts: dict[str, Any] = {
        "agent": lambda: other.agent("back").as_tool(effect="read"),
        "engine": lambda: inner.as_tool(name="back", effect="read"),
        "part": lambda: ReflexionEngine(outer, actor=inner).as_tool(name="back", effect="read"),
        "made": lambda: MakingEngine(outer).as_tool(name="back", effect="read"),
        "toolbox": lambda: AgentsToolbox(other, [other.agent("back").name], effect="read"),
    }  # fmt: skip
    runtime = Runtime(
        model, gate=policy, approver=Suspend(), journal=SQLiteJournal(tmp_path / "runs.db"),
    )  # fmt: skip
    thread = runtime.agent("front", tools=[build("to"), parts[kind]()]).thread("t-1")
    waiting = await thread.run("Pay Ada.")
    await runtime.control(waiting.run_id).approve(
        waiting.pending[0].id, seconds=60, scope="thread"
    )
    await thread.resume()
    result = await thread.run("Again.")

    assert [one.arguments["account"] for one in result.pending] == ["2"]
    assert made == ["1"]
    await runtime.aclose()


async def test_approvals_of_a_thread_are_nothing_to_another_tenant(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock, principal=BOB, approvals=ApprovalRule())
    runtime, thread = open_thread(tmp_path, [], clock, principal=BOB)
    [approval] = await thread.approvals()
    other = runtime.agents["clerk"].thread("t-1", principal=Principal("eve", "zen"))

    for refused in (other.approvals(), other.revoke(approval)):
        with pytest.raises(ConfigError, match="is not of tenant 'zen'"):
            await refused
    assert await thread.approvals() == [approval]
    await runtime.aclose()


async def test_an_approval_of_a_thread_is_of_the_one_who_gave_it(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    one = ApprovalRule(role="manager")
    await approve_first(tmp_path, clock, principal=BOB, approvals=one)
    script = [*mail("ada@x.org", "two"), *mail("ada@x.org", "three")]
    runtime, thread = open_thread(tmp_path, script, clock, principal=BOB)
    second = await thread.run("Once more.", approvals=one)
    two = ApprovalRule(role="manager", people=2)
    third = await thread.run("And again.", approvals=two)

    assert second.answer == "Sent two."
    assert (await thread.approvals())[0].by == ANN
    assert third.status == "waiting", "one approval does not stand for two people"
    await runtime.aclose()


async def test_a_command_that_no_turn_accepted_approves_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    first = await approve_first(tmp_path, clock)
    runtime, thread = open_thread(tmp_path, mail("eve@x.org", "x"), clock)
    journal: Any = runtime.journal
    [approval] = await thread.approvals()
    forged = dict(journal.inbox(first)[0].body)
    journal.send(first, "approve", {**forged, "same": {}, "seconds": 9_999})

    assert await thread.approvals() == [approval]
    assert (await thread.run("Write to Eve.")).status == "waiting"
    await runtime.aclose()


async def test_an_approval_of_a_thread_needs_an_end(tmp_path: Path) -> None:
    script = [*mail("ada@x.org", "one")[:1], *mail("ada@x.org", "one")]
    runtime, thread = open_thread(tmp_path, script, FakeClock())
    waiting = await thread.run("Write to Ada.")
    control = runtime.control(waiting.run_id)
    alone = await runtime.agents["clerk"].run("Write to Ada.")
    wrong: Any = "tenant"

    with pytest.raises(ConfigError, match="seconds: an approval for a whole thread"):
        await control.approve(waiting.pending[0].id, scope="thread")
    with pytest.raises(ConfigError, match="approve: scope: missing, or not what it"):
        await control.approve(waiting.pending[0].id, scope=wrong, seconds=60)
    with pytest.raises(ConfigError, match=r"scope: run .* is of no thread"):
        await runtime.control(alone.run_id).approve(
            alone.pending[0].id, scope="thread", seconds=60
        )
    await runtime.aclose()


TWO = ApprovalRule(people=2)


async def test_an_approval_is_sent_once_to_a_turn_that_waits_for_more_people(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock, principal=BOB, approvals=ApprovalRule())
    runtime, thread = open_thread(tmp_path, mail("ada@x.org", "two"), clock, principal=BOB)  # fmt: skip
    waiting = await thread.run("Once more.", approvals=TWO)
    for _ in range(3):
        assert (await thread.resume()).status == "waiting"
    journal: Any = runtime.journal

    assert [one.kind for one in journal.inbox(waiting.run_id)] == ["approve"]
    assert "ann@acme approved it" in (await thread.resume()).pending[0].text
    clock.advance(3_500)  # 100 s are left of the hour for which it holds
    await runtime.control(waiting.run_id).approve(waiting.pending[0].id, by=BOB)
    assert (await thread.resume()).answer == "Sent two."
    assert len(journal.inbox(waiting.run_id)) == 2
    await runtime.aclose()


async def test_an_approval_is_sent_again_once_it_no_longer_counts_for_the_call(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    script = [*mail("ada@x.org", "one"), *mail("ada@x.org", "two")]
    runtime, thread = open_thread(tmp_path, script, clock, principal=BOB)
    first = await thread.run("Write to Ada.")
    await runtime.control(first.run_id).approve(
        first.pending[0].id, seconds=20_000, scope="thread", by=ANN
    )
    await thread.resume()
    waiting = await thread.run("Once more.", approvals=TWO)
    clock.advance(4_000)  # an approval of a call counts for an hour
    await runtime.control(waiting.run_id).approve(waiting.pending[0].id, by=BOB)

    assert (await thread.resume()).answer == "Sent two."
    senders = [one.body["by"] for one in runtime.journal.inbox(waiting.run_id)]
    assert senders == ["ann", "bob", "ann"]
    await runtime.aclose()


async def test_approvals_of_two_people_for_the_thread_are_those_of_two_people(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock, principal=BOB, approvals=ApprovalRule())
    script = [*mail("ada@x.org", "two"), *mail("ada@x.org", "three")]
    runtime, thread = open_thread(tmp_path, script, clock, principal=BOB)
    second = await thread.run("Once more.", approvals=TWO)
    await runtime.control(second.run_id).approve(
        second.pending[0].id, seconds=60, scope="thread", by=BOB
    )
    await thread.resume()
    third = await thread.run("And again.", approvals=TWO)

    assert third.answer == "Sent three."
    senders = [one.body["by"] for one in runtime.journal.inbox(third.run_id)]
    assert sorted(map(str, senders)) == ["ann", "bob"]
    await runtime.aclose()


async def test_a_run_of_another_tenant_that_names_the_thread_approves_nothing(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    script = [*mail("ada@x.org", "one"), *mail("ada@x.org", "two")]
    runtime, thread = open_thread(tmp_path, script, clock, principal=BOB)
    eve = Principal("eve", "zen")
    other = await ReActEngine(runtime).run("Write.", thread="t-1", principal=eve)
    await runtime.control(other.run_id).approve(
        other.pending[0].id, seconds=3_600, scope="thread", by="eve"
    )
    await runtime.resume(other.run_id)
    waiting = await thread.run("Write to Ada.")

    assert (waiting.status, await thread.approvals()) == ("waiting", [])
    assert runtime.journal.inbox(waiting.run_id) == []
    await runtime.aclose()


@pytest.mark.parametrize("about", ["the same", "another"])
async def test_a_destination_that_became_a_secret_needs_a_question_of_its_own(
    tmp_path: Path, about: str
) -> None:
    clock, secret = FakeClock(), "account-4711-alpha"
    other = secret if about == "the same" else "account-0815-beta"
    for number, to in enumerate((secret, other), 1):
        script = mail(to, str(number))
        begun, thread = open_thread(tmp_path, script, clock)
        await thread.run("Write.")
        await begun.aclose()
        runtime = Runtime(
            ScriptedProvider(script[1:]), tools=[send], gate=ApprovalGate(["send"]), approver=Suspend(),
            journal=SQLiteJournal(tmp_path / "runs.db", clock=clock), clock=clock, redactor=Redactor([secret, other]),
        )  # fmt: skip
        thread = runtime.agent("clerk").thread("t-1")
        waiting = await thread.resume()
        assert [one.arguments["to"] for one in waiting.pending] == [REDACTED]
        if number == 1:
            await runtime.control(waiting.run_id).approve(
                waiting.pending[0].id, seconds=60, scope="thread"
            )
            await thread.resume()
            assert len(await thread.approvals()) == 1
        await runtime.aclose()

    assert [f"{secret}: 1"] == SENT


async def test_a_run_that_is_named_like_a_turn_uses_the_approvals_of_no_thread(
    tmp_path: Path,
) -> None:
    clock, named = FakeClock(), "t:0123456789abcdef:1"
    await approve_first(tmp_path, clock)
    runtime, _ = open_thread(tmp_path, mail("ada@x.org", "two"), clock)
    await runtime.agents["clerk"].run("Write to Ada.", run_id=named)

    assert (await runtime.resume(named)).status == "waiting"
    assert SENT == ["ada@x.org: one"]
    await runtime.aclose()


@pytest.mark.parametrize("how", ["worker", "drain", "resume"])
@pytest.mark.parametrize("holds", [True, False])
async def test_a_turn_that_is_continued_without_its_thread_uses_the_approvals(
    tmp_path: Path, how: str, *, holds: bool
) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock)
    runtime, thread = open_thread(tmp_path, [cancel_host], clock)
    SUSPEND_REASON.set("released")
    with pytest.raises(asyncio.CancelledError):
        await thread.run("Once more.")
    turn = (await thread.turns())[-1]
    if not holds:
        await thread.revoke((await thread.approvals())[0], by="bob")
    await runtime.aclose()
    runtime, thread = open_thread(tmp_path, mail("ada@x.org", "two"), clock)
    if how == "resume":
        result = await runtime.resume(turn.run_id)
    else:
        work = runtime.drain if how == "drain" else Worker(runtime).drain
        [result] = await work()

    assert (result.run_id, result.answer) == (turn.run_id, "Sent two." if holds else None)  # fmt: skip
    assert SENT[1:] == (["ada@x.org: two"] if holds else [])
    given = [one.body.get("granted") for one in runtime.journal.inbox(turn.run_id)]
    assert given == ([(await thread.approvals())[0].id] if holds else [])
    await runtime.aclose()


async def test_a_denial_revokes_in_its_own_tenant_and_without_one_in_each(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    await approve_first(tmp_path, clock, principal=BOB, approvals=ApprovalRule())
    script = [mail("eve@x.org", "x")[0], mail("eve@x.org", "y")[0]]
    runtime, thread = open_thread(tmp_path, script, clock, principal=BOB)
    held = list[int]()
    for principal in (Principal("eve", "zen"), None):
        run = await ReActEngine(runtime).run("Go.", thread="t-1", principal=principal)
        await runtime.control(run.run_id).deny(run.pending[0].id, "never")
        held.append(len(await thread.approvals()))

    assert held == [1, 0]
    await runtime.aclose()
