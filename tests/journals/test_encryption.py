"""An encrypted journal: nothing that was said is in its files, and what is wrong with a key is said."""

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import structlog

from loopwright import (
    ConfigError,
    PromptSet,
    ReActEngine,
    Request,
    Result,
    Runtime,
    Suspend,
    tool,
)
from loopwright.clock import Clock
from loopwright.console.records import Records
from loopwright.errors import CodecError, JournalError
from loopwright.events import Codec, Entry, PayloadPlace
from loopwright.followups import EndedRun, FollowUp
from loopwright.gates import ApprovalGate
from loopwright.journals import RunFilter, RunHeader, SQLiteJournal
from loopwright.principals import Principal
from loopwright.run import Run
from loopwright.security import AESCodec
from loopwright.testing import FakeClock, Line, ScriptedProvider, call
from loopwright.worker import Worker

WORD = "quagmire"
"""What must stand nowhere."""
KEY, OTHER = "A" * 43 + "=", "B" * 42 + "A="


def build_codec(key: str = KEY, name: str = "2026") -> AESCodec:
    return AESCodec({name: key}, current=name)


@tool(effect="write")
def report(place: str) -> str:
    """Report a place."""
    return f"reported {place} and a {WORD * 20_000}"[:40_000]


def says(request: Request) -> Line:
    answered = any(message.role == "tool" for message in request.conversation)
    return f"A {WORD}." if answered else call("report", place=WORD)


def build_runtime(
    folder: Path, codec: Codec | None, *, clock: Clock | None = None, **options: Any
) -> Runtime:
    journal = SQLiteJournal(folder / "runs.db", codec=codec, clock=clock)
    return Runtime(
        ScriptedProvider(says), tools=[report], journal=journal, clock=clock, **options
    )


def find_word(folder: Path) -> list[str]:
    """Return the files in which the word stands."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file.name for file in files if WORD.encode() in file.read_bytes()]


class Diary(FollowUp):
    name = "diary"
    motto: str = ""

    async def follow(self, run: Run, ended: EndedRun) -> str:
        return f"It said: {ended.result.answer}"


async def test_no_file_of_an_encrypted_journal_holds_what_was_said(
    tmp_path: Path,
) -> None:
    codec, clock = build_codec(), FakeClock()
    runtime = build_runtime(
        tmp_path, codec, clock=clock, gate=ApprovalGate(["report"]),
        approver=Suspend(), after=[Diary(motto=f"My {WORD}")],
    )  # fmt: skip
    journal: Any = runtime.journal
    prompts = PromptSet(thought_alone=f"Look at the {WORD}.")
    engine = ReActEngine(runtime, prompts=prompts)
    waiting = await engine.run(f"Find the {WORD}.", run_id="one")
    [question] = waiting.pending
    await runtime.control("one").steer(f"It is a {WORD}.")
    await runtime.control("one").approve(question.id, by="Ada")
    result = await runtime.resume("one")
    runtime.agent("seeker", instructions=f"Look for a {WORD}.")
    await runtime.schedule("daily", "seeker", f"Look for a {WORD}.", cron="0 9 * * *")
    clock.advance(86_400)
    due = await runtime.drain()
    fork = await engine.fork("one", at=3)
    await journal.export(tmp_path / "out.jsonl", ["one"])
    await journal.backup(tmp_path / "copy.db")
    await runtime.aclose()

    assert result.answer == f"A {WORD}."
    assert (await runtime.resume("one@after:diary")).answer == f"It said: A {WORD}."
    assert [one.status for one in due] == ["waiting"], "the run of the schedule"
    assert find_word(tmp_path) == []
    listed = {info.run_id: info.options for info in journal.runs()}
    assert WORD in listed["one"]
    assert listed[fork] == listed["one"]
    assert WORD in listed["one@after:diary"]
    assert [entry.seq for entry in journal.read(fork)] == [1, 2, 3, 4]
    assert journal.inbox("one")[0].body["text"] == f"It is a {WORD}."
    assert [one.task for one in journal.schedules.read()] == [f"Look for a {WORD}."]
    assert (await runtime.metrics()).runs["completed"] == 1
    assert [
        one for info in journal.runs() if not (one := journal.verify(info.run_id)).ok
    ] == []
    assert journal.verify("one", policy=True).ok
    copy = SQLiteJournal(tmp_path / "copy.db", codec=codec)
    assert copy.read("one") == journal.read("one")
    elsewhere = SQLiteJournal(tmp_path / "import.db", codec=codec)
    await elsewhere.import_(tmp_path / "out.jsonl")
    assert elsewhere.read("one") == journal.read("one")
    for one in (journal, copy, elsewhere):
        await one.close()


async def run_once(folder: Path, codec: Codec | None, run_id: str = "one") -> Result:
    runtime = build_runtime(folder, codec)
    result = await ReActEngine(runtime).run(f"Find the {WORD}.", run_id=run_id)
    await runtime.journal.close()
    return result


@pytest.mark.parametrize(
    ("codec", "problem"),
    [
        (None, "is encoded; open the journal with its codec"),
        (build_codec(OTHER), "is encrypted with another key than the one that the codec has as '2026'"),
        (build_codec(OTHER, "2027"), "is encrypted with key '2026', which the codec does not have; it has 2027"),
    ],
    ids=["no codec", "another key", "another name"],
)  # fmt: skip
async def test_a_journal_without_its_key_is_listed_and_verified_and_not_read(
    tmp_path: Path, codec: Codec | None, problem: str
) -> None:
    result = await run_once(tmp_path, build_codec())
    runtime = build_runtime(tmp_path, codec)
    journal: Any = runtime.journal

    assert [info.run_id for info in journal.runs(where=RunFilter(engine="react"))]
    assert journal.verify("one", result.head_hash).ok
    with pytest.raises(CodecError, match=f"run 'one', entry 1 run_started: {problem}"):
        await runtime.resume("one")
    checked = journal.verify("one", policy=True)
    assert not checked.ok
    assert problem in checked.problem
    assert [info.options for info in journal.runs()] == [""]


async def test_a_worker_without_the_key_leaves_a_run_as_it_is(tmp_path: Path) -> None:
    writer = build_runtime(
        tmp_path, build_codec(), gate=ApprovalGate(["report"]), approver=Suspend()
    )
    waiting = await ReActEngine(writer).run("Find it.", run_id="one")
    await writer.control("one").approve(waiting.pending[0].id)
    other = build_runtime(tmp_path, build_codec(OTHER), approver=Suspend(), lease=30.0)

    assert await Worker(other).drain() == []

    [info] = writer.journal.runs()
    assert (info.status, info.head_seq) == ("waiting", len(writer.journal.read("one")))
    assert (await writer.resume("one")).answer == f"A {WORD}."


async def test_a_schedule_without_its_key_holds_up_no_run_and_can_be_deleted(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    writer = build_runtime(tmp_path, build_codec(), clock=clock)
    daily: dict[str, Any] = {"cron": "0 9 * * *"}
    writer.agent("seeker", instructions="Look.")
    await writer.schedule("old", "seeker", f"Look for a {WORD}.", **daily)
    other = build_runtime(tmp_path, build_codec(OTHER, "2027"), clock=clock, lease=30.0)
    other.agent("seeker", instructions="Look.")
    with structlog.testing.capture_logs() as logs:
        await other.schedule("new", "seeker", f"Look for a {WORD}.", **daily)
        clock.advance(86_400)
        done = await Worker(other).drain()
        assert [one.name for one in await other.schedules.list()] == ["new"]
        with pytest.raises(CodecError, match="schedule old: is encrypted with key"):
            await other.schedules.pause("old")

    assert [one.run_id.partition(".")[0] for one in done] == ["new"]
    skipped = [line["schedule"] for line in logs if line["event"] == "schedule_skipped"]
    assert skipped == ["old"], "it is said, and once"
    await other.schedules.delete("old")
    again = await other.schedule("old", "seeker", "Look again.", **daily)
    assert (again.generation, again.revision) == (3, 3)
    assert [one.name for one in await writer.schedules.list()] == []


async def test_schedules_that_cannot_be_read_hold_up_no_run(tmp_path: Path) -> None:
    runtime = build_runtime(
        tmp_path, None, gate=ApprovalGate(["report"]), approver=Suspend(), lease=30.0
    )
    runtime.agent("seeker", instructions="Look.")
    await runtime.schedule("daily", "seeker", "Look.", cron="0 9 * * *")
    waiting = await ReActEngine(runtime).run("Find it.", run_id="one")
    await runtime.control("one").approve(waiting.pending[0].id)
    await runtime.journal.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as file, file:
        file.execute("ALTER TABLE schedules RENAME COLUMN body TO lost")
    other = build_runtime(tmp_path, None, lease=30.0)

    with structlog.testing.capture_logs() as logs:
        [result] = await Worker(other).drain()

    assert result.answer == f"A {WORD}."
    assert "schedules_unreadable" in [line["event"] for line in logs]


async def test_a_run_without_its_key_is_counted_shown_and_deleted(
    tmp_path: Path,
) -> None:
    await run_once(tmp_path, build_codec())
    await run_once(tmp_path, build_codec(OTHER, "2027"), "two")
    runtime = build_runtime(tmp_path, build_codec(OTHER, "2027"))
    found = await runtime.metrics()
    records = Records(runtime.journal)
    journal: Any = runtime.journal

    assert (found.runs, found.unreadable) == ({"completed": 2}, 1)
    assert found.llm_calls == 2
    assert records.digest("one").seq == len(journal.read("one"))
    assert await journal.delete("one") == ["one"]
    assert (await runtime.metrics()).unreadable == 0


async def test_a_key_is_rotated_and_the_old_one_still_reads(tmp_path: Path) -> None:
    await run_once(tmp_path, build_codec())
    both = AESCodec({"2026": KEY, "2027": OTHER}, current="2027")
    await run_once(tmp_path, both, "two")
    journal = SQLiteJournal(tmp_path / "runs.db", codec=both)
    new = SQLiteJournal(tmp_path / "runs.db", codec=build_codec(OTHER, "2027"))

    assert journal.read("one")[-1].kind == journal.read("two")[-1].kind
    assert [e.event for e in new.read("two")] == [e.event for e in journal.read("two")]
    with pytest.raises(CodecError, match="'2026', which the codec does not have"):
        _ = new.read("one")[0].event


async def test_a_journal_from_before_its_codec_is_read_and_continued(
    tmp_path: Path,
) -> None:
    waits: dict[str, Any] = {"gate": ApprovalGate(["report"]), "approver": Suspend()}
    plain = build_runtime(tmp_path, None, **waits)
    waiting = await ReActEngine(plain).run("Find it.", run_id="one")
    await plain.control("one").approve(waiting.pending[0].id)
    before = plain.journal.read("one")
    await plain.journal.close()
    runtime = build_runtime(tmp_path, build_codec(), **waits)

    assert (await runtime.resume("one")).answer == f"A {WORD}."
    entries = runtime.journal.read("one")
    assert entries[: len(before)] == before
    assert not any(WORD.encode() in entry.body for entry in entries[len(before) :])
    assert runtime.journal.verify("one", policy=True).ok  # type: ignore[call-arg]


async def test_tenants_have_keys_of_their_own(tmp_path: Path) -> None:
    keys = {"shared": KEY, "acme": OTHER}
    codec = AESCodec(keys, current="shared", tenants={"acme": "acme"})
    waits: dict[str, Any] = {"gate": ApprovalGate(["report"]), "approver": Suspend()}
    runtime = build_runtime(tmp_path, codec, **waits)
    for number, tenant in enumerate(("acme", "zen")):
        waiting = await ReActEngine(runtime).run(
            "Find it.", run_id=f"run-{number}", principal=Principal("ada", tenant)
        )
        await runtime.control(waiting.run_id).approve(
            waiting.pending[0].id, by=Principal("ada", tenant)
        )
        await runtime.resume(waiting.run_id)
    own = SQLiteJournal(tmp_path / "runs.db", codec=build_codec(OTHER, "acme"))

    assert [entry.event for entry in own.read("run-0")]
    assert own.inbox("run-0")
    with pytest.raises(CodecError, match="key 'shared'"):
        _ = own.read("run-1")[0].event
    with structlog.testing.capture_logs() as logs:
        assert own.inbox("run-1") == []
    assert "key 'shared'" in logs[0]["error"]


async def test_an_entry_that_was_moved_or_changed_does_not_decrypt(
    tmp_path: Path,
) -> None:
    codec = build_codec()
    place = PayloadPlace("one", "entry 1 run_started")
    encoded = codec.encode(b"{}", place)

    assert codec.decode(encoded, place) == b"{}"
    for wrong in (
        PayloadPlace("two", "entry 1 run_started"),
        PayloadPlace("one", "entry 2 run_started"),
    ):
        with pytest.raises(CodecError, match="it was changed, or is from another"):
            codec.decode(encoded, wrong)
    for number in range(len(encoded)):
        changed = bytearray(encoded)
        changed[number] ^= 1
        with pytest.raises(CodecError):
            codec.decode(bytes(changed), place)
        with pytest.raises(CodecError):
            codec.decode(encoded[:number], place)


class Broken:
    """A codec whose key manager is away."""

    def encode(self, payload: bytes, place: PayloadPlace) -> bytes:
        raise OSError("no route to the key manager")

    def decode(self, encoded: bytes, place: PayloadPlace) -> bytes:
        raise OSError("no route to the key manager")


async def test_a_codec_that_fails_ends_the_run_before_anything_is_stored(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, Broken())

    with pytest.raises(CodecError, match="cannot be encoded: OSError: no route"):
        await ReActEngine(runtime).run(f"Find the {WORD}.")
    assert runtime.journal.runs() == []


async def test_a_journal_with_a_codec_stores_no_entry_as_it_is(tmp_path: Path) -> None:
    journal = SQLiteJournal(tmp_path / "runs.db", codec=build_codec())
    claim = journal.create(RunHeader("one", "react", "{}", "1", "me", 0.0))
    entry = Entry("one", 1, "", "run_started", 0.0, 1, 1, b"{}", "")

    with pytest.raises(JournalError, match="entry 1 is not encoded"):
        journal.append(claim, [entry])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('current = "a"\n[keys]\na = "no:X"', "the source must be env:NAME"),
        ('current = "a"\n[keys]\na = "env:NOT_THERE"', "variable NOT_THERE is not set"),
        ('current = "b"\n[keys]\na = "env:THE_KEY"', "there is no key 'b'; there are: a"),
        ('current = "a"\n[keys]\na = "env:SHORT"', "must be 32 bytes, or those in base64, got 5"),
        ('[keys]\na = "env:THE_KEY"', "current: Field required"),
        ('current = "a"\n[keys]\na = "env:THE_KEY"\n[tenants]\nx = "c"', r"tenants\['x'\]: there is no key 'c'"),
        ("current = ", "key file"),
    ],
)  # fmt: skip
def test_a_key_file_that_does_not_fit_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    monkeypatch.setenv("SHORT", "aGVsbG8=")
    file = tmp_path / "keys.toml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=problem) as caught:
        AESCodec.from_file(file)
    assert "keys.toml" in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "current", "problem"),
    [
        ({KEY: "2026"}, "2026", "keys: name 1: looks like a key itself"),
        ({"2026": OTHER, KEY[:-2]: "2027"}, "2026", "keys: key 2: must be 32 bytes"),
        ({KEY * 2: OTHER}, "2026", "keys: name 1: must be printable"),
        ({"2026": OTHER}, KEY, "there is no key of that name, which is a key itself"),
    ],
    ids=["swapped", "swapped and cut", "swapped and long", "current"],
)
def test_no_error_about_keys_shows_one(
    keys: dict[str, str], current: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        AESCodec(keys, current=current)
    assert KEY[:-2] not in str(caught.value)


def test_no_error_about_a_key_file_shows_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    for table in (f'"{KEY}" = "2026"', f'2026 = "{KEY}"'):
        file.write_text(f'current = "2026"\n[keys]\n{table}\n')
        with pytest.raises(ConfigError, match=r"keys\.toml") as caught:
            AESCodec.from_file(file)
        assert KEY[:12] not in str(caught.value)


REFUSED = (
    "this journal is encoded by AESCodec with key '2026', .* open it with its codec: "
    ".*LOOPWRIGHT_JOURNAL_KEYS, or write to another file"
)


async def test_a_process_without_the_codec_adds_nothing_that_stays_readable(
    tmp_path: Path,
) -> None:
    waits: dict[str, Any] = {"gate": ApprovalGate(["report"]), "approver": Suspend()}
    plain = build_runtime(tmp_path, None, **waits)
    waiting = await ReActEngine(plain).run("Find it.", run_id="old")
    await plain.schedule("daily", "react", "Look.", cron="0 9 * * *")
    old: Any = plain.journal
    await old.export(tmp_path / "plain.jsonl", ["old"])
    await run_once(tmp_path, build_codec())
    await old.export(tmp_path / "encoded.jsonl", ["one"])
    began = await ReActEngine(plain).run(f"Find the {WORD}.", run_id="new")

    assert isinstance(began.error, CodecError)
    assert re.search(REFUSED, str(began.error))
    assert [info.run_id for info in old.runs()] == ["one", "old"]
    resumed = await plain.resume("old")
    assert re.search(REFUSED, str(resumed.error))
    for refused in (
        plain.control("old").approve(waiting.pending[0].id, by=WORD),
        plain.schedule("hourly", "react", f"Look for a {WORD}.", cron="0 * * * *"),
        plain.schedules.pause("daily"),
    ):
        with pytest.raises(CodecError, match=REFUSED):
            await refused
    assert await old.delete("old") == ["old"], "what is readable may go"
    with pytest.raises(CodecError, match=REFUSED):
        await old.import_(tmp_path / "plain.jsonl")
    await plain.schedules.delete("daily")
    assert await old.delete("one") == ["one"]
    await old.close()
    other = SQLiteJournal(tmp_path / "other.db")
    await other.import_(tmp_path / "encoded.jsonl")
    await other.close()
    assert find_word(tmp_path) == ["plain.jsonl"]


async def test_options_of_a_run_that_were_changed_are_found(tmp_path: Path) -> None:
    await run_once(tmp_path, build_codec())
    await run_once(tmp_path, build_codec(), "two")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        connection.execute(
            """UPDATE runs SET options = (SELECT options FROM runs WHERE run_id = 'two')
               WHERE run_id = 'one'"""
        )
        connection.commit()
    journal = SQLiteJournal(tmp_path / "runs.db", codec=build_codec())

    assert "options of the run is ''" in journal.verify("one").problem
    assert journal.verify("two").ok
