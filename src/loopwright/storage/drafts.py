"""Files that get their names once they are whole, and are made in a private directory beside them until then."""

import contextlib
import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path

from .lock import try_lock
from .modes import create_file

SUFFIX = ".part"
NO_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
)
"""What a file system without hard links answers, such as that of a memory card."""


@contextlib.contextmanager
def drafting(target: Path) -> Generator[Path]:
    """Yield a private directory beside a path, which is removed in the end, as are those of processes that died."""
    for left in glob.glob(f"{glob.escape(str(target))}.*{SUFFIX}"):
        with contextlib.suppress(OSError), _holding(left) as is_unused:
            if is_unused:
                shutil.rmtree(left)
    with contextlib.ExitStack() as held:
        folder = _make_folder(target, held)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _make_folder(target: Path, held: contextlib.ExitStack) -> Path:
    """Return a new directory that is held; one that another process took for unused meanwhile is made again."""
    while True:
        folder = tempfile.mkdtemp(SUFFIX, f"{target.name}.", target.parent)
        with contextlib.suppress(FileNotFoundError):
            is_held = held.enter_context(_holding(folder))
            if is_held is not False and os.path.exists(folder):
                return Path(folder)


@contextlib.contextmanager
def _holding(folder: str) -> Generator[bool | None]:
    """Hold a directory, and yield whether no other process does; `None` on a system that opens no directories."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(folder, flags)
    except PermissionError:
        yield None
        return
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def publish(names: Mapping[Path, Path]) -> None:
    """Give files their names, all of them or none; raise `FileExistsError` with the name that there is already."""
    done: list[Path] = []
    try:
        for made, name in names.items():
            _name(made, name)
            done.append(name)
    except OSError:
        for name in done:
            name.unlink(missing_ok=True)
        raise


def _name(made: Path, name: Path) -> None:
    try:
        os.link(made, name)
    except FileExistsError as error:
        raise FileExistsError(error.errno, error.strerror, str(name)) from None
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        create_file(
            name
        )  # it takes the name, which a renaming would not refuse to replace
        made.replace(name)
