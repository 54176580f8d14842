"""Tree of Thoughts: the Game of 24 as a search, in which code does the sums and the model judges what is promising.

Four numbers, each used once, shall make 24. A `ThoughtProblem` says what a state is, which moves are legal and when it
is solved; the model proposes moves and judges where they lead. The engine keeps the best states of each level.

No model is needed: `reply` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import re
from fractions import Fraction
from typing import Any, TypeAlias

from loopwright import Request, Runtime, TreeOfThoughtsEngine
from loopwright.testing import ScriptedProvider

State: TypeAlias = tuple[
    tuple[Fraction, str], ...
]  # the numbers that are left, each with how it was made
LABELS = {"sure": 20.0, "likely": 1.0, "impossible": 0.0}


def made_by(first: Fraction, sign: str, second: Fraction) -> Fraction | None:
    """The result of a move; nothing can be divided by 0."""
    if sign == "/" and not second:
        return None
    results = {
        "+": first + second,
        "-": first - second,
        "*": first * second,
        "/": first / (second or 1),
    }
    return results[sign]


class GameOf24:
    """The problem: a move is written as `13 - 9 = 4`, and replaces two numbers by their result."""

    def start(self, task: str) -> State:
        """The numbers in the task, apart from the goal."""
        return tuple(
            (Fraction(number), number)
            for number in re.findall(r"\d+", task.partition(":")[2])
        )

    def render(self, state: State) -> str:
        """The numbers that are left: states with the same ones are the same state."""
        return " ".join(str(value) for value, _ in sorted(state))

    def propose(self, state: State) -> str:
        """Ask for moves."""
        return f"Numbers: {self.render(state)}\nPropose moves, one a line, such as `10 - 4 = 6`."

    def read(self, state: State, reply: str) -> list[tuple[str, float]]:
        """Each line that looks like a move."""
        return [
            (move, 1.0)
            for move in re.findall(r"^\S+ [-+*/] \S+ = \S+$", reply, re.MULTILINE)
        ]

    def refuse(self, state: State, thought: str) -> str | None:
        """Why a move is not legal: the model's arithmetic is not trusted."""
        first, sign, second, _, result = thought.split()
        left = [str(value) for value, _ in state]
        if (
            first not in left
            or second not in left
            or (first == second and left.count(first) < 2)
        ):
            return "it uses numbers that are not there"
        value = made_by(Fraction(first), sign, Fraction(second))
        return (
            None
            if value is not None and str(value) == result
            else "it is miscalculated"
        )

    def apply(self, state: State, thought: str) -> State:
        """The state without the two numbers, and with their result."""
        first, sign, second, _, result = thought.split()
        left, used = list(state), list[str]()
        for number in (first, second):
            pair = next(pair for pair in left if str(pair[0]) == number)
            left.remove(pair)
            used.append(pair[1])
        return (*left, (Fraction(result), f"({used[0]} {sign} {used[1]})"))

    def judge(self, state: State) -> str | float:
        """Ask about an open state; what a single number is worth needs no model."""
        if len(state) == 1:
            return 100.0 if state[0][0] == 24 else 0.0
        return f"Numbers: {self.render(state)}\nCan they make 24? End with a line: sure, likely or impossible."

    def answer(self, state: State) -> str | None:
        """The expression, once 24 is all that is left."""
        return (
            f"{state[0][1][1:-1]} = 24"
            if len(state) == 1 and state[0][0] == 24
            else None
        )


MOVES = {
    "4 9 10 13": "13 - 9 = 4\n10 - 4 = 6\n9 * 10 = 80\n4 + 9 = 13",  # the third is wrong, and will be refused
    "4 4 10": "10 - 4 = 6\n4 * 10 = 40\n4 + 4 = 8",
    "6 9 13": "13 - 9 = 4\n13 - 6 = 7",  # the first leads to 4 and 6 once more
    "4 6": "4 * 6 = 24\n4 + 6 = 10",
}
JUDGEMENTS = {
    "4 4 10": "sure",
    "6 9 13": "sure",
    "10 13 13": "impossible",
    "4 6": "sure",
    "4 40": "impossible",
}


def reply(request: Request) -> str:
    """The model's part: moves, or a judgement, for the numbers that the prompt names."""
    prompt = request.conversation.messages[-1].content
    numbers = prompt.partition("Numbers: ")[2].partition("\n")[0]
    if "Propose moves" in prompt:
        return MOVES.get(numbers, "")
    return f"Let me try a few.\n{JUDGEMENTS.get(numbers, 'likely')}"


def tell(name: str, fact: Any) -> None:
    """Print a level of the search: its candidates, and which of them are expanded."""
    if name != "Level":
        return
    print(
        f"Level {fact['depth']}: {fact['refused']} refused, {fact['duplicates']} duplicates"
    )
    for place, candidate in enumerate(fact["candidates"]):
        mark = "->" if place in fact["selected"] else "  "
        print(f"  {mark} {candidate['value']:5.1f}  {', '.join(candidate['path'])}")


def main() -> None:
    """Solve one game, and print the search."""
    runtime = Runtime(ScriptedProvider(reply))
    engine = TreeOfThoughtsEngine(
        runtime,
        problem=GameOf24(),
        generate="propose",
        labels=LABELS,
        beam_width=2,
        max_depth=3,
    )
    result = engine.run_sync("Use each number once to make 24: 4 9 10 13")

    for fact in result.facts:
        tell(fact.name, fact.value)
    print(f"\n{result.status}: {result.llm_calls} model calls")
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
