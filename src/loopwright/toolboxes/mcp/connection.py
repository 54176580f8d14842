"""One connection to an MCP server through the official SDK, which nothing but this file knows."""

import asyncio
import contextlib
import functools
import importlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from ...errors import ConfigError, format_error
from ...messages import Json, JsonObject
from .http import BROKEN, CLOSED, GONE, NOT_FOUND, NOT_SENT, PARSE_ERROR, http_client
from .listing import Answer, Listed, Lost, Refused, Unreachable, Unreadable
from .process import ServerProcess
from .servers import HttpServer, StdioServer


class _Later:
    """A package that is imported when something of it is used: MCP's takes a second and a half."""

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
    anyio, sdk, types = _Later("anyio"), _Later("mcp"), _Later("mcp_types")
    sdk_http, sdk_message = (
        _Later("mcp.client.streamable_http"),
        _Later("mcp.shared.message"),
    )

MAX_TOOLS = 1_000
MAX_BLOCKS = 1_000  # of a result
COMPARED = 8  # blocks of a result that may say once more what its structured part says
CLOSING = 5.0  # seconds to leave a server
LISTENING = 5.0  # seconds for a server to say that it will tell when its list changes
ENDINGS = (
    "Connection closed",
    "SSE stream ",
)  # with which an error of the SDK's own begins; it marks them no better


def check_installed() -> None:
    """Raise `ConfigError` unless the SDK is there."""
    try:
        importlib.import_module("mcp")
    except ImportError as error:
        raise ConfigError(
            "an MCP toolbox needs the package mcp: pip install 'loopwright[mcp]'"
        ) from error
    logging.getLogger("mcp").addHandler(
        logging.NullHandler()
    )  # else Python prints its log where nobody asked for it


class Connection:
    """A session with a server. It belongs to one event loop, and to a task of its own that opens and closes it.

    Args:
        server: where the server is.
        timeout: seconds to open it, and to list its tools.
        max_bytes: the longest message that is taken.
        on_change: called when the server says that its list of tools changed.
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
        self._server, self._timeout, self._max_bytes, self._on_change = (
            server,
            timeout,
            max_bytes,
            on_change,
        )
        self._client: sdk.Client | None = None
        self._process: ServerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._busy, self._retired = 0, False

    @property
    def alive(self) -> bool:
        """Whether a call can be sent, as far as is known."""
        return (
            self._client is not None and not self._over.is_set() and not self._retired
        )

    async def open(self) -> None:
        """Connect. Raises `Unreachable` that says why not."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready), name="loopwright-mcp")
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.shield(ready)
        except TimeoutError:
            await self.close()
            raise Unreachable(f"it did not answer within {self._timeout:g} s") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave. A server that was started for it has ended then."""
        self._over.set()
        task = self._task
        if task is None:
            return
        if self._client is None:
            task.cancel()
        await asyncio.wait((task,), timeout=CLOSING)
        task.cancel()  # a server by HTTP may be slow to say goodbye
        await asyncio.wait((task,), timeout=CLOSING)

    def retire(self) -> None:
        """Leave as soon as no call is under way."""
        self._retired = True
        if not self._busy:
            self._over.set()

    async def list(self) -> tuple[Listed, ...]:
        """The tools that the server has now. Raises `Lost`, or `Unreachable` that says why they cannot be had."""
        try:
            async with asyncio.timeout(self._timeout), self._at_work() as client:
                return await _listed(client)
        except (Refused, Unreadable) as error:
            raise Unreachable(f"its tools cannot be listed: {error}") from None
        except TimeoutError:
            raise Unreachable(
                f"it did not list its tools within {self._timeout:g} s"
            ) from None

    async def call(
        self, tool: str, arguments: JsonObject, meta: Mapping[str, Json]
    ) -> Answer:
        """Call a tool. Raises `Lost`, `Refused` or `Unreadable`; a cancelled call is cancelled at the server, too."""
        async with self._at_work() as client:
            # Not client.call_tool: that would validate the result by a schema, and so run patterns, of the server's.
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
            raise Refused(
                "it asks for something from a person, which is not given to it"
            )
        return _answer(result)

    @contextlib.asynccontextmanager
    async def _at_work(self) -> "AsyncGenerator[sdk.Client]":
        if self._client is None or not self.alive:
            raise Lost(self._why("the connection was over"), sent=False)
        self._busy += 1
        try:
            yield self._client
        except sdk.MCPError as error:
            raise self._failure(error) from None
        except ValidationError as error:
            raise Unreadable(
                f"its answer is not as MCP wants it: {error.error_count()} faults"
            ) from None
        finally:
            self._busy -= 1
            if self._retired and not self._busy:
                self._over.set()

    def _failure(self, error: "sdk.MCPError") -> Exception:
        """What an error means: a server may use the code of a lost connection for what it likes."""
        marked = error.data in (NOT_SENT, BROKEN, GONE, NOT_FOUND)
        if error.code == CLOSED and (
            marked or self._over.is_set() or error.message.startswith(ENDINGS)
        ):
            if error.data in (GONE, NOT_FOUND):
                self._over.set()
            return Lost(
                self._why(error.message), sent=error.data not in (NOT_SENT, GONE)
            )
        if error.code == PARSE_ERROR:
            return Unreadable(error.message)
        return Refused(error.message, error.code)

    def _why(self, otherwise: str) -> str:
        return (self._process.fault if self._process is not None else "") or otherwise

    # --- the task ---

    async def _live(self, ready: asyncio.Future[None]) -> None:
        """Open the session, keep it until it is over, close it: all in one task, as the SDK wants it."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await self._opened(stack)
                await self._listen(client, stack)
                self._client = client
                ready.set_result(None)
                await self._over.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(Unreachable(self._told(error)))
                ready.exception()  # nobody may wait for it any more
            elif not isinstance(error, (Exception, BaseExceptionGroup)):
                raise
        finally:
            self._over.set()

    async def _opened(self, stack: contextlib.AsyncExitStack) -> "sdk.Client":
        if isinstance(self._server, StdioServer):
            self._process = ServerProcess(self._server, self._max_bytes)
            transport: Any = _by_lines(self._process, self._over.set)
        else:
            transport = _by_http(self._server, self._timeout, self._max_bytes)
        # Without callbacks for them, the SDK refuses what a server may ask of a client: sampling, elicitation, roots.
        client = sdk.Client(
            transport, cache=None, client_info=types.Implementation(name="loopwright", version="1"),
            message_handler=self._heard,
        )  # fmt: skip
        return await stack.enter_async_context(client)

    async def _listen(
        self, client: "sdk.Client", stack: contextlib.AsyncExitStack
    ) -> None:
        """Have the server tell when its list changes; older protocol versions do so unasked."""
        tools = client.server_capabilities.tools
        if (
            tools is None
            or not tools.list_changed
            or client.session.discover_result is None
        ):
            return
        with contextlib.suppress(
            sdk.MCPError, RuntimeError, TimeoutError
        ):  # then it is read when something is amiss
            async with asyncio.timeout(LISTENING):
                await stack.enter_async_context(client.listen(tools_list_changed=True))

    async def _heard(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()

    def _told(self, error: BaseException) -> str:
        """Why there is no connection, in words for who set it up."""
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
            types.CallToolResult | types.InputRequiredResult, BeforeValidator(_cut)
        ]
    )


def _cut(result: Any) -> Any:
    """A result of no more parts than is sensible, before each of them is made an object."""
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


async def _listed(client: "sdk.Client") -> tuple[Listed, ...]:
    found: list[Listed] = []
    cursor: str | None = None
    pages = 0
    while True:
        page = await client.session.list_tools(
            params=types.PaginatedRequestParams(cursor=cursor)
        )
        for tool in page.tools[: MAX_TOOLS + 1]:
            hints = tool.annotations or types.ToolAnnotations()
            told = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint)
            found.append(
                Listed(
                    tool.name,
                    tool.description or tool.title or "",
                    tool.input_schema,
                    *told,
                )
            )
        pages += 1
        if max(len(found), pages) > MAX_TOOLS:
            raise Refused(f"it has more than {MAX_TOOLS:,} tools")
        if page.next_cursor is None or page.next_cursor == cursor:
            return tuple(found)
        cursor = page.next_cursor


def _answer(result: "types.CallToolResult") -> Answer:
    """The text of a result: its texts, the names of what is no text, and its structured part unless a text says it."""
    parts = [_part(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not any(
        _says(part, structured) for part in parts[:COMPARED]
    ):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return Answer("\n".join(parts), result.is_error)


def _says(text: str, structured: Any) -> bool:
    """Whether a text is the JSON of a value; the SDK's servers wrap what is no object as {"result": value}."""
    inner = structured["result"] if _keys(structured) == {"result"} else structured
    if text == inner:
        return True
    try:
        return json.loads(text) in (structured, inner)
    except (ValueError, RecursionError):
        return False


def _keys(value: Any) -> set[str]:
    return set(cast("dict[str, Any]", value)) if isinstance(value, dict) else set()


def _part(block: "types.ContentBlock") -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type}: {block.mime_type}, {len(block.data) * 3 // 4:,} bytes, not shown]"
        case types.ResourceLink():
            return f"[resource: {block.name}, {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource: {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=resource):
            return f"[resource: {resource.uri}, {resource.mime_type or 'of an unknown type'}, not shown]"


# --- transports ---


@contextlib.asynccontextmanager
async def _by_lines(
    process: ServerProcess, on_end: Callable[[], None]
) -> "AsyncGenerator[tuple[Inward, Outward]]":
    """A transport of the SDK's over a process: one JSON text a line."""
    await process.start()
    to_session, inward = anyio.create_memory_object_stream[
        sdk_message.SessionMessage | Exception
    ](0)
    outward, from_session = anyio.create_memory_object_stream[
        sdk_message.SessionMessage
    ](0)

    async def read() -> None:
        async with to_session:
            while (line := await process.line()) is not None:
                with contextlib.suppress(
                    ValueError
                ):  # a program that prints where it should not
                    message = types.jsonrpc_message_adapter.validate_json(
                        line, by_name=False
                    )
                    await to_session.send(sdk_message.SessionMessage(message))
            on_end()  # before the session hears of it, so that what it says then is believed

    async def write() -> None:
        async with from_session:
            async for message in from_session:
                await process.send(
                    message.message.model_dump_json(
                        by_alias=True, exclude_unset=True
                    ).encode()
                )

    tasks = [_quietly(read()), _quietly(write())]
    tasks[0].add_done_callback(lambda _: on_end())
    try:
        yield inward, outward
    finally:
        for task in tasks:
            task.cancel()
        for stream in (to_session, inward, outward, from_session):
            stream.close()
        await process.stop()


def _quietly(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task that may find the other end of a stream closed, which only says that the session is over."""

    async def run() -> None:
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await work

    return asyncio.create_task(run())


@contextlib.asynccontextmanager
async def _by_http(
    server: HttpServer, timeout: float, max_bytes: int
) -> "AsyncGenerator[tuple[Any, Any]]":
    """The SDK's own transport, over a client of ours."""
    client = http_client(server, timeout=timeout, max_bytes=max_bytes)
    opened = sdk_http.streamable_http_client(
        server.url, http_client=client, max_sse_event_size=max_bytes
    )
    async with client, opened as streams_of_both:
        yield streams_of_both
