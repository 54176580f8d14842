"""The console as an ASGI application: who asks, and which part of it answers."""

import functools
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ..errors import ConfigError
from ..journals.base import Journal
from ..principals import Sender
from ..runtime import Runtime
from ..security.signed_commands import CommandSigner
from .actions import NO_RUNTIME
from .commands import Commands
from .guard import (
    AG_UI,
    MIN_TOKEN,
    FindUser,
    Guard,
    RefusedRequest,
    new_token,
    require,
)
from .launcher import Launcher
from .reads import KEEP_ALIVE, Handler, Reads
from .requests import check_json, read_after
from .responses import (
    REFUSALS,
    format_ag_ui,
    send_file,
    send_json,
    send_page,
    send_stream,
)
from .schedules import ConsoleSchedules
from .service import ConsoleService
from .settings import ConsoleSettings
from .thread_approvals import ConsoleApprovals
from .users import ConsoleUser, check_mapping
from .web import ASGIApp, Request, Response, Route, Starlette
from .writes import Writes

AG_UI_SERVICE = "loopwright.console.ag_ui.service:AgUi"
"""Imported at its first request, since it needs an extra of its own."""


class Console:
    """A page over a journal: lists runs, shows one live, steers and approves. `app` is an ASGI application.

    Mount it in a FastAPI or Starlette application, or serve `app` with uvicorn. With a runtime it can also start, resume
    and fork runs. It answers requests that name the loopback or one of `hosts`, from its own page alone.

    Args:
        source: a runtime, or a journal alone.
        user: who uses the page, recorded with each command: a name, or a function, sync or async, that is given each
            request (of Starlette) and returns the user whom your application has authenticated, a name or a
            `Principal`, or `None`. A name may do everything, for all tenants; a principal what its roles let it do, for
            the runs of its tenant.
        hosts: the names, without ports, by which browsers reach the page, besides those of the loopback.
        token: what a page has to send where `user` is a name; by default 256 random bits, new each time.
        signer: signs the commands, and the lines of the access file, of a console without a runtime; a runtime has its
            own.
        roles: what the roles of your application's principals may do: "view", "operate", "approve", "admin" or "chat", or
            several of them, such as `{"manager": ("operate", "approve")}`. "chat" lets a principal have threads of its own
            through AG-UI, and nothing else. Each of the others lets it view too, "admin" has all, and they are roles of
            their own.
    """

    def __init__(
        self,
        source: Runtime | Journal,
        *,
        user: str | FindUser | None = None,
        hosts: Iterable[str] = (),
        token: str | None = None,
        signer: CommandSigner | None = None,
        roles: Mapping[str, str | Iterable[str]] | None = None,
    ) -> None:
        if not (callable(user) or (isinstance(user, str) and user.strip())):
            raise ConfigError(
                "user: say who uses the console, since every command names it: a name, or a function of the request "
                f"that returns the name of whom your application has authenticated; got {user!r}"
            )
        runtime = source if isinstance(source, Runtime) else None
        journal = source.journal if isinstance(source, Runtime) else source
        signer = signer if runtime is None else runtime.command_signer
        self._user, self._roles = user, check_mapping(roles)
        service, launcher = ConsoleService(journal, runtime, signer), Launcher(runtime)
        approvals = ConsoleApprovals(service, runtime, signer)
        settings, schedules = (
            ConsoleSettings(runtime),
            ConsoleSchedules(service, runtime),
        )
        parts = launcher, settings, schedules, approvals
        self._reads = Reads(service, *parts)
        self._writes = Writes(
            service, Commands(service, runtime, signer, launcher), *parts
        )
        self._ag_ui = _AgUiRoutes(runtime, service, has_users=callable(user))
        self.token: str | None = None if callable(user) else _check_token(token)
        """What the page has to send, `None` where the host application knows who asks."""
        self.app: ASGIApp = Guard(
            Starlette(routes=self._routes(), exception_handlers=REFUSALS),
            hosts,
            self.token,
        )
        """The ASGI application."""

    def _routes(self) -> list[Route]:
        front_ends = {
            AG_UI: (self._ag_ui.run, "POST"),
            AG_UI + "/{run:path}/events": (self._ag_ui.follow, "GET"),
            AG_UI + "/{run:path}/stop": (self._ag_ui.stop, "POST"),
        }
        reads, writes = self._reads.handlers, self._writes.handlers
        return [
            Route("/", send_page),
            Route("/static/{name}", send_file),
            *(
                Route(path, self._answer(_for_own_threads(do)), methods=[method])
                for path, (do, method) in front_ends.items()
            ),
            *(
                Route(f"/api/{name}", self._answer(_for_viewers(do)), methods=["GET"])
                for name, do in reads.items()
            ),
            *(
                Route(f"/api/{name}", self._answer(_for_viewers(do)), methods=["POST"])
                for name, do in writes.items()
            ),
        ]

    def _answer(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that is told who asks, and that refuses requests of unknown users."""

        async def answer(request: Request) -> Response:
            sender = await self._find_sender(request)
            if not sender:
                raise RefusedRequest(401, "sign in first: the user is not known")
            return await handler(request, ConsoleUser.of(sender, self._roles))

        return answer

    async def _find_sender(self, request: Request) -> Sender | None:
        if not callable(self._user):
            return self._user
        found = self._user(request)
        return await found if inspect.isawaitable(found) else found


def _for_viewers(handler: Handler) -> Handler:
    """Return a handler that refuses principals without any role of the console."""

    async def answer(request: Request, user: ConsoleUser) -> Response:
        require(user, "view")
        return await handler(request, user)

    return answer


def _for_own_threads(handler: Handler) -> Handler:
    """Return a handler that refuses principals without any role of the console; it shows a user's own threads alone."""

    async def answer(request: Request, user: ConsoleUser) -> Response:
        require(user, "view" if "view" in user.rights else "chat")
        return await handler(request, user)

    return answer


class _AgUiRoutes:
    """What front ends of AG-UI ask; `user` is who does: each has its own threads, and does what its roles let it do."""

    def __init__(
        self, runtime: Runtime | None, console: ConsoleService, *, has_users: bool
    ) -> None:
        self._runtime, self._console, self._has_users = runtime, console, has_users

    async def run(self, request: Request, user: ConsoleUser) -> Response:
        check_json(request)
        agent = request.query_params.get("agent", "")
        stream = await self._service.run(await request.body(), agent, user)
        return self._send(stream)

    async def follow(self, request: Request, user: ConsoleUser) -> Response:
        run_id, after = request.path_params["run"], read_after(request)
        return self._send(await self._service.come_back(run_id, after, user.sender))

    async def stop(self, request: Request, user: ConsoleUser) -> Response:
        require(user, "chat")
        run_id = request.path_params["run"]
        await self._service.stop(run_id, user.sender)
        return send_json({"run": run_id})

    def _send(self, stream: Any) -> Response:
        return send_stream(
            format_ag_ui(self._service.streams.follow(stream, KEEP_ALIVE))
        )

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
