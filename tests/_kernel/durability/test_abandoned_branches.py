"""A branch that waits for a person while a sibling ends their gather: when the run is resumed it waits there again."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from journal_positions import cut_after
from loopwright import (
    Action,
    Allow,
    Ask,
    Decision,
    LimitReached,
    Limits,
    LoopEngine,
    MemoryJournal,
    PolicyState,
    ReActEngine,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    ToolError,
    ask_user,
    tool,
)
from loopwright._kernel.durability.replay import Replay
from loopwright.errors import ReplayDivergence
from loopwright.events import QuestionWithdrawn
from loopwright.gates import RESPOND, InstantGate
from loopwright.testing import FakeClock, ScriptedProvider, crashed
from loopwright.tools import Fallback
from sample_tools import RAN


@tool(effect="destructive")
async def pay(cents: int) -> str:
    """Pay."""
    RAN.append("pay")
    return "paid"


@tool(recovery=Fallback("pay"))
async def charge(cents: int) -> str:
    """Charge a card that is never good."""
    raise ToolError("the card is no good")


@tool(effect="write")
async def send(text: str) -> str:
    """Send."""
    RAN.append("send")
    return "sent"


class Asking(InstantGate):
    """Asks about paying, about what engines do themselves, and about answers."""

    version, answers = "test-1", True

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return (
            Ask("may it?")
            if action.tool in ("pay", "look up", "plan", "delegate", RESPOND)
            else Allow()
        )


async def fetch() -> str:
    RAN.append("fetch")
    return "fetched"


async def by_child(branch: Run) -> str:
    return (
        await branch.delegate(Paying(branch._cycle.engine.runtime), "Pay.")
    ).answer or ""  # type: ignore[arg-type]


WAITS: dict[str, Callable[[Run], Any]] = {
    "a question": lambda branch: branch.ask_user("Which colour?"),
    "a tool that asks": lambda branch: branch.call(
        ToolCall("ask_user", {"question": "Which colour?"})
    ),
    "a call": lambda branch: branch.call(ToolCall("pay", {"cents": 1})),
    "a call in place of another": lambda branch: branch.call(
        ToolCall("charge", {"cents": 1})
    ),
    "an effect": lambda branch: branch.effect("look up", fetch, into=str),
    "a plan": lambda branch: branch.permit("plan", {"steps": 1}),
    "a delegation": by_child,
    "a gather": lambda branch: branch.gather(WAITS["a call"], WAITS["a question"]),
}


class Paying(LoopEngine):
    """Pays."""

    name = "paying"

    async def solve(self, run: Run) -> str:
        return (await run.call(ToolCall("pay", {"cents": 1}))).content


class Gathering(LoopEngine):
    """One branch waits, the other fails, and then it does without them, gathering once more."""

    name = "gathering"
    waits: str
    fails: bool = True

    async def solve(self, run: Run) -> str:
        async def waiting(branch: Run) -> str:
            await WAITS[self.waits](branch)
            return await branch.ask("And now?")

        async def failing(branch: Run) -> str:
            said = await branch.ask("How?")
            if self.fails:
                raise ValueError(said)
            return said

        try:
            await run.gather(waiting, failing)
        except ValueError as error:
            more = await run.gather(lambda branch: branch.ask("Without?"))
            return f"{error}, {more[0]}, {await run.ask('And?')}"
        return "all went well"


def engine(
    waits: str, journal: MemoryJournal | None = None, **options: Any
) -> Gathering:
    tools = [pay, charge, send, ask_user]
    given: dict[str, Any] = {
        "approver": Suspend(),
        "gate": Asking(),
        "tools": tools,
        **options,
    }
    runtime = Runtime(
        ScriptedProvider(lambda _: "fine"), journal=journal or MemoryJournal(), **given
    )
    return Gathering(runtime, waits=waits)


def told_all(journal: MemoryJournal) -> None:
    """Somebody allows and answers whatever was ever asked, also what nobody asks any more."""
    replay = Replay(journal.read("r"))
    for key, known in replay.approvals.open_approvals().items():
        said = {
            "tool": known.tool,
            "arguments_hash": known.arguments_hash,
            "policy_version": known.policy_version,
        }
        journal.send(
            "r",
            "approve",
            {
                "key": key,
                "question": replay.approvals.approval_entries[key],
                "by": "",
                **said,
            },
        )
    for key, seq in replay.approvals.question_entries.items():
        journal.send("r", "answer", {"key": key, "question": seq, "text": "blue"})


@pytest.mark.parametrize("waits", WAITS)
async def test_a_branch_abandoned_while_waiting_begins_nothing_on_resume(
    waits: str,
) -> None:
    first = engine(waits)
    result = await first.run("Go.", run_id="r")
    entries = first.runtime.journal.read("r")
    ended = next(entry.seq for entry in entries if entry.key.startswith("1."))

    assert [question.tool for question in result.pending] == [
        RESPOND
    ]  # and nothing that has no meaning any more
    for keep in range(ended, len(entries) + 1):
        journal = crashed(entries, keep)
        told_all(journal)
        result = await engine(waits, journal).resume("r")
        if result.status == "waiting":
            assert [question.tool for question in result.pending] == [RESPOND], entries[
                keep - 1
            ].kind
            told_all(journal)
            result = await engine(waits, journal).resume("r")
        assert (result.status, result.answer) == ("completed", "fine, fine, fine"), (
            entries[keep - 1].kind
        )
        assert RAN == []


@pytest.mark.parametrize("waits", WAITS)
async def test_a_question_in_a_gather_that_was_ended_is_withdrawn_once(
    waits: str,
) -> None:
    first = engine(waits)
    await first.run("Go.", run_id="r")
    entries = first.runtime.journal.read("r")
    withdrawn = [
        entry for entry in entries if isinstance(entry.event, QuestionWithdrawn)
    ]
    cut = crashed(entries, len(entries) - 1)
    await engine(waits, cut).resume("r")

    expected = 2 if waits == "a gather" else 1
    assert len(withdrawn) == len({entry.key for entry in withdrawn}) == expected
    assert all(entry.key.startswith("0.0.") for entry in withdrawn)
    assert (
        sum(entry.kind == "question_withdrawn" for entry in cut.read("r")) == expected
    )


@pytest.mark.parametrize("waits", WAITS)
async def test_what_waited_in_a_gather_that_was_ended_begins_nothing_in_a_journal_that_does_not_say_so(
    waits: str,
) -> None:
    first = engine(waits)
    await first.run("Go.", run_id="r")
    written = [
        entry
        for entry in first.runtime.journal.read("r")
        if not isinstance(entry.event, QuestionWithdrawn)
    ]
    older = [
        dataclasses.replace(entry, seq=seq) for seq, entry in enumerate(written, 1)
    ]
    ended = next(
        entry.seq
        for entry in older
        if entry.key == "2" and entry.kind == "model_replied"
    )
    for keep in range(ended, len(older) + 1):
        journal = crashed(older, keep)
        told_all(journal)
        result = await engine(waits, journal).resume("r")
        if result.status == "waiting":
            told_all(journal)
            result = await engine(waits, journal).resume("r")
        assert (result.status, result.answer) == ("completed", "fine, fine, fine"), (
            older[keep - 1].kind
        )
        assert RAN == []


@pytest.mark.parametrize("waits", ["a question", "a tool that asks"])
async def test_an_answer_that_comes_when_the_gather_has_ended_is_not_heard(
    waits: str,
) -> None:
    class Both(Gathering):
        """Both branches ask; the second one fails with what it is told."""

        name = "both"

        async def solve(self, run: Run) -> str:
            async def failing(branch: Run) -> str:
                raise ValueError(await branch.ask_user("Why?"))

            try:
                await run.gather(WAITS[self.waits], failing)
            except ValueError as error:
                return f"{error}, {await run.ask('And?')}"
            return "all went well"

    def both(journal: MemoryJournal) -> Both:
        return Both(engine(waits, journal).runtime, waits=waits)

    journal = MemoryJournal()
    waiting = await both(journal).run("Go.", run_id="r")
    assert [question.text for question in waiting.pending] == ["Which colour?", "Why?"]
    control = both(journal).runtime.control("r")
    await control.answer("so", question=waiting.pending[1].key)
    asked = await both(journal).resume("r")
    assert [question.tool for question in asked.pending] == [RESPOND]
    seq = Replay(journal.read("r")).approvals.question_entries[waiting.pending[0].key]
    journal.send(
        "r", "answer", {"key": waiting.pending[0].key, "question": seq, "text": "blue"}
    )
    await control.approve(asked.pending[0].id)

    assert (await both(journal).resume("r")).answer == "so, fine"


async def test_a_doubt_that_a_person_was_asked_about_stays_one_when_the_gather_has_ended() -> (
    None
):
    WAITS["a doubt"] = lambda branch: branch.call(ToolCall("send", {"text": "x"}))
    whole = engine("a doubt")
    await whole.run("Go.", run_id="r")
    entries = whole.runtime.journal.read("r")
    RAN.clear()
    journal = crashed(entries, cut_after(entries, "tool_started"))
    asked = await engine("a doubt", journal, on_unknown="ask").resume("r")
    assert [question.tool for question in asked.pending] == [RESPOND]
    told_all(journal)
    result = await engine("a doubt", journal, on_unknown="ask").resume("r")
    del WAITS["a doubt"]

    assert (result.status, result.answer, RAN) == ("completed", "fine, fine, fine", [])


async def test_a_best_answer_can_be_approved_although_a_branch_waits_too() -> None:
    class Limited(Gathering):
        """One branch asks, the other asks a model until there are no more calls."""

        name = "limited"

        async def solve(self, run: Run) -> str:
            async def works(branch: Run) -> str:
                while True:
                    await branch.ask("And?")

            return "".join(await run.gather(WAITS[self.waits], works))

    def limited(journal: MemoryJournal) -> Limited:
        return Limited(
            engine("a question", journal, limits=Limits(max_llm_calls=3)).runtime,
            waits="a question",
        )

    journal = MemoryJournal()
    waiting = await limited(journal).run("Go.", run_id="r")
    assert [question.tool for question in waiting.pending] == [RESPOND]
    await limited(journal).runtime.control("r").approve(waiting.pending[0].id)
    result = await limited(journal).resume("r")

    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_llm_calls",
        "fine",
    )


@pytest.mark.parametrize(
    "waits",
    ["a call", "a call in place of another", "an effect", "a delegation", "a gather"],
)
async def test_an_abandoned_branch_waits_in_a_fork_too_when_its_question_has_expired(
    waits: str,
) -> None:
    clock = FakeClock()
    forked = engine(waits, clock=clock, approver=Suspend(expires=10))
    first = await forked.run("Go.", run_id="r")
    entries = forked.runtime.journal.read("r")
    clock.advance(100)
    for at in range(cut_after(entries, "model_requested", 2), len(entries) + 1):
        again = await forked.resume(await forked.fork("r", at=at))
        assert (again.status, [question.tool for question in again.pending]) == (
            "waiting",
            [RESPOND],
        ), at

    assert (first.status, RAN) == ("waiting", [])


async def test_a_gather_that_ended_and_now_waits_is_divergence() -> None:
    first = engine("a call")
    await first.run("Go.", run_id="r")
    entries = first.runtime.journal.read("r")
    again = Gathering(
        engine("a call", crashed(entries, len(entries) - 1)).runtime,
        waits="a call",
        fails=False,
    )
    with pytest.raises(ReplayDivergence, match="at 0 recorded: effects after it"):
        await again.resume("r")


async def test_a_new_effect_in_a_branch_whose_gather_has_ended_is_still_divergence() -> (
    None
):
    WAITS["nothing"] = lambda branch: branch.ask("What?")
    first = engine("nothing")
    await first.run("Go.", run_id="r")
    entries = first.runtime.journal.read("r")
    WAITS["nothing"] = lambda branch: branch.gather(WAITS["a question"])
    with pytest.raises(ReplayDivergence):
        await engine("nothing", crashed(entries, len(entries) - 1)).resume("r")
    del WAITS["nothing"]


async def test_a_react_agent_inside_a_branch_waits_there_again() -> None:
    class Delegating(Gathering):
        """One branch lets an agent work that has to ask, the other fails."""

        name = "delegating"

        async def solve(self, run: Run) -> str:
            async def failing(branch: Run) -> str:
                raise ValueError(await branch.ask("How?"))

            try:
                await run.gather(
                    lambda branch: branch.delegate(ReActEngine(agent), "Pay."), failing
                )
            except ValueError as error:
                return f"{error}, {await run.ask('And?')}"
            return "all went well"

    class AsksAboutCalls(Asking):
        """Delegating is no matter."""

        def decide(self, action: Action, state: PolicyState) -> Decision:
            return (
                Allow() if action.tool == "delegate" else super().decide(action, state)
            )

    def delegating(journal: MemoryJournal) -> Delegating:
        return Delegating(
            engine("a call", journal, gate=AsksAboutCalls()).runtime, waits="a call"
        )

    pays = ToolCall("pay", {"cents": 1}, "c1")
    script = ScriptedProvider(
        lambda request: "done" if len(request.conversation) > 1 else pays
    )
    agent = Runtime(script, tools=[pay], approver=Suspend(), gate=AsksAboutCalls())
    journal = MemoryJournal()
    waiting = await delegating(journal).run("Go.", run_id="r")
    assert [question.tool for question in waiting.pending] == [RESPOND]
    told_all(journal)
    result = await delegating(journal).resume("r")

    assert (result.status, result.answer, RAN) == ("completed", "fine, fine", [])


class Around(LoopEngine):
    """Has another engine do it."""

    name = "around"
    inner: Gathering

    async def solve(self, run: Run) -> str:
        return (await run.delegate(self.inner, "Go.")).answer or ""


class AsksToPay(InstantGate):
    """Asks about paying alone."""

    version = "test-2"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Ask("may it?") if action.tool == "pay" else Allow()


async def test_a_branch_that_was_left_behind_in_a_child_engine_begins_nothing() -> None:
    def around(journal: MemoryJournal | None = None) -> Around:
        inner = engine("a call", journal, gate=AsksToPay())
        return Around(inner.runtime, inner=inner)

    first = around()
    await first.run("Go.", run_id="r")
    entries = first.runtime.journal.read("r")
    ended = next(entry.seq for entry in entries if entry.key.startswith("0.1"))
    for keep in range(ended, len(entries)):
        journal = crashed(entries, keep)
        told_all(journal)
        assert (await around(journal).resume("r")).answer == "fine, fine, fine", (
            entries[keep - 1].kind
        )

    assert RAN == []


class Sparing(LoopEngine):
    """Delegates a payment that a person decides about; beside it another branch uses up the calls."""

    name = "sparing"

    async def solve(self, run: Run) -> str:
        async def pays(branch: Run) -> str:
            child = await branch.delegate(Paying(self.runtime), "Pay.")
            return f"{child.status} {child.stop_reason}"

        async def spends(branch: Run) -> str:
            call = ToolCall("send", {"text": "a letter"})
            with contextlib.suppress(LimitReached):
                for _ in range(3):
                    await branch.call(call)
            return "all is spent"

        await run.gather(pays, spends)
        return "never"


class AskingToPay(InstantGate):
    """Asks about paying alone."""

    version = "test-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        return Ask("may it?") if action.tool == "pay" else Allow()


async def test_a_child_that_met_the_limit_where_it_had_waited_meets_it_again() -> None:
    def parts(journal: MemoryJournal) -> Sparing:
        limits = Limits(max_tool_calls=1, best_effort=False)
        return Sparing(
            Runtime(
                ScriptedProvider([]), tools=[pay, send], journal=journal, limits=limits,
                gate=AskingToPay(), approver=Suspend(),
            )
        )  # fmt: skip

    journal = MemoryJournal()
    assert (await parts(journal).run("Go.", run_id="r")).status == "waiting"
    await parts(journal).runtime.control("r").approve("0.0.0.0#0")
    result = await parts(journal).resume("r")
    assert (result.status, result.stop_reason) == ("limit", "max_tool_calls")
    entries = journal.read("r")
    ended = [entry.seq for entry in entries if entry.kind == "child_finished"]
    for keep in range(ended[0], len(entries)):
        again = await parts(crashed(entries, keep)).resume("r")
        assert (again.status, again.stop_reason) == ("limit", "max_tool_calls"), keep
