"""Who allowed which call of a run, by which policy version: records for a person, a log or OCSF."""

from collections.abc import Iterable, Sequence
from typing import Any

from .._internal import dataclasses
from ..events.control import CommandReceived
from ..events.effects import GateDecided, ToolFinished, ToolStarted
from ..events.entry import Entry
from ..messages import JsonObject

OCSF_VERSION = "1.5.0"
_ALLOWED = ("allow", "modify")
_ACTIVITIES = {"read": 2, "idempotent": 3, "write": 3, "destructive": 4}
"""The activity of the OCSF class "API Activity" for what a tool does to the world."""


@dataclasses.dataclass(frozen=True)
class AuditRecord:
    """A decision about one call, and the outcome of the call.

    Args:
        at: wall clock, in seconds, of the decision.
        run_id: the run.
        key: the place of the call in the run.
        seq: the number of the decision's entry.
        tool: the tool, or the effect of an engine's own.
        effect: what it does to the world.
        verdict: "allow", "modify", "deny", "ask", "invalid", "blocked" or "stuck".
        reason: the reason, without secrets.
        policy_version: the version of the gates that decided.
        arguments_hash: of the arguments, as canonical JSON.
        decided_by: "policy", or the name that a person gave with the command that decided.
        command: the number of that command; 0 for none.
        started: whether the tool was started.
        outcome: how the call ended; empty if it did not.
        entry_hash: the hash of the decision's entry.
    """

    at: float
    run_id: str
    key: str
    seq: int
    tool: str
    effect: str
    verdict: str
    reason: str
    policy_version: str
    arguments_hash: str
    decided_by: str
    command: int
    started: bool
    outcome: str
    entry_hash: str

    @property
    def is_allowed(self) -> bool:
        """Whether the call might run."""
        return self.verdict in _ALLOWED

    def to_json(self) -> JsonObject:
        """Return it as JSON, for a line of JSON Lines."""
        return dataclasses.asdict(self)

    def to_ocsf(self) -> JsonObject:
        """Return it as an event of the OCSF class 6003, API Activity, with the profile Security Control."""
        activity = _ACTIVITIES.get(self.effect, 99)
        action, severity = (1, 1) if self.is_allowed else (2, 2)
        return {
            "class_uid": 6003, "class_name": "API Activity", "category_uid": 6, "category_name": "Application Activity",
            "activity_id": activity, "type_uid": 600_300 + activity, "time": round(self.at * 1000),
            "severity_id": severity, "status_id": int(self.outcome == "ok"), "action_id": action, "message": self.reason,
            "actor": {"user": {"name": self.decided_by}, "app_name": "loopwright"},
            "api": {"operation": self.tool, "request": {"uid": f"{self.run_id}/{self.key}"}},
            "policy": {"version": self.policy_version}, "src_endpoint": {"name": "loopwright"},
            "metadata": {
                "version": OCSF_VERSION, "uid": self.entry_hash, "sequence": self.seq, "profiles": ["security_control"],
                "product": {"name": "Loopwright", "vendor_name": "Loopwright"},
            },
            "unmapped": dict(self.to_json()),
        }  # fmt: skip


def audit(entries: Sequence[Entry]) -> list[AuditRecord]:
    """Return the decisions about the calls of a run, in their order."""
    persons = {
        entry.event.number: str(entry.event.body.get("by") or "a person")
        for entry in entries
        if isinstance(entry.event, CommandReceived)
    }
    started = set(_keys_of(entries, ToolStarted))
    outcomes = {
        entry.key: entry.event.status
        for entry in entries
        if isinstance(entry.event, ToolFinished)
    }
    last = {
        entry.key: entry.seq
        for entry in entries
        if isinstance(entry.event, GateDecided)
    }
    return [
        _build(entry, entry.event, persons, started, outcomes, last)
        for entry in entries
        if isinstance(entry.event, GateDecided)
    ]


def _keys_of(entries: Iterable[Entry], kind: type[object]) -> Iterable[str]:
    return (entry.key for entry in entries if isinstance(entry.event, kind))


def _build(
    entry: Entry,
    decided: GateDecided,
    persons: dict[int, str],
    started: set[str],
    outcomes: dict[str, Any],
    last: dict[str, int],
) -> AuditRecord:
    # A call that was decided about again, after a change of policy, ran by the last decision.
    is_last = last[entry.key] == entry.seq
    outcome = outcomes.get(entry.key, "") if is_last else ""
    person = persons.get(decided.command, "a person") if decided.command else "policy"
    return AuditRecord(
        entry.at, entry.run_id, entry.key, entry.seq, decided.tool, decided.effect, decided.verdict, decided.reason,
        decided.policy_version, decided.arguments_hash,
        person, decided.command, is_last and entry.key in started, outcome, entry.hash,
    )  # fmt: skip
