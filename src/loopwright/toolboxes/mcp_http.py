"""The HTTP client of an MCP connection: what fails is one request, not the session; no body without an end."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ..errors import text_of
from .mcp_servers import HttpServer

if TYPE_CHECKING:
    import httpx2

CLOSED, INVALID = -32000, -32600  # codes of JSON-RPC errors: the connection was closed; no valid request


def http_client(server: HttpServer, *, timeout: float, max_bytes: int, not_sent: str) -> "httpx2.AsyncClient":
    """A client that takes nothing from the environment.

    A request that cannot be made is answered with a JSON-RPC error of our own, since the SDK ends the whole session for
    one that raises. The error's code is `CLOSED` if the server may have had the request, and its data are `not_sent` if
    it has not. A body that is no stream of events may have `max_bytes`; events are counted by the SDK.
    """
    import httpx2  # noqa: PLC0415 - slow to load, and only for users of MCP by HTTP

    class Guarded(httpx2.AsyncHTTPTransport):
        """The network, as the docstring above says."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            try:
                response = await super().handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
                return _failed(502, CLOSED, f"it cannot be reached: {text_of(error)}", not_sent)
            except httpx2.TransportError as error:
                return _failed(502, CLOSED, f"the connection broke: {text_of(error) or type(error).__name__}")
            return await _checked(response, max_bytes)

    return httpx2.AsyncClient(
        transport=Guarded(trust_env=False),
        headers={**server.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(timeout, read=None),  # how long a call may take is for the runtime to say
        trust_env=False,
    )


def _failed(status: int, code: int, message: str, data: str = "") -> "httpx2.Response":
    import httpx2  # noqa: PLC0415 - as above

    error = {"code": code, "message": message, "data": data}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": 0, "error": error})


async def _checked(response: "httpx2.Response", max_bytes: int) -> "httpx2.Response":
    """The response with a body that is counted, or what stands in its place if it is no answer of an MCP server."""
    status = response.status_code
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return response
    counted = _counted(response, max_bytes)
    if status < 400 or status == 404 or await _is_rpc(counted):  # the SDK knows what 404 means
        return counted
    return _failed(status, CLOSED if status >= 500 else INVALID, f"it answered HTTP {status}")


async def _is_rpc(response: "httpx2.Response") -> bool:
    """Whether a body, which is read for that, may be one of JSON-RPC and not a gateway's."""
    import httpx2  # noqa: PLC0415 - as above

    try:
        return b'"jsonrpc"' in await response.aread()
    except httpx2.StreamError:
        return False


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
                        raise httpx2.StreamError(f"it sent a message of more than {max_bytes:,} bytes")
                    yield chunk
            except httpx2.TransportError as error:
                raise httpx2.StreamError(f"the connection broke: {text_of(error) or type(error).__name__}") from None

        async def aclose(self) -> None:
            await response.aclose()

    return httpx2.Response(response.status_code, headers=response.headers, stream=Counted())
