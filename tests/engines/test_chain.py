"""Chains: each step is given the result of the one before."""

from typing import Any

import pytest

from loopwright import ConfigError, Limits, MemoryJournal, Runtime
from loopwright.engines import ChainEngine
from loopwright.testing import ScriptedProvider, crashed


def test_each_step_reads_the_result_of_the_one_before() -> None:
    model = ScriptedProvider(["a long text", "kurz", "Fertig."])
    runtime = Runtime(model)
    runtime.agent("translator", instructions="You translate into German.")
    engine = runtime.engine(
        "chain",
        steps=("Write about {input}", "translator", "Polish {input}, for {task}"),
    )
    result = engine.run_sync("the Dom", run_id="r")
    asked = [request.conversation.messages[-1].content for request in model.requests]

    assert result.answer == "Fertig."
    assert asked[0] == "Write about the Dom"
    assert "This is step 2 of 3" in asked[1]
    assert "a long text" in asked[1]
    assert asked[2] == "Polish kurz, for the Dom"
    assert model.requests[1].system == "You translate into German."
    assert [(f.value["number"], f.value["by"], f.value["content"]) for f in result.facts if isinstance(f.value, dict)] == [
        (1, "model", "a long text"), (2, "translator", "kurz"), (3, "model", "Fertig."),
    ]  # fmt: skip


def test_an_engine_that_is_first_gets_the_conversation_as_it_stands() -> None:
    model = ScriptedProvider(["one", "two"])
    runtime = Runtime(model)
    ChainEngine(
        runtime, steps=(runtime.engine("react"), runtime.engine("react"))
    ).run_sync("Go.")

    assert [len(request.conversation) for request in model.requests] == [1, 2]
    assert model.requests[0].conversation.messages[-1].content == "Go."


def test_braces_in_a_result_stay_text() -> None:
    model = ScriptedProvider(["{task} {0} %s", "done"])
    Runtime(model).engine("chain", steps=("A {input}", "B {input}")).run_sync("Go.")

    assert model.requests[1].conversation.messages[-1].content == "B {task} {0} %s"


def test_at_a_limit_the_answer_is_the_result_of_the_last_step_done() -> None:
    runtime = Runtime(
        ScriptedProvider(["one", "two"]),
        limits=Limits(max_llm_calls=1, best_effort=False),
    )
    result = runtime.engine("chain", steps=("A {input}", "B {input}")).run_sync("Go.")

    assert (result.status, result.answer) == ("limit", "one")


async def test_nested_engines_in_steps_are_rebuilt_from_the_journal() -> None:
    runtime = Runtime(ScriptedProvider(["one", "two"]), journal=MemoryJournal())
    inner = runtime.engine("chain", steps=("A {input}",))
    engine = runtime.engine("chain", steps=(inner, "B {input}"))
    await engine.run("Go.", run_id="r")
    entries = runtime.journal.read("r")
    for keep in range(1, len(entries)):
        replied = sum(entry.kind == "model_replied" for entry in entries[:keep])
        left = ["one", "two"][replied:]
        again = Runtime(ScriptedProvider(left), journal=crashed(entries, keep))

        assert (await again.resume("r")).answer == "two"


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ((), "steps"),
        (("Write {topic}",), "steps.1: a prompt has {input} and may have {task}, got {topic}; write {{ for a literal brace"),
        (("A {input}", "{task}"), "steps.2: a prompt has {input}"),
        (("A {input",), "single brace"),
        ((7,), "steps"),
    ],
)  # fmt: skip
def test_bad_steps_are_refused_by_name(steps: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Runtime(ScriptedProvider([])).engine("chain", steps=steps)

    assert problem in str(caught.value)


def test_agents_that_work_for_each_other_are_refused_when_defined() -> None:
    runtime = Runtime(ScriptedProvider([]))
    runtime.agent("boss", engine=ChainEngine(runtime, steps=("painter",)))
    with pytest.raises(ConfigError) as caught:
        runtime.agent("painter", engine=ChainEngine(runtime, steps=("boss",)))

    assert str(caught.value) == (
        "steps.1: painter would work for itself in painter > boss > painter; take another agent"
    )


async def test_an_agent_too_deep_is_refused_before_any_step() -> None:
    model = ScriptedProvider([])
    runtime = Runtime(model)
    runtime.agent("d")
    for name, of in (("c", "d"), ("b", "c"), ("a", "b")):
        runtime.agent(name, engine=ChainEngine(runtime, steps=("First {input}", of)))
    with pytest.raises(ConfigError) as caught:
        runtime.agent("top", engine=ChainEngine(runtime, steps=("Do {input}", "a")))

    assert "at most 3 engines may work below one another, got chain > a > b > c > d" in str(caught.value)  # fmt: skip
    assert model.requests == []
