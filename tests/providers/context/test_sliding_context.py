"""What of a long conversation a model gets to see: old results are masked, old turns slide out, pairs stay whole."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from journal_positions import cut_after
from loopwright import (
    Attachment,
    Conversation,
    Limits,
    Message,
    ReActEngine,
    Result,
    Runtime,
    ToolCall,
    tool,
)
from loopwright.errors import ContextTooLong
from loopwright.events import ModelFailed, ModelReplied, ModelRequested
from loopwright.messages import check_call_results
from loopwright.providers.context.sliding_context import (
    MASK,
    SlidingContext,
    group_turns,
)
from loopwright.providers.context.tokens import estimate_tokens
from loopwright.testing import ScriptedProvider, call, crashed


def turn(number: int, result: str) -> list[Message]:
    wanted = ToolCall("look", {"n": number}, f"c{number}")
    return [
        Message("assistant", f"thought {number}", (wanted,), origin="model"),
        Message("tool", result, call_id=wanted.id, origin="tool"),
    ]


def long(count: int, size: int = 400, *, system: bool = True) -> Conversation:
    opening = [Message("system", "Be brief.")] if system else []
    told = [message for n in range(count) for message in turn(n, f"{n} " + "x" * size)]
    return Conversation([*opening, Message("user", "The task."), *told])


def contents(conversation: Conversation) -> list[str]:
    return [message.content for message in conversation]


def test_what_fits_is_the_same_object() -> None:
    conversation = long(2)

    assert (
        SlidingContext().fit(conversation, estimate_tokens(conversation))
        is conversation
    )


def test_results_older_than_the_newest_three_are_masked_first() -> None:
    conversation = long(6)
    seen = SlidingContext().fit(conversation, estimate_tokens(conversation) - 1)

    assert [
        c if c == MASK else c[0] for c in contents(seen) if c == MASK or c[0].isdigit()
    ] == [MASK] * 3 + list("345")
    assert len(seen) == len(conversation)
    assert contents(conversation)[3].startswith("0 x"), (
        "the engine's own conversation stays as it is"
    )


def test_then_the_oldest_turns_slide_out_and_system_task_and_newest_turn_stay() -> None:
    seen = SlidingContext(keep_results=1).fit(long(20), 220)

    assert contents(seen)[:2] == ["Be brief.", "The task."]
    assert contents(seen)[-1].startswith("19 x")
    assert estimate_tokens(seen) <= 220
    check_call_results(seen.messages)


def test_the_newest_turn_stays_although_it_is_too_long_by_itself() -> None:
    seen = SlidingContext().fit(long(3, size=4000), 10)

    assert [c[:8] for c in contents(seen)] == [
        "Be brief",
        "The task",
        "thought ",
        "2 xxxxxx",
    ]


def test_task_is_the_latest_caller_message_of_a_continued_conversation() -> None:
    talk = [
        Message("user", "First question."),
        Message("assistant", "First answer. " + "y" * 2000, origin="model"),
    ]
    told = [message for n in range(9) for message in turn(n, "x" * 400)]
    engine_s = Message("user", "Reflect.", origin="engine")
    conversation = Conversation(
        [*talk, Message("user", "The real task."), *told[:8], engine_s, *told[8:]]
    )

    seen = contents(SlidingContext(keep_results=1).fit(conversation, 260))

    assert "The real task." in seen
    assert not any(content.startswith("First answer") for content in seen)


def test_every_result_can_be_masked() -> None:
    conversation = long(3)
    seen = SlidingContext(keep_results=0).fit(
        conversation, estimate_tokens(conversation) - 1
    )

    assert [c for c in contents(seen) if c == MASK] == [MASK] * 3


def test_turns_are_what_the_assistant_said_with_the_results_of_its_calls() -> None:
    wanted = (ToolCall("a", {}, "1"), ToolCall("b", {}, "2"))
    messages = [
        Message("user", "q"),
        Message("assistant", "t", wanted),
        Message("tool", "r1", call_id="1"),
        Message("tool", "r2", call_id="2"),
        Message("user", "nudge"),
    ]

    assert [len(group) for group in group_turns(messages)] == [1, 3, 1]


TEXTS = st.text(max_size=30) | st.integers(0, 500).map(lambda n: "x" * n)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Any conversation in which each call has its result."""
    messages: list[Message] = (
        [Message("system", draw(TEXTS))] if draw(st.booleans()) else []
    )
    for number in range(draw(st.integers(0, 8))):
        kind = draw(
            st.sampled_from(["user", "engine", "runtime", "assistant", "calls"])
        )
        if kind == "calls":
            wanted = tuple(
                ToolCall("look", {"n": draw(TEXTS)}, f"c{number}.{i}")
                for i in range(draw(st.integers(1, 3)))
            )
            messages.append(Message("assistant", draw(TEXTS), wanted, origin="model"))
            messages += [
                Message("tool", draw(TEXTS), call_id=c.id, origin="tool")
                for c in draw(st.permutations(wanted))
            ]
        elif kind == "assistant":
            messages.append(Message("assistant", draw(TEXTS), origin="model"))
        else:
            origin: Any = "caller" if kind == "user" else kind
            messages.append(Message("user", draw(TEXTS), origin=origin))
    return Conversation(messages)


@given(conversations(), st.integers(1, 400), st.integers(0, 4))
def test_no_call_is_ever_parted_from_its_result(
    conversation: Conversation, tokens: int, keep: int
) -> None:
    policy = SlidingContext(keep_results=keep)
    seen = policy.fit(conversation, tokens)

    check_call_results(seen.messages)
    assert estimate_tokens(seen) <= max(estimate_tokens(conversation), tokens)
    if len(conversation):
        assert seen.messages[-1].role == conversation.messages[-1].role
        assert [m for m in seen if m.role == "system"] == [
            m for m in conversation if m.role == "system"
        ]
        assert conversation.task == "" or any(m.role == "user" for m in seen)
    callers = [m for m in conversation if m.role == "user" and m.origin == "caller"]
    assert callers[-1:] == [] or callers[-1] in seen.messages
    assert policy.fit(seen, tokens) == seen


# --- in a run ---


@tool(effect="read", repeatable=True, trusted=True)
async def look(n: int) -> str:
    """Look something up."""
    return f"{n} " + "x" * 400


async def run(*script: Any, **options: Any) -> tuple[Result, ScriptedProvider, Runtime]:
    provider = ScriptedProvider(script)
    policy = options.pop("context", SlidingContext())
    runtime = Runtime(provider, tools=[look], context=policy, **options)
    return await ReActEngine(runtime).run("The task."), provider, runtime


async def test_the_model_sees_what_fits_and_the_result_keeps_everything() -> None:
    script = [*(call("look", n=n) for n in range(8)), "done"]
    result, provider, _ = await run(*script, limits=Limits(context_tokens=500))

    assert result.status == "completed"
    assert all(
        estimate_tokens(request.conversation) <= 500 for request in provider.requests
    )
    last = contents(provider.requests[-1].conversation)
    assert (last[0], last.count(MASK) > 0, last[-1][0]) == ("The task.", True, "7")
    assert [c[0] for c in contents(result.conversation) if c.endswith("x")] == list(
        "01234567"
    )


async def test_without_a_limit_everything_is_sent() -> None:
    script = [*(call("look", n=n) for n in range(8)), "done"]
    _, provider, _ = await run(*script, limits=Limits(context_tokens=None))

    assert MASK not in contents(provider.requests[-1].conversation)


async def test_conversation_too_long_for_a_model_is_compacted_once_and_continues() -> (
    None
):
    script = [
        *(call("look", n=n) for n in range(5)),
        ContextTooLong("8k is all I have"),
        "done",
    ]
    result, provider, runtime = await run(*script)

    assert (result.status, result.answer) == ("completed", "done")
    before, after = (
        provider.requests[-2].conversation,
        provider.requests[-1].conversation,
    )
    assert after.size < before.size
    assert contents(after)[0] == "The task."
    kinds = [type(entry.event) for entry in runtime.journal.read(result.run_id)]
    assert kinds.count(ModelRequested) == kinds.count(ModelReplied) == 6


async def test_the_second_time_it_is_too_long_ends_the_run() -> None:
    too_long = ContextTooLong("8k is all I have")
    script = [*(call("look", n=n) for n in range(5)), too_long, too_long]
    result, provider, runtime = await run(*script)

    assert (result.status, result.stop_reason, result.answer) == (
        "failed",
        "context_overflow",
        None,
    )
    assert isinstance(result.error, ContextTooLong)
    assert (
        len(provider.requests),
        len([m for m in result.conversation if m.role == "tool"]),
    ) == (7, 5)
    assert [
        e.event.error.type
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, ModelFailed)
    ] == ["ContextTooLong"]


async def test_what_cannot_be_made_shorter_is_not_sent_again() -> None:
    result, provider, _ = await run(ContextTooLong("8k is all I have"))

    assert (result.stop_reason, len(provider.requests)) == ("context_overflow", 1)


async def test_a_call_that_is_made_again_with_less_counts_once() -> None:
    script = [
        *(call("look", n=n) for n in range(5)),
        ContextTooLong("8k is all I have"),
        "done",
    ]
    result, provider, _ = await run(*script)

    assert result.llm_calls == len(provider.requests) - 1


async def test_compacted_run_resumes_after_a_crash_and_sees_the_same() -> None:
    script = [*(call("look", n=n) for n in range(8)), "done"]
    result, before, runtime = await run(*script, limits=Limits(context_tokens=500))
    entries = runtime.journal.read(result.run_id)

    after = ScriptedProvider(script[6:])
    journal = crashed(entries, cut_after(entries, "tool_finished", 6))
    resumed = Runtime(
        after, tools=[look], limits=Limits(context_tokens=500), journal=journal, context=SlidingContext()
    )  # fmt: skip
    again = await ReActEngine(resumed).resume(result.run_id)

    assert (again.answer, again.conversation) == ("done", result.conversation)
    assert [r.conversation for r in after.requests] == [
        r.conversation for r in before.requests[6:]
    ]


async def test_a_policy_of_the_caller_s_own_decides() -> None:
    class Newest:
        def fit(self, conversation: Conversation, tokens: int) -> Conversation:
            return Conversation(conversation.messages[:1] + conversation.messages[-2:] if len(conversation) > 3 else
                                conversation)  # fmt: skip

    _, provider, _ = await run(
        call("look", n=1), call("look", n=2), "done", context=Newest()
    )

    assert [len(request.conversation) for request in provider.requests] == [1, 3, 3]


def test_pictures_of_older_turns_slide_out_when_they_do_not_fit() -> None:
    picture = Attachment.image(b"\x89PNG\r\n\x1a\n-pixels-")
    old = [
        Message("user", f"Look {i}.", origin="engine", attachments=(picture,))
        for i in range(8)
    ]

    fitted = SlidingContext().fit(Conversation([*old, Message("user", "Well?")]), 4_000)

    assert estimate_tokens(fitted) <= 4_000
    assert [message.content for message in fitted] == ["Look 6.", "Look 7.", "Well?"]
