"""Handoffs: another agent works on a run in the place of the one that gives it away."""

from typing import Any

import pytest
from pydantic import BaseModel

from function_engine import FunctionEngine
from loopwright import (
    Action,
    Allow,
    ConfigError,
    Conversation,
    Deny,
    Limits,
    MemoryJournal,
    PolicyState,
    Run,
    Runtime,
    Suspend,
    tool,
)
from loopwright.agents import Handoff
from loopwright.errors import AgentReplaced
from loopwright.events import DriftNoticed, HandedOff, RunFinished, ToolFinished
from loopwright.gates import InstantGate
from loopwright.messages import ToolCall
from loopwright.providers import Delta
from loopwright.testing import ScriptedProvider, call, crashed
from telemetry import Telemetry

TRANSFER = call("transfer_to_fraud")


@tool(effect="read", trusted=True)
async def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


@tool(effect="write")
async def block(card: str) -> str:
    """Block a card."""
    return f"{card} is blocked"


@tool(effect="read", label="secret")
async def read_file() -> str:
    """Read a file of a customer."""
    return "she is rich"


class Reply(BaseModel):
    text: str


def bank(*script: Any, fraud: dict[str, Any] | None = None, **options: Any) -> Runtime:
    """A bank with the agents triage and fraud; they may hand off to each other."""
    options.setdefault("tools", [look])
    runtime = Runtime(ScriptedProvider(script), **options)
    runtime.agent("triage", instructions="You sort.", handoffs=["fraud"])
    given = {"tools": [block], "handoffs": ["triage"], **(fraud or {})}
    runtime.agent(
        "fraud", instructions="You stop fraud.", description="Lost cards.", **given
    )
    return runtime


def events(runtime: Runtime, kind: type[Any], run_id: str = "r") -> list[Any]:
    entries = runtime.journal.read(run_id)
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


def requests(runtime: Runtime) -> list[Any]:
    return runtime.provider.requests  # type: ignore[attr-defined]


def texts(messages: Any) -> list[str]:
    return [message.content for message in messages if message.content]


async def run(runtime: Runtime, agent: str = "triage", **options: Any) -> Any:
    return await runtime.agents[agent].run("My card is gone.", run_id="r", **options)


# --- one run ---


async def test_the_other_agent_works_with_its_own_instructions_and_tools() -> None:
    runtime = bank(
        [TRANSFER, call("look", what="sky")], call("block", card="7"), "Blocked."
    )
    result = await run(runtime)
    asked = requests(runtime)

    assert (result.answer, result.llm_calls, result.iterations) == ("Blocked.", 3, 3)
    assert [one.system for one in asked] == ["You sort.", *["You stop fraud."] * 2]
    names = [[spec.name for spec in one.tools] for one in asked]
    assert names == [["look", "transfer_to_fraud"], *[["block", "transfer_to_triage"]] * 2]  # fmt: skip
    assert asked[0].tools[1].description == (
        "Hand the conversation over to fraud. Lost cards."
    )
    assert texts(asked[2].conversation) == [
        "You stop fraud.", "My card is gone.", "Handed off to fraud.", "sky is blue", "7 is blocked",
    ]  # fmt: skip
    [handoff] = events(runtime, HandedOff)
    assert (handoff.giver, handoff.agent, handoff.engine) == ("triage", "fraud", "react")  # fmt: skip
    [ended] = events(runtime, RunFinished)
    assert (ended.agent, ended.iterations) == ("fraud", 3)
    assert len(runtime.journal.runs()) == 1


async def test_a_run_goes_back_and_forth_ten_times_and_then_the_model_is_told() -> None:
    back = call("transfer_to_triage")
    runtime = bank(*[TRANSFER, back] * 5, TRANSFER, "I answer.")
    result = await run(runtime)
    refused = [
        one.content for one in events(runtime, ToolFinished) if one.status == "rejected"
    ]

    assert (result.answer, result.status) == ("I answer.", "completed")
    assert len(events(runtime, HandedOff)) == 10
    assert events(runtime, RunFinished)[0].agent == "triage"
    assert refused == [
        "transfer_to_fraud was not run: max_handoffs: this run was handed off 10 times, which is all that "
        "Limits(max_handoffs=10) allow, got fraud; answer without another agent"
    ]


async def test_the_first_handoff_of_a_turn_counts_and_the_others_are_not_done() -> None:
    runtime = bank([TRANSFER, TRANSFER], "Done.")
    result = await run(runtime)
    finished = [(one.status, one.content) for one in events(runtime, ToolFinished)]

    assert result.answer == "Done."
    assert finished == [
        ("ok", "Handed off to fraud."),
        ("rejected", "Not done: another call of this turn hands the run off."),
    ]


@pytest.mark.parametrize(
    ("select", "seen"),
    [
        ("all", ["Hi.", "Hello.", "My card.", "Handed off to fraud."]),
        ("last", ["My card."]),
        (lambda whole: Conversation(whole.messages[:1]), ["Hi."]),
    ],
)
async def test_a_filter_says_what_the_other_agent_sees_and_the_result_has_all(
    select: Any, seen: list[str]
) -> None:
    runtime = Runtime(ScriptedProvider([TRANSFER, "Blocked."]))
    handoffs = [Handoff("fraud", filter=select, description="Cards.")]
    triage = runtime.agent("triage", handoffs=handoffs)
    runtime.agent("fraud")
    history = Conversation.of("Hi.").assistant("Hello.", origin="model").user("My card.")  # fmt: skip
    result = await triage.run(history, run_id="r")
    again = await runtime.resume("r")

    assert texts(requests(runtime)[-1].conversation) == seen
    assert requests(runtime)[0].tools[0].description.endswith("over to fraud. Cards.")
    whole = ["Hi.", "Hello.", "My card.", "Handed off to fraud.", "Blocked."]
    assert texts(result.conversation) == texts(again.conversation) == whole


async def test_a_filter_that_leaves_nothing_to_answer_ends_the_run() -> None:
    runtime = Runtime(ScriptedProvider([TRANSFER]))
    runtime.agent(
        "triage", handoffs=[Handoff("fraud", filter=lambda whole: Conversation())]
    )
    runtime.agent("fraud")
    result = await run(runtime)

    assert isinstance(result.error, ConfigError)
    assert "must be a conversation with a task" in str(result.error)
    assert events(runtime, HandedOff) == []


# --- what the other agent has, and what stays of the run ---


async def test_the_other_agent_has_iterations_of_its_own_and_the_lower_limits() -> None:
    own = {"limits": Limits(max_iterations=2, max_llm_calls=4, max_output_chars=5)}
    look_again = call("look", what="sky")
    runtime = bank(
        look_again, look_again, TRANSFER, call("block", card="7"), "Best.",
        limits=Limits(max_iterations=3, max_llm_calls=50), fraud=own,
    )  # fmt: skip
    result = await run(runtime)

    # Of the four calls one is reserved for the best answer.
    assert (result.status, result.stop_reason) == ("limit", "max_llm_calls")
    assert requests(runtime)[-1].conversation.messages[-1].content != "7 is blocked"
    assert result.llm_calls == 4


async def test_iterations_begin_anew_with_the_other_agent() -> None:
    again = call("block", card="7")
    own = {"limits": Limits(max_iterations=2, best_effort=False)}
    runtime = bank(
        call("look", what="a"), call("look", what="b"), TRANSFER, again, again,
        limits=Limits(max_iterations=3), fraud=own,
    )  # fmt: skip
    result = await run(runtime)

    assert (result.stop_reason, result.iterations) == ("max_iterations", 5)


async def test_the_run_stays_as_sensitive_as_what_the_first_agent_read() -> None:
    seen: list[tuple[str, str]] = []

    class Watching(InstantGate):
        version = "watching"

        def decide(self, action: Action, state: PolicyState) -> Allow:
            seen.append((action.tool, state.label))
            return Allow()

    runtime = bank(
        call("read_file"), TRANSFER, call("block", card="7"), "Done.",
        tools=[read_file], gate=Watching(),
    )  # fmt: skip
    result = await run(runtime)

    assert seen == [
        ("read_file", "normal"),
        ("transfer_to_fraud", "secret"),
        ("block", "secret"),
    ]
    assert result.label == "secret"


async def test_policy_may_refuse_a_handoff_and_the_agent_continues() -> None:
    class Strict(InstantGate):
        version = "strict"

        def decide(self, action: Action, state: PolicyState) -> Allow | Deny:
            return Deny("no") if action.tool.startswith("transfer") else Allow()

    runtime = bank(TRANSFER, "Then I answer.", gate=Strict())
    result = await run(runtime)

    assert result.answer == "Then I answer."
    assert events(runtime, HandedOff) == []


async def test_all_gates_met_so_far_decide_about_what_the_other_agent_does() -> None:
    class NoBlocking(InstantGate):
        version = "no-blocking"

        def decide(self, action: Action, state: PolicyState) -> Allow | Deny:
            return Deny("not here") if action.tool == "block" else Allow()

    other = Runtime(ScriptedProvider([call("block", card="7"), "I may not."]))
    fraud = other.agent("fraud", tools=[block])

    async def give(run: Run) -> None:
        await run.handoff(fraud, Conversation.of("Block it."))

    runtime = Runtime(ScriptedProvider([]), gate=NoBlocking())
    result = await FunctionEngine(runtime, body=give).run("Go.", run_id="r")
    [refused] = events(runtime, ToolFinished)

    assert result.answer == "I may not."
    assert (refused.status, refused.content) == ("denied", "not here")


async def test_people_are_asked_by_the_other_agent_and_the_run_continues_there() -> (
    None
):
    @tool(effect="destructive")
    async def close(account: str) -> str:
        """Close an account."""
        return f"{account} is closed"

    runtime = bank(
        TRANSFER, call("close", account="7"), "Closed.",
        approver=Suspend(), fraud={"tools": [close]},
    )  # fmt: skip
    waiting = await run(runtime)
    [question] = waiting.pending
    await runtime.control("r").approve(question.id)
    result = await runtime.resume("r")

    assert (waiting.status, question.key) == ("waiting", "1.0#0")
    assert (result.answer, result.llm_calls) == ("Closed.", 3)


async def test_a_follow_up_is_for_the_agent_that_has_the_run() -> None:
    @tool(effect="read")
    async def thank() -> str:
        """Say thanks after the answer."""
        await handles[0].follow_up("Thanks.")
        return "thanked"

    runtime = bank(
        TRANSFER,
        call("thank"),
        "Blocked.",
        "You are welcome.",
        fraud={"tools": [thank]},
    )
    handles = [runtime.agents["triage"].start("My card is gone.", run_id="r")]
    result = await handles[0].result()

    assert result.answer == "You are welcome."
    assert requests(runtime)[-1].system == "You stop fraud."


async def test_calls_of_both_agents_are_undone_where_the_last_one_fails() -> None:
    undone: list[str] = []

    async def undo(ctx: Any, result: str) -> None:
        undone.append(result)

    @tool(effect="write", compensate=undo)
    async def book(seat: str) -> str:
        """Book."""
        return f"{seat} booked"

    runtime = bank(
        call("book", seat="1A"), TRANSFER, call("book", seat="2B"), RuntimeError("no"),
        tools=[book], fraud={"tools": [book]},
    )  # fmt: skip
    result = await run(runtime, saga=True)

    assert result.status == "failed"
    assert undone == ["2B booked", "1A booked"]


async def test_a_persons_order_may_hand_the_run_off() -> None:
    async def wait(run: Run) -> str:
        await run.ask("First?")
        await handles[0].override("transfer_to_fraud", {})
        return await run.ask("Second?")

    runtime = Runtime(ScriptedProvider(["One.", "Blocked."]))
    runtime.agent(
        "triage", engine=FunctionEngine(runtime, body=wait), handoffs=["fraud"]
    )
    runtime.agent("fraud")
    handles = [runtime.agents["triage"].start("Card.", run_id="r")]
    result = await handles[0].result()

    assert result.answer == "Blocked."
    assert events(runtime, RunFinished)[0].agent == "fraud"


async def test_the_next_turn_of_a_thread_begins_with_the_agent_that_has_it() -> None:
    runtime = bank(TRANSFER, "Blocked.", "You are welcome.")
    thread = runtime.agents["triage"].thread("user-42")
    await thread.run("My card is gone.")
    answer = await thread.run("Thanks.")

    assert answer.answer == "You are welcome."
    assert requests(runtime)[-1].system == "You stop fraud."


# --- the engine's own handoff ---


async def test_an_engine_hands_off_by_itself_and_cannot_swallow_the_signal() -> None:
    caught: list[str] = []

    async def give(run: Run) -> str:
        for _ in range(2):
            try:
                await run.handoff("fraud", Conversation.of("Now you."))
            except AgentReplaced as signal:
                caught.append(str(signal))
        return "mine"

    runtime = Runtime(ScriptedProvider(["Theirs."]))
    runtime.agent("fraud")
    result = await FunctionEngine(runtime, body=give).run("Go.", run_id="r")

    assert result.answer == "Theirs."
    assert (len(caught), len(events(runtime, HandedOff))) == (2, 1)
    assert texts(requests(runtime)[0].conversation) == ["Now you."]


async def test_an_agent_that_is_a_tool_may_hand_off_and_its_caller_gets_the_answer() -> (
    None
):
    runtime = bank(call("triage", task="Card."), TRANSFER, "Blocked.", "It is blocked.")
    boss = runtime.agent("boss", tools=[runtime.agents["triage"].as_tool()])
    result = await boss.run("My card is gone.", run_id="r")
    keys = [entry.key for entry in runtime.journal.read("r") if entry.kind == "handed_off"]  # fmt: skip

    assert (result.answer, result.llm_calls) == ("It is blocked.", 4)
    assert keys == ["0.0.1"]
    assert events(runtime, RunFinished)[0].agent == "boss"
    assert requests(runtime)[-1].conversation.messages[-1].content == "Blocked."


async def test_a_handed_off_run_cut_after_any_entry_ends_in_the_same_way() -> None:
    script: list[Any] = [
        [TRANSFER, call("look", what="sky")], call("block", card="7"), call("transfer_to_triage"), "Done.",
    ]  # fmt: skip
    whole = bank(*script)
    expected = await run(whole)
    entries = whole.journal.read("r")
    for keep in range(1, len(entries)):
        asked = sum(entry.kind == "model_replied" for entry in entries[:keep])
        journal: MemoryJournal = crashed(entries, keep)
        again = bank(*script[asked:], journal=journal)
        result = await again.resume("r")

        assert (result.answer, result.status) == (expected.answer, "completed")
        assert events(again, RunFinished)[0].agent == "triage"
        assert len(events(again, HandedOff)) == 2
        assert events(again, DriftNoticed) == []


def plan_of_goals(**options: Any) -> Runtime:
    """A plan of goals; the engine that works on one of them hands the run off."""

    def reply(request: Any) -> Any:
        said = " ".join(texts(request.conversation))
        if request.system == "You stop fraud.":
            return "It is stopped."
        if "Plan how" in said:
            return "1. Find the card\n2. Find the holder"
        return TRANSFER if "blue" in said else call("look", what="sky")

    provider = ScriptedProvider(reply)
    runtime = Runtime(provider, tools=[look], **options)
    runtime.agent("triage", engine="plan-execute", handoffs=["fraud"])
    runtime.agent("fraud", instructions="You stop fraud.")
    return runtime


async def test_a_goal_of_a_plan_handed_off_and_cut_anywhere_ends_in_the_same_way() -> (
    None
):
    whole = plan_of_goals()
    await run(whole)
    entries = whole.journal.read("r")
    assert "branch_delivered" in [entry.kind for entry in entries]
    for keep in range(1, len(entries)):
        again = plan_of_goals(journal=crashed(entries, keep))
        result = await again.resume("r")

        assert (result.answer, keep) == ("It is stopped.", keep)
        assert len(events(again, HandedOff)) == 1


# --- who speaks ---


async def test_deltas_and_spans_say_which_agent_speaks() -> None:
    telemetry = Telemetry()
    runtime = bank(TRANSFER, "Blocked it.", observers=[telemetry.observer])
    agents: list[str] = []
    handle = runtime.agents["triage"].start("Card.", run_id="r", deltas=True)
    async with handle as running:
        async for item in running:
            if isinstance(item, Delta) and item.agent not in agents[-1:]:
                agents.append(item.agent)

    assert agents == ["triage", "fraud"]
    assert telemetry.tree() == [
        "invoke_agent triage",
        "  chat script",
        "  execute_tool transfer_to_fraud",
        "  invoke_agent fraud",
        "    chat script",
    ]
    assert telemetry.open == 0


# --- what is refused ---


async def test_an_unknown_agent_is_refused_by_name_before_anything_runs() -> None:
    runtime = Runtime(ScriptedProvider([]))
    runtime.agent("triage", handoffs=["fraud"])
    runtime.agent("fraud", handoffs=["police"])
    with pytest.raises(ConfigError) as refused:
        await run(runtime)

    assert str(refused.value) == (
        "handoffs: there is no agent 'police', the runtime has triage, fraud; "
        "define it with runtime.agent('police', ...)"
    )
    assert runtime.journal.runs() == []
    runtime.agent("police")
    runtime.provider._lines = ["Now it works."]  # type: ignore[attr-defined]
    assert (await run(runtime)).answer == "Now it works."


async def test_a_run_is_not_resumed_without_an_agent_that_it_may_come_to() -> None:
    whole = bank(TRANSFER, "Blocked.")
    await run(whole)
    today = Runtime(ScriptedProvider([]), journal=crashed(whole.journal.read("r"), 4))
    today.agent("triage", handoffs=["fraud"])
    with pytest.raises(ConfigError, match="no agent 'fraud'"):
        await today.resume("r")

    assert len(today.journal.read("r")) == 4


async def test_agents_of_other_outputs_cannot_be_handed_to() -> None:
    runtime = bank(fraud={"output": Reply})
    with pytest.raises(ConfigError) as refused:
        await run(runtime)

    assert str(refused.value) == (
        "handoffs: 'fraud' answers as Reply, and 'triage' as a text; give both the same output"
    )


async def test_the_answer_is_of_the_output_that_both_have_or_the_caller_wants() -> None:
    both = Runtime(ScriptedProvider([TRANSFER, '{"text": "Blocked."}']))
    triage = both.agent("triage", handoffs=["fraud"], output=Reply)
    both.agent("fraud", output=Reply)
    own = await triage.run("Card.", run_id="r")
    wanted = await run(bank(TRANSFER, '{"text": "Blocked."}'), output=Reply)

    assert own.output == wanted.output == Reply(text="Blocked.")
    assert requests(both)[1].schema is not None


@pytest.mark.parametrize(
    ("handoffs", "problem"),
    [
        ("fraud", "handoffs: must be a list of agents, got 'fraud'"),
        ([7], "handoffs: needs names of agents, or Handoff(name, ...), got 7"),
        (["a", "a"], "handoffs: 'a' is given twice; remove one"),
        (["triage"], "handoffs: 'triage' cannot hand a run off to itself; leave it out"),
    ],
)  # fmt: skip
def test_bad_handoffs_are_refused_by_name(handoffs: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Runtime(ScriptedProvider([])).agent("triage", handoffs=handoffs)

    assert str(refused.value) == problem


def test_a_bad_filter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'filter: must be "all", "last" or a fun'):
        Handoff("fraud", filter="none")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("agent", "problem"),
    [
        (7, "handoff: needs the name of an agent or an Agent, got 7"),
        ("police", "handoffs: there is no agent 'police', the runtime has none"),
    ],
)
async def test_a_bad_receiver_ends_the_run_of_the_engine(
    agent: Any, problem: str
) -> None:
    async def give(run: Run) -> None:
        await run.handoff(agent)

    engine = FunctionEngine(Runtime(ScriptedProvider([])), body=give)
    result = await engine.run("Go.")

    assert isinstance(result.error, ConfigError)
    assert str(result.error).startswith(problem)


async def test_another_receiver_today_is_divergence() -> None:
    def make(name: str, journal: MemoryJournal) -> FunctionEngine:
        async def give(run: Run) -> None:
            await run.call(ToolCall("look", {"what": "sky"}))
            await run.handoff(name)

        runtime = Runtime(ScriptedProvider(["Done."]), tools=[look], journal=journal)
        runtime.agent("one")
        runtime.agent("two")
        return FunctionEngine(runtime, body=give)

    first = make("one", MemoryJournal())
    await first.run("Go.", run_id="r")
    entries = first.runtime.journal.read("r")
    handed = next(entry.seq for entry in entries if entry.kind == "handed_off")
    today = make("two", crashed(entries, handed))
    with pytest.raises(Exception, match=r"recorded: handoff one .*now: handoff two"):
        await today.resume("r")
