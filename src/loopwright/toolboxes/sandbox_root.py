"""A folder that cannot be left: a path is opened one name at a time, and a link is never followed."""

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
FILE = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
)  # a pipe never keeps it waiting
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DEEPEST = 40  # folders inside each other; each that is open on the way costs a file descriptor
LONGEST = 4096  # characters of a path or a glob
KINDS = (
    (stat.S_ISLNK, "a link, and links are not followed"),
    (stat.S_ISDIR, "a folder"),
)
CAUSES = {
    errno.ENOENT: "does not exist: list_files shows what is there",
    errno.ELOOP: "is a link, and links are not followed",
    errno.EMLINK: "is a link, and links are not followed",
    errno.ENOTDIR: "is no folder",
    errno.ENAMETOOLONG: "has a name that is too long",
}


class SandboxRoot:
    """Reads and writes below one folder, whatever path it is given.

    Each part of a path is opened relative to the folder before it (`openat` with `O_NOFOLLOW`), so it makes no
    difference when somebody puts a link where a folder was between a check and the use. All methods block, and raise
    `ToolError` with a text for a model, which never tells where the folder is.

    Args:
        root: the folder; links on the way to it are resolved now, once.
        hidden: whether names that begin with a dot are there at all.
    """

    def __init__(self, root: str | os.PathLike[str], *, hidden: bool = False) -> None:
        if not os.fspath(root) or "\0" in os.fspath(root):
            raise ConfigError(f"root: name a folder, got {os.fspath(root)!r}")
        self.root = Path(root).expanduser().resolve()
        self._hidden = hidden
        if not self.root.is_dir():
            raise ConfigError(f"root: {self.root} is no folder: make it first")
        if self.root == Path(self.root.anchor):
            raise ConfigError(
                f"root: {self.root} is the whole machine: name the folder that the tools are for"
            )

    def names(self, path: str) -> tuple[str, ...]:
        """The parts of a path, or `ToolError` for one that cannot be inside."""
        if path.startswith("/"):
            raise ToolError(
                f"{_shown(path)} is an absolute path: paths here begin at the root folder, like 'a/b.txt'"
            )
        if "\0" in path or len(path) > LONGEST:
            raise ToolError(
                f"That is no path: it has a NUL character, or more than {LONGEST:,} characters."
            )
        names = tuple(name for name in path.split("/") if name not in ("", "."))
        if ".." in names:
            raise ToolError(
                f"{_shown(path)} goes up by '..': name the file from the root folder on, like 'a/b.txt'"
            )
        if not self._hidden and any(map(_is_hidden, names)):
            raise ToolError(
                f"{_shown(path)} is hidden: names that begin with a dot cannot be used here"
            )
        if len(names) > DEEPEST:
            raise ToolError(f"{_shown(path)} has more than {DEEPEST} parts")
        return names

    def read(self, path: str, most: int) -> bytes:
        """The content of a regular file of at most `most` bytes."""
        with self._place(path) as (folder, name):
            _check_kind(folder, name, path)
            with open(os.open(name, FILE, dir_fd=folder), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):  # it was swapped since
                    raise ToolError(_not_a_file(path, found.st_mode))
                data = file.read(most + 1) if found.st_size <= most else b""
        size = max(found.st_size, len(data))
        if size > most:
            raise ToolError(
                f"{_shown(path)} is too large: {size:,} bytes, and {most:,} is the most"
            )
        return data

    def read_text(self, path: str, most: int) -> str:
        """The content of a text file in UTF-8 of at most `most` bytes."""
        return as_text(path, self.read(path, most))

    def write(self, path: str, data: bytes) -> None:
        """Put a file there in one step, in place of an older one; folders on the way are made.

        Readers see the old content or the new. A link at that place is refused, and one that comes there meanwhile is
        replaced itself, not what it points to. The permissions of a file that is replaced are kept.
        """
        with self._place(path, make=True) as (folder, name):
            mode = _check_kind(folder, name, path, missing_ok=True)
            draft = f".loopwright-{secrets.token_hex(8)}"
            opened = os.open(
                draft, NEW, 0o666 if mode is None else 0o600, dir_fd=folder
            )
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
        with self._place(path) as (folder, name):
            _check_kind(folder, name, path)
            os.unlink(
                name, dir_fd=folder
            )  # should it be a link by now, the link goes and not its target
            os.fsync(folder)

    def walk(self, path: str, glob: str, visits: int) -> Iterator[str]:
        """Files and folders below `path` that fit `glob`, each as a path from the root, a folder's with "/" at its end.

        In a glob `*` is any part of one name and `**` any number of folders. Links and special files are left out.
        Raises `ToolError` after it has looked at `visits` names.
        """
        parts, names = tuple(self.names(glob)), self.names(path)
        left = itertools.count(visits - 1, -1)
        with self._folder(names, path) as folder:
            yield from self._below(
                folder,
                "".join(f"{name}/" for name in names),
                _after_stars({0}, parts),
                parts,
                left,
            )

    def _below(
        self,
        folder: int,
        prefix: str,
        states: frozenset[int],
        glob: tuple[str, ...],
        left: Iterator[int],
    ) -> Iterator[str]:
        if prefix.count("/") >= DEEPEST:
            return
        for name, is_folder in self._entries(folder, left):
            reached = _after(states, name, glob)
            if len(glob) in reached:
                yield f"{prefix}{name}/" if is_folder else f"{prefix}{name}"
            if is_folder and reached - {len(glob)}:
                with contextlib.suppress(OSError), _opened(name, folder) as inner:
                    yield from self._below(
                        inner, f"{prefix}{name}/", reached, glob, left
                    )

    def _entries(self, folder: int, left: Iterator[int]) -> list[tuple[str, bool]]:
        """The regular files and the folders in a folder, and which is which, by name."""
        entries: list[tuple[str, bool]] = []
        with os.scandir(folder) as found:
            for entry in found:
                if next(left) < 0:
                    raise ToolError(
                        "There are too many files to look at: begin in a folder further down."
                    )
                is_folder = entry.is_dir(follow_symlinks=False)
                if (is_folder or entry.is_file(follow_symlinks=False)) and (
                    self._hidden or not _is_hidden(entry.name)
                ):
                    entries.append((entry.name, is_folder))
        return sorted(entries)

    @contextlib.contextmanager
    def _place(self, path: str, *, make: bool = False) -> Generator[tuple[int, str]]:
        """The open folder that a path is in, and the name in it."""
        *folders, name = self.names(path) or ("",)
        if not name:
            raise ToolError("Name a file, like 'a/b.txt': this is the root folder.")
        with self._folder(tuple(folders), path, make=make) as folder:
            yield folder, name

    @contextlib.contextmanager
    def _folder(
        self, names: tuple[str, ...], path: str, *, make: bool = False
    ) -> Generator[int]:
        with contextlib.ExitStack() as stack, _telling(path):
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
def _telling(path: str) -> Generator[None]:
    """What the system says, as a sentence that a model can use."""
    try:
        yield
    except UnicodeEncodeError:
        raise ToolError("That is no path: it has half of a character pair.") from None
    except OSError as error:
        cause = (
            CAUSES.get(error.errno or 0)
            or f"cannot be used: {os.strerror(error.errno or 0)}"
        )
        raise ToolError(f"{_shown(path)} {cause}") from None


def as_text(path: str, data: bytes) -> str:
    """The content of a file as text, if it is one in UTF-8."""
    if b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode()
    raise ToolError(
        f"{_shown(path)} is no text in UTF-8 but a binary file of {len(data):,} bytes"
    )


def _check_kind(
    folder: int, name: str, path: str, *, missing_ok: bool = False
) -> int | None:
    """The mode of a regular file, before it is opened: opening a device can do things by itself."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        if missing_ok:
            return None
        raise
    if not stat.S_ISREG(mode):
        raise ToolError(_not_a_file(path, mode))
    return mode


def _check_folder(folder: int, name: str, path: str) -> None:
    """Tell a link from what is no folder; both are refused when it is opened, with one word for the two."""
    if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise ToolError(
            f"{_shown(path)} goes through a link, and links are not followed"
        )


def _not_a_file(path: str, mode: int) -> str:
    kind = next(
        (told for is_kind, told in KINDS if is_kind(mode)),
        "a pipe, a socket or a device",
    )
    return f"{_shown(path)} is no file: it is {kind}"


def _is_hidden(name: str) -> bool:
    """Whether a name begins with a dot, also where a file system skips invisible characters or folds some to a dot."""
    seen = (
        char
        for char in unicodedata.normalize("NFKC", name)
        if unicodedata.category(char) not in ("Cf", "Cc")
    )
    return next(seen, "") == "."


def _after_stars(states: set[int], glob: tuple[str, ...]) -> frozenset[int]:
    """These places in a glob, and those behind a `**` there, which may stand for no folder at all."""
    for place, part in enumerate(glob):
        if part == "**" and place in states:
            states.add(place + 1)
    return frozenset(states)


def _after(states: frozenset[int], name: str, glob: tuple[str, ...]) -> frozenset[int]:
    """The places in a glob that one more name leads to."""
    reached: set[int] = set()
    for place in states - {len(glob)}:
        if glob[place] == "**":
            reached.add(place)
        elif fnmatch.fnmatchcase(name, glob[place]):
            reached.add(place + 1)
    return _after_stars(reached, glob)


def _shown(path: str) -> str:
    return repr(path if len(path) <= 100 else path[:97] + "...")
