"""Whoever watches a run at work: nobody, a pipe that gets plain lines, or (in `terminal`) a person."""

import contextlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, Self, TextIO

from ..events.entry import Entry
from ..providers.base import Delta
from .text import clean, cut, one_line
from .timeline import Line, Timeline

MAX_COLUMNS = 240  # columns of a line in a pipe, where no screen sets a limit
SHOWN_AT_THE_END = (
    "answer",
    "output",
    "error",
)  # the answer goes to standard output, an error is the last line


class Watcher(Protocol):
    """Sees a run at work, from `with` to its end."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(self, *_: object) -> None:
        """Show no more."""
        ...

    def known(self, entries: Iterable[Entry]) -> None:
        """The entries of a run that goes on: not shown again, but what is new refers to them."""
        ...

    def entry(self, entry: Entry) -> None:
        """A new entry of the journal; raises `BrokenPipeError` if nobody reads any more."""
        ...

    def delta(self, delta: Delta) -> None:
        """A piece of a reply as it comes."""
        ...

    def printed(self, text: str) -> None:
        """Whole lines that a tool or a plug-in printed."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """While a person is asked: nothing is drawn meanwhile."""
        ...


class NullWatcher:
    """Nobody watches; what tools print comes through all the same."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was begun."""

    def known(self, entries: Iterable[Entry]) -> None:
        """Not needed."""

    def entry(self, entry: Entry) -> None:
        """Not shown."""

    def delta(self, delta: Delta) -> None:
        """Not shown."""

    def printed(self, text: str) -> None:
        """Written as it is, but for control characters."""
        self._stream.write(clean(text))
        self._stream.flush()

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Nothing is drawn anyway."""
        yield


class PlainLines(NullWatcher):
    """Writes each event as a line of plain text, for files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._timeline = Timeline()

    def known(self, entries: Iterable[Entry]) -> None:
        """Read, not written."""
        self._timeline.read(entries)

    def entry(self, entry: Entry) -> None:
        """Its lines."""
        for line in select_live_lines(self._timeline, entry):
            self._stream.write(format_line(line) + "\n")
        self._stream.flush()


def select_live_lines(timeline: Timeline, entry: Entry) -> list[Line]:
    """An entry's lines, without what is told when the run has ended."""
    return [
        line for line in timeline.lines(entry) if line.label not in SHOWN_AT_THE_END
    ]


def format_prefix(line: Line) -> str:
    """What stands before a line's text: its place in the program, and what it is."""
    return f"{line.key:<8}{'  ' * line.depth} {line.label:<8} "


def format_line(line: Line, *, before: str = "") -> str:
    """A line as text on one line, cut."""
    return cut(
        f"{before}{format_prefix(line)}{one_line(line.text)}", MAX_COLUMNS
    ).rstrip()


def format_full_line(line: Line, *, before: str = "") -> str:
    """A line with all of its text; what follows its first line is indented as far."""
    first = before + format_prefix(line)
    return (first + clean(line.text).replace("\n", "\n" + " " * len(first))).rstrip()


def format_table(
    headings: Iterable[str], rows: Iterable[Iterable[str]]
) -> Iterator[str]:
    """Rows as plain text in columns, each as wide as its longest value."""
    cells = [[one_line(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
