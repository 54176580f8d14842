"""What model calls are for: every built-in engine says it in a word, which journals and traces show."""

from collections.abc import Callable
from importlib.metadata import distribution
from typing import Any

from loopwright import (
    CriticEngine,
    LoopEngine,
    PlanExecuteEngine,
    ReflexionEngine,
    Request,
    Runtime,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.engines import SelfTests
from loopwright.events import ModelRequested
from loopwright.testing import ScriptedProvider
from programs import PROGRAMS, look

PURPOSES = {
    "chain": {"step"},
    "chain-of-thought": {"think", "extract"},
    "critic": {"draft", "critique", "revise"},
    "goal-cycle": {"goal", "input", "evaluate", "decide", "memory", "answer"},
    "director-critic": {"draft", "review"},
    "map-reduce": {"split", "map", "reduce"},
    "plan-execute": {"plan", "step", "join", "answer"},
    "react": set[str](),
    "reflexion": {"judge", "reflect", "tests"},
    "self-ask": {"follow_up", "sub_answer", "answer"},
    "team": {"split", "join"},
    "thread": set[str](),
    "tree-of-thoughts": {"propose", "score", "vote", "answer"},
    "turn": {"question", "reflection"},
}
"""What the calls of each engine are for; a call of `Run.reason`, of whichever engine, needs no word."""


@tool(effect="read")
def run_python(code: str) -> str:
    """Run a program."""
    return code[:0] + "nothing"


def by_phrase(lines: dict[str, str], otherwise: str) -> Callable[[Request], Any]:
    """A model that says what fits the first phrase that is in the last message."""

    def model(request: Request) -> Any:
        told = request.conversation.messages[-1].content
        return next(
            (line for phrase, line in lines.items() if phrase in told), otherwise
        )

    return model


MORE: list[tuple[Callable[[Runtime], LoopEngine], Callable[[Request], Any]]] = [
    (
        lambda parts: parts.engine("goal-cycle", compress_every=1, compress_above=1),
        by_phrase({
            "Plan how": '{"steps": [{"skill": "look"}]}', "Prepare": '{"input": "sky", "working_memory": "grey"}',
            "A step": '{"quality": "partial"}', "Decide how": '{"action": "adjust", "new_plan": [{"skill": "look"}]}',
        }, '{"answer": "blue"}'),
    ),
    (lambda parts: parts.engine("goal-cycle"), by_phrase({
        "Plan how": '{"steps": [{"skill": "look"}]}', "Prepare": '{"input": "sky"}', "A step": '{"quality": "good"}',
    }, '{"answer": "blue"}')),
    (lambda parts: parts.engine("self-ask", max_follow_ups=1), by_phrase({}, "Follow up: Which colour?")),
    (lambda parts: parts.engine("chain", steps=("Say: {input}",)), by_phrase({}, "blue")),
    (lambda parts: parts.engine("director-critic"), by_phrase({"critic": '{"feedback": "", "score": 1}'}, "blue")),
    (lambda parts: parts.engine("map-reduce"), by_phrase({"List the items": '{"value": ["sky"]}'}, "blue")),
    (lambda parts: parts.engine("team"), by_phrase(
        {"Split the task": '{"value": [{"agent": "react", "task": "Look."}]}'}, "blue"
    )),
    (PlanExecuteEngine, by_phrase({"Plan how": "Plan: say\n#E1 = LLM[Which colour?]"}, "blue")),
    (lambda parts: ReflexionEngine(parts, evaluator=SelfTests()), by_phrase({"assert": "assert x() == 1"}, "x = 1")),
    (lambda parts: CriticEngine(parts, max_checks=1), by_phrase(
        {"look a claim up": "Claim: sky\nTool: look\nTool Input: sky", "Evidence:": "Revised answer: blue"}, "grey"
    )),
    (
        lambda parts: TreeOfThoughtsEngine(parts, generate="propose", evaluate="vote"),
        by_phrase({}, "THOUGHT: a\nTHOUGHT: b"),
    ),
    (
        lambda parts: parts.engine("turn", reflect=True),
        by_phrase({"has to be asked": "Which?", "Look back": '{"confidence": 1, "quality": 1}'}, "blue"),
    ),
]  # fmt: skip


async def say(question: str) -> str:
    """What the user says."""
    return "all of them"


async def asked_for(engine: LoopEngine, parts: Runtime) -> set[str]:
    """What the questions of a run are for."""
    task = "delete all files" if engine.name == "turn" else "Which colour?"
    result = await engine.run(task)
    entries = parts.journal.read(result.run_id)
    requests = [
        entry.event for entry in entries if isinstance(entry.event, ModelRequested)
    ]
    assert requests
    assert {
        request.purpose
        for request in requests
        if request.verb in ("reason", "best_answer")
    } <= {""}
    return {request.purpose for request in requests if request.verb == "ask"}


async def test_every_call_of_a_built_in_engine_names_a_documented_purpose() -> None:
    found: dict[str, set[str]] = {name: set() for name in PURPOSES}

    for name, program in PROGRAMS.items():
        if name in (
            "tiny",
            "react-as-tool",
        ):  # a stranger's; one with other runtimes inside
            continue
        parts = Runtime(
            ScriptedProvider(program.model),
            tools=program.tools,
            approver=program.approver,
        )
        engine = program.engine(parts)
        found[engine.name] |= await asked_for(engine, parts)
    for make, model in MORE:
        parts = Runtime(ScriptedProvider(model), tools=[look, run_python], user=say)
        engine = make(parts)
        found[engine.name] |= await asked_for(engine, parts)

    assert found == PURPOSES


def test_no_built_in_engine_is_left_out() -> None:
    points = distribution("loopwright").entry_points
    built_in = {point.name for point in points if point.group == "loopwright.engines"}

    assert built_in == set(PURPOSES)
