"""CRITIC: a draft names a wrong year, a look-up inside the critique finds it, and the second round verifies the rest.

A model that is asked whether it was right mostly says yes. CRITIC makes it check its claims with tools, one by one, and
puts what they found into the critique itself. An answer counts as verified only if a tool gave evidence.

No model is needed: `SCRIPT` says what one would say. For a real one put `OpenAIProvider.from_env("gpt-4.1-mini")` (from
`loopwright.providers`) in place of the `ScriptedProvider`; everything else stays.
"""

from typing import Any

from loopwright import CriticEngine, Runtime, tool
from loopwright.testing import ScriptedProvider

ARCHIVE = {
    "golden gate bridge opening": "The Golden Gate Bridge was opened on 27 May 1937.",
    "golden gate bridge main span": "The main span of the Golden Gate Bridge is 1,280 m long.",
    "golden gate bridge engineer": "Joseph Strauss was the chief engineer of the Golden Gate Bridge.",
}


@tool(effect="read")
def archive(query: str) -> str:
    """Search an archive of articles about buildings."""
    words = set(query.lower().split())
    best = max(ARCHIVE, key=lambda title: len(words & set(title.split())))
    return ARCHIVE[best]


SCRIPT = [
    # The draft, from memory.
    "The Golden Gate Bridge opened in 1933. Its main span is 1,280 m long, and Joseph Strauss was its chief engineer.",
    # Round 1. The critic names a claim and a tool, and stops; the evidence is put in for it.
    """\
1. Plausibility: it is what was asked for.
2. Truth:
Claim: it opened in 1933
Tool: archive
Tool Input: golden gate bridge opening year""",
    """\
The year is wrong: work began in 1933, and the bridge opened in 1937.
Claim: the main span is 1,280 m long
Tool: archive
Tool Input: golden gate bridge main span""",
    """\
The span is right.
Revised answer: The Golden Gate Bridge opened in 1937. Its main span is 1,280 m long, and Joseph Strauss was its chief \
engineer.""",
    # Round 2 looks at the revised answer.
    """\
The year was corrected. The engineer was not looked up yet.
Claim: Joseph Strauss was the chief engineer
Tool: archive
Tool Input: golden gate bridge chief engineer""",
    "All of it is borne out now.\nVerdict: VERIFIED",
]


def tell(name: str, fact: Any) -> None:
    """Print a fact that the engine noted."""
    if name == "Critique":
        print(f"Round {fact['round']}")
        for check in fact["checks"]:
            print(
                f"  checked with {check['tool']}: {check['claim']}   [{check['status']}]"
            )
        if fact["verified"]:
            print("  verified")
    elif name == "Revision":
        print(f"  {fact['change']}: {fact['answer']}")


def main() -> None:
    """Draft, check and correct an answer, and print each round."""
    runtime = Runtime(ScriptedProvider(SCRIPT), tools=[archive])
    engine = CriticEngine(runtime, max_critique_rounds=3, max_checks=4)
    result = engine.run_sync(
        "When did the Golden Gate Bridge open, how long is its main span, and who built it?"
    )

    print(f"Draft: {SCRIPT[0]}\n")
    for fact in result.facts:
        tell(fact.name, fact.value)
    print(
        f"\n{result.status}: {result.llm_calls} model calls, {result.tool_calls} tool calls"
    )
    print(
        f"Verified with evidence: {'yes' if result.fact('Critique')['verified'] else 'no'}"
    )
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
