"""kill -9 at every barrier and at any moment, again and again: nothing kept is lost, nothing recorded is repeated."""

import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator

import pytest

from fault_sizes import figure, sized
from kill_checks import Chapter, Story, Tally, checked, wrongs
from kill_notes import ACTIONS, Death, Ending, Scenario, When
from kill_programs import ENGINES, FAILING
from kill_runner import Plan, Stage
from loopwright.events import ModelReplied, ToolFinished, ToolStarted, UndoStarted
from loopwright.messages import ObservationStatus
from third_party_package import install_third_party

pytestmark = pytest.mark.timeout(sized(240, 7200))

ENDLESS = (
    ("max_iterations", 10_000),
    ("max_llm_calls", 10_000),
    ("max_tool_calls", 10_000),
    ("max_tokens", 10**9),
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Where it happens; the interpreters find a stranger's engine, which was installed from its own pyproject."""
    with Stage(tmp_path_factory.mktemp("kills"), install_third_party()) as ready:
        yield ready


@pytest.fixture(scope="module")
def total() -> Iterator[Tally]:
    """What all tests of this module found."""
    tally = Tally()
    yield tally
    figure("kills, all together", str(tally))


def told(stage: Stage, plans: Iterable[Plan], undisturbed: Story) -> Tally:
    """What the stories of these plans show."""
    tally = Tally()
    for story in stage.tell_all(plans):
        tally += checked(story, undisturbed)
    return tally


def undisturbed(stage: Stage, scenario: Scenario) -> Story:
    """The scenario as it goes without a kill, told twice: what a process does first takes longer."""
    first, second = (stage.tell(Plan(scenario)) for _ in range(2))
    assert checked(second, first).wrongs == []
    return second


def barriers(whole: Story) -> range:
    """The barriers of a story that was not disturbed."""
    return range(
        1,
        1
        + sum(
            len([n for n in chapter.notes if n.what == "kept"])
            for chapter in whole.chapters()
        ),
    )


def at_every_barrier(scenario: Scenario, whole: Story) -> Iterator[Plan]:
    """A death before and after each barrier; in the short size one of them, and the other one where it streams."""
    sides: tuple[When, When] = ("before", "after")
    for barrier in barriers(whole):
        for side in (0, 1):
            if sized((barrier + side + scenario.streaming) % 2, 1):
                yield Plan(
                    scenario, [Death(barrier, sides[side])], look=barrier % 4 < 2
                )


def in_every_tool(scenario: Scenario, whole: Story) -> Iterator[Plan]:
    """A death at the start and at the side effect of each tool, where others may be at work beside it."""
    notes = [
        note
        for chapter in whole.chapters()
        for note in chapter.notes
        if note.what in ACTIONS
    ]
    for number in range(1, len(notes) + 1):
        yield Plan(scenario, [Death(in_tool=number)], look=number % 4 < 2)


def at_random(
    scenario: Scenario, whole: Story, draw: random.Random, deaths: int
) -> Plan:
    """So many deaths, the first at any moment of the run, each further one while the run is resumed."""
    first = draw.uniform(0, 0.95 * whole.seconds)
    rest = max(whole.seconds - first, 0.4 * whole.seconds)
    moments = [first, *(draw.uniform(0, rest) for _ in range(deaths - 1))]
    return Plan(
        scenario,
        [Death(seconds=moment) for moment in moments],
        look=draw.random() < 0.5,
    )


def killed_in_all_ways(stage: Stage, scenario: Scenario, least: int) -> Tally:
    """Kill a scenario at every barrier, in tools, at random moments, and while it is resumed; `least` kills in all."""
    whole, draw = undisturbed(stage, scenario), random.Random(str(scenario))
    plans = [*at_every_barrier(scenario, whole)]
    plans += [*in_every_tool(scenario, whole)][:: sized(5, 1)]
    tally = told(stage, plans, whole)
    for _ in range(sized(1, 10)):
        pace = (
            whole if sized(1, 0) else undisturbed(stage, scenario)
        )  # a machine may be busy now and idle then
        moments = [
            at_random(scenario, pace, draw, deaths)
            for deaths in ((1, 1, 2), (1, 1, 1, 2, 2, 3))[sized(0, 1)]
        ]
        tally += told(stage, moments, whole)
    while tally.kills < least:  # runs may have ended before their moment came
        places = draw.choices(barriers(whole), k=2)
        tally += told(
            stage,
            [
                Plan(scenario, [Death(place, "before"), Death(1 + place % 2)])
                for place in places
            ],
            whole,
        )
    return tally


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
@pytest.mark.parametrize("engine", [*ENGINES, *FAILING])
def test_a_killed_run_resumes_and_repeats_nothing(
    engine: str, streaming: bool, stage: Stage, total: Tally
) -> None:
    least = sized(12, 130)
    tally = killed_in_all_ways(stage, Scenario((engine,), streaming), least)
    figure(f"kills of {engine}, {'streaming' if streaming else 'plain'}", str(tally))
    total += tally

    assert tally.wrongs == []
    assert (tally.lost, tally.recorded_repeated, tally.writes_repeated) == (0, 0, 0)
    assert tally.kills >= least
    assert tally.acknowledged > 10 * tally.stories


@pytest.mark.parametrize("program", ["wide", "plan-execute"])
def test_tools_that_are_killed_in_their_threads_are_not_silently_repeated(
    program: str, stage: Stage, total: Tally
) -> None:
    scenario = Scenario((program,), threads=True)
    whole, draw = undisturbed(stage, scenario), random.Random(program)
    plans = [*in_every_tool(scenario, whole)] * sized(1, 4)
    plans += [
        at_random(scenario, whole, draw, 1 + (n % 2)) for n in range(sized(2, 40))
    ]
    tally = told(stage, plans, whole)
    figure(f"kills of {program} with its tools in threads", str(tally))
    total += tally

    assert tally.wrongs == []
    assert tally.kills >= sized(8, 30)
    assert tally.unknown >= 1
    assert tally.repeated_same_key >= 1


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
def test_two_runs_that_die_together_resume_together(
    streaming: bool, stage: Stage, total: Tally
) -> None:
    scenario = Scenario(("wide", "plan-execute"), streaming)
    whole, draw = undisturbed(stage, scenario), random.Random(str(scenario))
    plans = [at_random(scenario, whole, draw, 1 + (n % 2)) for n in range(sized(4, 60))]
    plans += [*at_every_barrier(scenario, whole)][:: sized(6, 1)]
    tally = told(stage, plans, whole)
    figure(
        f"kills of two runs in one process, {'streaming' if streaming else 'plain'}",
        str(tally),
    )
    total += tally

    assert tally.wrongs == []
    assert tally.kills >= sized(3, 40)


@pytest.mark.parametrize(
    ("limit", "most"), [("max_llm_calls", 6), ("max_tool_calls", 3)]
)
def test_a_limit_holds_across_crashes(
    limit: str, most: int, stage: Stage, total: Tally
) -> None:
    scenario = Scenario(
        ("endless",),
        limits=(*(one for one in ENDLESS if one[0] != limit), (limit, most)),
    )
    whole, draw = undisturbed(stage, scenario), random.Random(limit)
    plans = [at_random(scenario, whole, draw, 3) for _ in range(sized(1, 40))]
    for barrier in barriers(whole)[2 :: sized(4, 1)]:
        plans.append(Plan(scenario, [Death(barrier, "before"), Death(2), Death(2)]))
    tally = Tally()
    for story in stage.tell_all(plans):
        tally += checked(story, whole)
        (ending,), calls = story.endings, len(story.asked)
        starts = sum(
            note.what == "started"
            for chapter in story.chapters()
            for note in chapter.notes
        )
        made = calls if limit == "max_llm_calls" else starts
        assert ending["status"] == "limit"
        assert made <= most + story.kills, (
            "each kill leaves at most one call in doubt, which is made again"
        )
    figure(f"kills of a run with {limit}={most}", str(tally))
    total += tally

    assert tally.wrongs == []
    assert tally.kills >= sized(4, 30)


def test_the_time_in_which_a_run_is_dead_does_not_count(
    stage: Stage, total: Tally
) -> None:
    scenario = Scenario(("wide",), limits=(("timeout", 3.0),))
    whole = undisturbed(stage, scenario)
    plans = [
        Plan(scenario, [Death(barrier), Death(1)], pause=3.1)
        for barrier in barriers(whole)
    ]
    stories = [*stage.tell_all(plans[: sized(4, 20)], max_concurrency=20)]
    tally = Tally()
    for story in stories:
        tally += checked(story, whole)
    figure("kills of a run that is dead for longer than its time limit", str(tally))
    total += tally

    assert tally.wrongs == []
    assert [story.endings[0]["status"] for story in stories] == ["completed"] * len(
        stories
    )
    assert tally.kills >= len(stories)


def test_the_time_that_a_run_was_at_work_counts_in_every_life(
    stage: Stage, total: Tally
) -> None:
    """Each life is shorter than the limit; a clock that began anew would let them go on for ever."""
    most = 2.0
    scenario = Scenario(("slow",), limits=(*ENDLESS, ("timeout", most)))
    story = stage.tell(Plan(scenario, [Death(barrier=4)] * 30))
    (chapter,) = story.chapters()
    at = [(entry.kind, entry.at) for entry in chapter.entries]
    seconds = sum(
        now - before
        for (_, before), (kind, now) in itertools.pairwise(at)
        if kind != "run_resumed"
    )
    tally = checked(story)
    figure(
        "kills of a run until its time was over",
        f"{tally}; {seconds:.2f} s of {most} s",
    )
    total += tally

    assert tally.wrongs == []
    assert chapter.ending["status"] == "limit"
    assert story.kills < 30
    assert seconds >= most - 0.1  # the journal has what was spent up to its last entry


# --- the checks notice what they are for ---


@pytest.fixture(scope="module")
def resumed(stage: Stage) -> tuple[Chapter, Ending]:
    """A run that was killed when its first tools had ended, and how it came to its end."""
    story = stage.tell(Plan(Scenario(("react",)), [Death(barrier=5)]))
    (chapter,) = story.chapters()
    assert (story.kills, chapter.unknown) == (1, set())
    return chapter, chapter.ending


@pytest.fixture(scope="module")
def saga(stage: Stage) -> tuple[Chapter, Ending]:
    """A saga that was killed while its third call was undone."""
    whole = stage.tell(Plan(Scenario(("saga",))))
    actions = [n.what for n in whole.chapters()[0].notes if n.what in ACTIONS]
    third = [place for place, what in enumerate(actions, 1) if what == "undoing"][2]
    story = stage.tell(Plan(Scenario(("saga",)), [Death(in_tool=third)]))
    (chapter,) = story.chapters()
    assert (story.kills, chapter.unknown) == (1, set())
    return chapter, chapter.ending


def test_the_checks_find_nothing_where_nothing_is_wrong(
    resumed: tuple[Chapter, Ending],
) -> None:
    assert [*wrongs(*resumed, Tally())] == []


def place(chapter: Chapter, kind: type[object]) -> int:
    return next(
        index
        for index, entry in enumerate(chapter.entries)
        if isinstance(entry.event, kind)
    )


def without(chapter: Chapter, kind: type[object]) -> Chapter:
    index = place(chapter, kind)
    return dataclasses.replace(
        chapter, entries=[*chapter.entries[:index], *chapter.entries[index + 1 :]]
    )


def with_again(chapter: Chapter, kind: type[object]) -> Chapter:
    return dataclasses.replace(
        chapter, entries=[*chapter.entries, chapter.entries[place(chapter, kind)]]
    )


def with_another_hash(chapter: Chapter) -> Chapter:
    kept = next(note.seq for note in chapter.notes if note.what == "kept")
    entries = [
        dataclasses.replace(e, hash="0" * 64) if e.seq == kept else e
        for e in chapter.entries
    ]
    return dataclasses.replace(chapter, entries=entries)


def asked_again(chapter: Chapter) -> Chapter:
    again = dataclasses.replace(chapter.asked[0], life=chapter.lives - 1)
    return dataclasses.replace(chapter, asked=[*chapter.asked, again])


def started_again(chapter: Chapter) -> Chapter:
    again = [
        dataclasses.replace(n, life=chapter.lives - 1)
        for n in chapter.notes
        if n.what == "started"
    ]
    return dataclasses.replace(chapter, notes=[*chapter.notes, *again])


def under_another_key(chapter: Chapter) -> Chapter:
    notes = [
        dataclasses.replace(n, idempotency_key="new") if n.what == "started" else n
        for n in chapter.notes
    ]
    return dataclasses.replace(chapter, notes=notes)


def with_status(chapter: Chapter, status: ObservationStatus) -> Chapter:
    index = place(chapter, ToolFinished)
    entry = chapter.entries[index]
    assert isinstance(entry.event, ToolFinished)
    changed = dataclasses.replace(entry)
    changed.__dict__["event"] = dataclasses.replace(
        entry.event, status=status, content="said to nobody"
    )
    return dataclasses.replace(
        chapter,
        entries=[*chapter.entries[:index], changed, *chapter.entries[index + 1 :]],
    )


def spent_less(chapter: Chapter) -> Chapter:
    ending = chapter.ending.copy()
    ending["llm_calls"] = 1
    return dataclasses.replace(chapter, ending=ending)


def undone_again(chapter: Chapter) -> Chapter:
    again = [
        dataclasses.replace(n, life=chapter.lives - 1)
        for n in chapter.notes
        if n.what == "undoing"
    ]
    return dataclasses.replace(chapter, notes=[*chapter.notes, *again])


def not_undone(chapter: Chapter) -> Chapter:
    notes = [n for n in chapter.notes if n.what != "undone"]
    return dataclasses.replace(chapter, notes=notes)


DOCTORED_SAGAS: list[tuple[Callable[[Chapter], Chapter], str]] = [
    (undone_again, "undo:.* began in life 1, and its outcome was recorded"),
    (not_undone, "book .*, ok: undone is False, named is False"),
    (lambda chapter: without(chapter, UndoStarted), "began in life . without a durable intent"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("doctor", "found"), DOCTORED_SAGAS, ids=[found for _, found in DOCTORED_SAGAS]
)
def test_the_checks_notice_what_is_wrong_with_a_saga(
    doctor: Callable[[Chapter], Chapter], found: str, saga: tuple[Chapter, Ending]
) -> None:
    chapter, ending = saga

    assert [*wrongs(*saga, Tally())] == []
    assert re.search(found, "\n".join(wrongs(doctor(chapter), ending, Tally())))


DOCTORED: list[tuple[Callable[[Chapter], Chapter], str]] = [
    (with_another_hash, "acknowledged and lost"),
    (
        lambda chapter: dataclasses.replace(chapter, problem="entry 4 was changed"),
        "the chain: entry 4 was changed",
    ),
    (lambda chapter: with_again(chapter, ToolFinished), "recorded twice"),
    (asked_again, "what 0 effects were open for"),
    (
        lambda chapter: without(chapter, ModelReplied),
        "was given to nobody|model calls and recorded|the result tells",
    ),
    (started_again, "and its outcome was recorded"),
    (started_again, "which writes, started 2 times"),
    (
        under_another_key,
        "started under 'new', intended was '[0-9a-f]{16}:run-0:0#0'",
    ),
    (lambda chapter: without(chapter, ToolStarted), "without a durable intent"),
    (lambda chapter: with_status(chapter, "unknown"), "no model was told"),
    (spent_less, "the result tells"),
    (spent_less, "undisturbed it came to"),
]


@pytest.mark.parametrize(
    ("doctor", "found"), DOCTORED, ids=[found for _, found in DOCTORED]
)
def test_the_checks_notice_what_is_wrong(
    doctor: Callable[[Chapter], Chapter], found: str, resumed: tuple[Chapter, Ending]
) -> None:
    chapter, ending = resumed

    assert re.search(found, "\n".join(wrongs(doctor(chapter), ending, Tally())))
