"""A directory that no path can leave: names are opened one by one, and links are not followed."""

import contextlib
import errno
import fnmatch
import itertools
import os
import secrets
import stat
import unicodedata
from collections.abc import Generator, Iterator
from pathlib import Path

from ..errors import ConfigError, ToolError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe must not block.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_DEPTH = 40
"""Nested directories; each one that is open on the way costs a file descriptor."""
MAX_PATH = 4096  # characters of a path or a glob
KINDS = (
    (stat.S_ISLNK, "a link, and links are not followed"),
    (stat.S_ISDIR, "a folder"),
)
CAUSES = {
    errno.ENOENT: "does not exist: list the folder to see what is there",
    errno.ELOOP: "is a link, and links are not followed",
    errno.EMLINK: "is a link, and links are not followed",
    errno.ENOTDIR: "is not a folder",
    errno.EEXIST: "exists already: choose another name",
    errno.ENAMETOOLONG: "has a name that is too long",
}


class SandboxRoot:
    """Reads and writes below one directory, for any path that it is given.

    Each name of a path is opened relative to the directory before it (`openat` with `O_NOFOLLOW`), so
    that a link which replaces a directory between a check and the use has no effect. All methods
    block, and raise `ToolError` with a text for a model, which never names the directory.

    Args:
        root: the directory; links on the way to it are resolved once, now.
        hidden: whether names that begin with a dot are visible.
    """

    def __init__(self, root: str | os.PathLike[str], *, hidden: bool = False) -> None:
        if not os.fspath(root) or "\0" in os.fspath(root):
            raise ConfigError(f"root: must name a directory, got {os.fspath(root)!r}")
        self.root = Path(root).expanduser().resolve()
        self._hidden = hidden
        if not self.root.is_dir():
            raise ConfigError(
                f"root: '{self.root}' is not a directory; create it or pass another path"
            )
        if self.root == Path(self.root.anchor):
            raise ConfigError(
                f"root: {self.root} is the whole file system; name the directory that the tools are for"
            )

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a path. Raises `ToolError` for one that cannot be inside."""
        if path.startswith("/"):
            raise ToolError(
                f"{_shown(path)} is an absolute path: paths here begin at the root folder, like 'a/b.txt'"
            )
        if "\0" in path or len(path) > MAX_PATH:
            raise ToolError(
                f"That is not a path: it has a NUL character, or more than {MAX_PATH:,} characters."
            )
        names = tuple(name for name in path.split("/") if name not in ("", "."))
        if ".." in names:
            raise ToolError(
                f"{_shown(path)} leaves the folder by '..'; give the path from the root folder, like 'a/b.txt'"
            )
        if not all(map(self._is_visible, names)):
            raise ToolError(
                f"{_shown(path)} is hidden: names that begin with a dot cannot be used here"
            )
        if len(names) > MAX_DEPTH:
            raise ToolError(f"{_shown(path)} has more than {MAX_DEPTH} parts")
        return names

    def _is_visible(self, name: str) -> bool:
        return self._hidden or not _is_hidden(name)

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a regular file of at most `max_bytes` bytes."""
        with self._open_parent(path) as (folder, name):
            _check_kind(folder, name, path)
            with open(os.open(name, FILE, dir_fd=folder), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):  # it was replaced since the check
                    raise ToolError(_describe_kind(path, found.st_mode))
                is_small = found.st_size <= max_bytes
                data = file.read(max_bytes + 1) if is_small else b""
        size = max(found.st_size, len(data))
        if size > max_bytes:
            raise ToolError(
                f"{_shown(path)} is too large: {size:,} bytes; at most {max_bytes:,} are read"
            )
        return data

    def read_text(self, path: str, max_bytes: int) -> str:
        """Return the content of a text file in UTF-8 of at most `max_bytes` bytes."""
        return decode_text(path, self.read(path, max_bytes))

    def write(self, path: str, data: bytes) -> None:
        """Write a file in one step, in place of an older one, and create missing directories.

        Readers see the old content or the new. A link at that place is refused; one that appears there
        meanwhile is replaced itself, not its target. A replaced file keeps its permissions.
        """
        with self._open_parent(path, make=True) as (folder, name):
            mode = _check_kind(folder, name, path, missing_ok=True)
            draft = f".loopwright-{secrets.token_hex(8)}"
            draft_mode = 0o666 if mode is None else 0o600
            opened = os.open(draft, NEW, draft_mode, dir_fd=folder)
            try:
                with open(opened, "wb") as file:
                    file.write(data)
                    file.flush()
                    if mode is not None:
                        os.fchmod(opened, mode & 0o777)
                    os.fsync(opened)
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise
            os.fsync(folder)

    def delete(self, path: str) -> None:
        """Delete a regular file."""
        with self._open_parent(path) as (folder, name):
            _check_kind(folder, name, path)
            # If it has become a link, the link is deleted and not its target.
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def rename(self, old: str, new: str) -> None:
        """Give a regular file another path, at which nothing is; create missing directories."""
        with self._open_parent(old) as (folder, name):
            _check_kind(folder, name, old)
            with self._open_parent(new, make=True) as (target, wanted):
                # A link in place of a rename, which would replace a file that is there.
                os.link(
                    name,
                    wanted,
                    src_dir_fd=folder,
                    dst_dir_fd=target,
                    follow_symlinks=False,
                )
                os.unlink(name, dir_fd=folder)
                os.fsync(target)
            os.fsync(folder)

    def walk(self, path: str, glob: str, visits: int) -> Iterator[str]:
        """Return files and directories below `path` that match `glob`, as paths from the root.

        The path of a directory ends with "/". In a glob `*` is any part of one name and `**` any
        number of directories. Links and special files are left out. Raises `ToolError` after it has
        looked at `visits` names.
        """
        parts, names = tuple(self.names(glob)), self.names(path)
        remaining = itertools.count(visits - 1, -1)
        prefix = "".join(f"{name}/" for name in names)
        with self._open_folder(names, path) as folder:
            states = _skip_stars({0}, parts)
            yield from self._walk_below(folder, prefix, states, parts, remaining)

    def _walk_below(
        self,
        folder: int,
        prefix: str,
        states: frozenset[int],
        glob: tuple[str, ...],
        remaining: Iterator[int],
    ) -> Iterator[str]:
        if prefix.count("/") >= MAX_DEPTH:
            return
        end = len(glob)
        for name, is_folder in self._list_entries(folder, remaining):
            path = f"{prefix}{name}/" if is_folder else f"{prefix}{name}"
            reached = _advance(states, name, glob)
            if end in reached:
                yield path
            if is_folder and reached - {end}:
                with contextlib.suppress(OSError), _opened(name, folder) as inner:
                    yield from self._walk_below(inner, path, reached, glob, remaining)

    def _list_entries(
        self, folder: int, remaining: Iterator[int]
    ) -> list[tuple[str, bool]]:
        """Return the visible files and directories in one, by name, with whether it is a directory."""
        entries: list[tuple[str, bool]] = []
        with os.scandir(folder) as found:
            for entry in found:
                if next(remaining) < 0:
                    raise ToolError(
                        "There are too many files to look at: begin in a folder further down."
                    )
                is_folder = entry.is_dir(follow_symlinks=False)
                is_regular = is_folder or entry.is_file(follow_symlinks=False)
                if is_regular and self._is_visible(entry.name):
                    entries.append((entry.name, is_folder))
        return sorted(entries)

    @contextlib.contextmanager
    def _open_parent(
        self, path: str, *, make: bool = False
    ) -> Generator[tuple[int, str]]:
        """Open the directory that contains a path, and return it with the name in it."""
        *folders, name = self.names(path) or ("",)
        if not name:
            raise ToolError("Name a file, like 'a/b.txt': this is the root folder.")
        with self._open_folder(tuple(folders), path, make=make) as folder:
            yield folder, name

    @contextlib.contextmanager
    def _open_folder(
        self, names: tuple[str, ...], path: str, *, make: bool = False
    ) -> Generator[int]:
        with contextlib.ExitStack() as stack, _translating_errors(path):
            folder = stack.enter_context(_opened(str(self.root), None))
            for name in names:
                with contextlib.suppress(FileExistsError):
                    if make:
                        os.mkdir(name, dir_fd=folder)
                _check_folder(folder, name, path)
                folder = stack.enter_context(_opened(name, folder))
            yield folder


@contextlib.contextmanager
def _opened(name: str, folder: int | None) -> Generator[int]:
    opened = os.open(name, FOLDER, dir_fd=folder)
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def _translating_errors(path: str) -> Generator[None]:
    """Raise the errors of the system as sentences that a model can use."""
    try:
        yield
    except UnicodeEncodeError:
        raise ToolError(
            "That is not a path: it has half of a surrogate pair."
        ) from None
    except OSError as error:
        code = error.errno or 0
        cause = CAUSES.get(code) or f"cannot be used: {os.strerror(code)}"
        raise ToolError(f"{_shown(path)} {cause}") from None


def decode_text(path: str, data: bytes) -> str:
    """Return the content of a file as text. Raises `ToolError` if it is not UTF-8."""
    if b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode()
    raise ToolError(
        f"{_shown(path)} is not text in UTF-8 but a binary file of {len(data):,} bytes"
    )


def _check_kind(
    folder: int, name: str, path: str, *, missing_ok: bool = False
) -> int | None:
    """Return the mode of a regular file before it is opened: opening a device can have effects."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        if missing_ok:
            return None
        raise
    if not stat.S_ISREG(mode):
        raise ToolError(_describe_kind(path, mode))
    return mode


def _check_folder(folder: int, name: str, path: str) -> None:
    """Refuse a link with its own error; on opening, the error of a file would be the same."""
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise ToolError(
            f"{_shown(path)} goes through a link, and links are not followed"
        )


def _describe_kind(path: str, mode: int) -> str:
    names = (name for is_kind, name in KINDS if is_kind(mode))
    kind = next(names, "a pipe, a socket or a device")
    return f"{_shown(path)} is not a file: it is {kind}"


def _is_hidden(name: str) -> bool:
    """Whether a name begins with a dot.

    A file system may ignore invisible characters before it, or read another character as a dot.
    """
    seen = (
        char
        for char in unicodedata.normalize("NFKC", name)
        if unicodedata.category(char) not in ("Cf", "Cc")
    )
    return next(seen, "") == "."


def _skip_stars(states: set[int], glob: tuple[str, ...]) -> frozenset[int]:
    """Add the positions after each `**` of a glob, which may stand for no directory at all."""
    for place, part in enumerate(glob):
        if part == "**" and place in states:
            states.add(place + 1)
    return frozenset(states)


def _advance(
    states: frozenset[int], name: str, glob: tuple[str, ...]
) -> frozenset[int]:
    """Return the positions in a glob after one more name."""
    reached: set[int] = set()
    for place in states - {len(glob)}:
        if glob[place] == "**":
            reached.add(place)
        elif fnmatch.fnmatchcase(name, glob[place]):
            reached.add(place + 1)
    return _skip_stars(reached, glob)


def _shown(path: str) -> str:
    return repr(path if len(path) <= 100 else path[:97] + "...")
