"""The commands of the console: what a person does with a run, if it can be done now."""

import functools
from collections.abc import Mapping
from typing import Any, cast

from .._kernel.control.run_control import RunControl
from .._kernel.durability.fork import fork
from ..clock import SystemClock
from ..errors import ConfigError
from ..runtime import Runtime
from ..security.redaction import Redactor
from ..security.signed_commands import CommandSigner
from .actions import SENDERS, find_reasons
from .guard import RefusedRequest
from .launcher import Launcher
from .resumed_runs import ResumedRuns
from .service import ConsoleService
from .threads import call_in_thread
from .users import RIGHT_OF_ACTION, ConsoleUser


class Commands:
    """Sends commands to the runs of one journal, and has the runtime, if there is one, continue them."""

    def __init__(
        self,
        service: ConsoleService,
        runtime: Runtime | None,
        signer: CommandSigner | None,
        launcher: Launcher,
    ) -> None:
        self._service, self._runtime, self._signer = service, runtime, signer
        self._launcher = launcher
        self._journal = service.records.journal
        self._clock = SystemClock() if runtime is None else runtime.clock

    async def act(
        self, run_id: str, name: str, body: Mapping[str, Any], user: ConsoleUser
    ) -> dict[str, Any]:
        """Do something with a run; raise `ConfigError` with the reason if that cannot be done now."""
        state = await call_in_thread(self._service.find_state, run_id)
        reasons = find_reasons(state, user)
        if name not in reasons:
            raise ConfigError(
                f"action: must be one of {', '.join(reasons)}, got {name!r:.80}"
            )
        if problem := user.find_problem(RIGHT_OF_ACTION.get(name, "operate")):
            raise RefusedRequest(403, f"{name}: {problem}")
        if reasons[name]:
            raise ConfigError(f"{name}: {reasons[name]}")
        if name == "resume":
            self.resumed.begin(run_id, user.sender)
        elif name == "fork":
            return {"run": await self._fork(run_id, body, user)}
        else:
            await SENDERS[name](self._control(run_id), body, user.sender)
        return {"run": run_id, "at_work": state.has_owner}

    def _control(self, run_id: str) -> RunControl:
        if self._runtime is not None:
            return self._runtime.control(run_id)
        return RunControl(self._journal, Redactor(), run_id, self._clock, self._signer)

    @functools.cached_property
    def resumed(self) -> ResumedRuns:
        """The runs that the runtime continues."""
        return ResumedRuns(cast("Runtime", self._runtime))

    async def _fork(
        self, run_id: str, body: Mapping[str, Any], user: ConsoleUser
    ) -> str:
        """Copy the first entries of a run and have the copy continue, with other words if there are some; return its id.

        With an engine, that one works anew on the conversation with which the run began.
        """
        at, text, engine = body.get("at"), body.get("text", ""), body.get("engine", "")
        if not isinstance(at, int) or isinstance(at, bool):
            raise ConfigError(f"at: must be the number of an entry, got {at!r:.80}")
        if not (isinstance(text, str) and isinstance(engine, str)):
            raise ConfigError("text, engine: must be texts")
        if engine:
            entries = await call_in_thread(self._service.records.read, run_id, 0, 1)
            return await self._launcher.begin_again(engine, entries[0], text, user)
        sender = user.sender
        made = await fork(
            self._journal, run_id, at=at, clock=self._clock, by=str(sender)
        )
        if text:
            await self._control(made).steer(text, by=sender)
        self.resumed.begin(made, sender)
        return made
