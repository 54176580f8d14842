"""Follow-ups: due with the end of a run, done once in a run of their own, in the background, by drain or a worker."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from loopwright import (
    ConfigError,
    Limits,
    MemoryJournal,
    ReActEngine,
    Result,
    Run,
    Runtime,
    Worker,
    tool,
)
from loopwright.errors import ProviderError, UnknownRun
from loopwright.events import RunStarted
from loopwright.followups import EndedRun, FollowUp
from loopwright.journals import Claim, RunFilter, RunHeader, SQLiteJournal
from loopwright.testing import ScriptedProvider, call, crashed
from waiting import eventually

DONE: list[tuple[str, str]] = []
"""What the follow-ups of this module did: the run and its answer."""


class Note(FollowUp):
    """Notes what was answered."""

    name = "note"
    words: int = 3

    async def follow(self, run: Run, ended: EndedRun) -> str:
        async def add() -> str:
            answer = ended.result.answer or ""
            DONE.append((ended.run_id, answer))
            return " ".join(answer.split()[: self.words])

        return await run.effect("note", add, into=str)


class Failing(FollowUp):
    """Fails."""

    name = "failing"

    async def follow(self, run: Run, ended: EndedRun) -> str:
        raise ValueError("there is no such page")


class Stuck(FollowUp):
    """Is due after other endings."""

    name = "stuck"
    statuses = ("limit", "failed")

    async def follow(self, run: Run, ended: EndedRun) -> str:
        DONE.append((ended.run_id, ended.result.status))
        return "noted"


class Calling(FollowUp):
    """Has an option that no journal holds."""

    name = "calling"
    back: Callable[[str], None]

    async def follow(self, run: Run, ended: EndedRun) -> str:
        self.back(ended.run_id)
        return "called"


class Waiting(FollowUp):
    """Waits for the test."""

    name = "waiting"
    go: ClassVar[asyncio.Event]

    async def follow(self, run: Run, ended: EndedRun) -> str:
        await self.go.wait()
        return "done"


@tool(effect="read", label="secret")
async def fetch() -> str:
    """Fetch a page."""
    return "a page"


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def make(*script: Any, journal: Any = None, after: Any = (), **options: Any) -> Runtime:
    model = ScriptedProvider(script)
    return Runtime(model, tools=[fetch], journal=journal, after=after, **options)


async def run(runtime: Runtime, **options: Any) -> Result[Any]:
    given: dict[str, Any] = {"run_id": "r1", **options}
    return await ReActEngine(runtime).run("Go.", **given)


def statuses(runtime: Runtime) -> dict[str, str]:
    return {info.run_id: info.status for info in runtime.journal.runs()}


async def test_a_follow_up_is_done_in_the_background_after_its_caller_has_the_result() -> (
    None
):
    runtime = make("It is done.", after=[Note()])

    result = await run(runtime)

    assert (result.answer, DONE) == ("It is done.", [])
    assert statuses(runtime) == {"r1": "completed", "r1@after:note": "released"}
    assert await runtime.drain() == []
    assert DONE == [("r1", "It is done.")]
    assert statuses(runtime)["r1@after:note"] == "completed"


async def test_leaving_the_runtime_waits_for_follow_ups_and_an_error_releases_them() -> (
    None
):
    Waiting.go = asyncio.Event()
    journal = MemoryJournal()
    runtime = make("Yes.", journal=journal, after=[Waiting()])

    async def fail() -> None:
        async with runtime:
            await run(runtime)
            await eventually(
                lambda: statuses(runtime).get("r1@after:waiting") == "running"
            )
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert statuses(runtime)["r1@after:waiting"] == "released"

    Waiting.go.set()
    async with make(journal=journal, after=[Waiting()]) as runtime:
        [done] = await runtime.drain()
    assert done.answer == "done"


def test_a_loop_that_ends_leaves_its_follow_ups_to_others(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = make("It is done.", journal=journal, after=[Note()])

    asyncio.run(run(runtime))  # this ends the loop, with what was in the background

    assert statuses(runtime)["r1@after:note"] == "released"
    [done] = asyncio.run(runtime.drain())
    assert (done.answer, DONE) == ("It is done.", [("r1", "It is done.")])
    asyncio.run(journal.close())


def test_a_follow_up_of_a_synchronous_run_is_waited_for_from_another_loop() -> None:
    runtime = make("It is done.", after=[Note()])

    ReActEngine(runtime).run_sync("Go.", run_id="r1")
    asyncio.run(runtime.drain())

    assert DONE == [("r1", "It is done.")]


async def test_another_process_does_what_is_due_once(tmp_path: Path) -> None:
    first, second = (SQLiteJournal(tmp_path / "runs.db") for _ in range(2))
    runtime = make("It is done.", journal=first, after=[Note(words=2)])
    vars(runtime).update(start_due=None)  # as if it had died at the end of the run
    await run(runtime)

    others = [make(journal=second, after=[Note()], lease=9.0) for _ in range(2)]
    done = await asyncio.gather(*(Worker(one).drain() for one in others))

    assert [one.answer for some in done for one in some] == ["It is"]
    assert DONE == [("r1", "It is done.")]
    for one in first, second:
        assert one.verify("r1@after:note").ok
        await one.close()


async def test_a_worker_does_the_follow_ups_of_the_runs_that_it_resumes() -> None:
    whole = make(call("fetch"), "Done.", after=[Note()])
    vars(whole).update(start_due=None)
    await run(whole)
    journal = crashed(whole.journal.read("r1"), 5, status="running")

    done = await Worker(make("Done.", journal=journal, after=[Note()], lease=9)).drain()

    assert [one.answer for one in done] == ["Done.", "Done."]
    assert DONE == [("r1", "Done.")]


async def test_a_worker_without_the_follow_up_leaves_and_lists_it() -> None:
    journal = MemoryJournal()
    runtime = make("Done.", journal=journal, after=[Note()])
    vars(runtime).update(start_due=None)
    await run(runtime)
    other = make(journal=journal, lease=9.0)

    assert await Worker(other).drain() == []
    assert await other.drain() == []
    [due] = await other.due()
    assert (due.info.run_id, due.missing) == ("r1@after:note", "follow-up")
    assert [one.missing for one in await runtime.due()] == [""]
    with pytest.raises(ConfigError, match="there is no 'note'"):
        await other.resume("r1@after:note")


async def test_a_failure_is_listed_and_the_result_is_as_without_it() -> None:
    runtime = make("Done.", after=[Failing(), Note()])

    result = await run(runtime)
    await runtime.drain()

    assert result.status == "completed"
    [due] = await runtime.due()
    assert (due.info.run_id, due.info.status) == ("r1@after:failing", "failed")
    failed = await runtime.resume("r1@after:failing")
    assert "there is no such page" in str(failed.error)
    assert DONE == [("r1", "Done.")]


async def test_follow_ups_are_due_after_the_endings_that_they_name() -> None:
    runtime = make(call("fetch"), call("fetch"), after=[Note(), Stuck()])
    limits = Limits(max_iterations=1, best_effort=False)
    vars(runtime).update(limits=limits)

    result = await run(runtime)
    await runtime.drain()

    assert result.status == "limit"
    assert list(statuses(runtime)) == ["r1@after:stuck", "r1"]
    assert DONE == [("r1", "limit")]


async def test_a_follow_up_has_no_follow_ups() -> None:
    runtime = make("Done.", after=[Note()])
    await run(runtime)
    await runtime.drain()

    assert list(statuses(runtime)) == ["r1@after:note", "r1"]
    started = runtime.journal.read("r1@after:note")[0].event
    assert isinstance(started, RunStarted)
    assert started.after == ()


async def test_a_follow_up_has_label_trust_and_tags_of_its_run() -> None:
    seen: list[EndedRun] = []

    class Seeing(FollowUp):
        name = "seeing"

        async def follow(self, run: Run, ended: EndedRun) -> str:
            seen.append(ended)
            return "seen"

    runtime = make(call("fetch"), "Done.", after=[Seeing()])
    result = await run(runtime, tags={"user": "a/b"}, thread="t")
    await runtime.drain()

    [ended] = seen
    assert (ended.label, ended.untrusted) == ("secret", True)
    assert (ended.task, ended.scope, ended.run_id) == ("Go.", "a%2Fb", "r1")
    assert ended.result == result
    [followed] = await runtime.runs(RunFilter(engine="follow-up", tags={"user": "a/b"}))
    assert (followed.info.thread, followed.info.follows) == ("t", "r1")
    done = await runtime.resume("r1@after:seeing")
    assert (done.label, done.untrusted) == ("secret", True)


async def test_options_come_from_the_journal_and_code_from_today() -> None:
    journal = MemoryJournal()
    runtime = make("one two three", journal=journal, after=[Note(words=1)])
    vars(runtime).update(start_due=None)
    await run(runtime)

    [done] = await make(journal=journal, after=[Note(words=2)]).drain()

    assert done.answer == "one"


async def test_an_option_that_is_code_needs_its_follow_up_again() -> None:
    journal, called = MemoryJournal(), list[str]()
    runtime = make("Yes.", journal=journal, after=[Calling(back=called.append)])
    vars(runtime).update(start_due=None)
    await run(runtime)

    assert await make(journal=journal).drain() == []
    [due] = await make(journal=journal).due()
    assert due.missing == "follow-up"
    with pytest.raises(ConfigError, match=r"no journal holds, back; pass it"):
        await make(journal=journal).resume("r1@after:calling")
    await make(journal=journal, after=[Calling(back=called.append)]).drain()
    assert called == ["r1"]


async def test_an_option_with_a_secret_is_not_recorded() -> None:
    class Sending(FollowUp):
        name = "sending"
        header: str

        async def follow(self, run: Run, ended: EndedRun) -> str:
            return f"{len(self.header)} characters"

    secret = "Authorization: Bearer sk-ant-REDACTED"
    runtime = make("Yes.", after=[Sending(header=secret)])
    await run(runtime)
    await runtime.drain()

    entries = runtime.journal.read("r1") + runtime.journal.read("r1@after:sending")
    assert all(b"AbCdEf" not in entry.body for entry in entries)
    done = await runtime.resume("r1@after:sending")
    assert done.answer == f"{len(secret)} characters"


async def test_a_run_that_is_resumed_has_the_follow_ups_that_it_began_with() -> None:
    whole = make(call("fetch"), "Done.", after=[Note()])
    vars(whole).update(start_due=None)
    await run(whole)
    journal = crashed(whole.journal.read("r1"), 5)

    result = await make("Done.", journal=journal, after=[Failing()]).resume("r1")

    assert result.status == "completed"
    assert [info.run_id for info in journal.runs()] == ["r1@after:note", "r1"]


async def test_a_run_that_ends_twice_is_followed_once() -> None:
    class Always(Note):
        statuses = ("completed", "failed")

    runtime = make(ProviderError("down"), "Done.", after=[Always()])
    failed = await run(runtime)
    await runtime.drain()
    await runtime.control("r1").retry()
    results = await runtime.drain()

    assert failed.status == "failed"
    assert [(one.run_id, one.status) for one in results] == [("r1", "completed")]
    assert DONE == [("r1", "")]
    assert list(statuses(runtime)) == ["r1@after:note", "r1"]


async def test_an_agent_has_follow_ups_of_its_own() -> None:
    runtime = make("One.", "Two.", after=[Note()])
    own = runtime.agent("own", after=[Note(words=1), Stuck()])
    plain = runtime.agent("plain")
    none = runtime.agent("none", after=[])

    for agent, answer in ((own, "One."), (plain, "Two.")):
        assert (await agent.run("Go.", run_id=agent.name)).answer == answer
    await runtime.drain()

    assert none.engine.runtime.after == ()
    assert sorted(DONE) == [("own", "One."), ("plain", "Two.")]
    started = runtime.journal.read("own@after:note")[0].event
    assert isinstance(started, RunStarted)
    assert started.options["agent"] == "own"
    assert started.options["options"] == {"words": 1}


async def test_deleting_a_run_deletes_its_follow_ups(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db")
    async with make("Done.", journal=journal, after=[Note()]) as runtime:
        await run(runtime)

    assert await journal.delete("r1") == ["r1", "r1@after:note"]
    assert journal.runs() == []
    with pytest.raises(UnknownRun, match="was deleted"):
        journal.read("r1@after:note")
    await journal.close()


async def test_the_follow_up_of_a_run_with_a_long_name_has_a_name_of_its_own() -> None:
    runtime = make("Done.", after=[Note()])
    await run(runtime, run_id="x" * 128)
    await runtime.drain()

    [followed] = await runtime.runs(RunFilter(engine="follow-up"))
    assert followed.info.run_id.endswith("@after:note")
    assert len(followed.info.run_id) <= 128
    assert DONE == [("x" * 128, "Done.")]


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        (Note(), "after: must be a list of follow-ups"),
        ("note", "after: must be a list of follow-ups"),
        ([Note(), Note(words=1)], "after: has note twice"),
        ([3], "after: needs a FollowUp or the name of one, got 3"),
        (["no-such"], "followups: there is no 'no-such'"),
    ],
)
def test_what_is_no_follow_up_is_refused(after: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make(after=after)


def test_a_name_that_cannot_be_one_is_refused() -> None:
    class Bad(Note):
        name = "Bad Name"

    with pytest.raises(ConfigError, match=r"lower-case letters.*got 'Bad Name'"):
        make(after=[Bad()])
    with pytest.raises(ConfigError, match="words: "):
        Note(words="many")  # type: ignore[arg-type]


async def test_a_journal_without_follow_ups_is_refused_only_where_there_are_some() -> (
    None
):
    class Plain:
        """A third party's journal."""

        def __init__(self) -> None:
            self._journal = MemoryJournal()

        def __getattr__(self, name: str) -> Any:
            if name == "append_end":
                raise AttributeError(name)
            return getattr(self._journal, name)

    plain: Any = Plain()
    assert (await run(make("Yes.", journal=plain))).answer == "Yes."
    with pytest.raises(ConfigError, match="after: Plain has no method `append_end`"):
        make(journal=plain, after=[Note()])
    runtime = make(journal=plain)
    with pytest.raises(ConfigError, match="after: Plain has no method `append_end`"):
        runtime.agent("one", after=[Note()])


async def test_no_agent_takes_the_name_of_the_engine_of_follow_ups() -> None:
    with pytest.raises(ConfigError, match="'follow-up' is the name of an engine"):
        make().agent("follow-up")


class NamedClaim(Claim):
    """A claim that a journal makes of more than its fields."""

    def __init__(self, made_by: str, claim: Claim) -> None:
        super().__init__(claim.run_id, claim.fence, header=claim.header)
        self.made_by = made_by


class NamingJournal(MemoryJournal):
    """A journal with claims of its own."""

    def create(self, header: RunHeader) -> Claim:
        return NamedClaim("naming", super().create(header))


async def test_a_run_of_a_journal_with_claims_of_its_own_has_follow_ups() -> None:
    runtime = make("An answer.", journal=NamingJournal(), after=[Note()])

    ended = await run(runtime)

    assert ended.status == "completed"
    await eventually(lambda: DONE == [("r1", "An answer.")])
