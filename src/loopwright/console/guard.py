"""Who may ask the console: the token, the names of the host, the origin, and the headers of each response."""

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from pydantic_core import to_json

from ..principals import Sender
from .users import ConsoleUser, Right

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
FindUser: TypeAlias = Callable[[Any], Sender | Awaitable[Sender | None] | None]
"""Tells who sends a request, from the host application's authentication; `None` is an unknown user."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MAX_BODY = 256 * 1024
"""The maximum size of a request's body in bytes."""
MAX_CONVERSATION = 8 * 1024 * 1024
"""That of a request of AG-UI, which has all of a conversation, with its images."""
LARGE = ("/ag-ui", "/api/message")
"""Begins the paths of requests that may have attachments."""
AG_UI = "/ag-ui"
"""Begins the paths that front ends of AG-UI use."""
MIN_TOKEN = 32
"""The minimum number of characters of a token that is given."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def new_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


class RefusedRequest(Exception):
    """The console does not answer a request: its `status` and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def require(user: ConsoleUser, right: Right) -> None:
    """Refuse a user without a right."""
    problem = user.find_problem(right)
    if problem:
        raise RefusedRequest(403, problem)


class Guard:
    """Let requests pass that name a known host and come from the console's own page.

    Args:
        app: what answers them.
        hosts: the names of the host that are accepted, besides those of the loopback.
        token: what each request but those for the page itself has to send as `Authorization: Bearer`; `None` where
            the host application knows who asks.
    """

    def __init__(self, app: App, hosts: Iterable[str], token: str | None) -> None:
        self._app, self._token = app, token
        self._hosts = frozenset([*LOOPBACK, *(host.lower() for host in hosts)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _add_headers(send, scope)
        try:
            headers = {name.lower(): value for name, value in scope["headers"]}
            path = self._check(scope, headers)
            limit = MAX_CONVERSATION if path.startswith(LARGE) else MAX_BODY
            _check_length(headers, limit)
        except RefusedRequest as refused:
            await _refuse(guarded, refused)
            return
        await self._app(scope, _bound(receive, limit), guarded)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """Refuse what comes from another site or by another name; return the path."""
        host = headers.get(b"host", b"").decode("latin-1")
        if _find_name(host) not in self._hosts:
            raise RefusedRequest(
                403,
                f"host: {host[:100]!r} is not one of this console's names; "
                "pass it as Console(hosts=[...]) or --allow-host",
            )
        _check_origin(headers, host)
        path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))
        if path.startswith("/api/"):
            if b"x-loopwright-console" not in headers:
                raise RefusedRequest(403, "the header X-Loopwright-Console is missing")
            self._check_token(headers)
        elif path.startswith(AG_UI):
            self._check_token(headers)
        return path

    def _check_token(self, headers: dict[bytes, bytes]) -> None:
        if self._token is None:
            return
        given = headers.get(b"authorization")
        if given is None:
            raise RefusedRequest(
                403, "the header Authorization is missing: send the console's token"
            )
        if not hmac.compare_digest(given, b"Bearer " + self._token.encode()):
            raise RefusedRequest(
                401,
                "the token is wrong; open the address that `loopwright console` printed",
            )


def _find_name(host: str) -> str:
    """Return the name in a Host header, without the port; empty for one that cannot be read."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _check_origin(headers: dict[bytes, bytes], host: str) -> None:
    """Refuse requests that a page of another site sends."""
    origin = headers.get(b"origin")
    if origin is not None:
        sender = origin.decode("latin-1").partition("://")[2]
        if sender.lower() != host.lower():
            raise RefusedRequest(403, "origin: the request comes from another site")
    if headers.get(b"sec-fetch-site") == b"cross-site":
        raise RefusedRequest(403, "the request comes from another site")


def _check_length(headers: dict[bytes, bytes], limit: int) -> None:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > limit:
        raise RefusedRequest(413, f"the body must have at most {limit} bytes")


def _bound(receive: Receive, limit: int) -> Receive:
    """Bound what is read of a body whose length was not told."""
    read = 0

    async def bounded() -> MutableMapping[str, Any]:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > limit:
            raise RefusedRequest(413, f"the body must have at most {limit} bytes")
        return message

    return bounded


def _add_headers(send: Send, scope: Scope) -> Send:
    """Add the headers that keep a browser from doing what the page does not want; nothing of the API is cached."""
    extra = [*HEADERS, (b"cache-control", b"no-store")]

    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", []), *extra]
            message = {**message, "headers": headers}
        await send(message)

    return guarded


async def _refuse(send: Send, refused: RefusedRequest) -> None:
    body = to_json({"error": str(refused), "status": refused.status})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    start = {
        "type": "http.response.start",
        "status": refused.status,
        "headers": headers,
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})
