"""Whether policy allowed each call of a run that was started, as its entries say."""

from collections.abc import Iterable, Mapping, Sequence

from .._internal import dataclasses
from ..errors import JournalError
from ..events.effects import CallsProposed, GateDecided, ModelReplied, ToolStarted
from ..events.entry import Entry
from ..messages import ToolCall, hash_arguments
from .base import Verification

ALLOWING = ("allow", "modify")


@dataclasses.dataclass(frozen=True)
class AllowedCall:
    """A call that was started, with the decision that allowed it and its entry."""

    entry: Entry
    started: ToolStarted
    decision: GateDecided
    decided_at: Entry


class PolicyCheck:
    """Reads the entries of a run in their order; `problem` and `seq` are of the first wrong call."""

    def __init__(self) -> None:
        self.problem = ""
        self.seq: int | None = None
        self.allowed: list[AllowedCall] = []
        self._decisions: dict[str, tuple[GateDecided, Entry]] = {}
        self._proposed: dict[str, ToolCall] = {}
        self._started: set[str] = set()

    def read(self, entries: Iterable[Entry]) -> "PolicyCheck":
        """Read entries up to the first wrong call, and return this."""
        for entry in entries:
            self._read(entry)
            if self.problem:
                self.seq = entry.seq
                break
        return self

    def _read(self, entry: Entry) -> None:
        match entry.event:
            case ModelReplied(completion=completion):
                self._propose(entry.key, completion.calls)
            case CallsProposed(calls=calls):
                self._propose(entry.key, calls)
            case GateDecided() as decided:
                self._decisions[entry.key] = decided, entry
                self.problem = self._check_decision(entry.key, decided)
            case ToolStarted() as started:
                self.problem = self._check_start(entry, started)
            case _:
                pass

    def _propose(self, key: str, calls: Sequence[ToolCall]) -> None:
        for number, call in enumerate(calls):
            self._proposed[f"{key}#{number}"] = call

    def _check_decision(self, key: str, decided: GateDecided) -> str:
        """Return what is wrong with a decision that lets a call run: it is about other arguments."""
        if decided.verdict not in ALLOWING or not decided.arguments_hash:
            return ""
        call = self._proposed.get(key)
        if decided.arguments is not None:
            found = hash_arguments(decided.arguments)
        elif call is not None and decided.verdict == "allow":
            found = hash_arguments(call.arguments)
        else:
            return ""
        is_same = found == decided.arguments_hash
        return "" if is_same else f"the decision about {key} is not about its arguments"

    def _check_start(self, entry: Entry, started: ToolStarted) -> str:
        """Return what is wrong with a call that was started, and keep one that was allowed."""
        what = f"{started.tool} ({entry.key})"
        if entry.key in self._started:
            return f"{what} was started twice"
        self._started.add(entry.key)
        decided, decided_at = self._decisions.get(entry.key, (None, entry))
        if decided is None:
            return f"{what} was started, and no policy decided about it"
        problem = _compare(decided, started, self._proposed.get(entry.key))
        if problem:
            return f"{what} {problem}"
        self.allowed.append(AllowedCall(entry, started, decided, decided_at))
        return ""


def _compare(
    decided: GateDecided, started: ToolStarted, proposed: ToolCall | None
) -> str:
    """Return how a call that was started differs from what was decided and proposed; "" if it does not."""
    if decided.verdict not in ALLOWING:
        return f"was started, and the last decision about it is {decided.verdict!r}"
    if decided.tool != started.tool:
        return f"was started, and {decided.tool} was allowed"
    if proposed is not None and proposed.name != started.tool:
        return f"was started, and {proposed.name} was proposed"
    if decided.arguments_hash not in ("", started.arguments_hash):
        return "was started with other arguments than were allowed"
    return ""


def check_policy(found: Verification, entries: Sequence[Entry]) -> Verification:
    """Return a verification with the first call that was started and that no policy allowed."""
    if not found.ok:
        return found
    try:
        check = PolicyCheck().read(entries)
    except JournalError as error:  # an entry of a newer version
        return dataclasses.replace(found, problem=str(error))
    return dataclasses.replace(found, problem=check.problem, seq=check.seq)


def allowed_calls(entries: Sequence[Entry]) -> Mapping[str, AllowedCall]:
    """Return the calls of a run that were started and allowed, by their keys."""
    return {call.entry.key: call for call in PolicyCheck().read(entries).allowed}
