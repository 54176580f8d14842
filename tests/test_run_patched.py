"""A change of an engine's code: runs that went on with the old code keep it, the others take the new one."""

from collections.abc import Awaitable, Callable

import pytest

from function_engine import FunctionEngine
from journal_positions import cut_after
from loopwright import ConfigError, MemoryJournal, Run, Runtime
from loopwright.errors import ReplayDivergence
from loopwright.events import Entry, PatchDecided
from loopwright.testing import ScriptedProvider, crashed

Body = Callable[[Run], Awaitable[object]]


def engine(body: Body, journal: MemoryJournal) -> FunctionEngine:
    def answer(request: object) -> str:
        return request.conversation.messages[-1].content.upper()  # type: ignore[attr-defined,no-any-return]

    return FunctionEngine(Runtime(ScriptedProvider(answer), journal=journal), body=body)


async def record(body: Body) -> list[Entry]:
    journal = MemoryJournal()
    await engine(body, journal).run("Go.", run_id="r")
    return journal.read("r")


async def resume(
    body: Body, entries: list[Entry], keep: int
) -> tuple[str | None, MemoryJournal]:
    journal = crashed(entries, keep)
    return (await engine(body, journal).resume("r")).answer, journal


def decisions(journal: MemoryJournal) -> dict[str, bool]:
    events = {entry.key: entry.event for entry in journal.read("r")}
    return {
        key: event.active
        for key, event in events.items()
        if isinstance(event, PatchDecided)
    }


async def old(run: Run) -> object:
    first = await run.ask("first")
    return first + await run.ask("pay")


async def new(run: Run) -> object:
    first = await run.ask("first")
    if run.patched("new-payment"):
        first += await run.ask("check")
    return first + await run.ask("pay")


async def test_a_new_run_takes_the_new_code_and_records_that() -> None:
    journal = MemoryJournal()
    result = await engine(new, journal).run("Go.", run_id="r")

    assert result.answer == "FIRSTCHECKPAY"
    assert decisions(journal) == {"patch::new-payment": True}


async def timed(run: Run) -> object:
    return await run.timeout(9, lambda branch: branch.ask("pay"))


async def as_completed(run: Run) -> object:
    async with run.as_completed(lambda branch: branch.ask("pay")) as done:
        [value] = [finished.value async for finished in done]
    return value


@pytest.mark.parametrize("verb", [timed, as_completed])
async def test_a_verb_of_which_only_the_beginning_is_recorded_had_gone_on(
    verb: Body,
) -> None:
    async def changed(run: Run) -> object:
        if run.patched("new-payment"):
            return "".join(await run.gather(verb, verb))  # type: ignore[arg-type]
        return await verb(run)

    entries = await record(verb)
    for keep in range(1, len(entries)):
        answer, journal = await resume(changed, entries, keep)
        went_on = keep > 1
        assert answer == ("PAY" if went_on else "PAYPAY"), keep
        assert decisions(journal) == {"patch::new-payment": not went_on}


async def test_a_run_of_old_code_keeps_it_where_it_went_on_from_there() -> None:
    entries = await record(old)
    for keep in range(1, len(entries)):
        went_on = keep > cut_after(entries, "model_replied", 1)
        answer, journal = await resume(new, entries, keep)
        assert answer == ("FIRSTPAY" if went_on else "FIRSTCHECKPAY"), keep
        assert decisions(journal) == {"patch::new-payment": not went_on}
        with_new = journal.read("r")
        for again in range(keep + 1, len(with_new)):  # and again, wherever it is cut
            assert (await resume(new, with_new, again))[0] == answer, (keep, again)


async def test_the_decision_is_the_same_at_every_call_of_a_scope() -> None:
    async def twice(run: Run) -> object:
        first = run.patched("x")
        await run.ask("a")
        return [first, run.patched("x")]

    async def asks(run: Run) -> object:
        return await run.ask("a")

    entries = await record(asks)
    answer, _ = await resume(twice, entries, cut_after(entries, "model_replied", 1))
    assert answer == "[False, False]"
    entries = await record(twice)
    for keep in range(1, len(entries)):
        assert (await resume(twice, entries, keep))[0] == "[True, True]", keep


async def test_branches_that_begin_later_inherit_and_others_decide_themselves() -> None:
    async def asks(branch: Run) -> str:
        return await branch.ask("a") + await branch.ask("b")

    async def patched(branch: Run) -> str:
        found = await branch.ask("a")
        return found + ("!" if branch.patched("x") else "") + await branch.ask("b")

    async def before(run: Run) -> object:
        return [*await run.gather(asks, asks), *await run.gather(asks)]

    async def after(run: Run) -> object:
        found = await run.gather(patched, patched)
        run.patched("x")
        return [*found, *await run.gather(patched)]

    entries = await record(before)
    cut = cut_after(entries, "model_replied", 2)  # one of each branch
    answer, journal = await resume(after, entries, cut)
    assert answer == "['AB', 'A!B', 'A!B']"
    assert decisions(journal) == {
        "patch:0.0:x": False,  # it had begun its second question
        "patch:0.1:x": True,
        "patch::x": True,
    }
    cut = cut_after(entries, "model_replied", 3)  # both of branch 0
    answer, journal = await resume(after, entries, cut)
    assert answer.count("!") < 3  # type: ignore[union-attr]
    assert decisions(journal)["patch::x"] is True
    cut = cut_after(entries, "model_replied", 5)  # one of the second gather
    answer, journal = await resume(after, entries, cut)
    assert answer == "['AB', 'AB', 'AB']"
    assert decisions(journal)["patch::x"] is False
    assert "patch:1.0:x" not in decisions(journal)


async def test_a_branch_that_had_ended_keeps_the_old_code() -> None:
    async def asks(branch: Run) -> str:
        return await branch.ask("a")

    async def patched(branch: Run) -> str:
        found = await branch.ask("a")
        return found + (await branch.ask("b") if branch.patched("x") else "")

    def gathering(work: Callable[[Run], Awaitable[str]]) -> Body:
        async def body(run: Run) -> object:
            return [*await run.gather(work), await run.ask("c")]

        return body

    entries = await record(gathering(asks))
    answer, _ = await resume(
        gathering(patched), entries, cut_after(entries, "model_replied", 2)
    )
    assert answer == "['A', 'C']"
    answer, _ = await resume(
        gathering(patched), entries, cut_after(entries, "model_replied", 1)
    )
    assert answer == "['AB', 'C']"


async def test_a_child_that_begins_later_inherits_the_decision() -> None:
    async def inner(run: Run) -> object:
        return run.patched("x")

    async def outer(run: Run) -> object:
        run.patched("x")
        return (await run.delegate(engine(inner, MemoryJournal()), "Do.")).answer

    journal = MemoryJournal()
    assert (await engine(outer, journal).run("Go.", run_id="r")).answer == "True"
    assert decisions(journal) == {"patch::x": True}


async def test_old_code_does_not_continue_what_new_code_went_on_with() -> None:
    entries = await record(new)
    with pytest.raises(ReplayDivergence):
        await resume(old, entries, len(entries) - 1)


async def test_code_without_the_patch_any_more_continues_runs_of_new_code() -> None:
    async def later(run: Run) -> object:
        return await run.ask("first") + await run.ask("check") + await run.ask("pay")

    entries = await record(new)
    for keep in range(1, len(entries)):
        assert (await resume(later, entries, keep))[0] == "FIRSTCHECKPAY"


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a:b", "a#1"])
async def test_a_patch_has_a_plain_name(name: str) -> None:
    async def body(run: Run) -> object:
        return run.patched(name)

    result = await engine(body, MemoryJournal()).run("Go.")
    assert isinstance(result.error, ConfigError)
    assert "patched: must be letters" in str(result.error)
