"""Director and critic: a slogan is drafted, reviewed by a rubric and revised; the best draft wins, not the last one.

The critic is another model here, named "judge". Each review is a fact in the journal with its scores by criterion, so that
`loopwright verify` finds any that was changed. For a person as critic pass `HumanCritic(expires=3600)`.

No model is needed: the scripts say what models would say. For real ones put providers from `loopwright.providers` in
place of the `ScriptedProvider`s; everything else stays.
"""

import json

from loopwright import Runtime
from loopwright.engines import AdaptiveBreak, DirectorCriticEngine, LlmCritic
from loopwright.testing import ScriptedProvider

DRAFTS = ["We bake bread.", "Up before you: bread.", "Bread bread bread bread!"]
REVIEWS = [
    {"feedback": "True, but who cares?", "scores": {"true": 1.0, "memorable": 0.2}},
    {"feedback": "That stays.", "scores": {"true": 1.0, "memorable": 0.9}},
    {"feedback": "Loud is not good.", "scores": {"true": 0.5, "memorable": 0.6}},
]


def main() -> None:
    """Run the rounds and print what each of them brought."""
    judge = ScriptedProvider([json.dumps(review) for review in REVIEWS])
    runtime = Runtime(ScriptedProvider(DRAFTS), providers={"judge": judge})
    engine = DirectorCriticEngine(
        runtime,
        critic=LlmCritic(provider="judge"),
        mode="rubric",
        rubric={"true": 0.4, "memorable": 0.6},
        convergence=AdaptiveBreak(min=2, max=5, improvement=0.1),
    )
    result = engine.run_sync("Write a slogan for a bakery.")
    for fact in result.facts:
        if fact.name == "DraftReview" and isinstance(fact.value, dict):
            score, feedback = fact.value["score"], fact.value["feedback"]
            print(f"Round {fact.value['round']}: {score}  {feedback}")
    chosen = result.fact("DraftChosen")
    print(f"Chosen: round {chosen['round']}, since there was {chosen['reason']}")
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
