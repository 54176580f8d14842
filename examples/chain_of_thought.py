"""Chain of Thought: nine lines of reasoning may vote on a number, and six are enough.

One line of reasoning can go wrong. Several that were drawn with some temperature go wrong in different ways, so the
answer that most of them reach is better than any one of them (self-consistency), and how many agree says how sure to
be. The engine asks in waves and stops as soon as the vote cannot turn any more.

No model is needed: `Sampler` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")`
(from `loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

from loopwright import ChainOfThoughtEngine, Request, Runtime
from loopwright.testing import ScriptedProvider

QUESTION = (
    "A bakery makes 12 trays of 24 rolls. A quarter of the rolls goes to a hotel, then a school buys 90. "
    "The rest is packed into bags of 6. How many bags are there?"
)
REASONINGS = [
    "12 trays of 24 rolls are 288 rolls. A quarter is 72, so 216 are left. 216 - 90 = 126. 126 / 6 = 21.\n\n"
    "FINAL ANSWER: 21",
    "There are 288 rolls. The school buys 90, which leaves 198; a quarter of them, 49.5, goes to the hotel. That is no "
    "whole number, so it is 50, and 148 / 6 = 24.67, which makes 24 bags.\n\nFINAL ANSWER: 24",  # the wrong order
    "288 rolls in all. The hotel takes 72. 288 - 72 - 90 = 126 rolls are left to be packed.",  # it forgot the bags
    "12 * 24 = 288. Three quarters of that are 216. Without 90 it is 126, which fills 21 bags.\n\nThe answer is 21.",
    "A tray has 24 rolls: a quarter of 12 trays is 3 trays. 9 trays have 216 rolls. 126 after the school. 21 bags.\n\n"
    "FINAL ANSWER: 21 bags",
    "288 / 4 = 72. 288 - 162 = 126. 126 / 6 = 21.\n\nFINAL ANSWER: 21.0",
]


class Sampler:
    """The model's part: another line of reasoning each time, and the short call that asks what its answer is."""

    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self, request: Request) -> str:
        """What the model says."""
        if request.conversation.messages[-1].content.startswith(
            "What is the answer, then?"
        ):
            return "21"  # the one that forgot the bags, asked what the answer is, remembers them
        self.drawn += 1
        return REASONINGS[(self.drawn - 1) % len(REASONINGS)]


def main() -> None:
    """Let reasonings vote, and print how sure the result is."""
    provider = ScriptedProvider(Sampler())
    runtime = Runtime(provider)
    engine = ChainOfThoughtEngine(runtime, answer="number", samples=9, wave=3)
    result = engine.run_sync(QUESTION)

    vote = result.fact("Vote")
    warm = sum(request.sampling.temperature == 0.7 for request in provider.requests)
    print(
        f"{warm} reasonings at temperature 0.7, {len(provider.requests) - warm} short call for an answer\n"
    )
    for answer, votes in vote["counts"].items():
        print(f"{answer:>4}  {'#' * votes}")
    print(
        f"\nDecided after {vote['asked']} of {vote['samples']} samples; agreement {vote['agreement']:.0%}"
    )
    if vote["agreement"] < 0.5:
        print(
            "Too little to rely on: ChainOfThoughtEngine(..., fallback=ReActEngine(runtime)) would take over."
        )
    print(f"{result.status}: {result.llm_calls} model calls")
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
