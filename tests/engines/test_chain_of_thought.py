"""Chain of Thought: the second call, typed answers, examples, votes, cut reasoning, fallback; a conversation each."""

import asyncio
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from conversations import roles_and_contents
from loopwright import (
    ChainOfThoughtEngine,
    Completion,
    ConfigError,
    Conversation,
    DenyAll,
    LimitReached,
    Limits,
    LoopEngine,
    Message,
    ProviderError,
    Request,
    Result,
    Run,
    Runtime,
    Usage,
)
from loopwright.engines.chain_of_thought import PROMPTS, Example
from loopwright.engines.self_consistency import Vote
from loopwright.events import Entry, ModelFailed, ModelReplied, ModelRequested
from loopwright.testing import ScriptedProvider, crashed

STEPS = PROMPTS["steps"].text
SUM = "3 dozen is 36, less 1 is 35."


def parts(script: Any, **options: Any) -> Runtime:
    return Runtime(ScriptedProvider(script), **options)


def asked(runtime: Runtime) -> list[Request]:
    return runtime.provider.requests  # type: ignore[attr-defined]


def cut(text: str) -> Completion:
    """A reply that the token limit cut off, as a provider tells of it."""
    return Completion(
        text, problem="The reply was cut.", finish_reason="length", usage=Usage(10, 5)
    )


def by_sample(*samples: list[Any]) -> Callable[[Request], Any]:
    """Answers of samples that run at the same time: the n-th to open gets the n-th list, whatever the others do."""
    opened: list[Any] = list(samples)
    lines: dict[str, Any] = {}

    def answer(request: Request) -> Any:
        talk = [
            message for message in request.conversation if message.role == "assistant"
        ]
        if not talk:
            first, *rest = opened.pop(0)
            lines[
                first
                if isinstance(first, str)
                else first.text
                if isinstance(first, Completion)
                else ""
            ] = rest
            return first
        rest = lines[talk[0].content]
        return rest.pop(0)

    return answer


def final(*answers: str) -> Callable[[Request], Any]:
    """Samples of one call each, that end with these answers in turn."""
    return by_sample(
        *[
            [f"Reasoning {n}.\nFINAL ANSWER: {answer}"]
            for n, answer in enumerate(answers)
        ]
    )


async def voted(runtime: Runtime, **options: Any) -> tuple[Result, Vote | None]:
    result = await ChainOfThoughtEngine(runtime, **options).run("How many?", run_id="r")
    return result, vote_of(result)


def vote_of(result: Result) -> Vote | None:
    fact = result.fact("Vote")
    return None if fact is None else Vote(**fact)


# --- the second call ---


async def test_it_reasons_and_then_extracts_the_answer_and_the_conversation_holds_both() -> (
    None
):
    runtime = parts([SUM, "35"])
    result = await ChainOfThoughtEngine(runtime).run(
        "3 dozen less 1?", system="Be exact."
    )

    opening = [("system", "Be exact."), ("user", "3 dozen less 1?"), ("user", STEPS)]
    trigger = PROMPTS.fill("extract", wanted=PROMPTS["text"].text)
    assert [roles_and_contents(request) for request in asked(runtime)] == [
        opening,
        [*opening, ("assistant", SUM), ("user", trigger)],
    ]
    assert (result.answer, result.status, result.llm_calls) == ("35", "completed", 2)
    assert [(m.role, m.content) for m in result.conversation] == [
        *opening[:2],
        ("assistant", SUM),
        ("assistant", "35"),
    ]
    assert all(
        request.tools == () and request.sampling.temperature is None
        for request in asked(runtime)
    )


@pytest.mark.parametrize(
    ("reasoning", "answer"),
    [
        ("Step 1: Think.\nFINAL ANSWER: 42", "42"),
        ("final answer: yes", "yes"),
        ("Straße ß ßß FINAL ANSWER: 8", "8"),
        ("FINAL_ANSWER: 8", "8"),
        ("FINAL ANSWER: 1\nNo, wait.\nFINAL ANSWER: 2", "2"),
        ("First.\n**FINAL ANSWER: 42**", "42"),
        ("First.\n**Final answer:** **42**", "42"),
        ("I was born in 1815, so the answer is Ada Lovelace.", "Ada Lovelace"),
    ],
)
async def test_the_second_call_is_left_out_where_the_reasoning_ends_with_its_answer(
    reasoning: str, answer: str
) -> None:
    result = await ChainOfThoughtEngine(parts([reasoning])).run("Q?")

    assert (result.answer, result.llm_calls) == (answer, 1)
    assert result.conversation.messages[1].content == reasoning


@pytest.mark.parametrize(
    "reasoning",
    [
        "FINAL ANSWER: 41\nWait, that forgets one. It is 42.",
        "So the answer is 6 times 7.",
        "If the answer is 41, then one is missing.",
        "The answer is not 41.",
        "Could it be that the answer is 41?",
        "I shall write `FINAL ANSWER: 41` at the end.\nSix rows of seven.",
        "```\nFINAL ANSWER: 41\n```\nThat was the form.",
        "FINAL ANSWER: forty-two",
    ],
)
async def test_what_is_not_surely_the_answer_at_the_end_goes_to_the_second_call(
    reasoning: str,
) -> None:
    result = await ChainOfThoughtEngine(parts([reasoning, "42"]), answer="number").run(
        "Q?"
    )

    assert (result.answer, result.llm_calls) == ("42", 2)


async def test_always_makes_the_second_call() -> None:
    result = await ChainOfThoughtEngine(
        parts(["FINAL ANSWER: 41", "42"]), extract="always"
    ).run("Q?")

    assert (result.answer, result.llm_calls) == ("42", 2)


# --- types ---


@pytest.mark.parametrize(
    ("kind", "reply", "answer"),
    [
        ("number", "$1,234.50.", "1234.50"),
        ("number", "6 × 7 = 42", "42"),  # noqa: RUF001
        ("number", "-5 degrees", "-5"),
        ("letter", "The answer is (c).", "C"),
        ("yes_no", "**No**, because the sun is a star.", "no"),
        ("text", "**Paris.**", "Paris."),
    ],
)
async def test_an_answer_is_of_its_type(kind: Any, reply: str, answer: str) -> None:
    result = await ChainOfThoughtEngine(
        parts(["Some thoughts.", reply]), answer=kind
    ).run("Q?")

    assert (result.answer, result.llm_calls) == (answer, 2)


async def test_a_reply_of_another_type_goes_back_once_with_the_reason() -> None:
    runtime = parts(["Some thoughts.", "between 3 and 4", "3.5"])
    result = await ChainOfThoughtEngine(runtime, answer="number").run("Q?")

    number = PROMPTS["number"].text
    assert (result.answer, result.llm_calls) == ("3.5", 3)
    assert roles_and_contents(asked(runtime)[2])[-2:] == [
        ("assistant", "between 3 and 4"),
        ("user", PROMPTS.fill("again", wanted=number)),
    ]


async def test_a_reply_without_content_is_asked_for_again_without_an_empty_message() -> (
    None
):
    runtime = parts(["Some thoughts.", cut(""), "3.5"])
    result = await ChainOfThoughtEngine(runtime, answer="number").run("Q?")

    assert result.answer == "3.5"
    assert [m.role for m in asked(runtime)[2].conversation][-2:] == ["user", "user"]


async def test_reasoning_that_cannot_be_used_and_was_not_cut_fails_the_run() -> None:
    result = await ChainOfThoughtEngine(
        parts([Completion("", problem="The reply is empty.")])
    ).run("Q?")

    assert (result.answer, result.status, result.stop_reason, result.llm_calls) == (
        None,
        "failed",
        "invalid_output",
        1,
    )


@pytest.mark.parametrize("reply", ["I cannot tell.", cut("It is 3"), "FINAL ANSWER:"])
async def test_an_answer_that_cannot_be_read_twice_running_is_none(reply: Any) -> None:
    runtime = parts(["Some thoughts.", reply, reply])
    result = await ChainOfThoughtEngine(runtime, answer="number").run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        None,
        "failed",
        "unreadable",
    )
    assert (result.llm_calls, result.conversation.messages[-1].content) == (
        3,
        "Some thoughts.",
    )


class Price(BaseModel):
    """A price."""

    amount: float
    currency: str = Field(alias="in")


async def test_a_pydantic_model_is_a_type_of_answer_and_votes() -> None:
    euros, dollars = '{"amount": 3, "in": "EUR"}', '{"amount": 3, "in": "USD"}'
    script = by_sample(
        ["a", euros], ["b", dollars], ["c", '{ "in":"EUR", "amount":3.0 }']
    )
    result, vote = await voted(parts(script), answer=Price, samples=3, wave=1)

    assert json.loads(result.answer or "") == {"amount": 3.0, "in": "EUR"}
    assert vote == Vote(
        {result.answer: 2, '{"amount":3.0,"in":"USD"}': 1}, result.answer, 2 / 3, 3, 3
    )


async def test_reasoning_that_ends_with_the_models_json_needs_no_second_call() -> None:
    reasoning = 'It costs 3 euros.\nFINAL ANSWER: {"amount": 3, "in": "EUR"}'
    result = await ChainOfThoughtEngine(parts([reasoning]), answer=Price).run(
        "How much?"
    )

    assert (result.answer, result.llm_calls) == ('{"amount":3.0,"in":"EUR"}', 1)


async def test_the_callers_output_model_costs_nothing_where_it_is_the_type_of_answer() -> (
    None
):
    runtime = parts(["It costs 3 euros.", '{"amount": 3, "in": "EUR"}'])
    result = await ChainOfThoughtEngine(runtime, answer=Price).run(
        "How much?", output=Price
    )

    assert (result.output.currency, result.llm_calls) == ("EUR", 2)


async def test_a_fallback_and_a_best_answer_are_read_as_the_model_too() -> None:
    reserved = parts(
        ["It costs 3 euros.", '{"amount": 3, "in": "EUR"}'],
        limits=Limits(max_llm_calls=2),
    )
    other = second('{"amount": 4, "in": "EUR"}')
    unread = ChainOfThoughtEngine(
        parts(["It costs.", "?", "?", "?"]), answer=Price, fallback=other
    )

    assert (
        await ChainOfThoughtEngine(reserved, answer=Price).run("Q?")
    ).answer == '{"amount":3.0,"in":"EUR"}'
    assert (await unread.run("Q?")).answer == '{"amount":4.0,"in":"EUR"}'


async def test_the_callers_output_model_is_made_of_the_answer_in_sight_of_the_reasoning() -> (
    None
):
    runtime = parts(["It costs 3 euros.", "3 euros", '{"amount": 3, "in": "EUR"}'])
    result = await ChainOfThoughtEngine(runtime).run("How much?", output=Price)

    assert (result.output, result.llm_calls) == (
        Price.model_validate({"amount": 3, "in": "EUR"}),
        3,
    )
    assert ("assistant", "It costs 3 euros.") in roles_and_contents(asked(runtime)[2])


# --- examples, prompts, sampling ---


async def test_examples_stand_between_the_system_message_and_the_callers_history() -> (
    None
):
    runtime = parts(["2 and 2.\nFINAL ANSWER: 4"])
    history = Conversation(
        [
            Message("system", "Be exact."),
            Message("user", "Hi"),
            Message("assistant", "Hello"),
        ]
    )
    shown = (Example("1 + 1?", "One more than one.", "2"),)
    result = await ChainOfThoughtEngine(runtime, answer="number", examples=shown).run(
        history.user("2 + 2?")
    )

    assert result.answer == "4"
    assert roles_and_contents(asked(runtime)[0]) == [
        ("system", "Be exact."),
        ("user", "1 + 1?"),
        ("assistant", "One more than one.\n\nFINAL ANSWER: 2"),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("user", "2 + 2?"),
        ("user", STEPS),
    ]


async def test_prompts_can_be_replaced() -> None:
    runtime = parts([SUM, "35"])
    prompts = PROMPTS.override(
        steps="Denk nach.", extract="Also? {wanted}", text="nur die Antwort"
    )
    await ChainOfThoughtEngine(runtime, prompts=prompts).run("Q?")

    assert [roles_and_contents(request)[-1][1] for request in asked(runtime)] == [
        "Denk nach.",
        "Also? nur die Antwort",
    ]


@pytest.mark.parametrize(
    ("options", "temperatures"),
    [
        ({}, [None, None]),
        ({"temperature": 0.2}, [0.2, 0.0]),
        ({"samples": 2, "wave": 1}, [0.7, 0.0]),
        ({"samples": 2, "wave": 1, "temperature": 1.0}, [1.0, 0.0]),
    ],
)
async def test_reasoning_is_sampled_warm_where_samples_vote_and_the_answer_is_not(
    options: dict[str, Any], temperatures: list[float | None]
) -> None:
    runtime = parts([SUM, "35"])
    await ChainOfThoughtEngine(runtime, **options).run("Q?")

    assert [request.sampling.temperature for request in asked(runtime)] == temperatures


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"samples": 0}, "samples"),
        ({"wave": 0}, "wave"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_continuations": -1}, "max_continuations"),
        ({"min_agreement": 1.5}, "min_agreement"),
        ({"temperature": -1}, "temperature"),
        ({"answer": "colour"}, "answer"),
        ({"extract": "never"}, "extract"),
        (
            {"answer": "number", "examples": (Example("Q?", "R.", "many"),)},
            "examples.0: its answer is not the answer as",
        ),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ChainOfThoughtEngine(parts([]), **options)


# --- cut reasoning ---


@pytest.mark.parametrize("kind", ["number", "text"])
async def test_reasoning_that_was_cut_is_continued_and_no_answer_is_read_across_the_seam(
    kind: Any,
) -> None:
    runtime = parts([cut("Six rows.\nFINAL ANSWER: 4"), "2", "42"])
    result = await ChainOfThoughtEngine(runtime, answer=kind).run("Q?")

    assert (result.answer, result.llm_calls) == ("42", 3)
    assert roles_and_contents(asked(runtime)[1])[-2:] == [
        ("assistant", "Six rows.\nFINAL ANSWER: 4"),
        ("user", PROMPTS["go_on"].text),
    ]
    assert result.conversation.messages[1].content == "Six rows.\nFINAL ANSWER: 4\n2"


async def test_an_empty_continuation_brings_no_end() -> None:
    runtime = parts([cut("Six rows.\nFINAL ANSWER: 4"), "", "42"])
    result = await ChainOfThoughtEngine(runtime, answer="number").run("Q?")

    assert (result.answer, result.llm_calls) == ("42", 3)
    assert "cut off" in roles_and_contents(asked(runtime)[2])[-1][1]


async def test_a_continuation_that_ends_with_the_answer_needs_no_second_call() -> None:
    result = await ChainOfThoughtEngine(
        parts([cut("Six rows of"), "seven.\nFINAL ANSWER: 42"])
    ).run("Q?")

    assert (result.answer, result.llm_calls) == ("42", 2)


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_reasoning_that_stays_cut_is_marked_cut_and_never_read_as_an_answer(
    most: int,
) -> None:
    runtime = parts([*[cut("FINAL ANSWER: 4")] * (1 + most), "42"])
    result = await ChainOfThoughtEngine(
        runtime, max_continuations=most, answer="number"
    ).run("Q?")

    trigger = PROMPTS.fill("extract_from_cut", wanted=PROMPTS["number"].text)
    assert (result.answer, result.llm_calls) == ("42", 2 + most)
    assert roles_and_contents(asked(runtime)[-1])[-1] == ("user", trigger)


async def test_reasoning_without_content_leaves_no_empty_message() -> None:
    runtime = parts([cut(""), cut(" "), "42"])
    result = await ChainOfThoughtEngine(runtime).run("Q?")

    assert result.answer == "42"
    assert [m.role for m in asked(runtime)[-1].conversation] == ["user", "user", "user"]


# --- self-consistency ---


async def test_the_majority_of_the_samples_wins_and_the_agreement_is_noted() -> None:
    result, vote = await voted(
        parts(final("18", "17", "$18.00", "16", "18")), answer="number", samples=5
    )

    assert result.answer == "18"
    assert vote == Vote({"18": 3, "17": 1, "16": 1}, "18", 0.6, 5, 5)
    assert [m.content for m in result.conversation] == [
        "How many?",
        "Reasoning 0.\nFINAL ANSWER: 18",
        "18",
    ]


async def test_of_equals_the_first_answer_wins() -> None:
    result, vote = await voted(parts(final("b", "a", "a", "b")), samples=4)

    assert (result.answer, vote) == ("b", Vote({"b": 2, "a": 2}, "b", 0.5, 4, 4))


@pytest.mark.parametrize(
    ("answers", "asked_for"),
    [
        ("aaaaaaaaaa", 6),  # 6 of 10: nobody can overtake
        ("aabaabaaba", 8),
        ("ababababab", 10),
        ("abcdefghij", 10),
    ],
)
async def test_sampling_stops_between_waves_when_the_vote_is_decided(
    answers: str, asked_for: int
) -> None:
    runtime = parts(final(*answers))
    _, vote = await voted(runtime, samples=10, wave=2)

    assert vote is not None
    assert (vote.asked, len(asked(runtime))) == (asked_for, asked_for)
    assert all(
        roles_and_contents(request) == [("user", "How many?"), ("user", STEPS)]
        for request in asked(runtime)
    )


async def test_the_vote_so_far_is_noted_after_each_wave() -> None:
    result, _ = await voted(parts(final(*"abb")), samples=3, wave=2)

    assert [fact.value for fact in result.facts] == [
        {
            "counts": {"a": 1, "b": 1},
            "winner": "a",
            "agreement": 0.5,
            "samples": 3,
            "asked": 2,
        },
        {
            "counts": {"a": 1, "b": 2},
            "winner": "b",
            "agreement": 2 / 3,
            "samples": 3,
            "asked": 3,
        },
    ]
    assert [m.content for m in result.conversation] == [
        "How many?",
        "Reasoning 1.\nFINAL ANSWER: b",
        "b",
    ]


async def test_one_sample_is_no_vote() -> None:
    result, vote = await voted(parts([SUM, "35"]))

    assert (result.answer, vote) == ("35", None)


async def test_a_sample_that_cannot_be_read_has_no_vote_but_counts_for_the_agreement() -> (
    None
):
    script = by_sample(
        ["a", "who knows", "no idea"],
        ["b", "18"],
        ["c", ProviderError("down")],
        ["d", "18"],
    )
    result, vote = await voted(parts(script), answer="number", samples=4)

    assert (result.answer, vote) == ("18", Vote({"18": 2}, "18", 0.5, 4, 4))


async def test_no_readable_vote_is_no_answer() -> None:
    script = by_sample(*[[str(n), "who knows", "no idea"] for n in range(3)])
    result, vote = await voted(parts(script), answer="number", samples=3, wave=2)

    assert (result.answer, result.stop_reason, vote) == (
        None,
        "unreadable",
        Vote({}, None, 0.0, 3, 3),
    )


async def test_a_provider_that_is_down_is_not_asked_for_another_wave() -> None:
    runtime = parts(lambda _: ProviderError("wrong key"))
    result, vote = await voted(runtime, samples=20, wave=2)

    assert (result.answer, result.stop_reason, vote) == (
        None,
        "provider_error",
        Vote({}, None, 0.0, 20, 2),
    )
    assert len(asked(runtime)) == 2


async def test_a_provider_that_goes_down_leaves_the_majority_so_far() -> None:
    script = by_sample(
        ["a", "1"], ["b", "1"], [ProviderError("down")], [ProviderError("down")]
    )
    result, vote = await voted(parts(script), samples=20, wave=2)

    assert (result.answer, vote) == ("1", Vote({"1": 2}, "1", 0.5, 20, 4))


async def test_one_at_a_time_is_in_order() -> None:
    runtime = parts(["a", "1", "b", "1", "c", "2"])
    result, vote = await voted(runtime, samples=3, wave=3, max_concurrency=1)

    assert (result.answer, vote) == ("1", Vote({"1": 2, "2": 1}, "1", 2 / 3, 3, 3))


@pytest.mark.parametrize(
    ("most", "max_concurrency"), [(None, 6), (8, 6), (4, 4), (1, 1)]
)
async def test_so_many_samples_are_at_work_at_once(
    most: int | None, max_concurrency: int
) -> None:
    at_work = Watched(lambda _: "FINAL ANSWER: 1")
    await ChainOfThoughtEngine(
        Runtime(at_work), samples=12, wave=6, max_concurrency=most
    ).run("Q?")

    assert (at_work.most, len(at_work.requests)) == (max_concurrency, 6)


class Watched(ScriptedProvider):
    """Counts how many requests it has at once."""

    now = most = 0

    async def complete(self, request: Request) -> Completion:
        """Take a little while."""
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20):
            await asyncio.sleep(0)
        self.now -= 1
        return await super().complete(request)


# --- when a vote is decided ---


def test_votes_are_counted_by_value_in_the_wording_and_the_order_of_occurrence() -> (
    None
):
    vote = Vote.of(["18.0", "17", None, "18", "36/2"], "number", 9)

    assert vote == Vote({"18.0": 3, "17": 1}, "18.0", 0.6, 9, 5)
    assert list(vote.counts) == ["18.0", "17"]


@pytest.mark.parametrize(
    ("answers", "left", "decided"),
    [
        ("", 1, False),
        ("a", 1, True),  # a tie goes to the answer that came first
        ("a", 2, False),
        ("abb", 1, False),  # there the tie goes to "a"
        ("abbb", 1, True),
        ("aaab", 2, True),
        ("aaab", 3, False),
    ],
)
def test_a_vote_is_decided_when_the_rest_cannot_change_it(
    answers: str, left: int, decided: bool
) -> None:
    assert Vote.of(answers, "text", len(answers) + left).is_decided() is decided


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), max_size=6),
    st.lists(st.sampled_from(["a", "b", "d", None]), max_size=3),
    st.sampled_from([0.0, 0.1, 1 / 3, 0.5, 0.7, 1.0]),
)
def test_a_decided_vote_ends_as_it_is_whatever_comes(
    so_far: list[str | None], rest: list[str | None], threshold: float
) -> None:
    samples = len(so_far) + len(rest)
    vote, end = (
        Vote.of(answers, "text", samples) for answers in (so_far, [*so_far, *rest])
    )

    if samples and vote.is_decided(threshold):
        assert (vote.agreement < threshold) == (end.agreement < threshold)
        assert end.agreement < threshold or end.winner == vote.winner


# --- fallback ---


class Second(LoopEngine):
    """Answers what its provider says."""

    name = "second"

    async def solve(self, run: Run) -> str:
        """Ask once."""
        return await run.ask(run.conversation)


def second(line: Any, **options: Any) -> Second:
    return Second(Runtime(ScriptedProvider([line]), **options))


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        (("1", "2", "3", "4"), "9"),
        (("1", "1", "2", "3"), "1"),
        (("1", "2", "2", "3", "4"), "9"),
    ],
)
async def test_too_little_agreement_hands_over_to_the_fallback(
    answers: tuple[str, ...], answer: str
) -> None:
    options: dict[str, Any] = {
        "samples": len(answers),
        "answer": "number",
        "fallback": second("It is 9."),
    }
    result, vote = await voted(parts(final(*answers)), **options)

    assert (result.answer, result.status) == (answer, "completed")
    assert vote is not None
    assert (vote.agreement < 0.5) == (answer == "9")


class Unfinished(LoopEngine):
    """Ends at a limit of its own, with a guess."""

    name = "unfinished"

    async def solve(self, run: Run) -> str:
        """Guess."""
        return await run.best_answer(run.conversation)


async def test_a_guess_of_a_fallback_that_reached_its_limit_leaves_the_majority() -> (
    None
):
    other = Unfinished(parts(["9"]))
    result, _ = await voted(
        parts(final("1", "2", "3")), samples=3, answer="number", fallback=other
    )

    assert (result.answer, result.status) == ("1", "completed")


@pytest.mark.parametrize(
    "other",
    [second("no idea"), second(ProviderError("down")), second("9", gate=DenyAll())],
)
async def test_a_fallback_without_an_answer_of_the_type_leaves_the_majority(
    other: Second,
) -> None:
    result, _ = await voted(
        parts(final("1", "2", "3")), samples=3, answer="number", fallback=other
    )

    assert (result.answer, result.status) == ("1", "completed")


async def test_the_fallback_works_on_the_callers_conversation_and_after_no_vote_at_all() -> (
    None
):
    other = second("9")
    script = by_sample(["a", "who knows", "no idea"])
    engine = ChainOfThoughtEngine(parts(script), answer="number", fallback=other)
    result = await engine.run("How many?", system="Be exact.")

    assert result.answer == "9"
    assert roles_and_contents(asked(other.runtime)[0]) == [
        ("system", "Be exact."),
        ("user", "How many?"),
    ]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "asked_for", "answer"),
    [
        ("aabcdefghi", 8, "9"),  # "a" leads for good, and is no half of ten
        ("abcdefghij", 8, "9"),  # after eight that all differ nobody can have five
        ("aabaabcccc", 10, "9"),
        ("aaaaaaaaaa", 6, "a"),
        ("aabaabaccc", 8, "a"),
    ],
)
async def test_with_a_fallback_sampling_stops_when_it_is_decided_who_answers(
    answers: str, asked_for: int, answer: str
) -> None:
    result, vote = await voted(
        parts(final(*answers)), samples=10, wave=2, fallback=second("9")
    )

    assert vote is not None
    assert (result.answer, vote.asked) == (answer, asked_for)


# --- limits ---


async def test_a_limit_during_the_second_call_gives_the_best_answer_from_the_reasoning() -> (
    None
):
    runtime = parts([SUM, "35"], limits=Limits(max_llm_calls=2))
    result = await ChainOfThoughtEngine(runtime, answer="number").run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        "35",
        "limit",
        "max_llm_calls",
    )
    assert roles_and_contents(asked(runtime)[1])[2] == ("assistant", SUM)
    assert [m.content for m in result.conversation] == ["Q?", SUM, "35"]


async def test_a_best_answer_of_another_type_is_none() -> None:
    runtime = parts([SUM, "many"], limits=Limits(max_llm_calls=2))
    result = await ChainOfThoughtEngine(runtime, answer="number").run("Q?")

    assert (result.answer, result.status, result.llm_calls) == (None, "limit", 2)


async def test_a_best_answer_from_reasoning_that_was_cut_is_asked_for_in_these_words() -> (
    None
):
    runtime = parts([cut("FINAL ANSWER: 4"), "42"], limits=Limits(max_llm_calls=2))
    result = await ChainOfThoughtEngine(runtime, answer="number").run("Q?")

    trigger = PROMPTS.fill("extract_from_cut", wanted=PROMPTS["number"].text)
    assert (result.answer, result.status) == ("42", "limit")
    assert roles_and_contents(asked(runtime)[1])[-2] == ("user", trigger)


async def test_a_best_answer_has_the_type_although_samples_failed_before_the_limit() -> (
    None
):
    runtime = parts(
        ["a", "who knows", "no idea", "b", "many"], limits=Limits(max_llm_calls=5)
    )
    result, vote = await voted(runtime, samples=2, max_concurrency=1, answer="number")

    assert (result.answer, result.status, result.llm_calls) == (None, "limit", 5)
    assert vote == Vote({}, None, 0.0, 2, 2)


async def test_a_limit_in_mid_vote_gives_the_majority_so_far() -> None:
    runtime = parts(final(*"abbbbb"), limits=Limits(max_llm_calls=4))
    result, vote = await voted(runtime, samples=6, wave=2, fallback=second("9"))

    assert (result.answer, result.status, result.stop_reason) == (
        "b",
        "limit",
        "max_llm_calls",
    )
    assert vote == Vote({"a": 1, "b": 2}, "b", 0.5, 6, 4)
    assert len(asked(runtime)) == 3


async def test_a_limit_before_the_first_vote_gives_the_best_answer() -> None:
    runtime = parts(["some thoughts", "7"], limits=Limits(max_llm_calls=2))
    result, vote = await voted(
        runtime, samples=4, wave=2, max_concurrency=1, answer="number"
    )

    trigger = PROMPTS.fill("extract", wanted=PROMPTS["number"].text)
    assert (result.answer, result.status, vote) == (
        "7",
        "limit",
        Vote({}, None, 0.0, 4, 2),
    )
    assert roles_and_contents(asked(runtime)[1])[2:4] == [
        ("assistant", "some thoughts"),
        ("user", trigger),
    ]


class Held(ScriptedProvider):
    """Answers when it is let, and tells when it has been asked twice."""

    asked_twice: asyncio.Event
    let: asyncio.Event

    async def complete(self, request: Request) -> Completion:
        """Wait."""
        reply = await super().complete(request)
        if len(self.requests) == 2:
            self.asked_twice.set()
        await self.let.wait()
        return reply


class Beside(LoopEngine):
    """Lets a vote run beside a branch that reaches the run's limit while the samples are under way."""

    name = "beside"
    vote: ChainOfThoughtEngine
    held: Held

    async def solve(self, run: Run) -> str:
        """Both at once."""

        async def poll(branch: Run) -> str:
            return str((await branch.delegate(self.vote, branch.conversation)).answer)

        async def reach_the_limit(branch: Run) -> str:
            await self.held.asked_twice.wait()
            try:
                await branch.ask("And?")
            except LimitReached:
                self.held.let.set()
            return "limit"

        return " ".join(await run.gather(poll, reach_the_limit))


@pytest.mark.parametrize(
    "samples", [2, 4]
)  # the vote is decided, or there would be one more wave
async def test_a_limit_that_others_reached_leaves_the_majority(samples: int) -> None:
    held = Held(lambda _: "FINAL ANSWER: 7")
    held.asked_twice, held.let = asyncio.Event(), asyncio.Event()
    vote = ChainOfThoughtEngine(
        Runtime(held), samples=samples, wave=2, min_agreement=1, fallback=second("9")
    )
    runtime = parts([], limits=Limits(max_llm_calls=2, best_effort=False))
    result = await Beside(runtime, vote=vote, held=held).run("Q?")

    assert (result.answer, result.status) == ("7 limit", "limit")


async def test_a_provider_that_fails_for_good_fails_the_run() -> None:
    result = await ChainOfThoughtEngine(parts([ProviderError("down")])).run("Q?")

    assert (result.answer, result.status, result.stop_reason) == (
        None,
        "failed",
        "provider_error",
    )


# --- resume ---


def told(*answers: str) -> Callable[[Request], Any]:
    """Samples whose words follow from the conversation alone, for runs that are resumed: the n-th key is the n-th."""

    def answer(request: Request) -> Any:
        last = request.conversation.messages[-1].content
        if last == STEPS:
            return cut("First part")
        if last == PROMPTS["go_on"].text:
            return "and a second part."
        return answers[
            sum(m.role == "assistant" for m in request.conversation) % len(answers)
        ]

    return answer


def whole(value: Result) -> tuple[Result, str]:
    return dataclasses.replace(value, head_hash="", error=None), repr(value.error)


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, Limits()),
        ({"samples": 3, "wave": 2, "answer": "number"}, Limits()),
        ({"samples": 3, "wave": 1, "answer": "number"}, Limits(max_llm_calls=6)),
        ({"answer": "number"}, Limits(max_llm_calls=3)),
        ({"samples": 2, "answer": "letter", "fallback": True}, Limits()),
    ],
)
async def test_a_run_cut_after_any_entry_resumes_to_the_same_answer_and_repeats_nothing(
    options: dict[str, Any], limits: Limits
) -> None:
    def engine(journal: Any = None) -> ChainOfThoughtEngine:
        runtime = parts(told("35", "36"), journal=journal, limits=limits)
        other = (
            {"fallback": Second(parts(lambda _: "(C)"))}
            if "fallback" in options
            else {}
        )
        return ChainOfThoughtEngine(runtime, **{**options, **other})

    first = engine()
    result = await first.run("Q?", run_id="r")
    entries = first.runtime.journal.read("r")

    assert result.answer is not None
    for keep in range(1, len(entries)):
        again = engine(crashed(entries, keep))
        resumed = await again.resume("r")
        now = again.runtime.journal.read("r")

        assert whole(resumed) == whole(result), keep
        assert of_kind(now, ModelReplied) == of_kind(entries, ModelReplied), keep
        assert resumed.facts == result.facts, keep


def of_kind(entries: list[Entry], *kinds: type) -> list[str]:
    """The keys of entries of some kinds: each stands once, whatever was resumed."""
    return sorted(entry.key for entry in entries if isinstance(entry.event, kinds))


async def test_options_are_recorded_so_that_the_runtime_can_resume_by_itself() -> None:
    shown = (Example("1 + 1?", "One more than one.", "2"),)
    runtime = parts(told("35"))
    await ChainOfThoughtEngine(runtime, samples=2, answer="number", examples=shown).run(
        "Q?", run_id="r"
    )
    entries = runtime.journal.read("r")
    keep = next(
        entry.seq
        for entry in entries
        if isinstance(entry.event, (ModelReplied, ModelFailed))
    )
    again = parts(told("35"), journal=crashed(entries, keep))

    assert (await again.resume("r")).answer == "35"
    assert of_kind(again.journal.read("r"), ModelRequested) == of_kind(
        entries, ModelRequested
    )


# --- how many calls ---


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("continuations", [0, 2])
async def test_the_calls_of_a_sample_are_reasoning_continuations_and_two_more_at_most(
    samples: int, continuations: int
) -> None:
    def answer(request: Request) -> Any:
        last = request.conversation.messages[-1].content
        return cut("more") if last in (STEPS, PROMPTS["go_on"].text) else "who knows"

    options: dict[str, Any] = {
        "samples": samples,
        "max_continuations": continuations,
        "answer": "number",
    }
    result = await ChainOfThoughtEngine(parts(answer), **options).run("Q?")

    assert result.llm_calls == samples * (1 + continuations + 2)
