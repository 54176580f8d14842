"""What is drawn on a terminal, with rich: the growing timeline of a run, and tables."""

import contextlib
import os
from collections.abc import Generator, Iterable, Sequence
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..events.effects import ModelFailed, ModelReplied, ModelRequested
from ..events.entry import Entry
from ..providers.base import Delta
from .progress import format_prefix, select_live_lines
from .text import clean, cut, one_line
from .timeline import Line, Timeline

STYLES = {
    "run": "dim", "engine": "dim", "task": "bold", "model": "dim", "thinking": "dim italic", "call": "cyan",
    "gate": "cyan", "problem": "yellow", "retry": "yellow", "limit": "yellow", "drift": "yellow", "question": "bold",
    "error": "red", "answer": "bold", "fact": "magenta", "usage": "dim", "recovery": "yellow", "doubt": "yellow",
    "set aside": "yellow", "undo": "yellow", "person": "bold", "paused": "yellow", "label": "yellow",
}  # fmt: skip
ROWS = 3  # that a line of the timeline may take, unless all of it is asked for
STREAMS, STREAM_ROWS = 3, 6  # replies shown while they come, and the rows that each has
KEPT = 4_000  # characters of a reply that is coming


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at what is written, on a screen that can be drawn on."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


class Screen(Console):
    """A terminal: plain texts only (no markup, no guesses at what to highlight)."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Whoever draws decides what it means that nobody looks any more; rich would end the process."""
        raise BrokenPipeError

    def show(self, line: Line, *, before: str = "", full: bool = False) -> None:
        """Draw a line of a timeline, in at most three rows unless it is asked for in full."""
        first = before + format_prefix(line)
        room = max(self.width - len(first), 20)
        text = (
            clean(line.text)
            if full
            else cut(one_line(line.text), ROWS * room - room // 2)
        )
        row = Table.grid()
        row.add_column(no_wrap=True, width=len(first))
        row.add_column(overflow="fold")
        row.add_row(
            Text(first, style="dim"), Text(text, style=STYLES.get(line.label, ""))
        )
        self.print(row)

    def show_table(
        self, headings: Sequence[str], rows: Iterable[Sequence[str]]
    ) -> None:
        """Draw a table; what is too wide for the screen goes on in the next row."""
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for heading in headings:
            drawn.add_column(heading, overflow="fold")
        for row in rows:
            drawn.add_row(*(Text(one_line(cell)) for cell in row))
        self.print(drawn)


class LiveTimeline:
    """Draws a run as it grows, and below it the replies that are just coming."""

    def __init__(self, stream: TextIO) -> None:
        self._screen, self._timeline = Screen(stream), Timeline()
        self._coming: dict[str, str] = {}
        self._live = Live(
            get_renderable=self._view,
            console=self._screen,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._held: list[Line] | None = None  # what happens while a person is asked

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._coming.clear()
        self._live.stop()

    def known(self, entries: Iterable[Entry]) -> None:
        """Read, not drawn."""
        self._timeline.read(entries)

    def entry(self, entry: Entry) -> None:
        """Draw its lines above what is coming."""
        if isinstance(entry.event, ModelRequested):
            self._coming[entry.key] = ""
        elif isinstance(entry.event, (ModelReplied, ModelFailed)):
            self._coming.pop(entry.key, None)
        for line in select_live_lines(self._timeline, entry):
            if self._held is None:
                self._screen.show(line)
            else:
                self._held.append(line)

    def delta(self, delta: Delta) -> None:
        """Draw the next words of a reply."""
        self._coming[delta.key] = (
            self._coming.get(delta.key, "") + delta.reasoning + delta.text
        )[-KEPT:]

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Nothing is drawn, so that a person can type; it is made up for afterwards."""
        self._live.stop()
        held = self._held = []
        try:
            yield
        finally:
            self._held = None
            self._live.start()
            for line in held:
                self._screen.show(line)

    def printed(self, text: str) -> None:
        """Draw what a tool printed above what is coming."""
        self._screen.print(Text(clean(text)), end="", soft_wrap=True)

    def _view(self) -> Group:
        """The last rows of each reply that is coming."""
        width = max(self._screen.width - 2, 20)
        rows: list[Text] = []
        for key, words in list(self._coming.items())[:STREAMS]:
            rows.append(Text(f"{key:<8} …", style="dim"))
            said = Text(clean(words)).wrap(self._screen, width)
            rows += [Text("  ") + line for line in list(said)[-STREAM_ROWS:]]
        return Group(*rows)
