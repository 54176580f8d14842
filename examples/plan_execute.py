"""Plan-and-Execute: prices of three suppliers at the same time, one step that fails, and a second plan.

The planner writes all steps before any of them runs. Steps that refer to no other (`$1` is the result of step 1) start
together. When a step fails, what needs it is not started, and a second plan builds on what is there.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import asyncio
from typing import Any

from loopwright import PlanExecuteEngine, Runtime, ToolError, tool
from loopwright.events import Entry, ToolFinished, ToolStarted
from loopwright.testing import ScriptedProvider

PRICES = {"Nordstuhl": "89.00 EUR", "Chairwell": "79.00 GBP", "Sedia": "94.50 EUR"}
RATES = {"GBP": 1.17}


@tool(effect="read")
async def price(supplier: str) -> str:
    """The price of one office chair at a supplier."""
    await asyncio.sleep(0.2)  # a catalogue on the network
    return PRICES[supplier]


@tool(effect="read")
async def in_euros(amount: str, rate: float = 0.0) -> str:
    """A price in euros; `rate` is what one unit of its currency is worth."""
    value, currency = amount.split()
    if currency == "EUR":
        return amount
    if not rate:
        raise ToolError(f"no rate for {currency} given: look it up with exchange_rate")
    return f"{float(value) * rate:.2f} EUR"


@tool(effect="read")
async def exchange_rate(currency: str) -> str:
    """What one unit of a currency is worth in euros."""
    return str(RATES[currency])


SCRIPT = [
    # The planner. Steps 1 to 3 wait for nothing; step 5 is a goal in words, for which there is no tool.
    """\
1. price("Nordstuhl")
2. price("Chairwell")
3. price("Sedia")
4. in_euros("$2")
5. Say which of $1, $3 and $4 is the lowest.
join()""",
    # Step 4 failed and step 5 was not started, so the engine asks whether that will do.
    "Decision: REPLAN\nWithout the price of Chairwell in euros the three cannot be compared.",
    # The second plan continues with the numbers; `$2` is a result of the first one, and is not looked up again.
    """\
6. exchange_rate("GBP")
7. in_euros("$2", $6)
8. Say which of $1, $3 and $7 is the lowest.
join()""",
    # Step 8: the executor, a small ReAct run of its own, which gets the three prices with it.
    "Nordstuhl: 89.00 EUR.",
    # The answer, from the results.
    "Nordstuhl is the cheapest at 89.00 EUR a chair, before Chairwell (92.43 EUR) and Sedia (94.50 EUR).",
]


def tell(name: str, fact: Any) -> None:
    """Print a fact that the engine noted."""
    if name == "Plan":
        print("Plan")
        for step in fact["steps"]:
            shown = (
                f"{step['tool']}({step['arguments']})" if step["tool"] else step["goal"]
            )
            waits = (
                f"   after {', '.join(map(str, step['depends_on']))}"
                if step["depends_on"]
                else ""
            )
            print(f"  {step['id']}. {shown}{waits}")
    elif name == "StepFinished":
        print(f"  step {fact['id']} {fact['status']}: {fact['content']}")
    elif name == "JoinDecided":
        print(f"Join: {fact['decision']}")


def max_concurrency(entries: list[Entry]) -> int:
    """How many tools were at work at the same time, by the journal."""
    at_work = highest = 0
    for entry in entries:
        at_work += isinstance(entry.event, ToolStarted) - isinstance(
            entry.event, ToolFinished
        )
        highest = max(highest, at_work)
    return highest


def main() -> None:
    """Compare three prices, and print plans, steps and the decision between them."""
    runtime = Runtime(ScriptedProvider(SCRIPT), tools=[price, in_euros, exchange_rate])
    engine = PlanExecuteEngine(runtime, max_steps=6, max_replans=1)
    result = engine.run_sync(
        "Which supplier has the cheapest office chair: Nordstuhl, Chairwell or Sedia?"
    )

    for fact in result.facts:
        tell(fact.name, fact.value)
    print(
        f"\nAt most {max_concurrency(list(runtime.journal.read(result.run_id)))} tools ran concurrently."
    )
    print(
        f"{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
