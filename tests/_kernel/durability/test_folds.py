"""What single folds of a run's entries answer: plans and decided calls, branches, hooks, requests."""

import dataclasses

import pytest

from loopwright._kernel.durability.branches import BranchRecords
from loopwright._kernel.durability.flow_record import (
    DECIDED,
    ENDORSED,
    PLAN,
    PLAN_PURPOSE,
    REJECTED,
    FlowRecord,
    RecordedFacts,
)
from loopwright._kernel.durability.hook_records import HookRecords
from loopwright._kernel.durability.replay import Replay
from loopwright._kernel.durability.requests import RecordedRequests
from loopwright.events import (
    AttemptFailed,
    CallsProposed,
    ChildFinished,
    ClockRead,
    CommandReceived,
    ContentStored,
    Declassified,
    EffectFinished,
    EffectStarted,
    Entry,
    ErrorRecord,
    Event,
    FactNoted,
    FollowedUp,
    GateDecided,
    HookRan,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    QuestionWithdrawn,
    RecoveryTriggered,
    RequestChanged,
    RunForked,
    RunRetried,
    RunStarted,
    ToolFinished,
    ToolStarted,
    encode_event,
)
from loopwright.events.branches import (
    BranchDelivered,
    BranchesClosed,
    BranchesOpened,
    TimeoutFired,
)
from loopwright.events.effects import GateVerdict
from loopwright.events.entry import KINDS
from loopwright.events.request_records import AidsRecord, RequestRecord, ViewRecord
from loopwright.gates.run_facts import PastCall
from loopwright.labels import Label
from loopwright.messages import Completion, Json, Message, ToolCall, Usage

ASKED = ModelRequested("think", "fingerprint", "setup", 1)
DONE = ToolFinished("look", "c1", "ok", "blue", 0.5)
OTHER = "finds"


def written(*told: tuple[str, Event]) -> list[Entry]:
    return [
        Entry("r1", seq, key, KINDS[type(event)], float(seq), 1, 1, encode_event(event), "")
        for seq, (key, event) in enumerate(told, 1)
    ]  # fmt: skip


def decided(tool: str, verdict: GateVerdict = "allow") -> GateDecided:
    return GateDecided(tool, "c1", verdict, "", "1", "hash")


def planned(*tools: Json, name: str = PLAN) -> FactNoted:
    return FactNoted(name, {"steps": [{"tool": one, "n": 1} for one in tools]})


# --- plans and calls, for gates ---


def read_flow(*told: tuple[str, Event], untrusted: bool = False) -> FlowRecord:
    record = FlowRecord(lambda: untrusted)
    for entry in written(*told):
        record.readers()[type(entry.event)](entry, entry.event)
    return record


def test_a_run_s_decided_calls_are_listed_with_their_last_decision_and_outcome() -> (
    None
):
    record = read_flow(
        ("1#0", decided("look", "ask")), ("1#1", decided("send", "deny")), ("1#2", decided("look", "modify")),
        ("1#0", decided("look")), ("1#0", DONE),
    )  # fmt: skip

    assert record.history == (
        PastCall("1#0", "look", True, "ok"),
        PastCall("1#1", "send", False, ""),
        PastCall("1#2", "look", True, ""),
    )


def test_allowed_calls_of_a_tool_are_counted_once_without_the_one_that_asks() -> None:
    record = read_flow(
        ("1#0", decided("look")), ("1#0", decided("look")), ("1#1", decided("look", "modify")),
        ("1#2", decided("look", "deny")), ("1#3", decided("send")), ("1#4", decided("look")),
        ("1#4", decided("look", "deny")), ("1#5", decided("look", "deny")), ("1#5", decided("look")),
    )  # fmt: skip
    facts = RecordedFacts("task", "agent", record)

    counted = {key: record.count_allowed("look", key) for key in ("1#0", "1#2", "1#3", "9#0")}  # fmt: skip
    assert counted == {"1#0": 2, "1#2": 3, "1#3": 3, "9#0": 3}
    assert facts.count_allowed("look", "1#1") == 2
    assert (facts.count_allowed("look"), facts.count_allowed(OTHER)) == (3, 0)
    assert (facts.history, facts.plan) == (record.history, None)
    assert (facts.task, facts.agent) == ("task", "agent")


def test_plans_of_one_run_add_up_and_a_rejected_one_does_not_count() -> None:
    first = ("note:.0", planned("look", "send", "look"))
    rejected = ("note:.2", FactNoted(REJECTED, None))
    assert read_flow(first).plan == ("look", "send", "look")
    assert read_flow(first, ("note:.1", planned("pay"))).plan == ("look", "send", "look", "pay")  # fmt: skip
    assert read_flow(first, ("note:.1", planned("pay")), rejected).plan == ("look", "send", "look")  # fmt: skip
    assert read_flow(first, rejected).plan is None
    assert read_flow(rejected).plan is None  # there was none to reject
    assert read_flow(first, rejected, rejected).plan is None  # rejected once more
    between = ("note:.1", FactNoted("colour", "blue"))
    assert read_flow(first, between, rejected).plan == ("look", "send", "look")


@pytest.mark.parametrize(
    "value",
    [None, "look", ["look"], {"steps": "look"}, {"steps": {"tool": "look"}}, {}, {"steps": ["look", {"tool": 1}, {}]}],
)  # fmt: skip
def test_a_noted_plan_without_tools_names_none(value: Json) -> None:
    assert read_flow(("note:.0", FactNoted(PLAN, value))).plan == ()


def test_a_plan_noted_after_text_from_outside_does_not_count() -> None:
    plan, rejected = ("note:.0", planned("look")), ("note:.1", FactNoted(REJECTED, None))  # fmt: skip
    assert read_flow(plan, untrusted=True).plan is None
    assert read_flow(plan, rejected, untrusted=True).plan is None

    outside = dataclasses.replace(DONE, untrusted=True)
    assert replay(("1#0", outside), plan).flow.plan is None
    assert replay(("1#0", DONE), plan).flow.plan == ("look",)


def test_a_decided_plan_counts_unless_untrusted_knowledge_came_with_its_call() -> None:
    asked = dataclasses.replace(ASKED, purpose=PLAN_PURPOSE)
    spoiled = dataclasses.replace(asked, untrusted=True)
    elsewhere = dataclasses.replace(ASKED, untrusted=True)
    plan = ("note:.0", planned("look", name=DECIDED))

    assert read_flow(("0", asked), plan, untrusted=True).plan == ("look",)
    assert read_flow(("0", elsewhere), plan).plan == ("look",)
    assert read_flow(("0", spoiled), ("1", asked), plan).plan is None


def test_texts_are_kept_in_order_and_a_request_that_delivers_none_is_not_among_them() -> (
    None
):
    delivering = dataclasses.replace(ASKED, delivered=(Message("user", "more"),))
    slept, endorsed = EffectFinished("sleep"), FactNoted(ENDORSED, "blue")
    told: list[tuple[str, Event]] = [
        ("1#0", DONE), ("2", delivering), ("3", slept), ("note:.0", endorsed),
    ]  # fmt: skip
    record = read_flow(*told, ("4", ASKED), ("note:.1", FactNoted("colour", "blue")))

    assert record.texts == told


# --- the run as a whole ---


START = RunStarted("react", {}, (), (), {}, label="normal")
STARTED = ToolStarted("look", "c1", "hash", "r1:1#0", "read")
ASKS = dataclasses.replace(decided("look", "ask"), until=50.0)
COMMAND = CommandReceived(1, "answer", {"label": "secret", "untrusted": True}, 0.0)


def replay(*told: tuple[str, Event]) -> Replay:
    return Replay(written(*told))


def test_what_a_run_has_read_makes_it_as_sensitive_as_the_most_sensitive_text() -> None:
    def read(*told: tuple[str, Event]) -> tuple[Label, bool]:
        totals = replay(("", START), *told).totals
        assert totals.places.at("") == (totals.label, totals.is_untrusted)
        return totals.label, totals.is_untrusted

    secret = dataclasses.replace(DONE, label="secret", untrusted=True)
    assert read() == ("normal", False)
    assert read(("1#0", secret), ("1#1", DONE)) == ("secret", True)
    assert read(("", COMMAND)) == ("secret", True)
    assert read(("", dataclasses.replace(COMMAND, refused="too late"))) == ("normal", False)  # fmt: skip
    assert read(("", dataclasses.replace(COMMAND, body={}))) == ("normal", False)
    assert read(("0", HookRan("one", "before_model", label="secret"))) == ("secret", False)  # fmt: skip
    assert read(("", FollowedUp(1, "more", "secret"))) == ("secret", False)
    searched = Completion("hello", provider_calls=("web_search", "web_search"))
    assert read(("0", ModelReplied(searched, 0.1))) == ("normal", True)
    lowered = Declassified("public", "checked", 2)
    assert read(("1#0", secret), ("", lowered)) == ("public", True)
    trusted = dataclasses.replace(lowered, trusted=True)
    assert read(("1#0", secret), ("", trusted)) == ("public", False)
    assert read(("", START), ("", trusted), ("1#0", secret)) == ("secret", True)


def test_tools_that_the_provider_ran_and_calls_that_were_cut_off_are_counted() -> None:
    reply = Completion("hello", usage=Usage(3, 1), provider_calls=("search", "search"))
    totals = replay(
        ("0", ASKED), ("0", ModelReplied(reply, 0.1)), ("fired:1", TimeoutFired(1.0, Usage(5, 2))),
        ("closed:2", BranchesClosed(Usage(7, 3))), ("1#0", STARTED),
    ).totals  # fmt: skip

    assert (totals.llm_calls, totals.tool_calls, totals.usage) == (1, 3, Usage(15, 6))


def test_a_fork_forgets_commands_open_questions_and_what_was_only_approved() -> None:
    approved = dataclasses.replace(decided("look"), command=1, until=500.0)
    ended = dataclasses.replace(ASKS, until=14.0)  # at the very time of the fork
    endless = dataclasses.replace(ASKS, until=0.0)
    delivered = dataclasses.replace(ASKED, commands=(1, 2))
    forked = replay(
        ("", COMMAND), ("note:.0", FactNoted("colour", "blue")), ("asked:4", ClockRead(1.0)), ("asked:5", ClockRead(2.0)),
        ("4", EffectFinished("ask_user")), ("0", delivered), ("1#0", ASKS), ("1#1", ended), ("1#2", approved),
        ("1#4", endless),
        ("1#3", approved), ("1#3", STARTED), ("", CallsProposed((), "f", (), 3)), ("", RunForked("r0", 4, "h", "seed")),
    )  # fmt: skip

    assert (forked.seed, forked.approvals.received, forked.approvals.used) == ("seed", {}, set())  # fmt: skip
    assert forked.approvals.decided == {"1#0", "1#3", "1#4"}
    assert forked.effects.intent("0") == ASKED
    assert forked.effects.side("asked:4") == ClockRead(1.0)
    assert forked.effects.side("asked:5") is None
    assert list(forked.effects.facts) == ["note:.0"]


def test_a_fork_continues_the_engines_that_a_person_stopped() -> None:
    done = ChildFinished("react", "completed", "answered", "done", None, 1)
    stopped = ChildFinished("react", "aborted", "aborted", None, None, 1)
    cancelled = dataclasses.replace(DONE, status="cancelled")
    forked = replay(
        ("0.0", EffectFinished("sleep")), ("0", done), ("1.0", EffectFinished("sleep")), ("1", stopped),
        ("2.0.0", EffectFinished("sleep")), ("2#0", cancelled), ("2#1", cancelled), ("2.2.0", EffectFinished("sleep")),
        ("2#2", DONE), ("", RunForked("r0", 9, "h", "seed")),
    )  # fmt: skip

    keys = [key for key in ("0", "1", "2#0", "2#1", "2#2") if forked.effects.outcome(key)]  # fmt: skip
    assert keys == ["0", "2#1", "2#2"]
    assert [path for path in ("0", "1", "2.0", "2.1", "2.2") if forked.scopes.has_ended(path)] == [
        "0", "2.1", "2.2",
    ]  # fmt: skip


def test_a_retry_forgets_failures_with_what_was_done_about_them() -> None:
    failed = AttemptFailed(1, ErrorRecord("ProviderError", "no answer"), 0.1)
    turned = RecoveryTriggered("look", "c1", "fallback", 1, "error", "it failed")
    told: list[tuple[str, Event]] = [
        ("0", ASKED), ("0", failed), ("0", HookRan("one", "before_model")), ("0", ModelFailed(failed.error, 0.1)),
        ("1#0", turned), ("1#0", DONE), ("open:2", BranchesOpened()), ("done:2.0", BranchDelivered(1)),
        ("closed:2", BranchesClosed()),
    ]  # fmt: skip
    retried = replay(*told, ("", RunRetried("again", ("0", "1#0", "done:2.0", "closed:2"))))  # fmt: skip

    assert (retried.effects.outcome("0"), retried.effects.outcome("1#0")) == (None, None)  # fmt: skip
    assert retried.hooks.find("0", "before_model") == []
    assert (retried.recoveries.failed_attempts("0"), retried.recoveries.last("1#0")) == (0, None)  # fmt: skip
    assert not retried.scopes.has_ended("1.0")
    branches = retried.scopes.branches
    assert (branches.open, branches.closed, branches.delivered) == ({"2"}, set(), set())
    assert [retried.effects.side(key) for key in ("done:2.0", "closed:2")] == [None, None]  # fmt: skip


def test_calls_with_an_unknown_outcome_are_given_as_they_were_decided() -> None:
    proposed = (ToolCall("look", {"n": 1}, "c1"), ToolCall("look", {"n": 2}, "c2"))
    changed = dataclasses.replace(decided("look", "modify"), arguments={"n": 3})
    known = replay(
        ("1", ModelReplied(Completion("", calls=proposed), 0.1)), ("1#0", decided("look")), ("1#0", STARTED),
        ("1#1", changed), ("1#1", STARTED), ("1#1", STARTED), ("1#2", STARTED), ("2#0", STARTED), ("2#0", DONE),
        ("3#0~1", changed), ("3#0~1", STARTED),
    )  # fmt: skip

    assert known.unfinished_calls() == {
        "1#0": (2, proposed[0]),
        "1#1": (4, dataclasses.replace(proposed[1], arguments={"n": 3})),
        "1#2": (7, ToolCall("look", {}, "c1")),
        "3#0~1": (10, ToolCall("look", {"n": 3}, "c1")),
    }
    known.effects.settle("1#0")
    assert "1#0" not in known.unfinished_calls()
    assert known.unfinished_places() == {"1", "3"}


def test_places_without_an_outcome_are_those_of_effects_of_the_program() -> None:
    known = replay(
        ("0", ASKED), ("1", ASKED), ("1", EffectFinished("x")), ("2~c0", ASKED), ("3~p0#0", decided("search")),
        ("4#0", ASKS), ("5~s1", ASKED),
    )  # fmt: skip

    assert known.unfinished_places() == {"0", "4", "5~s1"}


def test_a_decision_that_rests_on_a_command_is_unused_until_its_call_begins() -> None:
    approved = dataclasses.replace(decided("look"), command=1)
    denied = dataclasses.replace(decided("look", "deny"), command=1)
    own = ("6", EffectStarted("sleep"))
    approvals = replay(
        ("1#0", approved), ("1#1", decided("look")), ("1#2", denied), ("1#3", approved), ("1#3", STARTED),
        ("1#4", approved), ("1#4", DONE), ("6#0", approved), own, ("7#0", approved), ("7", EffectFinished("sleep")),
    ).approvals  # fmt: skip
    keys = ["1#0", "1#1", "1#2", "1#3", "1#4", "6#0", "7#0", "9#0"]

    assert {key: approvals.unused_approval(key) for key in keys if approvals.unused_approval(key)} == {
        "1#0": approved
    }  # fmt: skip


def test_a_question_is_new_when_arguments_or_policy_are_others() -> None:
    approvals = replay(
        ("1#0", ASKS), ("1#0", ASKS), ("1#0", dataclasses.replace(ASKS, arguments_hash="other", until=60.0)),
        ("1#1", ASKS), ("1#1", dataclasses.replace(ASKS, policy_version="2", until=0.0)), ("1#2", decided("look")),
        ("1#2", ASKS), ("1#3", ASKS), ("1#3", ASKS),
    ).approvals  # fmt: skip

    assert approvals.approval_entries == {"1#0": 3, "1#1": 5, "1#2": 7, "1#3": 8}
    assert approvals.expiries == {
        1: 50.0,
        2: 50.0,
        3: 60.0,
        4: 50.0,
        7: 50.0,
        8: 50.0,
        9: 50.0,
    }
    assert list(approvals.open_approvals()) == ["1#0", "1#1", "1#2", "1#3"]


def test_commands_that_count_once_are_known_by_their_numbers() -> None:
    approvals = replay(
        ("", COMMAND), ("1", CallsProposed((), "f", (), 3)), ("2", CallsProposed((), "f")),
        ("follow:.0", FollowedUp(4, "more")), ("", Declassified("public", "checked", 5)),
        ("3#0", QuestionWithdrawn("look", "c1", "approval")),
    ).approvals  # fmt: skip

    assert (approvals.received, approvals.used) == ({1: COMMAND}, {3, 4, 5})
    assert [approvals.is_cancelled(key) for key in ("3#0", "3#1")] == [True, False]


def test_the_first_outcome_that_no_code_used_is_given_unless_it_is_ignored() -> None:
    known = replay(
        ("0~c0", ModelReplied(Completion("kept"), 0.1)), ("1#0~1", DONE), ("2", EffectFinished("x")), ("1#0", DONE),
    ).effects  # fmt: skip
    assert (known.first_unused(), known.used_count) == ("1#0~1", 0)
    assert known.first_unused(ignored=["1#0"]) == "2"

    known.agree("1#0")
    assert (known.first_unused(), known.used_count, known.last_used) == ("2", 1, 4)
    known.agree("2")
    assert (known.first_unused(), known.last_used) == (None, 4)


# --- branches ---


def test_a_branch_is_detached_while_its_engine_may_have_gone_on_without_it() -> None:
    records = BranchRecords()
    told: list[tuple[str, Event]] = [
        ("open:2", BranchesOpened()), ("done:2.0", BranchDelivered(1)), ("fired:3", TimeoutFired(1.0)),
        ("open:4", BranchesOpened()), ("closed:4", BranchesClosed()), ("open:1.0.5", BranchesOpened()),
    ]  # fmt: skip
    for entry in written(*told):
        records.readers()[type(entry.event)](entry, entry.event)
    paths = ["2.0", "2.1", "2.2", "3.0", "4.0", "5.0", "1.0", "1.0.5.3"]

    assert [path for path in paths if records.is_detached(path)] == [
        "2.0", "2.2", "3.0", "4.0", "1.0.5.3",
    ]  # fmt: skip
    assert (records.open, records.closed) == ({"2", "1.0.5"}, {"4"})
    assert (records.timed_out, records.delivered) == ({"3"}, {"2.1"})


def test_what_a_retry_forgets_of_branches_opens_them_again() -> None:
    records = BranchRecords()
    records.delivered, records.closed = {"2.1", "2.0"}, {"4"}
    records.forget("done:2.0", BranchDelivered(1))
    records.forget("closed:4", BranchesClosed())
    records.forget("done:1.3.0", BranchDelivered(1))

    assert (records.open, records.closed) == ({"2", "4", "1.3"}, set())
    assert records.delivered == {"2.0"}


# --- hooks ---


def test_what_hooks_did_answers_by_place_and_stage_until_it_is_forgotten() -> None:
    records = HookRecords()
    before, after, again = (
        HookRan("one", "before_model"),
        HookRan("one", "after_model"),
        HookRan("two", "before_model"),
    )
    for key, event in (("0", before), ("0", after), ("0", again), ("1", before)):
        [entry] = written((key, event))
        records.readers()[HookRan](entry, event)

    assert records.find("0", "before_model") == [before, again]
    assert (records.find("1", "after_model"), records.find("2", "after_model")) == (
        [],
        [],
    )
    records.forget("0")
    records.forget("7")
    assert (records.find("0", "before_model"), records.find("1", "before_model")) == ([], [before])  # fmt: skip


# --- requests ---


def test_requests_answer_by_entry_and_call_and_contents_by_their_codes() -> None:
    view = ViewRecord(3, "ab", ((0, 2),))
    aids, more = AidsRecord(1, ("@0",)), AidsRecord(2, ("@0",))
    first = RequestRecord(added=("@0",), contents=("a", {"b": 1}), view=view, aids=aids)
    second = RequestRecord(base=1, kept=1, left_out=4, aids=more)
    plain = RequestRecord(base=3)
    told: list[tuple[str, Event]] = [
        ("0.1.2", dataclasses.replace(ASKED, request=first)),
        ("", ContentStored("tools", [1, 2])),
        ("0.1.3", dataclasses.replace(ASKED, request=second)),
        ("4", ASKED),
        ("1#0", DONE),
        ("0.1.3", RequestChanged(plain)),
    ]
    for recorded in (RecordedRequests.read(written(*told)), Replay(written(*told)).requests):  # fmt: skip
        assert recorded.by_seq == {1: first, 3: second, 6: plain}
        assert recorded.last == {"0.1.2": (1, first), "0.1.3": (6, plain)}
        assert recorded.contents == {"$1.0": "a", "$1.1": {"b": 1}, "$2": [1, 2]}
        assert sorted(recorded.codes.values()) == ["$1.0", "$1.1", "$2"]
        assert recorded.views == {"0.1": view}
        assert recorded.aids == {"0.1": (aids, more)}
        assert recorded.trimmed == {"0.1.3"}
