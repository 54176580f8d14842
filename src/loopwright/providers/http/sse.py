"""Reads server-sent events from bytes that are cut anywhere: no I/O, linear time."""

from typing import NamedTuple

MAX_LINE = 10_000_000  # bytes, also of all data lines of an event together
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerEvent(NamedTuple):
    """One event of a stream: its name ("message" where the server names none) and its data, lines joined by `\\n`."""

    event: str
    data: str


class EventReader:
    """An incremental reader: feed it what arrives, and it gives the events that are whole by then.

    Lines end with CR, LF or both, comments and unknown fields are passed over, invalid UTF-8 becomes U+FFFD, and an
    event without its blank line at the end of the stream is none.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """

    def __init__(self) -> None:
        self._unfinished: list[
            bytes
        ] = []  # a line in pieces, joined once it has come to its end
        self._length = 0
        self._is_first_line = True
        self._after_carriage_return = False
        self._event = b""
        self._data = (
            bytearray()
        )  # the lines of it so far, each with its end: lists of short ones are large

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end in `chunk`. Raises ValueError for a line, or an event, of more than 10 MB."""
        events: list[ServerEvent] = []
        for line in self._lines(chunk):
            if line:
                self._take(line)
            elif self._data:
                data = self._data[:-1].decode(errors="replace")
                events.append(
                    ServerEvent(self._event.decode(errors="replace") or "message", data)
                )
                self._event = b""
                self._data.clear()
            else:
                self._event = b""
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        """The lines that end in `chunk`, without their ends."""
        if self._after_carriage_return and chunk:
            self._after_carriage_return = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        lines = chunk.splitlines()  # of bytes: only CR, LF and CR LF end a line
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        self._after_carriage_return = chunk.endswith(b"\r")
        longest = (
            max([self._length + len(lines[0]), *map(len, lines)])
            if lines
            else self._length + len(rest)
        )
        if longest > MAX_LINE:
            raise ValueError(f"a line of more than {MAX_LINE // 1_000_000} MB")
        if lines:
            lines[0] = b"".join([*self._unfinished, lines[0]])
            self._unfinished, self._length = [], 0
            if self._is_first_line:
                lines[0], self._is_first_line = (
                    lines[0].removeprefix(BYTE_ORDER_MARK),
                    False,
                )
        if rest:
            self._unfinished.append(rest)
            self._length += len(rest)
        return lines

    def _take(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data += line[5:].removeprefix(b" ") + b"\n"
        elif line.startswith(b"event:"):
            self._event = line[6:].removeprefix(b" ")
        elif line == b"data":
            self._data += b"\n"
        elif line == b"event":
            self._event = b""
        if len(self._data) > MAX_LINE:
            raise ValueError(f"an event of more than {MAX_LINE // 1_000_000} MB")
