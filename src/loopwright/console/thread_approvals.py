"""What people have approved for whole threads, as the console lists and revokes it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ..agents.thread_approvals import ThreadApproval, ThreadApprovals, list_seen_tenants
from ..clock import SystemClock
from ..errors import ConfigError, JournalError, UnknownRun
from ..runtime import Runtime
from ..security.redaction import Redactor
from ..security.signed_commands import CommandSigner
from .guard import require
from .service import ConsoleService
from .users import ConsoleUser


class ConsoleApprovals:
    """The approvals of the threads of one journal; a user sees those that runs of its tenant gave."""

    def __init__(
        self,
        service: ConsoleService,
        runtime: Runtime | None,
        signer: CommandSigner | None,
    ) -> None:
        self._service, self._signer = service, signer
        self._clock = SystemClock() if runtime is None else runtime.clock
        self._redactor = Redactor() if runtime is None else runtime.redactor

    async def show(self, thread: str, user: ConsoleUser) -> list[dict[str, Any]]:
        """Return what is approved for a thread and holds now, the newest first, with why the user cannot revoke it."""
        found = await self._open(thread, user).find_held()
        problem = user.find_problem("approve")
        hidden = await asyncio.to_thread(self._find_hidden, found, user)
        return [
            {**_describe(one, is_hidden=one.run_id in hidden), "problem": problem}
            for one in found
        ]

    async def revoke(self, body: Mapping[str, Any], user: ConsoleUser) -> None:
        """Revoke an approval of a thread, for the turn at work too; raise `ConfigError` for one that does not hold."""
        require(user, "approve")
        given = [body.get(name, "") for name in ("thread", "approval", "reason")]
        texts = [one for one in given if isinstance(one, str)]
        if len(texts) < len(given) or not (texts[0] and texts[1]):
            raise ConfigError(
                "thread, approval, reason: must be texts; name the thread and its approval"
            )
        thread, approval, reason = texts
        await self._open(thread, user).revoke(approval, reason, user.sender)

    def _open(self, thread: str, user: ConsoleUser) -> ThreadApprovals:
        journal = self._service.records.journal
        tenants = list_seen_tenants(user.tenant)
        return ThreadApprovals(
            journal, self._redactor, thread, self._clock, self._signer, tenants=tenants
        )

    def _find_hidden(self, found: list[ThreadApproval], user: ConsoleUser) -> set[str]:
        """Return the runs that may hold something secret, or cannot be read."""
        runs = {one.run_id for one in found}
        return {run_id for run_id in runs if self._is_hidden(run_id, user)}

    def _is_hidden(self, run_id: str, user: ConsoleUser) -> bool:
        records = self._service.records
        try:
            digest = records.glance(records.find(run_id))
        except (JournalError, UnknownRun):
            return True
        return digest.holds_secrets and not self._service.sees(run_id, user.name)


def _describe(approval: ThreadApproval, *, is_hidden: bool) -> dict[str, Any]:
    return {
        "id": approval.id,
        "tool": approval.tool,
        "arguments": {} if is_hidden else approval.arguments,
        "hidden": is_hidden,
        "by": str(approval.by),
        "until": approval.until,
        "run_id": approval.run_id,
    }
