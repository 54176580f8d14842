"""Take in the commands that people send to a run, and act on those that count at once."""

import math
from collections.abc import Callable, Sequence

from ..._internal.log import logger
from ...errors import Aborted, LoopwrightError
from ...events.control import CommandReceived, Declassified, RunContinued, RunPaused
from ...journals.access import read_inbox
from ...journals.base import Command
from ...labels import read_provenance
from ...security.signed_commands import SenderCheck
from ..control.command_log import CommandLog, HumanDecision
from ..control.commands import (
    ANSWER,
    APPROVE,
    DECLASSIFY,
    find_problem,
    is_numbered,
    read_command,
)
from ..durability.replay import Replay
from .active_clock import ActiveClock
from .journal_writer import JournalWriter
from .secrets import Secrets
from .sensitivity import Sensitivity
from .services import Services
from .signals import STOPPED, Signals

EXPIRED = "the time of its question was over"


def _do_nothing() -> None:
    """Stop nothing: no engine is at work yet."""


class CommandIntake:
    """Receives the commands of one run; `log` holds those that were accepted."""

    def __init__(
        self,
        services: Services,
        replay: Replay,
        writer: JournalWriter,
        signals: Signals,
        secrets: Secrets,
        sensitivity: Sensitivity,
        active: ActiveClock,
    ) -> None:
        self.run_id = writer.claim.run_id
        self.log = CommandLog()
        received = (one.body for one in replay.approvals.received.values())
        self.senders = SenderCheck(self.run_id, services.command_signer, received)
        self.on_abort: Callable[[], None] = _do_nothing
        """Called to stop all that is in flight when an abort arrives from outside."""
        self._services, self._replay, self._writer = services, replay, writer
        self._signals, self._secrets = signals, secrets
        self._sensitivity, self._active = sensitivity, active
        self._has_warned = False  # of a command without a number
        self._paused_branches = 0
        self._paused_at = 0.0

    async def listen(self) -> None:
        """Read the run's inbox, and make durable what was received."""
        journal = self._services.journal
        commands = await read_inbox(journal, self.run_id, self.log.last)
        self.receive(commands)
        if commands:
            await self._writer.barrier()

    def receive(self, commands: Sequence[Command]) -> None:
        """Take in commands, in order; each is recorded once."""
        numbered = [sent for sent in commands if is_numbered(sent)]
        if len(numbered) < len(commands) and not self._has_warned:
            self._has_warned = True
            logger().warning("command_without_number", run_id=self.run_id)
        if self._writer.is_closed:
            return
        was_aborting = self.log.aborting
        for sent in numbered:
            if sent.number > self.log.last:
                self._receive(sent)
        if self.log.aborting and not was_aborting:
            self.on_abort()

    async def wait_while_paused(self) -> None:
        """Wait between two steps while the run is paused; raise `Aborted` if it is to stop."""
        if self.log.is_paused():
            await self._pause()
        if self.log.stopping:
            raise self.stop_signal()

    def stop_signal(self) -> LoopwrightError:
        """Return the sticky error of a run that was sent `stop` or `abort`."""
        text = "the run was aborted" if self.log.aborting else STOPPED
        return self._signals.stick(Aborted(text))

    def find_revocation(
        self, key: str, tool: str, approval: int
    ) -> HumanDecision | None:
        """Return the later denial of a call that the command numbered `approval` approved."""
        if not approval:
            return None
        asked = self._replay.approvals.approval_entries.get(key)
        return self.log.find_revocation(key, asked, tool, approval)

    async def _pause(self) -> None:
        """Wait until the run is unpaused; the first branch that waits records the pause."""
        self._paused_branches += 1
        clock = self._services.clock
        if self._paused_branches == 1:
            self._paused_at = clock.monotonic()
            self._writer.record("", RunPaused())
        try:
            with self._active.waiting:
                await self._writer.barrier()
                while self.log.is_paused():
                    await self.log.wait_for_next()
        finally:
            self._paused_branches -= 1
            if self._paused_branches == 0:
                seconds = round(clock.monotonic() - self._paused_at, 6)
                waited = self._active.take_waited()
                self._writer.record("", RunContinued(waited, seconds))

    def _receive(self, sent: Command) -> None:
        known = self._replay.approvals.received.get(sent.number)
        if known is None:
            command, problem = self._record(sent)
        else:
            command = Command(
                sent.number, self.run_id, known.sent, known.command, known.body
            )
            problem = known.refused or find_problem(command)
        if problem:
            self.log.refuse(command)
            return
        self.log.accept(command)
        if known is None and command.kind == ANSWER:
            label, untrusted = read_provenance(command.body)
            self._sensitivity.observe(label, untrusted)
        if (
            command.kind == DECLASSIFY
            and command.number not in self._replay.approvals.used
        ):
            self._declassify(command)

    def _record(self, sent: Command) -> tuple[Command, str]:
        """Record a new command; return it without its secrets, and why it is refused."""
        command, problem = read_command(sent, self._secrets.redactor)
        problem = problem or self.senders.find_problem(sent)
        if not problem and self._is_late(command):
            problem = EXPIRED
        waited = self._active.take_waited()
        received = CommandReceived(
            command.number, command.kind, command.body, command.at, waited, problem
        )
        self._writer.record("", received)
        if problem:
            logger().warning(
                "command_refused",
                run_id=self.run_id,
                number=command.number,
                command=command.kind,
                problem=problem,
            )
        return command, problem

    def _is_late(self, command: Command) -> bool:
        """Return whether a command answers a question that had expired when it was sent."""
        approvals, question = self._replay.approvals, command.body.get("question")
        if command.kind == ANSWER:
            asked = approvals.questions.get(str(command.body.get("key")))
            return asked is not None and 0 < asked.expires < command.at
        if command.kind != APPROVE or not isinstance(question, int):
            return False
        return command.at > approvals.expiries.get(question, math.inf)

    def _declassify(self, command: Command) -> None:
        trusted = command.body.get("trusted") is True
        label = self._sensitivity.lower(command.body.get("label"), trusted=trusted)
        reason = str(command.body.get("reason", ""))
        self._writer.record("", Declassified(label, reason, command.number, trusted))
