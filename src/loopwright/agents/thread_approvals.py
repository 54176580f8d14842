"""Approvals that hold for a whole thread: who gave them, for what and until when, and how they are revoked."""

from collections.abc import AsyncIterator, Iterable, Mapping

from .._internal import dataclasses
from .._kernel.control.commands import APPROVE, DENY
from ..clock import Clock, SystemClock
from ..errors import ConfigError
from ..events.control import CommandReceived
from ..events.entry import Entry, Event
from ..events.run import Question, RunForked, RunSuspended
from ..journals.access import list_runs, read_inbox, read_run, send_command
from ..journals.base import RESUMABLE, Command, Journal, RunInfo
from ..journals.listing import RunFilter
from ..messages import Json, JsonObject, hash_arguments, hash_each
from ..principals import TENANT_TAG, Principal, read_principal, sign_body
from ..security.redaction import Redactor
from ..security.signed_commands import CommandSigner

THREAD = "thread"
"""The scope of an approval that holds for the later turns too."""


@dataclasses.dataclass(frozen=True)
class ThreadApproval:
    """An approval of calls of a tool to the same destinations, in all turns of a thread.

    Args:
        id: its name, for `Thread.revoke`: the turn in which it was given, and the number of the command.
        tool: the tool.
        arguments: those of the call that was approved, of which the destinations must be the same.
        by: who gave it.
        at: when (wall clock, seconds).
        until: when it ends (wall clock, seconds).
        policy_version: the version of the policy under which it holds.
        destinations: the arguments that say where it goes, by the tool of the approved call and what a person added;
            `None` where its question did not say.
    """

    id: str
    tool: str
    arguments: JsonObject
    by: str | Principal
    at: float
    until: float
    policy_version: str
    same: Mapping[str, str] = dataclasses.field(repr=False)
    destinations: tuple[str, ...] | None = None

    @property
    def run_id(self) -> str:
        """The turn in which it was given, as a run."""
        return self.id.rpartition("#")[0]

    def covers(self, question: Question) -> bool:
        """Return whether it is about the call of a question: to the same destinations, as both tools declare them."""
        # A question does not show what has become a secret since: then its destinations are not known here.
        if hash_arguments(question.arguments) != question.arguments_hash:
            return False
        asked = (question.about, question.tool, question.policy_version)
        is_about = asked == ("approval", self.tool, self.policy_version)
        return is_about and self._is_to_same(question)

    def _is_to_same(self, question: Question) -> bool:
        """Return whether no argument differs that is a destination for either of the two tools."""
        arguments, same, own = question.arguments, self.same, self.destinations
        given = arguments.keys()
        by_call = given if question.destinations is None else {*question.destinations}
        by_approved = set[str]() if own is None else {*own}
        content = given - by_call
        if own is not None:
            # An argument that only the approved call has is a destination where one of the two tools says so.
            content |= same.keys() - by_call - given
        here = (by_call | by_approved) & given
        there = same.keys() - (content - by_approved)
        return hash_each(arguments, here) == {name: same[name] for name in there}


class ThreadApprovals:
    """The approvals of one thread, read from the commands that its turns have accepted.

    Args:
        journal: the journal.
        redactor: removes secrets from reasons.
        thread: the id of the thread.
        clock: the source of time.
        signer: signs what revokes them; `None` sends it unsigned.
        tenants: those whose approvals are read: a run of another one that names the thread approves nothing. `None`: all.
    """

    def __init__(
        self,
        journal: Journal,
        redactor: Redactor,
        thread: str,
        clock: Clock | None = None,
        signer: CommandSigner | None = None,
        *,
        tenants: Iterable[str] | None = None,
    ) -> None:
        if not thread:  # the runs of no thread would be those of all
            raise ConfigError("thread: must not be empty; name the thread")
        self._journal, self._redactor, self._thread = journal, redactor, thread
        self._clock, self._signer = clock or SystemClock(), signer
        self._tenants = None if tenants is None else {*tenants}

    async def find_held(self) -> list[ThreadApproval]:
        """Return those that hold now, the newest first."""
        now, found = self._clock.wall(), list[ThreadApproval]()
        denials = list[Command]()
        async for info, commands in self._read_turns():
            is_of_tenant = self._is_of_tenant(info)
            wanted = [one for one in commands if is_of_tenant and _is_given(one, now)]
            entries = await read_run(self._journal, info.run_id) if wanted else []
            given = [
                read_approval(info.run_id, entries, one) for one in reversed(wanted)
            ]
            found += [one for one in given if one is not None]
            denials += filter(_may_deny, commands)
        return [one for one in found if not _is_revoked(one, denials)]

    async def revoke(self, id: str, reason: str, by: str | Principal) -> None:
        """Deny what an approval lets run: in the turn that it was given in, and in those that have used it and not ended."""
        known = {one.id for one in await self.find_held()}
        if id not in known:
            listed = ", ".join(known) or "none"
            raise ConfigError(
                f"approval: thread {self._thread!r} has no approval {id!r} that holds; there are: {listed}"
            )
        given_in, _, number = id.rpartition("#")
        # This one first: a turn that uses the approval meanwhile looks here once more.
        for one in await read_inbox(self._journal, given_in, int(number) - 1):
            if one.number == int(number):
                await self.deny(one, id, reason, by)
        for info in await self._list_runs():
            if info.status in RESUMABLE:
                for one in await read_inbox(self._journal, info.run_id):
                    if one.kind == APPROVE and one.body.get("granted") == id:
                        await self.deny(one, id, reason, by)

    async def _list_runs(self) -> list[RunInfo]:
        """Return the runs of the thread, the newest first; those of no tenant may deny for each."""
        found = await list_runs(self._journal, where=RunFilter(thread=self._thread))
        return [one for one in found if self._is_of_tenant(one) or not _tenant_of(one)]

    def _is_of_tenant(self, info: RunInfo) -> bool:
        return self._tenants is None or _tenant_of(info) in self._tenants

    async def _read_turns(self) -> AsyncIterator[tuple[RunInfo, list[Command]]]:
        """Yield the runs of the thread with their commands, the newest first."""
        for info in await self._list_runs():
            yield info, await read_inbox(self._journal, info.run_id)

    async def deny(
        self, given: Command, id: str, reason: str, by: str | Principal
    ) -> None:
        """Deny, in its run, what a command approved, because of the approval of the thread with that id."""
        kept = ("key", "question", "tool", "arguments_hash", "policy_version")
        denied: dict[str, Json] = {name: given.body[name] for name in kept}
        denied |= {"granted": id, "reason": self._redactor.redact_text(reason)}
        body, signer = sign_body(denied, by), self._signer
        signed = body if signer is None else signer.sign(given.run_id, DENY, body)
        await send_command(self._journal, given.run_id, DENY, signed)


def list_seen_tenants(tenant: str) -> tuple[str, ...] | None:
    """Return the tenants whose approvals an operator of a tenant lists and revokes: its own; all for one of none."""
    return (tenant,) if tenant else None


def _tenant_of(info: RunInfo) -> str:
    return info.tags.get(TENANT_TAG, "")


def _is_given(command: Command, now: float) -> bool:
    """Return whether a command says that it approves for the thread, and not until a time that has passed."""
    body = command.body
    is_wide = command.kind == APPROVE and body.get("scope") == THREAD
    seconds = body.get("seconds")
    return is_wide and isinstance(seconds, (int, float)) and now < command.at + seconds


def read_approval(
    run_id: str, entries: list[Entry], command: Command
) -> ThreadApproval | None:
    """Return an approval as the turn accepted it; `None` for a command that it refused or did not receive."""
    call = Question("", "")
    for event in _list_own(entries):
        if isinstance(event, RunSuspended):
            asked = {one.key: one for one in event.pending}
            call = asked.get(str(command.body.get("key")), call)
        elif isinstance(event, CommandReceived) and event.number == command.number:
            is_given = event.command == APPROVE and event.body.get("scope") == THREAD
            accepted = is_given and not event.refused
            return _build_approval(run_id, event, call) if accepted else None
    return None


def _list_own(entries: list[Entry]) -> list[Event]:
    """Return the events of a run; without the commands to the run that it is a fork of, which have their own numbers."""
    events = [entry.event for entry in entries]
    forks = [at for at, event in enumerate(events) if isinstance(event, RunForked)]
    before = forks[-1] if forks else 0
    copied = [one for one in events[:before] if not isinstance(one, CommandReceived)]
    return [*copied, *events[before:]]


def _build_approval(
    run_id: str, event: CommandReceived, call: Question
) -> ThreadApproval:
    body = event.body
    given, same, seconds = body.get("arguments"), body.get("same"), body.get("seconds")
    arguments = given if isinstance(given, dict) else call.arguments
    lasts = seconds if isinstance(seconds, (int, float)) else 0.0
    digests = same if isinstance(same, dict) else {}
    known = call.list_destinations(map(str, digests))
    by = read_principal(body.get("principal")) or str(body.get("by", ""))
    return ThreadApproval(
        f"{run_id}#{event.number}", str(body["tool"]), arguments, by, event.sent, event.sent + lasts,
        str(body["policy_version"]),
        {name: str(digest) for name, digest in digests.items()}, None if known is None else (*known,),
    )  # fmt: skip


def _may_deny(command: Command) -> bool:
    """Return whether a command denies calls of a tool, or cannot be read and may have."""
    return command.kind == DENY or bool(command.damage)


def _is_revoked(approval: ThreadApproval, denials: Iterable[Command]) -> bool:
    """Return whether a later command denied a call of the tool; in its own turn, also one that cannot be read.

    One that revokes another approval of the thread is not about this one.
    """
    run_id, _, number = approval.id.rpartition("#")
    for one in denials:
        is_own = one.run_id == run_id
        is_later = one.number > int(number) if is_own else one.at >= approval.at
        is_about = one.body.get("tool") == approval.tool or bool(one.damage and is_own)
        is_it = one.body.get("granted", approval.id) == approval.id
        if is_later and is_about and is_it:
            return True
    return False
