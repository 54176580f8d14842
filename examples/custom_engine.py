"""A strategy of your own: one model answers, another looks it over, and a package's entry point makes it an engine.

An engine is a class with a name, its options as fields, and `solve`. Policy, budgets, breakers, journal, resume and
streaming come with the `Run` that it is given. A package registers it in its pyproject.toml:

    [project.entry-points."loopwright.engines"]
    second-opinion = "custom_engine:SecondOpinionEngine"

`pip install` writes that line into the package's metadata; this script writes the same metadata into a folder that
lasts as long as it runs, so that `runtime.engine("second-opinion")` finds it here too.

No model is needed: the two scripts say what two would say. For real ones put `OpenAIProvider.from_env("gpt-4.1-mini")`
(from `loopwright.providers`) in place of a `ScriptedProvider`; everything else stays.
"""

import dataclasses
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel

from loopwright import LoopEngine, Run, Runtime, available_engines
from loopwright.testing import ScriptedProvider


class Opinion(BaseModel):
    """What the second model makes of an answer."""

    agrees: bool
    objection: str = ""


@dataclasses.dataclass(frozen=True)
class Objection:
    """A fact of this strategy; `run.note` puts it into the journal."""

    round: int
    text: str


class SecondOpinionEngine(LoopEngine):
    """Answers, asks another model whether that is right, and answers again for as long as it objects."""

    name = "second-opinion"
    reviewer: str = "reviewer"
    max_rounds: int = 3

    async def solve(self, run: Run) -> str:
        """Answer until the reviewer agrees."""
        conversation = run.conversation
        for turn in run.iterations(self.max_rounds):
            answer = await run.ask(conversation)
            run.offer(answer)  # should a limit end the run now, this is what it has
            asked = f"Task: {run.task}\n\nAnswer: {answer}\n\nIs the answer right?"
            opinion = await run.ask(
                asked, into=Opinion, provider=self.reviewer, purpose="review"
            )
            if opinion.agrees:
                return answer
            run.note(Objection(turn, opinion.objection))
            conversation = conversation.assistant(answer).user(
                f"{opinion.objection} Please answer again."
            )
        return await run.best_answer(conversation)


def install(folder: Path) -> None:
    """Register the engine as `pip install` would."""
    metadata = folder / "second_opinion-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: second-opinion\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[loopwright.engines]\nsecond-opinion = custom_engine:SecondOpinionEngine\n"
    )
    sys.path.append(str(folder))


def main() -> None:
    """Install the engine, find it by its name, and let it work."""
    writer = ScriptedProvider(["It is Sydney.", "You are right: it is Canberra."])
    reviewer = ScriptedProvider([
        '{"agrees": false, "objection": "Sydney is the largest city, not the capital."}',
        '{"agrees": true}',
    ])  # fmt: skip
    with TemporaryDirectory() as folder:
        install(Path(folder))
        for name, found in available_engines().items():
            if found.distribution != "loopwright":
                print(
                    f"Found {name} of {found.distribution} {found.version}: {found.target}"
                )
        runtime = Runtime(writer, providers={"reviewer": reviewer})
        result = runtime.engine("second-opinion", max_rounds=4).run_sync(
            "What is the capital of Australia?"
        )

    objection = result.fact("Objection")
    print(f"Round {objection['round']}: {objection['text']}")
    print(f"{result.status}: {result.llm_calls} model calls")
    print(f"Answer: {result.answer}")


if __name__ == "__main__":
    main()
