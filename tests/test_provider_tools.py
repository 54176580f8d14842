"""Provider-side tools in runs: policy decides before each request, replies that used one are untrusted and counted."""

from typing import Any

import pytest

from loopwright import (
    Allow,
    ConfigError,
    Deny,
    Limits,
    LoopEngine,
    Price,
    ReActEngine,
    Runtime,
    Suspend,
    tool,
)
from loopwright.events.effects import GateDecided, ModelReplied
from loopwright.gates import Action, Ask, InstantGate, PolicyState
from loopwright.labels import Label
from loopwright.messages import Completion, Source, ToolCall, Usage
from loopwright.providers import Capabilities, FallbackProvider, ProviderTool, Request
from loopwright.run import Run
from loopwright.testing import ScriptedProvider, crashed

SEARCH = ProviderTool("web_search")
CODE = ProviderTool("code_interpreter")
FOUND = (Source("https://example.org/a", "A"),)
ABLE = Capabilities(provider_tools=("web_search", "code_interpreter"))


def searched(text: str, times: int = 1, calls: tuple[ToolCall, ...] = ()) -> Completion:
    answer = None if calls else text
    used = ("web_search",) * times
    return Completion(
        text, calls, answer, usage=Usage(10, 5), provider_calls=used, sources=FOUND
    )


class Policy(InstantGate):
    """Notes the actions, and decides by a table."""

    version = "policy-1"

    def __init__(self, **decisions: Any) -> None:
        self.seen: list[tuple[Action, PolicyState]] = []
        self._decisions = decisions

    def decide(self, action: Action, state: PolicyState) -> Any:
        self.seen.append((action, state))
        name = action.tool.replace(":", "_")
        return self._decisions.get(name, Allow())


def script(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(replies, capabilities=ABLE)


def offered(provider: ScriptedProvider) -> list[list[str]]:
    return [[one.kind for one in r.provider_tools] for r in provider.requests]


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


LOOK = ToolCall("look", {"what": "sky"}, "c1")


async def test_policy_decides_before_each_request_that_offers_one() -> None:
    provider, policy = script(searched("I look.", calls=(LOOK,)), "done"), Policy()
    runtime = Runtime(provider, tools=[look, SEARCH, CODE], gate=policy)

    result = await ReActEngine(runtime).run("x", run_id="r")

    assert result.answer == "done"
    assert offered(provider) == [["web_search", "code_interpreter"]] * 2
    actions = [action for action, _ in policy.seen]
    assert [a.tool for a in actions] == [
        "provider:web_search",
        "provider:code_interpreter",
        "look",
        "provider:web_search",
        "provider:code_interpreter",
    ]
    assert [dict(a.arguments) for a in actions if a.outbound] == [{}] * 4
    assert not actions[2].outbound
    # What it found is third-party text, which the run may pass on by whatever it does next.
    assert [("untrusted" in a.labels) for a in actions] == [False, False] + [True] * 3
    decided = [e.key for e in runtime.journal.read("r") if isinstance(e.event, GateDecided)]  # fmt: skip
    assert decided == ["0~p0#0", "0~p1#0", "0#0", "1~p0#0", "1~p1#0"]


async def test_denied_one_is_not_offered_and_nothing_else_happens() -> None:
    provider = script("done")
    policy = Policy(provider_web_search=Deny("no web"))
    runtime = Runtime(provider, tools=[SEARCH, CODE], gate=policy)

    result = await ReActEngine(runtime).run("x")

    assert (result.answer, offered(provider)) == ("done", [["code_interpreter"]])


async def test_person_can_be_asked_and_the_run_waits() -> None:
    policy = Policy(provider_web_search=Ask("May it search?"))
    provider = ScriptedProvider(lambda request: "done", capabilities=ABLE)
    runtime = Runtime(provider, tools=[SEARCH], gate=policy, approver=Suspend())
    engine = ReActEngine(runtime)

    waiting = await engine.run("x", run_id="r")
    assert (waiting.status, provider.requests) == ("waiting", [])
    [question] = waiting.pending
    assert (question.tool, question.key) == ("provider:web_search", "0~p0#0")

    await runtime.control("r").approve(question.key)
    result = await engine.resume("r")
    assert (result.answer, offered(provider)) == ("done", [["web_search"]])


async def test_uses_count_as_tool_calls_and_cost() -> None:
    prices = {"script": Price(input=1.0, output=1.0, provider_calls={"web_search": 0.01})}  # fmt: skip
    provider = script(searched("I look.", 3, calls=(LOOK,)), "done")
    runtime = Runtime(provider, tools=[look, SEARCH], prices=prices)

    result = await ReActEngine(runtime).run("x", run_id="r")

    assert result.tool_calls == 4
    assert result.usage.cost == pytest.approx(0.03 + 30e-6)
    asked = [r.max_provider_calls for r in provider.requests]
    assert asked == [200, 196]


async def test_none_is_offered_without_a_tool_call_left() -> None:
    provider = script(searched("I look.", 2, calls=(LOOK,)), "done")
    limits = Limits(max_tool_calls=3)
    runtime = Runtime(provider, tools=[look, SEARCH], limits=limits)

    result = await ReActEngine(runtime).run("x")

    assert (result.answer, offered(provider)) == ("done", [["web_search"], []])


async def test_none_is_offered_once_something_sensitive_was_read() -> None:
    class Sensitive:
        def label(self, text: str) -> Label:
            return "sensitive" if "saw" in text else "normal"

    provider = script(Completion(calls=(LOOK,)), "done")
    runtime = Runtime(provider, tools=[look, SEARCH], classifier=Sensitive())

    result = await ReActEngine(runtime).run("x")

    assert (result.answer, offered(provider)) == ("done", [["web_search"], []])


async def test_sources_are_recorded_and_come_with_the_proposal() -> None:
    class Citing(LoopEngine):
        name = "citing"

        async def solve(self, run: Run) -> str:
            proposal = await run.reason(run.conversation)
            return " ".join(source.url for source in proposal.sources)

    runtime = Runtime(script(searched("It is so.")), tools=[SEARCH])
    result = await Citing(runtime).run("x", run_id="r")

    assert result.answer == "https://example.org/a"
    [reply] = [e.event for e in runtime.journal.read("r") if isinstance(e.event, ModelReplied)]  # fmt: skip
    assert (reply.completion.sources, reply.completion.provider_calls) == (
        FOUND,
        ("web_search",),
    )


async def test_a_crash_after_any_entry_keeps_label_and_count() -> None:
    def reply(request: Request) -> Any:
        has_result = request.conversation.messages[-1].role == "tool"
        return "done" if has_result else searched("I look.", 2, calls=(LOOK,))

    runtime = Runtime(ScriptedProvider(reply, capabilities=ABLE), tools=[look, SEARCH])
    result = await ReActEngine(runtime).run("x", run_id="r")
    entries = runtime.journal.read("r")

    for keep in range(1, len(entries) + 1):
        provider, policy = ScriptedProvider(reply, capabilities=ABLE), Policy()
        again = Runtime(
            provider, tools=[look, SEARCH], gate=policy, journal=crashed(entries, keep)
        )
        resumed = await ReActEngine(again).resume("r")
        assert (resumed.answer, resumed.tool_calls) == ("done", result.tool_calls), keep
        looks = [action for action, _ in policy.seen if action.tool == "look"]
        assert all("untrusted" in action.labels for action in looks), keep


async def test_samples_offer_them_after_one_decision() -> None:
    class Voting(LoopEngine):
        name = "voting"

        async def solve(self, run: Run) -> str:
            samples = await run.samples(run.conversation, 3)
            return samples[0].answer or ""

    for most in (1, 8):
        able = Capabilities(provider_tools=("web_search",), max_samples=most)
        provider = ScriptedProvider(lambda _: searched("so"), capabilities=able)
        policy = Policy()
        runtime = Runtime(provider, tools=[SEARCH], gate=policy)
        result = await Voting(runtime).run("x", run_id="r")
        assert (result.answer, result.tool_calls) == ("so", 3)
        assert [action.tool for action, _ in policy.seen] == ["provider:web_search"]
        entries = runtime.journal.read("r")
        for keep in range(1, len(entries) + 1):
            again = Runtime(provider, tools=[SEARCH], journal=crashed(entries, keep))
            assert (await Voting(again).resume("r")).answer == "so"


async def test_questions_without_tools_offer_none() -> None:
    class Asking(LoopEngine):
        name = "asking"

        async def solve(self, run: Run) -> str:
            await run.reason(run.conversation, tools=False)
            return await run.ask("And?")

    provider, policy = script("one", "two"), Policy()
    await Asking(Runtime(provider, tools=[SEARCH], gate=policy)).run("x")

    assert offered(provider) == [[], []]
    assert policy.seen == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": "browser"}, "kind: must be one of web_search"),
        ({"kind": "file_search"}, "stores: a file search needs"),
        ({"kind": "web_search", "max_uses": 0}, "max_uses: must be at least 1"),
    ],
)
def test_what_no_api_takes_is_refused(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ProviderTool(**options)


async def test_provider_that_cannot_run_one_is_refused_at_the_start() -> None:
    runtime = Runtime(ScriptedProvider(["done"]), tools=[SEARCH])

    with pytest.raises(ConfigError, match="cannot run 'web_search' by itself"):
        await ReActEngine(runtime).run("x")
    with pytest.raises(
        ConfigError, match=r"ProviderTool\('web_search'\) is given twice"
    ):
        Runtime(script("done"), tools=[SEARCH, ProviderTool("web_search", max_uses=2)])


async def test_fallback_runs_what_all_of_its_members_run() -> None:
    both = FallbackProvider(script("one"), script("two"))
    other = FallbackProvider(script("one"), ScriptedProvider(["two"]))

    assert both.capabilities.provider_tools == ABLE.provider_tools
    assert other.capabilities.provider_tools == ()
