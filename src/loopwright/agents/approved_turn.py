"""A turn that waits for what people have approved for its whole thread, and so continues."""

from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, TypeVar

from .._kernel.control.commands import APPROVE
from .._kernel.control.run_control import RunControl
from .._kernel.session.services import Services
from ..events.lifecycle import read_start
from ..events.run import Question
from ..gates.base import Suspend
from ..journals.access import read_inbox, read_run
from ..journals.base import Command
from ..principals import TENANT_TAG, sign_body
from ..result import Result
from .thread_approvals import ThreadApproval, ThreadApprovals
from .turn import TurnName

Ended = TypeVar("Ended", bound=Result[Any])


async def proceed_as_approved(
    services: Services, result: Ended, resume: Callable[[], Awaitable[Ended]]
) -> Ended:
    """Return the result of a turn, which is resumed for as long as approvals of its thread cover what it waits for.

    `services` are those of its agent. Another run than a turn is left as it is.
    """
    if result.status != "waiting" or TurnName.parse(result.run_id) is None:
        return result
    started = read_start(result.run_id, await read_run(services.journal, result.run_id))
    if not started.thread:  # a caller may name a run like a turn
        return result
    turn = ApprovedTurn(services, started.thread, started.tags.get(TENANT_TAG, ""))
    return await turn.proceed(result, resume)


class ApprovedTurn:
    """A turn of a thread, which uses the approvals of that.

    Args:
        services: those of its agent.
        thread: the id of the thread.
        tenant: the tenant of the turn; empty for none.
    """

    def __init__(self, services: Services, thread: str, tenant: str) -> None:
        self._services, self._clock = services, services.clock
        self._approvals = ThreadApprovals(
            services.journal, services.redactor, thread, services.clock, services.command_signer,
            tenants=("", tenant),
        )  # fmt: skip

    async def proceed(
        self, result: Ended, resume: Callable[[], Awaitable[Ended]]
    ) -> Ended:
        """Resume it for as long as it waits for calls that the approvals cover; return its last result."""
        while result.status == "waiting" and await self._approve_pending(result):
            result = await resume()
        return result

    async def _approve_pending(self, result: Result[Any]) -> bool:
        """Approve what the turn waits for as far as approvals of the thread cover it; return whether any is new."""
        asked = [one for one in result.pending if one.about == "approval"]
        approvals = await self._approvals.find_held() if asked else []
        used = set[str]()
        for question in asked if approvals else ():
            covering = [one for one in approvals if one.covers(question)]
            used |= await self._approve(result.run_id, question, covering)
        await self._withdraw(result.run_id, used)
        return bool(used)

    async def _approve(
        self, run_id: str, question: Question, approvals: Sequence[ThreadApproval]
    ) -> set[str]:
        """Send the first approval of a person that the question does not have yet; return its id.

        One that it has may be too little, where the call needs several people: sent again it would not be more.
        """
        services = self._services
        control = RunControl(
            services.journal, services.redactor, run_id, services.clock, services.command_signer
        )  # fmt: skip
        asked = await control._asked_approval(question.id)  # pyright: ignore[reportPrivateUsage] - what binds it to the call
        sent = await read_inbox(services.journal, run_id)
        for approval in approvals:
            seconds = approval.until - self._clock.wall()
            body = sign_body(asked, approval.by)
            if seconds > 0 and not any(self._is_same(one, body) for one in sent):
                await control._approve(  # pyright: ignore[reportPrivateUsage] - the same, with what it rests on
                    question.id, None, seconds, approval.by, {"granted": approval.id}
                )
                return {approval.id}
        return set()

    def _is_same(self, command: Command, body: dict[str, Any]) -> bool:
        """Return whether a command says the same approval, for the same call, and still counts for it."""
        approver = self._services.approver
        holds = approver.holds if isinstance(approver, Suspend) else Suspend().holds
        if command.kind != APPROVE or "arguments" in command.body:
            return False
        counts = self._clock.wall() < command.at + holds
        return counts and body.items() <= command.body.items()

    async def _withdraw(self, run_id: str, used: Set[str]) -> None:
        """Deny in a turn what approvals let run that were revoked while it began to use them."""
        held = {one.id for one in await self._approvals.find_held()} if used else used
        revoked = used - held
        for one in await read_inbox(self._services.journal, run_id) if revoked else ():
            id = str(one.body.get("granted", ""))
            if one.kind == APPROVE and id in revoked:
                await self._approvals.deny(one, id, "its approval was revoked", "")
