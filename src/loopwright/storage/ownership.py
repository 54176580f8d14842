"""Whose files are opened: none that another user of the machine made, or may write."""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import ConfigError
from .kind import FileKind

MAX_LINKS = 40
"""Symbolic links that are followed in one path, as in Linux."""
_get_user = getattr(os, "geteuid", None)
"""Returns the user of this process; `None` on systems without such numbers, where nothing is checked."""
_SHARED = stat.S_IWGRP | stat.S_IWOTH


def check_links(path: str | os.PathLike[str], kind: FileKind) -> None:
    """Raise `ConfigError` if a path leads through a symbolic link of another user.

    That user could make this process open a file of its choice.
    """
    if _get_user is None:
        return
    for link, found in _list_links(os.path.abspath(path), MAX_LINKS):
        if not _is_trusted(found):
            raise ConfigError(
                f"{kind.owner}: path: {link!r} is a symbolic link of {_name_owner(found)}; "
                "remove it, or name the file itself"
            )


def _list_links(path: str, left: int) -> Iterator[tuple[str, os.stat_result]]:
    """Return the symbolic links on the way to a path, those in their targets too."""
    for place in reversed([path, *map(str, Path(path).parents)]):
        with contextlib.suppress(OSError):
            found = os.lstat(place)
            if stat.S_ISLNK(found.st_mode) and left > 0:
                yield place, found
                target = os.path.join(os.path.dirname(place), os.readlink(place))
                yield from _list_links(target, left - 1)


def check_owner(files: Iterable[Path], kind: FileKind) -> None:
    """Raise the error of the kind if another user made one of the files, or may write it.

    A file that does not exist is left out. A folder in which everybody may replace files is refused too.
    """
    if _get_user is None:
        return
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            check_state(file, os.lstat(file), kind)


def check_folder(folder: Path, kind: FileKind) -> None:
    """Raise the error of the kind if every user may rename and remove the files of a folder."""
    if _get_user is None:
        return
    mode = os.stat(folder).st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise kind.error(
            f"{kind.noun} directory {str(folder)!r} lets every user replace its files: "
            f"chmod o-w {folder}, or choose another directory"
        )


def check_state(file: Path, found: os.stat_result, kind: FileKind) -> None:
    """Raise the error of the kind unless a file is an ordinary one of this user, which only that user may write."""
    if _get_user is None:
        return
    if stat.S_ISLNK(found.st_mode):
        raise kind.error(
            f"{kind.noun} file {str(file)!r} is a symbolic link: remove it, it is not the {kind.noun}'s"
        )
    if not stat.S_ISREG(found.st_mode):
        raise kind.error(
            f"{kind.noun} file {str(file)!r} is not an ordinary file: remove it"
        )
    if not _is_trusted(found):
        raise kind.error(
            f"{kind.noun} file {str(file)!r} was made by {_name_owner(found)}, who could change it: "
            f"remove it, run as that user, or `chown {_get_user()} {file}` if it is yours"
        )
    if found.st_mode & _SHARED:
        raise kind.error(
            f"{kind.noun} file {str(file)!r} may be written by other users: chmod go-w {file}"
        )


def _is_trusted(found: os.stat_result) -> bool:
    """Whether a file belongs to the user of this process, or to root, who may do anything."""
    return _get_user is None or found.st_uid in (_get_user(), 0)


def _name_owner(found: os.stat_result) -> str:
    return f"another user (uid {found.st_uid})"
