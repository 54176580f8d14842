"""What people have approved for a whole thread: how the command line lists and revokes it."""

import asyncio
import shlex
import sys
from datetime import datetime

from ..agents.thread_approvals import ThreadApproval, ThreadApprovals, list_seen_tenants
from ..clock import MAX_SECONDS
from ..journals.base import Journal
from ..principals import Principal, Sender
from ..security.redaction import Redactor
from .command_keys import open_command_signer
from .config import open_journal
from .inspect_runs import write
from .run import run_and_close
from .text import clean, exact_call, json_text, one_line


def list_approvals(
    thread: str, journal: str | None, principal: str | None, *, as_json: bool
) -> int:
    """List the approvals of a thread that hold now, of a principal's tenant if there is one; return the exit status."""
    opened = open_journal(journal)
    sender = "" if principal is None else Principal.parse(principal)

    async def work() -> list[ThreadApproval]:
        return await _open(opened, thread, sender).find_held()

    for one in asyncio.run(run_and_close(opened, work)):
        lines = [_describe(one)] if as_json else _format(thread, one, journal)
        for line in lines:
            write(line)
    return 0


def revoke_approval(
    thread: str, id: str, journal: str | None, reason: str, by: Sender
) -> int:
    """Revoke an approval of a thread; return the exit status."""
    opened = open_journal(journal)

    async def work() -> None:
        await _open(opened, thread, by).revoke(id, reason, by)

    asyncio.run(run_and_close(opened, work))
    sys.stderr.write("revoked; a call that has begun continues\n")
    return 0


def _open(journal: Journal, thread: str, sender: Sender) -> ThreadApprovals:
    """Return the approvals of a thread, of all tenants for one who is of none."""
    tenant = sender.tenant if isinstance(sender, Principal) else ""
    signer = open_command_signer()
    return ThreadApprovals(
        journal, Redactor(), thread, signer=signer, tenants=list_seen_tenants(tenant)
    )


def _describe(approval: ThreadApproval) -> str:
    by = approval.by
    described = {
        "id": approval.id,
        "tool": approval.tool,
        "arguments": approval.arguments,
        "by": by.to_json() if isinstance(by, Principal) else by,
        "at": approval.at,
        "until": approval.until,
        "policy_version": approval.policy_version,
    }
    return json_text(described)


def _format(thread: str, approval: ThreadApproval, journal: str | None) -> list[str]:
    until = datetime.fromtimestamp(min(approval.until, MAX_SECONDS)).astimezone()
    where = [] if journal is None else ["--journal", journal]
    revoke = shlex.join(["loopwright", "revoke", thread, approval.id, *where])
    return [
        f"{clean(approval.id)}  by {one_line(str(approval.by)) or 'no name'}",
        f"  {exact_call(approval.tool, approval.arguments)} and others to the same destinations",
        f"  until {until:%Y-%m-%d %H:%M:%S %z}",
        f"  revoke it: {clean(revoke)}",
    ]
