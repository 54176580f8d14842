"""Let a model that is offered no tools hand the run off before its engine begins."""

from ...tools.registry import ToolRegistry
from .cycle import Cycle
from .handoff import act
from .inference import Question
from .reason import reason


async def offer_handoffs(cycle: Cycle) -> None:
    """Ask the model of an engine that offers it no tools whether to hand the run off, before the engine begins."""
    own = cycle.services
    transfers = [one for one in own.tools if one.handoff is not None]
    if not transfers or getattr(cycle.engine, "offers_tools", True):
        return
    cycle.use(own.with_tools(ToolRegistry(transfers)))
    try:
        with cycle.scope.enter("reason"):
            question = Question(
                "reason", cycle.conversation, own.provider, True, purpose="handoff"
            )
            proposal = await reason(cycle, question)
        if proposal.calls:
            await act(cycle, await cycle.gate(proposal))
        cycle.keep(cycle.conversation)
    finally:
        cycle.use(own)
