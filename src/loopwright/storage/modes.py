"""Files that only their owner may read and write, whatever the umask."""

import contextlib
import os
from pathlib import Path

PRIVATE = 0o600


def create_file(path: Path) -> None:
    """Create an empty private file; raise `FileExistsError` if anything is there."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE))


def ensure_file(path: Path) -> None:
    """Create an empty private file unless there is one, before SQLite opens it.

    SQLite gives the files beside it the same mode.
    """
    with contextlib.suppress(FileExistsError):
        create_file(path)


def add_suffix(path: Path, suffix: str) -> Path:
    """Return the path of a file beside the one at `path`."""
    return path.with_name(path.name + suffix)
