"""What SQLite and the system say about a file, and the cure."""

import errno
import sqlite3

_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
"""What SQLite says when another connection holds the file for the moment."""
CURES = {
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
    sqlite3.SQLITE_NOLFS: "its file system has no locks, like some network disks: put the file on a local disk",
    sqlite3.SQLITE_IOERR: "the disk failed, is full or a file size limit was reached: check the disk",
}
_SQLITE_CODES = {
    errno.EACCES: sqlite3.SQLITE_PERM,
    errno.EPERM: sqlite3.SQLITE_PERM,
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.ENOENT: sqlite3.SQLITE_CANTOPEN,
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.ETIMEDOUT: sqlite3.SQLITE_BUSY,
    **dict.fromkeys(
        (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS), sqlite3.SQLITE_NOLFS
    ),
}


def is_passing(error: BaseException) -> bool:
    """Return whether an error says that another program holds the file, which may end at any moment."""
    return get_code(error) in _PASSING


def get_code(error: BaseException) -> int:
    """Return the primary code of SQLite for an error, which is the low byte of an extended one."""
    if isinstance(error, OSError):
        return _SQLITE_CODES.get(error.errno or 0, sqlite3.SQLITE_IOERR)
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
