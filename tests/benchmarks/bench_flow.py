"""What FlowGate costs a call: CPU time of its decisions in a run that reads mails and answers them."""

import json
import statistics
import time

from loopwright import (
    Action,
    Decision,
    Limits,
    PolicyState,
    ReActEngine,
    Runtime,
    tool,
)
from loopwright.gates import FlowGate
from loopwright.testing import Line, ScriptedProvider, call

CALLS, ROUNDS = 200, 9
MAILS = [
    {
        "id": f"m-{number}",
        "sender": f"person{number}@example.com",
        "subject": f"Subject of mail {number}",
        "body": "Some words that a mail may have. " * 8,
    }
    for number in range(8)
]


@tool(effect="read", addresses=("sender",), repeatable=True)
def mails() -> list[dict[str, str]]:
    """Read the mails: 3 kB."""
    return MAILS


@tool(outbound=True, content=("subject", "body"))
def send(to: list[str], subject: str, body: str) -> str:
    """Send a mail."""
    return "sent"


def script() -> list[Line]:
    """Return a read, and nine mails to people that it names, again and again."""
    lines: list[Line] = []
    for number in range(CALLS):
        to = [f"person{number % 8}@example.com", "me@example.com"]
        text = f"Text {number}. " * 30
        lines.append(call("send", to=to, subject="Hello", body=text) if number % 10 else call("mails"))  # fmt: skip
    return [*lines, "done"]


class TimedGate(FlowGate):
    """Counts the CPU seconds of its decisions, with all that is looked up for them."""

    seconds = 0.0

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Decide."""
        begun = time.thread_time()
        decision = super().decide(action, state)
        self.seconds += time.thread_time() - begun
        return decision


def measure() -> float:
    """Return the CPU microseconds of a decision."""
    plan = json.dumps({"calls": ["mails", "send"] * CALLS})
    gate = TimedGate(plan=True)
    runtime = Runtime(
        ScriptedProvider([plan, *script()]),
        tools=[mails, send],
        gate=gate,
        limits=Limits(
            max_iterations=CALLS + 1, max_llm_calls=CALLS + 9, max_tool_calls=CALLS + 1
        ),
    )
    result = ReActEngine(runtime).run_sync("Write to me@example.com and to all.")
    result.raise_for_status()
    return gate.seconds / CALLS * 1e6


def main() -> None:
    """Print the figures."""
    figures = [measure() for _ in range(ROUNDS)]
    print(
        f"FlowGate: {statistics.median(figures):.0f} µs CPU a call, "
        f"{min(figures):.0f} to {max(figures):.0f} in {ROUNDS} runs of {CALLS} calls"
    )


if __name__ == "__main__":
    main()
