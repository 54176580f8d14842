"""Handoffs: a triage agent of an airline hands the conversation over to the agent who can help, in one run."""

from loopwright import Runtime, ToolCall, tool
from loopwright.testing import ScriptedProvider, call


@tool(effect="write")
async def change_seat(booking: str, seat: str) -> str:
    """Change the seat of a booking."""
    return f"booking {booking} has seat {seat}"


@tool(effect="read")
async def find_answer(question: str) -> str:
    """Look a question up in the answers of the airline."""
    return "one bag of 23 kg is free"


SCRIPT: list[str | ToolCall] = [  # what a model would say
    call("transfer_to_seats"),
    call("change_seat", booking="X7", seat="12A"),
    call("transfer_to_triage"),  # a question that is not about seats
    call("transfer_to_faq"),
    call("find_answer", question="How many bags are free?"),
    "You sit in 12A, and one bag of 23 kg is free.",
]


def main() -> None:
    """Change a seat and answer a question: three agents, one run, one budget."""
    runtime = Runtime(ScriptedProvider(SCRIPT))
    define = runtime.agent
    triage = define("triage", instructions="Find who can help.", handoffs=["seats", "faq"])  # fmt: skip
    define("seats", instructions="You change seats.", tools=[change_seat], handoffs=["triage"])  # fmt: skip
    define("faq", instructions="You answer questions.", tools=[find_answer], handoffs=["triage"])  # fmt: skip
    result = triage.run_sync("I want seat 12A (booking X7). How many bags are free?")
    for entry in runtime.journal.read(result.run_id):
        if entry.kind == "handed_off":
            print(entry.event.summary())
    print(f"{result.answer} ({result.llm_calls} model calls)")


if __name__ == "__main__":
    main()
