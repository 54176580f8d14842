"""The goal cycle: each test is a conversation of planner, evaluator and decider with their skills and people."""

import asyncio
import dataclasses
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from loopwright import (
    Allow,
    Completion,
    ConfigError,
    Deny,
    Limits,
    MemoryJournal,
    Request,
    Result,
    Runtime,
    ToolError,
    tool,
)
from loopwright.engines import GoalCycleEngine
from loopwright.engines.goal_decisions import (
    Bounds,
    Situation,
    decide_by_rule,
    find_trend,
    settle_reply,
)
from loopwright.engines.goal_forms import input_form
from loopwright.engines.goal_prompts import EXAMPLE_PROMPTS
from loopwright.errors import ProviderError, Stuck
from loopwright.events import TimeoutFired, ToolStarted
from loopwright.gates import InstantGate
from loopwright.knowledge import KnowledgeBridge, MemoryKnowledge, Remembered
from loopwright.messages import ToolSpec
from loopwright.parsing.goal_replies import DecisionReply, StepDraft
from loopwright.providers import Capabilities, Tiers
from loopwright.testing import ScriptedProvider, crashed
from loopwright.testing.simulation.loop import make_loop
from virtual_time import LoopClock

Reply = dict[str, Any] | str | Exception | Callable[[Request], Any]
MARKS = {
    "plan": "Plan how to reach the goal",
    "input": "Prepare the input of this step",
    "evaluate": "A step towards the goal above was made",
    "decide": "Decide how to continue towards the goal",
    "compress": "Shorten this working memory",
    "summary": "The steps towards the goal above are made",
}
GOOD = {"quality": "good", "relevance": 4, "completeness": 4, "usability": 4, "goal_progress": 4}  # fmt: skip
FAILED = {"quality": "failed", "relevance": 1, "completeness": 1, "usability": 1, "goal_progress": 1}  # fmt: skip
PARTIAL = {"quality": "partial", "relevance": 3, "completeness": 3, "usability": 3, "goal_progress": 3}  # fmt: skip
USUAL: dict[str, Reply] = {
    "plan": {"steps": [{"skill": "search", "input_description": "the tower"}]},
    "input": {"input": {"query": "the tower"}},
    "evaluate": GOOD,
    "decide": {"action": "continue"},
    "compress": {"compressed": "short"},
    "summary": {"answer": "330 m"},
}


class Replies:
    """A model that says one reply after the other in each of its roles, and the last one again and again."""

    def __init__(self, **replies: list[Reply]) -> None:
        self.replies = {name: list(said) for name, said in replies.items()}
        self.prompts: dict[str, list[str]] = {name: [] for name in MARKS}
        self.order: list[str] = []

    def __call__(self, request: Request) -> Any:
        """Return what comes next in the role that is asked."""
        texts = [message.content for message in request.conversation]
        asked = next(
            ((name, text) for text in reversed(texts) for name, mark in MARKS.items() if mark in text),
            ("best", texts[-1]),
        )  # fmt: skip
        role, text = asked
        if "There are no more steps left" in texts[-1]:
            role, text = "best", "\n".join(texts)
        self.order.append(role)
        self.prompts.setdefault(role, []).append(text)
        said = self.replies.get(role) or [USUAL.get(role, "the best so far")]
        reply = said.pop(0) if len(said) > 1 else said[0]
        if callable(reply):
            reply = reply(request)
        return json.dumps(reply) if isinstance(reply, dict) else reply


def steps(*names: str) -> dict[str, Any]:
    """A plan of these skills, each with what it is about: "search:tower"."""
    pairs = [name.partition(":") for name in names]
    return {"steps": [{"skill": skill, "input_description": about} for skill, _, about in pairs]}  # fmt: skip


def inputs(*queries: str) -> list[Reply]:
    return [{"input": {"query": query}} for query in queries]


class Interrupted(ScriptedProvider):
    """Does something before a reply in a role."""

    def __init__(self, model: Replies, role: str, act: Callable[[], Awaitable[None]]) -> None:  # fmt: skip
        super().__init__(model)
        self.mark, self.act = MARKS[role], act

    async def complete(self, request: Request) -> Completion:
        """Act first, if this is what is asked."""
        if self.mark in request.conversation.messages[-1].content:
            await self.act()
        return await super().complete(request)


CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@tool(effect="read", trusted=True)
async def search(query: str) -> str:
    """Look something up."""
    CALLS.append(f"search {query}")
    return f"found {query}"


@tool(effect="read", trusted=True)
async def sum_up(query: str) -> str:
    """Sum a text up."""
    CALLS.append(f"sum_up {query}")
    return f"in short: {query}"


@tool(effect="read", trusted=True)
async def fail(query: str) -> str:
    """Fail."""
    CALLS.append(f"fail {query}")
    raise ToolError(f"{query} is away")


TOOLS = [search, sum_up, fail]
Options = dict[str, Any]


def build(model: Any, tools: Any = TOOLS, runtime: Options | None = None, **options: Any) -> GoalCycleEngine:  # fmt: skip
    provider = model if isinstance(model, Interrupted) else ScriptedProvider(model)
    parts = Runtime(provider, tools=tools, **(runtime or {}))
    return GoalCycleEngine(parts, **options)


async def run(model: Any, **options: Any) -> Result:
    return await build(model, **options).run("How high is the tower?", run_id="r")


def moves(result: Result) -> list[tuple[str, str]]:
    """What was decided after each step, and by what."""
    facts = [fact.value for fact in result.facts if fact.name == "GoalDecided"]
    return [(fact["move"], fact["by"]) for fact in facts if isinstance(fact, dict)]


def facts(result: Result, name: str) -> list[dict[str, Any]]:
    return [fact.value for fact in result.facts if fact.name == name and isinstance(fact.value, dict)]  # fmt: skip


# --- decisions without a model: the table ---

DONE = DecisionReply("done", 0.9, final_answer="330 m")
TABLE: list[tuple[str, Situation, str | None]] = [
    ("failures at the threshold", Situation(failures=3, steps_left=2, quality="failed"), "stuck"),
    ("failures beyond it, all made", Situation(failures=4, quality="good"), "stuck"),
    ("all made, the last good", Situation(quality="good"), "summary"),
    ("all made, the last partial", Situation(quality="partial"), None),
    ("all made, the last failed", Situation(failures=1, quality="failed"), None),
    ("all made, the last good after a failure", Situation(failures=1, quality="good"), None),
    ("steps left, good", Situation(steps_left=1, quality="good"), "continue"),
    ("steps left, partial", Situation(steps_left=1, quality="partial"), "continue"),
    ("steps left, failed", Situation(failures=1, steps_left=1, quality="failed"), None),
    ("the same step three times", Situation(steps_left=1, quality="good", recent=("a", "a", "a")), "stuck"),
    ("two steps in turn", Situation(steps_left=1, quality="partial", recent=("a", "b", "a", "b")), "stuck"),
    ("ordered by a person, failed", Situation(failures=1, steps_left=1, quality="failed", by_person=True), "continue"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "situation", "move"), TABLE)
def test_a_rule_decides_or_a_model_is_asked(
    name: str, situation: Situation, move: str | None
) -> None:
    decided = decide_by_rule(situation, Bounds())

    assert (None if decided is None else decided.move) == move
    assert decided is None or decided.by == ("person" if situation.by_person else "rule")  # fmt: skip


SURE_ADJUST = DecisionReply("adjust", 0.8, new_plan=(StepDraft(1, "search"),))
REPLIES: list[tuple[str, DecisionReply, Situation, str]] = [
    ("sure that it is done", DONE, Situation(), "done"),
    ("not sure that it is done", dataclasses.replace(DONE, confidence=0.69), Situation(), "repeat"),
    ("done without a confidence", dataclasses.replace(DONE, confidence=None), Situation(), "repeat"),
    ("a new plan", SURE_ADJUST, Situation(), "adjust"),
    ("the second new plan at high confidence", SURE_ADJUST, Situation(adjusts=1), "adjust"),
    ("the third new plan at high confidence", SURE_ADJUST, Situation(adjusts=2), "summary"),
    ("a third one that is not sure", dataclasses.replace(SURE_ADJUST, confidence=0.2), Situation(adjusts=2), "adjust"),
    ("to continue after a failure", DecisionReply("continue"), Situation(steps_left=1, quality="failed"), "repeat"),
    ("to continue", DecisionReply("continue"), Situation(steps_left=1, quality="partial"), "continue"),
    ("to continue without steps", DecisionReply("continue"), Situation(quality="partial"), "summary"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reply", "situation", "move"), REPLIES)
def test_what_a_model_decides_counts_within_bounds(
    name: str, reply: DecisionReply, situation: Situation, move: str
) -> None:
    assert settle_reply(reply, situation, Bounds()).move == move


def test_a_trend_is_the_mean_of_the_changes_of_the_last_scores() -> None:
    assert [find_trend(scores) for scores in ([3.0], [3, 3.3], [3, 3.4], [4, 3.9, 3.2], [4, 3, 4], [2, 2.1, 3])] == [
        None, "stable", "improving", "DEGRADING", "stable", "improving",
    ]  # fmt: skip


# --- the loop ---


async def test_a_plan_whose_steps_are_good_costs_no_decision() -> None:
    model = Replies(
        plan=[steps("search:tower", "sum_up:it")], input=inputs("tower", "found tower")
    )
    result = await run(model)

    assert (result.status, result.answer) == ("completed", "330 m")
    assert CALLS == ["search tower", "sum_up found tower"]
    assert model.order == ["plan", "input", "evaluate", "input", "evaluate", "summary"]
    assert moves(result) == [("continue", "rule"), ("summary", "rule")]
    assert [fact["mean"] for fact in facts(result, "StepEvaluated")] == [4.0, 4.0]
    assert [fact["status"] for fact in facts(result, "StepFinished")] == ["ok", "ok"]
    assert [step["tool"] for step in facts(result, "Plan")[0]["steps"]] == ["search", "sum_up"]  # fmt: skip


async def test_the_goal_is_done_when_the_decider_is_sure_of_it() -> None:
    done = {"action": "done", "confidence": "85%", "final_answer": "It is 330 m high."}
    result = await run(Replies(evaluate=[PARTIAL], decide=[done]))

    assert (result.status, result.answer) == ("completed", "It is 330 m high.")
    assert facts(result, "GoalDecided")[-1]["confidence"] == 0.85


async def test_a_low_confidence_makes_the_same_step_again_and_says_so() -> None:
    model = Replies(
        evaluate=[PARTIAL, GOOD],
        decide=[{"action": "done", "confidence": 0.4, "reason": "only a guess"}],
    )
    result = await run(model)

    assert (result.status, moves(result)) == ("completed", [("repeat", "model"), ("summary", "rule")])  # fmt: skip
    assert CALLS == ["search the tower", "search the tower"]
    assert "[Low confidence] done, but with low confidence: only a guess" in model.prompts["input"][1]  # fmt: skip


async def test_a_new_plan_replaces_the_old_one_and_goes_on_in_its_numbers() -> None:
    adjust = {"action": "adjust", "new_plan": [{"tool": "sum_up", "query": "the rest"}]}
    model = Replies(
        plan=[steps("search:a", "search:b")], input=inputs("a", "rest"), evaluate=[FAILED, GOOD], decide=[adjust]
    )  # fmt: skip
    result = await run(model)

    assert CALLS == ["search a", "sum_up rest"]
    assert [[step["id"] for step in plan["steps"]] for plan in facts(result, "Plan")] == [[1, 2], [3]]  # fmt: skip
    assert moves(result)[0] == ("adjust", "model")


async def test_the_third_new_plan_at_high_confidence_leads_to_the_answer() -> None:
    adjust = {"action": "adjust", "confidence": 0.9, "new_plan": steps("search:more")["steps"]}  # fmt: skip
    model = Replies(input=inputs("a", "b", "c"), evaluate=[PARTIAL], decide=[adjust])
    result = await run(model)

    assert (result.status, result.answer) == ("completed", "330 m")
    assert [move for move, _ in moves(result)] == ["adjust", "adjust", "summary"]


async def test_invalid_new_plans_for_ever_end_at_the_limit() -> None:
    adjust = {"action": "adjust", "confidence": 0.9, "new_plan": [{"skill": "fly"}]}
    model = Replies(evaluate=[PARTIAL], decide=[adjust])
    result = await run(model)

    assert (result.status, result.stop_reason) == ("limit", "max_iterations")
    assert result.answer == "the best so far"
    assert (model.order.count("decide"), CALLS) == (15, ["search the tower"])
    assert "'fly' is not a skill. There are search, sum_up, fail." in model.prompts["decide"][1]  # fmt: skip
    assert result.llm_calls <= 60
    [best] = model.prompts["best"]  # it is wanted as text, from the results
    assert ("found the tower" in best, "JSON" in best) == (True, False)
    few = Replies(evaluate=[PARTIAL], decide=[adjust])
    bounded = await run(few, runtime={"limits": Limits(max_llm_calls=8)})
    assert (bounded.stop_reason, bounded.llm_calls) == ("max_llm_calls", 8)


async def test_unknown_actions_are_to_continue_and_unreadable_ones_are_asked_again() -> None:  # fmt: skip
    model = Replies(
        evaluate=[PARTIAL], decide=["I think that we are done.", {"action": "retry"}]
    )
    result = await run(model)

    assert (result.status, moves(result)) == ("completed", [("summary", "model")])
    assert "[The decision could not be read]" in model.prompts["decide"][1]
    assert "1 failures in a row" in model.prompts["decide"][1]


async def test_the_decider_may_say_that_it_is_stuck() -> None:
    model = Replies(
        evaluate=[FAILED], decide=[{"action": "stuck", "reason": "no such tower"}]
    )
    result = await run(model)

    assert (result.status, result.stop_reason) == ("stuck", "no_progress")
    assert isinstance(result.error, Stuck)
    assert (str(result.error), result.answer) == ("no such tower", "the best so far")


# --- forms ---


async def test_a_provider_that_can_holds_each_reply_to_its_form() -> None:
    forms: dict[str, Any] = {}

    def keep(request: Request) -> Any:
        assert request.schema is not None
        forms[request.schema.name] = request.schema.schema
        return replies(request)

    notes = {"working_memory": "much " * 150}
    replies = Replies(
        plan=[steps("search:a", "search:b", "sum_up:c", "search:d")], input=inputs("a", "b", "c", "d"),
        evaluate=[GOOD | notes, GOOD, GOOD, PARTIAL],
        decide=[{"action": "continue", "confidence": 0.5, "reason": "enough"}],
    )  # fmt: skip
    result = await run(keep)

    assert result.status == "completed"
    assert [*forms] == ["goal", "input", "evaluate", "memory", "decide", "answer"]
    fits = {name: Draft202012Validator(form).is_valid for name, form in forms.items()}
    # OpenAI refuses a schema whose root is not called an object, and not every vendor knows `const`.
    assert {form["type"] for form in forms.values()} == {"object"}
    assert "const" not in str(forms)
    assert fits["goal"](steps("search:a"))
    assert fits["goal"]({"error": "there is no such tower"})
    assert not fits["goal"](steps("fly:a"))
    assert not fits["goal"](steps(*["search:a"] * 9))
    assert fits["input"]({"input": {"query": "x"}})
    assert not fits["input"]({"input": {"question": "x"}})
    assert fits["evaluate"](GOOD)
    assert not fits["evaluate"](GOOD | {"relevance": 6})
    sure = {"confidence": 0.9, "reason": "so"}
    assert fits["decide"]({"action": "adjust", "new_plan": steps("search:a")["steps"], **sure})  # fmt: skip
    assert fits["decide"]({"action": "stuck", **sure})
    for half in ({"action": "adjust", **sure}, {"action": "done", **sure}, {"action": "rest", **sure}):  # fmt: skip
        assert not fits["decide"](half)
    plain = ScriptedProvider(Replies(), capabilities=Capabilities())
    await GoalCycleEngine(Runtime(plain, tools=TOOLS)).run("Go.")
    assert all(request.schema is None for request in plain.requests)


async def test_a_run_continues_with_a_model_of_other_abilities() -> None:
    plain = ScriptedProvider(Replies(), capabilities=Capabilities())
    first = Runtime(plain, tools=TOOLS)
    whole = await GoalCycleEngine(first).run("Go.", run_id="r")
    entries = first.journal.read("r")
    for kept in range(1, len(entries), 3):
        runtime = Runtime(ScriptedProvider(Replies()), tools=TOOLS, journal=crashed(entries, kept))  # fmt: skip
        result = await GoalCycleEngine(runtime).resume("r")
        assert (result.status, result.answer) == ("completed", whole.answer)


async def test_the_arguments_of_a_skill_keep_their_definitions() -> None:
    class Place(BaseModel):
        name: str

    @tool(effect="read", trusted=True)
    async def route(start: Place, end: Place) -> str:
        """Find a way."""
        return "along the river"

    form = input_form(route.spec)
    place = {"name": "Bergen"}
    is_valid = Draft202012Validator(form).is_valid

    assert is_valid({"input": {"start": place, "end": place}})
    assert not is_valid({"input": {"start": place, "end": {"town": "Oslo"}}})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {"type": "object", "properties": {"at": {"$ref": "#/definitions/Place"}},
             "definitions": {"Place": {"type": "object", "required": ["name"]}}},
            {"at": {"name": "Oslo"}}, {"at": {}},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}},
            {"b": "x"}, {"b": 1},
        ),
        (
            {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}},
            {"next": {"n": 1}}, {"next": {"n": "x"}},
        ),
    ],
    ids=["definitions", "a property", "the root"],
)  # fmt: skip
def test_the_arguments_of_a_skill_are_found_wherever_its_schema_refers_to(
    schema: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]
) -> None:
    is_valid = Draft202012Validator(input_form(ToolSpec("go", "Go.", schema))).is_valid

    assert is_valid({"input": good})
    assert not is_valid({"input": bad})


async def test_prompts_for_examples_hold_what_there_is_to_say() -> None:
    asked: list[str] = []

    def answer(request: Request) -> Any:
        asked.append(request.conversation.messages[-1].content)
        name = "" if request.schema is None else request.schema.name
        role = {"goal": "plan", "answer": "summary"}.get(name, name)
        return json.dumps(USUAL[role])

    result = await build(answer, prompts=EXAMPLE_PROMPTS).run("How high is the tower?")

    assert (result.status, result.answer) == ("completed", "330 m")
    assert asked == [
        "Plan.",
        "Step: 1. search: the tower",
        "Step: 1. search: the tower\nOutput: found the tower\nScore.",
        "Found: 1. search, good: found the tower\nAnswer.",
    ]


# --- failures ---


async def test_failures_at_the_threshold_end_the_run_as_stuck() -> None:
    model = Replies(
        plan=[steps("fail:a", "fail:b", "fail:c", "search:d")], input=inputs("a", "b", "c"),
        decide=[{"action": "adjust", "new_plan": steps(f"fail:{name}")["steps"]} for name in "bc"],
    )  # fmt: skip
    result = await run(model)

    assert (result.status, result.stop_reason) == ("stuck", "repeated_error")
    assert CALLS == ["fail a", "fail b", "fail c"]
    assert model.order.count("evaluate") == 0  # a call that failed needs no judge
    assert moves(result)[-1] == ("stuck", "rule")


async def test_a_decider_that_cannot_be_read_is_named_beside_the_best_answer() -> None:
    model = Replies(
        plan=[steps("search:a")], input=inputs("a"), evaluate=[{"quality": "partial"}],
        decide=["I would say so."] * 3,
    )  # fmt: skip
    result = await run(model)

    assert (result.status, result.stop_reason) == ("stuck", "repeated_error")
    assert "3 of them decisions that could not be read; a larger model" in str(result.error)  # fmt: skip
    assert result.answer  # from what the steps found


async def test_a_step_that_fails_is_made_twice_and_then_left_out() -> None:
    model = Replies(plan=[steps("fail:a", "search:b")], input=inputs("a", "a2", "b"))
    result = await run(model, stuck_threshold=9)

    assert CALLS == ["fail a", "fail a2", "search b"]
    assert (result.status, result.answer) == ("completed", "330 m")


@pytest.mark.parametrize(
    ("on_exhausted", "status", "reason"),
    [("abort", "stuck", "repeated_error"), ("escalate", "waiting", "question")],
)
async def test_a_step_that_keeps_failing_may_end_the_run_or_ask(
    on_exhausted: str, status: str, reason: str
) -> None:
    model = Replies(plan=[steps("fail:a", "search:b")], input=inputs("a", "a2"))
    result = await run(model, stuck_threshold=9, on_exhausted=on_exhausted)

    assert (result.status, result.stop_reason) == (status, reason)
    assert not result.pending or "step 1 failed 2 times: a2 is away" in result.pending[0].text  # fmt: skip


async def test_the_same_step_three_times_ends_the_run_as_stuck() -> None:
    model = Replies(
        plan=[steps("search:a", "search:b", "search:c", "search:d")], input=inputs("a")
    )
    result = await run(model)

    assert (result.status, result.stop_reason) == ("stuck", "repeated_action")
    assert CALLS == ["search a"] * 3


async def test_two_steps_in_turn_end_the_run_as_stuck() -> None:
    model = Replies(
        plan=[steps(*["search:a"] * 6)], input=inputs("a", "b", "a", "b", "a")
    )
    result = await run(model)

    assert (result.status, result.stop_reason) == ("stuck", "repeated_action")
    assert CALLS == ["search a", "search b", "search a", "search b"]


def simulate(work: Callable[[], Awaitable[Any]]) -> Any:
    """Do a work in simulated time."""
    loop = make_loop(random.Random(1), 1)
    try:
        return loop.run_until_complete(loop.create_task(work()))
    finally:
        loop.close()


def test_a_step_of_130_seconds_ends_at_120() -> None:
    @tool(effect="read", trusted=True, timeout=600.0)
    async def dig(query: str) -> str:
        """Dig for a long time."""
        await asyncio.sleep(130)
        CALLS.append("dug")
        return "gold"

    async def work() -> tuple[Result, float, list[Any]]:
        parts = {"limits": Limits(timeout=None), "clock": LoopClock()}
        engine = build(model, tools=[dig], runtime=parts)
        began = asyncio.get_running_loop().time()
        result = await engine.run("Dig.", run_id="r")
        seconds = asyncio.get_running_loop().time() - began
        return result, seconds, engine.runtime.journal.read("r")

    stuck = {"action": "stuck", "reason": "too deep"}
    model = Replies(plan=[steps("dig:it")], input=inputs("it"), decide=[stuck])
    result, seconds, entries = simulate(work)

    assert (result.status, CALLS) == ("stuck", [])
    assert (
        facts(result, "StepFinished")[0]["content"]
        == "The call took longer than 120 s."
    )
    assert 120 <= seconds < 125
    fired = [
        one.event.seconds for one in entries if isinstance(one.event, TimeoutFired)
    ]
    assert fired == [120.0]


def test_a_step_is_cut_off_a_minute_after_its_budget() -> None:
    async def work() -> Result:
        parts = {"limits": Limits(timeout=None), "clock": LoopClock()}
        judge = Interrupted(model, "evaluate", lambda: asyncio.sleep(80))
        return await build(judge, runtime=parts, step_budget=10).run("Go.")

    stuck = {"action": "stuck", "reason": "too slow"}
    model = Replies(decide=[stuck])
    result = simulate(work)

    assert CALLS == ["search the tower"]
    assert (
        facts(result, "StepFinished")[0]["content"] == "The step took longer than 70 s."
    )
    assert result.status == "stuck"


# --- plans are checked before anything runs ---


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (steps("fly:there"), "Step 1: 'fly' is not a skill. There are search, sum_up."),
        (steps("search:a", "fail:b"), "Step 2: 'fail' is not a skill."),
        (steps(*["search:a"] * 9), "It has 9 steps; at most 8 are allowed."),
        ({"steps": [{"description": "no skill"}]}, "Step 1 names no skill."),
        ("I would search first.", 'There is no JSON object that can be read, with a field "steps"'),
        ({"steps": []}, 'There is no list of "steps" with at least one step'),
    ],
    ids=["unknown", "not allowed", "too long", "no skill", "prose", "empty"],
)  # fmt: skip
async def test_a_plan_is_rejected_with_the_reason_before_anything_runs(plan: Any, reason: str) -> None:  # fmt: skip
    model = Replies(plan=[plan])
    result = await run(model, skills=("s*",))

    assert (result.status, result.stop_reason, CALLS) == ("stuck", "no_progress", [])
    assert [fact["attempt"] for fact in facts(result, "PlanRejected")] == [1, 2, 3]
    assert model.order == ["plan", "plan", "plan", "best"]
    assert reason in facts(result, "PlanRejected")[0]["reason"]


async def test_a_rejected_plan_is_written_again_with_the_reason() -> None:
    model = Replies(plan=[steps("fly:there"), steps("SEARCH:tower")])
    engine = build(model)
    result = await engine.run("How high?")

    assert (result.status, CALLS) == ("completed", ["search the tower"])
    told = engine.runtime.provider.requests[1].conversation.messages[-1].content
    assert "'fly' is not a skill. There are search, sum_up, fail." in told


async def test_a_goal_that_cannot_be_reached_is_stuck_before_anything_runs() -> None:
    model = Replies(plan=[{"error": "no skill flies", "working_memory": "grounded"}])
    result = await run(model)

    assert (result.status, result.stop_reason) == ("stuck", "no_progress")
    assert "the goal cannot be reached: no skill flies" in str(result.error)


async def test_an_input_that_cannot_be_read_is_a_failure_and_the_decider_is_asked() -> None:  # fmt: skip
    model = Replies(
        input=["the tower, I guess", {"input": "the tower"}],
        decide=[{"action": "continue"}],
    )
    result = await run(model)

    assert (CALLS, result.status) == (["search the tower"], "completed")
    assert moves(result) == [("repeat", "model"), ("summary", "rule")]
    assert "Its input cannot be used." in facts(result, "StepFinished")[0]["content"]


async def test_an_evaluation_that_cannot_be_read_is_not_fatal() -> None:
    model = Replies(evaluate=["It is nice."], decide=[{"action": "continue"}])
    result = await run(model)

    assert (result.status, moves(result)) == ("completed", [("summary", "model")])
    assert facts(result, "StepEvaluated") == []


async def test_a_summary_that_is_plain_text_is_the_answer() -> None:
    result = await run(Replies(summary=["It is 330 m high."]))

    assert (result.status, result.answer) == ("completed", "It is 330 m high.")


async def test_without_a_model_for_the_summary_the_working_memory_is_delivered() -> None:  # fmt: skip
    model = Replies(
        evaluate=[{**GOOD, "working_memory": "The tower is 330 m high."}],
        summary=[ProviderError("gone", status=400)],
    )
    result = await run(model)

    assert (result.status, result.stop_reason) == ("failed", "provider_error")
    assert result.answer == "The tower is 330 m high."


# --- the working memory, and what prompts show ---


async def test_each_reply_may_replace_the_working_memory_and_all_prompts_have_it() -> None:  # fmt: skip
    model = Replies(
        plan=[{**steps("search:a", "search:b"), "working_memory": "memory 1"}],
        input=[{"input": "a", "working_memory": "memory 2"}, {"input": "b"}],
        evaluate=[{**GOOD, "working_memory": "memory 3"}, PARTIAL],
        decide=[{"action": "continue", "working_memory": "memory 4"}],
    )
    await run(model)

    prompts = model.prompts
    assert "memory 1" in prompts["input"][0]
    assert "memory 2" in prompts["evaluate"][0]
    assert "memory 3" in prompts["input"][1]
    assert "memory 3" in prompts["decide"][0]
    assert "memory 4" in prompts["summary"][0]


async def test_the_memory_is_compressed_every_third_cycle_above_500_characters() -> None:  # fmt: skip
    long = "The tower. " * 50
    model = Replies(
        plan=[{**steps(*["search:a"] * 7), "working_memory": long}],
        input=inputs(*"abcdefg"),
        compress=['```json\n{"compressed": "The tower."}\n```', {"compressed": "x"}],
    )
    result = await run(model)

    assert model.order.count("compress") == 1  # at the third; at the sixth it is short
    assert facts(result, "MemorySnapshot") == [{"iterations": 3, "text": "The tower."}]
    assert "to at most 500 characters" in model.prompts["compress"][0]
    unread = Replies(
        plan=[{**steps(*["search:a"] * 4), "working_memory": long}],
        input=inputs(*"abcd"), compress=["{ no"],
    )  # fmt: skip
    await run(unread)
    assert long.strip() in unread.prompts["summary"][0]  # it stays as it was


async def test_prompts_show_beginnings_of_results_and_the_trend_of_the_scores() -> None:
    @tool(effect="read", trusted=True)
    async def read(query: str) -> str:
        """Read much."""
        return query * 4_000

    scores: list[Reply] = [{**GOOD, "relevance": 4 - number} for number in range(3)]
    model = Replies(
        plan=[steps(*["read:it"] * 4)], input=inputs(*"abcd"), evaluate=[*scores, PARTIAL]
    )  # fmt: skip
    await run(model, tools=[read])

    assert "a" * 2_999 in model.prompts["evaluate"][0]
    assert "a" * 3_000 not in model.prompts["evaluate"][0]
    assert "a" * 299 in model.prompts["input"][1]
    assert "a" * 300 not in model.prompts["input"][1]
    assert "The last scores: 3.8, 3.5, 3.0 (DEGRADING)" in model.prompts["decide"][0]


async def test_braces_in_a_goal_or_a_result_are_not_placeholders() -> None:
    model = Replies(
        plan=[{**steps("search:{working_memory}"), "working_memory": "SECRET NOTE"}],
        input=inputs("{memory} {goal}"), evaluate=[PARTIAL], decide=[{"action": "continue"}],
    )  # fmt: skip
    result = await build(model).run("What is {memory}?")

    assert result.status == "completed"
    assert "search: {working_memory}" in model.prompts["input"][0]
    assert "found {memory} {goal}" in model.prompts["evaluate"][0]
    assert model.prompts["evaluate"][0].count("SECRET NOTE") == 1


async def test_prompts_can_be_replaced_by_name() -> None:
    texts = {
        "plan": f"{MARKS['plan']} {{skills}}{{knowledge}}{{memory}}{{results}}{{example}}{{max_steps}} in verse"
    }
    model = Replies()
    await run(model, prompts=texts)

    assert model.prompts["plan"][0].endswith("8 in verse")
    with pytest.raises(ConfigError, match="placeholder"):
        build(model, prompts={"decide": "{nonsense}"})


# --- people ---


async def test_guidance_in_mid_step_stands_in_later_prompts_and_survives_compression() -> None:  # fmt: skip
    handles: list[Any] = []

    @tool(effect="read", trusted=True)
    async def look(query: str) -> str:
        """Look, while a person says something."""
        if query == "a":
            await handles[0].steer("Metres only, please.")
            await handles[0].add_context("The tower was painted.")
        return f"saw {query}"

    long = "It is high. " * 60
    model = Replies(
        plan=[{**steps("look:a", "look:b", "look:c", "look:d"), "working_memory": long}, steps("look:e")],
        input=inputs("a", "b", "c", "d", "e"),
        evaluate=[GOOD, GOOD, GOOD, PARTIAL],
        decide=[{"action": "ask_user", "question": "Go on?"}, {"action": "done", "confidence": 1}],
        compress=[{"compressed": "High."}],
    )  # fmt: skip
    engine = build(model, tools=[look], runtime={"user": _yes})
    handles.append(engine.start("How high?", run_id="r"))
    result = await handles[0].result()

    assert result.status == "completed"
    guidance = (
        "[Guidance of the user] Metres only, please.\n"
        "[Context of the user] The tower was painted."
    )
    prompts = model.prompts
    assert guidance not in prompts["plan"][0] + prompts["input"][0]
    for role, number in (
        ("evaluate", 0),
        ("input", 1),
        ("input", 3),
        ("decide", 0),
        ("plan", 1),
        ("summary", 0),
    ):
        assert guidance in prompts[role][number], (role, number)
    assert facts(result, "MemorySnapshot")[0]["text"] == f"{guidance}\nHigh."
    told = [m.content for r in engine.runtime.provider.requests for m in r.conversation]
    assert not any(text.startswith("Metres") or "OPERATOR" in text for text in told)


async def _yes(question: str) -> str:
    return "yes, go on"


async def test_an_override_takes_the_place_of_the_step_and_bypasses_the_decision() -> None:  # fmt: skip
    handles: list[Any] = []

    @tool(effect="read", trusted=True)
    async def look(query: str) -> str:
        """Look, while a person orders something else."""
        CALLS.append(f"look {query}")
        await handles[0].override("sum_up", {"query": "the guide book"})
        return "nothing"

    model = Replies(
        plan=[steps("look:tower", "search:more")], input=inputs("tower", "more"),
        evaluate=[FAILED, GOOD],
    )  # fmt: skip
    engine = build(model, tools=[look, *TOOLS])
    handles.append(engine.start("How high?", run_id="r"))
    result = await handles[0].result()

    assert CALLS == ["look tower", "sum_up the guide book", "search more"]
    assert moves(result) == [("continue", "person"), ("summary", "rule")]
    assert model.order.count("decide") == 0
    assert facts(result, "StepFinished")[0]["content"] == "in short: the guide book"
    assert "1. sum_up, failed: in short: the guide book" in model.prompts["input"][1]
    assert result.tool_calls == 3


async def test_an_order_before_a_step_spares_its_call() -> None:
    handles: list[Any] = []

    async def order() -> None:
        await handles[0].override("sum_up", {"query": "the guide book"})

    model = Replies()
    engine = build(Interrupted(model, "plan", order))
    handles.append(engine.start("How high?", run_id="r"))
    result = await handles[0].result()

    assert CALLS == ["sum_up the guide book"]
    assert (model.order.count("input"), moves(result)) == (0, [("summary", "rule")])


async def test_a_question_waits_durably_and_its_answer_leads_to_a_new_plan() -> None:
    journal = MemoryJournal()
    ask = {"action": "ask_user", "question": "Which tower?"}
    model = Replies(evaluate=[PARTIAL], decide=[ask])
    waiting = await run(model, runtime={"journal": journal})
    assert (waiting.status, [one.text for one in waiting.pending]) == ("waiting", ["Which tower?"])  # fmt: skip

    again = Replies(
        plan=[steps("search:eiffel")], input=inputs("eiffel"), evaluate=[GOOD]
    )
    engine = build(again, runtime={"journal": journal})  # another process
    await engine.runtime.control("r").answer("the one in Paris")
    result = await engine.resume("r")

    assert (result.status, result.answer) == ("completed", "330 m")
    assert CALLS == ["search the tower", "search eiffel"]
    said = "[Asked the user] Which tower? [Answer of the user] the one in Paris"
    assert said in again.prompts["plan"][0]
    assert again.order == ["plan", "input", "evaluate", "summary"]


async def test_an_abort_stops_the_call_that_is_under_way() -> None:
    begun, ended = asyncio.Event(), list[str]()

    @tool(effect="read")
    async def wait(query: str) -> str:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("stopped")
        return ""

    model = Replies(plan=[steps("wait:x")])
    handle = build(model, tools=[wait]).start("Wait.")
    working = asyncio.ensure_future(handle.result())
    await begun.wait()
    result = await handle.abort()
    await working

    assert (result.status, ended) == ("aborted", ["stopped"])


# --- policy, providers, knowledge ---


class NoSearch(InstantGate):
    """Denies searches."""

    version = "no-search-1"

    def decide(self, action: Any, state: Any) -> Any:
        """Deny them."""
        return Deny("not today") if action.tool == "search" else Allow()


async def test_every_call_passes_the_gate_also_one_that_a_person_orders() -> None:
    handles: list[Any] = []

    async def order() -> None:
        await handles[0].override("search", {"query": "anyway"})

    model = Replies(
        plan=[steps("search:tower", "sum_up:it")], decide=[{"action": "stuck"}]
    )
    engine = build(Interrupted(model, "plan", order), runtime={"gate": NoSearch()})
    handles.append(engine.start("How high?", run_id="r"))
    result = await handles[0].result()

    assert CALLS == ["sum_up the tower"]
    assert facts(result, "StepFinished")[0]["status"] == "failed"
    assert "not today" in facts(result, "StepFinished")[0]["content"]
    entries = engine.runtime.journal.read("r")
    started = [one.event.tool for one in entries if isinstance(one.event, ToolStarted)]
    assert started == ["sum_up"]


async def test_planner_evaluator_and_decider_may_be_other_models() -> None:
    heavy, light, local = Replies(), Replies(evaluate=[PARTIAL]), Replies()
    tiers = Tiers(
        local=ScriptedProvider(local),
        light=ScriptedProvider(light),
        heavy=ScriptedProvider(heavy),
    )
    parts = Runtime(tiers["local"], tools=TOOLS, providers=tiers)
    engine = GoalCycleEngine(
        parts, planner="heavy", evaluator="light", decider="medium"
    )
    result = await engine.run("How high?")

    assert result.status == "completed"
    assert (heavy.order, light.order, local.order) == (
        ["plan", "decide", "summary"],
        ["evaluate"],
        ["input"],
    )
    with pytest.raises(ConfigError, match="planner: 'wise' is not among"):
        GoalCycleEngine(parts, planner="wise")


async def test_a_planner_knows_5_memories_and_3_documents_of_200_characters() -> None:
    store = MemoryKnowledge(shared=True)
    for number in range(9):
        kind = "document" if number >= 6 else "fact"
        text = f"tower number {number} is high {'x' * 300}"
        item = Remembered(text, kind=kind, label="sensitive", untrusted=True)
        await store.store(item, key=str(number))
    model = Replies()
    bridge = KnowledgeBridge(store, threshold=0.0)
    engine = build(model, runtime={"knowledge": bridge})
    result = await engine.run("How high is the tower?", run_id="r")

    lines = model.prompts["plan"][0].splitlines()
    shown = [line for line in lines if "tower number" in line]
    assert facts(result, "PriorKnowledge") == [{"memories": 5, "documents": 3}]
    assert {len(line.rpartition(" (")[0]) for line in shown} == {202}
    assert (len(shown), result.label, result.untrusted) == (8, "sensitive", True)


async def test_outputs_and_the_answer_are_kept_as_reasoning() -> None:
    store = MemoryKnowledge(shared=True)
    engine = build(Replies(), runtime={"knowledge": store})
    await engine.run("How high is the tower?", run_id="r")
    await engine.resume("r")

    kept = await store.search("tower", kinds=("reasoning",), threshold=0.0, limit=9)
    assert sorted(item.text for item in kept) == [
        "How high is the tower?: 330 m",
        "the tower: found the tower",
    ]
    assert {item.source_run for item in kept} == {"r"}
    nowhere = MemoryKnowledge(shared=True)
    await build(Replies(), runtime={"knowledge": nowhere}, deliver=()).run("How high?")
    assert await nowhere.search("tower high", threshold=0.0) == []


async def test_a_store_that_does_not_answer_in_time_is_left_out() -> None:
    class Slow(MemoryKnowledge):
        async def search(self, *args: Any, **options: Any) -> Any:
            await asyncio.sleep(60)

    bridge = KnowledgeBridge(Slow(shared=True), timeout=0.01)
    result = await run(Replies(), runtime={"knowledge": bridge}, deliver=())

    assert (result.status, len(facts(result, "KnowledgeFailed"))) == ("completed", 1)


async def test_a_store_that_does_not_work_is_a_fact_and_no_failure() -> None:
    class Broken(MemoryKnowledge):
        async def search(self, *args: Any, **options: Any) -> Any:
            raise OSError("the disk is gone")

        async def store(self, *args: Any, **options: Any) -> Any:
            raise OSError("the disk is gone")

    broken = {"knowledge": Broken(shared=True)}
    result = await run(Replies(), runtime=broken)

    assert result.status == "completed"
    assert len(facts(result, "KnowledgeFailed")) == 3  # the search, a step, the answer


# --- options ---


def test_the_options_have_the_defaults_of_the_seed() -> None:
    engine = build(Replies())

    assert {
        name: getattr(engine, name)
        for name in (
            "skills", "max_cycles", "max_plan_steps", "done_confidence", "stuck_threshold", "step_timeout", "step_budget",
            "max_adjusts", "max_step_attempts", "on_exhausted", "compress_every", "compress_above", "trend_of", "deliver",
        )
    } == {
        "skills": ("*",), "max_cycles": 15, "max_plan_steps": 8, "done_confidence": 0.7, "stuck_threshold": 3,
        "step_timeout": 120.0, "step_budget": 300.0, "max_adjusts": 3, "max_step_attempts": 2, "on_exhausted": "skip",
        "compress_every": 3, "compress_above": 500, "trend_of": 3, "deliver": ("memory",),
    }  # fmt: skip
    assert engine.runtime.limits.max_llm_calls == 60


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"skills": ("fly",)}, r"skills: must be names or patterns of tools, got \['fly'\]; there are search"),
        ({"skills": ()}, "skills: must be names or patterns of tools"),
        ({"max_cycles": 0}, "max_cycles"),
        ({"max_plan_steps": 0}, "max_plan_steps"),
        ({"done_confidence": 1.5}, "done_confidence"),
        ({"stuck_threshold": 0}, "stuck_threshold"),
        ({"step_timeout": 0}, "step_timeout"),
        ({"step_budget": -1}, "step_budget"),
        ({"trend_of": 1}, "trend_of"),
        ({"on_exhausted": "panic"}, "on_exhausted"),
        ({"deliver": ("pigeon",)}, "deliver"),
        ({"max_step_attempts": "two"}, "max_step_attempts"),
        ({"evaluator": "wise"}, "evaluator"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_option_is_an_error_at_construction(
    options: Options, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        build(Replies(), **options)


async def test_a_run_without_skills_says_so_before_a_model_is_asked() -> None:
    model = Replies()
    result = await run(model, tools=[search], skills=("x*",))

    assert isinstance(result.error, ConfigError)
    assert "skills: no tool fits x*; there are search" in str(result.error)
    assert model.order == []


async def test_a_resumed_run_has_the_options_that_were_recorded() -> None:
    journal = MemoryJournal()
    ask = {"action": "ask_user", "question": "Which?"}
    first = Replies(evaluate=[PARTIAL], decide=[ask])
    await run(first, runtime={"journal": journal}, skills=("search",), max_cycles=2)
    provider = ScriptedProvider(Replies(plan=[steps("sum_up:it")]))
    other = Runtime(provider, tools=TOOLS, journal=journal)
    await other.control("r").answer("this one")

    result = await other.resume("r")  # by the name and the options of the journal

    assert (result.status, result.stop_reason) == ("stuck", "no_progress")
    assert "'sum_up' is not a skill. There are search." in str(result.error)
