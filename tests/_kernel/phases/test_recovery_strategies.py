"""A third party's recovery strategy: it does through its context what the built-in ones do, and replays like them."""

import dataclasses
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from journal_positions import cut_after
from loopwright import Allow, ConfigError, DenyAll, ReActEngine, Runtime, tool
from loopwright.errors import ToolError
from loopwright.events import CallDeadLettered, RecoveryTriggered
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from loopwright.tools import (
    CallOutcome,
    DeadLetter,
    RecoveryContext,
    RecoveryStrategy,
    Retry,
    Tool,
)

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def no_calls_yet() -> None:
    CALLS.clear()


@dataclasses.dataclass(frozen=True)
class Mirror(RecoveryStrategy):
    """Ask another server, with the address of the failed call changed."""

    name: ClassVar[str] = "mirror"
    host: str

    def applies(self, context: RecoveryContext) -> bool:
        return context.failed.failure == "raised"

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        arguments = {**context.failed.call.arguments, "host": self.host}
        return await context.call("fetch", arguments)


@dataclasses.dataclass(frozen=True)
class Default(RecoveryStrategy):
    """Give a fixed value."""

    name: ClassVar[str] = "default"
    value: str

    def applies(self, context: RecoveryContext) -> bool:
        return True

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        return context.succeed(self.value)


@dataclasses.dataclass(frozen=True)
class Broken(RecoveryStrategy):
    """Fail in one of its methods."""

    name: ClassVar[str] = "broken"
    where: str

    def applies(self, context: RecoveryContext) -> bool:
        if self.where == "applies":
            raise RuntimeError("no idea")
        return True

    async def recover(self, context: RecoveryContext) -> Any:
        if self.where == "recover":
            raise ToolError("no idea")
        return "not an outcome"


@dataclasses.dataclass(frozen=True)
class Repeating(RecoveryStrategy):
    """Repeat the call without being a `Retry`."""

    name: ClassVar[str] = "repeating"

    def applies(self, context: RecoveryContext) -> bool:
        return True

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        return await context.repeat()


@dataclasses.dataclass(frozen=True)
class Twice(RecoveryStrategy):
    """Make two calls in a step, or one in place of a call that may have taken effect."""

    name: ClassVar[str] = "twice"

    def applies(self, context: RecoveryContext) -> bool:
        return True

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        await context.call("fetch", {"host": "b"})
        return await context.call("fetch", {"host": "c"})


class Guess(BaseModel):
    """What a model guesses."""

    host: str


@dataclasses.dataclass(frozen=True)
class Guessing(RecoveryStrategy):
    """Let the model name a host."""

    name: ClassVar[str] = "guessing"

    def applies(self, context: RecoveryContext) -> bool:
        return not context.failed.may_have_taken_effect

    async def recover(self, context: RecoveryContext) -> CallOutcome:
        guess = await context.ask_model("Which host works?", Guess)
        if guess is None:
            return context.outcome
        return await context.call(context.failed.call.name, {"host": guess.host})


def fetch(*recovery: RecoveryStrategy, effect: Any = "read") -> Tool:
    async def body(host: str) -> str:
        """Fetch from a host."""
        CALLS.append(host)
        if host == "a":
            raise OSError("down")
        return f"page of {host}"

    return tool(name="fetch", effect=effect, recovery=recovery)(body)


def runtime(made: Tool, *script: Any, **parts: Any) -> Runtime:
    provider = ScriptedProvider([call("fetch", host="a"), *script, "done"])
    return Runtime(provider, tools=[made], clock=FakeClock(), **parts)


def events(parts: Runtime, kind: type) -> list[Any]:
    entries = parts.journal.read("r")
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


async def run(made: Tool, *script: Any, **parts: Any) -> tuple[Runtime, str]:
    """Run to the end; return what the model read about the call."""
    services = runtime(made, *script, **parts)
    result = await ReActEngine(services).run("go", run_id="r")
    read = [one for one in result.conversation.messages if one.role == "tool"]
    return services, read[-1].content if read else str(result.error)


async def test_a_strategy_makes_a_gated_substitute_call_and_leaves_an_event() -> None:
    parts, read = await run(fetch(Mirror("b")))

    [triggered] = events(parts, RecoveryTriggered)
    assert (triggered.strategy, triggered.attempt) == ("mirror", 1)
    assert CALLS == ["a", "b"]
    assert read.startswith('[fetch failed; it was called with {"host":"b"} instead]')


async def test_strategies_of_a_third_party_and_built_in_ones_are_tried_in_order() -> (
    None
):
    parts, _ = await run(fetch(Mirror("a"), DeadLetter()))

    assert [one.strategy for one in events(parts, RecoveryTriggered)] == [
        "mirror",
        "dead_letter",
    ]
    assert len(events(parts, CallDeadLettered)) == 1


async def test_a_strategy_gives_an_outcome_of_its_own() -> None:
    _, read = await run(fetch(Default("no page today")))

    assert "no page today" in read


@pytest.mark.parametrize("where", ["applies", "recover", "outcome"])
async def test_a_strategy_that_fails_leaves_the_failure_as_it_is(where: str) -> None:
    _, read = await run(fetch(Broken(where)))

    assert (CALLS, "OSError: down" in read) == (["a"], True)


@pytest.mark.parametrize("strategy", [Repeating(), Twice()])
async def test_a_context_that_is_misused_ends_the_run(
    strategy: RecoveryStrategy,
) -> None:
    parts = runtime(fetch(strategy))
    result = await ReActEngine(parts).run("go", run_id="r")

    assert (result.status, result.stop_reason) == ("failed", "engine_error")
    assert strategy.name in str(result.error)


async def test_no_call_is_made_in_place_of_one_that_may_have_taken_effect() -> None:
    parts = runtime(fetch(Mirror("b"), effect="write"))
    result = await ReActEngine(parts).run("go", run_id="r")

    assert (CALLS, result.status) == (["a"], "failed")
    assert "may have taken effect" in str(result.error)


async def test_a_strategy_asks_the_model_of_the_run() -> None:
    _, read = await run(fetch(Guessing()), '{"host": "b"}')

    assert CALLS == ["a", "b"]
    assert read.endswith("page of b")


@pytest.mark.parametrize("strategy", [Mirror("b"), Guessing()], ids=lambda s: s.name)
async def test_a_run_cut_off_anywhere_has_the_same_outcome_and_repeats_nothing(
    strategy: RecoveryStrategy,
) -> None:
    def script(request: Any) -> Any:
        messages = request.conversation.messages
        if "Which host" in messages[-1].content or "Which host" in str(messages):
            return '{"host": "b"}'
        return "done" if messages[-1].role == "tool" else call("fetch", host="a")

    def make(journal: Any = None) -> Runtime:
        return Runtime(
            ScriptedProvider(script),
            tools=[fetch(strategy)],
            clock=FakeClock(),
            journal=journal,
        )

    whole = make()
    expected = await ReActEngine(whole).run("go", run_id="r")
    entries = whole.journal.read("r")
    begun = cut_after(entries, "recovery_triggered")
    for keep in range(begun, len(entries)):
        CALLS.clear()
        again = make(crashed(entries, keep))
        result = await ReActEngine(again).resume("r")

        assert result.answer == expected.answer
        assert [one.content for one in result.conversation.messages] == [
            one.content for one in expected.conversation.messages
        ]
        assert [one.strategy for one in events(again, RecoveryTriggered)] == [
            strategy.name
        ]
        assert "a" not in CALLS


async def test_the_gate_decides_about_a_substitute_call() -> None:
    class OnlyA(DenyAll):
        async def evaluate(self, action: Any, state: Any) -> Any:
            if action.arguments.get("host") == "a":
                return Allow()
            return await super().evaluate(action, state)

    _, read = await run(fetch(Mirror("b")), gate=OnlyA())

    assert CALLS == ["a"]
    assert "denied" in read


@dataclasses.dataclass(frozen=True)
class Impatient(Retry):
    """A `Retry` with another pause: it repeats the call as that does."""

    def delay(self, earlier: int) -> float:
        return 0.0


async def test_a_subclass_of_a_built_in_strategy_keeps_its_name_and_rights() -> None:
    parts, _ = await run(fetch(Impatient(max_attempts=3)))

    assert CALLS == ["a", "a", "a"]
    assert [one.strategy for one in events(parts, RecoveryTriggered)] == [
        "retry",
        "retry",
    ]


@dataclasses.dataclass(frozen=True)
class Impostor(Mirror):
    """A strategy with the name of a built-in one."""

    name: ClassVar[str] = "retry"


@dataclasses.dataclass(frozen=True)
class Nameless(Mirror):
    """A strategy without a name."""

    name: ClassVar[str] = ""


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        (
            Impostor("b"),
            "'fetch': recovery: Impostor.name: 'retry' is the name of Retry",
        ),
        (Nameless("b"), "'fetch': recovery: Nameless.name: must be a text"),
    ],
)
def test_a_name_that_is_taken_or_missing_is_refused(
    strategy: RecoveryStrategy, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        fetch(strategy)
