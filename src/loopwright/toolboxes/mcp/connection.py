"""One connection to an MCP server through the official SDK, which only this module uses."""

import asyncio
import contextlib
import functools
import importlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from ...attachments import Attachment
from ...errors import ConfigError, format_error
from ...messages import Json, JsonObject
from .content import load_content
from .errors import CallRefused, ConnectionLost, ServerUnreachable, UnreadableAnswer
from .http import BROKEN, CLOSED, GONE, NOT_FOUND, NOT_SENT, PARSE_ERROR, http_client
from .listing import Answer, ListedTool
from .process import ServerProcess
from .servers import HttpServer, StdioServer


class _LazyModule:
    """A module that is imported at its first use: MCP's takes a second and a half."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


if TYPE_CHECKING:
    import anyio
    import anyio.streams.memory as streams
    import mcp as sdk
    import mcp.client.streamable_http as sdk_http
    import mcp.shared.message as sdk_message
    import mcp_types as types

    Inward: TypeAlias = streams.MemoryObjectReceiveStream[
        sdk_message.SessionMessage | Exception
    ]
    Outward: TypeAlias = streams.MemoryObjectSendStream[sdk_message.SessionMessage]
else:
    anyio, sdk, types = (
        _LazyModule("anyio"),
        _LazyModule("mcp"),
        _LazyModule("mcp_types"),
    )
    sdk_http, sdk_message = (
        _LazyModule("mcp.client.streamable_http"),
        _LazyModule("mcp.shared.message"),
    )

MAX_TOOLS = 1_000
MAX_BLOCKS = 1_000
"""Blocks of a result."""
MAX_COMPARED = 8
"""Blocks of a result that are compared with its structured content, which they may repeat."""
CLOSING_TIMEOUT = 5.0
"""Seconds to leave a server."""
LISTEN_TIMEOUT = 5.0
"""Seconds for a server to agree to report changes of its list."""
SDK_ENDINGS = ("Connection closed", "SSE stream ")
"""Beginnings of the SDK's errors about a closed connection, which have no other mark."""


def check_installed() -> None:
    """Raise `ConfigError` unless the SDK is installed."""
    try:
        importlib.import_module("mcp")
    except ImportError as error:
        raise ConfigError(
            "an MCP toolbox needs the package mcp: pip install 'loopwright[mcp]'"
        ) from error
    # Otherwise Python prints its log to the standard error.
    logging.getLogger("mcp").addHandler(logging.NullHandler())


class Connection:
    """A session with a server. It belongs to one event loop, and to a task that opens and closes it.

    Args:
        server: the address of the server.
        timeout: seconds to open it, and to list its tools.
        max_bytes: the longest message that is accepted.
        on_change: called when the server reports a change of its list of tools.
    """

    def __init__(
        self,
        server: StdioServer | HttpServer,
        *,
        timeout: float,
        max_bytes: int,
        on_change: Callable[[], None],
    ) -> None:
        check_installed()
        self._server, self._timeout = server, timeout
        self._max_bytes, self._on_change = max_bytes, on_change
        self._client: sdk.Client | None = None
        self._process: ServerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._busy, self._retired = 0, False

    @property
    def is_alive(self) -> bool:
        """Whether a call can be sent, as far as is known."""
        is_over = self._closed.is_set() or self._retired
        return self._client is not None and not is_over

    async def open(self) -> None:
        """Connect. Raises `ServerUnreachable` with the reason."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold_open(ready), name="loopwright-mcp")
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.shield(ready)
        except TimeoutError:
            await self.close()
            raise ServerUnreachable(
                f"it did not answer within {self._timeout:g} s"
            ) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the session; a server that was started for it has ended then."""
        self._closed.set()
        task = self._task
        if task is None:
            return
        if self._client is None:
            task.cancel()
        await asyncio.wait((task,), timeout=CLOSING_TIMEOUT)
        task.cancel()  # a server by HTTP may be slow to close
        await asyncio.wait((task,), timeout=CLOSING_TIMEOUT)

    def retire(self) -> None:
        """Close the session as soon as no call is in progress."""
        self._retired = True
        if not self._busy:
            self._closed.set()

    async def list(self) -> tuple[ListedTool, ...]:
        """Return the tools that the server lists now.

        Raises `ConnectionLost`, or `ServerUnreachable` with the reason why it cannot list them.
        """
        try:
            async with asyncio.timeout(self._timeout), self._working_client() as client:
                return await _list_tools(client)
        except (CallRefused, UnreadableAnswer) as error:
            raise ServerUnreachable(f"its tools cannot be listed: {error}") from None
        except TimeoutError:
            raise ServerUnreachable(
                f"it did not list its tools within {self._timeout:g} s"
            ) from None

    async def call(
        self, tool: str, arguments: JsonObject, meta: Mapping[str, Json]
    ) -> Answer:
        """Call a tool; a cancelled call is cancelled at the server, too.

        Raises `ConnectionLost`, `CallRefused` or `UnreadableAnswer`.
        """
        async with self._working_client() as client:
            # Not client.call_tool: it validates the result by the server's schema and patterns.
            fields: dict[str, Any] = {
                "name": tool,
                "arguments": dict(arguments),
                "_meta": dict(meta),
            }
            request = types.CallToolRequest(
                params=types.CallToolRequestParams.model_validate(fields)
            )
            result = await client.session.send_request(request, _results())
        if isinstance(result, types.InputRequiredResult):
            raise CallRefused("it requests input from a person, which is refused")
        return _read_answer(result)

    @contextlib.asynccontextmanager
    async def _working_client(self) -> "AsyncGenerator[sdk.Client]":
        if self._client is None or not self.is_alive:
            raise ConnectionLost(self._reason("the connection was over"), sent=False)
        self._busy += 1
        try:
            yield self._client
        except sdk.MCPError as error:
            raise self._failure(error) from None
        except ValidationError as error:
            raise UnreadableAnswer(
                f"its answer is not valid MCP: {error.error_count()} errors"
            ) from None
        finally:
            self._busy -= 1
            if self._retired and not self._busy:
                self._closed.set()

    def _failure(self, error: "sdk.MCPError") -> Exception:
        """Return the failure that an error means; a server may use the code of a lost connection."""
        if error.code == CLOSED and self._is_connection_loss(error):
            if error.data in (GONE, NOT_FOUND):
                self._closed.set()
            is_sent = error.data not in (NOT_SENT, GONE)
            return ConnectionLost(self._reason(error.message), sent=is_sent)
        if error.code == PARSE_ERROR:
            return UnreadableAnswer(error.message)
        return CallRefused(error.message, error.code)

    def _is_connection_loss(self, error: "sdk.MCPError") -> bool:
        """Whether the error is ours or the SDK's own, not one of the server."""
        if error.data in (NOT_SENT, BROKEN, GONE, NOT_FOUND) or self._closed.is_set():
            return True
        return error.message.startswith(SDK_ENDINGS)

    def _reason(self, otherwise: str) -> str:
        fault = self._process.fault if self._process is not None else ""
        return fault or otherwise

    # --- the task ---

    async def _hold_open(self, ready: asyncio.Future[None]) -> None:
        """Open the session, keep it, and close it: all in one task, as the SDK requires."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await self._open_client(stack)
                await self._listen(client, stack)
                self._client = client
                ready.set_result(None)
                await self._closed.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(ServerUnreachable(self._describe(error)))
                ready.exception()  # its waiter may be gone
            elif not isinstance(error, (Exception, BaseExceptionGroup)):
                raise
        finally:
            self._closed.set()

    async def _open_client(self, stack: contextlib.AsyncExitStack) -> "sdk.Client":
        if isinstance(self._server, StdioServer):
            self._process = ServerProcess(self._server, self._max_bytes)
            transport: Any = _connect_stdio(self._process, self._closed.set)
        else:
            transport = _connect_http(self._server, self._timeout, self._max_bytes)
        # Without callbacks, the SDK refuses a server's requests: sampling, elicitation, roots.
        client = sdk.Client(
            transport,
            cache=None,
            client_info=types.Implementation(name="loopwright", version="1"),
            message_handler=self._on_message,
        )
        return await stack.enter_async_context(client)

    async def _listen(
        self, client: "sdk.Client", stack: contextlib.AsyncExitStack
    ) -> None:
        """Ask the server to report changes of its list; older protocol versions do so unasked."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        if client.session.discover_result is None:
            return
        # Without an agreement the list is read again after an error.
        with contextlib.suppress(sdk.MCPError, RuntimeError, TimeoutError):
            async with asyncio.timeout(LISTEN_TIMEOUT):
                await stack.enter_async_context(client.listen(tools_list_changed=True))

    async def _on_message(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()

    def _describe(self, error: BaseException) -> str:
        """Return why there is no connection, for the person who configured it."""
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        text = format_error(error) or type(error).__name__
        if self._process is None or isinstance(error, (OSError, ValueError, TypeError)):
            return text
        return f"{text}; {self._process.ending}"


@functools.cache
def _results() -> "TypeAdapter[types.CallToolResult | types.InputRequiredResult]":
    return TypeAdapter(
        Annotated[
            types.CallToolResult | types.InputRequiredResult,
            BeforeValidator(_limit_blocks),
        ]
    )


def _limit_blocks(result: Any) -> Any:
    """Return a result with a limited number of blocks, before each of them is made an object."""
    if not isinstance(result, dict):
        return result
    fields = cast("dict[str, Any]", result)
    parts: list[Any] = (
        fields["content"] if isinstance(fields.get("content"), list) else []
    )
    if len(parts) <= MAX_BLOCKS:
        return fields
    note = f"[the first {MAX_BLOCKS:,} parts of {len(parts):,} are shown]"
    return {**fields, "content": [*parts[:MAX_BLOCKS], {"type": "text", "text": note}]}


async def _list_tools(client: "sdk.Client") -> tuple[ListedTool, ...]:
    found: list[ListedTool] = []
    cursor: str | None = None
    for _ in range(MAX_TOOLS):
        page = await client.session.list_tools(
            params=types.PaginatedRequestParams(cursor=cursor)
        )
        found.extend(map(_read_definition, page.tools[: MAX_TOOLS + 1]))
        if len(found) > MAX_TOOLS:
            break
        if page.next_cursor is None or page.next_cursor == cursor:
            return tuple(found)
        cursor = page.next_cursor
    raise CallRefused(f"it has more than {MAX_TOOLS:,} tools")


def _read_definition(tool: "types.Tool") -> ListedTool:
    hints = tool.annotations or types.ToolAnnotations()
    return ListedTool(
        tool.name,
        tool.description or tool.title or "",
        tool.input_schema,
        hints.read_only_hint,
        hints.destructive_hint,
        hints.idempotent_hint,
    )


def _read_answer(result: "types.CallToolResult") -> Answer:
    """Return the texts of a result, descriptions of blocks that cannot be sent, and the attachments.

    Its structured content is one more text, unless a text repeats that.
    """
    read = [_read_block(block) for block in result.content]
    parts = [part for part in read if isinstance(part, str)]
    sent = tuple(part for part in read if isinstance(part, Attachment))
    structured = result.structured_content
    is_new = structured is not None and not any(
        _repeats(part, structured) for part in parts[:MAX_COMPARED]
    )
    if is_new:
        parts.append(json.dumps(structured, ensure_ascii=False))
    return Answer("\n".join(parts), result.is_error, sent)


def _repeats(text: str, structured: Any) -> bool:
    """Whether a text is the JSON of a value; the SDK's servers wrap other types as {"result": value}."""
    inner = structured["result"] if _keys(structured) == {"result"} else structured
    if text == inner:
        return True
    try:
        return json.loads(text) in (structured, inner)
    except (ValueError, RecursionError):
        return False


def _keys(value: Any) -> set[str]:
    return set(cast("dict[str, Any]", value)) if isinstance(value, dict) else set()


def _read_block(block: "types.ContentBlock") -> str | Attachment:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            shown = load_content(block.mime_type, block.data)
            return shown or _name_block(block.type, block.mime_type, block.data)
        case types.AudioContent():
            return _name_block(block.type, block.mime_type, block.data)
        case types.ResourceLink():
            return f"[resource: {block.name}, {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource: {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource():
            held = cast("types.BlobResourceContents", block.resource)
            kind, name = held.mime_type or "", str(held.uri)
            shown = load_content(kind, held.blob, name)
            return (
                shown
                or f"[resource: {name}, {kind or 'of an unknown type'}, not shown]"
            )


def _name_block(block: str, kind: str, data: str) -> str:
    return f"[{block}: {kind}, {len(data) * 3 // 4:,} bytes, not shown]"


# --- transports ---


@contextlib.asynccontextmanager
async def _connect_stdio(
    process: ServerProcess, on_end: Callable[[], None]
) -> "AsyncGenerator[tuple[Inward, Outward]]":
    """Open a transport for the SDK over a process: one JSON text a line."""
    await process.start()
    to_session, inward = _open_stream(sdk_message.SessionMessage | Exception)
    outward, from_session = _open_stream(sdk_message.SessionMessage)
    reading = _start(_read_messages(process, to_session, on_end))
    writing = _start(_write_messages(process, from_session))
    reading.add_done_callback(lambda _: on_end())
    try:
        yield inward, outward
    finally:
        for task in (reading, writing):
            task.cancel()
        for stream in (to_session, inward, outward, from_session):
            stream.close()
        await process.stop()


def _open_stream(kind: Any) -> tuple[Any, Any]:
    return anyio.create_memory_object_stream[kind](0)


async def _read_messages(
    process: ServerProcess, to_session: Any, on_end: Callable[[], None]
) -> None:
    async with to_session:
        while (line := await process.read_line()) is not None:
            with contextlib.suppress(ValueError):  # a program may print other lines
                message = types.jsonrpc_message_adapter.validate_json(
                    line, by_name=False
                )
                await to_session.send(sdk_message.SessionMessage(message))
        on_end()  # before the session notices, so that its error is known to be its own


async def _write_messages(process: ServerProcess, from_session: Any) -> None:
    async with from_session:
        async for message in from_session:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.send(text.encode())


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task that ends without an error when the session closes its streams."""

    async def run() -> None:
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await work

    return asyncio.create_task(run())


@contextlib.asynccontextmanager
async def _connect_http(
    server: HttpServer, timeout: float, max_bytes: int
) -> "AsyncGenerator[tuple[Any, Any]]":
    """Open the SDK's own transport, over our HTTP client."""
    client = http_client(server, timeout=timeout, max_bytes=max_bytes)
    opened = sdk_http.streamable_http_client(
        server.url, http_client=client, max_sse_event_size=max_bytes
    )
    async with client, opened as streams_of_both:
        yield streams_of_both
