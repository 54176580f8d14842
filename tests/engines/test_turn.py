"""Turn: the pipeline of stages, rounds, structured errors, and how an assessment begins a turn."""

import asyncio
import re
from typing import Any

import pytest

from loopwright import (
    Action,
    Allow,
    Ask,
    Conversation,
    Deny,
    Limits,
    Message,
    PolicyState,
    Request,
    Runtime,
    Suspend,
    Tool,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.engines import TurnEngine
from loopwright.gates import InstantGate
from loopwright.hooks import Hook, Moment
from loopwright.journals import SQLiteJournal
from loopwright.providers import Delta, TextTools
from loopwright.testing import ScriptedProvider, call, crashed

LOOK = call("look", what="sky")
REVIEW = '{"confidence": 0.9, "quality": 0.9, "summary": "fine"}'
POOR = '{"confidence": 0.9, "quality": 0.2, "issues": ["It is grey."]}'


@tool(effect="read", trusted=True)
async def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


@tool(effect="read", trusted=True)
async def fail(what: str) -> str:
    """Fail."""
    raise ToolError(f"{what} is nowhere")


def build(*script: Any, **options: Any) -> Runtime:
    options.setdefault("tools", [look, fail])
    return Runtime(ScriptedProvider(script), **options)


def requests(runtime: Runtime) -> list[Request]:
    return runtime.provider.requests  # type: ignore[attr-defined]


async def run(runtime: Runtime, task: Any = "Sky?", **options: Any) -> Any:
    return await TurnEngine(runtime, **options).run(task, run_id="r")


def last(request: Request) -> str:
    return request.conversation.messages[-1].content


# --- stages and rounds ---


class Recorder(Hook):
    """Records each stage, with what it is about."""

    name = "recorder"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def stage(self, at: Moment, name: str) -> None:
        self.seen.append(name)

    def before_model(self, at: Moment, asked: Any) -> None:
        self.seen.append("pre_llm")

    def after_model(self, at: Moment, text: str) -> None:
        self.seen.append("post_llm")

    def after_tool(self, at: Moment, text: str) -> None:
        self.seen.append("post_tool")


async def test_the_twelve_stages_come_in_their_order() -> None:
    recorder = Recorder()
    runtime = build(LOOK, "Blue.", REVIEW, hooks=[recorder])
    result = await run(runtime, reflect=True)

    assert result.answer == "Blue."
    assert recorder.seen == [
        "pre_assess", "post_assess",
        "pre_reason", "pre_llm", "post_reason", "pre_tool", "post_tool",
        "pre_reason", "pre_llm", "post_llm", "post_reason",
        "pre_reflect", "post_reflect", "pre_output", "post_output",
    ]  # fmt: skip
    assert len(set(recorder.seen)) == 12


async def test_rounds_left_are_told_each_round_and_the_last_has_no_tools() -> None:
    runtime = Runtime(ScriptedProvider(restless()), tools=[look])
    result = await run(runtime, max_rounds=3)
    told = [last(request) for request in requests(runtime)]

    assert result.answer == "Blue."
    assert ["3 rounds" in told[0], "2 rounds" in told[1], "last round" in told[2]] == [True] * 3  # fmt: skip
    assert [may_call(one) for one in requests(runtime)] == [True, True, False]
    assert all("round" not in one.content for one in result.conversation)
    assert result.fact("AnswerDemanded") == {"rounds": 3}


def may_call(request: Request) -> bool:
    return bool(request.tools) and request.tool_choice == "auto"


def restless() -> Any:
    """A model that calls a tool with something new as long as it may."""
    numbers = iter(range(99))

    def model(request: Request) -> Any:
        if may_call(request):
            return call("look", what=f"sky {next(numbers)}")
        return "Blue."

    return model


async def test_a_turn_has_eight_rounds_and_ends_with_the_best_answer() -> None:
    runtime = Runtime(ScriptedProvider(restless()), tools=[look])
    result = await run(runtime)

    assert (result.answer, result.llm_calls, result.tool_calls) == ("Blue.", 8, 7)


# --- what a model reads of calls ---


async def test_a_failed_call_has_a_head_with_its_facts_and_advice() -> None:
    class Judge(InstantGate):
        version = "judge"

        def decide(self, action: Action, state: PolicyState) -> Any:
            return Deny("not today") if action.tool == "look" else Allow()

    script = [
        [call("fail", what="sky"), LOOK, call("fly", where="up"), call("fail", where=7)],
        "It cannot be found.",
    ]  # fmt: skip
    runtime = build(*script, gate=Judge())
    result = await run(runtime)
    told = [one.content for one in result.conversation if one.role == "tool"]
    heads = [text.partition("]")[0].split() for text in told]
    found = [{pair.partition("=")[0]: pair.partition("=")[2] for pair in head[1:]} for head in heads]  # fmt: skip

    assert [one["code"] for one in found] == ["TOOL_ERROR", "POLICY_DENIED", "UNKNOWN_TOOL", "INVALID_CALL"]  # fmt: skip
    assert [one["status"] for one in found] == ["error", "denied", "rejected", "rejected"]  # fmt: skip
    assert [one["retryable"] for one in found] == ["yes", "no", "no", "no"]
    assert all(float(one["seconds"]) >= 0 for one in found)
    assert all(one["truncated"] == "no" for one in found)
    assert "sky is nowhere" in told[0]
    assert "[next: change the arguments" in told[0]


async def test_a_result_that_is_ok_stays_as_it_is_and_a_cut_failure_says_so() -> None:
    @tool(effect="read", max_output_chars=50)
    async def crash(what: str) -> str:
        """Crash at length."""
        raise ToolError("x" * 500)

    runtime = build([LOOK, call("crash", what="a")], "Blue.", tools=[look, crash])
    result = await run(runtime)
    told = [one.content for one in result.conversation if one.role == "tool"]

    assert told[0] == "sky is blue"
    assert "truncated=yes" in told[1]


async def test_only_clean_prose_reaches_the_watcher() -> None:
    text = 'I look.\n<tool_call>{"tool": "look", "args": {"what": "sky"}}</tool_call>'
    model = TextTools(ScriptedProvider([text, "It is blue."]), dialect="xml")
    seen: list[str] = []
    engine = TurnEngine(Runtime(model, tools=[look]))
    async with engine.start("Sky?", deltas=True) as handle:
        async for item in handle:
            if isinstance(item, Delta):
                seen.append(item.text)
        result = await handle.result()

    shown = "".join(seen)
    assert (result.answer, result.tool_calls) == ("It is blue.", 1)
    assert "It is blue." in shown
    assert "tool_call" not in shown
    assert '"args"' not in shown


# --- answers that go back ---


class Objecting(Hook):
    """Objects to answers without a full stop, for ever."""

    name = "objecting"

    def stage(self, at: Moment, name: str) -> str | None:
        wants = name == "pre_output" and not at.text.endswith(".")
        return f"{at.text} needs a full stop" if wants else None


async def test_a_remark_about_an_answer_sends_it_back_while_rounds_are_left() -> None:
    runtime = build("Blue", "Grey", "Red", hooks=[Objecting()])
    result = await run(runtime, max_rounds=3)
    told = requests(runtime)[1].conversation.messages

    assert (result.answer, result.status) == ("Red", "completed")
    assert told[-2].origin == "hook"
    assert "Blue needs a full stop" in told[-2].content
    assert [one.value for one in result.facts if one.name == "AnswerReturned"] == [
        {"round": 1, "remarks": 1}, {"round": 2, "remarks": 1},
    ]  # fmt: skip


async def test_reflection_notes_what_it_finds_and_a_poor_answer_is_corrected_once() -> (
    None
):
    runtime = build("Grey.", POOR, "Blue.")
    result = await run(runtime, reflect=True)
    poor = result.fact("TurnReviewed")

    assert (result.answer, result.llm_calls) == ("Blue.", 3)
    assert (poor["quality"], poor["issues"]) == (0.2, ["It is grey."])
    assert "It is grey." in requests(runtime)[2].conversation.messages[-2].content

    runtime = build("Grey.", "no JSON", "no JSON", "no JSON", "never")
    result = await run(runtime, reflect=True)
    assert result.answer == "Grey."
    assert result.fact("TurnReviewed") is None


async def test_a_review_reads_the_first_400_and_600_characters() -> None:
    runtime = build("b" * 900, REVIEW)
    await run(runtime, "a" * 700, reflect=True)
    prompt = last(requests(runtime)[1])

    assert prompt.count("a" * 400) == 1
    assert "a" * 401 not in prompt
    assert "b" * 601 not in prompt
    assert "b" * 600 in prompt


# --- how a turn begins ---


async def test_each_assessment_is_a_fact_and_can_be_off() -> None:
    result = await run(build("Blue."))
    assert result.fact("Assessment")["decision"] == "direct"
    assert (await run(build("Blue."), assess=False)).fact("Assessment") is None


async def test_a_task_that_is_asked_about_first_waits_durably_for_the_user(
    tmp_path: Any,
) -> None:
    def model(request: Request) -> str:
        if "has to be asked" in last(request):
            return "Really all of them?"
        told = [one.content for one in request.conversation if one.origin == "operator"]
        return f"Done: {told}"

    def make() -> Runtime:
        return Runtime(
            ScriptedProvider(model), tools=[look], journal=SQLiteJournal(tmp_path / "runs.db")
        )  # fmt: skip

    runtime = make()
    waiting = await run(runtime, "delete all files")
    assert (waiting.status, waiting.stop_reason) == ("waiting", "question")
    assert waiting.fact("Assessment")["reason"] == "destructive"
    [question] = waiting.pending
    assert question.text == "Really all of them?"

    again = make()  # as another process makes it
    await again.control("r").answer("Only the old ones.")
    result = await again.resume("r")

    assert result.answer == "Done: ['Only the old ones.']"
    assert result.llm_calls == 2


async def test_in_a_thread_the_next_message_answers_the_question() -> None:
    def model(request: Request) -> str:
        if "has to be asked" in last(request):
            return "Which ones?"
        people = ("caller", "operator")
        return ", ".join(one.content for one in request.conversation if one.origin in people)  # fmt: skip

    runtime = Runtime(ScriptedProvider(model), tools=[look])
    thread = runtime.agent("clerk", engine=runtime.engine("turn")).thread("ada")
    asked = await thread.run("delete all files")
    answered = await thread.run("Only the old ones.")
    thanked = await thread.run("thanks")

    assert (asked.status, asked.pending[0].text) == ("waiting", "Which ones?")
    assert answered.answer == "delete all files, Only the old ones."
    assert thanked.answer == "delete all files, Only the old ones., thanks"
    assert [fact.name for fact in thanked.facts] == ["Assessment"]


async def test_guidance_that_came_in_the_last_round_stays_in_the_conversation() -> None:
    has_sent = asyncio.Event()

    @tool(effect="read", trusted=True)
    async def wait(what: str) -> str:
        """Wait until a person has sent something."""
        await has_sent.wait()
        return "done"

    runtime = build(call("wait", what="sky"), "Blue.", tools=[wait])
    async with TurnEngine(runtime).start("Sky?") as handle:
        async for entry in handle:
            if entry.kind == "tool_started":
                await handle.steer("Be brief.")
                has_sent.set()
        result = await handle.result()
    sent = [one.content for one in result.conversation if one.role == "user"]

    assert len(sent) == 2
    assert "Be brief." in sent[1]


async def test_what_was_said_before_answers_what_it_means() -> None:
    talk = [Message("user", "Here is a poem: blue sky"), Message("assistant", "Nice.")]
    result = await run(build("Good."), Conversation([*talk, Message("user", "review it")]))  # fmt: skip

    assert result.fact("Assessment")["decision"] == "direct"


async def test_another_goal_is_a_fact_and_thanks_never_is() -> None:
    goal = Message("user", "Fix the login bug in auth.py and run the tests")
    done = Message("assistant", "I did.")
    other = Message("user", "Actually, plan a trip to Oslo for two people instead")
    result = await run(build("Yes."), Conversation([goal, done, other]))
    drift = result.fact("GoalDrifted")

    assert drift["score"] >= 0.4
    assert drift["keywords"] == ["actually", "instead"]
    assert drift["previous"] == goal.content
    thanks = await run(build("Welcome."), Conversation([goal, done, Message("user", "thanks")]))  # fmt: skip
    assert thanks.fact("GoalDrifted") is None


async def test_what_hooks_and_engines_said_is_no_earlier_goal() -> None:
    remark = Message("user", "Plan a trip to Oslo for two people", origin="hook")
    goal = Message("user", "Fix the login bug in auth.py and run the tests")
    talk = [goal, Message("assistant", "I did."), remark, Message("assistant", "Yes.")]
    same = Message("user", "Fix the login bug in auth.py and run the tests twice")
    result = await run(build("Yes."), Conversation([*talk, same]))

    assert result.fact("GoalDrifted") is None


@pytest.mark.parametrize(
    ("task", "advice"),
    [
        ("research and compare Oslo, Bergen and Tromso, with the documentation of each of them", "do not need each other"),
        ("run a security audit on all endpoints for owasp top 10 injection and xss vulnerabilities", "Other agents"),
    ],
)  # fmt: skip
async def test_delegation_and_parallel_parts_are_advice_in_the_first_round(
    task: str, advice: str
) -> None:
    @tool(effect="read", name="delegate")
    async def hand_over(agent: str, task: str) -> str:
        """Hand a task to another agent."""
        return "done"

    runtime = build(LOOK, "Blue.", tools=[look, hand_over])
    await run(runtime, task)

    assert advice in last(requests(runtime)[0])
    assert advice not in last(requests(runtime)[1])


# --- plans with a rollback ---

TRIP = "first book the flight, then book the hotel, and finally send Ana the dates"
PLAN = '1. book("flight")\n2. book("hotel")\njoin()'


def booking(booked: list[str], fails: str = "") -> Tool:
    def undo(ctx: ToolContext[None], result: str) -> str:
        booked.remove(str(ctx.arguments["what"]))
        return "undone"

    @tool(effect="write", compensate=undo, name="book", trusted=True)
    async def book(what: str) -> str:
        """Book."""
        if what == fails:
            raise ToolError("sold out")
        booked.append(what)
        return f"{what} booked"

    return book


async def test_a_plan_is_carried_out_and_its_answer_is_the_turns() -> None:
    booked: list[str] = []
    runtime = build(PLAN, "All is booked.", tools=[booking(booked)])
    result = await run(runtime, TRIP)

    assert (result.answer, sorted(booked)) == ("All is booked.", ["flight", "hotel"])
    assert result.fact("Assessment")["decision"] == "plan_with_rollback"


async def test_policy_refuses_a_plan_before_any_of_it_runs() -> None:
    class Judge(InstantGate):
        version = "judge"

        def decide(self, action: Action, state: PolicyState) -> Any:
            return Deny("no trips") if action.tool == "approve_plan" else Allow()

    booked: list[str] = []
    runtime = build(PLAN, PLAN, PLAN, tools=[booking(booked)], gate=Judge())
    result = await run(runtime, TRIP)

    assert (result.status, result.stop_reason) == ("failed", "denied")
    assert "no trips" in str(result.error)
    assert (booked, result.tool_calls) == ([], 0)


async def test_a_step_that_fails_undoes_the_plan_also_when_resumed_anywhere() -> None:
    def model(request: Request) -> str:
        if "Plan how" in last(request):
            return '1. book("flight")\n2. book("hotel")\njoin()'
        return "Decision: FINISH" if "Decision:" in last(request) else "Half of it."

    booked: list[str] = []
    tools = [booking(booked, fails="hotel")]
    runtime = Runtime(ScriptedProvider(model), tools=tools)
    result = await run(runtime, TRIP)
    entries = runtime.journal.read("r")

    assert (result.status, result.answer) == ("failed", "Half of it.")
    assert "a step of the plan has failed" in str(result.error)
    assert booked == []
    assert {"undo_begun", "undo_finished"} <= {one.kind for one in entries}
    begun = next(one.seq for one in entries if one.kind == "undo_begun")
    for keep in range(begun, len(entries)):
        booked.append("flight")
        again = Runtime(ScriptedProvider(model), tools=tools, journal=crashed(entries, keep))  # fmt: skip
        resumed = await again.resume("r")
        undone = any(one.kind == "undo_finished" for one in entries[:keep])

        assert resumed.status == "failed"
        assert booked == (["flight"] if undone else [])
        booked.clear()


async def test_a_plan_waits_for_its_approval_also_after_the_process_has_ended(
    tmp_path: Any,
) -> None:
    class Judge(InstantGate):
        version = "judge"

        def decide(self, action: Action, state: PolicyState) -> Any:
            return Ask("Such a plan?") if action.tool == "approve_plan" else Allow()

    def make(*script: str) -> Runtime:
        journal = SQLiteJournal(tmp_path / "runs.db")
        return build(*script, tools=[booking(booked)], gate=Judge(), journal=journal, approver=Suspend())  # fmt: skip

    booked: list[str] = []
    waiting = await run(make(PLAN), TRIP)
    assert (waiting.status, waiting.tool_calls, booked) == ("waiting", 0, [])
    again = make("All is booked.")
    await again.control("r").approve(waiting.pending[0].key)
    result = await again.resume("r")

    assert (result.answer, sorted(booked)) == ("All is booked.", ["flight", "hotel"])


async def test_a_plan_at_a_limit_is_undone_and_its_best_answer_kept() -> None:
    booked: list[str] = []
    limits = Limits(max_tool_calls=1)
    runtime = build(PLAN, "The flight is booked.", tools=[booking(booked)], limits=limits)  # fmt: skip
    result = await run(runtime, TRIP)

    assert (result.status, result.stop_reason) == ("limit", "max_tool_calls")
    assert (result.answer, booked) == ("The flight is booked.", [])


async def test_a_plan_that_cannot_be_read_leaves_the_turn_to_its_rounds() -> None:
    runtime = build("no plan", "no plan", "no plan", "I book it now myself: done.", tools=[booking([])])  # fmt: skip
    result = await run(runtime, TRIP)

    assert (result.status, result.answer) == ("completed", "I book it now myself: done.")  # fmt: skip


# --- durability ---


def list_texts(result: Any) -> list[str]:
    """The texts of a conversation, but for the time that a call took, which is another when it is made again."""
    return [re.sub(r"seconds=\S+", "", one.content) for one in result.conversation]


async def test_a_turn_cut_after_any_entry_ends_as_it_would() -> None:
    def model(request: Request) -> Any:
        if "Look back" in last(request):
            return POOR if "Answer: Grey" in last(request) else REVIEW
        spoken = [one for one in request.conversation if one.role == "assistant"]
        return [[LOOK, call("fail", what="sea")], "Grey.", "Blue."][len(spoken)]

    def make(journal: Any = None) -> TurnEngine:
        runtime = Runtime(ScriptedProvider(model), tools=[look, fail], journal=journal)
        return TurnEngine(runtime, reflect=True, hooks=["cost", "loop-detection", "tool-selection", "assessor"])  # fmt: skip

    engine = make()
    whole = await engine.run("Sky?", run_id="r")
    entries = engine.runtime.journal.read("r")

    assert (whole.answer, whole.llm_calls) == ("Blue.", 4)
    for keep in range(1, len(entries)):
        again = make(crashed(entries, keep))
        result = await again.runtime.resume("r")  # type: ignore[attr-defined]
        assert (result.answer, result.llm_calls) == ("Blue.", 4)
        assert list_texts(result) == list_texts(whole)


async def test_limits_end_a_turn_as_any_run() -> None:
    model = restless()
    runtime = Runtime(
        ScriptedProvider(model), tools=[look], limits=Limits(max_llm_calls=3)
    )
    result = await run(runtime)

    assert (result.status, result.stop_reason, result.answer) == ("limit", "max_llm_calls", "Blue.")  # fmt: skip
