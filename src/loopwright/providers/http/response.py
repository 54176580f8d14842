"""An HTTP response, and what its status and headers say about a retry."""

import email.utils
import math
import time
from collections.abc import Callable

from ..._internal import dataclasses
from ...errors import is_transient

MAX_DATE = 40  # characters of an HTTP date


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response: the status, the header pairs as they came, and the decoded body.

    The repr shows the status only, since a server may echo the API key in a header or the body.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = dataclasses.field(repr=False)
    body: bytes = dataclasses.field(repr=False)

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def header(self, name: str) -> str:
        """Return the value of a header, several values joined by commas, or an empty text."""
        wanted = name.lower().encode()
        values = [value for key, value in self.headers if key.lower() == wanted]
        return ", ".join([value.decode("latin-1") for value in values])


def is_retryable(response: Response) -> bool:
    """Return whether the same request may succeed later: by `x-should-retry` if it is there, else by the status."""
    advice = response.header("x-should-retry").lower()
    if advice in {"true", "false"}:
        return advice == "true"
    return is_transient(response.status)


def read_retry_after(
    response: Response, now: Callable[[], float] = time.time
) -> float | None:
    """Return the seconds to wait by `retry-after-ms` or `Retry-After` (seconds or a date); `None` if unclear."""
    milliseconds = _read_number(response.header("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = response.header("retry-after").strip()
    seconds = _read_number(text)
    if seconds is not None:
        return seconds
    return _read_date(text, now)


def _read_number(text: str) -> float | None:
    text = text.strip()
    # `float` alone would also accept "-1", "inf", "nan", "1e9" and digits of other scripts.
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    value = float(text)
    if math.isinf(value):
        return None
    return value


def _read_date(date: str, now: Callable[[], float]) -> float | None:
    """Return the seconds until an HTTP date; `None` for a date in the past or another text."""
    if not (date.isascii() and date.endswith("GMT")) or len(date) >= MAX_DATE:
        return None
    try:
        wait = email.utils.parsedate_to_datetime(date).timestamp() - now()
    except (ValueError, OverflowError):
        return None
    return wait if wait >= 0 else None
