"""Watchers of a run in progress: none, plain lines for a pipe, or (in `terminal`) a screen."""

import contextlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, Self, TextIO

from ..events.entry import Entry
from ..events.timeline import Line, Timeline
from ..providers.base import Delta
from .text import clean, cut, one_line

MAX_COLUMNS = 240
"""The width of a line in a pipe."""
SHOWN_AT_THE_END = ("answer", "output", "error")
"""Headings of lines that are printed when the run has ended: the answer on standard output, an error as the last line."""


class Watcher(Protocol):
    """Show a run in progress, within `with`."""

    def __enter__(self) -> Self:
        """Start showing."""
        ...

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        ...

    def known(self, entries: Iterable[Entry]) -> None:
        """Read the recorded entries of a resumed run: they are not shown, but new ones refer to them."""
        ...

    def entry(self, entry: Entry) -> None:
        """Show a new entry; raises `BrokenPipeError` if the reader is gone."""
        ...

    def delta(self, delta: Delta) -> None:
        """Show a chunk of a streamed reply."""
        ...

    def printed(self, text: str) -> None:
        """Show whole lines that a tool or a plug-in printed."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Draw nothing while a person is asked."""
        ...


class NullWatcher:
    """Show nothing but what tools print."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def known(self, entries: Iterable[Entry]) -> None:
        """Do nothing."""

    def entry(self, entry: Entry) -> None:
        """Show nothing."""

    def delta(self, delta: Delta) -> None:
        """Show nothing."""

    def printed(self, text: str) -> None:
        """Write the text without control characters."""
        self._stream.write(clean(text))
        self._stream.flush()

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Do nothing: nothing is drawn."""
        yield


class PlainLines(NullWatcher):
    """Write each event as a line of plain text, for files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._timeline = Timeline()

    def known(self, entries: Iterable[Entry]) -> None:
        """Read them, without output."""
        self._timeline.read(entries)

    def entry(self, entry: Entry) -> None:
        """Write its lines."""
        for line in select_live_lines(self._timeline, entry):
            self._stream.write(format_line(line) + "\n")
        self._stream.flush()


def select_live_lines(timeline: Timeline, entry: Entry) -> list[Line]:
    """Return the lines of an entry, without those that are printed when the run has ended."""
    return [
        line for line in timeline.lines(entry) if line.label not in SHOWN_AT_THE_END
    ]


def format_prefix(line: Line) -> str:
    """Return the text before a line's own: its key and its heading."""
    return f"{line.key:<8}{'  ' * line.depth} {line.label:<8} "


def format_line(line: Line, *, before: str = "") -> str:
    """Return a line of the timeline as one line of text, cut."""
    return cut(
        f"{before}{format_prefix(line)}{one_line(line.text)}", MAX_COLUMNS
    ).rstrip()


def format_full_line(line: Line, *, before: str = "") -> str:
    """Return a line of the timeline with all of its text, indented below its first line."""
    first = before + format_prefix(line)
    return (first + clean(line.text).replace("\n", "\n" + " " * len(first))).rstrip()


def format_table(
    headings: Iterable[str], rows: Iterable[Iterable[str]]
) -> Iterator[str]:
    """Return rows as plain text in columns, each as wide as its longest value."""
    cells = [[one_line(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
