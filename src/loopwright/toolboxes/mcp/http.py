"""The HTTP client of an MCP connection: a failure ends one request only, and bodies are limited."""

import json
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from ...errors import format_error
from .servers import HttpServer

if TYPE_CHECKING:
    import httpx2

# Codes of JSON-RPC errors: connection closed; invalid request; unknown method; unreadable answer.
CLOSED, INVALID, NO_METHOD, PARSE_ERROR = -32000, -32600, -32601, -32700
NOT_SENT, BROKEN, GONE, NOT_FOUND = (secrets.token_hex(8) for _ in range(4))
"""The data of our own errors, which no server can know.

The server has not received the request; it may have received it; it refused it since the session has
ended; an intermediary, maybe a gateway, says that there is nothing.
"""
GATEWAY_TIMEOUTS = (408, 499)
"""Statuses by which a gateway says that it did not wait."""


def http_client(
    server: HttpServer, *, timeout: float, max_bytes: int
) -> "httpx2.AsyncClient":
    """Return a client that takes nothing from the environment.

    A request that cannot be made is answered with a JSON-RPC error of our own, since the SDK ends the
    whole session for a request that raises. The error's code is then `CLOSED`, and its data say
    whether the server may have received the request. A body that is not a stream of events may have
    `max_bytes`; the SDK limits events.
    """
    import httpx2  # noqa: PLC0415 - slow to load, and only for users of MCP by HTTP

    class GuardedTransport(httpx2.AsyncHTTPTransport):
        """The network, as the docstring above says."""

        async def handle_async_request(
            self, request: httpx2.Request
        ) -> httpx2.Response:
            try:
                response = await super().handle_async_request(request)
            except httpx2.TransportError as error:
                return _fail_connection(error)
            return await _check_response(request, response, max_bytes)

    return httpx2.AsyncClient(
        transport=GuardedTransport(trust_env=False),
        headers={**server.headers, "accept-encoding": "identity"},
        # The runtime limits the time of a call.
        timeout=httpx2.Timeout(timeout, read=None),
        trust_env=False,
    )


def _fail_connection(error: "httpx2.TransportError") -> "httpx2.Response":
    import httpx2  # noqa: PLC0415 - as above

    unsent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
    if isinstance(error, unsent):
        text = f"it cannot be reached: {format_error(error)}"
        return _make_error(502, CLOSED, text, NOT_SENT)
    text = f"the connection broke: {format_error(error) or type(error).__name__}"
    return _make_error(502, CLOSED, text, BROKEN)


def _make_error(
    status: int, code: int, message: str, data: str = ""
) -> "httpx2.Response":
    import httpx2  # noqa: PLC0415 - as above

    error = {"code": code, "message": message, "data": data}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": 0, "error": error})


async def _check_response(
    request: "httpx2.Request", response: "httpx2.Response", max_bytes: int
) -> "httpx2.Response":
    """Return the response with a limited body, or an error if it is not an answer of an MCP server."""
    kind = response.headers.get("content-type", "").lower()
    if response.status_code < 400 and kind.startswith("text/event-stream"):
        return response
    limited = _limit_body(response, max_bytes)
    is_json = kind.startswith("application/json")
    if limited.status_code < 400:
        error = _find_wrong_type(request, limited.status_code, kind)
    else:
        rpc_error = await _read_rpc_error(limited) if is_json else None
        error = _find_failure(request, limited.status_code, rpc_error)
    if error is None:
        return limited
    await limited.aclose()
    return error


def _find_wrong_type(
    request: "httpx2.Request", status: int, kind: str
) -> "httpx2.Response | None":
    """Return an error for a success that is not the answer of a call."""
    is_answer = status == 200 and kind.startswith("application/json")
    if is_answer or not _is_call(request):
        return None
    text = f"it answered HTTP {status} of type {kind[:80]!r}, which is not an answer"
    return _make_error(502, PARSE_ERROR, text)


def _find_failure(
    request: "httpx2.Request", status: int, error: dict[str, Any] | None
) -> "httpx2.Response | None":
    """Return the error of a failed request; `None` if the SDK understands the response."""
    if status == 404 and _is_in_session(request):
        return _find_ended_session(error)
    # Before there is a session, the SDK knows what 404 means.
    if error is not None or status == 404:
        return None
    text = f"it answered HTTP {status}"
    if status >= 500 or status in GATEWAY_TIMEOUTS:
        return _make_error(status, CLOSED, text, BROKEN)
    return _make_error(status, INVALID, text)


def _find_ended_session(error: dict[str, Any] | None) -> "httpx2.Response | None":
    if error is None:
        return _make_error(502, CLOSED, "it answered HTTP 404", NOT_FOUND)
    if error["code"] != NO_METHOD and "session" in error["message"].lower():
        return _make_error(502, CLOSED, "the server had ended the session", GONE)
    return None


def _is_in_session(request: "httpx2.Request") -> bool:
    return "mcp-session-id" in request.headers or _is_call(request)


def _is_call(request: "httpx2.Request") -> bool:
    return request.method == "POST" and b'"tools/call"' in request.content


async def _read_rpc_error(response: "httpx2.Response") -> dict[str, Any] | None:
    """Return the JSON-RPC error in a body; `None` for another body, such as a gateway's."""
    import httpx2  # noqa: PLC0415 - as above

    try:
        body = json.loads(await response.aread())
    except (httpx2.StreamError, ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or "jsonrpc" not in body:
        return None
    error = cast("dict[str, Any]", body).get("error")
    if not isinstance(error, dict):
        return None
    found = cast("dict[str, Any]", error)
    has_code = isinstance(found.get("code"), int)
    return found if has_code and isinstance(found.get("message"), str) else None


def _limit_body(response: "httpx2.Response", max_bytes: int) -> "httpx2.Response":
    import httpx2  # noqa: PLC0415 - as above

    class LimitedStream(httpx2.AsyncByteStream):
        """A body within the size limit."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            try:
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > max_bytes:
                        raise httpx2.StreamError(
                            f"it sent a message of more than {max_bytes:,} bytes"
                        )
                    yield chunk
            except httpx2.TransportError as error:
                raise httpx2.StreamError(
                    f"the connection broke: {format_error(error) or type(error).__name__}"
                ) from None

        async def aclose(self) -> None:
            await response.aclose()

    return httpx2.Response(
        response.status_code, headers=response.headers, stream=LimitedStream()
    )
