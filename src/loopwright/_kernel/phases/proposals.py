"""Proposals: what the next phase of a scope may take, each value once."""

from ...errors import PhaseError
from ...gates.base import Cleared
from ...messages import Proposal

GATED_ALREADY = "this proposal was gated already, or is not this scope's latest: reason or propose again"
ACTED_ALREADY = "this Cleared was acted on already, or is not this scope's latest: gate a new proposal"


class Proposals:
    """The proposals and cleared proposals of one scope that wait for their next phase.

    There is one at a time, or several samples of one question.
    """

    def __init__(self) -> None:
        self._values: dict[int, Proposal | Cleared] = {}
        """By identity: an equal value is another one."""
        self._gated: dict[str, Proposal] = {}

    def clear(self) -> None:
        """Accept nothing that was issued before."""
        self._values, self._gated = {}, {}

    def add(self, value: Proposal | Cleared, *, beside: bool = True) -> None:
        """Accept a value, once: beside what was issued before, or in place of it."""
        if not beside:
            self.clear()
        self._values[id(value)] = value

    def take_proposal(self, proposal: Proposal) -> None:
        """Take a proposal, and keep it for what acts on it.

        Raises `PhaseError` if this scope did not issue it, or it was taken.
        """
        self._take(proposal, GATED_ALREADY)
        self._gated[proposal.key] = proposal

    def take_cleared(self, cleared: Cleared) -> Proposal:
        """Take a cleared proposal, and return the proposal; raises as `take_proposal` does."""
        self._take(cleared, ACTED_ALREADY)
        return self._gated.pop(cleared.key)

    def _take(self, value: Proposal | Cleared, problem: str) -> None:
        if self._values.pop(id(value), None) is None:
            raise PhaseError(problem)
