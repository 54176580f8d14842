"""A verb that was not awaited is no value for the next verb, and no statement either."""

from loopwright import Conversation, Proposal, Run


async def gate_what_is_not_there_yet(run: Run, conversation: Conversation) -> None:
    await run.gate(run.reason(conversation))  # error


async def act_on_what_is_not_there_yet(run: Run, proposal: Proposal) -> None:
    await run.act(run.gate(proposal))  # error


async def act_and_forget(run: Run, proposal: Proposal) -> None:
    cleared = await run.gate(proposal)
    run.act(cleared)  # error


async def read_an_answer_too_early(run: Run, conversation: Conversation) -> str | None:
    proposal = run.reason(conversation)
    return proposal.answer  # error
