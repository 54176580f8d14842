"""The default policy cuts a conversation in jumps, masks never move back, and nothing is parted or lost."""

import dataclasses
import itertools
import random
from typing import Any

import pytest
from pydantic_core import to_json

from journal_positions import cut_after
from loopwright import (
    ConfigError,
    Limits,
    Message,
    ReActEngine,
    Result,
    Runtime,
    ToolCall,
    ToolError,
    tool,
)
from loopwright.errors import ContextTooLong
from loopwright.events import ModelRequested, RunStarted, encode_event
from loopwright.messages import Conversation, check_call_results, encode_message
from loopwright.providers import Request
from loopwright.providers.context import Masking, Stages, View, Window
from loopwright.testing import ScriptedProvider, call, crashed

ENDLESS = dict.fromkeys(
    ("max_iterations", "max_llm_calls", "max_tool_calls", "max_tokens", "timeout")
)


@tool(effect="read", repeatable=True, trusted=True)
async def look(n: int, size: int = 400) -> str:
    """Look something up."""
    return f"{n} " + "x" * size


@tool(effect="read", trusted=True)
async def fail(n: int) -> str:
    """Fail in a way of its own."""
    raise ToolError(f"failure {n} " + f"{chr(96 + n) * 3} " * 75)


def runtime_of(provider: ScriptedProvider, tokens: int, **options: Any) -> Runtime:
    limits = Limits(context_tokens=tokens, **ENDLESS)  # type: ignore[arg-type]
    return Runtime(provider, tools=[look, fail], limits=limits, **options)


async def run(
    script: list[Any], tokens: int, **options: Any
) -> tuple[Result, ScriptedProvider, Runtime]:
    provider = ScriptedProvider([*script, "done"])
    runtime = runtime_of(provider, tokens, **options)
    return await ReActEngine(runtime).run("The task."), provider, runtime


def looks(count: int, size: int = 400) -> list[Any]:
    return [call("look", n=n, size=size) for n in range(count)]


def encode(request: Request) -> list[bytes]:
    """The bytes of a request that a policy could change."""
    tools = to_json([[one.name, one.description, one.schema] for one in request.tools])
    return [tools, *(one.encoded(encode_message) for one in request.conversation)]


def texts(request: Request) -> list[str]:
    return [message.content for message in request.conversation]


def measure_sharing(requests: list[Request], tokens: int) -> tuple[float, float]:
    """How much of each request the one before began with, and how much of the window is used once it was full."""
    shared = sent = 0
    used: list[float] = []
    for before, after in itertools.pairwise(requests):
        for one, other in zip(before.conversation, after.conversation, strict=False):
            if one != other:
                break
            shared += len(one.encoded(encode_message))
        sent += after.conversation.size
        share = after.conversation.size / 4 / tokens
        if used or share > 0.95:
            used.append(share)
    return shared / sent, sum(used) / len(used) if used else 1.0


@pytest.mark.parametrize(
    ("length", "size", "tokens"),
    [(120, 400, 8_000), (800, 400, 8_000), (200, 2_000, 8_000), (90, 1_000, 4_000), (90, 8_000, 32_000)],
)  # fmt: skip
async def test_requests_share_their_beginning_and_use_the_window(length: int, size: int, tokens: int) -> None:  # fmt: skip
    """A result may take a sixteenth of the window; of longer ones, what is new alone is nearly a seventh of a request."""
    _, provider, _ = await run(looks(length, size), tokens)

    shared, used = measure_sharing(provider.requests, tokens)
    assert shared >= 0.85
    assert used >= 0.6
    assert all(one.conversation.size <= 4 * tokens + 3 for one in provider.requests)


async def test_masks_never_move_back_and_name_where_the_result_is() -> None:
    _, provider, _ = await run(looks(12, size=1_200), 3_000)

    masked = [
        {text for text in texts(request) if "kept as" in text}
        for request in provider.requests
    ]
    first = next(found for found in masked if found)
    assert '[result of look, 1.2 kB, kept as 1/0#0: read it with recall("1/0#0")]' in first  # fmt: skip
    for request in provider.requests:
        whole = {text.split()[0] for text in texts(request) if text.endswith("x")}
        gone = {text.split("1/")[1].split("#")[0] for text in texts(request) if "kept as" in text}  # fmt: skip
        assert not whole & gone


async def test_requests_that_fit_are_as_they_were() -> None:
    _, fitting, _ = await run(looks(6), 8_000)
    _, endless, _ = await run(looks(6), 800_000)

    assert [encode(r) for r in fitting.requests] == [
        encode(r) for r in endless.requests
    ]
    assert all("recall" not in [t.name for t in r.tools] for r in fitting.requests)


async def test_recall_is_offered_once_something_is_left_out() -> None:
    _, provider, _ = await run(looks(12), 1_000)

    offered = ["recall" in [t.name for t in r.tools] for r in provider.requests]
    trimmed = [any("kept as" in text or "left out" in text for text in texts(r)) for r in provider.requests]  # fmt: skip
    assert offered == trimmed
    assert offered[0] is False
    assert offered[-1] is True


async def test_a_tool_of_that_name_is_the_application_s_own() -> None:
    @tool(name="recall", effect="read", trusted=True)
    async def own(what: str) -> str:
        """Recall a product."""
        return "recalled"

    provider = ScriptedProvider([*looks(12), "done"])
    limits = Limits(context_tokens=1_000)
    runtime = Runtime(provider, tools=[look, own], limits=limits)
    await ReActEngine(runtime).run("The task.")

    last = provider.requests[-1]
    assert [t.name for t in last.tools] == ["look", "recall"]
    assert not any("recall(" in text for text in texts(last))
    assert any("left out to save space" in text for text in texts(last))


async def test_newest_failures_stay_and_repeated_errors_go() -> None:
    script = [call("fail", n=n) for n in (1, 2, 2, 3, 4)]
    _, provider, _ = await run([*script, *looks(40)], 4_000)

    last = texts(provider.requests[-1])
    kept = [text.split("failure ")[1][0] for text in last if "failure " in text]
    assert {"2", "3", "4"} <= set(kept)
    assert kept.count("2") == 1


async def test_an_oversized_newest_result_is_cut_and_kept() -> None:
    _, provider, _ = await run([call("look", n=1, size=40_000)], 2_000)

    last = texts(provider.requests[-1])[-1]
    assert last.startswith("1 xxx")
    assert "of 40002 characters of the result of look, kept as 1/0#0" in last
    assert provider.requests[-1].conversation.size <= 8_000


async def test_too_long_once_cuts_to_half_and_twice_ends_the_run() -> None:
    too_long = ContextTooLong("8k is all I have")
    again, provider, _ = await run([*looks(8), too_long], 8_000)
    ended, _, _ = await run([*looks(8), too_long, too_long], 8_000)

    sizes = [request.conversation.size for request in provider.requests[-2:]]
    assert again.answer == "done"
    assert sizes[1] <= sizes[0] / 2
    assert (ended.status, ended.stop_reason) == ("failed", "context_overflow")


async def test_resumed_run_sends_what_it_would_have_sent() -> None:
    script = looks(30)
    result, before, runtime = await run(script, 1_500)
    entries = runtime.journal.read(result.run_id)
    for occurrence in (9, 17, 29):
        cut = cut_after(entries, "tool_finished", occurrence)
        after = ScriptedProvider([*script[occurrence:], "done"])
        resumed = runtime_of(after, 1_500, journal=crashed(entries, cut))

        again = await ReActEngine(resumed).resume(result.run_id)

        assert (again.answer, again.trimmed) == ("done", result.trimmed)
        assert [one.conversation for one in after.requests] == [
            one.conversation for one in before.requests[occurrence:]
        ]


async def test_run_that_began_before_is_cut_by_the_rules_of_then() -> None:
    script = looks(12)
    result, _, runtime = await run(script, 1_000)
    entries = runtime.journal.read(result.run_id)
    started = entries[0].event
    assert isinstance(started, RunStarted)
    early = encode_event(dataclasses.replace(started, revision=2))
    older = [dataclasses.replace(entries[0], body=early), *entries[1:]]
    after = ScriptedProvider(["done"])
    journal = crashed(older, cut_after(older, "tool_finished", 12))
    await ReActEngine(runtime_of(after, 1_000, journal=journal)).resume(result.run_id)

    last = texts(after.requests[-1])
    assert "[an earlier result, left out to save space]" in last
    assert "recall" not in [t.name for t in after.requests[-1].tools]


async def test_log_says_each_time_how_much_was_left_out() -> None:
    result, _, runtime = await run(looks(20), 2_000)

    lines = [
        entry.event.summary()
        for entry in runtime.journal.read(result.run_id)
        if isinstance(entry.event, ModelRequested)
    ]
    assert "left out" not in lines[0]
    assert "masked" in lines[-1]
    assert result.trimmed == sum("masked" in one or "left out" in one for one in lines)


def random_conversation(rng: random.Random) -> Conversation:
    """A conversation of turns of every form, with a task somewhere."""
    messages = [Message("system", "Be brief.")] if rng.random() < 0.5 else []
    messages.append(Message("user", "The task. " + "t" * rng.randint(0, 200)))
    for number in range(rng.randint(1, 30)):
        kind = rng.choice(["calls", "calls", "calls", "said", "nudge"])
        if kind == "said":
            messages.append(Message("assistant", "s" * rng.randint(0, 300), origin="model"))  # fmt: skip
        elif kind == "nudge":
            messages.append(Message("user", "Go on.", origin="runtime"))
        else:
            calls = tuple(ToolCall("look", {"n": i}, f"c{number}.{i}") for i in range(rng.randint(1, 3)))  # fmt: skip
            messages.append(Message("assistant", "", calls, origin="model"))
            messages += [
                Message("tool", "r" * rng.randint(0, 900), call_id=one.id, origin="tool")
                for one in calls
            ]  # fmt: skip
    return Conversation(messages)


@dataclasses.dataclass
class Bench:
    """What a policy is given, without a run."""

    conversation: Conversation
    room: int
    previous: View | None = None
    can_recall: bool = True

    @property
    def room_bytes(self) -> int:
        return self.room * 4

    @property
    def target(self) -> int:
        return self.room // 2

    def count(self, what: Any) -> int:
        if isinstance(what, View):
            return what.size // 4
        return Conversation().add(*what).size // 4

    def mask(self, index: int) -> Message:
        return dataclasses.replace(self.conversation.messages[index], content="[masked]")  # fmt: skip

    def fence(self, text: str) -> str:
        return text

    def is_failure(self, index: int) -> bool:
        return index % 7 == 0

    async def ask(self, prompt: str, into: Any, *, covers: int = 0) -> Any:
        raise AssertionError


def shown(view: View, at: Bench) -> list[Message]:
    """The messages of a view, without its notes."""
    masked = set(view.masked)
    return [
        at.mask(index) if index in masked else at.conversation.messages[index]
        for index in view.indexes
    ]


@pytest.mark.faults
async def test_of_2000_random_cuts_none_parts_a_call_or_loses_the_task() -> None:
    rng = random.Random(8)
    stages: list[Any] = [Masking(), Window(), Stages((Masking(keep=2), Window(recent=2)))]  # fmt: skip
    cuts = 0
    while cuts < 2_000:
        conversation = random_conversation(rng)
        at = Bench(conversation, rng.randint(20, 2_000))
        view = await rng.choice(stages).view(at)
        cuts += not view.is_whole

        messages = shown(view, at)
        check_call_results(messages)
        assert any(m.content.startswith("The task.") for m in messages)
        assert messages[-1].role == conversation.messages[-1].role
        systems = [m for m in conversation if m.role == "system"]
        assert [m for m in messages if m.role == "system"] == systems
        grown = Bench(conversation.user("More?"), at.room, view)
        later = await Stages((Masking(), Window())).view(grown)
        assert set(view.masked) <= set(later.masked) | (set(view.indexes) - set(later.indexes))  # fmt: skip
        assert set(later.indexes) <= {*view.indexes, len(conversation)}


@pytest.mark.parametrize("name", ["masking", "window"])
async def test_policies_have_names_for_runtime_and_agent(name: str) -> None:
    provider = ScriptedProvider([*looks(20), "done"])
    runtime = runtime_of(provider, 100_000)
    limits = Limits(context_tokens=2_000)
    agent = runtime.agent("looker", limits=limits, context=name)

    result = await agent.run("The task.")

    assert result.trimmed > 0
    assert any("masked" in t or "kept as" in t for t in texts(provider.requests[-1])) is (name == "masking")  # fmt: skip


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="context: must be one of anchored, masking, window"
    ):
        Runtime(ScriptedProvider([]), context="sliding")
