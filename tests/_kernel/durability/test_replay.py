"""What a run's entries answer when its code is run again: effects by their place, what was spent, where they part."""

import dataclasses
from typing import Literal

import pytest

from loopwright._kernel.durability.replay import Replay
from loopwright.errors import ReplayDivergence
from loopwright.events import (
    AttemptFailed,
    CallsProposed,
    ChildFinished,
    ChildStarted,
    ClockRead,
    EffectFinished,
    EffectStarted,
    Entry,
    ErrorRecord,
    Event,
    FactNoted,
    GateDecided,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    Question,
    RecoveryTriggered,
    RunFinished,
    RunForked,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolFinished,
    ToolStarted,
    UndoBegun,
    UndoFinished,
    UnknownOutcomeResolved,
    encode_event,
)
from loopwright.events.effect_key import EffectKey
from loopwright.events.entry import KINDS
from loopwright.messages import Completion, ToolCall, Usage

ASKED = ModelRequested("think", "fingerprint", "setup", 1)
BEGUN = ToolStarted("look", "c1", "hash", "r1:1#0", "read")
DONE = ToolFinished("look", "c1", "ok", "blue", 0.5)
SLEPT = EffectFinished("sleep")
CHILD = ChildFinished("react", "completed", "answered", "done", None, 1)


def replied(*, sealed: tuple[int, ...] = (), tokens: int = 3) -> ModelReplied:
    return ModelReplied(Completion("hello", usage=Usage(tokens, 1)), 0.1, sealed)


def decided(*, waited: float = 0.0, sealed: bool = False) -> GateDecided:
    return GateDecided(
        "look", "c1", "allow", "", "1", "hash", waited=waited, sealed=sealed
    )


def turned(strategy: str, *, timed_out: bool = False) -> RecoveryTriggered:
    return RecoveryTriggered(
        "look", "c1", strategy, 1, "timed_out" if timed_out else "error", "it failed"
    )


def waiting(about: dict[str, Literal["approval", "doubt", "failure"]]) -> RunSuspended:
    """A run that waits for answers about these calls."""
    return RunSuspended(
        "waiting", tuple(Question(key, "?", about=what) for key, what in about.items())
    )


def written(*told: tuple[str, Event], at: tuple[float, ...] = ()) -> list[Entry]:
    """The entries of a run that told this, each at a second of its own unless times are given."""
    times = at or tuple(float(second) for second in range(len(told)))
    return [
        Entry("r1", seq, key, KINDS[type(event)], when, 1, 1, encode_event(event), "")
        for seq, ((key, event), when) in enumerate(zip(told, times, strict=True), 1)
    ]


def replay(*told: tuple[str, Event]) -> Replay:
    return Replay(written(*told))


def finished(*keys: str) -> Replay:
    """A run in which these effects have an outcome; where a key is empty it was taken up in between."""
    return replay(*((key, SLEPT if key else RunResumed("me")) for key in keys))


# --- what is kept ---


def test_a_new_run_has_nothing_to_answer() -> None:
    new = Replay()

    assert (
        new.started,
        new.seed,
        new.totals.llm_calls,
        new.totals.tool_calls,
        new.totals.usage,
    ) == (
        None,
        "",
        0,
        0,
        Usage(),
    )
    assert (
        new.totals.active_seconds,
        new.approvals.question_entries,
        new.effects.withheld,
        new.recoveries.good_results,
        new.totals.limit,
    ) == (
        0.0,
        {},
        set(),
        {},
        None,
    )
    assert (
        new.recoveries.undo,
        new.recoveries.undo_finished,
        new.effects.facts,
        new.effects.first_unused(),
    ) == (None, {}, {}, None)
    assert (
        new.effects.outcome("0"),
        new.effects.intent("0"),
        new.approvals.decision("0#0"),
        new.effects.side("note:.0"),
    ) == (None, None, None, None)
    assert (
        new.recoveries.failed_attempts("0"),
        new.recoveries.last("0#0"),
        new.recoveries.resolution("0#0"),
        "0#0" not in new.recoveries.substituted,
    ) == (0, None, None, True)
    assert [
        new.scopes.reaches("", 0),
        new.scopes.has_outcome_from("", 0),
        new.scopes.has_outcome_after("0"),
        new.scopes.has_begun("act", "0"),
    ] == [False] * 4


@pytest.mark.parametrize(
    ("key", "scope"),
    [
        ("3", ("", 3)),
        ("2.0.1", ("2.0", 1)),
        ("2.0.1#4", ("2.0", 1)),
        ("12#0~1", ("", 12)),
        ("2#1.0.7", ("", 2)),
    ],
)
def test_a_key_tells_its_scope_and_its_number_there(
    key: str, scope: tuple[str, int]
) -> None:
    parsed = EffectKey.parse(key)

    assert (parsed.path, parsed.number) == scope


def test_effects_answer_by_their_key_and_the_last_word_counts() -> None:
    asked_again = dataclasses.replace(ASKED, iteration=2)
    child = ChildStarted("react", {}, "fingerprint")
    late = decided(waited=1.0)
    known = replay(
        ("0", ASKED), ("0", asked_again), ("0", replied()), ("1#0", decided()), ("1#0", late), ("1#0", BEGUN),
        ("1#0", DONE), ("2", EffectStarted("sleep")), ("2", SLEPT), ("3", child), ("3", CHILD),
    )  # fmt: skip

    assert [known.effects.intent(key) for key in ("0", "1#0", "2", "3")] == [
        asked_again,
        BEGUN,
        EffectStarted("sleep"),
        child,
    ]
    assert [known.effects.outcome(key) for key in ("0", "1#0", "2", "3")] == [
        replied(),
        DONE,
        SLEPT,
        CHILD,
    ]
    assert (
        known.approvals.decision("1#0"),
        known.effects.seq("0"),
        known.effects.seq("3"),
    ) == (late, 3, 11)


def test_the_beginning_and_the_end_of_a_run_are_kept() -> None:
    started = RunStarted("react", {}, (), (), {})
    undo = UndoBegun("failed", "engine_error", None, None, ())
    undone = UndoFinished("look", "c1", "ok", "taken back", 0.1)
    known = replay(
        ("", started),
        ("", RunForked("r0", 4, "hash", "seed")),
        ("", undo),
        ("1#0", undone),
        ("", RunResumed("me")),
    )

    assert (
        known.started,
        known.seed,
        known.recoveries.undo,
        known.recoveries.undo_finished,
    ) == (
        started,
        "seed",
        undo,
        {"1#0": undone},
    )


def test_notes_clock_readings_and_loop_limits_have_their_own_keys() -> None:
    note, clock, loop = (
        FactNoted("colour", "blue"),
        ClockRead(7.5),
        LimitHit("max_iterations", "5"),
    )
    known = replay(("note:.0", note), ("clock:.0", clock), ("loop:2.0.0", loop))

    assert [
        known.effects.side(key) for key in ("note:.0", "clock:.0", "loop:2.0.0")
    ] == [
        note,
        clock,
        loop,
    ]
    assert (known.effects.facts, known.totals.limit, known.effects.first_unused()) == (
        {"note:.0": note},
        None,
        None,
    )
    assert not known.scopes.reaches("", 0)


def test_a_limit_of_the_whole_run_is_an_outcome_and_nothing_new_happens_behind_it() -> (
    None
):
    hit = LimitHit("max_llm_calls", "5 of 5", "think")
    known = replay(("0", SLEPT), ("1", hit))

    assert (known.totals.limit, known.effects.outcome("1")) == (hit, hit)


# --- what was spent ---


def test_model_calls_count_once_whatever_their_attempts() -> None:
    failed, rejected = (
        ErrorRecord("ProviderError", "no answer"),
        ErrorRecord("CircuitOpen", "left alone"),
    )
    known = replay(
        ("0", ASKED), ("0", AttemptFailed(1, failed, 0.1)), ("0", AttemptFailed(2, rejected, 0.1)),
        ("0", AttemptFailed(2, failed, 0.1)), ("0", ASKED), ("0", replied(tokens=3)), ("1", ASKED),
        ("1", ModelFailed(failed, 0.1)), ("2", ASKED), ("2", replied(tokens=4)),
    )  # fmt: skip

    assert (known.totals.llm_calls, known.totals.tool_calls, known.totals.usage) == (
        3,
        0,
        Usage(7, 2),
    )
    assert [known.recoveries.failed_attempts(key) for key in ("0", "1")] == [2, 0]


def test_tool_calls_count_when_they_start_and_again_when_they_are_tried_again() -> None:
    known = replay(
        ("1#0", BEGUN), ("1#0", BEGUN), ("1#0", turned("retry")), ("1#0", turned("retry")), ("1#0", DONE),
        ("1#1", BEGUN), ("1#1", turned("cached_result")), ("1#1", DONE),
    )  # fmt: skip

    assert (known.totals.tool_calls, known.totals.llm_calls) == (4, 0)


def test_active_time_leaves_out_time_between_processes_and_time_of_people() -> None:
    told: list[tuple[str, Event]] = [
        ("0", ASKED), ("0", replied()), ("", RunResumed("me")), ("1#0", decided(waited=2.0)),
        ("", RunForked("r0", 4, "hash", "seed")), ("1#0", BEGUN), ("1#0", DONE),
    ]  # fmt: skip

    known = Replay(
        written(*told, at=(100.0, 100.25, 900.0, 903.0, 5000.0, 5000.5, 4000.0))
    )

    assert (
        known.totals.active_seconds == 0.25 + 3.0 - 2.0 + 0.5
    )  # the clock that was set back takes nothing away


# --- secrets ---


def test_withheld_calls_are_recognised_by_reply_proposal_and_decision() -> None:
    call = ToolCall("look", {}, "c1")
    known = replay(
        ("0", replied(sealed=(1, 2))), ("1", CallsProposed((call,), "fingerprint", (0,))),
        ("2#0", decided(sealed=True)), ("2#1", decided()),
    )  # fmt: skip

    assert known.effects.withheld == {"0#1", "0#2", "1#0", "2#0"}


# --- what was done about a call that failed ---


def test_what_was_done_about_a_call_answers_by_its_key_and_the_last_word_counts() -> (
    None
):
    resolved = UnknownOutcomeResolved("look", "c1", "person", "done", "blue", 7)
    known = replay(
        ("1#0", turned("retry")),
        ("1#0", turned("fallback")),
        ("1#1", resolved),
        ("1#2", turned("escalate")),
    )

    assert [known.recoveries.last(key) for key in ("1#0", "1#1")] == [
        turned("fallback"),
        None,
    ]
    assert [known.recoveries.resolution(key) for key in ("1#0", "1#1")] == [
        None,
        resolved,
    ]
    assert [
        key not in known.recoveries.substituted for key in ("1#0", "1#1", "1#2")
    ] == [
        False,
        True,
        True,
    ]


def test_what_is_done_now_is_the_last_word_too() -> None:
    known = replay(("1#0", turned("retry")))

    known.recoveries.begin("1#0", turned("fallback"))

    assert (
        known.recoveries.last("1#0"),
        "1#0" not in known.recoveries.substituted,
    ) == (
        turned("fallback"),
        False,
    )


def test_a_call_with_a_timed_out_attempt_may_have_taken_effect() -> None:
    known = replay(
        ("1#0", turned("retry", timed_out=True)),
        ("1#0", turned("retry")),
        ("1#1", turned("retry")),
    )
    known.recoveries.begin("1#2", turned("fallback", timed_out=True))

    assert [known.recoveries.has_timed_out(f"1#{number}") for number in range(4)] == [
        True,
        False,
        True,
        False,
    ]


def test_a_person_is_asked_about_a_call_from_the_first_time_until_it_is_settled() -> (
    None
):
    settled = UnknownOutcomeResolved("look", "c1", "person", "unknown")
    first = waiting({"1#0": "doubt", "1#1": "approval"})
    second = waiting({"1#0": "doubt", "1#2": "failure", "1#3": "doubt"})
    known = replay(
        ("0", SLEPT),
        ("", first),
        ("", RunResumed("me")),
        ("", second),
        ("1#3", settled),
        ("1#4", settled),
    )

    assert known.approvals.question_entries == {"1#0": 2, "1#2": 4}


def test_nobody_is_asked_about_a_call_that_has_an_outcome_nor_by_a_run_that_ended() -> (
    None
):
    asked = ("", waiting({"1#0": "doubt", "1#1": "failure"}))
    ended = RunFinished(
        "failed", "unknown_outcome", None, None, None, Usage(), 1, 1, 1, ()
    )

    assert replay(asked, ("1#0", DONE)).approvals.question_entries == {"1#1": 1}
    assert replay(asked, ("", ended)).approvals.question_entries == {}


def test_what_became_known_of_a_call_is_not_known_of_the_next_step() -> None:
    resolved = UnknownOutcomeResolved("look", "c1", "person", "not_done")
    known = replay(
        ("1#0", resolved),
        ("1#0", turned("retry")),
        ("1#1", turned("retry")),
        ("1#1", resolved),
    )

    assert [known.recoveries.resolution(key) for key in ("1#0", "1#1")] == [
        None,
        resolved,
    ]


def test_what_was_done_in_place_of_a_call_is_known_by_the_call() -> None:
    other = dataclasses.replace(DONE, content="green")
    known = replay(
        ("1#0", turned("fallback")), ("1#0~1", BEGUN), ("1#0~1m0", replied()), ("1#0~1", other), ("1#0~2", DONE),
        ("1#0", DONE), ("1#1~1", DONE), ("1#10", turned("fallback")), ("1#10~1", DONE),
    )  # fmt: skip

    assert known.recoveries.substitutes("1#0") == [("1#0~1", other), ("1#0~2", DONE)]
    assert [known.recoveries.substitutes(key) for key in ("1#1", "1#2")] == [[], []]


def test_a_good_result_can_be_given_again_if_it_is_the_call_s_own() -> None:
    other = dataclasses.replace(BEGUN, arguments_hash="other")
    failed, again = (
        dataclasses.replace(DONE, status="error"),
        dataclasses.replace(DONE, content="green"),
    )
    known = replay(
        ("1#0", BEGUN), ("1#0", DONE), ("1#1", other), ("1#1", failed),
        ("2#0", other), ("2#0", turned("cached_result")), ("2#0", DONE),
        ("3#0", DONE),  # of a call that no intent tells the arguments of
        ("4#0", BEGUN), ("4#0", turned("retry")), ("4#0", again),
    )  # fmt: skip

    assert known.recoveries.good_results == {("look", "hash"): (10.0, again)}


# --- how far the run had come ---


def test_a_scope_reaches_as_far_as_anything_in_it_and_around_it_whatever_the_order() -> (
    None
):
    known = replay(("3", ASKED), ("1.0.4", SLEPT), ("1.1.0", ASKED), ("2#0", BEGUN))

    assert [known.scopes.reaches("", number) for number in (3, 4)] == [True, False]
    assert [known.scopes.reaches("1.0", number) for number in (4, 5)] == [True, False]
    assert [known.scopes.reaches("1.1", number) for number in (0, 1)] == [True, False]
    assert [known.scopes.reaches("1", number) for number in (1, 2)] == [True, False]
    assert not known.scopes.reaches("2", 0)


def test_a_proposal_s_calls_are_decided_or_begun_each_for_itself() -> None:
    known = replay(("1#0", decided()), ("2#1", BEGUN), ("3", ASKED))

    assert [known.scopes.has_begun("gate", key) for key in ("1", "2", "3")] == [
        True,
        False,
        False,
    ]
    assert [known.scopes.has_begun("act", key) for key in ("1", "2", "3")] == [
        False,
        True,
        False,
    ]


def test_a_scope_holds_outcomes_up_to_its_highest_whatever_the_order() -> None:
    known = finished("2", "0")

    assert [known.scopes.has_outcome_from("", number) for number in (0, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert not known.scopes.has_outcome_from("1", 0)


@pytest.mark.parametrize(
    ("key", "held", "later"),
    [
        ("1", ("0",), False),
        ("1", ("2",), True),  # in its own scope
        ("1", ("1",), False),  # its own outcome is not after it
        ("1", ("1.0.0",), True),  # inside the scope opened at its place
        ("1", ("1.0",), True),
        ("2", ("1.0.5",), False),  # another scope, opened before it
        ("1#0", ("1#1",), False),  # calls of one turn run side by side
        ("1#0", ("1.0.0",), False),
        ("1.0.2", ("1.0.3",), True),
        ("1.0.2", ("1.0.1",), False),
        ("1.0.2", ("1.1.7",), False),  # branches run side by side
        ("1.0.2", ("2",), True),  # in the scope around it
        ("1.0.2", ("1.0.0", "0"), False),
        ("1.0.2.0.1", ("1.0.3",), True),
        ("1.0.2.0.1", ("2",), True),
        ("1.0.2", ("1#0",), True),  # the call that it was made for is answered
        ("1.0.2", ("1#1",), False),
    ],
)
def test_life_may_not_go_on_in_front_of_what_is_recorded(
    key: str, held: tuple[str, ...], later: bool
) -> None:
    assert finished(*held).scopes.has_outcome_after(key) is later


def test_life_may_not_go_on_inside_a_child_engine_that_has_ended() -> None:
    ended = replay(("1.0", CHILD))
    going_on = replay(("1.0", SLEPT))

    assert (
        ended.scopes.has_outcome_after("1.0.2"),
        going_on.scopes.has_outcome_after("1.0.2"),
    ) == (True, False)


# --- what nobody asked for, and where code and journal part ---


def test_the_first_effect_that_nobody_asked_for_is_the_first_in_the_journal() -> None:
    known = finished("9", "10", "2")
    left = [known.effects.first_unused()]
    for key in ("9", "10", "2"):
        known.effects.agree(key)
        left.append(known.effects.first_unused())

    assert left == ["9", "10", "2", None]


def test_what_was_done_about_a_call_is_asked_for_with_the_call() -> None:
    known = finished("1#0", "1#0~1", "1#1~1")

    known.effects.agree("1#0")
    assert known.effects.first_unused() == "1#1~1"
    known.effects.settle("1#1")  # what came of it is recorded only now
    assert known.effects.first_unused() is None


@pytest.mark.parametrize(
    ("told", "agreed", "at", "seq"),
    [
        (("0", "1", "2"), ("0",), "1", 1),
        (("0", "1", "2"), ("0", "1"), "2", 2),
        (("0", "", "1", "2"), ("0",), "1", 2),  # what has no place in the program stays
        (("0", "1", "1", "2"), ("0",), "1", 1),  # before the first entry at that place
        (
            ("0", "2.0.0", "2.1.0", "2.0.1", "3"),
            ("0", "2.0.0"),
            "2.0.1",
            3,
        ),  # branches are told side by side
        (
            ("0", "2.0.0", "2.0.1.1.0"),
            ("0",),
            "2.0.1",
            2,
        ),  # what was recorded inside of that effect
        (
            ("0", "2.0.5", "1"),
            ("0",),
            "1",
            1,
        ),  # what was recorded inside of a later one
        (("0", "1#0"), ("0",), "1", 1),
        (
            ("0", "1"),
            ("1", "0"),
            "2",
            2,
        ),  # nothing is recorded from there on: the last that both agree about
        (("0",), (), "0", 1),  # at least the beginning
        ((), (), "0", 1),
    ],
)
def test_a_divergence_says_before_which_entry_a_fork_goes_on(
    told: tuple[str, ...], agreed: tuple[str, ...], at: str, seq: int
) -> None:
    known = finished(*told)
    for key in agreed:
        known.effects.agree(key)

    error = known.divergence(at, "a sleep", "a model call")

    assert isinstance(error, ReplayDivergence)
    assert (error.key, error.expected, error.found, error.seq) == (
        at,
        "a sleep",
        "a model call",
        seq,
    )
    assert str(error) == (
        f"at {at} recorded: a sleep; now: a model call. The engine, its options or its prompts changed since: "
        f"run the code that wrote the journal, or fork it after entry {seq}."
    )


# --- abandoned branches of journals without `QuestionWithdrawn` ---

QUESTION = GateDecided("pay", "c1", "ask", "", "1", "hash")


def test_a_question_of_a_gather_is_cancelled_once_the_next_effect_has_begun() -> None:
    recorded = replay(("0.0.0#0", QUESTION), ("0.1.0", SLEPT), ("1", ASKED))

    assert recorded.is_cancelled("0.0.0#0")


def test_a_question_of_a_gather_stays_open_while_only_its_siblings_continue() -> None:
    recorded = replay(("0.0.0#0", QUESTION), ("0.1.0", SLEPT), ("0.1.1", ASKED))

    assert not recorded.is_cancelled("0.0.0#0")
