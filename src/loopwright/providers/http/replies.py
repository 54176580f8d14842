"""What a server sent back, and what its status and headers say about trying again."""

import dataclasses
import email.utils
import math
import time
from collections.abc import Callable


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """What a server sent back: status, header pairs as they came, and the decoded body."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = dataclasses.field(
        repr=False
    )  # it may echo the key
    body: bytes = dataclasses.field(repr=False)

    def header(self, name: str) -> str:
        """The value of a header (several values joined by commas), or an empty string."""
        wanted = name.lower().encode()
        return ", ".join(
            [
                value.decode("latin-1")
                for key, value in self.headers
                if key.lower() == wanted
            ]
        )


def worth_retrying(reply: Reply) -> bool:
    """Whether the same request may succeed later: the server's `x-should-retry` if it has one, else its status."""
    told = reply.header("x-should-retry").lower()
    if told in {"true", "false"}:
        return told == "true"
    return reply.status in {408, 409, 429} or reply.status >= 500


def retry_after(reply: Reply, now: Callable[[], float] = time.time) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `Retry-After` as seconds or date; None if unclear."""
    milliseconds = _number(reply.header("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = reply.header("retry-after").strip()
    seconds = _number(text)
    return seconds if seconds is not None else _until(text, now)


def _number(text: str) -> float | None:
    text = text.strip()
    if not (text.isascii() and text.replace(".", "", 1).isdigit()):
        return None  # so that float() never sees "-1", "inf", "nan", "1e9" or digits of other scripts
    value = float(text)
    return value if math.isfinite(value) else None


def _until(date: str, now: Callable[[], float]) -> float | None:
    if not (date.isascii() and date.endswith("GMT") and len(date) < 40):
        return None
    try:
        wait = email.utils.parsedate_to_datetime(date).timestamp() - now()
    except (ValueError, OverflowError):
        return None
    return wait if wait >= 0 else None
