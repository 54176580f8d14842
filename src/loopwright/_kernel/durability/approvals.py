"""What a journal holds about people: what they were asked, and what they said."""

from collections.abc import Callable, Sequence, Set

from ...events.control import (
    CommandReceived,
    Declassified,
    FollowedUp,
    QuestionWithdrawn,
)
from ...events.effects import CallsProposed, GateDecided
from ...events.entry import Entry
from ...events.recovery import UnknownOutcomeResolved
from ...events.run import Question, RunFinished, RunForked, RunSuspended
from .effects import OUTCOMES, Effects, Readers

ALLOWED = ("allow", "modify")


def find_last_received(entries: Sequence[Entry]) -> int:
    """Return the number of the last command that a run received, 0 for none.

    A fork counts its own from 1.
    """
    last = 0
    for entry in entries:
        if isinstance(entry.event, RunForked):
            last = 0
        elif isinstance(entry.event, CommandReceived):
            last = max(last, entry.event.number)
    return last


class Approvals:
    """The decisions about calls, the open questions, and the commands that were received."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._decisions: dict[str, GateDecided] = {}
        # A bound method of a dictionary: it is called for each call of each step.
        self.decision: Callable[[str], GateDecided | None] = self._decisions.get
        self.approval_entries: dict[str, int] = {}
        """The entry since which a person is asked to approve a call as it stands, by its key."""
        self.question_entries: dict[str, int] = {}
        """The entry since which a person is asked another question, by its key."""
        self.questions: dict[str, Question] = {}
        """The questions as they were asked last when the run was suspended, by their keys."""
        self.expiries: dict[int, float] = {}
        """When the question of an entry can no longer be answered, wall clock, by its number."""
        self._cancelled: set[str] = set()
        self.received: dict[int, CommandReceived] = {}
        """The commands that the run received, by their number, as it understood them."""
        self.used: set[int] = set()
        """The numbers of the commands that count once and took effect."""

    def readers(self) -> Readers:
        """Return what reads each type of event."""
        return {
            **dict.fromkeys(OUTCOMES, self._read_outcome),
            CallsProposed: self._read_calls,
            GateDecided: self._read_decision,
            UnknownOutcomeResolved: self._read_outcome,
            RunSuspended: self._read_suspension,
            RunFinished: self._read_end,
            QuestionWithdrawn: self._read_cancellation,
            CommandReceived: self._read_command,
            FollowedUp: self._read_used,
            Declassified: self._read_used,
        }

    def _read_outcome(self, entry: Entry, event: object) -> None:
        self.question_entries.pop(entry.key, None)

    def _read_calls(self, entry: Entry, event: CallsProposed) -> None:
        if event.command:  # a person proposed them
            self.used.add(event.command)

    def _read_decision(self, entry: Entry, event: GateDecided) -> None:
        known, self._decisions[entry.key] = self._decisions.get(entry.key), event
        if event.verdict != "ask":
            return
        # A run that is resumed asks the same question again: that is not a new one.
        if known is None or _subject(known) != _subject(event):
            self.approval_entries[entry.key] = entry.seq
        self.note_expiry(event, entry.seq)

    def note_expiry(self, question: GateDecided, seq: int) -> None:
        """Note until when the question of an entry can be answered."""
        if question.until:
            self.expiries[seq] = question.until

    def _read_suspension(self, entry: Entry, event: RunSuspended) -> None:
        for question in event.pending:
            self.questions[question.key] = question
            if question.about != "approval":
                self.question_entries.setdefault(question.key, entry.seq)

    def _read_end(self, entry: Entry, event: RunFinished) -> None:
        self.question_entries.clear()

    def _read_cancellation(self, entry: Entry, event: QuestionWithdrawn) -> None:
        self._cancelled.add(entry.key)

    def _read_command(self, entry: Entry, event: CommandReceived) -> None:
        self.received[event.number] = event

    def _read_used(self, entry: Entry, event: FollowedUp | Declassified) -> None:
        self.used.add(event.command)

    @property
    def decided(self) -> Set[str]:
        """Return the keys of all calls and effects that were decided about."""
        return self._decisions.keys()

    def is_cancelled(self, key: str) -> bool:
        """Whether an entry says that the question at a key was withdrawn."""
        return key in self._cancelled

    def open_approvals(self) -> dict[str, GateDecided]:
        """Return the calls that wait for a person's approval, by their keys."""
        decisions = self._decisions.items()
        return {key: known for key, known in decisions if known.verdict == "ask"}

    def unused_approval(self, key: str) -> GateDecided | None:
        """Return the decision that rests on a person's command, while its call has not begun."""
        known = self._decisions.get(key)
        if known is None or not known.command:
            return None
        return known if self._is_unused(key, known) else None

    def _is_unused(self, key: str, known: GateDecided) -> bool:
        """Whether a decision lets a call run that has not begun."""
        return known.verdict in ALLOWED and not self._effects.has_begun(key)

    def forget_commands(self) -> None:
        """Forget what another run was told: a fork counts its own commands from 1."""
        self.received.clear()
        self.used.clear()

    def outdated(self, now: float) -> list[str]:
        """Return the keys of decisions that a fork makes again.

        An approval counts once, for the run that it was given to; a question that has expired can
        no longer be answered.
        """
        return [key for key in self._decisions if self._is_outdated(key, now)]

    def _is_outdated(self, key: str, now: float) -> bool:
        known = self._decisions[key]
        if known.verdict == "ask":
            return 0 < known.until <= now
        return self._is_unused(key, known)

    def forget_decision(self, key: str) -> None:
        """Forget the decision about a call, so that it is made again."""
        del self._decisions[key]


def _subject(decision: GateDecided) -> tuple[str, str, str]:
    """What a person is asked, if this is a question: about which arguments, under which policy."""
    return decision.verdict, decision.arguments_hash, decision.policy_version
