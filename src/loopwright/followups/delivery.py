"""Deliver: sends what a run answered to webhooks, a store of knowledge and functions, once it has ended."""

import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from ..errors import ConfigError, EngineError, ToolError
from ..events.run import Status
from ..knowledge.base import Remembered
from ..messages import Json, JsonObject, Observation, ToolCall
from ..run import Run
from ..tools.base import Tool
from .base import EndedRun, FollowUp
from .memories import store_items
from .webhooks import build_webhook_tool, load_format, read_origin

MAX_TEXT = 200_000
"""Characters of an answer that are sent."""


class Webhook(BaseModel):
    """A web address that is sent what a run answered, by POST, with the header `Idempotency-Key`.

    Args:
        url: the address, or where it is kept, since such addresses often are secrets: `env:NAME`, `file:/path` or
            `keyring:service/user`, as in a `SecretStore`. It is read when it is sent to and never recorded; the gates see
            its scheme, host and port.
        format: what is sent: "json" (the run's id, status, answer, error, agent, thread and tags), "discord", "telegram",
            or the name of an installed one (group `loopwright.webhooks`).
        options: of the format, such as `{"chat_id": "42"}` for "telegram".
        allow_private: hosts, addresses and networks that may be reached though they are not public, as for
            `GuardedTransport`.
        attempts: how often it is tried, with back-off, before the delivery is a dead letter.
        timeout: seconds for each of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    url: str
    format: str = "json"
    options: dict[str, Json] = {}
    allow_private: tuple[str, ...] = ()
    attempts: Annotated[int, Field(ge=2, le=20)] = 6
    timeout: Annotated[float, Field(gt=0, le=300)] = 20.0


class KnowledgeNote(BaseModel):
    """Stores the answer in the runtime's store of knowledge, once for each run, with its label, trust and scope.

    Args:
        kind: the kind of the item.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: str = "reasoning"


@dataclasses.dataclass(frozen=True)
class Callback:
    """Calls a function of this process with the run that ended; it is not durable.

    No journal holds a function: a process that dies before it was called leaves the follow-up to processes whose runtime
    has the same `Deliver`. It may be called twice if the process dies meanwhile.

    Args:
        function: async; what it returns is ignored.
    """

    function: Callable[[EndedRun], Awaitable[object]]
    durable: ClassVar[Literal[False]] = False


Target: TypeAlias = Webhook | KnowledgeNote | Callback


def _find_kind(given: object) -> str:
    """Return which target is meant, so that an error is about that one alone; a file and a journal have dicts."""
    if isinstance(given, (Callback, KnowledgeNote)):
        return type(given).__name__
    if not isinstance(given, dict):
        return "Webhook"
    keys = cast("Mapping[str, Any]", given).keys()
    if "function" in keys:
        return "Callback"
    return "KnowledgeNote" if keys <= {"kind"} else "Webhook"


_Target: TypeAlias = Annotated[
    Annotated[Webhook, Tag("Webhook")]
    | Annotated[KnowledgeNote, Tag("KnowledgeNote")]
    | Annotated[Callback, Tag("Callback")],
    Discriminator(_find_kind),
]


class Deliver(FollowUp):
    """Delivers the answer of a run, once it has ended, at least once to each target.

    Each webhook is a call of an outbound, idempotent tool in the follow-up's run: it passes the gates with the labels of the
    run, keeps its idempotency key when it is sent again, after a crash too, is retried with back-off, and becomes a dead
    letter in the end. Then the follow-up has failed and `Runtime.due` lists it.

    Args:
        to: the targets.
        ends: the endings after which it is due.
    """

    name: ClassVar[str] = "deliver"
    to: Sequence[_Target]
    ends: tuple[Status, ...] = ("completed",)

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a target that cannot be."""
        if not self.to:
            raise ConfigError("to: is empty; name a Webhook, KnowledgeNote or Callback")
        for one in self.to:
            if isinstance(one, Webhook):
                load_format(one.format)
                read_origin(one.url)

    @property
    def due_after(self) -> tuple[Status, ...]:
        """The endings after which it is due."""
        return self.ends

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tool of each host that is sent to, which has a circuit breaker of its own."""
        by_name: dict[str, dict[str, Webhook]] = {}
        for number, one in enumerate(self.to):
            if isinstance(one, Webhook):
                by_name.setdefault(_name_tool(one), {})[str(number)] = one
        return tuple(build_webhook_tool(name, found) for name, found in by_name.items())

    async def follow(self, run: Run, ended: EndedRun) -> str:
        """Deliver to each target; raise `EngineError` if one was not reached."""
        found = await self._post(run, ended)
        failed = [
            f"{one.call.name}: {one.content}" for one in found if one.status != "ok"
        ]
        for number, target in enumerate(self.to):
            if isinstance(target, KnowledgeNote):
                item = Remembered(_answer(ended) or "(no answer)", kind=target.kind)
                await store_items(run, ended, f"deliver:{number}", [item])
            elif isinstance(target, Callback):
                await self._call(run, ended, target, number)
        if failed:
            raise EngineError(f"not delivered: {'; '.join(failed)}")
        return f"delivered to {len(self.to)}"

    async def _post(self, run: Run, ended: EndedRun) -> tuple[Observation, ...]:
        calls = [
            ToolCall(
                _name_tool(hook),
                {
                    "url": read_origin(hook.url),
                    "target": str(number),
                    "body": json.dumps(_build_body(ended, hook)),
                },
            )
            for number, hook in enumerate(self.to)
            if isinstance(hook, Webhook)
        ]
        if not calls:
            return ()
        return await run.act(await run.gate(run.propose(*calls)))

    async def _call(
        self, run: Run, ended: EndedRun, target: Callback, number: int
    ) -> None:
        async def call() -> bool:
            await target.function(ended)
            return True

        await run.effect(f"callback:{number}", call, into=bool)


def _answer(ended: EndedRun) -> str:
    return (ended.result.answer or "")[:MAX_TEXT]


def _name_tool(hook: Webhook) -> str:
    host = read_origin(hook.url).partition("://")[2].replace(":", "-")
    return f"webhook {host}"[:64]


def _build_body(ended: EndedRun, hook: Webhook) -> JsonObject:
    """Return what a webhook is sent."""
    started, error = ended.started, ended.result.error
    facts: dict[str, Json] = {
        "run_id": ended.run_id, "status": ended.result.status, "answer": _answer(ended),
        "error": None if error is None else str(error), "agent": started.agent, "thread": started.thread,
        "tags": dict(started.tags),
    }  # fmt: skip
    try:
        return load_format(hook.format)(facts, hook.options)
    except KeyError as missing:
        raise ToolError(
            f"webhook format {hook.format!r} needs the option {missing}"
        ) from None
