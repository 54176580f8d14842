"""A call with a secret in its arguments: tool and gate see it, nobody else does, and it is never made without it."""

import dataclasses
import json
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from loopwright import (
    Allow,
    AllowAll,
    Ask,
    Deny,
    Limits,
    LoopEngine,
    Modify,
    ReActEngine,
    Run,
    Runtime,
    Suspend,
    ToolContext,
    tool,
)
from loopwright.events import (
    Entry,
    GateDecided,
    ModelReplied,
    ToolFinished,
    ToolStarted,
    UndoFinished,
)
from loopwright.gates import Action, ApprovalGate, Cleared, PolicyState
from loopwright.journals import MemoryJournal
from loopwright.messages import (
    Completion,
    Observation,
    Reasoning,
    ToolCall,
    hash_arguments,
)
from loopwright.providers import Delta, Request
from loopwright.security import REDACTED, Redactor
from loopwright.testing import ScriptedProvider, call, crashed
from loopwright.tools import (
    CachedResult,
    CallCompleted,
    CallNotExecuted,
    Escalate,
    Fallback,
    LlmRecovery,
    OutcomeUnknown,
    Retry,
)

PASSWORD = "open sesame 7"
OTHER = "swordfish 88!"
TOKEN = "ghp" + "_Zx8Kq2mVt5Rw9Yp3Lb7Nc4Jd6Hf1Gs0Ta8Ue"
LOST = "its arguments held a secret, which is not kept. Propose it again."

got: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_got() -> None:
    got.clear()


@tool
async def login(user: str, password: str) -> str:
    """Log in."""
    got.append(password)
    return f"{user} is in with {password}"


@tool(effect="read")
async def look() -> str:
    """Look."""
    got.append("looked")
    return "seen"


def once(*calls: ToolCall | Any) -> ScriptedProvider:
    """A model that makes these calls in its first turn and answers in the next, in every process."""

    def line(request: Request) -> Any:
        last = request.conversation.messages[-1]
        return (
            "done"
            if last.role == "tool"
            else list(calls)
            if isinstance(calls[0], ToolCall)
            else calls[0]
        )

    return ScriptedProvider(line)


LOGIN = call("login", user="ada", password=PASSWORD)


def everything(parts: Any, run_id: str = "r") -> str:
    """All that a journal holds of a run, as text and as it is shown."""
    entries = parts.journal.read(run_id)
    return "".join(f"{entry.body.decode()}\n{entry!r}\n" for entry in entries)


def events(parts: Any, kind: type[Any], run_id: str = "r") -> list[Any]:
    return [
        entry.event
        for entry in parts.journal.read(run_id)
        if isinstance(entry.event, kind)
    ]


async def test_the_tool_gets_the_secret_and_the_journal_the_model_and_the_result_do_not() -> (
    None
):
    model, seen = once(LOGIN), list[Entry]()
    parts = Runtime(model, tools=[login], observers=[seen.append])
    result = await ReActEngine(parts).run("Log in.", run_id="r")

    assert got == [PASSWORD]
    assert result.status == "completed"
    for told in (
        everything(parts),
        repr(model.requests),
        repr(seen),
        repr(result.conversation),
    ):
        assert PASSWORD not in told
        assert REDACTED in told
    assert PASSWORD not in repr(result)
    assert events(parts, ModelReplied)[0].sealed == (0,)
    assert [
        event.sealed
        for event in events(parts, GateDecided) + events(parts, ToolStarted)
    ] == [True, True]
    assert parts.journal.verify("r", result.head_hash).ok


async def test_what_the_tool_says_may_not_repeat_the_secret_without_its_name() -> None:
    @tool
    async def fail(password: str) -> str:
        """Fail."""
        got.append(password)
        raise ValueError(
            f"{password} is no password that I know; {json.dumps(password)}"
        )

    parts = Runtime(once(call("fail", password=PASSWORD)), tools=[fail])
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert got == [PASSWORD]
    assert PASSWORD not in everything(parts) + repr(result)
    assert events(parts, ToolFinished)[0].content.startswith(
        f"ValueError: {REDACTED} is no password"
    )


async def test_what_the_model_says_may_not_repeat_the_secret_of_its_call() -> None:
    said = Completion(
        f"I take {PASSWORD}.",
        (LOGIN,),
        thought=f"I take {PASSWORD}.",
        reasoning=(Reasoning(PASSWORD),),
    )
    parts = Runtime(once(said), tools=[login])
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert got == [PASSWORD]
    assert PASSWORD not in everything(parts) + repr(result)
    assert f"I take {REDACTED}." in everything(parts)


async def test_an_argument_that_does_not_fit_is_not_quoted() -> None:
    @tool
    async def enter(password: int) -> str:
        """Enter."""
        return str(password)

    @tool
    async def sign(password: Annotated[str, AfterValidator(quoting)]) -> str:
        """Sign."""
        return password

    for name in ("enter", "sign"):
        parts = Runtime(once(call(name, password=PASSWORD)), tools=[enter, sign])
        result = await ReActEngine(parts).run("Go.", run_id="r")
        assert events(parts, ToolFinished)[0].status == "rejected"
        assert PASSWORD not in everything(parts) + repr(result)


def quoting(value: str) -> str:
    """Refuses a value, and says which."""
    raise ValueError(f"{value} is no good")


class Watching:
    """A gate that keeps what it sees, and says what it was given to say."""

    version = "watching-1"

    def __init__(self, *decisions: Any) -> None:
        self.decisions, self.seen = list(decisions), list[Any]()

    async def evaluate(self, action: Action, state: PolicyState) -> Any:
        """Decide."""
        self.seen.append(dict(action.arguments))
        return self.decisions.pop(0) if self.decisions else Allow()


async def test_the_gate_sees_the_real_arguments_and_its_reason_is_told_without_them() -> (
    None
):
    gate = Watching(Deny(f"{PASSWORD} is too weak"))
    parts = Runtime(once(LOGIN), tools=[login], gate=gate)
    result = await ReActEngine(parts).run("Log in.", run_id="r")

    assert gate.seen == [{"user": "ada", "password": PASSWORD}]
    assert got == []
    assert PASSWORD not in everything(parts) + repr(result)
    assert events(parts, GateDecided)[0].reason == f"{REDACTED} is too weak"


async def test_a_permit_and_a_question_do_not_show_the_secret() -> None:
    cleared: list[Cleared] = []

    class ShowingEngine(LoopEngine):
        """Keeps what the gate gave."""

        name = "showing"

        async def solve(self, run: Run) -> str:
            """One call."""
            proposal = await run.reason(run.conversation)
            cleared.append(await run.gate(proposal))
            await run.act(cleared[0])
            return repr(proposal)

    parts = Runtime(once(LOGIN), tools=[login])
    result = await ShowingEngine(parts).run("Log in.", run_id="r")

    assert got == [PASSWORD]
    assert PASSWORD not in repr(cleared) + repr(result)

    asking = Runtime(
        once(LOGIN),
        tools=[login],
        gate=Watching(Ask(f"use {PASSWORD}?")),
        approver=Suspend(),
    )
    waiting = await ReActEngine(asking).run("Log in.", run_id="r")

    assert [(q.text, q.arguments) for q in waiting.pending] == [
        (f"use {REDACTED}?", {"user": "ada", "password": REDACTED})
    ]
    assert PASSWORD not in everything(asking) + repr(waiting)
    got.clear()
    allowing = Runtime(once(LOGIN), tools=[login], journal=asking.journal)
    result = await ReActEngine(allowing).resume("r")
    assert (got, result.status, events(allowing, ToolFinished)[0].status) == (
        [],
        "completed",
        "rejected",
    )


async def test_an_approver_sees_what_it_approves() -> None:
    async def approve(action: Action, question: str) -> bool:
        got.append((action.arguments["password"], question))
        return True

    parts = Runtime(
        once(LOGIN), tools=[login], gate=Watching(Ask("Log in?")), approver=approve
    )
    await ReActEngine(parts).run("Log in.", run_id="r")

    assert got == [(PASSWORD, "Log in?"), PASSWORD]
    assert PASSWORD not in everything(parts)


async def test_a_secret_that_a_gate_adds_is_sealed_too() -> None:
    gate = Watching(Modify({"user": "ada", "password": OTHER}, f"with {OTHER}"))
    parts = Runtime(
        once(call("login", user="ada", password="")), tools=[login], gate=gate
    )
    result = await ReActEngine(parts).run("Log in.", run_id="r")

    assert got == [OTHER]
    assert OTHER not in everything(parts) + repr(result)
    assert [
        event.sealed
        for event in events(parts, GateDecided) + events(parts, ToolStarted)
    ] == [True, True]
    assert gate.seen == [
        {"user": "ada", "password": ""},
        {"user": "ada", "password": OTHER},
    ]


async def test_a_secret_that_a_gate_takes_away_does_not_come_back() -> None:
    gate = Watching(Modify({"user": "ada", "password": ""}, "not with that one"))
    parts = Runtime(once(LOGIN), tools=[login], gate=gate)
    await ReActEngine(parts).run("Log in.", run_id="r")

    assert got == [""]
    assert gate.seen == [
        {"user": "ada", "password": PASSWORD},
        {"user": "ada", "password": ""},
    ]


async def test_calls_of_one_turn_get_each_its_own_secret() -> None:
    calls = (
        LOGIN,
        call("look"),
        call("login", user="bob", password=OTHER),
        call("login", user=TOKEN, password=""),
    )
    parts = Runtime(once(*calls), tools=[login, look])
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert sorted(got) == sorted([PASSWORD, "looked", OTHER, ""])
    assert events(parts, ModelReplied)[0].sealed == (0, 2, 3)
    told = everything(parts) + repr(result)
    assert [secret in told for secret in (PASSWORD, OTHER, TOKEN)] == [
        False,
        False,
        False,
    ]


async def test_what_names_a_call_may_not_be_a_secret_either() -> None:
    parts = Runtime(
        once(dataclasses.replace(call(TOKEN), id=f"call_{TOKEN}")), tools=[login]
    )
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert TOKEN not in everything(parts) + repr(result)
    assert result.status == "completed"


async def test_deltas_do_not_show_the_secret() -> None:
    parts = Runtime(once(LOGIN), tools=[login])
    deltas: list[Delta] = []
    async with ReActEngine(parts).start("Log in.", run_id="r", deltas=True) as run:
        async for item in run:
            if isinstance(item, Delta):
                deltas.append(item)

    assert got == [PASSWORD]
    assert PASSWORD not in "".join(d.call.arguments for d in deltas if d.call)
    assert PASSWORD not in repr(deltas)


# --- crashes ---


async def resumed(
    keep: int, parts: Runtime, model: Any, tools: Any, **options: Any
) -> tuple[list[Any], Any, Runtime]:
    """What a run comes to that broke off behind its entry number `keep`: what tools got, and its result."""
    entries = parts.journal.read("r")
    got.clear()
    again = Runtime(model, tools=tools, journal=crashed(entries, keep), **options)
    result = await ReActEngine(again).resume("r")
    assert again.journal.verify("r").ok
    return list(got), result, again


def place(parts: Runtime, kind: type[Any]) -> int:
    """The number of the first entry of a kind."""
    return next(
        entry.seq for entry in parts.journal.read("r") if isinstance(entry.event, kind)
    )


@pytest.mark.parametrize("effect", ["read", "idempotent", "write"])
async def test_wherever_it_breaks_off_the_call_is_never_made_without_its_secret(
    effect: Any,
) -> None:
    @tool(effect=effect)
    async def enter(password: str) -> str:
        """Enter."""
        got.append(password)
        return "in"

    model = once(call("enter", password=PASSWORD))
    parts = Runtime(model, tools=[enter])
    whole = await ReActEngine(parts).run("Go.", run_id="r")
    proposed, began, ended = (
        place(parts, ModelReplied),
        place(parts, ToolStarted),
        place(parts, ToolFinished),
    )
    for keep in range(1, len(parts.journal.read("r")) + 1):
        calls, result, again = await resumed(keep, parts, model, [enter])
        finished = events(again, ToolFinished)[0]
        assert PASSWORD not in everything(again) + repr(result)
        assert result.status == "completed"
        if keep < proposed:  # the model says it once more
            assert (calls, finished.status) == ([PASSWORD], "ok")
        elif keep < began:
            assert (calls, finished.status) == ([], "rejected")
            assert finished.content.endswith(LOST)
        elif keep < ended:
            assert (calls, finished.status) == ([], "unknown")
        else:
            assert (calls, finished.content) == ([], "in")
    assert whole.status == "completed"


@pytest.mark.parametrize(
    ("found", "status", "content"),
    [
        (CallCompleted("it is in"), "ok", "it is in"),
        (CallNotExecuted(), "rejected", LOST),
        (OutcomeUnknown(), "unknown", "not known"),
    ],
)
async def test_behind_the_intent_the_tool_may_know_what_came_of_it(
    found: Any, status: str, content: str
) -> None:
    async def look_up(ctx: ToolContext[Any]) -> Any:
        got.append(dict(ctx.arguments))
        return found

    @tool(lookup=look_up)
    async def enter(password: str) -> str:
        """Enter."""
        got.append(password)
        return "in"

    model = once(call("enter", password=PASSWORD))
    parts = Runtime(model, tools=[enter])
    await ReActEngine(parts).run("Go.", run_id="r")
    calls, _, again = await resumed(place(parts, ToolStarted), parts, model, [enter])

    assert calls == [{"password": REDACTED}]
    finished = events(again, ToolFinished)[0]
    assert finished.status == status
    assert content in finished.content


async def test_after_a_rejection_the_model_may_propose_it_again() -> None:
    def line(request: Request) -> Any:
        last = request.conversation.messages[-1]
        return "done" if last.role == "tool" and LOST not in last.content else LOGIN

    parts = Runtime(ScriptedProvider(line), tools=[login])
    await ReActEngine(parts).run("Go.", run_id="r")
    calls, result, again = await resumed(
        place(parts, ModelReplied), parts, ScriptedProvider(line), [login]
    )

    assert calls == [PASSWORD]
    assert (result.status, [event.status for event in events(again, ToolFinished)]) == (
        "completed",
        ["rejected", "ok"],
    )
    hashed = hash_arguments({"user": "ada", "password": REDACTED})
    assert [event.arguments_hash for event in events(again, GateDecided)] == [
        hashed,
        hashed,
    ]


async def test_a_gate_that_added_the_secret_is_not_asked_again_once_it_is_lost() -> (
    None
):
    gate = Watching(Modify({"user": "ada", "password": OTHER}, "better"))
    model = once(call("login", user="ada", password=""))
    parts = Runtime(model, tools=[login], gate=gate)
    await ReActEngine(parts).run("Log in.", run_id="r")
    calls, _, again = await resumed(
        place(parts, GateDecided), parts, model, [login], gate=Watching()
    )

    assert calls == []
    assert events(again, ToolFinished)[0].content.endswith(LOST)


async def test_a_finished_run_replays_and_a_fork_of_it_knows_no_secret() -> None:
    model = once(LOGIN)
    parts = Runtime(model, tools=[login])
    engine = ReActEngine(parts)
    result = await engine.run("Log in.", run_id="r")
    again = await engine.resume("r")
    outcomes: list[tuple[int, Any, str]] = []
    for at in range(place(parts, ModelReplied), len(parts.journal.read("r"))):
        got.clear()
        await engine.resume(await engine.fork("r", at=at, new_id=f"f{at}"))
        outcomes.append(
            (at, list(got), events(parts, ToolFinished, f"f{at}")[0].status)
        )
        assert PASSWORD not in everything(parts, f"f{at}")

    assert (again.answer, again.head_hash) == (result.answer, result.head_hash)
    began, ended = place(parts, ToolStarted), place(parts, ToolFinished)
    assert outcomes == [
        (at, [], "rejected" if at < began else "unknown" if at < ended else "ok")
        for at, _, _ in outcomes
    ]


class ProposingEngine(LoopEngine):
    """Writes a call with a secret itself."""

    name = "proposing"

    async def solve(self, run: Run) -> str:
        """One call, then a word of the model."""
        observation = await run.call(
            ToolCall("login", {"user": "ada", "password": PASSWORD}), thought="log in"
        )
        return f"{observation.status}: {await run.ask(observation.content)}"


async def test_an_engine_that_writes_the_call_itself_supplies_the_secret_on_resume() -> (
    None
):
    def fresh() -> Any:
        return ScriptedProvider(lambda request: "well")

    parts = Runtime(fresh(), tools=[login])
    result = await ProposingEngine(parts).run("Go.", run_id="r")
    assert (got, result.answer) == ([PASSWORD], "ok: well")
    assert PASSWORD not in everything(parts) + repr(result)

    began, ended = place(parts, ToolStarted), place(parts, ToolFinished)
    entries = parts.journal.read("r")
    for keep in range(1, len(entries) + 1):
        got.clear()
        again = Runtime(fresh(), tools=[login], journal=crashed(entries, keep))
        result = await ProposingEngine(again).resume("r")
        assert (got, result.answer) == (
            ([PASSWORD], "ok: well")
            if keep < began
            else ([], "unknown: well")
            if keep < ended
            else ([], "ok: well")
        )
        assert PASSWORD not in everything(again)


# --- recoveries, sagas, engines inside of engines ---


async def test_a_retry_and_a_fallback_get_the_secret_too() -> None:
    @tool
    async def spare(password: str) -> str:
        """Enter elsewhere."""
        got.append(f"spare {password}")
        return f"in with {password}"

    @tool(effect="idempotent", recovery=(Retry(base_delay=0.001), Fallback("spare")))
    async def enter(password: str) -> str:
        """Enter."""
        got.append(password)
        raise OSError("closed")

    parts = Runtime(once(call("enter", password=PASSWORD)), tools=[enter, spare])
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert got == [PASSWORD, PASSWORD, f"spare {PASSWORD}"]
    assert PASSWORD not in everything(parts) + repr(result)


async def test_wherever_a_recovery_breaks_off_no_tool_gets_a_mark_in_place_of_a_secret() -> (
    None
):
    @tool
    async def spare(password: str) -> str:
        """Enter elsewhere."""
        got.append(password)
        return "in"

    @tool(
        effect="read",
        recovery=(Retry(base_delay=0.001), LlmRecovery(), Fallback("spare")),
    )
    async def enter(password: str) -> str:
        """Enter."""
        got.append(password)
        raise OSError("closed")

    model = once(call("enter", password=PASSWORD))
    parts = Runtime(model, tools=[enter, spare])
    await ReActEngine(parts).run("Go.", run_id="r")
    proposed = place(parts, ModelReplied)
    for keep in range(1, len(parts.journal.read("r")) + 1):
        calls, result, again = await resumed(keep, parts, model, [enter, spare])
        assert REDACTED not in calls
        assert (calls == []) == (keep >= proposed)
        assert result.status == "completed"
        assert PASSWORD not in everything(again)


async def test_a_model_that_mends_a_call_with_a_secret_does_not_have_it_made_without() -> (
    None
):
    @tool(recovery=(LlmRecovery(),))
    async def enter(password: str) -> str:
        """Enter."""
        got.append(password)
        raise OSError("closed")

    def line(request: Request) -> Any:
        if request.schema is not None:
            return json.dumps({"arguments": {"password": PASSWORD}})
        return (
            "done"
            if request.conversation.messages[-1].role == "tool"
            else call("enter", password="")
        )

    parts = Runtime(ScriptedProvider(line), tools=[enter])
    result = await ReActEngine(parts).run("Go.", run_id="r")

    assert (got, result.status) == ([""], "completed")
    assert PASSWORD not in everything(parts)


async def test_a_person_may_settle_a_sealed_call_that_failed() -> None:
    @tool(recovery=(Escalate(),))
    async def enter(password: str) -> str:
        """Enter."""
        got.append(password)
        raise OSError("closed")

    for resolution, status in (
        (CallCompleted("by hand"), "ok"),
        (CallNotExecuted(), "rejected"),
    ):
        got.clear()
        parts = Runtime(once(call("enter", password=PASSWORD)), tools=[enter])
        waiting = await ReActEngine(parts).run("Go.", run_id="r")
        assert waiting.status == "waiting"
        await parts.resolve("r", waiting.pending[0].key, resolution)
        result = await ReActEngine(parts).resume("r")
        assert (result.status, events(parts, ToolFinished)[0].status) == (
            "completed",
            status,
        )
        assert got == [PASSWORD]


async def test_a_good_result_under_one_secret_is_not_given_for_another() -> None:
    @tool(effect="read", recovery=(CachedResult(max_age=1000),))
    async def balance(password: str) -> str:
        """Whose money."""
        got.append(password)
        if password == OTHER:
            raise OSError("closed")
        return "7 coins"

    def line(request: Request) -> Any:
        turns = sum(message.role == "tool" for message in request.conversation.messages)
        return [
            call("balance", password=PASSWORD),
            call("balance", password=OTHER),
            "done",
        ][turns]

    parts = Runtime(ScriptedProvider(line), tools=[balance])
    await ReActEngine(parts).run("Go.", run_id="r")

    assert got == [PASSWORD, OTHER]
    assert [event.content for event in events(parts, ToolFinished)] == [
        "7 coins",
        "OSError: closed",
    ]


async def test_a_sealed_call_is_undone_with_its_secret_as_long_as_that_is_known() -> (
    None
):
    async def undo(ctx: ToolContext[Any], result: str) -> str:
        got.append(("undo", dict(ctx.arguments), result))
        return f"undone without {REDACTED}"

    @tool(compensate=undo)
    async def enter(user: str, password: str) -> str:
        """Enter."""
        got.append(password)
        return f"in with {password}"

    def line(request: Request) -> Any:
        if request.conversation.messages[-1].role == "tool":
            raise AssertionError("gone")
        return call("enter", user="ada", password=PASSWORD)

    parts = Runtime(ScriptedProvider(line), tools=[enter], gate=AllowAll())
    result = await ReActEngine(parts).run("Go.", run_id="r", saga=True)

    assert result.status == "failed"
    assert got == [
        PASSWORD,
        ("undo", {"user": "ada", "password": PASSWORD}, f"in with {REDACTED}"),
    ]
    assert PASSWORD not in everything(parts) + repr(result)
    undone, finished = place(parts, UndoFinished), place(parts, ToolFinished)
    for keep in range(finished, undone):
        calls, result, again = await resumed(
            keep, parts, ScriptedProvider(line), [enter], gate=AllowAll()
        )
        assert (calls, result.status) == ([], "failed")
        assert events(again, UndoFinished)[0].status == "unknown"
        assert PASSWORD not in everything(again) + repr(result)


async def test_an_engine_that_is_a_tool_gets_its_task_without_the_secret() -> None:
    inner = once(LOGIN)
    child = ReActEngine(Runtime(inner, tools=[login])).as_tool(name="helper")
    task = f"Log in with {TOKEN}."
    parts = Runtime(once(call("helper", task=task)), tools=[child])
    result = await ReActEngine(parts).run("Go.", run_id="r")
    entries = parts.journal.read("r")

    assert got == [PASSWORD]
    assert result.status == "completed"
    assert inner.requests[0].conversation.task == f"Log in with {REDACTED}."
    told = everything(parts) + repr(result) + repr(inner.requests)
    assert [secret in told for secret in (PASSWORD, TOKEN)] == [False, False]
    for keep in range(1, len(entries) + 1):
        got.clear()
        again = Runtime(
            once(call("helper", task=task)),
            tools=[child],
            journal=crashed(entries, keep),
        )
        result = await ReActEngine(again).resume("r")
        assert result.status == "completed"
        assert got in ([], [PASSWORD])
        assert [secret in everything(again) for secret in (PASSWORD, TOKEN)] == [
            False,
            False,
        ]


class DelegatingEngine(LoopEngine):
    """Hands a task with a secret on."""

    name = "delegating"
    inner: LoopEngine

    async def solve(self, run: Run) -> str:
        """Delegate."""
        done = await run.delegate(self.inner, f"Log in, the token is {TOKEN}.")
        return f"{done.answer}"


async def test_a_child_keeps_the_secrets_of_its_own_runtime_too() -> None:
    @tool
    async def leak() -> str:
        """Say it."""
        return "the key of the child is plain-words-only"

    inner = Runtime(
        once(LOGIN, call("leak")),
        tools=[login, leak],
        redactor=Redactor(["plain-words-only"]),
    )
    parts = Runtime(ScriptedProvider([]))
    engine = DelegatingEngine(parts, inner=ReActEngine(inner))
    result = await engine.run("Go.", run_id="r")
    entries = parts.journal.read("r")

    assert (got, result.status, result.answer) == ([PASSWORD], "completed", "done")
    for keep in range(1, len(entries) + 1):
        got.clear()
        again = Runtime(ScriptedProvider([]), journal=crashed(entries, keep))
        result = await DelegatingEngine(again, inner=ReActEngine(inner)).resume("r")
        assert result.status == "completed"
        assert REDACTED not in got
        told = everything(again) + repr(result)
        assert [secret in told for secret in (PASSWORD, TOKEN, "plain-words-only")] == [
            False,
            False,
            False,
        ]


async def test_a_question_about_a_delegation_does_not_show_the_secret() -> None:
    inner = Runtime(once(LOGIN), tools=[login])
    parts = Runtime(
        ScriptedProvider([]), gate=Watching(Ask("Delegate?")), approver=Suspend()
    )
    result = await DelegatingEngine(parts, inner=ReActEngine(inner)).run(
        "Go.", run_id="r"
    )

    assert result.status == "waiting"
    assert result.pending[0].arguments == {
        "engine": "react",
        "task": f"Log in, the token is {REDACTED}.",
    }
    assert TOKEN not in everything(parts) + repr(result)


class PermitEngine(LoopEngine):
    """Asks about a plan."""

    name = "permit"

    async def solve(self, run: Run) -> str:
        """Ask."""
        await run.permit(
            "plan", {"steps": [f"log in with {TOKEN}"], "password": PASSWORD}
        )
        return "allowed"


async def test_a_question_about_what_an_engine_plans_does_not_show_the_secret() -> None:
    gate = Watching(Ask("Do it?"))
    parts = Runtime(ScriptedProvider([]), gate=gate, approver=Suspend())
    waiting = await PermitEngine(parts).run("Go.", run_id="r")
    result = await PermitEngine(parts).resume("r")

    assert waiting.pending[0].arguments == {
        "steps": [f"log in with {REDACTED}"],
        "password": REDACTED,
    }
    assert result.answer == "allowed"
    told = everything(parts) + repr(waiting)
    assert [secret in told for secret in (PASSWORD, TOKEN)] == [False, False]


async def test_a_resumed_run_answers_the_same_although_it_has_lost_the_secret() -> None:
    """What a call gives away is known to this process alone: what an engine makes may not depend on it."""

    class TellingEngine(LoopEngine):
        """Uses the words of its task again and again."""

        name = "telling"

        async def solve(self, run: Run) -> str:
            """Reason, act, then tell."""
            cleared = await run.gate(await run.reason(run.conversation))
            [seen] = await run.act(cleared)
            run.note({"task": run.task})
            await run.call(ToolCall("say", {"words": run.task}))
            told = (
                ""
                if self.inner is None
                else (await run.delegate(self.inner, run.task)).answer
            )
            return f"{await run.ask(f'{told} {seen.status} {run.task}')} {run.task}"

        inner: LoopEngine | None = None

    @tool(effect="read")
    async def say(words: str) -> str:
        """Say."""
        return words

    def model() -> Any:
        return ScriptedProvider(lambda request: "well" if not request.tools else LOGIN)

    task = f"Use {PASSWORD} for it"  # nothing gives it away here
    parts = Runtime(model(), tools=[login, say], limits=Limits(max_llm_calls=9))
    engine = TellingEngine(parts, inner=TellingEngine(parts))
    result = await engine.run(task, run_id="r")
    entries = parts.journal.read("r")
    assert result.status == "completed"
    for keep in range(1, len(entries) + 1):
        again = Runtime(model(), tools=[login, say], journal=crashed(entries, keep))
        resumed_result = await TellingEngine(again, inner=TellingEngine(again)).resume(
            "r"
        )
        assert resumed_result.status == "completed"


def test_observations_are_what_they_were() -> None:
    """A reply without secrets is the same object, so that nothing is copied for most calls."""
    from loopwright.security.redaction.messages import redact_completion

    completion = Completion("fine", (call("look", path="a/b"),))

    assert redact_completion(Redactor(), completion).completion is completion
    assert Observation(completion.calls[0], "ok", "fine").content == "fine"


def test_a_redactor_learns_what_it_finds_up_to_a_hundred_values() -> None:
    learned = Redactor().with_secrets_found_in(
        {
            "password": PASSWORD,
            "a": [f"Bearer {TOKEN}", {"pwd": 123456}],
            "token": "short",
        }
    )

    assert (
        learned.redact_text(f"{PASSWORD}, {TOKEN}, 123456, short")
        == f"{REDACTED}, {REDACTED}, {REDACTED}, short"
    )
    assert repr(learned) == "Redactor(<3 secrets>, patterns=True)"
    many = Redactor().with_secrets_found_in(
        [{"password": f"password-{n}"} for n in range(300)]
    )
    assert repr(many) == "Redactor(<100 secrets>, patterns=True)"


@pytest.mark.parametrize("about", ["approval", "doubt", "failure"])
async def test_a_question_of_a_resumed_run_hides_what_became_a_secret_since(
    about: str,
) -> None:
    @tool(recovery=[Escalate()])
    async def enter(code: str) -> str:
        """Enter a code."""
        got.append(code)
        if about == "failure":
            raise OSError("stuck")
        return "entered"

    def build(redactor: Redactor, journal: MemoryJournal) -> ReActEngine:
        gate = ApprovalGate(["enter"]) if about == "approval" else AllowAll()
        return ReActEngine(
            Runtime(
                ScriptedProvider([call("enter", code=OTHER), "Done."]), tools=[enter], gate=gate,
                approver=Suspend(), journal=journal, redactor=redactor, on_unknown="ask",
            )
        )  # fmt: skip

    journal = MemoryJournal()
    await build(Redactor(), journal).run("Enter.", run_id="r")
    entries = journal.read("r")
    started = [one.seq for one in entries if isinstance(one.event, ToolStarted)]
    keep = started[0] if about == "doubt" else len(entries)
    journal = crashed(entries, keep)
    known = build(Redactor([OTHER]), journal)
    result = await known.resume("r")

    [question] = result.pending
    assert (question.about, question.arguments) == (about, {"code": REDACTED})
    assert OTHER not in str([entry.event for entry in journal.read("r")[keep:]])
    if about == "approval":
        await known.runtime.control("r").approve(question.id)
        await known.resume("r")
        assert got == [OTHER], "the tool gets what the person was asked about"
