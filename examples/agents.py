"""Agents: instructions in front of each request, replaced and never appended, and one agent as a tool of another.

`runtime.agent(name, instructions=...)` gives an engine instructions and a name. The conversation holds what was said, and no
instructions: the same agent has today's words in the next turn, and another agent has its own.

No model is needed: `SCRIPT` says what one would say. For a real one put `"openai:gpt-4.1-mini"` in place of the
`ScriptedProvider`; everything else stays.
"""

from loopwright import Runtime, Template, ToolCall, tool
from loopwright.testing import ScriptedProvider, call


@tool(effect="read")
async def card_status(customer: str) -> str:
    """Look a card up."""
    return f"the card of {customer} was blocked on Monday"


SCRIPT: list[str | ToolCall] = [
    call("cards", task="What happened to the card of customer 42?"),
    call("card_status", customer="42"),
    "It was blocked on Monday.",
    "Your card was blocked on Monday, Ada.",
    "You are welcome.",
]


def main() -> None:
    """Ask about a card."""
    provider = ScriptedProvider(SCRIPT)
    runtime = Runtime(provider)
    cards = runtime.agent(
        "cards",
        instructions="You look cards up. Say what you found, nothing else.",
        description="Knows the state of every card.",
        tools=[card_status],
    )
    support = runtime.agent(
        "support",
        instructions=Template("You help {name}, a customer of the bank."),
        tools=[cards.as_tool(effect="read")],
    )
    ada = {"name": "Ada"}
    first = support.run_sync("What is with my card? I am customer 42.", deps=ada)
    second = support.run_sync(first.conversation.user("Thank you."), deps=ada)

    for request in provider.requests:
        print(f"{request.system:<58} {len(request.conversation)} messages")
    roles = [message.role for message in second.conversation]
    print(f"The conversation: {', '.join(roles)}")
    print(first.answer)


if __name__ == "__main__":
    main()
