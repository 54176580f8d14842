"""What an engine says on its way: the best answer so far, how far the conversation has come, facts in the result."""

import asyncio
import dataclasses

import pytest
from pydantic import Field

from loopwright import (
    Completion,
    ConfigError,
    Conversation,
    Limits,
    LoopEngine,
    PromptSet,
    ProviderError,
    ReActEngine,
    Request,
    Result,
    Run,
    Runtime,
    tool,
)
from loopwright.engine import ProviderName
from loopwright.events import FactNoted
from loopwright.testing import ScriptedProvider, call, crashed


@dataclasses.dataclass(frozen=True)
class Guess:
    """A fact."""

    text: str


class Guesser(LoopEngine):
    """Asks, and offers what it heard, until there is an end from outside."""

    name = "guesser"
    rounds: int | None = None
    guesses: bool = True
    oracle: ProviderName = None

    async def solve(self, run: Run) -> str:
        conversation = run.conversation
        for _ in run.iterations(self.rounds):
            said = await run.ask(conversation, provider=self.oracle)
            run.note(Guess(said))
            conversation = conversation.assistant(said).user("Sure?")
            run.keep(conversation)
            if self.guesses:
                run.offer(said)
        return await run.best_answer(conversation)


def said(result: Result) -> list[str]:
    return [message.content for message in result.conversation]


async def test_an_offered_answer_is_the_runs_at_a_limit_and_no_other_is_asked_for() -> (
    None
):
    parts = Runtime(ScriptedProvider(["one", "two"]), limits=Limits(max_iterations=2))
    result = await Guesser(parts).run("?")

    assert (result.answer, result.status, result.stop_reason, result.llm_calls) == (
        "two",
        "limit",
        "max_iterations",
        2,
    )
    assert said(result) == ["?", "one", "Sure?", "two", "Sure?", "two"]


async def test_an_offered_answer_outlives_a_failure() -> None:
    parts = Runtime(ScriptedProvider(["one", ProviderError("down")]))
    result = await Guesser(parts).run("?")

    assert (result.answer, result.status, result.stop_reason) == (
        "one",
        "failed",
        "provider_error",
    )
    with pytest.raises(ProviderError, match="down"):
        result.raise_for_status()


async def test_what_is_returned_counts_more_than_what_was_offered() -> None:
    parts = Runtime(ScriptedProvider(["one", "sure"]))
    result = await Guesser(parts, rounds=1).run("?")

    assert (result.answer, result.status) == ("sure", "limit")


async def test_without_an_offer_the_best_answer_is_asked_for_at_the_last_message() -> (
    None
):
    provider = ScriptedProvider(["one", "two", "two, I think"])
    result = await Guesser(
        Runtime(provider, limits=Limits(max_iterations=2)), guesses=False
    ).run("?")

    assert (result.answer, result.llm_calls) == ("two, I think", 3)
    assert [m.content for m in provider.requests[-1].conversation][:5] == [
        "?",
        "one",
        "Sure?",
        "two",
        "Sure?",
    ]


async def test_a_child_that_ends_early_hands_its_offer_and_its_own_facts_over() -> None:
    class Parent(LoopEngine):
        name = "parent"

        async def solve(self, run: Run) -> str:
            run.note(Guess("mine"))
            result = await run.delegate(Guesser(self.runtime), "guess")
            assert result.fact("Guess") == {"text": "two"}
            assert [fact.value for fact in result.facts] == [
                {"text": "one"},
                {"text": "two"},
            ]
            return f"{result.answer} {result.status}"

    parts = Runtime(ScriptedProvider(["one", "two"]), limits=Limits(max_iterations=2))
    result = await Parent(parts).run("?")

    assert result.answer == "two limit"
    assert result.facts == tuple(
        FactNoted("Guess", {"text": text}) for text in ("mine", "one", "two")
    )


async def test_facts_are_in_the_result_of_a_resumed_and_of_a_finished_run_alike() -> (
    None
):
    def speak() -> Runtime:
        lines = {1: "one", 3: "two", 5: "three"}
        return Runtime(
            ScriptedProvider(lambda request: lines[len(request.conversation)]),
            limits=Limits(max_iterations=3),
        )

    whole = speak()
    first = await Guesser(whole).run("?", run_id="r")
    assert [fact.value for fact in first.facts] == [
        {"text": "one"},
        {"text": "two"},
        {"text": "three"},
    ]
    assert (await Guesser(whole).resume("r")).facts == first.facts
    entries = whole.journal.read("r")
    for keep in range(1, len(entries)):
        again = speak()
        parts = Runtime(
            again.provider, limits=again.limits, journal=crashed(entries, keep)
        )
        resumed = await Guesser(parts).resume("r")

        assert (resumed.facts, resumed.answer, said(resumed)) == (
            first.facts,
            first.answer,
            said(first),
        )


async def test_a_fact_that_was_not_noted_is_none() -> None:
    result = await Guesser(Runtime(ScriptedProvider(["one"])), rounds=1).run("?")

    assert result.fact("Vote") is None


def test_the_name_of_a_provider_is_looked_up_when_the_engine_is_made() -> None:
    parts = Runtime(ScriptedProvider([]), providers={"wise": ScriptedProvider(["42"])})

    assert Guesser(parts, oracle="wise", rounds=1, guesses=False).oracle == "wise"
    with pytest.raises(
        ConfigError, match=r"^oracle: 'wiser' is not among .* has wise$"
    ):
        Guesser(parts, oracle="wiser")


async def test_an_engine_calls_a_tool_by_itself_through_the_gate() -> None:
    ran: list[str] = []

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look."""
        ran.append(what)
        return "blue"

    class Looker(LoopEngine):
        name = "looker"

        async def solve(self, run: Run) -> str:
            assert [spec.name for spec in run.tools] == ["look"]
            seen = await run.call(call("look", what="sky"))
            return seen.content

    result = await Looker(Runtime(ScriptedProvider([]), tools=[look])).run(
        Conversation.of("?")
    )

    assert (result.answer, ran) == ("blue", ["sky"])


class FallsSilent(ScriptedProvider):
    """Says its lines, and then nothing for ever."""

    async def complete(self, request: Request) -> Completion:
        if not self.left:
            await asyncio.Event().wait()
        return await super().complete(request)


async def test_an_offered_answer_outlives_an_abort() -> None:
    async with Guesser(Runtime(FallsSilent(["one"]))).start("?") as run:
        async for entry in run:
            if entry.key == "1":
                break
        result = await run.abort()

    assert (result.answer, result.status) == ("one", "aborted")


def test_prompts_given_as_a_field_are_completed_and_recorded_too() -> None:
    class Polite(LoopEngine):
        name = "polite"
        prompts: PromptSet = Field(
            default=PromptSet(ask="Please, {task}", thank="Thanks")
        )

        async def solve(self, run: Run) -> str:
            return await run.ask(self.prompts.fill("ask", task=run.task))

    engine = Polite(Runtime(ScriptedProvider([])), prompts=PromptSet(thank="Ta"))

    assert engine.prompts.texts == {"ask": "Please, {task}", "thank": "Ta"}
    assert engine.recorded_options() == ({"prompts": {"thank": "Ta"}}, ())
    with pytest.raises(ConfigError, match="there is no prompt 'thanks'"):
        Polite(Runtime(ScriptedProvider([])), prompts=PromptSet(thanks="Ta"))


async def test_an_option_that_no_journal_can_hold_is_a_config_error() -> None:
    class Named(LoopEngine):
        name = "named"
        title: str = ""

        async def solve(self, run: Run) -> str:
            return self.title

    with pytest.raises(ConfigError, match="an option of named is not Unicode text"):
        await Named(Runtime(ScriptedProvider([])), title="\ud800").run("?")


async def test_a_cut_reply_is_neither_an_answer_nor_a_best_answer() -> None:
    cut = Completion("Forty-", answer="Forty-", finish_reason="length")
    provider = ScriptedProvider([cut, "Forty-two."])
    assert (await ReActEngine(Runtime(provider)).run("?")).answer == "Forty-two."
    assert (
        "limit of output tokens"
        in provider.requests[1].conversation.messages[-1].content
    )

    result = await Guesser(
        Runtime(ScriptedProvider(["one", cut])), rounds=1, guesses=False
    ).run("?")
    assert (result.answer, result.status) == (None, "limit")
