"""Server-sent events: an incremental parser without I/O, in linear time, for chunks of any size."""

from typing import NamedTuple

MAX_LINE = 10_000_000  # bytes of a line, and of all data lines of an event together
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerEvent(NamedTuple):
    """One event of a stream: its name, "message" by default, and its data lines joined by `\\n`."""

    event: str
    data: str


class EventReader:
    """An incremental parser: it takes bytes as they arrive and returns the events that they complete.

    Lines end with CR, LF or both, comments and unknown fields are ignored, invalid UTF-8 becomes U+FFFD, and an event
    without its blank line at the end of the stream is discarded.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []  # chunks of a line, joined at its end
        self._length = 0
        self._is_first_line = True
        self._after_carriage_return = False
        self._event = b""
        # The data lines, each with its end; a list of many short lines would need more memory.
        self._data = bytearray()

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that end in `chunk`.

        Raises:
            ValueError: a line, or the data of an event, has more than 10 MB.
        """
        events: list[ServerEvent] = []
        for line in self._split_lines(chunk):
            if line:
                self._read_field(line)
                continue
            if self._data:
                name = self._event.decode(errors="replace") or "message"
                data = self._data[:-1].decode(errors="replace")
                events.append(ServerEvent(name, data))
                self._data.clear()
            self._event = b""
        return events

    def _split_lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in `chunk`, without their ends."""
        if self._after_carriage_return and chunk:
            self._after_carriage_return = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        lines = chunk.splitlines()  # of bytes: only CR, LF and CR LF end a line
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        self._after_carriage_return = chunk.endswith(b"\r")
        self._check_length(lines or [rest])
        if lines:
            lines[0] = self._finish_line(lines[0])
        if rest:
            self._unfinished.append(rest)
            self._length += len(rest)
        return lines

    def _check_length(self, lines: list[bytes]) -> None:
        length = max(self._length + len(lines[0]), max(map(len, lines)))
        if length > MAX_LINE:
            raise ValueError(f"a line of more than {MAX_LINE // 1_000_000} MB")

    def _finish_line(self, end: bytes) -> bytes:
        """Return the unfinished line with its end."""
        line = b"".join([*self._unfinished, end])
        self._unfinished, self._length = [], 0
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(BYTE_ORDER_MARK)
        return line

    def _read_field(self, line: bytes) -> None:
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
