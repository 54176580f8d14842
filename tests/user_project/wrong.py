"""What a user gets wrong: each line that is marked must be reported by both checkers, before anything runs."""

from collections.abc import AsyncIterator, Sequence

from loopwright import (
    Action,
    Attachment,
    Completion,
    Delta,
    Entry,
    Limits,
    LoopEngine,
    PolicyState,
    Price,
    Provider,
    ReActEngine,
    Request,
    Result,
    Run,
    Runtime,
    Sampling,
    ToolContext,
    tool,
)
from loopwright.providers import OpenAIProvider, StreamingProvider


class Deps:
    """What the tools work with."""

    station = "north"


@tool(effect="read")
def reads_what_is_not_there(ctx: ToolContext[Deps]) -> str:
    """Look into the dependencies."""
    return ctx.deps.stations  # error


@tool(effects="read")  # error
def misspelt_option() -> str:
    """An option that does not exist."""
    return ""


class Silent:
    """A provider that cannot be asked."""

    name = model = "silent"


class Blocking:
    """A provider whose `complete` is not async."""

    name = model = "blocking"
    capabilities = OpenAIProvider("m", api_key="k").capabilities

    def complete(self, request: Request) -> Completion:
        """Answer at once."""
        return Completion(repr(request))


class Plain:
    """A provider that cannot stream."""

    name = model = "plain"
    capabilities = OpenAIProvider("m", api_key="k").capabilities

    async def complete(self, request: Request) -> Completion:
        """Answer."""
        return Completion(repr(request))


class Words(Plain):
    """A provider that streams words where deltas are expected."""

    async def stream(self, request: Request) -> AsyncIterator[str]:
        """Stream."""
        yield repr(request)


def providers() -> list[Provider]:
    """What is no provider."""
    cannot_be_asked: Provider = Silent()  # error
    is_not_async: Provider = Blocking()  # error
    cannot_stream: StreamingProvider = Plain()  # error
    streams_words: StreamingProvider = Words()  # error
    return [cannot_be_asked, is_not_async, cannot_stream, streams_words]


def parts(provider: Provider, yes: bool) -> Sequence[object]:
    """What a runtime does not take."""
    return [
        Runtime(provider, journal="runs.db"),  # error
        Runtime(provider, limits=10),  # error
        Runtime(provider, limit=Limits()),  # error
        Runtime(provider, observers=[str.upper]),  # error
        Runtime(provider, approver=yes),  # error
        Runtime(provider, prices={"m": 0.4}),  # error
        Price(input=0.4),  # error
        Sampling(temperature="hot"),  # error
        Attachment.image(3),  # error
        OpenAIProvider("m", url="http://localhost"),  # error
    ]


class Lenient:
    """A gate that forgets to say why it denies."""

    async def evaluate(self, action: Action, state: PolicyState) -> str:
        """Decide."""
        return f"{action.tool} {state.key}"


def lenient(provider: Provider) -> Runtime:
    """A gate whose decision is none."""
    return Runtime(provider, gate=Lenient())  # error


class Unfinished(LoopEngine):
    """An engine that returns no text."""

    name = "unfinished"
    depth: int = 2

    async def solve(self, run: Run) -> int:  # error
        """Solve."""
        return len(run.task)


class Hasty(LoopEngine):
    """An engine that skips the gate."""

    name = "hasty"

    async def solve(self, run: Run) -> str:
        """Act on what was not cleared."""
        proposal = await run.reason(run.conversation)
        observations = await run.act(proposal)  # error
        return observations[0].content


def options(runtime: Runtime, engine: Unfinished) -> None:
    """Options of an engine of one's own are checked too."""
    Unfinished(runtime, depth="deep")  # error
    Unfinished(runtime, deep=3)  # error
    engine.depth = 3  # error


async def runs(engine: ReActEngine) -> str:
    """What a run and its result do not have."""
    await engine.run(["What", "now?"])  # error
    await engine.run("Go.", output="Forecast")  # error
    engine.run("Go.")  # error
    result: Result = engine.run_sync("Go.")
    print(result.text)  # error
    print(result.status == "done")  # error
    return result.answer  # error


async def watching(engine: ReActEngine) -> list[Entry]:
    """With deltas there is more than entries."""
    async with engine.start("Go.", deltas=True) as run:
        mixed = [item async for item in run]
    async with engine.start("Go.") as quiet:
        pieces: list[Delta] = [item async for item in quiet]  # error
    print(mixed[0].text, pieces)  # error
    return mixed  # error
