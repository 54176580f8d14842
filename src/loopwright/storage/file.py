"""A SQLite file: private, checked, locked between processes, its errors explained."""

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import ConfigError, LoopwrightError
from .errors import CURES, get_code
from .formats import Format
from .kind import FileKind
from .lock import ProcessLock
from .modes import add_suffix, create_file, ensure_file
from .ownership import check_folder, check_links, check_owner
from .rewrite import Rewrite
from .writer import WritingConnection

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]
# Pages of the write-ahead log (4 KiB each) before they are copied into the file. A small log is overwritten and does not
# grow; flushing a file that grows takes half as long again.
CHECKPOINT_PAGES = 256
BESIDE = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite makes beside a file."""


def resolve_path(path: str | os.PathLike[str], kind: FileKind) -> Path:
    """Return the absolute path of a file; raise `ConfigError` if no file can be there."""
    text = os.fspath(path)
    if text in ("", ":memory:"):
        raise ConfigError(
            f"{kind.owner}: path must name a file, got {text!r}: use {kind.alternative} to keep nothing"
        )
    try:
        check_links(text, kind)
        found = Path(text).resolve()
        problem = _find_path_problem(text, found, kind)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{kind.owner}: path {text!r} cannot be used: {error}"
        ) from error
    if problem:
        raise ConfigError(f"{kind.owner}: path {text!r}{problem}")
    return found


def _find_path_problem(text: str, path: Path, kind: FileKind) -> str:
    """Return why no file can be at a path, or an empty text."""
    if path.is_dir():
        return f" is a directory: name a file in it, such as {text}/{kind.example}"
    if not path.parent.is_dir():
        return f": directory {str(path.parent)!r} does not exist; create it first"
    if path.exists() and not path.is_file():
        return " is not an ordinary file: choose another path"
    return ""


class SQLiteFile:
    """A SQLite file: opens connections to it and explains its errors.

    Args:
        path: its absolute path.
        kind: what it holds.
        format: its format.
        synchronous: as in SQLite.
        busy_timeout: seconds to wait for another process that holds the file.
        any_thread: whether a connection that writes is used by more threads than the one that opens it, one at a time.
    """

    def __init__(
        self,
        path: Path,
        kind: FileKind,
        format: Format,
        *,
        synchronous: Synchronous = "FULL",
        busy_timeout: float = 5.0,
        any_thread: bool = False,
    ) -> None:
        self.path, self.kind = path, kind
        self._format = format
        self.new_id = secrets.token_hex(8)
        """The id that the file gets if it has none."""
        self._log = add_suffix(path, "-wal")
        self._reads = threading.local()
        self._synchronous, self._any_thread = synchronous, any_thread
        self.busy_timeout = busy_timeout

    def exists(self) -> bool:
        """Return whether anything was ever written here."""
        # Unlike Path.exists, this never raises, whatever the permissions of the directory.
        return os.path.exists(self.path)

    def explain(self, error: BaseException, cure: str = "") -> LoopwrightError:
        """Return an error that names the file, the problem and the cure, caused by `error`."""
        cure = cure or CURES.get(get_code(error), "see the cause")
        explained = self.kind.error(f"{self._name()}: {error} ({cure})")
        explained.__cause__ = error
        return explained

    def begin_rewrite(self, done: str) -> Rewrite:
        """Return the rewriting of the file; `done` says what has happened already."""
        return Rewrite(self.path, self.kind, done)

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection | None]:
        """Yield a read-only connection that sees one state of the file; `None` if nothing was ever written."""
        shared: sqlite3.Connection | None = getattr(self._reads, "shared", None)
        with self._explained(), contextlib.ExitStack() as opened:
            yield shared or self._begin_reading(opened)

    @contextlib.contextmanager
    def reading_together(self) -> Generator[None]:
        """Have what this thread reads meanwhile use one connection, so that all of it is of one state of the file.

        What is written meanwhile is not seen. A coroutine should not wait in it: all tasks of its thread read like that.
        """
        before: sqlite3.Connection | None = getattr(self._reads, "shared", None)
        with contextlib.ExitStack() as opened:
            with self._explained():
                self._reads.shared = before or self._begin_reading(opened)
            try:
                yield
            finally:
                self._reads.shared = before

    def _begin_reading(self, opened: contextlib.ExitStack) -> sqlite3.Connection | None:
        """Return a read-only connection that sees one state of the file until `opened` is closed."""
        if not self.exists():
            return None
        self._check_owner()
        self._roll_back_creation()
        connection = opened.enter_context(contextlib.closing(self._connect("ro")))
        connection.execute("BEGIN")
        version = self._read_version(connection)
        if not version:
            connection.close()  # the writer that makes the tables need not wait
            return None
        self._format.show_as_current(connection, version)
        return connection

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        """Explain what SQLite and the values of a file raise."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self.explain(error) from error

    @contextlib.contextmanager
    def writing(self) -> Generator[WritingConnection]:
        """Yield the one connection that writes."""
        with self._lock() as lock:
            with lock.held():
                ensure_file(self.path)
                self._check_owner()
                connection = WritingConnection(
                    self._open, lock, self.path, self._log, self.kind
                )
            try:
                yield connection
            finally:
                connection.close()

    def copy(self, target: Path) -> None:
        """Copy one state of the file, which others may write meanwhile, into a new file, private to its owner."""
        try:
            create_file(target)
            with (
                self.reading() as connection,
                contextlib.closing(sqlite3.connect(target)) as copy,
            ):
                if connection is not None:
                    connection.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE").fetchone()
        except OSError as error:
            raise self.explain(error) from error

    def _name(self) -> str:
        return f"{self.kind.noun} {str(self.path)!r}"

    def _lock(self) -> ProcessLock:
        return ProcessLock(add_suffix(self.path, ".lock"), self.busy_timeout, self.kind)

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
        """Raise the error of the kind if another user made the file or one beside it, or may replace it."""
        check_folder(self.path.parent, self.kind)
        beside = [add_suffix(self.path, one) for one in BESIDE]
        check_owner([self.path, *beside], self.kind)

    def _connect(self, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
        uri = f"{self.path.as_uri()}?mode={mode}"
        can_share = os.access(self.path.parent, os.W_OK) or os.path.exists(self._log)
        if mode == "ro" and not can_share:
            # No process has it open, and SQLite could not create the files to share it with a writer.
            uri += "&immutable=1"
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=self.busy_timeout,
            isolation_level=None,
            check_same_thread=not self._any_thread,
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

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = self._read_version(connection)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise self.kind.error(
                f"{self._name()}: no write-ahead log possible here: use a local disk"
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

        Raise the error of the kind for another program's file, or a newer format.
        """
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return 0
        if application != self._format.application_id:
            raise self.kind.error(
                f"{self._name()} is the database of another program or store: choose another path"
            )
        if version > self._format.version:
            raise self.kind.error(
                f"{self._name()} has format {version}, this version reads formats up to {self._format.version}: "
                "upgrade loopwright"
            )
        return int(version)


def _decode(raw: bytes) -> str | bytes:
    # Text that is not UTF-8 was not written by this library: returned as bytes, it fails the check of types.
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
