"""Hooks: what they may change, in which order they are called, and that a replay calls none."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, Field

from function_engine import FunctionEngine
from loopwright import (
    Action,
    Allow,
    Completion,
    ConfigError,
    Limits,
    MemoryJournal,
    PolicyState,
    Request,
    Run,
    Runtime,
    Sampling,
    tool,
)
from loopwright.errors import HookFailed
from loopwright.events import (
    DriftNoticed,
    HookRan,
    ModelReplied,
    ModelRequested,
    ToolFinished,
)
from loopwright.gates import InstantGate
from loopwright.hooks import Abort, Before, Hook, ModelQuestion, Moment
from loopwright.messages import Reasoning, ToolCall
from loopwright.providers import Capabilities, Delta
from loopwright.security import PatternClassifier, Redactor
from loopwright.testing import FakeClock, ScriptedProvider, call, crashed
from virtual_time import in_virtual_time

LOOK = call("look", what="sky")


@tool(effect="write", trusted=True)
async def look(what: str) -> str:
    """Look."""
    return f"{what} is blue"


class Reply(BaseModel):
    text: str


class Doing(Hook):
    """Does at each stage what a test says."""

    def __init__(self, name: str = "doing", **given: Any) -> None:
        self.name = name  # type: ignore[misc]
        vars(self).update(given)


def build(*script: Any, **options: Any) -> Runtime:
    options.setdefault("tools", [look])
    return Runtime(ScriptedProvider(script), **options)


def requests(runtime: Runtime) -> list[Request]:
    return runtime.provider.requests  # type: ignore[attr-defined]


def events(runtime: Runtime, kind: type[Any] = HookRan) -> list[Any]:
    entries = runtime.journal.read("r")
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


async def run(runtime: Runtime, engine: str = "react", **options: Any) -> Any:
    return await runtime.engine(engine).run("Sky?", run_id="r", **options)


# --- what hooks may change ---


async def test_what_a_hook_says_is_read_in_that_call_alone_as_data() -> None:
    def speak(at: Moment, asked: ModelQuestion) -> Before:
        return Before(messages=(f"{at.turns_left} turns left",))

    runtime = build(LOOK, "Blue.", hooks=[Doing(before_model=speak)])
    result = await run(runtime)
    told = [
        [one.content for one in request.conversation if one.origin == "hook"]
        for request in requests(runtime)
    ]

    assert [len(texts) for texts in told] == [1, 1]
    assert "24 turns left" in told[0][0]
    assert 'data from "hook"' in told[0][0]
    assert "23 turns left" in told[1][0]
    assert all(one.origin != "hook" for one in result.conversation)
    assert events(runtime, ModelRequested)[0].delivered[0].role == "user"


async def test_what_hooks_say_is_cut_and_has_no_secrets() -> None:
    def speak(at: Moment, asked: ModelQuestion) -> Before:
        return Before(messages=("hunter22 " + "x" * 20_000, "and more"))

    runtime = build(
        "Blue.", hooks=[Doing(before_model=speak)], redactor=Redactor(secrets=["hunter22"])
    )  # fmt: skip
    await run(runtime)
    told = [one for one in requests(runtime)[0].conversation if one.origin == "hook"]

    assert len(told) == 1
    assert "hunter22" not in told[0].content
    assert len(told[0].content) < 16_300


async def test_a_hook_chooses_provider_tools_and_settings_of_a_call() -> None:
    def choose(at: Moment, asked: ModelQuestion) -> Before:
        seen.append(asked)
        return Before(provider="small", tools=(), sampling=Sampling(temperature=0.5))

    seen: list[ModelQuestion] = []
    small = ScriptedProvider([LOOK, "Blue."], model="small")
    runtime = build(providers={"small": small}, hooks=[Doing(before_model=choose)])
    result = await run(runtime)
    entries = runtime.journal.read("r")
    keep = next(entry.seq for entry in entries if entry.kind == "tool_finished")
    again = build(
        providers={"small": ScriptedProvider(["Blue."], model="small")},
        hooks=[Doing(before_model=choose)],
        journal=crashed(entries, keep),
    )
    resumed = await again.resume("r")

    assert result.answer == resumed.answer == "Blue."
    assert small.requests[0].tools == ()
    assert small.requests[0].sampling.temperature == 0.5
    assert [spec.name for spec in seen[0].tools] == ["look"]
    assert events(again, DriftNoticed) == []


async def test_hooks_change_replies_results_and_the_answer() -> None:
    hook = Doing(
        after_model=lambda at, text: text.replace("blue", "grey"),
        after_tool=lambda at, text: f"{text}, {at.key}",
        before_answer=lambda at, answer: f"{answer}!",
    )
    runtime = build(LOOK, "It is blue.", hooks=[hook])
    result = await run(runtime)

    assert result.answer == "It is grey.!"
    assert requests(runtime)[1].conversation.messages[-1].content == "sky is blue, 0#0"
    assert events(runtime, ToolFinished)[0].content == "sky is blue"
    assert events(runtime, ModelReplied)[1].completion.answer == "It is blue."
    assert [(one.stage, one.changed) for one in events(runtime)] == [
        ("after_tool", {"text": "sky is blue, 0#0"}),
        ("after_model", {"text": "It is grey."}),
        ("before_answer", {"text": "It is grey.!"}),
    ]
    again = await runtime.resume("r")
    assert again.conversation == result.conversation


async def test_a_result_from_outside_stays_fenced_and_as_sensitive() -> None:
    @tool(effect="read", label="secret")
    async def fetch() -> str:
        """Fetch a page."""
        return "a page that says much: " * 10

    hook = Doing(after_tool=lambda at, text: text.upper())
    runtime = build(call("fetch"), "Done.", tools=[fetch], hooks=[hook])
    result = await run(runtime)
    read = requests(runtime)[1].conversation.messages[-1]

    assert "A PAGE THAT SAYS MUCH" in read.content
    assert 'data from "fetch"' in read.content
    assert (read.label, result.label, result.untrusted) == ("secret", "secret", True)


async def test_a_changed_reply_loses_its_signed_blocks_and_keeps_its_calls() -> None:
    thought = Reasoning("hm", "thinking", {"signature": "s"}, "host")
    reply = Completion("I look.", calls=(LOOK,), thought="I look.", reasoning=(thought,))  # fmt: skip
    for hooks, kept in (([], 1), ([Doing(after_model=lambda at, text: "I do.")], 0)):
        runtime = build(reply, "Blue.", hooks=hooks)
        await run(runtime)
        turn = requests(runtime)[1].conversation.messages[1]

        assert len(turn.reasoning) == kept
        assert [one.name for one in turn.calls] == ["look"]
        assert turn.content == ("I do." if hooks else "I look.")


async def test_text_that_breaks_the_wanted_type_is_a_failed_hook() -> None:
    hook = Doing(
        purposes=("*",),
        after_model=lambda at, text: "not JSON",
        before_answer=lambda at, answer: "neither",
    )

    async def ask(run: Run) -> str:
        value = await run.ask("Which?", into=Reply)
        return f'{{"text": "{value.text} again"}}'

    runtime = build('{"text": "blue"}', hooks=[hook])
    engine = FunctionEngine(runtime, body=ask)
    result = await engine.run("Sky?", run_id="r", output=Reply)

    assert result.output == Reply(text="blue again")
    failed = [one for one in events(runtime) if one.error]
    assert [one.stage for one in failed] == ["after_model", "before_answer"]


# --- when they are called ---


async def test_hooks_come_by_priority_and_name_and_see_what_those_before_left() -> None:
    def add(letter: str) -> Any:
        return lambda at, text: f"{text}{letter}"

    hooks = [
        Doing("last", priority=9, before_answer=add("z")),
        Doing("b", before_answer=add("b")),
        Doing("a", before_answer=add("a")),
        Doing("first", priority=-1, before_answer=add("1")),
    ]
    result = await run(build("-", hooks=hooks))

    assert result.answer == "-1abz"


async def test_the_order_is_redaction_record_hooks_and_then_gates() -> None:
    steps: list[str] = []

    class Judge(InstantGate):
        version = "judge"
        answers = True

        def decide(self, action: Action, state: PolicyState) -> Allow:
            steps.append(f"gate {action.tool} {action.arguments.get('answer', '')}")
            return Allow()

    @tool(effect="write", trusted=True)
    async def pay() -> str:
        """Pay."""
        return "paid with hunter22"

    async def slow(at: Moment, text: str) -> str:
        recorded = [entry.kind for entry in runtime.journal.read("r")]
        steps.append(f"hook {text} {'tool_finished' in recorded}")
        await asyncio.sleep(0)
        return text

    runtime = build(
        call("pay"), "Done.", tools=[pay], gate=Judge(), redactor=Redactor(secrets=["hunter22"]),
        hooks=[Doing(after_tool=slow, before_answer=lambda at, answer: "It is done.")],
    )  # fmt: skip
    await run(runtime)

    assert steps[0] == "gate pay "
    assert steps[1].startswith("hook paid with [")
    assert steps[1].endswith(" True")
    assert steps[2] == "gate run:respond It is done."


async def test_hooks_are_called_for_their_purposes_once_a_reason() -> None:
    seen: list[str] = []

    def note(at: Moment, given: Any) -> None:
        seen.append(f"{at.purpose} {given if isinstance(given, str) else '?'}")

    async def body(run: Run) -> str:
        await run.ask("A plan?", purpose="plan")
        await run.ask("A draft?", purpose="draft")
        proposal = await run.reason(run.conversation)
        return str(proposal.answer)

    hook = Doing(before_model=note, after_model=note)
    broken = Completion("{", problem="it is no JSON")
    runtime = build("The plan.", "The draft.", broken, "Blue.", hooks=[hook])
    await FunctionEngine(runtime, body=body).run("Sky?")
    assert seen == ["plan ?", "plan The plan.", "reason ?", "reason Blue."]

    seen.clear()
    runtime = build(LOOK, LOOK, "Best.", hooks=[hook], limits=Limits(max_iterations=1))
    await run(runtime)
    assert seen == ["reason ?"]  # the best answer is not for hooks


async def test_a_child_has_its_own_hooks_first_and_then_those_around_it_each_once() -> (
    None
):
    def mark(letter: str) -> Any:
        return lambda at, text: f"{text}{letter}{at.agent[:1]}"

    shared = Doing("shared", before_answer=mark("s"), after_model=mark("S"))
    inner = build("-", hooks=[shared, Doing("inner", before_answer=mark("i"), after_model=mark("I"))])  # fmt: skip
    child = inner.agent("child")
    outer = build(call("child", task="?"), "=", tools=[child.as_tool()], hooks=[
        shared, Doing("outer", before_answer=mark("o"), after_model=mark("O"))
    ])  # fmt: skip
    boss = outer.agent("boss")
    result = await boss.run("Sky?", run_id="r")
    told = requests(outer)[1].conversation.messages[-1].content

    assert "-IcScOcic" in told
    assert result.answer == "=ObSbobsb"


async def test_agents_and_engines_have_hooks_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Suffix(Hook):
        def __init__(self, text: str = ".") -> None:
            self.text = text

        def before_answer(self, at: Moment, answer: str) -> str:
            return answer + self.text

    names = {"suffix": Suffix, "dot": lambda: Suffix("•")}

    def load(name: str) -> Any:
        return names[name]

    for module in ("runtime", "agents.runtime_parts"):
        monkeypatch.setattr(f"loopwright.{module}.load_hook", load)
    runtime = build("-", "-", hooks=["dot"])
    agent = runtime.agent(
        "painter", engine=runtime.engine("react", hooks=[{"hook": "suffix", "text": "?"}])
    )  # fmt: skip
    first = await agent.run("Sky?", run_id="r")
    again = build(journal=crashed(runtime.journal.read("r"), 3), hooks=["dot"])
    again.provider._lines = ["-"]  # type: ignore[attr-defined]
    again.agent("painter")
    resumed = await again.resume("r")

    assert first.answer == resumed.answer == "-•?"


# --- what goes wrong ---


async def test_a_hook_that_fails_is_skipped_and_recorded() -> None:
    def fail(at: Moment, text: str) -> str:
        raise ValueError("no")

    hooks = [
        Doing("a", before_answer=fail),
        Doing("b", before_answer=lambda at, text: 7),
        Doing("c", before_answer=lambda at, text: text + "!"),
    ]
    runtime = build("Blue.", hooks=hooks)
    result = await run(runtime)

    assert result.answer == "Blue.!"
    assert [one.error.summary() if one.error else None for one in events(runtime)] == [
        "ValueError: no", "TypeError: must return a text or None, got 7", None,
    ]  # fmt: skip


async def test_a_hook_that_takes_too_long_is_skipped() -> None:
    async def sleep(at: Moment, text: str) -> str:
        await asyncio.sleep(60)
        return "never"

    runtime = build("Blue.", hooks=[Doing(before_answer=sleep, timeout=0.01)])
    result = await run(runtime)

    assert result.answer == "Blue."
    assert "longer than 0.01 s" in str(events(runtime)[0].error)


@in_virtual_time
async def test_each_hook_has_its_own_time_whatever_those_beside_it_do() -> None:
    called: list[str] = []

    def idle(at: Moment, text: str) -> None:
        called.append(text)

    async def idle_later(at: Moment, text: str) -> None:
        called.append(text)
        await asyncio.sleep(0)

    def change(at: Moment, text: str) -> str:
        return f"{text}!"

    async def change_later(at: Moment, text: str) -> str:
        await asyncio.sleep(0)
        return f"{text}?"

    def fail(at: Moment, text: str) -> None:
        raise LookupError("no such word")

    async def hang(at: Moment, text: str) -> None:
        await asyncio.Event().wait()

    works = [
        idle,
        change,
        idle_later,
        hang,
        change_later,
        fail,
        idle,
        idle_later,
        change,
    ]
    hooks = [
        Doing(f"{number}-{work.__name__}", after_model=work, timeout=0.01)
        for number, work in enumerate(works)
    ]
    runtime = build("Blue.", hooks=hooks)
    result = await run(runtime)

    assert asyncio.get_running_loop().time() == pytest.approx(0.01)  # that of one
    assert result.answer == "Blue.!?!"
    assert called == ["Blue.", "Blue.!", "Blue.!?", "Blue.!?"]
    fast = [one for one in events(runtime) if one.changed or one.error]
    assert [one.hook for one in fast] == [
        "1-change", "3-hang", "4-change_later", "5-fail", "8-change",
    ]  # fmt: skip
    assert [one.error and one.error.type for one in fast] == [
        None, "TimedOut", None, "LookupError", None,
    ]  # fmt: skip


@pytest.mark.parametrize("stage", ["before_model", "after_model", "after_tool", "before_answer"])  # fmt: skip
async def test_a_required_hook_that_fails_ends_the_run_also_when_resumed(
    stage: str,
) -> None:
    def fail(at: Moment, given: Any) -> None:
        raise ValueError("no")

    def make(journal: MemoryJournal, *script: Any) -> Runtime:
        hook = Doing(required=True, **{stage: fail})
        return build(*script, hooks=[hook], journal=journal)

    runtime = make(MemoryJournal(), LOOK, "Blue.")
    result = await run(runtime)
    entries = runtime.journal.read("r")
    again = await make(crashed(entries, len(entries) - 1)).resume("r")

    for one in (result, again):
        assert isinstance(one.error, HookFailed)
        assert str(one.error) == f"hook doing {stage}: ValueError: no"
        assert (one.status, one.answer) == ("failed", None)


@pytest.mark.parametrize("stage", ["before_model", "after_model", "after_tool", "before_answer"])  # fmt: skip
async def test_a_hook_may_abort_the_run(stage: str) -> None:
    def stop(at: Moment, given: Any) -> None:
        raise Abort("that is enough")

    runtime = build(LOOK, "Blue.", hooks=[Doing(**{stage: stop})])
    result = await run(runtime)

    assert (result.status, result.stop_reason) == ("aborted", "aborted")
    assert str(result.error) == "hook doing: that is enough"
    assert [one.ended for one in events(runtime)] == [True]


async def test_an_engine_cannot_swallow_the_end_that_a_hook_wants() -> None:
    def stop(at: Moment, given: Any) -> None:
        raise Abort("enough")

    async def body(run: Run) -> str:
        try:
            await run.reason(run.conversation)
        except Exception:  # noqa: BLE001 - as a careless engine does
            return "mine"
        return "never"

    runtime = build("Blue.", hooks=[Doing(before_model=stop)])
    result = await FunctionEngine(runtime, body=body).run("Sky?")

    assert result.status == "aborted"


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        (Before(provider="none"), "'none' is not among Runtime(providers=...)"),
        (Before(tools=("look", "fly")), "tools: there is no fly"),
        (Before(messages="text"), "messages: must be texts"),  # type: ignore[arg-type]
        ("text", "must return Before(...) or None, got 'text'"),
    ],
)
async def test_a_change_that_cannot_be_is_a_failed_hook(
    before: Any, problem: str
) -> None:
    runtime = build("Blue.", hooks=[Doing(before_model=lambda at, asked: before)])
    result = await run(runtime)

    assert result.answer == "Blue."
    assert problem in str(events(runtime)[0].error)


# --- durability ---


class Counting(Hook):
    """Counts in its state, asks a model, and changes texts at all stages."""

    name = "counting"

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def before_model(self, at: Moment, asked: ModelQuestion) -> Before:
        self.calls.append(f"before {at.key}")
        at.state["n"] = int(str(at.state.get("n", 0))) + 1
        return Before(messages=(f"call {at.state['n']}",))

    async def after_tool(self, at: Moment, text: str) -> str:
        self.calls.append(f"tool {at.key}")
        found = await at.ask("Shorter?", Reply)
        return f"{text} ({found.text} {at.state.get('n')})"

    async def after_model(self, at: Moment, text: str) -> str:
        self.calls.append(f"after {at.key}")
        await asyncio.sleep(0)
        return f"{text} [{at.state.get('n')}]"

    def before_answer(self, at: Moment, answer: str) -> str:
        self.calls.append("answer")
        return f"{answer}!"


def answer(request: Request) -> Any:
    if request.conversation.messages[-1].content == "Shorter?":
        return '{"text": "short"}'
    asked = sum(bool(one.calls) for one in request.conversation)
    return call("look", what=f"sky {asked}") if asked < 2 else "Blue."


async def test_what_a_hook_changed_counts_if_its_process_died_before_the_call() -> None:
    def change(at: Moment, asked: ModelQuestion) -> Before:
        return Before(("Be brief.",), "small", (), Sampling(temperature=0.5))

    def make(journal: MemoryJournal) -> tuple[Runtime, ScriptedProvider]:
        small = ScriptedProvider(["Blue."], model="small")
        hooks = [Doing("alter", before_model=change), Doing("look", before_model=see)]
        runtime = build(hooks=hooks, providers={"small": small}, journal=journal)
        return runtime, small

    seen: list[ModelQuestion] = []

    def see(at: Moment, asked: ModelQuestion) -> None:
        seen.append(asked)

    whole, small = make(MemoryJournal())
    await run(whole)
    entries = whole.journal.read("r")
    cut = next(n for n, one in enumerate(entries, 1) if isinstance(one.event, HookRan))
    again, other = make(crashed(entries, cut))
    result = await again.resume("r")

    assert (result.answer, seen) == ("Blue.", [seen[0], seen[0]])
    assert seen[0].provider == "small"
    assert other.requests == small.requests
    assert "Be brief." in other.requests[0].conversation.messages[-1].content
    assert (other.requests[0].tools, other.requests[0].sampling.temperature) == ((), 0.5)  # fmt: skip


async def test_what_a_hook_told_the_model_is_sent_without_what_became_a_secret() -> (
    None
):
    secret = "zebra-4711-quux"

    def tell(at: Moment, asked: ModelQuestion) -> Before:
        return Before((f"Use {secret}.",))

    whole = build("Blue.", hooks=[Doing(before_model=tell)])
    await run(whole)
    entries = whole.journal.read("r")
    cut = next(n for n, one in enumerate(entries, 1) if isinstance(one.event, HookRan))
    again = build(
        "Blue.", hooks=[Doing(before_model=tell)], journal=crashed(entries, cut), redactor=Redactor([secret])
    )  # fmt: skip
    result = await again.resume("r")

    written = str([entry.event for entry in again.journal.read("r")[cut:]])
    assert (result.answer, secret in written, "Use [redacted]." in written) == ("Blue.", False, True)  # fmt: skip


async def test_what_a_hook_tells_the_model_raises_the_label_of_the_run() -> None:
    def tell(at: Moment, asked: ModelQuestion) -> Before | None:
        about = "Their address is ada.lovelace@example.org."
        return Before((about,)) if at.iteration == 1 else None

    labels: list[str] = []

    class Watching(InstantGate):
        def decide(self, action: Any, state: Any) -> Any:
            labels.append(state.label)
            return Allow()

    hooks, classifier = [Doing(before_model=tell)], PatternClassifier()
    runtime = build(LOOK, "Blue.", hooks=hooks, gate=Watching(), classifier=classifier)
    await run(runtime)

    assert labels == ["sensitive"]


class Several(ScriptedProvider):
    """Brings several replies by one request, or one for each."""

    def __init__(self, at_once: int) -> None:
        super().__init__(self.reply)
        self.capabilities = Capabilities(max_samples=at_once)

    @staticmethod
    def reply(request: Request) -> Any:
        has_looked = any(message.role == "tool" for message in request.conversation)
        calls = (ToolCall("look", {"what": "sky"}),)
        return (
            "Blue." if has_looked else Completion("I look.", calls, thought="I look.")
        )

    async def sample(self, request: Request) -> tuple[Completion, ...]:
        reply = await self.complete(request)
        return (reply,) * (request.sampling.n or 1)


async def vote(run: Run) -> str:
    proposals = await run.samples(run.conversation, 3)
    observations = await run.act(await run.gate(proposals[1]))
    talk = run.conversation.observe(proposals[1], observations)
    return f"{[one.thought for one in proposals]} {(await run.reason(talk)).answer}"


@pytest.mark.parametrize("at_once", [1, 8])
async def test_hooks_look_at_each_of_several_replies_also_over_a_crash(
    at_once: int,
) -> None:
    read_only = tool(effect="read", trusted=True)(look.function)

    class Marking(Counting):
        async def after_tool(self, at: Moment, text: str) -> str:
            return f"{text}~"

    def make(journal: MemoryJournal) -> tuple[FunctionEngine, Several, list[str]]:
        calls, model = list[str](), Several(at_once)
        runtime = Runtime(model, tools=[read_only], hooks=[Marking(calls)], journal=journal)  # fmt: skip
        return FunctionEngine(runtime, body=vote), model, calls

    whole, model, calls = make(MemoryJournal())
    async with whole.start("Sky?", run_id="r", deltas=True) as handle:
        shown = [one.text async for one in handle if isinstance(one, Delta)]
        expected = await handle.result()
    entries = whole.runtime.journal.read("r")

    assert expected.answer == "['I look. [1]', 'I look. [1]', 'I look. [1]'] Blue. [2]!"
    assert calls == ["before 0~s0", *(f"after 0~s{n}" for n in range(3)), "before 1", "after 1", "answer"]  # fmt: skip
    assert "call 1" in model.requests[0].conversation.messages[-1].content
    assert not {"I look.", "Blue."} & {*shown}
    for keep in range(1, len(entries)):
        again, _, called = make(crashed(entries, keep))
        result = await again.resume("r")

        assert (result.answer, result.conversation) == (expected.answer, expected.conversation)  # fmt: skip
        assert len(called) == len({*called})


async def test_a_run_cut_after_any_entry_ends_as_it_would_and_calls_no_hook_twice() -> (
    None
):
    read_only = tool(effect="read", trusted=True)(look.function)

    def make(calls: list[str], journal: MemoryJournal) -> Runtime:
        return Runtime(ScriptedProvider(answer), tools=[read_only], hooks=[Counting(calls)], journal=journal)  # fmt: skip

    whole_calls: list[str] = []
    whole = make(whole_calls, MemoryJournal())
    expected = await run(whole)
    entries = whole.journal.read("r")

    assert expected.answer == "Blue. [3]!"
    assert expected.llm_calls == 5
    for keep in range(1, len(entries)):
        calls: list[str] = []
        again = make(calls, crashed(entries, keep))
        result = await again.resume("r")
        recorded = {
            f"{one.event.stage} {one.key}"
            for one in entries[:keep]
            if isinstance(one.event, HookRan)
        }

        assert (result.answer, result.llm_calls) == (expected.answer, 5)
        assert result.conversation == expected.conversation
        assert [one.event for one in again.journal.read("r") if isinstance(one.event, DriftNoticed)] == []  # fmt: skip
        called = {
            one.replace("tool ", "after_tool ").replace("after ", "after_model ")
            for one in calls
            if not one.startswith(("before", "answer"))
        }
        assert called & recorded == set()


async def test_a_hook_asks_within_the_budget_of_the_run() -> None:
    async def ask(at: Moment, text: str) -> str:
        return (await at.ask("Shorter?", Reply)).text

    runtime = build(
        LOOK, "Blue.", hooks=[Doing(after_tool=ask)], limits=Limits(max_llm_calls=2, best_effort=False)
    )  # fmt: skip
    runtime.provider._lines = [LOOK, '{"text": "short"}', "Blue."]  # type: ignore[attr-defined]
    result = await run(runtime)

    assert result.stop_reason == "max_llm_calls"
    assert events(runtime)[0].changed == {"text": "short"}
    keys = [entry.key for entry in runtime.journal.read("r") if entry.kind == "model_replied"]  # fmt: skip
    assert keys == ["0", "0~h2_0_0"]


async def test_a_state_that_is_too_large_or_no_json_is_a_failed_hook() -> None:
    def grow(at: Moment, text: str) -> str:
        at.state["all"] = "x" * 5_000
        return "changed"

    runtime = build("Blue.", hooks=[Doing(before_answer=grow)])
    result = await run(runtime)

    assert result.answer == "Blue."
    assert "at most 4096 are kept" in str(events(runtime)[0].error)


async def test_idle_hooks_leave_no_entry() -> None:
    async def look_on(at: Moment, given: Any) -> None:
        assert at.run_id == "r"

    stages = dict.fromkeys(("before_model", "after_model", "after_tool", "before_answer"), look_on)  # fmt: skip
    plain, hooked = build(LOOK, "Blue."), build(LOOK, "Blue.", hooks=[Doing(**stages)], clock=FakeClock())  # fmt: skip
    for runtime in (plain, hooked):
        await run(runtime)

    kinds = [[entry.kind for entry in one.journal.read("r")] for one in (plain, hooked)]
    assert kinds[0] == kinds[1]


async def test_a_call_of_a_hook_that_takes_long_is_an_entry() -> None:
    clock = FakeClock()

    def quick(at: Moment, text: str) -> None:
        clock.advance(0.004)

    def slow(at: Moment, text: str) -> None:
        clock.advance(0.006)

    async def slow_later(at: Moment, text: str) -> None:
        await asyncio.sleep(0)
        clock.advance(0.006)

    works = (quick, slow, quick, slow_later, quick)
    hooks = [Doing(f"{number}-{work.__name__}", after_model=work) for number, work in enumerate(works)]  # fmt: skip
    runtime = build("Blue.", hooks=hooks, clock=clock)
    await run(runtime)

    assert [(one.hook, one.seconds) for one in events(runtime)] == [
        ("1-slow", pytest.approx(0.006)), ("3-slow_later", pytest.approx(0.006)),
    ]  # fmt: skip


async def test_watcher_sees_no_json_that_did_not_fit_where_hooks_see_answers() -> None:
    class Sky(BaseModel):
        blue: int = Field(le=100)

    runtime = build(
        *['{"blue": 210}'] * 2, '{"blue": 21}', hooks=[Doing(before_answer=lambda at, answer: answer.replace("21", "22"))]
    )  # fmt: skip
    shown = ""
    async with runtime.engine("react").start(
        "Sky?", output=Sky, deltas=True
    ) as watched:
        async for item in watched:
            shown += item.text if isinstance(item, Delta) else ""
        result = await watched.result()

    assert (result.answer, result.output) == ('{"blue": 22}', Sky(blue=22))
    assert '{"blue": 22}' in shown
    assert "21" not in shown


async def test_another_version_of_a_hook_is_drift() -> None:
    whole = build(LOOK, "Blue.", hooks=[Doing(version="1", after_tool=lambda at, text: None)])  # fmt: skip
    await run(whole)
    again = build(
        "Blue.", journal=crashed(whole.journal.read("r"), 6), hooks=[Doing(version="2", after_tool=lambda at, text: None)]
    )  # fmt: skip
    await again.resume("r")

    drift = [(one.what, one.before, one.after) for one in events(again, DriftNoticed)]
    assert drift == [("hooks", "doing@1", "doing@2")]


# --- watchers ---


async def watch(runtime: Runtime) -> list[str]:
    """The texts that a watcher sees, with the kinds of the entries between."""
    seen: list[str] = []
    async with runtime.engine("react").start("Sky?", run_id="r", deltas=True) as handle:
        async for item in handle:
            if isinstance(item, Delta) and item.text:
                seen.append(item.text)
            elif not isinstance(item, Delta) and item.kind == "hook_ran":
                seen.append("hook")
    return seen


async def test_watchers_see_a_reply_once_hooks_have_spoken() -> None:
    secret = Doing(after_model=lambda at, text: text.replace("blue", "grey"))
    answers = Doing(before_answer=lambda at, answer: f"{answer} Bye.")

    assert await watch(build("It is blue.", hooks=[secret])) == ["hook", "It is grey."]
    assert await watch(build("It is blue.", hooks=[answers])) == ["hook", "It is blue. Bye."]  # fmt: skip
    silent = [Doing(after_model=lambda at, text: None)]
    idle = await watch(build("It is blue.", hooks=silent, clock=FakeClock()))
    assert "".join(idle) == "It is blue."


# --- what is refused ---


@pytest.mark.parametrize(
    ("hooks", "problem"),
    [
        ("loud", "hooks: must be a list, got 'loud'"),
        ([object()], "has none of the methods before_model, after_model, after_tool, before_answer"),
        ([Doing], "has none of the methods"),
        (["never-heard-of"], "hooks: there is no 'never-heard-of'"),
        ([{"name": "x"}], 'hooks: needs {"hook": name, ...options}'),
        ([Doing("a", after_tool=print), Doing("a", after_tool=print)], "hooks: 'a' is given twice"),
        ([Doing("a", after_tool=print, timeout=0)], "hooks: 'a' needs a timeout above 0, got 0"),
    ],
)  # fmt: skip
def test_a_bad_hook_is_refused_by_name(hooks: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build(hooks=hooks)

    assert problem in str(refused.value)


def test_agents_and_engines_take_names_only() -> None:
    hook: Any = Doing(after_tool=print)
    with pytest.raises(ConfigError, match="objects are for Runtime"):
        build().agent("painter", hooks=[hook])
    with pytest.raises(ConfigError):
        build().engine("react", hooks=[hook])
    with pytest.raises(ConfigError, match="there is no 'never-heard-of'"):
        build().engine("react", hooks=["never-heard-of"])
