"""The SQLite file of a journal: private, checked, locked between processes, its errors explained."""

import contextlib
import errno
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal, TypeAlias

from ...errors import ConfigError, JournalError
from .formats import RUNS, Format
from .ownership import check_folder, check_links, check_owner, check_state

try:
    import fcntl
except ImportError:  # the system has no such locks
    _flock, _lock_flags, _unlock_flags = None, 0, 0
else:
    _flock = fcntl.flock
    _lock_flags, _unlock_flags = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]


# Pages of the write-ahead log (4 KiB each) before they are copied into the file. A small log is overwritten and does not
# grow; flushing a file that grows takes half as long again.
CHECKPOINT_PAGES = 256
LOCK_POLL = 0.001  # seconds
BESIDE = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite makes beside a file."""

_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
"""What SQLite says when another connection holds the file for the moment."""
_CURES = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    **dict.fromkeys(
        _PASSING,
        "another program holds it: stop that program, or give a longer busy_timeout",
    ),
    sqlite3.SQLITE_READONLY: "it is read-only: make the file and its directory writable",
    sqlite3.SQLITE_PERM: "access is denied: make the file and its directory writable",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check that the directory exists and that both are readable and writable",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database: choose another path",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a copy, or choose another path",
    sqlite3.SQLITE_IOERR: "the disk failed, is full or a file size limit was reached: check the disk",
}
_SQLITE_CODES = {
    errno.EACCES: sqlite3.SQLITE_PERM,
    errno.EPERM: sqlite3.SQLITE_PERM,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.ENOENT: sqlite3.SQLITE_CANTOPEN,
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.ETIMEDOUT: sqlite3.SQLITE_BUSY,
}


def is_passing(error: BaseException) -> bool:
    """Return whether an error says that another program holds the file, which may end at any moment."""
    return _get_code(error) in _PASSING


def _get_code(error: BaseException) -> int:
    """Return the primary code of SQLite for an error, which is the low byte of an extended one."""
    if isinstance(error, OSError):
        return _SQLITE_CODES.get(error.errno or 0, sqlite3.SQLITE_IOERR)
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a journal file; raise `ConfigError` if no file can be there."""
    text = os.fspath(path)
    if text in ("", ":memory:"):
        raise ConfigError(
            f"SQLiteJournal: path must name a file, got {text!r}: use MemoryJournal() to keep nothing"
        )
    try:
        check_links(text)
        found = Path(text).resolve()
        problem = _find_path_problem(text, found)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"SQLiteJournal: path {text!r} cannot be used: {error}"
        ) from error
    if problem:
        raise ConfigError(f"SQLiteJournal: path {text!r}{problem}")
    return found


def _find_path_problem(text: str, path: Path) -> str:
    """Return why no file can be at a path, or an empty text."""
    if path.is_dir():
        return f" is a directory: name a file in it, such as {text}/runs.db"
    if not path.parent.is_dir():
        return f": directory {str(path.parent)!r} does not exist; create it first"
    if path.exists() and not path.is_file():
        return " is not an ordinary file: choose another path"
    return ""


def add_suffix(path: Path, suffix: str) -> Path:
    """Return the path of a file beside the one at `path`."""
    return path.with_name(path.name + suffix)


class JournalFile:
    """The file of a journal: opens connections to it and explains its errors."""

    def __init__(
        self,
        path: Path,
        synchronous: Synchronous,
        busy_timeout: float,
        format: Format = RUNS,
    ) -> None:
        self.path = path
        self._format = format
        self.new_id = secrets.token_hex(8)
        """The id that the journal gets if it has none."""
        self._log = add_suffix(path, "-wal")
        self._synchronous = synchronous
        self.busy_timeout = busy_timeout

    def exists(self) -> bool:
        """Return whether anything was ever written here."""
        # Unlike Path.exists, this never raises, whatever the permissions of the directory.
        return os.path.exists(self.path)

    def explain(self, error: BaseException, cure: str = "") -> JournalError:
        """Return a `JournalError` that names the file, the problem and the cure, caused by `error`."""
        cure = cure or _CURES.get(_get_code(error), "see the cause")
        explained = JournalError(f"journal {str(self.path)!r}: {error} ({cure})")
        explained.__cause__ = error
        return explained

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection | None]:
        """Yield a read-only connection that sees one state of the file; `None` if nothing was ever written."""
        if not self.exists():
            yield None
            return
        try:
            self._check_owner()
            self._roll_back_creation()
            with contextlib.closing(self._connect("ro")) as connection:
                connection.execute("BEGIN")
                version = self._read_version(connection)
                self._format.show_as_current(connection, version)
                yield connection if version else None
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self.explain(error) from error

    @contextlib.contextmanager
    def writing(self) -> "Generator[WritingConnection]":
        """Yield the one connection that writes."""
        with self._lock() as lock:
            with lock.held():
                self._create()
                self._check_owner()
                connection = WritingConnection(self._open, lock, self.path, self._log)
            try:
                yield connection
            finally:
                connection.close()

    def _lock(self) -> "ProcessLock":
        return ProcessLock(add_suffix(self.path, ".lock"), self.busy_timeout)

    def _open(self) -> sqlite3.Connection:
        """Return a connection that can write."""
        connection = self._connect("rw")
        try:
            self._prepare(connection)
            self._check_owner()  # of the log, too, which now exists
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_owner(self) -> None:
        """Raise `JournalError` if another user made the file or one beside it, or may replace it."""
        check_folder(self.path.parent)
        check_owner([self.path, *(add_suffix(self.path, one) for one in BESIDE)])

    def _connect(self, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
        uri = f"{self.path.as_uri()}?mode={mode}"
        can_share = os.access(self.path.parent, os.W_OK) or os.path.exists(self._log)
        if mode == "ro" and not can_share:
            # No process has it open, and SQLite could not create the files to share it with a writer.
            uri += "&immutable=1"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self.busy_timeout, isolation_level=None
        )
        connection.text_factory = _decode
        return connection

    def _roll_back_creation(self) -> None:
        """Roll back the creation of a file whose process died meanwhile; a read-only connection cannot."""
        # The rollback journal exists only until the file has its write-ahead log.
        if not os.path.exists(add_suffix(self.path, "-journal")):
            return
        lock = self._lock()
        with lock, lock.held(), contextlib.closing(self._connect("rw")) as connection:
            connection.execute("PRAGMA application_id").fetchone()

    def _create(self) -> None:
        # Created before SQLite opens it, because SQLite gives the files beside it the same mode.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = self._read_version(connection)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise JournalError(
                f"journal {str(self.path)!r}: no write-ahead log possible here: use a local disk"
            )
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if version != self._format.version:
            self._format.upgrade(connection, version, self.new_id)
        with contextlib.suppress(sqlite3.Error):
            for statement in self._format.indexes:
                connection.execute(statement)

    def _read_version(self, connection: sqlite3.Connection) -> int:
        """Return the version of the file's format, 0 without tables.

        Raise `JournalError` for another program's file, or a newer format.
        """
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return 0
        if application != self._format.application_id:
            raise JournalError(
                f"journal {str(self.path)!r} is another program's database: choose another path"
            )
        if version > self._format.version:
            raise JournalError(
                f"journal {str(self.path)!r} has format {version}, this version reads up to {self._format.version}: "
                "upgrade loopwright"
            )
        return int(version)


def _decode(raw: bytes) -> str | bytes:
    # Text that is not UTF-8 was not written by a journal: returned as bytes, it fails the check of types.
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


class ProcessLock:
    """A lock between processes, on a separate file.

    SQLite before 3.51.3 can damage a file that two connections write or checkpoint concurrently, so a write never
    relies on SQLite's own locks alone. A system without `flock` has only those.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self.timeout = timeout
        self._descriptor = -1

    def __enter__(self) -> "ProcessLock":
        check_owner([self._path])
        flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
        self._descriptor = os.open(self._path, flags, 0o600)
        try:
            check_state(self._path, os.fstat(self._descriptor))
        except JournalError:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Hold the lock; raise `TimeoutError` if it is not released in time."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self, patience: float | None = None) -> None:
        """Acquire the lock; raise `TimeoutError` if it is not released within `patience`, by default the timeout."""
        if self._try_lock():
            return
        patience = self.timeout if patience is None else patience
        end = time.monotonic() + patience
        while not self._try_lock():
            if time.monotonic() > end:
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    f"{str(self._path)!r}: another process held it for {patience:.3g} s",
                )
            time.sleep(LOCK_POLL)

    def release(self) -> None:
        """Release the lock."""
        if _flock is not None:
            _flock(self._descriptor, _unlock_flags)

    def _try_lock(self) -> bool:
        try:
            if _flock is not None:
                _flock(self._descriptor, _lock_flags)
        except BlockingIOError:
            return False
        return True


def copy_file(source: JournalFile, target: Path) -> None:
    """Copy one state of a file that others may write meanwhile into a new file, private to its owner."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with (
        source.reading() as connection,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        if connection is not None:
            connection.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()


class WritingConnection:
    """The connection that writes; its transactions hold the process lock.

    Args:
        open: makes a connection that can write.
        lock: the lock between processes, which is held when this is made.
        path: the file.
        log: its write-ahead log.
    """

    def __init__(
        self,
        open: Callable[[], sqlite3.Connection],
        lock: ProcessLock,
        path: Path,
        log: Path,
    ) -> None:
        self._open, self._lock = open, lock
        self._path, self._log = path, log
        self._files: dict[Path, tuple[int, int]] = {}
        self._patience: float | None = None
        self._connect()

    @property
    def is_lost(self) -> bool:
        """Whether the connection was closed behind the back of this object."""
        try:
            self._connection.total_changes  # noqa: B018 - it asks the connection
        except sqlite3.ProgrammingError:
            return True
        return False

    @contextlib.contextmanager
    def transaction(self, patience: float | None = None) -> Generator[sqlite3.Cursor]:
        """Yield a cursor whose writes become durable together or not at all.

        `patience` is how many seconds to wait for other programs, by default the timeout of the file.
        """
        self._lock.acquire(patience)
        try:
            if self.is_lost:
                self._reconnect()
            self._set_patience(patience)
            cursor = self._cursor
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            self._check_files()
            cursor.execute("COMMIT")
        finally:
            # A failing rollback must not hide the original error.
            with contextlib.suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._cursor.execute("ROLLBACK")
            self._lock.release()

    def _set_patience(self, patience: float | None) -> None:
        """Let SQLite wait for other programs for some seconds, by default for the timeout of the file."""
        if patience == self._patience:
            return
        milliseconds = int(
            1000 * (self._lock.timeout if patience is None else patience)
        )
        self._cursor.execute(f"PRAGMA busy_timeout = {milliseconds}")
        self._patience = patience

    def empty_log(self) -> bool:
        """Copy the write-ahead log into the file and cut it to nothing; return whether no reader prevented it."""
        with self._lock.held():
            (is_busy, *_) = self._cursor.execute(
                "PRAGMA wal_checkpoint(TRUNCATE)"
            ).fetchone()
        return not is_busy

    def rewrite(self) -> bool:
        """Write the file anew, without copies of rows that SQLite once moved; return whether no other process prevented it.

        `secure_delete` overwrites a row where it is, and not where it was before its page was split or joined.
        """
        try:
            with self._lock.held():
                self._cursor.execute("VACUUM")
        except sqlite3.OperationalError as error:
            if not is_passing(error):
                raise
            return False
        return True

    def close(self) -> None:
        """Close it, with the log copied into the file."""
        # Durable entries are safe in the write-ahead log, so a failed checkpoint loses nothing.
        with contextlib.suppress(sqlite3.Error, OSError), self._lock.held():
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._connection.close()
        self._connection.close()

    def _connect(self) -> None:
        self._connection = self._open()
        self._cursor, self._patience = self._connection.cursor(), None
        found = ((file, _identity(file)) for file in (self._path, self._log))
        self._files = {file: known for file, known in found if known is not None}

    def _reconnect(self) -> None:
        """Connect to the same file again; its log may be a new one, since the last connection takes it along."""
        self._files.pop(self._log, None)
        self._check_files()
        self._connect()

    def _check_files(self) -> None:
        """Raise `JournalError` if a file was removed or replaced, so that writes would be lost."""
        for file, identity in self._files.items():
            if _identity(file) != identity:
                raise JournalError(
                    f"journal file {str(file)!r} was removed or replaced: nothing more is written; "
                    "restore it and make a new SQLiteJournal"
                )


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino
