"""The HTTP client of an MCP connection: what fails is one request, not the session; no body without an end."""

import json
import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from ...errors import format_error
from .servers import HttpServer

if TYPE_CHECKING:
    import httpx2

# Codes of JSON-RPC errors: the connection was closed; no valid request; no such method; no readable answer.
CLOSED, INVALID, NO_METHOD, PARSE_ERROR = -32000, -32600, -32601, -32700
NOT_SENT, BROKEN, GONE, NOT_FOUND = (secrets.token_hex(8) for _ in range(4))
"""The data of errors of our own, which no server can know: the server has not had the request; it may have had it; it
refused it since the session is over; something on the way, maybe a gateway, says that there is nothing."""
ABOUT_TIME = (408, 499)  # a gateway did not wait


def http_client(
    server: HttpServer, *, timeout: float, max_bytes: int
) -> "httpx2.AsyncClient":
    """A client that takes nothing from the environment.

    A request that cannot be made is answered with a JSON-RPC error of our own, since the SDK ends the whole session for
    one that raises. The error's code is then `CLOSED`, and its data say whether the server may have had the request.
    A body that is no stream of events may have `max_bytes`; events are counted by the SDK.
    """
    import httpx2  # noqa: PLC0415 - slow to load, and only for users of MCP by HTTP

    class Guarded(httpx2.AsyncHTTPTransport):
        """The network, as the docstring above says."""

        async def handle_async_request(
            self, request: httpx2.Request
        ) -> httpx2.Response:
            try:
                response = await super().handle_async_request(request)
            except (
                httpx2.ConnectError,
                httpx2.ConnectTimeout,
                httpx2.PoolTimeout,
            ) as error:
                return _failed(
                    502,
                    CLOSED,
                    f"it cannot be reached: {format_error(error)}",
                    NOT_SENT,
                )
            except httpx2.TransportError as error:
                return _failed(
                    502,
                    CLOSED,
                    f"the connection broke: {format_error(error) or type(error).__name__}",
                    BROKEN,
                )
            return await _checked(request, response, max_bytes)

    return httpx2.AsyncClient(
        transport=Guarded(trust_env=False),
        headers={**server.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(
            timeout, read=None
        ),  # how long a call may take is for the runtime to say
        trust_env=False,
    )


def _failed(status: int, code: int, message: str, data: str = "") -> "httpx2.Response":
    import httpx2  # noqa: PLC0415 - as above

    error = {"code": code, "message": message, "data": data}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": 0, "error": error})


async def _checked(
    request: "httpx2.Request", response: "httpx2.Response", max_bytes: int
) -> "httpx2.Response":
    """The response with a body that is counted, or what stands in its place if it is no answer of an MCP server."""
    kind = response.headers.get("content-type", "").lower()
    if response.status_code < 400 and kind.startswith("text/event-stream"):
        return response
    counted = _counted(response, max_bytes)
    instead = await _instead(request, counted, kind)
    if instead is None:
        return counted
    await counted.aclose()
    return instead


async def _instead(
    request: "httpx2.Request", response: "httpx2.Response", kind: str
) -> "httpx2.Response | None":
    """What stands in the place of a response, if something has to."""
    status = response.status_code
    if status < 400:
        if not _is_call(request) or (
            status == 200 and kind.startswith("application/json")
        ):
            return None
        return _failed(
            502,
            PARSE_ERROR,
            f"it answered HTTP {status} of type {kind[:80]!r}, which is no answer",
        )
    error = await _rpc_error(response) if kind.startswith("application/json") else None
    if status == 404 and ("mcp-session-id" in request.headers or _is_call(request)):
        if error is None:
            return _failed(502, CLOSED, "it answered HTTP 404", NOT_FOUND)
        if error["code"] != NO_METHOD and "session" in error["message"].lower():
            return _failed(502, CLOSED, "the server had ended the session", GONE)
    if (
        error is not None or status == 404
    ):  # the SDK knows what 404 means before there is a session
        return None
    lost = status >= 500 or status in ABOUT_TIME
    return _failed(
        status,
        CLOSED if lost else INVALID,
        f"it answered HTTP {status}",
        BROKEN if lost else "",
    )


def _is_call(request: "httpx2.Request") -> bool:
    return request.method == "POST" and b'"tools/call"' in request.content


async def _rpc_error(response: "httpx2.Response") -> dict[str, Any] | None:
    """The error in a body, which is read for that, if it is one of JSON-RPC and not a gateway's."""
    import httpx2  # noqa: PLC0415 - as above

    try:
        body = json.loads(await response.aread())
    except (httpx2.StreamError, ValueError, RecursionError):
        return None
    error = (
        cast("dict[str, Any]", body).get("error")
        if isinstance(body, dict) and "jsonrpc" in body
        else None
    )
    if not isinstance(error, dict):
        return None
    told = cast("dict[str, Any]", error)
    return (
        told
        if isinstance(told.get("code"), int) and isinstance(told.get("message"), str)
        else None
    )


def _counted(response: "httpx2.Response", max_bytes: int) -> "httpx2.Response":
    import httpx2  # noqa: PLC0415 - as above

    class Counted(httpx2.AsyncByteStream):
        """A body that is no longer than it may be."""

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
        response.status_code, headers=response.headers, stream=Counted()
    )
