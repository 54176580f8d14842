"""The agents that work one after the other at one place of a run, each in the place of the one before."""

from typing import Generic, Protocol, TypeVar

from ..._internal import dataclasses
from ...messages import Conversation
from ..session.scope import Scope


class Phases(Protocol):
    """What is needed of the phases of an agent."""

    scope: Scope

    @property
    def latest(self) -> Conversation:
        """Return the conversation as far as the agent has taken it."""
        ...


P = TypeVar("P", bound=Phases)


@dataclasses.dataclass(frozen=True)
class _Member(Generic[P]):
    """An agent: its phases, what it was given, and what was before it where it sees less than that."""

    phases: P
    given: Conversation
    before: Conversation | None = None


class Succession(Generic[P]):
    """The phases of those agents, in their order."""

    def __init__(self, first: P, given: Conversation) -> None:
        self._members = [_Member(first, given)]

    def add(self, phases: P, given: Conversation, whole: Conversation) -> None:
        """Let an agent work from now on, which is given a view of the whole conversation."""
        before = None if given.digest == whole.digest else whole
        self._members.append(_Member(phases, given, before))

    @property
    def all(self) -> list[P]:
        """Return the phases of all, the last one at the end."""
        return [member.phases for member in self._members]

    @property
    def active(self) -> P:
        """Return the phases of the agent at work."""
        return self._members[-1].phases

    @property
    def turns(self) -> int:
        """Return the turns of the loops of all."""
        return sum(member.phases.scope.turns for member in self._members)

    @property
    def whole(self) -> Conversation:
        """Return the conversation of all."""
        return self.extend(self.active.latest)

    def extend(self, latest: Conversation) -> Conversation:
        """Return a conversation of the agent at work with what was before it and not shown to it."""
        member = self._members[-1]
        if member.before is None:
            return latest
        shown = len(member.given)
        is_continued = latest.messages[:shown] == member.given.messages
        return member.before.add(*(latest.messages[shown:] if is_continued else ()))
