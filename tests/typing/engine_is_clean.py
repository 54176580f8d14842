"""What the documentation shows must be clean for every type checker: an engine, a tool, a runtime and its result."""

from pydantic import BaseModel

from loopwright import (
    Action,
    Allow,
    Conversation,
    Deny,
    Limits,
    LoopEngine,
    MemoryJournal,
    PolicyState,
    Provider,
    ReActEngine,
    Result,
    Run,
    Runtime,
    tool,
)


# fmt: off
class TinyEngine(LoopEngine):            # an engine is a frozen pydantic dataclass: its fields are its options
    name = "tiny"
    max_iterations: int | None = None    # None: the run's limit

    async def solve(self, run: Run) -> str:
        conversation = run.conversation                        # what the caller gave; run.task is the latest user text
        for _ in run.iterations(self.max_iterations):
            proposal = await run.reason(conversation)          # tools=False for a call without tools
            if proposal.answer is not None:
                return proposal.answer
            observations = await run.act(await run.gate(proposal))
            conversation = conversation.observe(proposal, observations)
        return await run.best_answer(conversation)
# fmt: on


class Forecast(BaseModel):
    city: str
    celsius: float


class NoWrites:
    async def evaluate(self, action: Action, state: PolicyState) -> Allow | Deny:
        return (
            Allow()
            if action.effect == "read"
            else Deny(f"{action.tool} may not run at {state.key}")
        )


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="read", timeout=5.0)
async def weather(city: str) -> str:
    """Current weather in a city."""
    return f"sunny in {city}"


def make_runtime(provider: Provider) -> Runtime:
    return Runtime(
        provider,
        tools=[add, weather],
        journal=MemoryJournal(),
        gate=NoWrites(),
        limits=Limits(max_iterations=10),
    )


def ask(provider: Provider) -> str:
    result = ReActEngine(make_runtime(provider)).run_sync(
        "Is it warmer in Paris or in London?"
    )
    result.raise_for_status()
    return f"{result.answer} {result.status} {result.stop_reason} {result.usage.total_tokens} {result.iterations}"


async def ask_again(provider: Provider) -> Result:
    engine = TinyEngine(make_runtime(provider), max_iterations=3)
    first: Result = await engine.run(
        Conversation.of("What is the weather in Paris?"), run_id="paris"
    )
    return await engine.resume(first.run_id)


async def ask_typed(provider: Provider) -> object:
    result = await TinyEngine(make_runtime(provider)).run(
        "The weather in Paris?", output=Forecast
    )
    return result.output


async def watch(provider: Provider) -> Result:
    async with TinyEngine(make_runtime(provider)).start("What is 1 + 2?") as run:
        async for entry in run:
            assert entry.seq > 0
        return await run.result()
