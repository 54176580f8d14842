"""What must hold of a run that was killed: nothing kept is lost, nothing recorded is repeated, nothing is forgotten."""

import asyncio
import dataclasses
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kill_model import Asked
from kill_notes import Ending, Note, Scenario, read_notes
from kill_programs import COMPENSATED
from loopwright.events import (
    AttemptFailed,
    Entry,
    GateDecided,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RecoveryTriggered,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolStarted,
    UndoFinished,
    UndoStarted,
)
from loopwright.journals import SQLiteJournal
from loopwright.messages import canonical_json


@dataclasses.dataclass(frozen=True)
class Story:
    """A scenario from its beginning to its end: how each life ended, and what the last one told."""

    scenario: Scenario
    folder: Path
    statuses: list[int]
    seconds: float
    """How long the last life took."""
    endings: list[Ending]
    asked: list[Asked]

    @property
    def kills(self) -> int:
        """How many processes died."""
        return sum(status == -signal.SIGKILL for status in self.statuses)

    def chapters(self) -> "list[Chapter]":
        """Each run by itself, with all that its journal and its witnesses say."""
        notes = list(read_notes(self.folder))
        journal = SQLiteJournal(self.folder / "runs.db")
        found: list[Chapter] = []
        for ending in self.endings:
            run = ending["run"]
            entries, verified = journal.read(run), journal.verify(run, ending["head"])
            asked = [one for one in self.asked if one.run == run]
            of_it = [note for note in notes if note.run == run]
            found.append(
                Chapter(
                    ending, entries, verified.problem, of_it, asked, len(self.statuses)
                )
            )
        asyncio.run(journal.close())
        return found


@dataclasses.dataclass(frozen=True)
class Chapter:
    """One run of a story: how it ended, its entries, what is wrong with their chain, and what was witnessed."""

    ending: Ending
    entries: list[Entry]
    problem: str
    notes: list[Note]
    asked: list[Asked]
    lives: int

    def fence(self, life: int) -> int:
        """The number under which a process wrote; that of the one before if it came to nothing."""
        return max(
            (n.fence for n in self.notes if n.what == "claimed" and n.life <= life),
            default=0,
        )

    def claimed(self, life: int) -> bool:
        """Whether a process had the right to write."""
        return any(note.what == "claimed" and note.life == life for note in self.notes)

    def by(self, kind: type[object], below: int) -> set[str]:
        """The keys of such entries that processes with a number below this one wrote."""
        return {
            entry.key
            for entry in self.entries
            if entry.fence < below and isinstance(entry.event, kind)
        }

    @property
    def intents(self) -> dict[str, tuple[int, ToolStarted]]:
        """Each call that was about to run, by its key, and under which number that was written."""
        return {
            e.key: (e.fence, e.event)
            for e in self.entries
            if isinstance(e.event, ToolStarted)
        }

    @property
    def unknown(self) -> set[str]:
        """The calls of which nobody knows whether they took effect."""
        return {
            e.key
            for e in self.entries
            if isinstance(e.event, ToolFinished) and e.event.status == "unknown"
        }


@dataclasses.dataclass
class Tally:
    """What was found, added up; `wrongs` are the promises that were broken, in words, and shall be none."""

    kills: int = 0
    stories: int = 0
    acknowledged: int = 0
    lost: int = 0
    asked: int = 0
    asked_again: int = 0
    recorded_repeated: int = 0
    tools_started: int = 0
    repeated_same_key: int = 0
    writes_repeated: int = 0
    unknown: int = 0
    wrongs: list[str] = dataclasses.field(default_factory=list[str])

    def __iadd__(self, other: "Tally") -> "Tally":
        """Both together."""
        for field in dataclasses.fields(self):
            setattr(
                self, field.name, getattr(self, field.name) + getattr(other, field.name)
            )
        return self

    def __str__(self) -> str:
        return (
            f"{self.kills} kills in {self.stories} runs; {self.acknowledged} entries acknowledged, {self.lost} lost; "
            f"{self.asked} model calls, {self.asked_again} asked again in doubt; {self.tools_started} tool starts, "
            f"{self.repeated_same_key} repeated in doubt under the same key; {self.recorded_repeated} recorded calls "
            f"repeated, {self.writes_repeated} writes repeated, {self.unknown} told as unknown"
        )


def checked(story: Story, undisturbed: Story | None = None) -> Tally:
    """All that a story shows; with `undisturbed`, it must come to the same where nothing is unknown."""
    tally = Tally(kills=story.kills, stories=len(story.endings))
    others = undisturbed.endings if undisturbed else [None] * len(story.endings)
    for chapter, expected in zip(story.chapters(), others, strict=True):
        where = f"{story.folder.name} {story.scenario}, {chapter.ending['run']}"
        tally.wrongs += [
            f"{where}: {wrong}" for wrong in wrongs(chapter, expected, tally)
        ]
    return tally


def wrongs(chapter: Chapter, expected: Ending | None, tally: Tally) -> Iterator[str]:
    """The promises that a run broke, in words."""
    yield from _kept(chapter, tally)
    yield from _asked_once(chapter, tally)
    yield from _replies_are_of_their_life(chapter)
    yield from _started_once(chapter, tally)
    yield from _written_once(chapter, tally)
    yield from _told(chapter, tally)
    yield from _undone(chapter)
    yield from _restored(chapter)
    if expected is not None:
        yield from _same_end(chapter, expected)


def _kept(chapter: Chapter, tally: Tally) -> Iterator[str]:
    """Every entry that a barrier returned for is there, and the chain is whole."""
    hashes = {entry.seq: entry.hash for entry in chapter.entries}
    promised = {(note.seq, note.hash) for note in chapter.notes if note.what == "kept"}
    lost = sorted((seq, head) for seq, head in promised if hashes.get(seq) != head)
    tally.acknowledged += max((seq for seq, _ in promised), default=0)
    if lost:
        first = lost[0][
            0
        ]  # all between the barrier before and this one is another, or gone
        before = max(
            (seq for seq, head in promised if seq < first and hashes.get(seq) == head),
            default=0,
        )
        tally.lost += max(seq for seq, _ in lost) - before
        yield f"acknowledged and lost: {lost}"
    if chapter.problem:
        yield f"the chain: {chapter.problem}"
    finished = Counter(
        (e.key, e.kind)
        for e in chapter.entries
        if isinstance(e.event, (ModelReplied, ToolFinished))
    )
    if twice := [what for what, times in finished.items() if times > 1]:
        yield f"recorded twice: {twice}"


def _asked_once(chapter: Chapter, tally: Tally) -> Iterator[str]:
    """What has a recorded reply is not asked again, by its key and by what goes over the wire."""
    by_stamp = {asked.stamp: asked for asked in chapter.asked}
    about = {
        entry.key: by_stamp[entry.event.completion.model].about
        for entry in chapter.entries
        if isinstance(entry.event, ModelReplied)
        and entry.event.completion.model in by_stamp
    }
    tally.asked += len(chapter.asked)
    tally.asked_again += len(chapter.asked) - len(about)
    for life in range(chapter.lives):
        asked = Counter(one.about for one in chapter.asked if one.life == life)
        fence = chapter.fence(life)
        replied = chapter.by(ModelReplied, fence) | chapter.by(ModelFailed, fence)
        intended = chapter.by(ModelRequested, fence + 1)
        if asked and not chapter.claimed(life):
            yield f"life {life} asked a model and never had the run"
        if asked.total() > len(intended - replied):
            yield f"life {life} made {asked.total()} model calls, {len(intended - replied)} were intended and open"
        open_for = Counter(what for key, what in about.items() if key not in replied)
        known = set(about.values())
        for what, times in asked.items():
            if what in known and times > open_for[what]:
                tally.recorded_repeated += times - open_for[what]
                yield f"life {life} asked {times} times what {open_for[what]} effects were open for: {what[-300:]!r}"


def _replies_are_of_their_life(chapter: Chapter) -> Iterator[str]:
    """Each recorded reply is one that the server gave to the process that recorded it, and the last life loses none."""
    by_stamp = {asked.stamp: asked for asked in chapter.asked}
    replies = [e for e in chapter.entries if isinstance(e.event, ModelReplied)]
    stamps = [
        e.event.completion.model for e in replies if isinstance(e.event, ModelReplied)
    ]
    if len(set(stamps)) != len(stamps):
        yield "one reply is recorded for two effects"
    for entry, stamp in zip(replies, stamps, strict=True):
        asked = by_stamp.get(stamp)
        if asked is None or chapter.fence(asked.life) != entry.fence:
            yield f"the reply at {entry.key}, {stamp!r}, was given to nobody, or to another life"
    last = chapter.lives - 1
    made = sum(asked.life == last for asked in chapter.asked)
    here = (
        [e for e in chapter.entries if e.fence == chapter.fence(last)]
        if chapter.claimed(last)
        else []
    )
    recorded = sum(isinstance(e.event, ModelReplied) for e in here)
    intended = chapter.by(ModelRequested, 1000)
    timed_out = sum(isinstance(e.event, LimitHit) and e.key in intended for e in here)
    if not recorded <= made <= recorded + timed_out:
        yield f"the last life made {made} model calls and recorded {recorded}"


def _started_once(chapter: Chapter, tally: Tally) -> Iterator[str]:
    """No tool starts without a durable intent, after its recorded outcome, or twice in one life."""
    started = [note for note in chapter.notes if note.what == "started"]
    tally.tools_started += len(started)
    intents = chapter.intents
    for note in started:
        fence, intent = chapter.fence(note.life), intents.get(note.key)
        if intent is None or intent[0] > fence:
            yield f"{note.key} started in life {note.life} without a durable intent"
        elif intent[1].idempotency_key != note.idempotency_key:
            yield f"{note.key} started under {note.idempotency_key!r}, intended was {intent[1].idempotency_key!r}"
        if note.key in chapter.by(ToolFinished, fence):
            tally.recorded_repeated += 1
            yield f"{note.key} started in life {note.life}, and its outcome was recorded"
    in_one_life = Counter((note.life, note.key) for note in started)
    retries = Counter(
        e.key
        for e in chapter.entries
        if isinstance(e.event, RecoveryTriggered) and e.event.strategy == "retry"
    )
    if twice := [
        what for what, times in in_one_life.items() if times > 1 + retries[what[1]]
    ]:
        yield f"started twice in one life: {twice}"


def _written_once(chapter: Chapter, tally: Tally) -> Iterator[str]:
    """What writes starts once, whatever happens; what may be repeated is so under the same key."""
    intents = chapter.intents
    for key, times in Counter(
        note.key for note in chapter.notes if note.what == "started"
    ).items():
        if key in intents and intents[key][1].effect in ("read", "idempotent"):
            tally.repeated_same_key += times - 1
        elif times > 1:
            tally.writes_repeated += times - 1
            yield f"{key}, which writes, started {times} times"


def _told(chapter: Chapter, tally: Tally) -> Iterator[str]:
    """A call that writes and was interrupted is recorded as unknown, nothing else is, and the model hears of it."""
    intents = chapter.intents
    for entry in chapter.entries:
        if not isinstance(entry.event, ToolFinished) or entry.key not in intents:
            continue
        fence, intent = intents[entry.key]
        # What is being recovered has failed: its outcome is known.
        is_open = entry.key not in chapter.by(RecoveryTriggered, 1000)
        is_write = intent.effect in ("write", "destructive")
        in_doubt = entry.fence > fence and is_write and is_open
        if in_doubt != (entry.event.status == "unknown"):
            yield f"{entry.key} ({intent.effect}), begun under {fence}, is {entry.event.status} under {entry.fence}"
        if entry.event.status == "unknown":
            tally.unknown += 1
            if not any(
                canonical_json(entry.event.content)[1:-1] in asked.about
                for asked in chapter.asked
            ):
                yield f"no model was told that {entry.key} is unknown"


def _undone(chapter: Chapter) -> Iterator[str]:
    """A saga that did not complete is undone whole, each call under one key, and none again once that is recorded."""
    intents = {
        e.key: (e.fence, e.event.idempotency_key)
        for e in chapter.entries
        if isinstance(e.event, UndoStarted)
    }
    undoing = [note for note in chapter.notes if note.what == "undoing"]
    for note in undoing:
        fence, idempotency_key = intents.get(note.key, (chapter.lives + 1, ""))
        if fence > chapter.fence(note.life):
            yield f"{note.key} began in life {note.life} without a durable intent"
        elif idempotency_key != note.idempotency_key:
            yield f"{note.key} began under {note.idempotency_key!r}, intended was {idempotency_key!r}"
        if note.key in chapter.by(UndoFinished, chapter.fence(note.life)):
            yield f"{note.key} began in life {note.life}, and its outcome was recorded"
    if len({(note.life, note.key) for note in undoing}) < len(undoing):
        yield "a call was undone twice in one life"
    yield from _undone_wholly(chapter)


def _undone_wholly(chapter: Chapter) -> Iterator[str]:
    """Whatever a saga did is undone, or named in its error."""
    started, ended = chapter.entries[0].event, chapter.entries[-1].event
    if not isinstance(started, RunStarted) or not isinstance(ended, RunFinished):
        return
    if not started.saga or ended.status == "completed":
        return
    undone = {note.key for note in chapter.notes if note.what == "undone"}
    for entry in chapter.entries:
        event = entry.event
        if not isinstance(event, ToolFinished) or event.status not in ("ok", "unknown"):
            continue
        key = f"undo:{entry.key}"
        is_named = ended.error is not None and f"({entry.key})" in ended.error.message
        if event.tool in COMPENSATED and is_named == (key in undone):
            yield f"{event.tool} ({entry.key}), {event.status}: undone is {key in undone}, named is {is_named}"


def _restored(chapter: Chapter) -> Iterator[str]:
    """The result tells what the entries, and the server that was asked, add up to."""
    ending, last = chapter.ending, chapter.entries[-1].event
    by_stamp = {asked.stamp: asked.tokens for asked in chapter.asked}
    stamps = [
        e.event.completion.model
        for e in chapter.entries
        if isinstance(e.event, ModelReplied)
    ]
    used = [by_stamp[stamp] for stamp in stamps if stamp in by_stamp]
    tokens = [sum(tokens) for tokens in zip(*used, strict=True)] or [0, 0]
    failed = sum(isinstance(e.event, AttemptFailed) for e in chapter.entries)
    calls = (
        len(chapter.by(ModelRequested, 1000)),
        len(chapter.by(ToolStarted, 1000)),
        failed,
    )
    told = ending["llm_calls"], ending["tool_calls"], ending["tokens"]
    if told != (calls[0], calls[1], tokens) or failed:
        yield f"the result tells {told}, the entries {calls} and {tokens}"
    if (
        not isinstance(last, RunFinished)
        or (last.llm_calls, last.tool_calls) != told[:2]
    ):
        yield f"the last entry is not of a run that ended so: {last}"
    unasked = {
        e.key for e in chapter.entries if isinstance(e.event, ToolStarted)
    } - chapter.by(GateDecided, 1000)
    if unasked:
        yield f"no gate was asked about {unasked}"


def _same_end(chapter: Chapter, expected: Ending) -> Iterator[str]:
    """It came to the same as if nothing had happened; where something is unknown, to an end all the same."""
    if chapter.unknown:
        if (chapter.ending["status"], chapter.ending["answer"]) != (
            expected["status"],
            expected["answer"],
        ):
            yield f"with {chapter.unknown} unknown it came to {chapter.ending}"
        return
    told = {
        name: value
        for name, value in chapter.ending.items()
        if name not in ("head", "deltas")
    }
    wanted = {
        name: value
        for name, value in expected.items()
        if name not in ("head", "deltas")
    }
    if told != wanted:
        yield f"undisturbed it came to {wanted}, killed to {told}"
