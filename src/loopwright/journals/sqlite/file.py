"""One SQLite file as a journal keeps it: private, recognised, locked between processes, its errors explained."""

import contextlib
import dataclasses
import errno
import os
import sqlite3
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from ...errors import ConfigError, JournalError

try:
    import fcntl
except ImportError:  # the system has no such locks
    _flock, _take, _free = None, 0, 0
else:
    _flock, _take, _free = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]


@dataclasses.dataclass(frozen=True)
class Format:
    """What a file holds: `application_id` tells it from other databases, `version` from what is to come."""

    application_id: int
    version: int
    tables: tuple[str, ...]
    indexes: tuple[str, ...] = ()  # only for speed: a file may lack them


# No column type for `at`: SQLite would turn 1 into 1.0 and -0.0 into 0.0, and the entry's hash covers the exact number.
# `events.body` is a BLOB, or TEXT for a body that was moved to `blobs`: the two cannot be confused.
RUNS = Format(
    0x4C6F7057,  # "LopW"
    1,
    (
        """CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, engine TEXT NOT NULL, options TEXT NOT NULL, version TEXT NOT NULL,
        status TEXT NOT NULL, owner TEXT, fence INTEGER NOT NULL, lease_until REAL,
        head_seq INTEGER NOT NULL, head_hash TEXT NOT NULL, parent_run TEXT, fork_seq INTEGER, created NOT NULL)""",
        """CREATE TABLE events (
        id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL,
        at NOT NULL, v INTEGER NOT NULL, fence INTEGER NOT NULL, body BLOB NOT NULL, hash TEXT NOT NULL,
        UNIQUE (run_id, seq))""",
        "CREATE TABLE blobs (sha256 TEXT PRIMARY KEY, bytes BLOB NOT NULL)",
    ),
    ("CREATE INDEX IF NOT EXISTS runs_by_status ON runs (status)",),
)
# Pages of the write-ahead log (4 KiB each) that gather before they are copied into the file. A log that stays small is
# soon overwritten instead of growing, and flushing a file that grows costs half as much again.
CHECKPOINT_PAGES = 256
LOCK_POLL = 0.001

_CURES = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_BUSY: "another program holds it: stop that program, or give a longer busy_timeout",
    sqlite3.SQLITE_LOCKED: "another program holds it: stop that program, or give a longer busy_timeout",
    sqlite3.SQLITE_READONLY: "it is read-only: make the file and its folder writable",
    sqlite3.SQLITE_PERM: "access is denied: make the file and its folder writable",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: see that the folder exists and that both may be read and written",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database: choose another path",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a copy, or choose another path",
    sqlite3.SQLITE_IOERR: "the disk failed, is full or a file size limit was hit: see to the disk",
}
_SAME_TROUBLE = {
    errno.EACCES: sqlite3.SQLITE_PERM,
    errno.EPERM: sqlite3.SQLITE_PERM,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.ENOENT: sqlite3.SQLITE_CANTOPEN,
    errno.ENOSPC: sqlite3.SQLITE_FULL,
}


def checked_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a journal file; raises `ConfigError` if no file can be there."""
    text = os.fspath(path)
    if text in ("", ":memory:"):
        raise ConfigError(
            f"SQLiteJournal: path must name a file, got {text!r}: use MemoryJournal() to keep nothing"
        )
    try:
        found = Path(text).resolve()
        is_folder, has_parent, usable = (
            found.is_dir(),
            found.parent.is_dir(),
            found.is_file() or not found.exists(),
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"SQLiteJournal: path {text!r} cannot be used: {error}"
        ) from error
    if is_folder:
        raise ConfigError(
            f"SQLiteJournal: path {text!r} is a folder: name a file in it, such as {text}/runs.db"
        )
    if not has_parent:
        raise ConfigError(
            f"SQLiteJournal: path {text!r}: there is no folder {str(found.parent)!r}: make it first"
        )
    if not usable:
        raise ConfigError(
            f"SQLiteJournal: path {text!r} is not an ordinary file: choose another path"
        )
    return found


def beside(path: Path, ending: str) -> Path:
    """The path of a file that belongs to the one at `path`."""
    return path.with_name(path.name + ending)


class JournalFile:
    """The file of a journal: opens connections to it and says in words what went wrong with it."""

    def __init__(
        self,
        path: Path,
        synchronous: Synchronous,
        busy_timeout: float,
        form: Format = RUNS,
    ) -> None:
        self.path = path
        self._form = form
        self._log = beside(path, "-wal")
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout

    def exists(self) -> bool:
        """Whether anything was ever written here."""
        return os.path.exists(
            self.path
        )  # unlike Path.exists it raises nothing, whatever the rights on the folder

    def explain(self, error: BaseException) -> JournalError:
        """A `JournalError` that names the file, the trouble and the cure, with `error` as its cause."""
        code = (
            getattr(error, "sqlite_errorcode", 0) & 0xFF
        )  # the low byte of an extended code is the basic one
        if isinstance(error, OSError):
            code = _SAME_TROUBLE.get(error.errno or 0, sqlite3.SQLITE_IOERR)
        cure = _CURES.get(code, "see the cause")
        explained = JournalError(f"journal {str(self.path)!r}: {error} ({cure})")
        explained.__cause__ = error
        return explained

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection | None]:
        """A connection that sees one state of the file and cannot write; None while nothing was ever written."""
        if not self.exists():
            yield None
            return
        try:
            self._undo_what_broke_off()
            with contextlib.closing(self._connect("ro")) as connection:
                connection.execute("BEGIN")
                yield connection if self._recognise(connection) else None
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self.explain(error) from error

    @contextlib.contextmanager
    def writing(self) -> "Generator[WritingConnection]":
        """The one connection that writes, for as long as it is needed."""
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(
                ProcessLock(beside(self.path, ".lock"), self._busy_timeout)
            )
            with lock.held():
                self._create()
                connection = stack.enter_context(
                    contextlib.closing(self._connect("rw"))
                )
                self._prepare(connection)
            try:
                yield WritingConnection(connection, lock, (self.path, self._log))
            finally:
                # What was acknowledged is safe in the log beside the file, so a failed tidying up loses nothing.
                with contextlib.suppress(sqlite3.Error, JournalError), lock.held():
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                    connection.close()

    def _connect(self, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
        uri = f"{self.path.as_uri()}?mode={mode}"
        if mode == "ro" and not (
            os.access(self.path.parent, os.W_OK) or os.path.exists(self._log)
        ):
            uri += "&immutable=1"  # nobody has it open, and SQLite could not make the files that it shares with a writer
        connection = sqlite3.connect(
            uri, uri=True, timeout=self._busy_timeout, isolation_level=None
        )
        connection.text_factory = _decode
        return connection

    def _undo_what_broke_off(self) -> None:
        """Undo the making of a file whose process died in the middle of it: a connection that only reads cannot."""
        if not os.path.exists(
            beside(self.path, "-journal")
        ):  # only there until the file has its write-ahead log
            return
        lock = ProcessLock(beside(self.path, ".lock"), self._busy_timeout)
        with lock, lock.held(), contextlib.closing(self._connect("rw")) as connection:
            connection.execute("PRAGMA application_id").fetchone()

    def _create(self) -> None:
        # Made by us before SQLite sees it, since SQLite gives the files beside it the same mode.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _prepare(self, connection: sqlite3.Connection) -> None:
        known = self._recognise(connection)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise JournalError(
                f"journal {str(self.path)!r}: no write-ahead log possible here: use a local disk"
            )
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if not known:
            connection.execute("BEGIN IMMEDIATE")
            for statement in self._form.tables:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._form.application_id}")
            connection.execute(f"PRAGMA user_version = {self._form.version}")
            connection.execute("COMMIT")
        with contextlib.suppress(sqlite3.Error):
            for statement in self._form.indexes:
                connection.execute(statement)

    def _recognise(self, connection: sqlite3.Connection) -> bool:
        """Whether the tables are there; raises `JournalError` for a file that is not ours, or too new."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return False
        if application != self._form.application_id:
            raise JournalError(
                f"journal {str(self.path)!r} is another program's database: choose another path"
            )
        if version > self._form.version:
            raise JournalError(
                f"journal {str(self.path)!r} has format {version}, this version reads up to {self._form.version}: "
                "upgrade loopwright"
            )
        return True


def _decode(raw: bytes) -> str | bytes:
    # Text that is not UTF-8 was not written by us: handed on as bytes, it is found by the check of types.
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


class ProcessLock:
    """A lock between processes on a file of its own.

    SQLite before 3.51.3 can damage a file that two connections write or checkpoint at once, so a write is never left to
    SQLite's own locks alone. Where the system has no `flock`, those are all there is.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._descriptor = -1

    def __enter__(self) -> "ProcessLock":
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Hold the lock; raises `JournalError` if it does not come free in time."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """Take the lock; raises `JournalError` if it does not come free in time."""
        if self._taken():
            return
        end = time.monotonic() + self._timeout
        while not self._taken():
            if time.monotonic() > end:
                raise JournalError(
                    f"journal lock {str(self._path)!r}: another process held it for {self._timeout} s: "
                    "stop that process, or give a longer busy_timeout"
                )
            time.sleep(LOCK_POLL)

    def release(self) -> None:
        """Let go of the lock."""
        if _flock is not None:
            _flock(self._descriptor, _free)

    def _taken(self) -> bool:
        try:
            if _flock is not None:
                _flock(self._descriptor, _take)
        except BlockingIOError:
            return False
        return True


class WritingConnection:
    """The connection that writes; its transactions hold the process lock."""

    def __init__(
        self, connection: sqlite3.Connection, lock: ProcessLock, files: Sequence[Path]
    ) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._lock = lock
        self._files = {
            file: found for file in files if (found := _identity(file)) is not None
        }

    @contextlib.contextmanager
    def transaction(self) -> Generator[sqlite3.Cursor]:
        """All that is written inside becomes durable together, or nothing does."""
        cursor = self._cursor
        self._lock.acquire()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            self._check_files()
            cursor.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                # The cause is on its way up; a rollback that fails too must not hide it.
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
            self._lock.release()

    def _check_files(self) -> None:
        """Raise `JournalError` if what is written would go into a file that nobody finds any more."""
        for file, identity in self._files.items():
            if _identity(file) != identity:
                raise JournalError(
                    f"journal file {str(file)!r} was removed, or another file is in its place: nothing more is "
                    "written; put it back and make a new SQLiteJournal"
                )


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
