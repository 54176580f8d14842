"""The runs that are due after a run: one for each of its follow-ups, stored with its last entry."""

from pydantic_core import to_json, to_jsonable_python

from ..._internal.version import __version__
from ...events.entry import Entry, chain_event
from ...events.followups import FOLLOW_UP, OWN_KNOWLEDGE, PlannedFollowUp, follow_up_id
from ...events.run import REVISION, RunStarted, RunSuspended
from ...journals.base import Claim, NewRun, RunHeader
from ...journals.recorded_messages import delimiter_of
from ...knowledge.bridge import name_store
from ...messages import Conversation, Json
from ..durability.history import offer_conversation, split_history
from ..session.session import Session


def plan_due_runs(
    session: Session, status: str, conversation: Conversation
) -> tuple[str, ...]:
    """Have the follow-ups of a run that ends stored with its last entry; return the ids of their runs."""
    planned = [one for one in session.after if status in one.statuses]
    if not planned:
        return ()

    def build(ended: Entry) -> list[NewRun]:
        return [_build_run(session, ended, conversation, one) for one in planned]

    session.writer.add_due(build)
    return tuple(follow_up_id(session.run_id, one.name) for one in planned)


def _build_run(
    session: Session, ended: Entry, conversation: Conversation, planned: PlannedFollowUp
) -> NewRun:
    """Return the run of one follow-up, which continues the conversation of the run that ended."""
    services, now = session.services, ended.at
    run_id = follow_up_id(session.run_id, planned.name)
    start = session.requests.get_given()
    offered = offer_conversation(services.journal, ended, start, conversation)
    task = offered.user(f"Do the follow-up {planned.name!r} of run {session.run_id}.")
    follows, messages = split_history(task, services.journal)
    options: dict[str, Json] = {
        "of": session.run_id, "follow_up": planned.name, "options": dict(planned.options), "opaque": list(planned.opaque),
        "agent": services.agent_name,
    }  # fmt: skip
    if services.has_own_knowledge:
        # A process without the agent cannot do it then.
        options[OWN_KNOWLEDGE] = name_store(services.knowledge)
    started = RunStarted(
        FOLLOW_UP, options, (), messages, to_jsonable_python(services.limits), version=__version__, created=now,
        boundary=delimiter_of(run_id, now), label=session.sensitivity.label, app_version=services.app_version,
        tags=dict(session.tags), thread=session.thread, journal_id=session.journal_id, revision=REVISION,
        untrusted=session.sensitivity.untrusted, follows=follows, principal=session.principal, approvals=session.approvals,
    )  # fmt: skip
    header = RunHeader(
        run_id, FOLLOW_UP, to_json(options).decode(), __version__, str(session.owner), now,
        app_version=services.app_version, tags=started.tags, thread=session.thread, follows=ended.run_id,
    )  # fmt: skip
    events = (started, RunSuspended("released", released=True))
    # They are encoded as those of the run that ends, whose claim may be of a class that its journal has made.
    claim = session.writer.claim
    head = Claim(run_id, 1, codec=claim.codec, tenant=claim.tenant)
    return NewRun(
        header, tuple([chain_event(head, "", event, now) for event in events])
    )
