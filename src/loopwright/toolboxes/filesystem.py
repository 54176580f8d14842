"""Tools for the files below one directory: read, list and search; optionally write, edit and delete."""

import itertools
import os
import threading
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ..errors import ToolError
from ..tools.base import Tool, tool
from .option_checks import check_counts
from .sandbox_root import SandboxRoot, decode_text

MAX_LINE = 200  # characters shown of a line that a search found
SEARCH_FACTOR = 50  # times `max_bytes` that one search reads in all
Start = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


def filesystem(
    root: str | os.PathLike[str],
    *,
    write: bool = False,
    hidden: bool = False,
    max_bytes: int = 1_000_000,
    max_results: int = 200,
    max_visits: int = 20_000,
) -> list[Tool]:
    """Return tools for the files below `root`, which no path leaves: by "..", "/" or a link.

    Results are not trusted: files may have come from anywhere.

    Args:
        root: the directory. Links on the way to it are resolved once; links inside it are never
            followed.
        write: whether `write_file`, `edit_file` and `delete_file` are included.
        hidden: whether names that begin with a dot (`.env`, `.git`) can be seen and used.
        max_bytes: the largest file that is read or written; a search reads 50 times as much in all.
        max_results: names or lines that one call returns.
        max_visits: names that one call looks at.

    Raises:
        ConfigError: `root` is not a directory, or is "/"; or a limit is less than 1.
    """
    check_counts(max_bytes=max_bytes, max_results=max_results, max_visits=max_visits)
    files = SandboxRoot(root, hidden=hidden)
    made = [
        _build_reader(files, max_bytes),
        _build_lister(files, max_results, max_visits),
    ]
    made.append(_build_searcher(files, max_bytes, max_results, max_visits))
    if write:
        made += [
            _build_writer(files, max_bytes),
            _build_editor(files, max_bytes),
            _build_deleter(files),
        ]
    return made


def _build_reader(files: SandboxRoot, max_bytes: int) -> Tool:
    @tool(effect="read")
    def read_file(path: str, offset: Start = 0, limit: Count = 1_000) -> str:
        """Read a text file.

        Args:
            path: The file, from the root folder on, like "notes/today.md".
            offset: How many lines to skip.
            limit: How many lines to read at most.
        """
        lines = files.read_text(path, max_bytes).split("\n")
        if lines[-1] == "":  # after the end of the last line
            lines.pop()
        end = offset + limit
        shown = lines[offset:end]
        if len(shown) == len(lines):
            return "\n".join(lines) or "[the file is empty]"
        if not shown:
            raise ToolError(
                f"The file has {len(lines)} lines: offset {offset} is past its end."
            )
        more = f"; continue with offset={end}" if end < len(lines) else ""
        note = f"[lines {offset + 1} to {offset + len(shown)} of {len(lines)}{more}]"
        return "\n".join([*shown, note])

    return read_file


def _build_lister(files: SandboxRoot, max_results: int, max_visits: int) -> Tool:
    @tool(effect="read", directory=True)
    def list_files(path: str = ".", glob: str = "*") -> str:
        """List files and folders; the names of folders end with "/".

        Args:
            path: The folder to look in.
            glob: Which names, below that folder: "*" those in it, "**/*.py" the Python files in it and all folders
                below, "**" everything.
        """
        found = list(
            itertools.islice(files.walk(path, glob, max_visits), max_results + 1)
        )
        listed = [_printable(name) for name in found[:max_results]]
        if len(found) > max_results:
            listed.append(
                f"[the first {max_results} are shown: ask for a folder, or a narrower glob]"
            )
        return "\n".join(listed) or "[nothing there matches]"

    return list_files


def _build_searcher(
    files: SandboxRoot, max_bytes: int, max_results: int, max_visits: int
) -> Tool:
    @tool(effect="read")
    def search_files(
        text: Annotated[str, Field(min_length=1)], path: str = ".", glob: str = "**"
    ) -> str:
        """Find the lines of text files that contain a text, as "path:line number: line".

        Args:
            text: What to look for: plain text, in upper and lower case as it is given.
            path: The folder to look in.
            glob: Which files below that folder: "**" all of them, "**/*.py" the Python files.
        """
        skipped: list[str] = []
        names = (
            name
            for name in files.walk(path, glob, max_visits)
            if not name.endswith("/")
        )
        hits = _search(files, names, text, max_bytes, skipped)
        found = list(itertools.islice(hits, max_results + 1))
        lines = found[:max_results] or ["[nothing found]"]
        if len(found) > max_results:
            lines.append(
                f"[the first {max_results} are shown: look in a folder, or for more of the line]"
            )
        if skipped:
            lines.append(
                f"[{len(skipped)} files were left out: too large, or not text]"
            )
        return "\n".join(lines)

    return search_files


def _search(
    files: SandboxRoot,
    names: Iterator[str],
    text: str,
    max_bytes: int,
    skipped: list[str],
) -> Iterator[str]:
    remaining = SEARCH_FACTOR * max_bytes
    for name in names:
        try:
            data = files.read(name, max_bytes)
            remaining -= len(data)
            yield from _find_lines(name, decode_text(name, data), text)
        except ToolError:
            skipped.append(name)
        if remaining < 0:
            yield f"[stopped after {SEARCH_FACTOR * max_bytes:,} bytes: look in a folder further down]"
            return


def _find_lines(name: str, content: str, text: str) -> Iterator[str]:
    if text not in content:
        return
    for number, line in enumerate(content.split("\n"), 1):
        if text in line:
            yield f"{_printable(name)}:{number}: {line.strip()[:MAX_LINE]}"


def _build_writer(files: SandboxRoot, max_bytes: int) -> Tool:
    # Not "idempotent": repeated after a crash, it would undo later changes of others.
    @tool(effect="write", content=("text",))
    def write_file(path: str, text: str) -> str:
        """Write a text file, in place of what it contained; folders on the way to it are made.

        Args:
            path: The file, from the root folder on, like "notes/today.md".
            text: All that it shall contain.
        """
        return f"{_write(files, path, text, max_bytes):,} bytes written"

    return write_file


def _build_editor(files: SandboxRoot, max_bytes: int) -> Tool:
    # Two edits in one turn must not both begin with the same text.
    lock = threading.Lock()

    @tool(effect="write", content=("old", "new"))
    def edit_file(path: str, old: Annotated[str, Field(min_length=1)], new: str) -> str:
        """Replace one place in a text file.

        Args:
            path: The file, from the root folder on.
            old: What stands there now, character by character; it must occur exactly once in the file.
            new: What shall stand there.
        """
        with lock:
            text = files.read_text(path, max_bytes)
            old, new = _match_line_ends(text, old, new)
            at = text.find(old)
            if at < 0:
                raise ToolError(
                    "The old text does not occur in the file: read the file again."
                )
            if text.find(old, at + 1) >= 0:
                raise ToolError(
                    "The old text occurs more than once: give more of the lines around it."
                )
            _write(files, path, text[:at] + new + text[at + len(old) :], max_bytes)
        return "replaced"

    return edit_file


def _match_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
    """Return both texts with the line ends of the file: models write `\\n` for all."""
    if "\r\n" not in text:
        return old, new
    is_uniform = "\n" not in text.replace("\r\n", "")
    begins_in_line_end = old.startswith("\n") and f"\r{old}" in text
    if old in text and not is_uniform and not begins_in_line_end:
        return old, new
    return _use_crlf(old), _use_crlf(new)


def _use_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _build_deleter(files: SandboxRoot) -> Tool:
    @tool(effect="destructive")
    def delete_file(path: str) -> str:
        """Delete a file for good."""
        files.delete(path)
        return "deleted"

    return delete_file


def _write(files: SandboxRoot, path: str, text: str, max_bytes: int) -> int:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"The text cannot be written: character {error.start} is half of a surrogate pair."
        ) from None
    if len(data) > max_bytes:
        raise ToolError(
            f"The text is too large: {len(data):,} bytes; at most {max_bytes:,} are written."
        )
    files.write(path, data)
    return len(data)


def _printable(name: str) -> str:
    """Return a name on one line, with its control characters escaped."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()
