"""What single folds of a run's entries answer: plans and decided calls, branches, hooks, requests, reads by place."""

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
from loopwright._kernel.durability.read_places import ReadPlaces
from loopwright._kernel.durability.replay import Replay
from loopwright._kernel.durability.requests import RecordedRequests
from loopwright.events import (
    ContentStored,
    EffectFinished,
    Entry,
    Event,
    FactNoted,
    GateDecided,
    HookRan,
    ModelRequested,
    RequestChanged,
    ToolFinished,
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
from loopwright.messages import Json, Message

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
    told = [("note:.0", planned("look")), ("note:.1", FactNoted(REJECTED, None))]
    assert read_flow(*told, untrusted=True).plan is None

    replayed = Replay(
        written(("1#0", dataclasses.replace(DONE, untrusted=True)), *told)
    )
    assert replayed.flow.plan is None
    assert Replay(written(("1#0", DONE), told[0])).flow.plan == ("look",)


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

    assert (records.open, records.closed) == ({"2", "4"}, set())
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


# --- what was read where ---


def places(*opened: str) -> ReadPlaces:
    read = ReadPlaces()
    for path in opened:
        read.open(path)
    return read


def test_what_was_read_counts_in_its_scope_around_it_and_inside_it_not_beside() -> None:
    read = places("1.0", "1.1", "1.0.2.0", "1.0.2.1")
    read.note("1.0.0", "normal", untrusted=False)
    read.note("1.0.1#0", "secret", untrusted=False)
    read.note("1.0.2.0.0", "public", untrusted=True)
    expected: dict[str, tuple[Label, bool]] = {
        "": ("secret", True), "1.0": ("secret", True), "1.0.2.0": ("secret", True), "1.0.2.1": ("secret", False),
        "1.1": ("public", False), "1.1.0.0": ("public", False), "2.0": ("secret", True),
    }  # fmt: skip

    assert {path: read.at(path) for path in expected} == expected


def test_what_was_read_without_a_place_counts_everywhere() -> None:
    read = places("1.0", "1.1")
    read.note("", "normal", untrusted=True)
    read.note("1.1.0", "public", untrusted=False)

    assert [read.at(path) for path in ("", "1.0", "1.1")] == [("normal", True)] * 3


def test_scopes_that_began_one_after_the_other_read_from_each_other() -> None:
    read = ReadPlaces()
    read.note("1.0.0", "secret", untrusted=True)
    assert read.at("1.1") == ("secret", True)

    read.open("1.1")  # the other is no branch, such as a child engine
    assert read.at("1.1") == ("secret", True)
    read.open("1.0")
    assert read.at("1.1") == ("public", False)


def test_lowering_a_label_never_raises_one_and_keeps_what_is_not_trusted() -> None:
    read = places("1.0", "1.1")
    read.note("1.0.0", "secret", untrusted=True)
    read.note("1.1.0", "public", untrusted=True)
    read.lower("normal", trusted=False)

    assert (read.at("1.0"), read.at("1.1")) == (("normal", True), ("public", True))
    read.lower("public", trusted=True)
    assert (read.at("1.0"), read.at("1.1")) == (("public", False), ("public", False))
