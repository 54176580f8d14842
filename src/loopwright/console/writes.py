"""What a user does from the page: commands to runs, new runs, settings, schedules, and what is revealed or deleted."""

from collections.abc import Mapping

from .commands import Commands
from .guard import RefusedRequest, require
from .launcher import Launcher
from .reads import Handler
from .requests import read_body
from .responses import send_json
from .schedules import ConsoleSchedules
from .service import ConsoleService
from .settings import ConsoleSettings
from .thread_approvals import ConsoleApprovals
from .threads import call_in_thread
from .users import ConsoleUser
from .web import Request, Response


class Writes:
    """Does what the page asks for, if the user may."""

    def __init__(
        self,
        service: ConsoleService,
        commands: Commands,
        launcher: Launcher,
        settings: ConsoleSettings,
        schedules: ConsoleSchedules,
        approvals: ConsoleApprovals,
    ) -> None:
        self._approvals = approvals
        self._service, self._commands, self._launcher = service, commands, launcher
        self._settings, self._schedules = settings, schedules

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Return what answers, by the last part of the path."""
        return {
            "control": self._control,
            "revoke": self._revoke,
            "reveal": self._reveal,
            "delete": self._delete,
            "start": self._start,
            "message": self._send_message,
            "settings": self._change_settings,
            "schedule": self._change_schedule,
        }

    async def _control(self, request: Request, user: ConsoleUser) -> Response:
        body = await read_body(request)
        name, run_id = body.get("action"), body.get("run")
        if not (isinstance(name, str) and isinstance(run_id, str)):
            raise RefusedRequest(
                400, "action and run: name what to do, and the run's id"
            )
        await call_in_thread(self._service.check_run, run_id, user)
        return send_json(await self._commands.act(run_id, name, body, user))

    async def _start(self, request: Request, user: ConsoleUser) -> Response:
        require(user, "operate")
        body = await read_body(request)
        return send_json({"run": await self._launcher.start(body, user)})

    async def _send_message(self, request: Request, user: ConsoleUser) -> Response:
        require(user, "operate")
        body = await read_body(request)
        return send_json({"run": await self._launcher.send(body, user)})

    async def _revoke(self, request: Request, user: ConsoleUser) -> Response:
        await self._approvals.revoke(await read_body(request), user)
        return send_json({})

    async def _reveal(self, request: Request, user: ConsoleUser) -> Response:
        require(user, "admin")
        run_id = await self._read_run(request, user)
        await call_in_thread(self._service.reveal, run_id, user.name)
        return send_json({"run": run_id})

    async def _delete(self, request: Request, user: ConsoleUser) -> Response:
        require(user, "admin")
        run_id = await self._read_run(request, user)
        return send_json({"runs": await self._service.delete(run_id, user)})

    async def _read_run(self, request: Request, user: ConsoleUser) -> str:
        run_id = (await read_body(request)).get("run")
        if not isinstance(run_id, str):
            raise RefusedRequest(400, "run: name the run's id")
        await call_in_thread(self._service.check_run, run_id, user)
        return run_id

    async def _change_settings(self, request: Request, user: ConsoleUser) -> Response:
        require(user, "admin")
        return send_json(await self._settings.change(await read_body(request), user))

    async def _change_schedule(self, request: Request, user: ConsoleUser) -> Response:
        require(user, "admin")
        return send_json(await self._schedules.change(await read_body(request), user))
