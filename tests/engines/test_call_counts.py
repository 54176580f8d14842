"""The table of docs/calls.md: its formulas are read from the page, and both ends of every row are reached by a run."""

import ast
import dataclasses
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count, product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from loopwright import (
    ChainOfThoughtEngine,
    Completion,
    CriticEngine,
    Limits,
    LoopEngine,
    PlanExecuteEngine,
    ReActEngine,
    ReflexionEngine,
    Result,
    Runtime,
    SelfAskEngine,
    Tool,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.engines import (
    ChainEngine,
    DirectorCriticEngine,
    GoalCycleEngine,
    MapReduceEngine,
    ModelJudge,
    ScoreThreshold,
    SelfTests,
    TeamEngine,
    ThreadEngine,
    Trajectory,
    TurnEngine,
)
from loopwright.testing import ScriptedProvider, call

PAGE = Path(__file__).parents[2] / "docs" / "calls.md"
UNLIMITED = Limits(
    max_iterations=None,
    max_llm_calls=None,
    max_tool_calls=None,
    max_tokens=None,
    timeout=None,
    context_tokens=None,
)
RANDOM_MODELS = (
    range(16),
    pytest.param(range(16, 80), marks=pytest.mark.faults),
)  # for each row

# --- the page ---


class Row(NamedTuple):
    """A row of the table: formulas of its two ends, and their values with the default options."""

    fewest: str
    most: str
    defaults: tuple[int, int]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables() -> list[list[list[str]]]:
    """The rows of each table of the page, without its head."""
    found = re.findall(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf-8"), re.M)
    return [[cells(line) for line in table.splitlines()[2:]] for table in found]


def read_rows() -> dict[tuple[str, str], Row]:
    rows: dict[tuple[str, str], Row] = {}
    for engine, when, fewest, most, defaults in tables()[0]:
        least, greatest = re.findall(r"\d+", defaults)
        rows[engine.strip("`"), when] = Row(
            fewest.strip("`"), most.strip("`"), (int(least), int(greatest))
        )
    return rows


def read_terms() -> dict[str, str]:
    return {name.strip("`"): formula.strip("`") for name, formula, _ in tables()[1]}


ROWS, TERMS = read_rows(), read_terms()
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: Fraction,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "sum": sum,
    "range": range,
}


def value_of(formula: str, names: Mapping[str, Any]) -> Any:
    """The value of simple arithmetic over `names` and the page's own terms."""
    return _value(ast.parse(formula, mode="eval").body, names)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return value_of(TERMS[name], names) if name in TERMS else names[name]
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return FUNCTIONS[name](*(_value(argument, names) for argument in arguments))
        case ast.GeneratorExp(
            elt=elt,
            generators=[ast.comprehension(target=ast.Name(id=name), iter=it, ifs=[])],
        ):
            return [
                _value(elt, {**names, name: number}) for number in _value(it, names)
            ]
        case _:
            raise ValueError(
                f"the formulas of {PAGE.name} have no {ast.unparse(node)!r}"
            )


# --- how a model makes an engine ask as little and as much as it can ---

Script = list[Any]


@dataclasses.dataclass(frozen=True)
class Way:
    """How the two ends of a row are reached.

    `grid` has the values that are tried of options and of the names that are no options; a script is a function of
    them. `lines` is what a random model may say, with the number of the call in place of `#`.
    """

    engine: type[LoopEngine]
    grid: dict[str, tuple[Any, ...]]
    fewest: Callable[[Any], Script]
    most: Callable[[Any], Script]
    lines: tuple[Any, ...]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    tools: tuple[Tool, ...] = ()

    def points(self) -> Iterator[dict[str, Any]]:
        """Every combination of the grid."""
        for values in product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))

    def names(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every name that a formula may have."""
        fields = {
            field.name: field.default for field in dataclasses.fields(self.engine)
        }
        numbers = {
            name: getattr(default, "default", default)
            for name, default in fields.items()
        }
        others = {"attempt": 1, "listed": 1, "parts": 1, "rounds": 3}
        names = {**others, **numbers, **self.options, **point}
        names["replies"] = names.get(
            "n_proposals" if names.get("generate") == "propose" else "n_branches"
        )
        return names

    async def run(
        self, script: Any, point: Mapping[str, Any]
    ) -> tuple[Result, ScriptedProvider]:
        """A run of the engine, branches one by one, without limits."""
        fields = {field.name for field in dataclasses.fields(self.engine)}
        options = {
            **self.options,
            **{name: value for name, value in point.items() if name in fields},
        }
        options |= {"max_concurrency": 1} if "max_concurrency" in fields else {}
        provider = ScriptedProvider(script)
        runtime = Runtime(provider, tools=self.tools, limits=UNLIMITED)
        return await self.engine(runtime, **options).run("Q?"), provider


@tool(effect="read")
async def look(what: int) -> str:
    """Look something up."""
    return f"found {what}"


@tool(effect="read")
async def search(query: str) -> str:
    """Search."""
    return f"all about {query}"


@tool(effect="read")
async def nothing(query: str) -> str:
    """Never finds anything."""
    return "none"


@tool(effect="read")
async def broken(what: int) -> str:
    """Never works."""
    raise RuntimeError("out of order")


@tool(effect="read")
async def run_python(code: str) -> str:
    """Run a program."""
    return "ran"


def cut(text: str) -> Completion:
    return Completion(text, answer=text, finish_reason="length")


# ReAct and Self-Ask


def react_most(o: Any) -> Script:
    return [*(call("look", what=turn) for turn in range(o.max_iterations - 1)), "done"]


def rounds_most(o: Any) -> Script:
    return [*(call("look", what=turn) for turn in range(o.max_rounds - 1)), "done"]


REVIEW = '{"confidence": 0.9, "quality": 0.9}'
POOR_REVIEW = '{"confidence": 0.9, "quality": 0.1, "issues": ["no"]}'


def self_ask_alone(o: Any) -> Script:
    return [
        line
        for i in range(o.max_follow_ups)
        for line in (f"Follow up: what is {i}?", f"it is {i}")
    ] + ["x"]


def self_ask_search(o: Any) -> Script:
    return [f"Follow up: what is {i}?" for i in range(o.max_follow_ups)] + ["x"]


# Chain-of-Thought: only the last sample comes to an answer, so that no vote is decided before it.

ENDING = "It is so.\nFINAL ANSWER: 7"


def asked(o: Any) -> int:
    return int(value_of("asked", vars(o)))


def extracted_most(o: Any) -> Script:
    reasoning = [cut("more") for _ in range(1 + o.max_continuations)]
    return [*([*reasoning, "hm", "hm"] * (o.samples - 1)), *reasoning, "hm", "7"]


SAMPLES: dict[str, tuple[Any, ...]] = {
    "samples": (1, 2, 5, 6),
    "wave": (1, 2, 5),
    "max_continuations": (0, 1),
}
THINKING = (
    "The answer is 7.",
    "FINAL ANSWER: 8",
    "7",
    "hm",
    "",
    cut("more"),
    cut("FINAL ANSWER: 9"),
)


# Reflexion


def attempt(o: Any, answer: str) -> Script:
    return [*(call("look", what=turn) for turn in range(o.attempt - 1)), answer]


def episodes(o: Any, *, judged: bool) -> Script:
    """All attempts fail; only reflections are asked for between them."""
    reflects = o.strategy in ("reflection", "both")
    script: Script = []
    for number in range(1, o.max_episodes + 1):
        script += attempt(o, f"try {number}") + ["UNSATISFACTORY"] * judged
        script += ["Better look."] * (reflects and number < o.max_episodes)
    return script


def is_right(trajectory: Trajectory) -> bool:
    return trajectory.answer == "right"


def reflexion(strategies: tuple[str, ...], *, judged: bool) -> list[Way]:
    return [
        Way(
            ReflexionEngine,
            {"strategy": strategies, "max_episodes": (1, 2, 4), "attempt": (1, 3)},
            lambda o: attempt(o, "right") + ["SATISFACTORY"] * judged,
            lambda o: episodes(o, judged=judged),
            ("try #", "right", "SATISFACTORY", "UNSATISFACTORY", "Better look.", ""),
            {"evaluator": ModelJudge() if judged else is_right},
            (look,),
        )
    ]


# CRITIC


def critic_most(o: Any) -> Script:
    rounds: Script = []
    for number in range(o.max_critique_rounds):
        looks = [
            f"Claim: c\nTool: search\nTool Input: {number} {check}"
            for check in range(o.max_checks)
        ]
        rounds += ["Well.", *looks, f"Revised answer: answer {number}"]
    return ["draft", *rounds]


def rounds_of_two(answer: str) -> Callable[[Any], Script]:
    return lambda o: (
        ["draft"]
        + [
            line
            for i in range(o.max_critique_rounds)
            for line in ("Well.", f"Revised answer: {answer.format(i)}")
        ]
    )


LOOKING_UP = "Claim: c\nTool: search\nTool Input: q#"
CRITICISING = (
    "Well.",
    "Revised answer: other #",
    "Verdict: VERIFIED",
    "Verdict: UNVERIFIED",
    "none",
)


# Plan-and-Execute


def plan(steps: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"steps": [{**step, "depends_on": []} for step in steps]})


def planned(
    o: Any, step: Callable[[int], Mapping[str, Any]], work: Callable[[int], Script]
) -> Script:
    """All plans take as many attempts as they may, and all their steps fail."""
    script: Script = []
    for round in range(o.max_replans + 1):
        numbers = range(round * o.max_steps + 1, (round + 1) * o.max_steps + 1)
        script += ["no plan"] * (o.max_plan_attempts - 1) + [
            plan([{"id": i, **step(i)} for i in numbers])
        ]
        script += [line for i in numbers for line in work(i)]
        script += ["Decision: REPLAN"] * (round < o.max_replans)
    return [*script, "answer"]


def tool_steps(o: Any) -> Script:
    return planned(
        o, lambda i: {"tool": "broken", "arguments": {"what": i}}, lambda i: []
    )


def sub_goals(o: Any) -> Script:
    turns = range(o.max_step_iterations)
    return planned(
        o,
        lambda i: {"goal": f"find {i}"},
        lambda i: [*(call("look", what=turn) for turn in turns), "nothing yet"],
    )


# Goal cycle

STEP = '{"skill": "look", "input_description": "#"}'
GOAL_PLAN = f'{{"steps": [{STEP}]}}'
GOAL_DONE = '{"action": "done", "confidence": 1, "final_answer": "x"}'
PARTIAL = '{"quality": "partial"}'
ADJUST = f'{{"action": "adjust", "working_memory": "notes", "new_plan": [{STEP}]}}'


def goal_most(o: Any) -> Script:
    """Two plans are rejected, no step is good, each leads to another plan, and the memory is compressed when it is time."""
    script: Script = ["no plan", "no plan", GOAL_PLAN]
    for cycle in range(1, o.max_cycles + 1):
        is_last = cycle == o.max_cycles
        done = '{"action": "done", "confidence": 1}'
        made = f'{{"input": {{"what": {cycle}}}}}'
        script += [made, PARTIAL, done if is_last else ADJUST]
        is_due = cycle % o.compress_every == 0
        script += ['{"compressed": "note"}'] * (is_due and not is_last)
    return [*script, '{"answer": "x"}']


# Threads

FINAL = "<answer>x</answer>"
SPAWN = "<spawn-thread><initial-payload>#</initial-payload></spawn-thread>"


# Chain, Map-Reduce, Director and critic, Team

WIDTHS = {"max_items": (1, 2, 11, 20), "reduce_width": (2, 3, 10)}
LISTED = ('["a"]', '["a", "b"]', '["a #", "b", "c"]')
GOOD_REVIEW = '{"feedback": "fine", "score": 0.9}'
BAD_REVIEW = '{"feedback": "shorter", "score": 0.1}'


def list_items(o: Any) -> str:
    return json.dumps([f"item {number}" for number in range(o.max_items)])


def map_most(o: Any) -> Script:
    """Each item is mapped, and results are put together until one is left."""
    left = o.max_items
    script: Script = ["x"] * left
    while left > o.reduce_width:
        left = math.ceil(left / o.reduce_width)
        script += ["x"] * left
    return [*script, "x"]


def split_tasks(tasks: int, what: str = "do it") -> str:
    return json.dumps([{"agent": "react", "task": what}] * tasks)


# Tree of Thoughts


def proposals(o: Any, numbers: Iterator[int], states: int) -> Script:
    """Replies with `listed` thoughts each, all of them distinct."""
    if o.generate == "sample":
        return [f"thought {next(numbers)}" for _ in range(o.replies * states)]
    return [
        "\n".join(f"THOUGHT: thought {next(numbers)}" for _ in range(o.listed))
        for _ in range(o.replies * states)
    ]


def levels(o: Any, judging: Callable[[int], Script]) -> Script:
    """No thought is finished, so that the answer is forced in the end."""
    script: Script = []
    beam, numbers = 1, count()
    for _ in range(o.max_depth):
        candidates = beam * o.replies * o.listed
        script += proposals(o, numbers, beam) + judging(candidates)
        beam = min(o.beam_width, candidates)
    return [*script, "ANSWER: x"]


def valued(o: Any) -> Script:
    return levels(o, lambda candidates: ["Score: 5"] * (candidates * o.n_evaluations))


def voted(o: Any) -> Script:
    return levels(
        o,
        lambda candidates: (
            ["The best choice is 1"] * (o.n_evaluations if candidates > 1 else 0)
        ),
    )


def one_answer(o: Any) -> Script:
    return [
        "THOUGHT: it is\nANSWER: x" if o.generate == "propose" else "ANSWER: x"
    ] * o.replies


def unusable(o: Any) -> Script:
    return [""] * o.replies + ["ANSWER: x"]


class Deep:
    """A depth-first search that grows and judges as many states as it may.

    The state of the last visit is not grown, so all visits that inner states leave over go to leaves, the last ones.
    """

    def __init__(self, o: Any) -> None:
        self.o, self.numbers, self.visits = o, count(), 0
        self.script: Script = []
        self.children, inner, visited = (
            value_of(name, vars(o)) for name in ("children", "inner", "visited")
        )
        leaves = visited - min(inner, visited)
        parents = range(self.children ** (o.max_depth - 1))
        self.shares = [
            min(self.children, max(0, leaves - place * self.children))
            for place in parents
        ]
        self.grow(1)

    def grow(self, depth: int) -> None:
        """Ask for thoughts, and go down from each; below the inner states the last parents have the leaves."""
        o, born = (
            self.o,
            self.children if depth < self.o.max_depth else self.shares.pop(),
        )
        texts = [
            f"thought {next(self.numbers)}" if i < born else ""
            for i in range(o.replies * o.listed)
        ]
        listed = (
            "\n".join(f"THOUGHT: {text}" for text in texts[i :: o.replies])
            for i in range(o.replies)
        )
        self.script += listed if o.generate == "propose" else texts
        for _ in range(born):
            if self.visits < o.max_visits:
                self.visits += 1
                self.script += ["Score: 5"] * o.n_evaluations
                if depth < o.max_depth and self.visits < o.max_visits:
                    self.grow(depth + 1)


def deep(o: Any) -> Script:
    return [*Deep(o).script, "ANSWER: x"]


THINKING_ON = ("a #", "b", "c #\nANSWER: x\n\nScore: 3", "", "d #\nScore: 8", "The best choice is 2",
               "THOUGHT: e #\nTHOUGHT: f #\nScore: 5", "THOUGHT: g #\nTHOUGHT: h #\nANSWER: y")  # fmt: skip
SAMPLED: dict[str, tuple[Any, ...]] = {"generate": ("sample",), "n_branches": (1, 3)}
PROPOSED: dict[str, tuple[Any, ...]] = {
    "generate": ("propose",),
    "n_proposals": (1, 2),
    "listed": (1, 2),
}
BEAM: dict[str, tuple[Any, ...]] = {
    "beam_width": (1, 2, 4),
    "max_depth": (1, 3),
    "n_evaluations": (1, 2),
}
DEEP: dict[str, tuple[Any, ...]] = {
    "max_visits": (1, 3, 6, 50), "max_children": (1, 2), "max_depth": (1, 3), "n_evaluations": (1, 2)
}  # fmt: skip


def tree(
    ranges: dict[str, tuple[Any, ...]], fewest: Any, most: Any, **options: Any
) -> list[Way]:
    """Both ways of generating thoughts."""
    return [
        Way(
            TreeOfThoughtsEngine,
            generating | ranges,
            fewest,
            most,
            THINKING_ON,
            options,
        )
        for generating in (SAMPLED, PROPOSED)
    ]


REFLECTING, OTHERS = ("reflection", "both"), ("none", "last_attempt")
ATTEMPTS: dict[str, tuple[Any, ...]] = {
    "max_replans": (0, 2),
    "max_plan_attempts": (1, 3),
    "max_steps": (1, 3),
}
WAYS: dict[tuple[str, str], list[Way]] = {
    ("react", "always"): [
        Way(ReActEngine, {"max_iterations": (1, 2, 7)}, lambda o: ["done"], react_most,
            ("done", *(call("look", what=what) for what in range(5))), tools=(look,))
    ],
    ("self-ask", "no search, or one that finds nothing"): [
        Way(SelfAskEngine, {"max_follow_ups": (1, 2, 5)}, lambda o: ["So the final answer is: x"], self_ask_alone,
            ("Follow up: a?", "Follow up: b#?\nFollow up: c?", "So the final answer is: x", "hm", ""), tools=tools)
        for tools in ((), (nothing,))
    ],
    ("self-ask", "a search that always finds something"): [
        Way(SelfAskEngine, {"max_follow_ups": (1, 2, 5)}, lambda o: ["So the final answer is: x"], self_ask_search,
            ("Follow up: a?", "Follow up: b#?\nFollow up: c?", "So the final answer is: x", "hm", ""), tools=(search,))
    ],
    ("chain-of-thought", '`extract="auto"`'): [
        Way(ChainOfThoughtEngine, SAMPLES, lambda o: [ENDING] * asked(o), extracted_most, THINKING,
            {"extract": "auto", "answer": "number"})
    ],
    ("chain-of-thought", '`extract="always"`'): [
        Way(ChainOfThoughtEngine, SAMPLES, lambda o: [ENDING, "7"] * asked(o), extracted_most, THINKING,
            {"extract": "always", "answer": "number"})
    ],
    ("reflexion", "a model judges; it reflects"): reflexion(REFLECTING, judged=True),
    ("reflexion", "a model judges; it does not reflect"): reflexion(OTHERS, judged=True),
    ("reflexion", "no model judges; it reflects"): reflexion(REFLECTING, judged=False),
    ("reflexion", "no model judges; it does not reflect"): reflexion(OTHERS, judged=False),
    ("critic", "with tools"): [
        Way(CriticEngine, {"max_critique_rounds": (1, 2, 3), "max_checks": (1, 2, 6)},
            lambda o: ["draft", "Verdict: VERIFIED"], critic_most,
            ("Well.", "Revised answer: other #", "Verdict: VERIFIED", LOOKING_UP), tools=(search,))
    ],
    ("critic", "with `code_tool`"): [
        Way(CriticEngine, {"max_critique_rounds": (1, 2, 3)}, lambda o: ["draft", "Verdict: VERIFIED"],
            rounds_of_two("\n```\n{}\n```"), CRITICISING, {"code_tool": "run_python"}, (run_python,))
    ],
    ("critic", 'no tools, `without_tools="critique"`'): [
        Way(CriticEngine, {"max_critique_rounds": (1, 2, 3)}, lambda o: ["draft", "Verdict: VERIFIED"],
            rounds_of_two("answer {}"), CRITICISING, {"without_tools": "critique"})
    ],
    ("critic", 'no tools, `without_tools="answer"`'): [
        Way(CriticEngine, {"max_critique_rounds": (1, 3)}, lambda o: ["draft"], lambda o: ["draft"], CRITICISING)
    ],
    ("plan-execute", "every step is a call of a tool"): [
        Way(PlanExecuteEngine, ATTEMPTS, lambda o: ["1. look(1)", "answer"], tool_steps,
            ("1. look(1)", "1. broken(1)", "2. broken(2)", "Decision: FINISH", "hm"), tools=(look, broken))
    ],
    ("plan-execute", "every step is a sub-goal"): [
        Way(PlanExecuteEngine, {**ATTEMPTS, "max_step_iterations": (1, 3)}, lambda o: ["1. find it", "found", "answer"],
            sub_goals, ("1. find it", "1. find it\n2. and that", "Decision: REPLAN", "hm", ""), tools=(look,))
    ],
    ("turn", "`reflect=False`, done at once"): [
        Way(TurnEngine, {"max_rounds": (1, 2, 7)}, lambda o: ["done"], rounds_most,
            ("done", "I'll do that.", *(call("look", what=what) for what in range(5))), tools=(look,))
    ],
    ("turn", "`reflect=True`, done at once"): [
        Way(TurnEngine, {"max_rounds": (1, 2, 7)}, lambda o: ["done", REVIEW], lambda o: [*rounds_most(o), REVIEW],
            (REVIEW, POOR_REVIEW), {"reflect": True}, tools=(look,))
    ],
    ("goal-cycle", "no question to the user"): [
        Way(GoalCycleEngine, {"max_cycles": (1, 2, 5), "compress_every": (1, 2)}, lambda o: [GOAL_PLAN, "hm", GOAL_DONE],
            goal_most, (GOAL_PLAN, '{"input": {"what": #}}', PARTIAL, ADJUST, GOAL_DONE, '{"quality": "good"}', "hm"),
            {"compress_above": 1}, (look,))
    ],
    ("thread", "always"): [
        Way(ThreadEngine, {"max_turns": (1, 2, 7)}, lambda o: [FINAL], lambda o: [*["<self/>"] * (o.max_turns - 1), FINAL],
            (FINAL, "<self/>", SPAWN, "hm"))
    ],
    ("chain", "every step is a prompt"): [
        Way(ChainEngine, {"parts": (parts,)}, lambda o: ["x"] * o.parts, lambda o: ["x"] * o.parts, ("x", "hm #"),
            {"steps": ("Say {input}.",) * parts})
        for parts in (1, 3)
    ],
    ("map-reduce", '`split="model"`'): [
        Way(MapReduceEngine, WIDTHS, lambda o: ['["a"]', "x", "x"], lambda o: [list_items(o), *map_most(o)], LISTED)
    ],
    ("map-reduce", "no model splits, at least `max_items` items"): [
        Way(MapReduceEngine, WIDTHS, map_most, map_most, LISTED, {"items": ("a",) * 40})
    ],
    ("director-critic", "a model reviews"): [
        Way(DirectorCriticEngine, {"rounds": (rounds,)}, lambda o: ["draft", GOOD_REVIEW],
            lambda o: ["draft", BAD_REVIEW] * o.rounds, (GOOD_REVIEW, BAD_REVIEW, '{"feedback": "#", "score": 0.6}'),
            {"convergence": None if rounds == 3 else ScoreThreshold(max_rounds=rounds)})
        for rounds in (3, 1, 5)
    ],
    ("team", "the model splits"): [
        Way(TeamEngine, {"max_tasks": (1, 2, 10), "attempt": (1, 3)},
            lambda o: [split_tasks(1), *attempt(o, "x"), "x"],
            lambda o: [split_tasks(o.max_tasks), *attempt(o, "x") * o.max_tasks, "x"],
            (split_tasks(1), split_tasks(1, "do #")), tools=(look,))
    ],
    ("tree-of-thoughts", '`search="beam"`, `evaluate="value"`'): tree(BEAM, unusable, valued),
    ("tree-of-thoughts", '`search="beam"`, `evaluate="vote"`'): tree(BEAM, one_answer, voted, evaluate="vote"),
    ("tree-of-thoughts", '`search="depth-first"`'): tree(DEEP, unusable, deep, search="depth-first"),
}  # fmt: skip
ENDS = [(key, way) for key, ways in WAYS.items() for way in ways]


def named(given: Any) -> str:
    """A row's name for a test; of a way only what its rows do not tell."""
    return (
        "-".join(given)
        if isinstance(given, tuple)
        else str(given.grid.get("generate", ("",))[0])
    )


# --- the counts ---


def test_the_page_has_the_rows_that_are_tried_and_no_other() -> None:
    assert list(ROWS) == list(WAYS)
    assert {engine for engine, _ in ROWS} == {
        "react", "self-ask", "chain-of-thought", "reflexion", "critic", "plan-execute", "tree-of-thoughts", "turn",
        "goal-cycle", "thread", "chain", "map-reduce", "director-critic", "team",
    }  # fmt: skip


@pytest.mark.parametrize(("key", "way"), ENDS, ids=named)
async def test_both_ends_of_a_row_are_reached_by_runs_that_complete(
    key: tuple[str, str], way: Way
) -> None:
    for point in way.points():
        names = way.names(point)
        for end, formula in (
            (way.fewest, ROWS[key].fewest),
            (way.most, ROWS[key].most),
        ):
            result, provider = await way.run(end(SimpleNamespace(**names)), point)

            seen = (result.status, result.llm_calls, provider.left)
            assert seen == ("completed", value_of(formula, names), 0), (
                f"{formula} with {point}: {result.error}"
            )


def erratic(way: Way, model: Random) -> Callable[[Any], Any]:
    """A model that says a few of the lines over and over, in any order."""
    lines, numbers = (
        model.sample(way.lines, model.randint(1, min(4, len(way.lines)))),
        count(),
    )

    def say(request: Any) -> Any:
        line = model.choice(lines)
        return line.replace("#", str(next(numbers))) if isinstance(line, str) else line

    return say


@pytest.mark.parametrize("seeds", RANDOM_MODELS, ids=["some", "more"])
@pytest.mark.parametrize(("key", "way"), ENDS, ids=named)
async def test_a_random_model_cannot_leave_the_range(
    key: tuple[str, str], way: Way, seeds: range
) -> None:
    points = list(way.points())
    for seed in seeds:
        model = Random(seed)
        point = model.choice(points)
        names = way.names(point) | ({"attempt": 1} if "attempt" in point else {})
        names |= {"listed": 2} if names.get("generate") == "propose" else {}
        result, _ = await way.run(erratic(way, model), point)

        least, greatest = (
            value_of(ROWS[key].fewest, names),
            value_of(ROWS[key].most, names),
        )
        ended = (
            result.status != "completed"
        )  # then it may have done less, or have asked for a best answer
        assert result.llm_calls <= greatest + ended, f"{point}, seed {seed}"
        assert result.llm_calls >= least or ended, f"{point}, seed {seed}"


@pytest.mark.parametrize("key", ROWS, ids=named)
def test_the_figures_with_the_defaults_are_those_of_the_formulas(
    key: tuple[str, str],
) -> None:
    names = WAYS[key][0].names({})
    if key[0] == "react":
        names["max_iterations"] = Limits().max_iterations  # what `None` means

    assert (value_of(ROWS[key].fewest, names), value_of(ROWS[key].most, names)) == ROWS[
        key
    ].defaults


async def test_a_typed_answer_is_extracted_and_repaired_beside_the_count() -> None:
    class Found(BaseModel):
        value: int

    scripts: list[Script] = [
        [ENDING, '{"value": 7}'],
        [cut("more"), ENDING, "no JSON", "no JSON", '{"value": 7}'],
    ]
    results = [
        await ChainOfThoughtEngine(Runtime(ScriptedProvider(said)), answer=Found).run(
            "Q?"
        )
        for said in scripts
    ]

    fewest = value_of(
        ROWS["chain-of-thought", '`extract="always"`'].fewest, {"samples": 1, "wave": 5}
    )
    assert [result.answer for result in results] == ['{"value":7}'] * 2
    assert [result.llm_calls for result in results] == [
        fewest,
        1 + fewest + 2,
    ]  # a continuation, and two repairs


@pytest.mark.parametrize("episodes", [1, 3])
async def test_self_tests_that_are_never_written_are_asked_for_as_often_as_a_judge(
    episodes: int,
) -> None:
    script = ["pass", "no tests", "Better look."] * episodes
    runtime = Runtime(ScriptedProvider(script[:-1]), tools=[run_python])
    result = await ReflexionEngine(
        runtime, max_episodes=episodes, evaluator=SelfTests()
    ).run("Q?")

    formula = ROWS["reflexion", "a model judges; it reflects"].most
    assert result.llm_calls == value_of(
        formula, {"max_episodes": episodes, "attempt": 1}
    )


# --- what reads the page ---


@pytest.mark.parametrize(
    "formula",
    ["n.real", "__import__('os')", "1 if n else 2", "'a' * n", "lambda: n", "1.5 * n"],
)
def test_a_formula_is_arithmetic_and_nothing_else(formula: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        value_of(formula, {"n": 2})


def test_a_formula_is_evaluated_exactly() -> None:
    names = {"n": 5, "depth": 3}

    assert value_of("n + 2 * (n - 1) // 3", names) == 7
    assert value_of("ceil(n / 2) + min(n, 4) + max(n, 4)", names) == 12
    assert value_of("sum(2 ** level for level in range(1, depth + 1))", names) == 14
