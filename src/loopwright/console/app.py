"""The console as an ASGI application: the page, what it reads of the journal, and the commands that it sends."""

import asyncio
import contextlib
import functools
import inspect
import pkgutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any, TypeAlias, cast

from pydantic_core import from_json, to_json

from ..errors import (
    ConfigError,
    JournalError,
    LoopwrightError,
    RunBusy,
    ThreadBusy,
    UnknownRun,
)
from ..journals.base import Journal
from ..journals.listing import RunFilter
from ..principals import Sender
from ..runtime import Runtime
from ..security.signed_commands import CommandSigner
from .actions import NO_RUNTIME
from .commands import Commands
from .guard import AG_UI, MIN_TOKEN, FindUser, Guard, RefusedRequest, new_token
from .launcher import Launcher
from .service import ConsoleService
from .streams import Streams

try:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
    from starlette.types import ASGIApp
except ModuleNotFoundError as missing:  # pragma: no cover - tried without the extra
    raise ConfigError(
        f"the console needs {missing.name}: pip install 'loopwright[console]'"
    ) from None

Handler: TypeAlias = Callable[[Request, str], Awaitable[Response]]
AG_UI_SERVICE = "loopwright.console.ag_ui.service:AgUi"
"""Imported at its first request, since it needs an extra of its own."""
MAX_PAGE = 500
"""The maximum number of runs or entries of one answer."""
KEEP_ALIVE = 15.0
"""Seconds after which a stream without news says that it lives."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
STATUSES: Mapping[type[Exception], int] = {
    UnknownRun: 404,
    RunBusy: 409,
    ConfigError: 409,
    ThreadBusy: 409,
    JournalError: 503,
}


class Console:
    """A page over a journal: lists runs, shows one live, steers and approves. `app` is an ASGI application.

    Mount it in a FastAPI or Starlette application, or serve `app` with uvicorn. With a runtime it can also resume and
    fork runs. It answers requests that name the loopback or one of `hosts`, from its own page alone.

    Args:
        source: a runtime, or a journal alone.
        user: who uses the page, recorded with each command: a name, or a function, sync or async, that is given each
            request (of Starlette) and returns the user whom your application has authenticated, a name or a
            `Principal`, or `None`. Every user sees all runs of the journal.
        hosts: the names, without ports, by which browsers reach the page, besides those of the loopback.
        token: what a page has to send where `user` is a name; by default 256 random bits, new each time.
        signer: signs the commands of a console without a runtime; a runtime has its own.
    """

    def __init__(
        self,
        source: Runtime | Journal,
        *,
        user: str | FindUser | None = None,
        hosts: Iterable[str] = (),
        token: str | None = None,
        signer: CommandSigner | None = None,
    ) -> None:
        if not (callable(user) or (isinstance(user, str) and user.strip())):
            raise ConfigError(
                "user: say who uses the console, since every command names it: a name, or a function of the request "
                f"that returns the name of whom your application has authenticated; got {user!r}"
            )
        runtime = source if isinstance(source, Runtime) else None
        journal = source.journal if isinstance(source, Runtime) else source
        self._user, self._runtime = user, runtime
        self._service = ConsoleService(journal, runtime)
        self._streams = Streams(self._service)
        self._launcher = Launcher(runtime)
        self._commands = Commands(self._service, runtime, signer)
        self.token: str | None = None if callable(user) else _check_token(token)
        """What the page has to send, `None` where the host application knows who asks."""
        self.app: ASGIApp = Guard(
            Starlette(routes=self._routes(), exception_handlers=_HANDLERS),
            hosts,
            self.token,
        )
        """The ASGI application."""

    def _routes(self) -> list[Route]:
        ag_ui = _AgUiRoutes(
            self._runtime, self._service, has_users=callable(self._user)
        )
        reads, writes = self._list_reads(), self._list_writes()
        return [
            Route("/", _send_page),
            Route("/static/{name}", _send_file),
            Route(AG_UI, self._answer(ag_ui.run), methods=["POST"]),
            Route(AG_UI + "/{run:path}/events", self._answer(ag_ui.follow)),
            Route(
                AG_UI + "/{run:path}/stop",
                self._answer(ag_ui.stop),
                methods=["POST"],
            ),
            *(Route(f"/api/{name}", self._answer(do)) for name, do in reads.items()),
            *(
                Route(f"/api/{name}", self._answer(do), methods=["POST"])
                for name, do in writes.items()
            ),
        ]

    def _list_reads(self) -> dict[str, Handler]:
        return {
            "session": self._show_session,
            "runs": self._list_runs,
            "run": self._show_run,
            "entries": self._list_entries,
            "entry": self._show_entry,
            "search": self._search,
            "questions": self._list_questions,
            "threads": self._list_threads,
            "thread": self._show_thread,
            "costs": self._show_costs,
            "verify": self._verify,
            "events": self._stream_run,
            "news": self._stream_news,
            "words": self._stream_words,
        }

    def _list_writes(self) -> dict[str, Handler]:
        return {
            "control": self._control,
            "reveal": self._reveal,
            "start": self._start,
            "message": self._send_message,
        }

    def _answer(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that is told who asks, and that refuses requests of unknown users."""

        async def answer(request: Request) -> Response:
            user = await self._find_user(request)
            if not user:
                raise RefusedRequest(401, "sign in first: the user is not known")
            request.state.sender = user
            return await handler(request, user if isinstance(user, str) else user.id)

        return answer

    async def _find_user(self, request: Request) -> Sender | None:
        if not callable(self._user):
            return self._user
        found = self._user(request)
        return await found if inspect.isawaitable(found) else found

    # --- what the page reads ---

    async def _show_session(self, request: Request, user: str) -> Response:
        session = await self._read(self._service.describe_session, user)
        return _to_json({**session, **self._launcher.list_choices()})

    async def _list_runs(self, request: Request, user: str) -> Response:
        where, limit = _read_filter(request), _read_number(request, "limit", 50)
        before = request.query_params.get("before") or None
        return _to_json(await self._read(self._service.list_runs, where, limit, before))

    async def _show_run(self, request: Request, user: str) -> Response:
        return _to_json(await self._read(self._service.show_run, _run(request), user))

    async def _list_entries(self, request: Request, user: str) -> Response:
        after, limit = (
            _read_number(request, "after", 0),
            _read_number(request, "limit", 100),
        )
        rows = await self._read(
            self._service.list_rows, _run(request), after, limit, user
        )
        return _to_json({"rows": rows})

    async def _show_entry(self, request: Request, user: str) -> Response:
        seq = _read_number(request, "seq", 1, largest=None)
        return _to_json(await self._service.show_entry(_run(request), seq, user))

    async def _search(self, request: Request, user: str) -> Response:
        text = request.query_params.get("text", "")
        kinds = frozenset(request.query_params.getlist("kind"))
        found = await self._read(self._service.search, _run(request), text, kinds, user)
        return _to_json({"seqs": found})

    async def _list_questions(self, request: Request, user: str) -> Response:
        return _to_json({"questions": await self._read(self._service.list_questions)})

    async def _list_threads(self, request: Request, user: str) -> Response:
        return _to_json({"threads": await self._read(self._service.list_threads)})

    async def _show_thread(self, request: Request, user: str) -> Response:
        name = request.query_params.get("thread", "")
        return _to_json(await self._read(self._service.show_thread, name, user))

    async def _show_costs(self, request: Request, user: str) -> Response:
        return _to_json(await self._read(self._service.sum_costs))

    async def _verify(self, request: Request, user: str) -> Response:
        return _to_json(await self._read(self._service.verify, _run(request)))

    async def _read(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Read the journal in a thread."""
        return await asyncio.to_thread(work, *arguments)

    # --- live ---

    async def _stream_run(self, request: Request, user: str) -> Response:
        run_id = _run(request)
        after = _read_after(request)
        await self._read(self._service.records.read, run_id, 0, 1)  # 404 at once
        return _to_events(self._streams.follow_run(run_id, after, user, KEEP_ALIVE))

    async def _stream_news(self, request: Request, user: str) -> Response:
        return _to_events(self._streams.follow_all(KEEP_ALIVE))

    async def _stream_words(self, request: Request, user: str) -> Response:
        run_id = _run(request)
        info = await self._read(self._service.records.find, run_id)  # 404 at once
        words = self._launcher.follow_words(run_id, info.head_seq, KEEP_ALIVE)
        return _to_events(words)

    # --- what a person does ---

    async def _control(self, request: Request, user: str) -> Response:
        body = await _read_body(request)
        name, run_id = body.get("action"), body.get("run")
        if not (isinstance(name, str) and isinstance(run_id, str)):
            raise RefusedRequest(
                400, "action and run: name what to do, and the run's id"
            )
        sender: Sender = request.state.sender
        return _to_json(await self._commands.act(run_id, name, body, sender))

    async def _start(self, request: Request, user: str) -> Response:
        body = await _read_body(request)
        return _to_json({"run": await self._launcher.start(body, request.state.sender)})

    async def _send_message(self, request: Request, user: str) -> Response:
        body = await _read_body(request)
        return _to_json({"run": await self._launcher.send(body, request.state.sender)})

    async def _reveal(self, request: Request, user: str) -> Response:
        run_id = (await _read_body(request)).get("run")
        if not isinstance(run_id, str):
            raise RefusedRequest(400, "run: name the run's id")
        await self._read(self._service.reveal, run_id, user)
        return _to_json({"run": run_id})


class _AgUiRoutes:
    """What front ends of AG-UI ask; `user` is who does."""

    def __init__(
        self, runtime: Runtime | None, console: ConsoleService, *, has_users: bool
    ) -> None:
        self._runtime, self._console, self._has_users = runtime, console, has_users

    async def run(self, request: Request, user: str) -> Response:
        _check_json(request)
        agent = request.query_params.get("agent", "")
        sender: Sender = request.state.sender
        stream = await self._service.run(await request.body(), agent, sender)
        return self._send(stream)

    async def follow(self, request: Request, user: str) -> Response:
        run_id, after = request.path_params["run"], _read_after(request)
        sender: Sender = request.state.sender
        return self._send(await self._service.come_back(run_id, after, sender))

    async def stop(self, request: Request, user: str) -> Response:
        run_id = request.path_params["run"]
        await self._service.stop(run_id, request.state.sender)
        return _to_json({"run": run_id})

    def _send(self, stream: Any) -> Response:
        return _stream(_format_ag_ui(self._service.streams.follow(stream, KEEP_ALIVE)))

    @functools.cached_property
    def _service(self) -> Any:
        """What answers them; raises `ConfigError` without a runtime, or without the extra."""
        if self._runtime is None:
            raise ConfigError(NO_RUNTIME)
        build = pkgutil.resolve_name(AG_UI_SERVICE)
        return build(self._runtime, self._console, has_users=self._has_users)


def _check_token(token: str | None) -> str:
    """Return a token; raise `ConfigError` for a given one that can be guessed."""
    if token is None:
        return new_token()
    if len(token) < MIN_TOKEN or not token.isascii():
        raise ConfigError(
            f"token: must be at least {MIN_TOKEN} ASCII characters, got {len(token)}; leave it out for a new one"
        )
    return token


# --- requests and responses ---


def _run(request: Request) -> str:
    run_id = request.query_params.get("run")
    if not run_id:
        raise RefusedRequest(400, "run: name the run's id")
    return run_id


def _read_after(request: Request) -> int:
    """Return the number of the last entry that a watcher has seen."""
    given = request.headers.get("last-event-id") or request.query_params.get(
        "after", "0"
    )
    return _parse_number("after", given, None)


def _read_number(
    request: Request, name: str, default: int, largest: int | None = MAX_PAGE
) -> int:
    is_page = name == "limit"
    given = request.query_params.get(name, str(default))
    return _parse_number(name, given, largest if is_page else None)


def _parse_number(name: str, text: str, largest: int | None) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise RefusedRequest(
            400, f"{name}: must be a whole number of at least 0, got {text[:40]!r}"
        )
    number = int(text)
    return number if largest is None else min(number, largest)


def _read_filter(request: Request) -> RunFilter:
    given = request.query_params
    pairs = [pair.partition("=") for pair in given.getlist("tag")]
    tags = {name: value for name, _, value in pairs}
    return RunFilter(
        tuple(given.getlist("status")),
        engine=given.get("engine", ""),
        agent=given.get("agent", ""),
        thread=given.get("thread", ""),
        tags=tags,
        text=given.get("text", ""),
    )


def _check_json(request: Request) -> None:
    content_type = request.headers.get("content-type", "")
    if not content_type.startswith("application/json"):
        raise RefusedRequest(415, "content-type: must be application/json")


async def _read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request's body."""
    _check_json(request)
    try:
        body = from_json(await request.body(), allow_inf_nan=False)
    except ValueError as error:
        raise RefusedRequest(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise RefusedRequest(400, "the body must be a JSON object")
    return cast("dict[str, Any]", body)


def _to_json(value: object) -> Response:
    # Unlike `json`, this accepts every text that a model may write.
    body = to_json(value, inf_nan_mode="strings", fallback=repr)
    return Response(body, media_type="application/json")


def _to_events(items: AsyncIterator[Any]) -> Response:
    """Send a stream as server-sent events: a number is the id, a text is a comment."""

    async def write() -> AsyncIterator[bytes]:
        async with contextlib.aclosing(cast("Any", items)) as opened:
            async for seq, kind, value in opened:
                yield _format_event(seq, kind, value)

    return _stream(write())


async def _format_ag_ui(items: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Write events of AG-UI, which say their type themselves."""
    async with contextlib.aclosing(cast("Any", items)) as opened:
        async for seq, event in opened:
            if event is None:
                yield b": alive\n\n"
                continue
            number = b"" if seq is None else b"id: %d\n" % seq
            data = event.model_dump_json(by_alias=True, exclude_none=True).encode()
            yield b"%sdata: %s\n\n" % (number, data)


def _stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


def _format_event(seq: int | None, kind: str, value: object) -> bytes:
    if not kind:
        return b": alive\n\n"
    data = to_json(value, inf_nan_mode="strings", fallback=repr)
    number = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: %s\ndata: %s\n\n" % (number, kind.encode(), data)


async def _send_page(request: Request) -> Response:
    return _read_file("index.html")


async def _send_file(request: Request) -> Response:
    return _read_file(request.path_params["name"])


def _read_file(name: str) -> Response:
    ending = "." + name.rpartition(".")[2]
    folder = files("loopwright.console") / "static"
    known = {file.name for file in folder.iterdir()}
    if name not in known or ending not in TYPES:
        raise RefusedRequest(404, f"there is no file {name[:100]!r}")
    return Response((folder / name).read_bytes(), media_type=TYPES[ending])


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer an error with its status and its text; never with a stack."""
    if isinstance(error, RefusedRequest):
        status = error.status
    else:
        matching = (code for kind, code in STATUSES.items() if isinstance(error, kind))
        status = next(matching, 500)
    known = isinstance(error, (RefusedRequest, LoopwrightError))
    text = str(error) if known else "the console failed; its log says why"
    return JSONResponse({"error": text, "status": status}, status_code=status)


async def _refuse_path(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    text = {404: "there is nothing here", 405: "this cannot be asked that way"}
    answer = {"error": text.get(status, "refused"), "status": status}
    return JSONResponse(answer, status_code=status)


_HANDLERS: Mapping[Any, Any] = {
    RefusedRequest: _refuse,
    LoopwrightError: _refuse,
    404: _refuse_path,
    405: _refuse_path,
    Exception: _refuse,
}
