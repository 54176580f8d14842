"""What a user writes: tools with dependencies, engines and their options, an engine, a gate, providers, observers."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import assert_type

from pydantic import BaseModel

from loopwright import (
    Action,
    Allow,
    Ask,
    Attachment,
    Capabilities,
    ChainOfThoughtEngine,
    Completion,
    Conversation,
    Delta,
    Deny,
    Entry,
    Limits,
    LoopEngine,
    Modify,
    Observation,
    PolicyGate,
    PolicyState,
    Price,
    Proposal,
    Provider,
    ReActEngine,
    ReflexionEngine,
    Request,
    Result,
    Run,
    RunHandle,
    Runtime,
    Sampling,
    Suspend,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    Usage,
    available_engines,
    tool,
)
from loopwright.events import ModelReplied, RunFinished, ToolFinished
from loopwright.journals import SQLiteJournal
from loopwright.plugins import Plugin
from loopwright.providers import OpenAIProvider, StreamingProvider, TextTools
from loopwright.testing import ScriptedProvider, call

# --- tools ---


@dataclasses.dataclass(frozen=True)
class Deps:
    """What the tools work with."""

    station: str
    readings: dict[str, float]


@tool(effect="read", timeout=5.0)
async def temperature(ctx: ToolContext[Deps], city: str) -> float:
    """The temperature in a city."""
    assert_type(ctx.deps, Deps)
    assert_type(ctx.deadline, float | None)
    if city not in ctx.deps.readings:
        raise ToolError(f"{ctx.deps.station} does not measure in {city}")
    return ctx.deps.readings[city]


@tool
def publish(ctx: ToolContext[Deps], text: str, *, channel: str = "web") -> str:
    """Publish a forecast."""
    return f"{ctx.idempotency_key} {channel} {text}"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


assert_type(temperature, Tool)
assert_type(publish, Tool)


# --- a policy gate, and who is asked ---


class Desk:
    """Reads are free, short texts too; the rest is asked about."""

    version = "desk-1"

    async def evaluate(
        self, action: Action, state: PolicyState
    ) -> Allow | Ask | Deny | Modify:
        """Decide about one call."""
        text = action.arguments.get("text", "")
        if action.effect == "read" or state.engine == "second-look":
            return Allow()
        if not isinstance(text, str):
            return Deny("the text is no text")
        return (
            Modify({**action.arguments, "text": text[:80]}, "too long")
            if len(text) > 80
            else Ask("Publish?")
        )


async def editor(action: Action, question: str) -> bool:
    """The person who is asked."""
    return action.tool == "publish" and bool(question)


gate: PolicyGate = Desk()


# --- providers: by protocol, with and without streaming ---


class Parrot:
    """A provider of one's own that cannot stream."""

    name = "parrot"
    model = "grey"
    capabilities = Capabilities(native_tools=False)

    async def complete(self, request: Request) -> Completion:
        """Say the last thing again."""
        said = request.conversation.messages[-1].content
        return Completion(
            said, answer=said, usage=Usage(input_tokens=1, output_tokens=1)
        )


class Singer:
    """A provider of one's own that streams, with properties in place of attributes."""

    def __init__(self, model: str) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """Who serves the model."""
        return "singer"

    @property
    def model(self) -> str:
        """Which model it is."""
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        return Capabilities()

    async def complete(self, request: Request) -> Completion:
        """Sing in one piece."""
        return Completion(
            "la la",
            answer="la la",
            calls=(ToolCall("add", {"a": 1, "b": len(request.tools)}),),
        )

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Sing note by note."""
        yield Delta(text="la ")
        yield Delta(text="la", completion=await self.complete(request))


silent: Provider = Parrot()
streaming: StreamingProvider = Singer("alto")
also_plain: Provider = streaming
scripted: StreamingProvider = ScriptedProvider(
    ["It is 21 degrees.", call("add", a=1, b=2), [call("add", a=1, b=2)]]
)


# --- an engine of one's own ---


class Doubt(BaseModel):
    """What the second look found."""

    doubtful: bool
    why: str = ""


class SecondLookEngine(LoopEngine):
    """Answers with tools, then looks at the answer again."""

    name = "second-look"
    looks: int = 1
    critic: str | None = None

    async def solve(self, run: Run) -> str:
        """Answer, look, answer again."""
        conversation = run.conversation
        for _ in run.iterations(None):
            proposal = await run.reason(conversation)
            assert_type(proposal, Proposal)
            if proposal.answer is None:
                observations = await run.act(await run.gate(proposal))
                assert_type(observations, tuple[Observation, ...])
                conversation = conversation.observe(proposal, observations)
                continue
            doubt = await run.ask(
                f"Is this right? {proposal.answer}", into=Doubt, provider=self.critic
            )
            assert_type(doubt, Doubt)
            run.note(doubt)
            if not doubt.doubtful:
                return proposal.answer
            conversation = conversation.observe(proposal).user(doubt.why)
        words: str = await run.ask(conversation, sampling=Sampling(temperature=0.0))
        both = await run.gather(self._word, self._word)
        assert_type(both, list[str])
        count = await run.effect("count", self._count, into=int)
        assert_type(count, int)
        return await run.best_answer(
            conversation.assistant(words + str(run.now()) + run.new_id())
        )

    async def _word(self, run: Run) -> str:
        child: Result = await run.delegate(
            ChainOfThoughtEngine(self.runtime), "One word, please."
        )
        return child.answer or ""

    async def _count(self) -> int:
        return self.looks


# --- a runtime with all of it ---


class Ticker:
    """An observer: a callable that gets every entry."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, entry: Entry) -> None:
        """Keep what happened."""
        match entry.event:
            case ModelReplied(completion=reply, seconds=seconds):
                self.lines.append(f"{reply.text} {seconds:.1f}")
            case ToolFinished(tool=name, status=status):
                self.lines.append(f"{name} {status}")
            case RunFinished(answer=answer, usage=usage):
                self.lines.append(f"{answer} {usage.total_tokens} {usage.cost}")
            case _:
                self.lines.append(entry.kind)


def runtime(path: str) -> Runtime:
    """Everything that can be given."""
    return Runtime(
        OpenAIProvider(
            "gpt-4.1-mini", api_key="a-key-of-a-test", sampling=Sampling(top_p=0.9)
        ),
        tools=[
            temperature,
            publish,
            add,
            ReActEngine(Runtime(silent)).as_tool(name="ask", effect="read"),
        ],
        journal=SQLiteJournal(path),
        gate=gate,
        limits=Limits(max_iterations=10, max_cost=0.5, timeout=None),
        approver=editor,
        observers=[Ticker(), print],
        providers={
            "parrot": silent,
            "singer": streaming,
            "words": TextTools(Parrot(), "react"),
        },
        prices={"gpt-4.1-mini": Price(input=0.4, output=1.6)},
    )


# --- runs ---


class Forecast(BaseModel):
    """What is asked for."""

    city: str
    celsius: float


async def ask(parts: Runtime, deps: Deps) -> Forecast:
    """One run with structured output and dependencies."""
    engine = ReActEngine(parts, max_iterations=3)
    result = await engine.run(
        "How warm is it in Paris?", output=Forecast, deps=deps, system="Be brief."
    )
    forecast: Forecast = result.raise_for_status().output
    answer: str | None = result.answer
    print(
        answer,
        result.status,
        result.stop_reason,
        result.usage.total_tokens,
        result.pending,
        result.head_hash,
    )
    return forecast


async def watch(parts: Runtime, deps: Deps) -> Result:
    """A run that is watched word by word."""
    async with ReActEngine(parts).start(
        "How warm is it in Paris?", deps=deps, deltas=True
    ) as run:
        async for item in run:
            if isinstance(item, Delta):
                assert_type(item, Delta)
                print(item.text, item.call.arguments if item.call else "", end="")
            else:
                assert_type(item, Entry)
                print(item.seq, item.kind)
        return await run.result()


async def watch_entries(parts: Runtime) -> list[int]:
    """Without deltas there are entries alone."""
    handle: RunHandle[Entry] = SecondLookEngine(parts, looks=2, critic="parrot").start(
        "Go."
    )
    async with handle as run:
        return [entry.seq async for entry in run]


def everything_else(parts: Runtime, picture: bytes) -> list[str]:
    """Engines by name, nested engines, resume, fork, attachments, and the synchronous faces."""
    task = Conversation.of("What is in it?", attachments=[Attachment.image(picture)])
    first = ReflexionEngine(parts, actor=ReActEngine(parts), max_episodes=2).run_sync(
        task, run_id="r1"
    )
    again: Result = parts.resume_sync(first.run_id)
    by_name: LoopEngine = parts.engine("second-look", looks=3)
    fork_id: str = asyncio.run(by_name.fork("r1", at=3))
    third = by_name.resume_sync(fork_id, take_over=True)
    waiting = Runtime(silent, approver=Suspend())
    found: dict[str, Plugin] = available_engines()
    return [
        again.run_id,
        third.run_id,
        *found,
        *(question.text for question in first.pending),
        repr(waiting),
    ]
