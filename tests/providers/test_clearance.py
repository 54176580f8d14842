"""Clearance: what a provider may not see is not sent to it, and goes to the next one that may."""

from typing import Any

import pytest

from loopwright import ConfigError, ReActEngine, Request, Result, Runtime, tool
from loopwright.errors import ClearanceRefused
from loopwright.gates import SupervisorGate
from loopwright.labels import Label, LabelledText
from loopwright.messages import Conversation
from loopwright.providers import ClearedProvider, FallbackProvider, TextTools
from loopwright.testing import ScriptedProvider, call


@tool(effect="read", label="sensitive")
def patient() -> str:
    """Read a record."""
    return "Ada has the flu"


def run(provider: Any, task: Any = "Who is ill?", **options: Any) -> Result:
    return ReActEngine(Runtime(provider, tools=[patient], **options)).run_sync(task)


def test_a_provider_is_not_sent_what_is_above_its_clearance() -> None:
    outside = ScriptedProvider([call("patient"), "Ada."])
    result = run(ClearedProvider(outside, "normal"))

    assert (result.status, result.stop_reason) == ("failed", "provider_error")
    assert isinstance(result.error, ClearanceRefused)
    assert "the request is sensitive, and it may see up to normal" in str(result.error)  # fmt: skip
    assert len(outside.requests) == 1
    assert run(ClearedProvider(outside.__class__([call("patient"), "Ada."]), "sensitive")).answer == "Ada."  # fmt: skip


def test_a_request_goes_to_the_next_that_may_see_it_streaming_too() -> None:
    for deltas in (False, True):
        outside = ScriptedProvider([call("patient")])
        house = ScriptedProvider(["Ada."])
        both = FallbackProvider(ClearedProvider(outside, "normal"), ClearedProvider(house, "secret"))  # fmt: skip
        engine = ReActEngine(Runtime(both, tools=[patient]))
        result = engine.run_sync("Who?") if not deltas else _stream(engine)

        assert result.answer == "Ada."
        assert (len(outside.requests), len(house.requests)) == (1, 1)


def _stream(engine: ReActEngine) -> Result:
    async def work() -> Result:
        async with engine.start("Who?", deltas=True) as handle:
            return await handle.result()

    import asyncio

    return asyncio.run(work())


@pytest.mark.parametrize("dialect", ["react", "json", "xml"])
def test_the_label_passes_a_text_dialect(dialect: str) -> None:
    script = ['Action: patient\nAction Input: {}', '{"tool": "patient", "arguments": {}}']  # fmt: skip
    outside = ScriptedProvider([script[dialect == "json"], "Final Answer: Ada."])
    cleared = ClearedProvider(outside, "normal")
    task = LabelledText("Ada has the flu. Who is ill?", label="sensitive")
    assert isinstance(run(TextTools(cleared, dialect), task).error, ClearanceRefused)
    assert outside.requests == []


async def test_a_request_without_a_label_counts_as_secret() -> None:
    provider = ClearedProvider(ScriptedProvider(["Hi."]), "sensitive")
    with pytest.raises(ClearanceRefused):
        await provider.complete(Request(Conversation.of("Hi.")))


def test_a_supervisor_is_sent_no_call_above_its_clearance() -> None:
    @tool
    def send(text: str) -> str:
        """Send."""
        return "sent"

    judge = ScriptedProvider(['{"verdict": "allow", "reason": "fine"}'])
    model = ScriptedProvider([call("patient"), call("send", text="Ada"), "No."])
    runtime = Runtime(
        model,
        tools=[patient, send],
        gate=SupervisorGate(ClearedProvider(judge, "normal"), policy="Be kind."),
    )
    result = ReActEngine(runtime).run_sync("Go.")
    assert (result.answer, judge.requests) == ("No.", [])


def test_a_clearance_is_a_label_of_a_provider() -> None:
    wrong: Any = "top"
    with pytest.raises(ConfigError):
        ClearedProvider(ScriptedProvider([]), wrong)
    provider: Any = "openai"
    with pytest.raises(ConfigError, match="provider: must be a provider"):
        ClearedProvider(provider, "normal")
    label: Label = "normal"
    own = ClearedProvider(ScriptedProvider(["x"]), label)
    assert (own.name, own.model) == ("scripted", own.model)
    assert "normal" in repr(own)
