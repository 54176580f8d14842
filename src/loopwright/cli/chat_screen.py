"""Screens of a chat: a terminal with a prompt below what is said, or plain lines for pipes."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from typing import Protocol, Self, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.output import create_output

from .text import clean

PROMPT = "> "
MAX_ROWS = 8
"""Rows shown of a reply that is being streamed; the whole is printed when it is complete."""


class Interrupt(Exception):
    """Ctrl-C was typed."""


class ChatScreen(Protocol):
    """What a chat is shown on and typed at, within `async with`."""

    is_interactive: bool
    """Whether a person may type while an answer is made."""

    async def __aenter__(self) -> Self:
        """Begin to read."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """End, with all printed."""
        ...

    def print(self, text: str) -> None:
        """Print whole lines; characters that could move the cursor are escaped."""
        ...

    def stream(self, text: str) -> None:
        """Show a reply as far as it is there, in place of what was shown before; empty for none."""
        ...

    async def read(self) -> str | Interrupt | None:
        """Return the next line that is typed, or that Ctrl-C was; `None` at the end. It can be cancelled."""
        ...

    def forget_typed(self) -> None:
        """Forget lines that were typed and not read yet."""
        ...


def open_screen() -> ChatScreen:
    """Return the terminal, or plain lines if standard input or output is none."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return TerminalScreen()
    return PlainScreen()


class TerminalScreen:
    """A terminal: what is said scrolls above the prompt, and the reply in progress stands right above it."""

    is_interactive = True

    def __init__(self) -> None:
        self._output = create_output(_copy_stdout())
        self._session: PromptSession[str] = PromptSession(
            self._format_prompt,
            output=self._output,
            interrupt_exception=Interrupt,
            erase_when_done=True,
        )
        self._typed: asyncio.Queue[str | Interrupt | None] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self._reply = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        # Between two prompts the terminal turns Ctrl-C into a signal.
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        self._reading = asyncio.ensure_future(self._read_all())
        return self

    def _interrupt(self) -> None:
        self._typed.put_nowait(Interrupt())

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        self._reply = ""
        await asyncio.sleep(0)  # what is to be printed is scheduled before
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))

    def print(self, text: str) -> None:
        """Print above the prompt."""
        shown, app = clean(text).replace("\n", "\r\n"), self._session.app
        if app.is_running and app.loop is not None:
            app.loop.call_soon_threadsafe(self._draw, shown)
        else:
            self._draw(shown)

    def _draw(self, text: str) -> None:
        """Draw a text in place of the prompt, and the prompt below it; what is typed meanwhile stays in it."""
        app = self._session.app
        if app.is_running:
            app.renderer.erase()
        self._output.write_raw(text)
        self._output.flush()
        if app.is_running:
            app.renderer.reset()
            app.renderer.request_absolute_cursor_position()
            app.invalidate()

    def stream(self, text: str) -> None:
        """Show the last rows of a reply above the prompt."""
        self._reply = text
        self._session.app.invalidate()

    async def read(self) -> str | Interrupt | None:
        """Return the next line; the end stays the end."""
        typed = await self._typed.get()
        if typed is None:
            self._typed.put_nowait(None)
        return typed

    def forget_typed(self) -> None:
        """Forget lines that were typed before a question was asked."""
        kept: list[None] = []
        while not self._typed.empty():
            if self._typed.get_nowait() is None:
                kept.append(None)
        for end in kept:
            self._typed.put_nowait(end)

    def _format_prompt(self) -> str:
        if not self._reply:
            return PROMPT
        width = max(self._output.get_size().columns - 1, 20)
        lines = clean(self._reply).split("\n")
        rows = [line[at : at + width] for line in lines for at in _steps(line, width)]
        return "\n".join([*rows[-MAX_ROWS:], PROMPT])

    async def _read_all(self) -> None:
        while True:
            try:
                typed: str | Interrupt | None = await self._session.prompt_async(
                    handle_sigint=False
                )
                self.print(f"{PROMPT}{typed}\n")
            except Interrupt as interrupt:
                typed = interrupt
            except EOFError:
                typed = None
            self._typed.put_nowait(typed)
            if typed is None:
                return


def _steps(line: str, width: int) -> range:
    return range(0, max(len(line), 1), width)


def _copy_stdout() -> TextIO:
    """Return another stream to standard output, which is redirected while tools may print."""
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # it is kept in memory
        return sys.stdout
    return os.fdopen(os.dup(descriptor), "w", encoding="utf-8")


class PlainScreen:
    """Lines from standard input, one a turn, and answers on standard output."""

    is_interactive = False

    def __init__(self) -> None:
        self._stream = _copy_stdout()
        self._typed: asyncio.Queue[str | None] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()

        def read_all() -> None:
            for line in [*iter(sys.stdin.readline, ""), None]:
                text = None if line is None else line.rstrip("\r\n")
                with contextlib.suppress(RuntimeError):  # the chat is over
                    loop.call_soon_threadsafe(self._typed.put_nowait, text)

        threading.Thread(target=read_all, name="chat-input", daemon=True).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.flush()

    def print(self, text: str) -> None:
        """Write the text."""
        self._stream.write(clean(text))
        self._stream.flush()

    def stream(self, text: str) -> None:
        """Show nothing: the reply is printed when it is complete."""

    async def read(self) -> str | Interrupt | None:
        """Return the next line."""
        typed = await self._typed.get()
        if typed is None:
            self._typed.put_nowait(None)
        return typed

    def forget_typed(self) -> None:
        """Forget nothing: the lines were written for the questions."""
