"""Recorded conversations of seven loops of another library: what they did well we do too, the rest we do better."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from loopwright import (
    ChainOfThoughtEngine,
    ConfigError,
    CriticEngine,
    LoopEngine,
    PlanExecuteEngine,
    ReActEngine,
    ReflexionEngine,
    Request,
    Result,
    Runtime,
    SelfAskEngine,
    Tool,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.engines.thought_decomposition import PROMPTS as THOUGHT_PROMPTS
from loopwright.parsing.scores import read_score
from loopwright.providers import TextTools
from loopwright.testing import ScriptedProvider
from recordings import MISSING, fixture

RECORDING = fixture("ovos_transcripts.json")
CASES: dict[str, dict[str, Any]] = (
    {
        case["id"]: case
        for case in json.loads(RECORDING.read_text(encoding="utf-8"))["cases"]
    }
    if RECORDING.exists()
    else {}
)
ENGINES: dict[str, type[LoopEngine]] = {
    "react": ReActEngine,
    "plan_execute": PlanExecuteEngine,
    "reflexion": ReflexionEngine,
    "self_ask": SelfAskEngine,
    "cot": ChainOfThoughtEngine,
    "critic": CriticEngine,
    "tot": TreeOfThoughtsEngine,
}
BRANCHING = ("plan_execute", "self_ask", "cot", "tot")
OPTIONS = {
    "max_reflections": "max_episodes"
}  # their names for options, where ours differ

pytestmark = pytest.mark.skipif(not CASES, reason=MISSING)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What came of a conversation: the answer, how many model calls, what reached the tools, how it ended."""

    answer: str | None
    calls: int
    tools: tuple[tuple[str, dict[str, Any]], ...] = ()
    stop_reason: str = "answered"


@dataclasses.dataclass(frozen=True)
class Instead:
    """What we do in place of what was recorded, and why; `script` is what the model says where it is asked more."""

    why: str
    seen: Seen
    script: tuple[str, ...] = ()


@dataclasses.dataclass
class Replay:
    """A recorded conversation, said again to an engine of ours, branches one by one."""

    case: dict[str, Any]
    script: Sequence[str] = ()
    ran: list[tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    requests: list[Request] = dataclasses.field(default_factory=list)

    async def run(self, tools: Sequence[Tool] | None = None) -> Result:
        """The result; every line of the script must have been said."""
        script = list(self.script or self.case["script"])
        levels = Levels(script) if self.case["engine"] == "tot" else None
        provider = ScriptedProvider(levels or script)
        given = (
            [self.tool(*item) for item in self.case["tools"].items()]
            if tools is None
            else tools
        )
        options = {
            OPTIONS.get(name, name): value
            for name, value in self.case["config"].items()
        }
        options |= {"max_concurrency": 1} if self.case["engine"] in BRANCHING else {}
        result = await ENGINES[self.case["engine"]](
            Runtime(TextTools(provider, "react"), tools=given), **options
        ).run(self.case["user"])
        self.requests = provider.requests
        assert list(levels.left() if levels else range(provider.left)) == [], (
            "the engine did not ask for every reply"
        )
        return result

    def seen(self, result: Result) -> Seen:
        return Seen(
            result.answer, result.llm_calls, tuple(self.ran), result.stop_reason
        )

    def told(self, index: int) -> str:
        """The last message of a request."""
        return self.requests[index].conversation.messages[-1].content

    def tool(self, name: str, given: str | dict[str, str]) -> Tool:
        """A tool that takes a `query` or whatever it is given, or one that requires a parameter, or one that fails."""
        required = given.get("require") if isinstance(given, dict) else None

        async def function(**arguments: Any) -> str:
            self.ran.append((name, arguments))
            if isinstance(given, str):
                return given
            if "raise" in given:
                raise RuntimeError(given["raise"])
            return given["return"]

        schema: dict[str, Any] = {
            "type": "object",
            "properties": {required or "query": {"type": "string"}},
            "required": [required] if required else [],
            "additionalProperties": required is None,
        }
        return Tool(name, "Look something up.", schema, function, "read")


class Levels:
    """A search's script. They judge each thought at once, we when its level is full: so two rows, each in its order."""

    def __init__(self, script: Sequence[str]) -> None:
        self._thoughts, self._scores = list(script[0::2]), list(script[1::2])

    def __call__(self, request: Request) -> str:
        judging = (
            THOUGHT_PROMPTS["score"].text in request.conversation.messages[-1].content
        )
        return (self._scores if judging else self._thoughts).pop(0)

    def left(self) -> Iterator[str]:
        """What was not said."""
        yield from [*self._thoughts, *self._scores]


def named(kind: str, *, helpers: bool = False) -> list[str]:
    """The cases of a kind; one stand-in where there is no recording, so that the reason for skipping is shown."""
    found = [
        name
        for name, case in CASES.items()
        if case["kind"] == kind and ("helper" in case) == helpers
    ]
    return found or ["no recording"]


def recorded(case: dict[str, Any]) -> Seen:
    observed = case["observed"]
    calls = tuple((call["tool"], call["args"]) for call in observed["tool_calls"])
    return Seen(observed["output"], observed["llm_calls"], calls)


# --- what they did well ---

STEPS_1_TO_5 = tuple(f"STEP_RESULT: done {number}" for number in range(1, 6))
DISTINCT = tuple(line for number in range(21) for line in (f"thought {number}", "3"))

EXCEPTIONS = {
    "pe-unparseable-plan": Instead(
        "a reply that is no plan goes back to the planner with the reason, and is never the answer",
        Seen(None, 3, stop_reason="unreadable"),
        ("I don't know how to make a plan for that.",) * 3,
    ),
    "pe-max-steps": Instead(
        "a plan of too many steps is refused and written anew: running the first five would drop the rest in silence",
        Seen("Final answer.", 8),
        (
            "\n".join(f"{number}. Step {number}" for number in range(1, 9)),
            "\n".join(f"{number}. Step {number}" for number in range(1, 6)),
            *STEPS_1_TO_5,
            "Final answer.",
        ),
    ),
    "tot-first-answer": Instead(
        "no answer is given unjudged: the first one gets a value like every other state",
        Seen("Paris is the capital of France.", 2),
        ("ANSWER: Paris is the capital of France.", "9"),
    ),
    "tot-default-cost": Instead(
        "equal thoughts of a level are one state, so 43 calls need thoughts that differ",
        Seen("z", 43),
        (*DISTINCT, "ANSWER: z"),
    ),
}


@pytest.mark.parametrize("name", named("conformance"))
async def test_what_was_done_well_is_done_with_the_same_calls_and_the_same_answer(
    name: str,
) -> None:
    instead = EXCEPTIONS.get(name)
    replay = Replay(CASES[name], instead.script if instead else ())
    result = await replay.run()

    assert replay.seen(result) == (instead.seen if instead else recorded(CASES[name]))


@pytest.mark.parametrize("name", named("conformance", helpers=True))
def test_a_score_that_was_read_well_is_read_the_same(name: str) -> None:
    assert read_score(CASES[name]["input"]) == CASES[name]["observed"]["value"]


def test_every_exception_differs_from_what_was_recorded() -> None:
    replies = {name: tuple(CASES[name]["script"]) for name in EXCEPTIONS}

    assert [
        name for name, instead in EXCEPTIONS.items() if instead.script == replies[name]
    ] == []
    assert [name for name in EXCEPTIONS if CASES[name]["kind"] != "conformance"] == []


async def test_the_recorded_thoughts_that_are_all_the_same_cost_less() -> None:
    script = ["t", "t", "t", "3"] * 4 + ["ANSWER: z"]
    provider = ScriptedProvider(script)
    result = await TreeOfThoughtsEngine(Runtime(provider), max_concurrency=1).run("Q?")

    assert (result.answer, result.llm_calls, provider.left) == ("z", 17, 0)


# --- what they did badly ---

REPEATED = 'Thought: t\nAction: search\nAction Input: {"q":1}'
WEAK_BRANCH = (
    *("good", "9", "bad", "1", "x", "5"),
    *("more", "8", "ANSWER: from lower branch", "4", "much more", "3"),
    *("y", "5", "ANSWER: from the better branch", "9", "z", "2"),
)  # fmt: skip

DEFECTS = {
    "react-string-input": Instead(
        "a text is the value of a tool's only parameter", Seen("ok", 2, (("search", {"query": "paris"}),))
    ),
    "react-no-input": Instead("no input means no arguments", Seen("ok", 2, (("search", {}),))),
    "react-bold-markers": Instead("markers may be bold", Seen("ok", 2, (("search", {"q": 1}),))),
    "react-spaced-final": Instead("the marker of the answer may be spelled otherwise", Seen("42", 1)),
    "react-empty-final": Instead("an empty answer goes back to the model", Seen("ok", 2)),
    "react-repeat-identical-calls": Instead(
        "the third equal result brings a hint, the fourth call is blocked, the fifth ends the run with its best answer",
        Seen("x", 6, (("search", {"q": 1}),) * 3, "repeated_action"),
        (*(REPEATED,) * 5, "FINAL_ANSWER: x"),
    ),
    "pe-plan-format-0": Instead("`Step 1:` is a step", Seen("s", 4)),
    "pe-plan-format-1": Instead("`- ` is a step", Seen("s", 4)),
    "pe-substep-flattened": Instead(
        "an indented item belongs to its step, and a year is no number of a step",
        Seen("s", 3),
        ("1. a\n   1. sub\n2020. The year", "STEP_RESULT: a", "s"),
    ),
    "pe-step-exhausted": Instead(
        "a step out of turns has failed: it says what it found, and a join decides what follows",
        Seen("s", 5, (("search", {}),)),
        ("1. a", "Thought: t\nAction: search\nAction Input: {}", "r so far", "Decision: FINISH", "s"),
    ),
    "pe-step-final-answer-marker": Instead("the result is what stands behind the marker", Seen("s", 3)),
    "rf-verdict-format-2": Instead(
        "a verdict in a sentence is read", Seen("a", 2), ("a", "The answer is SATISFACTORY.")
    ),
    "sa-no-tools-followup": Instead(
        "without a search the model answers the follow-up itself",
        Seen("4", 3),
        ("Yes.\nFollow up: What is 2+2?", "4", "So the final answer is: 4"),
    ),
    "sa-hallucinated-chain": Instead(
        "what stands behind a follow-up is made up and dropped", Seen("real", 2, (("search", {"query": "A?"}),))
    ),
    "sa-tool-other-arg": Instead(
        "the parameter is in the tool's schema: one call", Seen("x", 2, (("weather", {"city": "A?"}),))
    ),
    "sa-hyphen": Instead("`Follow-up:` is a follow-up", Seen("x", 2, (("search", {"query": "A?"}),))),
    "cot-unicode-upper": Instead("an answer is cut out by its place in the text itself", Seen("8", 1)),
    "cot-underscore": Instead("the marker of the answer may be spelled otherwise", Seen("8", 1)),
    "cr-unverified": Instead(
        "`UNVERIFIED` is no `VERIFIED`: the claim is looked up and the answer revised",
        Seen("revised", 3, (("search", {"query": "q"}),)),
    ),
    "cr-failing-tool": Instead("a tool that fails is called once", Seen("revised", 3, (("search", {"query": "q"}),))),
    "tot-weak-branch-answer": Instead(
        "answers are judged, and the search ends with the best one of its level",
        Seen("from the better branch", 18),
        WEAK_BRANCH,
    ),
    "tot-marker-in-prose": Instead(
        "a marker within a sentence is none, so the search goes on",
        Seen("5", 43),
        ("I don't know the ANSWER: yet maybe 5", "3", *DISTINCT[2:], "ANSWER: 5"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name in named("defect") if name != "tot-zero-branches"]
)
async def test_what_was_done_badly_is_done_better(name: str) -> None:
    replay = Replay(CASES[name], DEFECTS[name].script)
    result = await replay.run()

    assert replay.seen(result) == DEFECTS[name].seen


def test_what_is_better_shows_in_the_calls_or_in_the_answer_of_all_but_one_case() -> (
    None
):
    same = [
        name
        for name, instead in DEFECTS.items()
        if instead.seen == recorded(CASES[name])
    ]

    assert same == [
        "pe-step-final-answer-marker"
    ]  # its step's result is another: see below


def test_no_branches_are_refused_before_the_run() -> None:
    options = CASES["tot-zero-branches"]["config"]

    with pytest.raises(
        ConfigError, match="n_branches: Input should be greater than or equal to 1"
    ):
        TreeOfThoughtsEngine(Runtime(ScriptedProvider([])), **options)


@pytest.mark.parametrize("name", named("defect", helpers=True))
def test_a_score_that_was_misread_is_read(name: str) -> None:
    better = {
        "tot-score-0": 9.0,
        "tot-score-2": 0.0,
    }  # the number that is the score; below the scale is its lowest

    assert read_score(CASES[name]["input"]) == better[name]


async def test_a_text_is_no_input_for_a_tool_of_two_parameters_and_the_model_is_informed() -> (
    None
):
    @tool(effect="read")
    async def search(query: str, language: str) -> str:
        """Search."""
        raise AssertionError("never called")

    replay = Replay(CASES["react-string-input"])
    result = await replay.run([search])

    assert (result.answer, result.llm_calls, result.tool_calls) == ("ok", 2, 0)
    assert replay.told(1) == (
        "The input of search must be a JSON object. Write a JSON object with the parameters of search: "
        "query (string, required), language (string, required)."
    )


async def test_an_empty_answer_goes_back_with_the_reason() -> None:
    replay = Replay(CASES["react-empty-final"])
    await replay.run()

    assert (
        replay.told(1)
        == "The final answer is empty. Write `Final Answer:` and the answer."
    )


async def test_a_repeated_call_is_hinted_at_and_blocked_before_the_run_is_stuck() -> (
    None
):
    name = "react-repeat-identical-calls"
    replay = Replay(CASES[name], DEFECTS[name].script)
    result = await replay.run()

    told = [
        m.content
        for m in result.conversation.messages
        if m.origin in ("tool", "runtime")
    ]
    assert result.status == "stuck"
    assert told == [
        *["same"] * 3,
        "You have called search with the same arguments 3 times and got the same result each time. "
        "Calling it again will not help: try something else, or answer with what you know.",
        "This exact call was made several times with the same result; it is not made again.",
    ]


async def test_an_exhausted_step_hands_on_what_it_found_and_no_protocol_text() -> None:
    replay = Replay(CASES["pe-step-exhausted"], DEFECTS["pe-step-exhausted"].script)
    result = await replay.run()

    assert result.fact("StepFinished") == {
        "id": 1,
        "status": "failed",
        "content": "It ended as limit (max_iterations): the engine used up its iterations",
        "partial": "r so far",
    }
    assert "Observation: r" in "\n".join(
        message.content for message in replay.requests[2].conversation.messages
    )
    assert ("r so far" in replay.told(4), "Action:" in replay.told(4)) == (True, False)


async def test_the_result_of_a_step_has_no_marker_in_it() -> None:
    result = await Replay(CASES["pe-step-final-answer-marker"]).run()

    assert result.fact("StepFinished") == {
        "id": 1,
        "status": "ok",
        "content": "foo",
        "partial": "",
    }


async def test_a_sub_item_is_a_part_of_its_step_and_a_year_is_none() -> None:
    result = await Replay(
        CASES["pe-substep-flattened"], DEFECTS["pe-substep-flattened"].script
    ).run()

    assert [step["id"] for step in result.fact("Plan")["steps"]] == [1]


async def test_the_search_answers_and_not_the_model_that_made_an_answer_up() -> None:
    replay = Replay(CASES["sa-hallucinated-chain"])
    result = await replay.run()

    assert result.fact("SubAnswer") == {
        "question": "A?",
        "answer": "real",
        "source": "tool:search",
    }
    assert replay.told(1) == "Intermediate answer: real"


async def test_the_error_of_a_tool_is_no_evidence() -> None:
    replay = Replay(CASES["cr-failing-tool"])
    result = await replay.run()

    critique = result.fact("Critique")
    assert (
        critique["verified"],
        [check["status"] for check in critique["checks"]],
    ) == (False, ["error"])
    assert replay.told(2).startswith(
        "Evidence: none, since the look-up ended as error."
    )


async def test_a_sentence_about_the_marker_finishes_nothing() -> None:
    result = await Replay(
        CASES["tot-marker-in-prose"], DEFECTS["tot-marker-in-prose"].script
    ).run()

    assert result.fact("Found") is None


# --- the list is whole ---


def test_every_recorded_case_has_a_test() -> None:
    assert Counter(case["kind"] for case in CASES.values()) == {
        "conformance": 28,
        "defect": 25,
    }
    assert {*DEFECTS, "tot-zero-branches"} == set(named("defect"))
    assert set(EXCEPTIONS) <= set(named("conformance"))
