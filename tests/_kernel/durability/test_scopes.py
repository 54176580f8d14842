"""How far the scopes of a run had come, and which questions and effects no code comes back to."""

import dataclasses
import sys

import pytest

from loopwright._kernel.durability.replay import Replay, last_event
from loopwright._kernel.durability.totals import Totals
from loopwright.events import (
    CallDeadLettered,
    CallsProposed,
    ChildFinished,
    ChildStarted,
    CommandReceived,
    Declassified,
    EffectFinished,
    EffectStarted,
    Entry,
    Event,
    GateDecided,
    HandedOff,
    LimitHit,
    ModelReplied,
    ModelRequested,
    Question,
    QuestionWithdrawn,
    RecoveryTriggered,
    RunRetried,
    RunStarted,
    RunSuspended,
    SleepSet,
    ToolFinished,
    ToolStarted,
    UndoStarted,
    encode_event,
)
from loopwright.events.branches import BranchDelivered, BranchesClosed, BranchesOpened
from loopwright.events.effect_key import EffectKey
from loopwright.events.effects import GateVerdict
from loopwright.events.entry import KINDS
from loopwright.labels import Label
from loopwright.messages import Completion, ToolCall

ASKED = ModelRequested("think", "fingerprint", "setup", 1)
SLEPT = EffectFinished("sleep")
DONE = ToolFinished("look", "c1", "ok", "blue", 0.5)
LIMIT = LimitHit("max_llm_calls", "5 of 5", "think")
WITHDRAWN = QuestionWithdrawn("look", "c1", "approval")
CHILD = ChildFinished("react", "completed", "answered", "done", None, 1)
START = RunStarted("react", {}, (), (), {}, label="normal")
TURNED = RecoveryTriggered("look", "c1", "fallback", 1, "error", "it failed")


def written(*told: tuple[str, Event]) -> list[Entry]:
    return [
        Entry("r1", seq, key, KINDS[type(event)], float(seq), 1, 1, encode_event(event), "")
        for seq, (key, event) in enumerate(told, 1)
    ]  # fmt: skip


def replay(*told: tuple[str, Event]) -> Replay:
    return Replay(written(*told))


def decided(verdict: GateVerdict = "allow") -> GateDecided:
    return GateDecided("sleep", "c1", verdict, "", "1", "hash")


def test_the_last_entry_of_a_run_tells_how_it_stands() -> None:
    entries = written(("0", ASKED), ("0", SLEPT), ("1", ASKED))

    assert (last_event(entries), last_event(entries[:1]), last_event([])) == (ASKED, ASKED, None)  # fmt: skip
    assert last_event(entries[:2]) == SLEPT


def test_the_last_entries_of_scopes_are_known_with_and_without_those_inside() -> None:
    scopes = replay(
        ("0", ASKED), ("1.0.0", ASKED), ("1.1.0", SLEPT), ("1.0.1", SLEPT), ("10.0", SLEPT), ("2", ASKED),
        ("1.1.1", SLEPT),
    ).scopes  # fmt: skip

    keys = ["5", "1.0.9", "1.1.0#3", "10.3", "7.0"]
    assert [scopes.last_entry(key) for key in keys] == [6, 4, 7, 5, sys.maxsize]
    paths = ["", "1", "1.0", "1.1", "10", "7"]
    assert [scopes.last_entry_inside(path) for path in paths] == [7, 7, 4, 7, 5, 0]
    assert [scopes.has_entry(key) for key in ("1.0.1", "1.0.2", "10")] == [True, False, False]  # fmt: skip


def test_several_replies_are_known_by_the_effect_and_by_those_around_it() -> None:
    scopes = replay(
        ("4~s0", ASKED), ("5.0.2~s1", ASKED), ("6~c0", ASKED), ("7", ASKED), ("8.0.1", ASKED),
    ).scopes  # fmt: skip
    known = ["4", "5", "5.0.2", "6", "7", "8", "40", "5.1", "0"]

    assert [one for one in known if scopes.has_samples(one)] == ["4", "5", "5.0.2"]


def test_what_is_no_effect_and_what_an_engine_works_beside_has_nothing_after_it() -> (
    None
):
    scopes = replay(("open:2", BranchesOpened()), ("2.0.1", ASKED), ("3", SLEPT)).scopes

    assert not scopes.has_outcome_after("note:.0")
    assert not scopes.has_outcome_after("2.0.1")  # the engine works beside its branches
    assert scopes.has_outcome_after("2")


# --- questions that nobody comes back to ---

QUESTION = ("1.2.0.4", ASKED)


@pytest.mark.parametrize(
    ("told", "key", "abandoned"),
    [
        ([QUESTION], "1.2.0.4", False),
        ([QUESTION, ("1.2.1.0", SLEPT)], "1.2.0.4", False),  # a sibling continues
        ([QUESTION, ("1.3", SLEPT)], "1.2.0.4", True),
        ([QUESTION, ("2", SLEPT)], "1.2.0.4", True),
        ([QUESTION, ("2.0.0", SLEPT)], "1.2.0.4", True),
        ([QUESTION, ("1", CHILD)], "1.2.0.4", True),
        ([("1.2.4", ASKED), ("1", CHILD)], "1.2.4", True),
        ([("1.4", ASKED), ("1", CHILD)], "1.4", False),  # of the scope that ended itself
        ([("1#0", ToolStarted("e", "c", "h", "k", "read")), ("1.0.2.0.1", ASKED), ("1.0.3.0.0", SLEPT)],
         "1.0.2.0.1", True),
        ([("3", ChildStarted("react", {}, "f")), ("3.1.0.0", ASKED), ("3.2.0.0", SLEPT)], "3.1.0.0", True),
        ([("3.1.0.0", ASKED), ("3.2.0.0", SLEPT)], "3.1.0.0", False),  # branches of one gather
        ([QUESTION, ("open:1.2", BranchesOpened()), ("1.3", SLEPT)], "1.2.0.4", False),
        ([QUESTION, ("done:1.2.0", BranchDelivered(0)), ("closed:1.2", BranchesClosed()), ("1.3", SLEPT)],
         "1.2.0.4", False),  # it was given to its engine
        ([QUESTION, ("2", SLEPT)], "note:1.2.0.4", False),
    ],
)  # fmt: skip
def test_an_effect_is_abandoned_once_a_scope_around_it_went_on_without_it(
    told: list[tuple[str, Event]], key: str, abandoned: bool
) -> None:
    assert replay(*told).scopes.is_abandoned(key) is abandoned


def test_a_question_is_cancelled_by_its_entry_or_by_what_came_after_it() -> None:
    withdrawn, left = ("1.0.0#0", WITHDRAWN), ("2.0.0", ASKED)
    met = ("4", LIMIT)
    known, limited = replay(withdrawn, left, ("3", SLEPT)), replay(withdrawn, left, met)

    keys = ["1.0.0#0", "1.0.1#0", "2.0.0", "4"]
    assert [known.is_cancelled(key) for key in keys] == [True, True, True, False]
    # A limit ends a branch where it had waited, too: only the entry says it.
    assert [limited.is_cancelled(key) for key in keys] == [True, False, False, False]


@pytest.mark.parametrize(
    ("told", "waits"),
    [
        ([], False),
        ([("2.0.1", SleepSet(9.0))], False),
        ([("2.0.1", SleepSet(9.0)), ("3", SLEPT)], True),
        ([("2.0.1#0", decided("ask"))], False),
        ([("2.0.1#0", decided("ask")), ("3", SLEPT)], True),
        ([("2.0.1#0", decided("ask")), ("2.0.1#0", WITHDRAWN)], True),
        (
            [("2.0.1#0", decided()), ("2.0.1", WITHDRAWN)],
            True,
        ),  # approved, and the user was asked
        ([("2.0.1#0", decided("deny")), ("3", SLEPT)], False),
        (
            [("2.0.1#0", decided()), ("2.0.1", EffectStarted("sleep")), ("3", SLEPT)],
            False,
        ),
        ([("2.0.1", EffectStarted("sleep")), ("3", SLEPT)], False),
        ([("2.0.1#1", decided("ask")), ("3", SLEPT)], False),
    ],
)
def test_an_effect_whose_question_was_withdrawn_before_it_began_waits_for_ever(
    told: list[tuple[str, Event]], waits: bool
) -> None:
    assert replay(*told).waits_for_ever("2.0.1") is waits


def test_the_questions_of_a_run_are_kept_as_they_were_asked_last() -> None:
    first, last = Question("1#0", "Erase?"), Question("1#0", "Erase it?")
    known = replay(("", RunSuspended("waiting", (first,))), ("", RunSuspended("waiting", (last,))))  # fmt: skip

    assert known.approvals.questions == {"1#0": last}


def test_a_divergence_beside_the_effects_is_behind_the_last_one_that_was_used() -> None:
    known = replay(("0", SLEPT), ("1", SLEPT), ("2", SLEPT))
    known.effects.agree("1")

    error = known.divergence("note:.0", "one", "other")
    assert (error.seq, error.expected, error.found) == (2, "one", "other")
    assert known.divergence("1", "same", "same").found == "same, with other content"


# --- effects, recoveries and totals ---


def test_effects_know_proposals_handoffs_and_recoveries_that_met_a_limit() -> None:
    call = ToolCall("look", {}, "c1")
    handed = HandedOff("desk", "billing", "react", "fingerprint")
    effects = replay(
        ("0", CallsProposed((call,), "f")), ("1", SLEPT), ("2#0~1", LIMIT), ("3#0~1", DONE), ("4", LIMIT),
        ("5.1.2", handed),
    ).effects  # fmt: skip

    keys = ["0#0", "0#1", "1#0", "9#0", "0", "0#0~1"]
    assert [effects.proposed(key) for key in keys] == [call, None, None, None, None, None]  # fmt: skip
    assert effects.handoffs == {"5.1": handed}
    limited = ["2#0", "2#1", "3#0", "4"]
    assert [key for key in limited if effects.has_limited_recovery(key)] == ["2#0"]
    samples = EffectKey.parse("1.0~1.2")
    assert samples.is_at_or_after(EffectKey.parse("1"))


def test_recoveries_know_what_was_undone_dead_lettered_and_made_elsewhere() -> None:
    late = dataclasses.replace(TURNED, status="timed_out")
    elsewhere = dataclasses.replace(late, failure="elsewhere")
    letter = CallDeadLettered("look", "c1", {}, "error", "it failed", "letters")
    again = dataclasses.replace(TURNED, strategy="retry")
    told: list[tuple[str, Event]] = [
        ("1#0", late), ("1#1", elsewhere), ("1#2", TURNED), ("1#2", again), ("1#3", letter),
        ("undo:1#0", UndoStarted("look", "c1", "k")), ("1#3", DONE),
    ]  # fmt: skip
    known = replay(*told).recoveries

    assert [key for key in ("1#0", "1#1") if known.has_timed_out(key)] == ["1#0"]
    assert known.substituted == {"1#0", "1#1"}
    assert (known.dead_lettered, known.undo_started) == ({"1#3": letter}, {"undo:1#0"})
    retried = replay(*told, ("", RunRetried("again", ("1#3",))))
    assert retried.recoveries.dead_lettered == {}


def test_what_came_from_outside_counts_until_a_person_says_that_it_does_not() -> None:
    def read(*told: tuple[str, Event], start: RunStarted = START) -> tuple[Label, bool]:
        totals: Totals = replay(("", start), *told).totals
        assert totals.places.at("") == (totals.label, totals.is_untrusted)
        return totals.label, totals.is_untrusted

    outside = ("1#0", dataclasses.replace(DONE, untrusted=True))
    plain = CommandReceived(2, "answer", {}, 0.0)
    reply = ModelReplied(Completion("hello"), 0.1)
    kept = Declassified("public", "checked", 3)
    assert read(outside, ("", plain)) == ("normal", True)
    assert read(outside, ("2", reply)) == ("normal", True)
    assert read(("", kept)) == ("public", False)
    assert read(start=dataclasses.replace(START, untrusted=True)) == ("normal", True)

    secret = dataclasses.replace(TURNED, label="secret", untrusted=True)
    assert read(("1#0", secret)) == ("normal", False)  # no model read that failure
    asked = dataclasses.replace(secret, strategy="replan")
    assert read(("1#0", asked)) == ("secret", True)


def test_tools_that_the_provider_ran_add_up() -> None:
    ran = ModelReplied(Completion("", provider_calls=("search",)), 0.1)

    assert replay(("0", ran), ("1", ran)).totals.tool_calls == 2
