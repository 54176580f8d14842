"""A journal that was cut, or in which bits fell over, is found, shorter or unharmed, and never in a wrong state."""

import contextlib
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from damaged_journals import Made, Work, bisect, judged, made, tally, worst
from fault_sizes import figure, sized
from loopwright import ReActEngine
from loopwright.errors import ConfigError, JournalError, LoopwrightError
from loopwright.events import ToolFinished, ToolStarted
from loopwright.journals import SQLiteJournal

SHORT, LONG = 400, 10_000  # bits


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def tidied(kept: Made, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The same journal with all of it in the file and nothing in the log."""
    path = kept.put(tmp_path_factory.mktemp("tidied") / "whole")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Made(
        {**kept.files, "-wal": b"", "": path.read_bytes()},
        kept.entries,
        kept.infos,
        kept.commands,
    )


def sizes(first: int, last: int, short: int) -> list[int]:
    """Sizes to cut a file to: all of them in the long run, else some and the ends."""
    every = range(first, last + 1)
    some = every[:: max(len(every) // short, 1)]
    return sorted({*(every if sized(0, 1) else some), first, last}, reverse=True)


def test_the_whole_journal_is_whole(kept: Made, tidied: Made, tmp_path: Path) -> None:
    assert tally(kept.put(tmp_path / "kept"), kept) == {"whole": len(kept.infos) + 1}
    assert tally(tidied.put(tmp_path / "tidied"), tidied) == {
        "whole": len(kept.infos) + 1
    }
    assert [info.status for info in kept.infos.values()].count("running") == 1


# Cut files


@pytest.mark.timeout(1800)
def test_a_log_cut_at_any_byte_of_the_last_two_entries_leaves_a_shorter_run(
    kept: Made, tmp_path: Path
) -> None:
    log, commits, entries = kept.files["-wal"], kept.commits(), kept.entries["open"]

    def holds_all_but_one(commit: int) -> bool:
        path = kept.put(tmp_path / "seeking", wal=log[: commits[commit]])
        with contextlib.suppress(LoopwrightError):
            return len(SQLiteJournal(path).read("open")) >= len(entries) - 1
        return False

    first = commits[bisect(0, len(commits) - 1, holds_all_but_one) - 1]
    path = kept.put(tmp_path / "cut")
    cuts: Counter[str] = Counter()
    for size in sizes(first, len(log), 250):
        Path(f"{path}-shm").unlink(missing_ok=True)
        with open(f"{path}-wal", "r+b") as file:
            file.truncate(size)
        cuts[judged(path, "open", kept)] += 1
        assert judged(path, "plain", kept) == "whole"

    assert set(cuts) == {"whole", "cut"}
    assert cuts["whole"] == 1
    figure(
        "logs cut at a byte of the last two entries",
        f"{cuts.total()}, all but the whole one shorter runs",
    )


@pytest.mark.timeout(1800)
def test_a_file_cut_at_any_byte_of_the_last_two_entries_says_so(
    tidied: Made, tmp_path: Path
) -> None:
    whole, last = tidied.files[""], tidied.entries["open"][-2:]
    first, end = (
        min(whole.rindex(entry.body) for entry in last),
        max(whole.rindex(e.body) + len(e.body) for e in last),
    )
    path = tidied.put(tmp_path / "cut")
    cuts: Counter[str] = Counter()
    for size in [*sizes(end, len(whole), 50), *sizes(first, end, 100)]:
        with open(path, "r+b") as file:
            file.truncate(size)
        cuts[worst(tally(path, tidied))] += 1

    assert set(cuts) <= {"whole", "found"}
    assert cuts["whole"] <= 1
    figure(
        "files cut at a byte of the last two entries or behind",
        f"{cuts['found']} of {cuts.total()} found",
    )


async def test_a_run_whose_log_was_cut_resumes_without_repeating_what_is_left(
    kept: Made, tmp_path: Path
) -> None:
    ended: Counter[str] = Counter()
    for number, size in enumerate([0, 20, *kept.commits()]):
        path = kept.put(tmp_path / f"{number}", wal=kept.files["-wal"][:size])
        for run_id in kept.infos:
            ended[await resumed(path, run_id)] += 1

    assert set(ended) == {"completed", "UnknownRun"}
    assert ended["completed"] > 2 * len(kept.commits())
    figure(
        "runs of cut logs that were resumed",
        ", ".join(f"{count} {how}" for how, count in ended.items()),
    )


async def resumed(path: Path, run_id: str) -> str:
    """How a run of a damaged copy ends when it is resumed; what it has recorded must not be done again."""
    journal, work = SQLiteJournal(path), Work()
    work.working.set()
    try:
        left = journal.read(run_id)
        result = await ReActEngine(work.runtime(journal)).resume(run_id, take_over=True)
    except (JournalError, ConfigError) as error:
        assert not work.ran
        return type(error).__name__
    finally:
        await journal.close()
    done = {entry.key for entry in left if isinstance(entry.event, ToolFinished)}
    begun = {
        e.key
        for e in left
        if isinstance(e.event, ToolStarted) and e.event.effect == "write"
    }
    assert not (done | begun) & work.ran.keys()
    assert journal.verify(run_id, result.head_hash).ok
    return result.status


# Bits that fall over


@pytest.fixture(scope="module")
def flipped(
    kept: Made, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Counter[str]]:
    """What is found of copies with one bit changed, by the file it was changed in."""
    chance, path = (
        random.Random(11),
        kept.put(tmp_path_factory.mktemp("flipped") / "copy"),
    )
    found: dict[str, Counter[str]] = {ending: Counter() for ending in kept.files}
    endings = [
        chance.choices(("", "-wal", ".inbox", "-shm"), (8, 8, 3, 1))[0]
        for _ in range(sized(SHORT, LONG))
    ]
    for ending in endings:
        Path(f"{path}-shm").unlink(missing_ok=True)
        file = Path(f"{path}{ending}")
        if not file.exists():
            file.write_bytes(kept.files[ending])
        with flipped_bit(
            file, chance.randrange(len(kept.files[ending])), 1 << chance.randrange(8)
        ):
            found[ending][worst(tally(path, kept))] += 1
    return found


@contextlib.contextmanager
def flipped_bit(file: Path, place: int, bit: int) -> Iterator[None]:
    """A file with one bit changed."""
    with open(file, "r+b") as opened:
        opened.seek(place)
        (whole,) = opened.read(1)
        opened.seek(place)
        opened.write(bytes([whole ^ bit]))
        opened.flush()
        yield
        opened.seek(place)
        opened.write(bytes([whole]))


@pytest.mark.timeout(3600)
def test_a_flipped_bit_anywhere_is_found_or_cut_off_or_changes_nothing(
    flipped: dict[str, Counter[str]],
) -> None:
    in_all = sum(flipped.values(), Counter[str]())

    assert in_all.total() == sized(SHORT, LONG)
    assert flipped["-wal"]["cut"] > flipped["-wal"]["whole"]
    assert flipped[""]["cut"] == 0
    assert not flipped.get("-shm", Counter()).keys() - {
        "whole"
    }  # made anew by who opens the file first
    told = in_all["found"] + in_all["cut"] + in_all["misread"]
    figure(
        "bits flipped",
        f"{in_all.total()}: {told} found, {in_all['whole']} without any effect, 0 in a wrong state",
    )


@pytest.mark.timeout(3600)
def test_no_run_is_read_wrong_because_of_a_flipped_bit(
    flipped: dict[str, Counter[str]],
) -> None:
    assert {
        ending: found["misread"] for ending, found in flipped.items()
    } == dict.fromkeys(flipped, 0)


async def test_a_run_in_which_a_bit_fell_over_is_not_resumed(
    tidied: Made, tmp_path: Path
) -> None:
    body = tidied.entries["open"][5].body  # what a tool said
    place = tidied.files[""].rindex(body) + body.index(b"blue")
    path = tidied.put(tmp_path / "copy")
    with flipped_bit(path, place, 1):
        assert not SQLiteJournal(path).verify("open").ok
        assert await resumed(path, "open") == "JournalError"


async def test_a_fork_is_not_made_of_a_run_in_which_a_bit_fell_over(
    tidied: Made, tmp_path: Path
) -> None:
    body = tidied.entries["plain"][5].body
    path = tidied.put(tmp_path / "copy")
    journal = SQLiteJournal(path)

    with (
        flipped_bit(path, tidied.files[""].index(body) + 5, 1),
        pytest.raises(JournalError, match="plain"),
    ):
        await ReActEngine(Work().runtime(journal)).fork("plain", at=3)
    await journal.close()
