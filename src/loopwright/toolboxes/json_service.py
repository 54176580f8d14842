"""One request with JSON to a web service, over guarded connections."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx

from ..errors import ConfigError, ToolError
from ..messages import Json
from .ssrf_guard import GuardedTransport, RequestRefused

PASSING = (408, 425, 429)
"""Statuses that may pass, beside those of a server's failure."""


class ServiceUnavailable(Exception):
    """A service did not answer, or said that it is busy: the same request may succeed later."""


def parse_service_url(field: str, url: str) -> SplitResult:
    """Return the parts of an address; raise `ConfigError` for one without a scheme of the web or a host."""
    try:
        found = urlsplit(url)
        is_usable = found.scheme in ("http", "https") and bool(found.hostname)
        is_usable = is_usable and found.port != 0 and "@" not in found.netloc
    except ValueError:
        found, is_usable = urlsplit(""), False
    if not is_usable:
        raise ConfigError(
            f"{field}: must begin with https:// and have a host and no user name"
        )
    return found


async def send_json(
    transport: GuardedTransport,
    method: str,
    url: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: str | None = None,
) -> Any:
    """Return the JSON of the answer to one request, `None` where it is none.

    Raises `ServiceUnavailable` for a failure that may pass, `ToolError` for any other; neither names more than the host.
    """
    host = urlsplit(url).hostname or ""
    sent = {"accept": "application/json", "user-agent": "loopwright", **(headers or {})}
    if body is not None:
        sent["content-type"] = "application/json"
    try:
        async with httpx.AsyncClient(transport=transport) as client:
            reply = await client.request(
                method, url, params=params, headers=sent, content=body
            )
    except RequestRefused:
        raise
    except httpx.HTTPError as error:
        kind = type(error).__name__
        raise ServiceUnavailable(f"{host} could not be reached ({kind})") from None
    _check_status(host, reply.status_code)
    return _read(reply.content)


def _check_status(host: str, status: int) -> None:
    if 200 <= status < 300:
        return
    text = f"{host} answered with status {status}"
    if status in PASSING or status >= 500:
        raise ServiceUnavailable(text)
    raise ToolError(text)


def _read(body: bytes) -> Json:
    try:
        found: Json = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found
