"""Each verb of a run takes only what the verb before it returned."""

from loopwright import Conversation, Proposal, Run


async def act_without_gate(run: Run, proposal: Proposal) -> None:
    await run.act(proposal)  # error


async def act_on_a_conversation(run: Run, conversation: Conversation) -> None:
    await run.act(conversation)  # error


async def act_on_calls(run: Run, proposal: Proposal) -> None:
    await run.act(proposal.calls)  # error


async def act_on_the_permits_alone(run: Run, proposal: Proposal) -> None:
    cleared = await run.gate(proposal)
    await run.act(cleared.permits)  # error


async def gate_before_reason(run: Run, conversation: Conversation) -> None:
    await run.gate(conversation)  # error


async def gate_twice(run: Run, proposal: Proposal) -> None:
    cleared = await run.gate(proposal)
    await run.gate(cleared)  # error


async def reason_on_text(run: Run) -> None:
    await run.reason("What is 1 + 2?")  # error


async def observe_what_was_cleared(
    run: Run, conversation: Conversation, proposal: Proposal
) -> Conversation:
    cleared = await run.gate(proposal)
    return conversation.observe(proposal, cleared)  # error
