"""Drawing on a terminal, with rich: the timeline of a run in progress, and tables."""

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
from ..events.timeline import Line, Timeline
from ..providers.base import Delta
from .progress import format_prefix, select_live_lines
from .text import clean, cut, one_line

STYLES = {
    "run": "dim", "engine": "dim", "task": "bold", "model": "dim", "thinking": "dim italic", "call": "cyan",
    "gate": "cyan", "problem": "yellow", "retry": "yellow", "limit": "yellow", "drift": "yellow", "question": "bold",
    "error": "red", "answer": "bold", "fact": "magenta", "usage": "dim", "recovery": "yellow", "outcome": "yellow",
    "dead letter": "yellow", "undo": "yellow", "person": "bold", "paused": "yellow", "label": "yellow",
}  # fmt: skip
MAX_ROWS = 3  # of a line of the timeline, unless it is shown in full
MAX_REPLIES, REPLY_ROWS = (
    3,
    6,
)  # replies shown while they are streamed, and the rows of each
MAX_REPLY_CHARS = 4_000  # kept of a reply that is streamed


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream leads to a screen that can be drawn on."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


class Screen(Console):
    """A terminal for plain texts: no markup, no highlighting."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, highlight=False, markup=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError` for the caller; rich would end the process."""
        raise BrokenPipeError

    def show(self, line: Line, *, before: str = "", full: bool = False) -> None:
        """Draw a line of a timeline, in at most three rows unless `full`."""
        first = before + format_prefix(line)
        room = max(self.width - len(first), 20)
        text = (
            clean(line.text)
            if full
            else cut(one_line(line.text), MAX_ROWS * room - room // 2)
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
        """Draw a table; cells that are too wide are wrapped."""
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for heading in headings:
            drawn.add_column(heading, overflow="fold")
        for row in rows:
            drawn.add_row(*(Text(one_line(cell)) for cell in row))
        self.print(drawn)


class LiveTimeline:
    """Draw a run in progress, and below it the replies that are being streamed."""

    def __init__(self, stream: TextIO) -> None:
        self._screen, self._timeline = Screen(stream), Timeline()
        self._replies: dict[str, str] = {}
        self._live = Live(
            get_renderable=self._view,
            console=self._screen,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._held: list[Line] | None = None  # lines to draw after a person was asked

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._replies.clear()
        self._live.stop()

    def known(self, entries: Iterable[Entry]) -> None:
        """Read them, without drawing."""
        self._timeline.read(entries)

    def entry(self, entry: Entry) -> None:
        """Draw its lines above the streamed replies."""
        if isinstance(entry.event, ModelRequested):
            self._replies[entry.key] = ""
        elif isinstance(entry.event, (ModelReplied, ModelFailed)):
            self._replies.pop(entry.key, None)
        for line in select_live_lines(self._timeline, entry):
            if self._held is None:
                self._screen.show(line)
            else:
                self._held.append(line)

    def delta(self, delta: Delta) -> None:
        """Draw the next chunk of a reply."""
        self._replies[delta.key] = (
            self._replies.get(delta.key, "") + delta.reasoning + delta.text
        )[-MAX_REPLY_CHARS:]

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Draw nothing, so that a person can type; draw what happened afterwards."""
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
        """Draw what a tool printed above the streamed replies."""
        self._screen.print(Text(clean(text)), end="", soft_wrap=True)

    def _view(self) -> Group:
        """Return the last rows of each reply that is being streamed."""
        width = max(self._screen.width - 2, 20)
        rows: list[Text] = []
        for key, words in list(self._replies.items())[:MAX_REPLIES]:
            rows.append(Text(f"{key:<8} …", style="dim"))
            lines = Text(clean(words)).wrap(self._screen, width)
            rows += [Text("  ") + line for line in list(lines)[-REPLY_ROWS:]]
        return Group(*rows)
