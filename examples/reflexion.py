"""Reflexion: a pattern for product codes fails its checks, the lesson is put into words, and the next try passes.

Reflexion repeats a whole attempt (an episode) and carries over what was learnt in between. It is worth its price where
an attempt can be judged from outside: by tests, by a checker, by a rule. Here the evaluator is a plain function.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

import re
from typing import Any

from loopwright import ReActEngine, ReflexionEngine, Runtime, ToolCall, tool
from loopwright.engines import Evaluation, Trajectory
from loopwright.testing import ScriptedProvider, call

GOOD = ["AB-1234", "ZZ-0001", "QX-9000"]
BAD = ["AB-0000", "ab-1234", "AB1234", "AB-12345", "A-1234"]


@tool(effect="read")
def sample_codes() -> str:
    """A few product codes that are valid."""
    return ", ".join(GOOD)


def checked(trajectory: Trajectory) -> Evaluation:
    """Try the pattern on codes whose verdict is known: what went wrong is what the next attempt learns from."""
    try:
        pattern = re.compile(trajectory.answer or "")
    except re.error as problem:
        return Evaluation(
            False, score=0.0, feedback=f"That is not a pattern: {problem}."
        )
    missed = [code for code in GOOD if not pattern.fullmatch(code)]
    let_in = [code for code in BAD if pattern.fullmatch(code)]
    right = len(GOOD) + len(BAD) - len(missed) - len(let_in)
    feedback = f"Valid codes not matched: {missed or 'none'}. Invalid codes matched: {let_in or 'none'}."
    return Evaluation(
        not missed and not let_in, score=right / len(GOOD + BAD), feedback=feedback
    )


SCRIPT: list[ToolCall | str] = [
    # Episode 1: the actor looks at samples, and answers.
    call("sample_codes"),
    r"[A-Za-z]{2}-?\d{4}",
    # It failed, so the model is asked what to learn from that.
    "I matched more than the samples show: small letters, and codes without a hyphen. The task also rules out the "
    "number 0000. Plan: two capitals, a hyphen that must be there, and a look-ahead that refuses 0000.",
    # Episode 2: the same actor, which has read the reflection above.
    r"[A-Z]{2}-(?!0000)\d{4}",
]


def tell(name: str, fact: Any) -> None:
    """Print a fact that the engine noted."""
    if name == "Episode":
        print(f"Episode {fact['number']}: {fact['outcome']}, score {fact['score']:.2f}")
        print(f"  {fact['feedback']}")
    elif name == "Reflection":
        print(f"  Learnt: {fact['text']}")


def main() -> None:
    """Write a pattern, and print each episode with what was learnt from it."""
    provider = ScriptedProvider(SCRIPT)
    runtime = Runtime(provider, tools=[sample_codes])
    actor = ReActEngine(runtime, max_iterations=5)
    engine = ReflexionEngine(runtime, actor=actor, evaluator=checked, max_episodes=3)
    result = engine.run_sync(
        "Write a regular expression for our product codes: two capitals, a hyphen, four digits, but not 0000. "
        "Reply with the expression alone."
    )

    for fact in result.facts:
        tell(fact.name, fact.value)
    carried_over = provider.requests[-1].conversation.messages[0].content
    print(f"\nThe last episode was told: {carried_over.splitlines()[0]}")
    print(
        f"{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
