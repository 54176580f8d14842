"""Opaque data in runs: of calls with withheld arguments it is in memory alone; thinking survives `Run.propose`."""

from typing import Any

from loopwright import LoopEngine, ReActEngine, Runtime, tool
from loopwright.messages import Completion, Reasoning, ToolCall
from loopwright.providers import Request
from loopwright.run import Run
from loopwright.security import REDACTED
from loopwright.testing import ScriptedProvider, crashed

PASSWORD, SEAL = "open sesame 7", "c2VhbA+/=="
BLOCK = {"thoughtSignature": SEAL}
THOUGHT = Reasoning("Hm.", "thinking", {"signature": SEAL}, "host")

got: list[str] = []


@tool
async def login(password: str) -> str:
    """Log in."""
    got.append(password)
    return "you are in"


def model(call_id: str) -> ScriptedProvider:
    """A model that logs in, and then answers."""
    call = ToolCall("login", {"password": PASSWORD}, call_id, "gemini", BLOCK, "host")

    def reply(request: Request) -> Any:
        has_result = request.conversation.messages[-1].role == "tool"
        return "done" if has_result else Completion(calls=(call,))

    return ScriptedProvider(reply)


def last_call(provider: ScriptedProvider) -> ToolCall:
    return provider.requests[-1].conversation.messages[-2].calls[0]


async def test_withheld_call_keeps_its_opaque_data_in_memory_until_a_resume() -> None:
    for call_id in ("c1", ""):  # a provider may leave the id out
        provider = model(call_id)
        runtime = Runtime(provider, tools=[login])
        result = await ReActEngine(runtime).run("Log in.", run_id=f"r{call_id}")
        entries = runtime.journal.read(f"r{call_id}")

        assert result.answer == "done"
        sent = last_call(provider)
        assert (sent.form, sent.block, sent.source) == ("gemini", BLOCK, "host")
        assert sent.arguments == {"password": REDACTED}
        assert SEAL not in "".join(entry.body.decode() for entry in entries)
        assert result.conversation.messages[-3].calls[0].form == ""

        kinds = [entry.kind for entry in entries]
        after_the_call = kinds.index("tool_finished") + 1
        again = model(call_id)
        resumed = Runtime(
            again, tools=[login], journal=crashed(entries, after_the_call)
        )
        result = await ReActEngine(resumed).resume(f"r{call_id}")

        assert result.answer == "done"
        assert last_call(again).form == ""


async def test_opaque_data_that_holds_the_secret_is_not_kept() -> None:
    provider = model("c1")
    call = ToolCall("login", {"password": PASSWORD}, "c1", "gemini", {"x": PASSWORD})
    provider = ScriptedProvider([Completion(calls=(call,)), "done"])

    await ReActEngine(Runtime(provider, tools=[login])).run("Log in.")

    assert last_call(provider) == ToolCall("login", {"password": REDACTED}, "c1")


class First(LoopEngine):
    """Makes the first call of each proposal alone."""

    name = "first-call"

    async def solve(self, run: Run) -> str:
        conversation = run.conversation
        while True:
            wanted = await run.reason(conversation)
            if wanted.answer is not None:
                return wanted.answer
            chosen = run.propose(
                *wanted.calls[:1], thought=wanted.thought, reasoning=wanted.reasoning
            )
            seen = await run.act(await run.gate(chosen))
            conversation = conversation.observe(chosen, seen)


async def test_thinking_survives_a_proposal_of_the_engine() -> None:
    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        return what

    calls = tuple(
        ToolCall("look", {"what": name}, name, "gemini", BLOCK, "host")
        for name in ("a", "b")
    )
    provider = ScriptedProvider(
        [Completion("I look.", calls, thought="I look.", reasoning=(THOUGHT,)), "done"]
    )
    runtime = Runtime(provider, tools=[look])

    result = await First(runtime).run("Look.", run_id="r")

    turn = provider.requests[-1].conversation.messages[1]
    assert (turn.content, turn.reasoning) == ("I look.", (THOUGHT,))
    assert turn.reasoning[0].source == "host"
    assert turn.calls == calls[:1]
    entries = runtime.journal.read("r")
    for keep in range(1, len(entries) + 1):
        again = Runtime(
            ScriptedProvider(lambda request: "done"),
            tools=[look],
            journal=crashed(entries, keep),
        )
        assert (await First(again).resume("r")).answer == result.answer
