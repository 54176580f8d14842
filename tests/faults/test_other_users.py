"""Another user of the machine cannot read, approve or steer, nor make the owner open a file of its choice."""

import asyncio
import os
import pickle
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loopwright import ReActEngine, Runtime, Suspend, tool
from loopwright.errors import JournalError
from loopwright.journals import SQLiteJournal
from loopwright.testing import ScriptedProvider, call

OWNER, OTHER = 20_001, 20_002
RUN = "the-run"
SECRET = "private words of the owner"
pytestmark = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can become two users"
)


@pytest.fixture(scope="module", autouse=True)
def _all_modules_are_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The children may not be able to read the files of Python itself."""
    path = tmp_path_factory.mktemp("first") / "runs.db"
    begin(path)
    send(path)
    go_on(path)
    asyncio.run(SQLiteJournal(path).export(path.parent / "out", [RUN]))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder like /tmp: everybody may make files there, and remove their own."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o1777)
        yield Path(name)


def as_user(user: int, work: Callable[[], Any]) -> Any:
    """Return what a function returns in a process of that user, or how it failed, as a text."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.umask(0)
            try:
                answer = work()
            except BaseException as error:  # noqa: BLE001 - the parent judges it
                answer = f"{type(error).__name__}: {error}"
            os.write(sink, pickle.dumps(answer))
        finally:
            os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as file:
        answer = pickle.loads(file.read())
    os.waitpid(child, 0)
    return answer


@tool(effect="destructive")
def wipe(what: str) -> str:
    """Wipe."""
    return f"{what} wiped"


def engine(path: Path) -> ReActEngine:
    provider = ScriptedProvider([call("wipe", what=SECRET), "done"])
    journal = SQLiteJournal(path)
    return ReActEngine(
        Runtime(provider, tools=[wipe], journal=journal, approver=Suspend())
    )


def begin(path: Path) -> str:
    """Run until a person is asked; return the status, and the error if it failed."""

    async def work() -> str:
        made = engine(path)
        result = await made.run("Go.", run_id=RUN)
        await made.runtime.journal.close()
        is_waiting = result.status == "waiting"
        return "waiting" if is_waiting else f"{result.status}: {result.error}"

    return asyncio.run(work())


def go_on(path: Path) -> str:
    """Resume the run; return its status and answer."""

    async def work() -> str:
        made = engine(path)
        result = await made.resume(RUN)
        await made.runtime.journal.close()
        return f"{result.status}: {result.answer}"

    return asyncio.run(work())


def send(path: Path) -> int:
    """Approve what the run asks about, as its owner could."""
    journal = SQLiteJournal(path)
    return journal.send(RUN, "approve", {"key": "0#0"})


def modes(folder: Path) -> dict[str, tuple[int, int]]:
    found = {file.name: file.lstat() for file in folder.iterdir()}
    return {name: (s.st_uid, stat.S_IMODE(s.st_mode)) for name, s in found.items()}


def test_all_files_are_private_to_the_owner_whatever_the_umask(folder: Path) -> None:
    path = folder / "runs.db"
    assert as_user(OWNER, lambda: begin(path)) == "waiting"
    assert as_user(OWNER, lambda: send(path)) == 1

    assert set(modes(folder).values()) == {(OWNER, 0o600)}
    assert {"runs.db", "runs.db.lock", "runs.db.inbox", "runs.db.inbox.lock"} <= set(
        modes(folder)
    )


def test_another_user_cannot_read_approve_or_steer(folder: Path) -> None:
    path = folder / "runs.db"
    as_user(OWNER, lambda: begin(path))
    attempts: dict[str, Callable[[], Any]] = {
        "list": lambda: SQLiteJournal(path).runs(),
        "read": lambda: SQLiteJournal(path).read(RUN),
        "approve": lambda: send(path),
        "steer": lambda: SQLiteJournal(path).send(RUN, "steer", {"text": "wipe it"}),
        "resume": lambda: go_on(path),
        "bytes": path.read_bytes,
    }
    for name, attempt in attempts.items():
        answer = as_user(OTHER, attempt)
        assert isinstance(answer, str), name
        assert answer.startswith(("JournalError", "PermissionError")), (name, answer)
        assert SECRET not in answer
    assert as_user(OWNER, lambda: go_on(path)).startswith("waiting")


@pytest.mark.parametrize(
    "ending",
    ["", ".lock", "-wal", "-shm", "-journal", ".inbox", ".inbox.lock", ".inbox-wal"],
)
def test_a_file_that_another_user_made_before_is_refused_with_the_cure(
    folder: Path, ending: str
) -> None:
    path = folder / "runs.db"
    planted = folder / f"runs.db{ending}"

    def plant() -> None:
        planted.touch()
        planted.chmod(0o666)

    if "inbox" in ending:
        as_user(OWNER, lambda: begin(path))
        as_user(OTHER, plant)
        answer = as_user(OWNER, lambda: send(path))
    else:
        as_user(OTHER, plant)
        answer = as_user(OWNER, lambda: begin(path))

    assert f"was made by another user (uid {OTHER})" in str(answer), answer
    assert f"chown {OWNER}" in str(answer)


def test_an_inbox_that_another_user_made_before_approves_nothing(folder: Path) -> None:
    """The whole of it: a true inbox with a true approval, made by somebody else."""
    path, elsewhere = folder / "runs.db", folder / "copy"
    as_user(OWNER, lambda: begin(path))
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    (elsewhere / "runs.db").write_bytes(path.read_bytes())
    os.chown(elsewhere, OTHER, OTHER)
    elsewhere.chmod(0o700)
    os.chown(elsewhere / "runs.db", OTHER, OTHER)
    assert as_user(OTHER, lambda: send(elsewhere / "runs.db")) == 1
    as_user(
        OTHER,
        lambda: (folder / "runs.db.inbox").write_bytes(
            (elsewhere / "runs.db.inbox").read_bytes()
        ),
    )
    os.chmod(folder / "runs.db.inbox", 0o666)

    answer = as_user(OWNER, lambda: go_on(path))
    assert "completed" not in answer
    assert f"was made by another user (uid {OTHER})" in answer


@pytest.mark.parametrize("ending", ["", ".lock", "-wal", ".inbox", ".inbox.lock"])
def test_a_link_that_another_user_made_leads_nowhere(folder: Path, ending: str) -> None:
    path, home = folder / "runs.db", folder / "home"
    home.mkdir()
    os.chown(home, OWNER, OWNER)
    home.chmod(0o700)
    victim = home / "other.db"
    as_user(OWNER, lambda: begin(victim))
    before = victim.read_bytes()
    if "inbox" in ending:
        as_user(OWNER, lambda: begin(path))
    link = folder / f"runs.db{ending}"
    as_user(OTHER, lambda: link.symlink_to(victim))
    answer = as_user(OWNER, lambda: send(path) if "inbox" in ending else begin(path))

    assert "symbolic link" in str(answer), answer
    assert "remove it" in str(answer)
    assert victim.read_bytes() == before


def test_a_link_of_another_user_to_a_folder_is_refused(folder: Path) -> None:
    (folder / "real").mkdir()
    os.chown(folder / "real", OWNER, OWNER)
    as_user(OTHER, lambda: (folder / "link").symlink_to(folder / "real"))
    as_user(OWNER, lambda: (folder / "mine").symlink_to(folder / "link"))

    for name in ("link", "mine"):
        path = folder / name / "runs.db"
        answer = as_user(OWNER, lambda path=path: begin(path))
        assert answer.startswith("ConfigError: SQLiteJournal: path: "), answer
        assert f"is a symbolic link of another user (uid {OTHER})" in answer


def test_own_links_and_files_are_used_as_ever(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert begin(tmp_path / "link" / "runs.db") == "waiting"
    assert (tmp_path / "real" / "runs.db").exists()


def test_files_and_folders_that_others_may_write_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    begin(path)
    path.chmod(0o660)
    with pytest.raises(
        JournalError, match=r"may be written by other users: chmod go-w"
    ):
        SQLiteJournal(path).runs()
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(JournalError, match=r"lets every user replace its files: chmod"):
        SQLiteJournal(path).runs()
    tmp_path.chmod(0o700)
    assert [info.run_id for info in SQLiteJournal(path).runs()] == [RUN]


def test_an_export_does_not_follow_a_link_that_another_user_made(folder: Path) -> None:
    path, kept = folder / "runs.db", folder / "kept"
    victim, left = kept / "out", folder / "out.abcdefgh.part"
    as_user(OWNER, lambda: begin(path))
    as_user(OWNER, kept.mkdir)
    as_user(OWNER, lambda: victim.write_text("mine"))
    as_user(OTHER, lambda: left.symlink_to(kept))  # as the draft of a process that died

    def export() -> list[str]:
        return asyncio.run(SQLiteJournal(path).export(folder / "out", [RUN]))

    assert as_user(OWNER, export) == [RUN]
    assert victim.read_text() == "mine"
    assert left.is_symlink()  # it is not the owner's to remove
