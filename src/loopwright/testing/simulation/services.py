"""The model and the tools of a world: they answer late, fail, hang, and say nonsense."""

import asyncio
import functools
import random
from collections.abc import AsyncGenerator
from typing import Any

from ..._internal import dataclasses
from ...errors import ProviderError, ToolError
from ...messages import Completion
from ...providers.base import Capabilities, Delta, Request
from ...tools.base import Tool, ToolContext, tool
from ...tools.recovery import (
    CachedResult,
    DeadLetter,
    Fallback,
    RecoveryStrategy,
    Retry,
)
from ..chunks import split_completion
from ..contracts.models import babble
from ..scripted import ScriptedProvider
from .surroundings import Surroundings

READ_RECOVERY = Retry(max_attempts=2), CachedResult(), Fallback("put")
WRITE_RECOVERY = Fallback("put"), DeadLetter()
HUNG_SECONDS = 100_000.0
"""How long something takes that never ends."""


class WorldProvider:
    """A model that says the same thing whenever it is asked the same, in its own time, or fails."""

    name = "simulated"
    model = "model"
    capabilities = Capabilities(json_schema=True)

    def __init__(self, world: Surroundings, source: random.Random) -> None:
        self._world, self._random = world, source
        own = world.model
        seed, share = world.seed, world.program.politeness
        mad = babble(seed * 4)

        def reply(request: Request) -> Any:
            drawn = random.Random(f"{seed}|{request.conversation.digest.hex()}")  # noqa: S311 - it must repeat
            return own(request) if drawn.random() < share else mad(request)

        self._script = ScriptedProvider(reply)

    async def complete(self, request: Request) -> Completion:
        """Answer late, or not at all."""
        self._world.ledger.model_calls += 1
        await asyncio.sleep(self._random.uniform(0.0, 1.5))
        self._world.may_die(self._random)
        await asyncio.sleep(0.0)
        if self._world.is_faulty("provider"):
            await self._fail()
        return await self._script.complete(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """Answer in pieces; the connection may break in the middle."""
        for delta in split_completion(await self.complete(request)):
            is_faulty = self._world.is_faulty("provider")
            if is_faulty and self._random.random() < 0.01:
                raise ProviderError("the stream broke", retryable=True)
            yield delta

    async def _fail(self) -> None:
        chance = self._random.random()
        if chance < 0.05:
            raise ProviderError("overloaded", status=503, retryable=True)
        if chance < 0.06:
            raise ProviderError("no such model", status=404)
        if chance < 0.07:
            raise RuntimeError("the provider has a bug")
        if chance < 0.09:
            await asyncio.sleep(HUNG_SECONDS)


@functools.cache
def describe_tool(name: str, description: str) -> Tool:
    """Return a tool that does nothing yet; its schema is built once for all worlds."""

    def act(ctx: ToolContext[None], what: str) -> str:
        raise ToolError("only the tools of a world act")

    return tool(name=name, description=description)(act)


class WorldTools:
    """Tools of all effects, which note what they really do."""

    def __init__(self, world: Surroundings, source: random.Random) -> None:
        self._world, self._random = world, source

    def list_tools(self) -> list[Tool]:
        """Return the tools."""
        return [
            self._make_look(),
            self._make_put(),
            self._make_send(),
            self._make_mail(),
        ]

    def _make_look(self) -> Tool:
        async def look(ctx: ToolContext[None], what: str) -> str:
            self._world.ledger.note_tool(ctx, "look", "read")
            await self._misbehave()
            return f"{what} is blue"

        return dataclasses.replace(
            describe_tool("look", "Look at something."),
            function=look,
            effect="read",
            recovery=self._choose(*READ_RECOVERY),
        )

    def _make_put(self) -> Tool:
        def put(ctx: ToolContext[None], what: str) -> str:
            self._world.ledger.note_tool(ctx, "put", "idempotent")
            self._world.may_die(self._random)
            return f"{what} put"

        described = describe_tool("put", "Put something somewhere.")
        return dataclasses.replace(described, function=put, effect="idempotent")

    def _make_send(self) -> Tool:
        def send(ctx: ToolContext[None], what: str) -> str:
            self._world.ledger.note_tool(ctx, "send", "write")
            self._world.may_die(self._random)
            return f"{what} sent"

        described = describe_tool("send", "Send something.")
        return dataclasses.replace(described, function=send, effect="write")

    def _make_mail(self) -> Tool:
        async def revoke(ctx: ToolContext[None], result: str) -> None:
            self._world.ledger.note_tool(ctx, "mail undo", "undo")
            await asyncio.sleep(self._random.uniform(0.0, 0.5))
            self._world.may_die(self._random)

        async def mail(ctx: ToolContext[None], what: str) -> str:
            self._world.ledger.note_tool(ctx, "mail", "write")
            await self._misbehave()
            return f"{what} mailed"

        return dataclasses.replace(
            describe_tool("mail", "Mail something."),
            function=mail,
            effect="write",
            compensate=revoke,
            recovery=self._choose(*WRITE_RECOVERY),
        )

    def _choose(self, *recovery: RecoveryStrategy) -> tuple[RecoveryStrategy, ...]:
        """Return the strategies, in a world whose tools have some."""
        return recovery if self._world.program.recovers else ()

    async def _misbehave(self) -> None:
        """Take some time, and perhaps fail, hang, or take the process down."""
        await asyncio.sleep(self._random.uniform(0.0, 1.0))
        self._world.may_die(self._random)
        await asyncio.sleep(0.0)
        # Where failures are recovered there is something to recover.
        often = 4.0 if self._world.program.recovers else 1.0
        chance = self._random.random() / often
        if not self._world.is_faulty("tools") or chance > 0.1:
            return
        if chance > 0.05:
            raise ToolError("it is not there")
        if chance > 0.03:
            raise RuntimeError("the tool has a bug")
        await asyncio.sleep(HUNG_SECONDS)
