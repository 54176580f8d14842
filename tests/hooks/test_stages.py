"""Stages of engines: hooks remark on them, may end the run there, and are not called on replay."""

from typing import Any

import pytest
from pydantic import BaseModel

from function_engine import FunctionEngine
from loopwright import (
    Action,
    Allow,
    Ask,
    Deny,
    Limits,
    MemoryJournal,
    PolicyState,
    Run,
    Runtime,
)
from loopwright.errors import Aborted, HookFailed
from loopwright.events import HookRan
from loopwright.gates import InstantGate
from loopwright.hooks import Abort, Hook, Moment
from loopwright.security import Redactor
from loopwright.testing import FakeClock, ScriptedProvider, crashed


class Number(BaseModel):
    value: int


class Staged(Hook):
    """Does at each stage what a test says."""

    name = "staged"

    def __init__(self, work: Any, **given: Any) -> None:
        self.stage = work
        vars(self).update(given)


async def body(run: Run) -> str:
    """Draft, have hooks look at the draft, and answer with what they made of it."""
    early = await run.stage("pre_assess", run.task)
    draft = await run.ask(run.conversation.add(*early), purpose="draft")
    remarks = await run.stage("pre_output", draft)
    if not remarks:
        return draft
    return await run.ask(run.conversation.assistant(draft).add(*remarks))


def build(
    *script: str, hooks: Any, journal: MemoryJournal | None = None, **options: Any
) -> Runtime:
    return Runtime(ScriptedProvider(script), hooks=hooks, journal=journal, **options)


async def run(runtime: Runtime) -> Any:
    return await FunctionEngine(runtime, body=body).run("Sky?", run_id="r")


def ran(runtime: Runtime) -> list[tuple[str, str]]:
    entries = runtime.journal.read("r")
    found = [one for one in entries if isinstance(one.event, HookRan)]
    return [(one.key, one.event.stage) for one in found]  # type: ignore[union-attr]


async def test_a_remark_at_a_stage_is_read_as_data_and_replayed_without_the_hook() -> (
    None
):
    calls: list[tuple[str, str, str]] = []

    def look(at: Moment, name: str) -> str | None:
        calls.append((name, at.text, at.task))
        return "It is hunter22 grey." if name == "pre_output" else None

    hooks = [Staged(look)]
    redactor = Redactor(secrets=["hunter22"])
    runtime = build("Blue.", "Grey.", hooks=hooks, redactor=redactor, clock=FakeClock())
    result = await run(runtime)
    told = runtime.provider.requests[1].conversation.messages[-1]  # type: ignore[attr-defined]

    assert result.answer == "Grey."
    assert calls == [("pre_assess", "Sky?", "Sky?"), ("pre_output", "Blue.", "Sky?")]
    assert (told.role, told.origin) == ("user", "hook")
    assert 'data from "hook"' in told.content
    assert "grey" in told.content
    assert "hunter22" not in told.content
    assert ran(runtime) == [("2", "pre_output")]
    entries = runtime.journal.read("r")
    assert "hunter22" not in str(entries)
    for keep in range(1, len(entries)):
        calls.clear()
        lines = ["Blue.", "Grey."][sum(one.kind == "model_replied" for one in entries[:keep]) :]  # fmt: skip
        again = build(*lines, hooks=hooks, journal=crashed(entries, keep), redactor=redactor)  # fmt: skip
        resumed = await FunctionEngine(again, body=body).resume("r")

        assert resumed.answer == "Grey."
        is_recorded = any(one.kind == "hook_ran" for one in entries[:keep])
        assert ("pre_output" in [name for name, *_ in calls]) is not is_recorded


async def test_hooks_at_a_stage_come_by_priority_and_a_failing_one_is_skipped() -> None:
    def fail(at: Moment, name: str) -> str:
        raise ValueError("no")

    hooks = [
        Staged(lambda at, name: f"second at {name}", name="b"),
        Staged(lambda at, name: "first", name="a", priority=-1),
        Staged(fail, name="c"),
        Staged(lambda at, name: "  ", name="d"),
    ]
    runtime = build("Blue.", "Grey.", hooks=hooks)
    await run(runtime)
    told = runtime.provider.requests[1].conversation.messages[-2:]  # type: ignore[attr-defined]
    failed = [e.event for e in runtime.journal.read("r") if isinstance(e.event, HookRan)]  # fmt: skip

    assert ["first" in told[0].content, "second at pre_output" in told[1].content] == [True, True]  # fmt: skip
    assert [str(one.error.message) for one in failed if one.error][:2] == [
        "no", "a remark must not be blank; return None",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "required", "kind"),
    [(Abort("enough"), False, Aborted), (ValueError("no"), True, HookFailed)],
)
async def test_a_hook_ends_the_run_at_a_stage_also_when_resumed(
    error: Exception, required: bool, kind: type[Exception]
) -> None:
    def stop(at: Moment, name: str) -> None:
        if name == "pre_output":
            raise error

    hooks = [Staged(stop, required=required)]
    runtime = build("Blue.", hooks=hooks)
    result = await run(runtime)
    entries = runtime.journal.read("r")
    again = build(hooks=hooks, journal=crashed(entries, len(entries) - 1))
    resumed = await FunctionEngine(again, body=body).resume("r")

    for one in (result, resumed):
        assert isinstance(one.error, kind)
        assert one.answer is None


async def test_a_hook_asks_the_model_at_a_stage_below_its_own_key() -> None:
    async def ask(at: Moment, name: str) -> str:
        return f"{name} {(await at.ask('How many?', Number)).value}"

    def answer(request: Any) -> str:
        last = request.conversation.messages[-1].content
        return '{"value": 7}' if last == "How many?" else "Blue."

    runtime = Runtime(ScriptedProvider(answer), hooks=[Staged(ask)])
    result = await run(runtime)
    entries = runtime.journal.read("r")
    keys = [one.key for one in entries if one.kind == "model_replied"]

    assert keys == ["0~h4__0", "1", "2~h11__0", "3"]
    for keep in range(1, len(entries)):
        again = Runtime(ScriptedProvider(answer), hooks=[Staged(ask)], journal=crashed(entries, keep))  # fmt: skip
        resumed = await FunctionEngine(again, body=body).resume("r")
        assert (resumed.answer, resumed.llm_calls) == (result.answer, 4)


async def test_remarks_are_cut_and_an_unknown_stage_is_refused() -> None:
    hooks = [Staged(lambda at, name: "x" * 15_000, name=one) for one in "abc"]
    runtime = build("Blue.", "Grey.", hooks=hooks)
    await run(runtime)
    told = runtime.provider.requests[0].conversation.messages[1:]  # type: ignore[attr-defined]

    assert len(told) == 2
    assert sum(one.content.count("x") for one in told) < 16_100

    async def ask(run: Run) -> str:
        await run.stage("lunch")  # type: ignore[arg-type]
        return ""

    result = await FunctionEngine(build(hooks=[]), body=ask).run("Sky?")
    assert "name: must be one of pre_assess, post_assess" in str(result.error)


async def test_a_hook_asks_policy_and_sees_what_the_run_has_used() -> None:
    class Judge(InstantGate):
        version = "judge"

        def decide(self, action: Action, state: PolicyState) -> Any:
            if action.tool == "model:cloud" and "secret" in action.labels:
                return Deny("no")
            return Ask("?") if action.tool == "model:odd" else Allow()

    seen: list[Any] = []

    async def look(at: Moment, name: str) -> None:
        seen.append([await at.permits(f"model:{one}") for one in ("cloud", "odd")])
        seen.append((at.spent.llm_calls, at.spent.share))

    runtime = build(
        "Blue.", hooks=[Staged(look)], gate=Judge(), limits=Limits(max_llm_calls=4)
    )  # fmt: skip
    await run(runtime)
    kinds = [one.kind for one in runtime.journal.read("r")]

    assert seen[0] == [True, False]
    assert [one[:1] for one in seen[1::2]] == [(0,), (1,)]
    assert seen[3][1] == 0.25
    assert "gate_decided" not in kinds
