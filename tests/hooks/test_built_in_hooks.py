"""The hooks that come with the library, each by its entry point."""

from typing import Any

import pytest

from loopwright import (
    Action,
    Allow,
    AllowAll,
    ConfigError,
    Deny,
    Limits,
    PolicyState,
    Price,
    Request,
    Runtime,
    Tool,
    ToolError,
    Usage,
    tool,
)
from loopwright.engines import TurnEngine
from loopwright.events import HookRan
from loopwright.gates import AllOf, ContentSafetyGate, InstantGate
from loopwright.hooks.completion_check import find_missing
from loopwright.hooks.model_selection import choose_model
from loopwright.messages import Completion
from loopwright.parsing.task_signals import read_signals
from loopwright.plugins import load_hook, plugins
from loopwright.testing import FakeClock, ScriptedProvider, call

NAMES = (
    "assessor", "completion-check", "cost", "loop-detection", "model-selection", "promise", "tool-selection",
)  # fmt: skip


@tool(effect="write", trusted=True, repeatable=True)
async def edit(path: str, text: str) -> str:
    """Edit a file."""
    return "edited"


@tool(effect="read", trusted=True, repeatable=True)
async def search(query: str) -> str:
    """Search."""
    return "nothing"


def run(runtime: Runtime, task: str = "Sky?", engine: str = "react", **options: Any) -> Any:  # fmt: skip
    return runtime.engine(engine, **options).run(task, run_id="r")


def build(*script: Any, tools: Any = (edit, search), **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(script), tools=tools, **options)


def told(runtime: Runtime) -> list[str]:
    """What hooks said in each request."""
    requests: list[Request] = runtime.provider.requests  # type: ignore[attr-defined]
    return [
        " ".join(one.content for one in request.conversation if one.origin == "hook")
        for request in requests
    ]


def ran(runtime: Runtime) -> list[HookRan]:
    entries = runtime.journal.read("r")
    return [one.event for one in entries if isinstance(one.event, HookRan)]


def test_each_hook_is_found_by_its_name_and_works_without_options() -> None:
    found = {name for name, claims in plugins("hooks").items() if claims[0].distribution == "loopwright"}  # fmt: skip

    assert found == {*NAMES}
    for name in NAMES:
        assert load_hook(name)().name == name
    runtime = build("Blue.", hooks=NAMES)
    assert runtime.engine("react").run_sync("Sky?").answer == "Blue."


# --- loop detection ---


async def test_loop_detection_warns_at_the_fifth_edit_of_a_file() -> None:
    edits = [call("edit", path="a.py", text=str(number)) for number in range(6)]
    others = [call("edit", path="b.py", text="x")]
    runtime = build(*edits[:4], *others, *edits[4:], "Done.", hooks=["loop-detection"])
    await run(runtime)

    warned = ["a.py" in text for text in told(runtime)]
    assert warned == [False] * 6 + [True, True]
    assert "edited a.py 5 times" in told(runtime)[6]


async def test_loop_detection_warns_of_searches_alone_and_of_own_words() -> None:
    own = "the colour of the evening sky"
    script = [
        Completion("x", calls=(call("search", query="sky"),), thought=f"I wonder about {own}."),
        call("search", query="sea"), call("search", query=own), "Blue.",
    ]  # fmt: skip
    runtime = build(*script, hooks=["loop-detection"])
    await run(runtime)

    assert "only searched" in told(runtime)[3]
    assert "your own words" in told(runtime)[3]
    assert told(runtime)[:3] == ["", "", ""]


# --- completion check and promise, in a turn ---


def test_completion_check_finds_the_parts_that_an_answer_leaves_out() -> None:
    task = "Please:\n1. name the capital of Norway\n2. describe the harbour\n3. count the bridges"  # fmt: skip

    assert find_missing(task, "The capital is Oslo.") == ["describe the harbour", "count the bridges"]  # fmt: skip
    assert find_missing(task, "The capital: Oslo. A harbour with boats, and 7 bridges.") == []  # fmt: skip
    assert find_missing("What is the capital?", "no") == []
    two = "How high is the mountain? And how deep is the valley?"
    assert find_missing(two, "The mountain has 4,546 m.") == ["And how deep is the valley?"]  # fmt: skip


async def test_completion_check_sends_an_answer_back_once() -> None:
    task = "- name the capital of Norway\n- describe its harbour"
    runtime = build("The capital is Oslo.", "The capital is Oslo, I said.", "never")
    result = await run(runtime, task, "turn", hooks=["completion-check"])

    assert result.answer == "The capital is Oslo, I said."
    assert "- describe its harbour" in told(runtime)[1]


async def test_a_promise_is_sent_back_once() -> None:
    runtime = build("I'll do it in a moment.", "I'll do it, really.", "never")
    result = await run(runtime, "Sky?", "turn", hooks=["promise"])

    assert (result.answer, result.llm_calls) == ("I'll do it, really.", 2)
    assert "Do it now" in told(runtime)[1]
    done = await run(build("I'll keep it short: the answer is 7. Done."), engine="turn", hooks=["promise"])  # fmt: skip
    assert done.llm_calls == 1


# --- cost ---


async def test_cost_tells_each_step_once_and_records_what_is_used() -> None:
    looks = [call("search", query=str(number)) for number in range(8)]
    runtime = build(
        *looks, "Blue.", hooks=["cost"], limits=Limits(max_llm_calls=10), clock=FakeClock()
    )  # fmt: skip
    await run(runtime)

    assert [bool(text) for text in told(runtime)] == [False] * 5 + [True] + [False] * 2 + [True]  # fmt: skip
    assert "50% of what this run may use is used (5 model calls" in told(runtime)[5]
    assert [(one.state["step"], one.state["llm_calls"]) for one in ran(runtime)] == [(0.5, 5), (0.8, 8)]  # type: ignore[index,call-overload]  # fmt: skip


async def test_cost_ends_a_run_that_costs_too_much() -> None:
    used = Usage(input_tokens=1_000, output_tokens=0)
    look = Completion("", calls=(call("search", query="sky"),), usage=used)
    model = ScriptedProvider([look, look, "Blue."])
    runtime = Runtime(
        model, tools=[search], hooks=[{"hook": "cost", "max_cost": 0.001}],
        prices={model.model: Price(input=1.0, output=1.0)},
    )  # fmt: skip
    result = await run(runtime)

    assert result.status == "aborted"
    assert "more than 0.001" in str(result.error)


# --- model selection ---

COMPLEX = (
    "first research the whole architecture of the microservices, then refactor the api endpoints and tests, then write the "
    "documentation and sources, and finally deploy the docker containers"
)


@pytest.mark.parametrize(
    ("task", "is_heavy", "least", "most"),
    [
        ("What is the capital of Norway?", False, 0.85, 1.0),
        ("fix the login bug", False, 0.65, 0.85),
        ("tell me a long story about a dog that lives in the mountains and walks to the sea", False, 0.0, 0.65),
        (COMPLEX, True, 0.85, 1.0),
    ],
)  # fmt: skip
def test_model_selection_is_as_sure_as_the_task_is_plain(
    task: str, is_heavy: bool, least: float, most: float
) -> None:
    choice = choose_model(read_signals(task))

    assert choice.is_heavy is is_heavy
    assert least <= choice.confidence < most


class Forbidding(InstantGate):
    """Forbids one model."""

    def __init__(self, name: str) -> None:
        self.version, self.name = name, name
        self.seen: list[tuple[Action, str]] = []

    def decide(self, action: Action, state: PolicyState) -> Any:
        self.seen.append((action, state.key))
        return Deny("not that one") if action.tool == self.name else Allow()


def with_models(**options: Any) -> tuple[Runtime, dict[str, ScriptedProvider]]:
    names = ("light", "medium", "heavy")
    models = {
        name: ScriptedProvider(lambda request: "Blue.", model=name) for name in names
    }
    hook = {"hook": "model-selection", "light": "light", "heavy": "heavy", "own": "medium"}  # fmt: skip
    runtime = Runtime(models["medium"], providers=models, hooks=[hook], **options)
    return runtime, models


def used(models: dict[str, ScriptedProvider]) -> list[str]:
    return [name for name, model in models.items() if model.requests]


@pytest.mark.parametrize(
    ("task", "chosen", "mode"),
    [
        ("What is the capital of Norway?", "light", "enforce"),
        ("fix the login bug", "light", "suggest"),
        ("tell me a long story about a dog that lives in the mountains and walks to the sea", "medium", "defer"),
        (COMPLEX, "heavy", "enforce"),
    ],
)  # fmt: skip
async def test_model_selection_enforces_suggests_or_defers_and_records_it(
    task: str, chosen: str, mode: str
) -> None:
    runtime, models = with_models()
    await run(runtime, task)
    [record] = ran(runtime)

    assert used(models) == [chosen]
    assert record.state["mode"] == mode  # type: ignore[index,call-overload]
    assert record.changed == (None if mode == "defer" else {"provider": chosen})


async def test_model_selection_never_chooses_a_model_that_policy_forbids() -> None:
    gate = Forbidding("model:light")
    runtime, models = with_models(gate=gate)
    result = await run(runtime, "What is the capital of Norway?")
    (action, key), *others = gate.seen
    assert (action.tool, action.call_id, action.effect, action.source, key, others) == (
        "model:light", "model:light", "read", "engine", "0", [],
    )  # fmt: skip

    assert (result.answer, used(models)) == ("Blue.", ["medium"])
    assert ran(runtime)[0].state == {"mode": "defer", "confidence": 0.95, "provider": "light"}  # fmt: skip


# --- tool selection and the assessor ---


def flaky(fails: bool, name: str) -> Tool:
    @tool(effect="read", name=name, trusted=True, repeatable=True)
    async def work(what: str) -> str:
        """Work."""
        if fails:
            raise ToolError(f"{what} is nowhere")
        return "found"

    return work


async def test_tool_selection_observes_ten_results_before_it_suggests() -> None:
    pairs = [[call("good", what=f"{n}"), call("bad", what=f"{n}")] for n in range(6)]
    tools = [flaky(False, "good"), flaky(True, "bad")]
    runtime = build(*pairs, "Blue.", tools=tools)
    await run(runtime, "Sky?", "turn", hooks=["tool-selection"])

    assert told(runtime)[:5] == [""] * 5
    assert "Tools that worked so far: good. Tools that mostly failed: bad." in told(runtime)[5]  # fmt: skip
    assert told(runtime)[6] == ""


async def test_the_assessor_advises_an_engine_without_an_assessment_of_its_own() -> (
    None
):
    runtime = build("Really?", hooks=["assessor"])
    await run(runtime, "delete all files")

    assert "Ask the user before you do anything (destructive)." in told(runtime)[0]
    assert ran(runtime)[0].state == {"decision": "ask_first", "confidence": 0.85}


@pytest.mark.parametrize(
    "hook",
    [
        {"hook": "cost", "steps": [2]},
        {"hook": "model-selection", "enforce": 0.5, "suggest": 0.6},
        {"hook": "tool-selection", "suggest": 7},
    ],
)
def test_options_out_of_range_are_refused_by_the_name_of_the_hook(hook: Any) -> None:
    with pytest.raises(ConfigError, match=hook["hook"]):
        build(hooks=[hook])


# --- content safety ---


async def answer_of(gate: Any, text: str) -> tuple[str, str | None]:
    result = await run(build(text, gate=AllOf(AllowAll(), gate)))
    return result.status, result.answer


async def test_content_safety_withholds_masks_and_fails_closed() -> None:
    gate = ContentSafetyGate(refuse=[r"nitro\w+"], mask=[r"\b\d{4}\b"])

    def break_down(text: str) -> Any:
        raise RuntimeError("no classifier")

    assert await answer_of(gate, "It is blue.") == ("completed", "It is blue.")
    assert await answer_of(gate, "Mix Nitroglycerin.") == ("failed", None)
    assert await answer_of(gate, "The code is 4711.") == ("completed", "The code is [removed].")  # fmt: skip
    broken = ContentSafetyGate(classify=break_down)
    assert await answer_of(broken, "It is blue.") == ("failed", None)
    strict = ContentSafetyGate(
        classify=lambda text: "secret" if "card" in text else "normal"
    )
    assert await answer_of(strict, "Ada's card is blue.") == ("failed", None)
    assert await answer_of(strict, "It is blue.") == ("completed", "It is blue.")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"refuse": "text"}, "refuse: must be a list of patterns"),
        ({"mask": ["("]}, "mask: holds a pattern that cannot be read"),
        ({"max_label": "loud"}, "max_label: must be one of"),
    ],
)
def test_a_bad_content_safety_gate_is_refused(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ContentSafetyGate(**options)


def test_the_turn_engine_has_three_hooks_by_default() -> None:
    assert TurnEngine(build()).hooks == ("completion-check", "loop-detection", "promise")  # fmt: skip
