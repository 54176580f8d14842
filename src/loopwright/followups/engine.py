"""FollowUpEngine: the engine of a run that does one follow-up."""

from collections.abc import Mapping
from typing import Any, ClassVar

from .._kernel.phases.recorded_result import read_result
from .._kernel.session.services import Services
from ..engine import LoopEngine
from ..errors import EngineError, JournalError
from ..events.followups import FOLLOW_UP
from ..journals.access import consult
from ..run import Run
from .base import EndedRun, FollowUp
from .registry import FollowUps


class FollowUpEngine(LoopEngine):
    """Does one follow-up. Its runs are stored with the end of the run that they follow, and never started by hand.

    Args:
        of: the run that ended.
        work: the follow-up.
    """

    name: ClassVar[str] = FOLLOW_UP
    of: str
    work: FollowUp

    async def solve(self, run: Run) -> str:
        """Read the run that ended, which does not change any more, and do the follow-up."""
        ended = await consult(self._read)
        return await self.work.follow(run, ended)

    def _read(self) -> EndedRun:
        journal: Any = self.runtime.journal
        try:
            entries = journal.read(self.of)
            result = read_result(journal, entries, None)
        except JournalError as error:
            # The follow-up has failed, and its own journal has not.
            raise EngineError(f"run {self.of!r} cannot be read: {error}") from error
        if result is None:
            raise EngineError(f"run {self.of!r} was continued and has not ended again")
        bridge = self.runtime.knowledge
        return EndedRun(result, entries, None if bridge is None else bridge.store)


def build_follow_up_engine(
    services: Services, known: FollowUps, options: Mapping[str, Any]
) -> FollowUpEngine:
    """Return the engine of a follow-up by what its run records; raise `ConfigError` if it cannot be done here.

    It has the store of knowledge of the agent whose run it follows.
    """
    work, agent = known.find(options), known.find_agent(options)
    if agent is not None and agent.has_own_knowledge:
        services = services.with_knowledge(agent.knowledge, agent.knowledge_tools)
    if work.tools:
        services = services.with_tools(services.tools.with_tools(*work.tools))
    return FollowUpEngine(services, of=str(options["of"]), work=work)
