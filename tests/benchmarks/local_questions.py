"""How a 135-million-parameter model fares with the demo's two tools: twenty questions, four figures each.

Run it with `python tests/benchmarks/local_questions.py` (about a minute); `--tuning` takes the other twenty questions,
those that prompts and examples were tuned on; `-v` shows every step.
"""

import argparse
import asyncio
import dataclasses
import runpy
import time
from collections.abc import Iterable
from pathlib import Path

from loopwright import Limits, ReActEngine, Result, Runtime
from loopwright.providers import LocalProvider, TextTools
from loopwright.providers.dialects import JsonDialect

DEMO = runpy.run_path(
    str(Path(__file__).parents[2] / "examples" / "quickstart.py")
)  # its tools, its examples


@dataclasses.dataclass(frozen=True)
class Case:
    """A question, the tools it needs, and what must be in the observations and in the answer."""

    kind: str
    question: str
    tools: tuple[str, ...]
    facts: tuple[str, ...]
    words: tuple[str, ...] = ()

    @property
    def expected(self) -> tuple[str, ...]:
        return self.words or self.facts


def sums(kind: str, *pairs: tuple[str, str]) -> list[Case]:
    return [
        Case(kind, question, ("calculator",), (result,)) for question, result in pairs
    ]


def places(kind: str, *pairs: tuple[str, str]) -> list[Case]:
    return [Case(kind, question, ("capital",), (city,)) for question, city in pairs]


BOTH = ("calculator", "capital")
QUESTIONS = [
    *sums(
        "like",
        ("What is 17 * 23?", "391"),
        ("What is 840 / 7?", "120"),
        ("What is 456 + 789?", "1245"),
    ),
    *sums(
        "like",
        ("What is 1000 - 357?", "643"),
        ("What is 64 * 15?", "960"),
        ("What is 93 + 148?", "241"),
    ),
    *places(
        "like",
        ("What is the capital of Japan?", "Tokyo"),
        ("What is the capital of Kenya?", "Nairobi"),
    ),
    *places(
        "like",
        ("What is the capital of Greece?", "Athens"),
        ("What is the capital of Canada?", "Ottawa"),
    ),
    *sums(
        "unlike",
        ("A crate holds 24 bottles. How many bottles are in 13 crates?", "312"),
    ),
    *sums(
        "unlike",
        ("Please multiply 31 by 19.", "589"),
        ("I had 500 euros and spent 137. How much is left?", "363"),
    ),
    *sums(
        "unlike",
        (
            "If 144 sweets are shared by 12 children, how many does each child get?",
            "12",
        ),
    ),
    *places(
        "unlike",
        ("Which city is the seat of government of Egypt?", "Cairo"),
        ("Norway: capital?", "Oslo"),
    ),
    *places("unlike", ("I am flying to Peru. Name its capital city.", "Lima")),
    Case(
        "unlike",
        "What is the capital of Cuba, and what is 45 + 55?",
        BOTH,
        ("Havana", "100"),
    ),
    Case(
        "unlike",
        "Add 250 and 125, and tell me the capital of Chile.",
        BOTH,
        ("375", "Santiago"),
    ),
    Case("unlike", "Say hello to my friend Anna.", (), (), ("hello", "Anna")),
]
TUNING = [
    *sums(
        "like",
        ("What is 14 * 32?", "448"),
        ("What is 630 / 9?", "70"),
        ("What is 318 + 467?", "785"),
    ),
    *sums(
        "like",
        ("What is 900 - 264?", "636"),
        ("What is 51 * 22?", "1122"),
        ("What is 77 + 186?", "263"),
    ),
    *places(
        "like",
        ("What is the capital of Italy?", "Rome"),
        ("What is the capital of Poland?", "Warsaw"),
    ),
    *places(
        "like",
        ("What is the capital of Finland?", "Helsinki"),
        ("What is the capital of Austria?", "Vienna"),
    ),
    *sums(
        "unlike",
        ("A box has 16 pens. How many pens are in 21 boxes?", "336"),
        ("Please multiply 27 by 14.", "378"),
    ),
    *sums("unlike", ("She had 800 dollars and paid 245. What remains?", "555")),
    *sums("unlike", ("Split 156 apples among 13 people. How many for each one?", "12")),
    *places(
        "unlike",
        ("Where does the government of Portugal sit?", "Lisbon"),
        ("Poland's capital, please.", "Warsaw"),
    ),
    *places(
        "unlike", ("My friend lives in Austria. Which city is its capital?", "Vienna")
    ),
    Case(
        "unlike",
        "Name the capital of Italy and work out 30 + 12.",
        BOTH,
        ("Rome", "42"),
    ),
    Case(
        "unlike",
        "Subtract 75 from 300. Then say what the capital of Finland is.",
        BOTH,
        ("225", "Helsinki"),
    ),
    Case(
        "unlike", "Wish my sister Maria a good morning.", (), (), ("morning", "Maria")
    ),
]


@dataclasses.dataclass(frozen=True)
class Score:
    """What came of one question.

    `readable`: the run ended without a reply that could not be read. `tools`: exactly those that it takes were called
    first, each once. `facts`: the observations hold every result. `answer`: the model's own answer holds them too.
    """

    kind: str
    readable: bool
    tools: bool
    facts: bool
    answer: bool
    seconds: float


def holds(text: str, words: Iterable[str]) -> bool:
    """Whether every word stands in the text by itself: 12 is not in 312, and 1,245 is 1245."""
    said = {
        word.strip(".,:;!?'\"$()").lower() for word in text.replace(",", "").split()
    }
    return all({part.lower() for part in word.split()} <= said for word in words)


def score(case: Case, result: Result, seconds: float) -> Score:
    called = [call.name for message in result.conversation for call in message.calls]
    seen = " ".join(
        message.content for message in result.conversation if message.role == "tool"
    )
    nudged = any(message.origin == "runtime" for message in result.conversation)
    return Score(
        case.kind,
        readable=result.status != "failed" and not nudged,
        tools=sorted(called) == sorted(case.tools),
        facts=holds(seen, case.facts),
        answer=result.status == "completed"
        and holds(result.answer or "", case.expected),
        seconds=seconds,
    )


def report(kind: str, scores: list[Score]) -> str:
    total = len(scores)
    figures = [
        sum(getattr(score, name) for score in scores)
        for name in ("readable", "tools", "facts", "answer")
    ]
    seconds = sum(score.seconds for score in scores) / total
    return (
        f"| {kind} | {total} | " + " | ".join(map(str, figures)) + f" | {seconds:.1f} |"
    )


def steps(result: Result) -> str:
    """The calls and observations of a run in one line."""
    said = [
        f"{call.name}{tuple(call.arguments.values())}"
        for message in result.conversation
        for call in message.calls
    ]
    seen = [
        message.content for message in result.conversation if message.role == "tool"
    ]
    return (
        ", ".join(f"{call} -> {what}" for call, what in zip(said, seen, strict=True))
        or "no call"
    )


async def main(
    cases: list[Case], *, verbose: bool, repeats: bool, examples: bool
) -> None:
    model = LocalProvider()
    provider = TextTools(
        model,
        JsonDialect(repeats=repeats),
        examples=DEMO["EXAMPLES"] if examples else (),
    )
    scores: list[Score] = []
    async with Runtime(
        provider,
        tools=[DEMO["calculator"], DEMO["capital"]],
        limits=Limits(max_iterations=4),
    ) as runtime:
        for case in cases:
            started = time.monotonic()
            result = await ReActEngine(runtime).run(case.question)
            scores.append(score(case, result, time.monotonic() - started))
            if verbose:
                marks = "".join(
                    "+" if ok else "-" for ok in dataclasses.astuple(scores[-1])[1:5]
                )
                print(
                    f"{marks} {case.question} [{steps(result)}] {result.stop_reason}: {result.answer}",
                    flush=True,
                )
    await model.aclose()
    print(
        "| questions | asked | readable | right tools | right observation | right answer | seconds each |"
    )
    print("|---|---|---|---|---|---|---|")
    for kind in ("like", "unlike"):
        print(report(kind, [one for one in scores if one.kind == kind]))
    print(report("all", scores))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tuning",
        action="store_true",
        help="the questions that examples and wording were tuned on",
    )
    parser.add_argument(
        "--repeats", action="store_true", help="let a tool be called again"
    )
    parser.add_argument("--no-examples", action="store_true", help="without examples")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every step")
    chosen = parser.parse_args()
    asyncio.run(
        main(
            TUNING if chosen.tuning else QUESTIONS,
            verbose=chosen.verbose,
            repeats=chosen.repeats,
            examples=not chosen.no_examples,
        )
    )
