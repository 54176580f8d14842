"""What goes wrong around a run: a model, tools, a gate and a person that fail in every twentieth call, in many ways."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

from loopwright import (
    Allow,
    Ask,
    Completion,
    Deny,
    Modify,
    ProviderError,
    Request,
    Tool,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.errors import ContextTooLong, ProviderTimeout
from loopwright.gates import Action, Decision, PolicyState
from loopwright.providers import Capabilities, Delta
from loopwright.testing import Line, ScriptedProvider, call
from loopwright.testing.chunks import split_completion
from loopwright.testing.contracts.models import polite

FAULTS = 0.05
LATENCY = 0.06  # seconds of a model call in the mean
CALLS = (
    [call("look", what="sky"), call("put", what="cup")],
    [call("send", what="card")],
    [call("put", what="cup"), call("put", what="jug"), call("send", what="card")],
    [call("wipe", what="all"), call("look", what="sea")],
)
WRONG_CALLS = (
    [call("nonsense", what=1)],
    [call("look", wat="sky")],
    [call("look", what="sky")] * 4,
)


class Trouble:
    """Draws what goes wrong, and counts it."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.counts: Counter[str] = Counter()

    def strikes(self) -> bool:
        """Whether this call is one that fails."""
        return self.source.random() < FAULTS

    def one_of(self, what: str, **kinds: Any) -> Any:
        """One kind of fault, by its name."""
        kind = self.source.choice(list(kinds))
        self.counts[f"{what}: {kind}"] += 1
        return kinds[kind]


class Unsteady:
    """A sensible model that takes its time, fails now and then, and for a moment in every ten seconds altogether."""

    name, model, capabilities = "unsteady", "soak", Capabilities(json_schema=True)

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble

    async def complete(self, request: Request) -> Completion:
        """The sensible reply, or a fault."""
        source = self._trouble.source
        await asyncio.sleep(source.uniform(0, 2 * LATENCY))
        if time.monotonic() % 10 < 0.2:
            self._trouble.counts["model: outage"] += 1
            raise ProviderError("nobody is there", status=503, retryable=True)
        line = self._fault() if self._trouble.strikes() else self._sensible(request)
        if line is None:  # the run's time ends it
            await never()
        return await ScriptedProvider([line or ""]).complete(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """The same in pieces; a stream may break off in the middle."""
        breaks_off = self._trouble.strikes()
        for delta in split_completion(await self.complete(request)):
            yield delta
            if breaks_off:
                self._trouble.counts["model: a broken stream"] += 1
                raise ProviderError("the stream broke off", retryable=True)

    def _sensible(self, request: Request) -> Line:
        called = any(message.calls for message in request.conversation.messages)
        offered = (
            request.tools and request.tool_choice == "auto" and request.schema is None
        )
        return (
            self._trouble.source.choice(CALLS)
            if offered and not called
            else polite(request)
        )

    def _fault(self) -> Line | None:
        fault: Line | None = self._trouble.one_of(
            "model",
            busy=ProviderError("busy", status=503, retryable=True),
            throttled=ProviderError(
                "slow down", status=429, retryable=True, retry_after=0.05
            ),
            refused=ProviderError("a bad request", status=400),
            late=ProviderTimeout("no answer in time", retryable=True),
            too_long=ContextTooLong("too long"),
            bug=RuntimeError("a bug of the provider"),
            unreadable=Completion("gibberish", problem="it cannot be read"),
            cut=Completion("The sky is", answer="The sky is", finish_reason="length"),
            babble="Action: look\nFollow up:\nVerdict: 7/10\n{",
            wrong_call=self._trouble.source.choice(WRONG_CALLS),
            silence=None,
        )
        return fault


Ran = list[tuple[str, str]]  # the tool calls that really ran: place and idempotency key


async def never() -> Any:
    """Wait for what does not come."""
    await asyncio.Event().wait()


async def deaf() -> str:
    """Go on for a while, whoever wants it stopped."""
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.3)
    return "late"


async def done(trouble: Trouble, ctx: ToolContext[Ran], value: str) -> Any:
    """What a tool does: mostly give the value, now and then fail in one of the ways that a tool can."""
    ctx.deps.append((ctx.key, ctx.idempotency_key))
    if not trouble.strikes():
        return value
    fault: Any = trouble.one_of(
        "tool",
        expected=ToolError("it is closed"),
        bug=RuntimeError("a bug of the tool"),
        exit=SystemExit(1),
        silence=never,
        deaf=deaf,
        large="x" * 200_000,
        no_text=b"\xff\xfe",
    )
    if isinstance(fault, BaseException):
        raise fault
    return await fault() if fault in (never, deaf) else fault


def tools_in(trouble: Trouble) -> list[Tool]:
    """Tools of every effect, one of them in threads."""

    @tool(effect="read")
    async def look(ctx: ToolContext[Ran], what: str) -> Any:
        """Look something up."""
        return await done(trouble, ctx, f"{what} is blue")

    @tool(effect="idempotent", max_concurrency=3)
    def put(ctx: ToolContext[Ran], what: str) -> str:
        """Put something somewhere, in a thread."""
        ctx.deps.append((ctx.key, ctx.idempotency_key))
        if trouble.strikes():
            trouble.counts["tool: a blocked thread"] += 1
            time.sleep(0.3)
        return f"{what} is there"

    @tool(effect="write")
    async def send(ctx: ToolContext[Ran], what: str) -> Any:
        """Send something."""
        return await done(trouble, ctx, f"{what} is sent")

    @tool(effect="destructive")
    async def wipe(ctx: ToolContext[Ran], what: str) -> Any:
        """Wipe something."""
        return await done(trouble, ctx, f"{what} is gone")

    return [look, put, send, wipe]


class Moody:
    """A gate that asks about what is destructive, allows the rest, and fails now and then."""

    version = "moody-1"

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Decide, or fail to."""
        if not self._trouble.strikes():
            return Ask(f"{action.tool}?") if action.effect == "destructive" else Allow()
        answer: Any = self._trouble.one_of(
            "gate",
            denial=Deny("not today"),
            change=Modify({"what": "ink"}, "ink only"),
            silence=None,
            bug=RuntimeError("a bug of the gate"),
            delay="never",
        )
        if isinstance(answer, Exception):
            raise answer
        return cast("Decision", await never() if answer == "never" else answer)


def person(trouble: Trouble) -> Callable[[Action, str], Awaitable[bool]]:
    """Somebody who is asked, thinks, and mostly agrees."""

    async def answer(action: Action, question: str) -> bool:
        await asyncio.sleep(trouble.source.uniform(0, LATENCY))
        if trouble.strikes():
            return bool(trouble.one_of("person", refusal=False, absence=0))
        if trouble.strikes():
            trouble.counts["person: a bug"] += 1
            raise RuntimeError("a bug of the approver")
        return True

    return answer
