"""Every rule of re-drive: an engine's code starts again from the top, and nothing recorded is done twice."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from journal_positions import cut_after, kinds
from loopwright import (
    AllowAll,
    ChainOfThoughtEngine,
    Completion,
    Conversation,
    CriticEngine,
    Deny,
    Limits,
    LoopEngine,
    MemoryJournal,
    PlanExecuteEngine,
    ProviderError,
    ReActEngine,
    ReflexionEngine,
    ReplayDivergence,
    Result,
    Run,
    Runtime,
    SelfAskEngine,
    Suspend,
    ToolCall,
    ToolError,
    tool,
)
from loopwright.errors import PhaseError
from loopwright.events import (
    DriftNoticed,
    Entry,
    FactNoted,
    GateDecided,
    LimitHit,
    ModelRequested,
    ToolFinished,
    ToolStarted,
    encode_event,
)
from loopwright.events.entry import chain_hash
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from sample_tools import RAN


@tool(effect="read")
async def look(what: str) -> str:
    """Look something up."""
    RAN.append(f"look {what}")
    return f"{what} is blue"


@tool(effect="idempotent")
async def put(what: str) -> str:
    """Put something somewhere."""
    RAN.append(f"put {what}")
    return "there"


@tool(effect="write")
async def send(what: str) -> str:
    """Send something."""
    RAN.append(f"send {what}")
    return "sent"


TOOLS = [look, put, send]
SCRIPT = [
    [call("look", what="sky"), call("send", what="card")],
    call("put", what="sea"),
    "blue",
]


def runtime(script: Any, **options: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(script), tools=options.pop("tools", TOOLS), **options
    )


def tell(script: list[Any]) -> Callable[[Any], Any]:
    """Answer by how far the conversation is, so that a resumed run is told the rest of the script."""
    return lambda request: script[
        sum(m.role == "assistant" for m in request.conversation.messages)
    ]


async def recorded(script: Any, **options: Any) -> tuple[Result, list[Entry]]:
    with_parts = runtime(script, **options)
    result = await ReActEngine(with_parts).run("What colour?", run_id="r")
    return result, with_parts.journal.read("r")


def effects(entries: list[Entry], event_type: type[Any]) -> list[str]:
    return [entry.key for entry in entries if isinstance(entry.event, event_type)]


# --- the journal ends anywhere ---


async def test_a_run_cut_after_any_entry_resumes_without_repeating_an_effect() -> None:
    whole, entries = await recorded(tell(SCRIPT))

    for keep in range(1, len(entries) + 1):
        RAN.clear()
        again = runtime(tell(SCRIPT), journal=crashed(entries, keep))
        result = await again.resume("r")
        finished = {
            e.event.call_id for e in entries[:keep] if isinstance(e.event, ToolFinished)
        }
        started = {
            e.event.call_id for e in entries[:keep] if isinstance(e.event, ToolStarted)
        }
        replied = len([e for e in entries[:keep] if e.kind == "model_replied"])

        assert result.answer == whole.answer
        assert again.journal.verify("r", result.head_hash).ok
        assert len(again.provider.requests) == 3 - replied  # type: ignore[attr-defined]
        unknown = {
            e.event.call_id
            for e in again.journal.read("r")
            if getattr(e.event, "status", "") == "unknown"
        }
        assert unknown == {
            i for i in started - finished if i.startswith("call_0_1")
        }  # the write, and only it
        assert len(RAN) == 3 - len(finished) - len(unknown)


async def test_resuming_a_finished_run_gives_its_recorded_result() -> None:
    whole, entries = await recorded(SCRIPT)
    again = runtime([], journal=crashed(entries, len(entries)))

    assert await ReActEngine(again).resume("r") == whole
    assert await again.resume("r") == whole


async def test_observers_do_not_see_replayed_entries_again() -> None:
    _, entries = await recorded(tell(SCRIPT))
    seen: list[Entry] = []
    keep = cut_after(entries, "model_replied", 2)
    await runtime(
        tell(SCRIPT), journal=crashed(entries, keep), observers=[seen.append]
    ).resume("r")

    assert [e.seq for e in seen] == list(range(keep + 1, keep + 1 + len(seen)))
    assert seen[0].kind == "run_resumed"


# --- keys ---


class Fact(BaseModel):
    text: str


class Noting(LoopEngine):
    name = "noting"
    notes: tuple[str, ...] = ()

    async def solve(self, run: Run) -> str:
        for text in self.notes:
            run.note(Fact(text=text))
        first = await run.reason(run.conversation)
        return f"{first.answer} {await run.ask('and?')}"


async def test_a_note_that_was_added_moves_no_key_and_a_changed_one_is_only_a_warning() -> (
    None
):
    first = runtime(["a", "b"])
    await Noting(first, notes=("x",)).run("go", run_id="r")
    entries = first.journal.read("r")
    again = runtime(
        [], journal=crashed(entries, cut_after(entries, "model_replied", 2))
    )
    result = await Noting(again, notes=("y", "z")).resume("r")

    assert result.answer == "a b"
    drifts = [
        e.event for e in again.journal.read("r") if isinstance(e.event, DriftNoticed)
    ]
    assert drifts == [DriftNoticed("note", "{'text': 'x'}", "{'text': 'y'}")]
    assert [
        e.event.value for e in again.journal.read("r") if isinstance(e.event, FactNoted)
    ] == [
        {"text": "x"},
        {"text": "z"},
    ]


class Branching(LoopEngine):
    name = "branching"

    async def solve(self, run: Run) -> str:
        await run.ask("first")

        async def branch(inner: Run) -> str:
            text = await inner.ask(f"branch {inner.random.random():.6f}")
            observations = await inner.act(
                await inner.gate(inner.propose(call("look", what=text)))
            )
            return observations[0].content

        return " ".join(await run.gather(branch, branch))


async def test_keys_follow_the_program_and_randomness_follows_run_and_path() -> None:
    first = runtime(lambda request: request.conversation.task[-3:])
    await Branching(first).run("go", run_id="r")
    entries = first.journal.read("r")
    second = runtime(lambda request: request.conversation.task[-3:])
    await Branching(second).run("go", run_id="r")

    assert sorted(effects(entries, ModelRequested)) == ["0", "1.0.0", "1.1.0"]
    assert sorted(effects(entries, ToolStarted)) == ["1.0.1#0", "1.1.1#0"]
    tasks = [r.conversation.task for r in first.provider.requests]  # type: ignore[attr-defined]
    assert tasks == [r.conversation.task for r in second.provider.requests]  # type: ignore[attr-defined]
    assert tasks[1] != tasks[2]


async def test_branches_cut_after_any_entry_resume_to_the_same_answer() -> None:
    first = runtime(lambda request: request.conversation.task[-3:])
    whole = await Branching(first).run("go", run_id="r")
    entries = first.journal.read("r")

    for keep in range(1, len(entries)):
        RAN.clear()
        again = runtime(
            lambda request: request.conversation.task[-3:],
            journal=crashed(entries, keep),
        )
        result = await Branching(again).resume("r")

        assert result.answer == whole.answer
        assert len(RAN) == 2 - len(effects(entries[:keep], ToolFinished))


async def test_effects_in_doubt_wait_until_the_journal_has_let_this_process_in() -> (
    None
):
    first = runtime(lambda request: request.conversation.task[-3:])
    await Branching(first).run("go", run_id="r")
    entries = [
        e
        for e in first.journal.read("r")
        if e.kind in ("run_started", "model_requested") or e.key == "0"
    ]
    barriers: list[int] = []
    asked: list[int] = []

    class Slow(MemoryJournal):
        async def barrier(self, claim: Any) -> None:
            await asyncio.sleep(0.01)
            barriers.append(claim.head_seq)
            await super().barrier(claim)

    def model(request: Any) -> str:
        asked.append(len(barriers))
        return request.conversation.task[-3:]

    await Branching(
        runtime(model, journal=crashed(entries, len(entries), Slow()))
    ).resume("r")
    assert len(asked) == 2
    assert min(asked) >= 1


class TwoAtOnce(LoopEngine):
    name = "two-at-once"

    async def solve(self, run: Run) -> str:
        async def meddle(inner: Run) -> str:
            return await run.ask("through the parent")

        await run.gather(meddle)
        return "never"


async def test_using_the_parent_while_its_gather_is_open_is_a_phase_error() -> None:
    result = await TwoAtOnce(runtime(["x"])).run("go")

    assert (result.status, result.stop_reason) == ("failed", "engine_error")
    assert isinstance(result.error, PhaseError)
    assert "gather is in flight" in str(result.error)


class Racing(LoopEngine):
    name = "racing"

    async def solve(self, run: Run) -> str:
        async def fails(inner: Run) -> str:
            await inner.ask("slow one")
            raise ValueError("lowest index")

        async def fails_first(inner: Run) -> str:
            raise KeyError("first in time")

        async def works(inner: Run) -> str:
            return await inner.ask("sibling")

        try:
            await run.gather(fails, fails_first, works)
        except ValueError as error:
            return str(error)
        return "never"


async def test_gather_waits_for_all_and_raises_the_exception_of_the_lowest_index() -> (
    None
):
    parts = runtime(lambda request: "ok")
    result = await Racing(parts).run("go")

    assert result.answer == "lowest index"
    assert len(parts.provider.requests) == 2  # type: ignore[attr-defined]


# --- fingerprints ---


class Asking(LoopEngine):
    name = "asking"
    prompt: str = "one"
    more: bool = True

    async def solve(self, run: Run) -> str:
        answer = await run.ask(self.prompt)
        return f"{answer} {await run.ask('two')}" if self.more else answer


async def asked() -> list[Entry]:
    first = runtime(["a", "b"])
    await Asking(first).run("go", run_id="r")
    return first.journal.read("r")


async def test_a_changed_prompt_diverges_and_names_key_prompts_and_last_match() -> None:
    entries = await asked()
    again = runtime(
        ["c"], journal=crashed(entries, cut_after(entries, "model_replied", 2))
    )

    with pytest.raises(ReplayDivergence) as raised:
        await Asking(again, prompt="uno").resume("r")
    assert raised.value.key == "0"
    assert raised.value.expected == "ask 'one'"
    assert raised.value.found == "ask 'uno'"
    assert raised.value.seq < cut_after(entries, "model_replied", 1)
    assert again.provider.requests == []  # type: ignore[attr-defined]


async def test_an_outcome_left_over_that_nobody_asked_for_is_divergence() -> None:
    entries = await asked()
    again = runtime(
        [], journal=crashed(entries, cut_after(entries, "model_replied", 2))
    )

    with pytest.raises(ReplayDivergence) as raised:
        await Asking(again, more=False).resume("r")
    assert raised.value.key == "1"


async def test_a_diverged_run_can_still_be_resumed_by_the_code_that_wrote_it() -> None:
    entries = await asked()
    journal = crashed(entries, cut_after(entries, "model_replied", 1))
    with pytest.raises(ReplayDivergence):
        await Asking(runtime([], journal=journal), prompt="uno").resume("r")

    assert (await Asking(runtime(["b"], journal=journal)).resume("r")).answer == "a b"


async def test_a_model_intent_without_outcome_may_differ() -> None:
    entries = await asked()
    again = runtime(
        ["x", "y"], journal=crashed(entries, cut_after(entries, "model_requested", 1))
    )
    result = await Asking(again, prompt="uno").resume("r")

    assert result.answer == "x y"
    assert result.llm_calls == 2  # the key in doubt kept its place in the budget


class Swallowing(LoopEngine):
    name = "asking"

    async def solve(self, run: Run) -> str:
        for prompt in ("uno", "dos"):
            try:
                await run.ask(prompt)
            except ReplayDivergence:
                continue
        return "swallowed"


async def test_divergence_is_sticky() -> None:
    entries = await asked()
    again = runtime(
        ["never"], journal=crashed(entries, cut_after(entries, "model_replied", 1))
    )
    with pytest.raises(ReplayDivergence):
        await Swallowing(again).resume("r")
    assert again.provider.requests == []  # type: ignore[attr-defined]


async def test_a_new_effect_before_recorded_ones_is_divergence_before_it_is_done() -> (
    None
):
    entries = await asked()
    kept = [e for e in entries if e.key != "0"]
    again = runtime(
        ["never"], journal=crashed(kept, cut_after(entries, "model_replied", 2) - 2)
    )

    with pytest.raises(ReplayDivergence):
        await Asking(again).resume("r")
    assert again.provider.requests == []  # type: ignore[attr-defined]


async def test_another_model_tool_list_or_limit_is_drift_and_no_divergence() -> None:
    _, entries = await recorded(tell(SCRIPT))
    keep = cut_after(entries, "tool_finished", 2)
    again = Runtime(
        ScriptedProvider(tell(SCRIPT), model="newer"),
        tools=[*TOOLS, tool(name="extra", effect="read")(look.function)],
        limits=Limits(max_llm_calls=30),
        journal=crashed(entries, keep),
    )
    result = await again.resume("r")

    assert result.answer == "blue"
    drift = [
        e.event for e in again.journal.read("r") if isinstance(e.event, DriftNoticed)
    ]
    tools, setup = drift
    assert tools == DriftNoticed("tools", "look, put, send", "look, put, send, extra")
    assert (setup.what, "script" in setup.before, "newer" in setup.after) == (
        "setup",
        True,
        True,
    )


# --- budget ---


async def test_spent_budget_survives_resume() -> None:
    whole, entries = await recorded(tell(SCRIPT))
    again = runtime(
        tell(SCRIPT), journal=crashed(entries, cut_after(entries, "model_replied", 2))
    )
    result = await again.resume("r")

    assert (result.llm_calls, result.tool_calls, result.usage) == (
        whole.llm_calls,
        whole.tool_calls,
        whole.usage,
    )


async def test_an_effect_in_doubt_takes_its_old_place_in_the_budget() -> None:
    limits = Limits(max_llm_calls=3, best_effort=False, max_tool_calls=3)
    _, entries = await recorded(tell(SCRIPT), limits=limits)
    keep = cut_after(entries, "model_requested", 3)
    result = await runtime(
        tell(SCRIPT), limits=limits, journal=crashed(entries, keep)
    ).resume("r")

    assert (result.status, result.llm_calls) == ("completed", 3)


async def test_a_key_that_was_in_doubt_twice_is_paid_once() -> None:
    entries = await asked()
    journal = crashed(entries, cut_after(entries, "model_requested", 1))
    await Asking(
        runtime([ProviderError("killed here", status=404)], journal=journal),
        prompt="uno",
    ).resume("r")
    twice = [
        e
        for e in journal.read("r")
        if e.kind in ("run_started", "model_requested", "run_resumed")
    ]
    again = runtime(["x", "y"], journal=crashed(twice, len(twice)))
    result = await Asking(again, prompt="dos").resume("r")

    assert [e.kind for e in twice].count("model_requested") == 2
    assert (result.answer, result.llm_calls) == ("x y", 2)


async def test_a_recorded_refusal_stays_one_although_the_limit_was_raised() -> None:
    script = [call("look", what="a"), call("look", what="b"), "best so far"]
    whole, entries = await recorded(tell(script), limits=Limits(max_llm_calls=3))
    keep = cut_after(entries, "limit_hit")
    again = runtime(
        tell(script), limits=Limits(max_llm_calls=50), journal=crashed(entries, keep)
    )
    result = await again.resume("r")

    assert (whole.status, whole.stop_reason, whole.answer) == (
        "limit",
        "max_llm_calls",
        "best so far",
    )
    assert (result.status, result.stop_reason, result.answer) == (
        "limit",
        "max_llm_calls",
        "best so far",
    )


async def test_recorded_turns_are_not_refused_because_the_limit_was_lowered() -> None:
    _, entries = await recorded(tell(SCRIPT))
    keep = cut_after(entries, "model_replied", 3)
    result = await runtime(
        [], limits=Limits(max_iterations=1), journal=crashed(entries, keep)
    ).resume("r")

    assert (result.status, result.answer) == ("completed", "blue")


async def test_an_iteration_limit_that_was_hit_is_hit_again() -> None:
    script = [call("look", what="a"), call("look", what="b"), "so far"]
    whole, entries = await recorded(tell(script), limits=Limits(max_iterations=2))
    assert (whole.status, whole.stop_reason, whole.answer) == (
        "limit",
        "max_iterations",
        "so far",
    )

    for keep in range(cut_after(entries, "limit_hit"), len(entries)):
        result = await runtime(tell(script), journal=crashed(entries, keep)).resume("r")
        assert (result.status, result.stop_reason, result.answer) == (
            "limit",
            "max_iterations",
            "so far",
        )


# --- outcomes of every sort ---


async def test_recorded_tool_errors_and_denials_are_replayed() -> None:
    @tool(effect="read")
    async def broken() -> str:
        """Break."""
        RAN.append("broken")
        raise ToolError("it is broken")

    @tool(effect="destructive")
    async def wipe() -> str:
        """Wipe."""
        RAN.append("wiped")
        return "gone"

    script = [[call("broken"), call("wipe"), call("nonesuch")], "done"]
    _, entries = await recorded(tell(script), tools=[broken, wipe])
    RAN.clear()
    again = runtime(
        tell(script),
        tools=[broken, wipe],
        gate=AllowAll(),
        journal=crashed(entries, len(entries) - 3),
    )
    result = await again.resume("r")

    assert RAN == []
    finished = {
        e.key: e.event.status
        for e in again.journal.read("r")
        if isinstance(e.event, ToolFinished)
    }
    assert finished == {"0#0": "error", "0#1": "denied", "0#2": "rejected"}
    assert result.answer == "done"


async def test_a_failed_model_call_is_an_outcome() -> None:
    class Catching(LoopEngine):
        name = "catching"

        async def solve(self, run: Run) -> str:
            try:
                await run.ask("one")
            except ProviderError as error:
                return f"caught {error} then {await run.ask('two')}"
            return "never"

    first = runtime([ProviderError("no such model", status=404), "b"])
    whole = await Catching(first).run("go", run_id="r")
    entries = first.journal.read("r")
    again = runtime(
        ["b"], journal=crashed(entries, cut_after(entries, "model_requested", 2))
    )

    assert whole.answer == "caught no such model then b"
    assert (await Catching(again).resume("r")).answer == whole.answer


async def test_nudges_and_blocks_are_delivered_as_recorded() -> None:
    script: list[Any] = [call("look", what="sky")] * 4 + ["enough"]
    whole, entries = await recorded(tell(script))
    assert whole.answer == "enough"
    nudged = [
        e for e in entries if isinstance(e.event, ModelRequested) and e.event.delivered
    ]
    assert len(nudged) == 1
    assert RAN == ["look sky"] * 3

    for keep in range(nudged[0].seq, len(entries)):
        RAN.clear()
        again = runtime(tell(script), journal=crashed(entries, keep))
        result = await again.resume("r")
        assert result.answer == "enough"
        assert result.conversation == whole.conversation
        assert RAN == []


# --- intents ---


@pytest.mark.parametrize(
    ("name", "repeated"), [("look", True), ("put", True), ("send", False)]
)
async def test_an_intent_without_outcome_is_repeated_only_where_that_is_safe(
    name: str, repeated: bool
) -> None:
    script = [call(name, what="x"), "done"]
    _, entries = await recorded(tell(script))
    RAN.clear()
    again = runtime(
        tell(script), journal=crashed(entries, cut_after(entries, "tool_started"))
    )
    result = await again.resume("r")

    assert result.answer == "done"
    assert ([f"{name} x"] if repeated else []) == RAN
    finished = [
        e.event for e in again.journal.read("r") if isinstance(e.event, ToolFinished)
    ]
    assert [f.status for f in finished] == ["ok" if repeated else "unknown"]


async def test_on_unknown_stop_ends_the_run() -> None:
    script = [call("send", what="x"), "done"]
    _, entries = await recorded(tell(script))
    journal = crashed(entries, cut_after(entries, "tool_started"))
    result = await runtime(tell(script), journal=journal, on_unknown="stop").resume("r")

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "unknown_outcome",
        None,
    )


async def test_the_idempotency_key_is_the_same_before_and_after_a_crash() -> None:
    _, entries = await recorded(tell([call("put", what="x"), "done"]))

    assert (
        next(
            e.event.idempotency_key for e in entries if isinstance(e.event, ToolStarted)
        )
        == "r:0#0"
    )


class Proposing(LoopEngine):
    name = "proposing"
    what: str = "x"

    async def solve(self, run: Run) -> str:
        observations = await run.act(
            await run.gate(run.propose(ToolCall("look", {"what": self.what})))
        )
        return observations[0].content


async def test_calls_that_the_engine_writes_are_compared_by_their_hash() -> None:
    first = runtime([])
    await Proposing(first).run("go", run_id="r")
    entries = first.journal.read("r")

    with pytest.raises(ReplayDivergence):
        await Proposing(
            runtime([], journal=crashed(entries, len(entries) - 1)), what="y"
        ).resume("r")


async def test_a_call_in_doubt_with_other_arguments_is_divergence() -> None:
    first = runtime([])
    await Proposing(first).run("go", run_id="r")
    entries = first.journal.read("r")
    kept = [e for e in entries if e.kind != "calls_proposed"]
    cut = [e for e in kept if e.kind in ("run_started", "tool_started")]

    with pytest.raises(ReplayDivergence):
        await Proposing(runtime([], journal=crashed(cut, len(cut))), what="y").resume(
            "r"
        )
    assert RAN == ["look x"]


async def test_a_decision_without_intent_holds_under_the_same_policy_version_only() -> (
    None
):
    class Stricter:
        version = "stricter-2"

        async def evaluate(self, action: Any, state: Any) -> Deny:
            return Deny("not any more")

    script = [call("look", what="x"), "done"]
    _, entries = await recorded(tell(script))
    keep = cut_after(entries, "gate_decided")
    RAN.clear()
    same = runtime(tell(script), journal=crashed(entries, keep))
    await same.resume("r")
    assert RAN == ["look x"]
    assert kinds(same, "r").count("gate_decided") == 1

    RAN.clear()
    other = runtime(tell(script), journal=crashed(entries, keep), gate=Stricter())
    await other.resume("r")
    assert RAN == []
    assert [
        e.event.verdict
        for e in other.journal.read("r")
        if isinstance(e.event, GateDecided)
    ] == ["allow", "deny"]


def rewrite_last(entries: list[Entry], **changes: Any) -> list[Entry]:
    """Return a journal whose last entry has other fields, as another version wrote it."""
    *before, last = entries
    body = encode_event(dataclasses.replace(last.event, **changes))  # type: ignore[type-var]
    changed = dataclasses.replace(last, body=body)
    return [
        *before,
        dataclasses.replace(changed, hash=chain_hash(before[-1].hash, changed)),
    ]


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({}, True),
        ({"effect": ""}, True),  # early versions did not say it
        ({"effect": "write"}, False),
        ({"until": 1_700_000_000.0}, False),
        ({"until": 1_700_000_000.1}, True),
    ],
)
async def test_a_decision_counts_for_the_effect_and_as_long_as_it_says(
    changes: dict[str, Any], counted: bool
) -> None:
    script = [call("look", what="x"), "done"]
    _, entries = await recorded(tell(script))
    cut = rewrite_last(entries[: cut_after(entries, "gate_decided")], **changes)
    again = runtime(tell(script), journal=crashed(cut, len(cut)), clock=FakeClock())
    assert (await again.resume("r")).answer == "done"

    assert kinds(again, "r").count("gate_decided") == (1 if counted else 2)


async def test_a_decision_about_another_tool_is_divergence() -> None:
    script = [call("look", what="x"), "done"]
    _, entries = await recorded(tell(script))
    cut = rewrite_last(entries[: cut_after(entries, "gate_decided")], tool="put")
    with pytest.raises(ReplayDivergence) as raised:
        await runtime(tell(script), journal=crashed(cut, len(cut))).resume("r")

    error = raised.value
    assert (error.key, error.expected, error.found) == (
        "0#0",
        "a decision about put",
        "look with other arguments",
    )


async def test_a_recorded_allow_with_its_intent_is_replayed_under_any_policy() -> None:
    class Stricter:
        async def evaluate(self, action: Any, state: Any) -> Deny:
            return Deny("not any more")

    script = [call("look", what="x"), "done"]
    _, entries = await recorded(tell(script))
    RAN.clear()
    again = runtime(
        tell(script),
        journal=crashed(entries, cut_after(entries, "tool_finished")),
        gate=Stricter(),
    )
    result = await again.resume("r")

    assert result.answer == "done"
    assert [m.content for m in result.conversation.messages if m.role == "tool"] == [
        "x is blue"
    ]


async def test_a_decision_about_other_arguments_is_divergence() -> None:
    class Delegating(LoopEngine):
        """Has another engine solve a task of its own."""

        name = "delegating"

        async def solve(self, run: Run) -> str:
            result = await run.delegate(ReActEngine(runtime(["found"])), tasks[-1])
            return result.answer or ""

    tasks = ["this"]
    first = runtime([])
    await Delegating(first).run("Go.", run_id="r")
    entries = first.journal.read("r")
    [decision] = [
        entry.event for entry in entries if isinstance(entry.event, GateDecided)
    ]
    assert (
        decision.arguments is None
    )  # they stand in the call; the journal holds them where a gate changed them
    tasks.append("that")
    changed = Delegating(
        runtime([], journal=crashed(entries, cut_after(entries, "gate_decided")))
    )
    with pytest.raises(ReplayDivergence) as raised:
        await changed.resume("r")

    error = raised.value
    assert (error.key, error.expected, error.found) == (
        "0#0",
        "a decision about delegate",
        "delegate with other arguments",
    )


async def test_a_decision_about_a_plain_call_holds_no_arguments() -> None:
    _, entries = await recorded(tell([call("look", what="x"), "done"]))

    assert [e.event.arguments for e in entries if isinstance(e.event, GateDecided)] == [
        None
    ]


@pytest.mark.parametrize("last", ["gate_decided", "tool_started"])
async def test_a_call_whose_tool_was_taken_away_since_it_was_allowed_is_rejected_in_words(
    last: str,
) -> None:
    script = [call("look", what="x"), "done"]
    _, entries = await recorded(tell(script))
    RAN.clear()
    without = runtime(
        tell(script),
        tools=[put, send],
        journal=crashed(entries, cut_after(entries, last)),
    )
    result = await ReActEngine(without).resume("r")

    assert (result.answer, RAN) == ("done", [])
    finished = [
        entry.event
        for entry in without.journal.read("r")
        if isinstance(entry.event, ToolFinished)
    ]
    assert [(event.status, event.content) for event in finished] == [
        ("rejected", "There is no tool 'look' any more.")
    ]


# --- waiting, clock, ids, effects ---


async def test_a_waiting_run_asks_again_when_it_is_resumed() -> None:
    @tool(effect="destructive")
    async def wipe() -> str:
        """Wipe."""
        RAN.append("wiped")
        return "gone"

    async def yes(action: Any, question: str) -> bool:
        return True

    journal = MemoryJournal()
    script = [call("wipe"), "done"]
    first = runtime(tell(script), tools=[wipe], approver=Suspend(), journal=journal)
    waiting = await ReActEngine(first).run("go", run_id="r")
    assert (waiting.status, waiting.stop_reason, waiting.answer) == (
        "waiting",
        "approval",
        None,
    )
    assert [(q.tool, q.key) for q in waiting.pending] == [("wipe", "0#0")]

    still = await runtime(
        tell(script), tools=[wipe], approver=Suspend(), journal=journal
    ).resume("r")
    assert still.status == "waiting"
    result = await runtime(
        tell(script), tools=[wipe], approver=yes, journal=journal
    ).resume("r")
    assert (result.answer, RAN) == ("done", ["wiped"])


class Parking(LoopEngine):
    name = "parking"

    async def solve(self, run: Run) -> str:
        async def waits(inner: Run) -> str:
            return (await inner.act(await inner.gate(inner.propose(call("wipe")))))[
                0
            ].content

        async def works(inner: Run) -> str:
            return await inner.ask("go on")

        return " ".join(await run.gather(waits, works, waits))


async def test_a_waiting_branch_delays_no_sibling_and_all_questions_are_pending() -> (
    None
):
    @tool(effect="destructive")
    async def wipe() -> str:
        """Wipe."""
        return "gone"

    async def yes(action: Any, question: str) -> bool:
        return True

    journal = MemoryJournal()
    first = runtime(["worked"], tools=[wipe], approver=Suspend(), journal=journal)
    waiting = await Parking(first).run("go", run_id="r")
    result = await Parking(
        runtime([], tools=[wipe], approver=yes, journal=journal)
    ).resume("r")

    assert [q.key for q in waiting.pending] == ["0.0.0#0", "0.2.0#0"]
    assert result.answer == "gone worked gone"


async def test_downtime_and_waiting_for_people_do_not_count_as_active_time() -> None:
    clock = FakeClock()

    async def slow_person(action: Any, question: str) -> bool:
        clock.advance(10_000)
        return True

    @tool(effect="destructive")
    async def wipe() -> str:
        """Wipe."""
        clock.advance(100)
        return "gone"

    def slow_model(line: Any) -> Any:
        def say(request: Any) -> Any:
            clock.advance(50)
            return line

        return say

    script = [slow_model(call("wipe")), slow_model("done")]
    parts = Runtime(
        ScriptedProvider(script),
        tools=[wipe],
        approver=slow_person,
        clock=clock,
        limits=Limits(timeout=240),
    )
    result = await ReActEngine(parts).run("go", run_id="r")
    assert result.status == "completed"

    entries = parts.journal.read("r")
    clock.advance(50_000)  # the process was down
    keep = cut_after(entries, "tool_finished")
    cut = [dataclasses.replace(e) for e in entries[:keep]]
    again = Runtime(
        ScriptedProvider([slow_model("done")]),
        tools=[wipe],
        clock=clock,
        limits=Limits(timeout=20_000),
        journal=crashed(cut, keep),
    )
    assert (await again.resume("r")).status == "completed"


async def test_the_time_between_a_crash_and_each_resume_does_not_count() -> None:
    clock = FakeClock()
    parts = Runtime(
        ScriptedProvider([call("look", what="x"), "done"]), tools=TOOLS, clock=clock
    )
    await ReActEngine(parts).run("go", run_id="r")
    entries = parts.journal.read("r")
    journal = crashed(entries, cut_after(entries, "tool_finished"))
    for script in ([ProviderError("down", status=404)], ["done"]):
        clock.advance(10_000)
        done = cut_after(journal.read("r"), "tool_finished")
        cut = [e for e in journal.read("r") if e.seq <= done or e.kind == "run_resumed"]
        journal = crashed(cut, len(cut))
        again = Runtime(
            ScriptedProvider(script),
            tools=TOOLS,
            clock=clock,
            limits=Limits(timeout=100),
            journal=journal,
        )
        result = await again.resume("r")

    assert (result.status, result.answer) == ("completed", "done")


async def test_time_that_was_spent_before_the_crash_counts() -> None:
    clock = FakeClock()

    def slow(line: Any) -> Any:
        def say(request: Any) -> Any:
            clock.advance(200)
            return line

        return say

    parts = Runtime(
        ScriptedProvider([slow(call("look", what="x")), slow("done")]),
        tools=TOOLS,
        clock=clock,
    )
    await ReActEngine(parts).run("go", run_id="r")
    entries = parts.journal.read("r")
    again = Runtime(
        ScriptedProvider([slow("done")]),
        tools=TOOLS,
        clock=clock,
        limits=Limits(timeout=150),
        journal=crashed(entries, cut_after(entries, "tool_finished")),
    )
    result = await again.resume("r")

    assert (result.status, result.stop_reason) == ("limit", "timeout")


class Clocked(LoopEngine):
    name = "clocked"

    async def solve(self, run: Run) -> str:
        async def roll() -> int:
            RAN.append("rolled")
            return 4

        first = (run.now().isoformat(), run.new_id(), run.new_id(), run.random.random())
        rolled = await run.effect("roll", roll, into=int)
        return f"{first} {rolled} {await run.ask('x')}"


async def test_clock_ids_randomness_and_own_effects_are_the_same_again() -> None:
    clock = FakeClock()
    first = Runtime(ScriptedProvider(["a"]), clock=clock)
    whole = await Clocked(first).run("go", run_id="r")
    entries = first.journal.read("r")
    clock.advance(5000)
    keep = cut_after(entries, "effect_finished")
    again = Runtime(
        ScriptedProvider(["a"]), clock=clock, journal=crashed(entries, keep)
    )

    assert (await Clocked(again).resume("r")).answer == whole.answer
    assert RAN == ["rolled"]


class Delegating(LoopEngine):
    name = "delegating"
    actor: LoopEngine

    async def solve(self, run: Run) -> str:
        results = [await run.delegate(self.actor, f"part {n}") for n in (1, 2)]
        return " + ".join(f"{r.status}:{r.answer}" for r in results)


async def test_a_child_engine_is_driven_again_and_its_limit_is_its_own() -> None:
    def reply(request: Any) -> Any:
        if request.tool_choice == "none":
            return "the best I have"
        looked = any(m.role == "tool" for m in request.conversation.messages)
        return (
            "found"
            if looked and "part 1" in request.conversation.messages[0].content
            else call("look", what="x")
        )

    def engine(parts: Runtime) -> Delegating:
        return Delegating(parts, actor=ReActEngine(parts, max_iterations=2))

    first = runtime(reply)
    whole = await engine(first).run("go", run_id="r")
    entries = first.journal.read("r")
    assert whole.answer == "completed:found + limit:the best I have"
    assert whole.status == "completed"

    for keep in range(1, len(entries)):
        RAN.clear()
        again = runtime(reply, journal=crashed(entries, keep))
        assert (await engine(again).resume("r")).answer == whole.answer
        assert len(RAN) == 3 - len(effects(entries[:keep], ToolFinished))


def drafted(parts: Runtime) -> LoopEngine:
    """An actor's fallback is at work when the model calls run out."""
    fallback = SelfAskEngine(parts)
    return CriticEngine(
        parts, drafter=ChainOfThoughtEngine(parts, answer="number", fallback=fallback)
    )


def tried(parts: Runtime) -> LoopEngine:
    """A plan's step is at work when the model calls run out."""
    return ReflexionEngine(
        parts, actor=PlanExecuteEngine(parts), max_episodes=1, evaluator=lambda _: True
    )


@pytest.mark.parametrize(("engine", "calls"), [(drafted, 3), (tried, 2)])
async def test_a_child_whose_best_answer_is_refused_resumes_after_every_entry(
    engine: Callable[[Runtime], LoopEngine], calls: int
) -> None:
    def reply(request: Any) -> str:
        return (
            "1. Find out."
            if "Plan how" in request.conversation.messages[-1].content
            else "blue"
        )

    limits = Limits(max_llm_calls=calls)
    first = runtime(reply, limits=limits, tools=[])
    whole = await engine(first).run("Which?", run_id="r")
    entries = first.journal.read("r")
    assert (whole.status, whole.stop_reason, whole.answer) == (
        "limit",
        "max_llm_calls",
        "blue",
    )
    assert (
        len(effects(entries, LimitHit)) >= 2
    )  # the child's own call, and its best answer

    for keep in range(1, len(entries) + 1):
        again = runtime(reply, limits=limits, tools=[], journal=crashed(entries, keep))
        result = await engine(again).resume("r")
        replied = [entry for entry in entries[:keep] if entry.kind == "model_replied"]

        assert (result.status, result.stop_reason, result.answer) == (
            "limit",
            "max_llm_calls",
            "blue",
        )
        assert len(again.provider.requests) == whole.llm_calls - len(replied)  # type: ignore[attr-defined]


async def test_a_run_with_a_nested_engine_is_rebuilt_from_the_journal() -> None:
    first = runtime(tell(SCRIPT))
    options, opaque = Delegating(
        first, actor=ReActEngine(first, max_iterations=2)
    ).recorded_options()

    assert options == {
        "actor": {
            "engine": "react",
            "options": {"max_iterations": 2, "fallback": None, "prompts": {}},
        }
    }
    assert opaque == ()


async def test_the_limit_hit_of_a_loop_is_recorded_beside_the_effects() -> None:
    _, entries = await recorded(
        tell([call("look", what="a"), "x"]), limits=Limits(max_iterations=1)
    )

    assert effects(entries, LimitHit) == ["limit:.0"]


async def test_a_reply_that_was_cut_is_sent_back_and_the_repair_is_an_effect() -> None:
    script = [Completion("Thought: hm", problem="There is no action in it."), "done"]
    _, entries = await recorded(script)

    assert effects(entries, ModelRequested) == ["0", "1"]
    again = runtime(
        ["done"], journal=crashed(entries, cut_after(entries, "model_replied", 1))
    )
    assert (await again.resume("r")).answer == "done"


async def test_a_conversation_given_as_task_is_kept() -> None:
    task = (
        Conversation.of("first", system="be brief")
        .assistant("ok")
        .user("second", origin="caller")
    )
    parts = runtime(["done"])
    result = await ReActEngine(parts).run(task, run_id="r")

    assert parts.provider.requests[0].conversation == task  # type: ignore[attr-defined]
    assert result.conversation.messages[:4] == task.messages


async def test_the_task_of_a_run_has_the_caller_as_its_author() -> None:
    parts = runtime(["done"])
    await ReActEngine(parts).run(
        Conversation.of("first").assistant("ok").user("second"), run_id="r"
    )

    assert [message.origin for message in parts.provider.requests[0].conversation] == [
        "caller",
        "engine",
        "caller",
    ]  # type: ignore[attr-defined]
