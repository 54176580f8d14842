"""Thread: a conversation with an agent that the journal keeps, with a run for each turn."""

import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import (
    Any,
    Generic,
    Literal,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from .._internal.sync import LOOP_THREAD
from .._kernel.control.commands import is_filled_text
from .._kernel.session.task import check_options
from .._kernel.session.unwatched_runs import OnDisconnect
from ..attachments import Attachment
from ..errors import ConfigError
from ..events.entry import Entry
from ..journals.listing import check_tags, check_thread
from ..messages import Conversation, Message
from ..principals import TENANT_TAG, ApprovalRule, Principal, tag_principal
from ..providers.base import Delta, Sampling
from ..result import Result
from .next_turn import BUSY, Busy
from .reachable_services import list_reachable
from .thread_approvals import ThreadApproval, ThreadApprovals
from .thread_deletion import DeletedThread, ThreadDeletion
from .thread_message import ThreadMessage
from .thread_record import ThreadRecord
from .turn import Turn, TurnName
from .turn_handle import TurnHandle
from .turn_items import TurnItems
from .turn_marker import ThreadSwitch, TurnMarker
from .turn_runner import ThreadAgent, TurnRunner

Answer = TypeVar("Answer", covariant=True)
Model = TypeVar("Model")


class TurnOptions(TypedDict, total=False):
    """The options of a turn: those of a run that a thread leaves open."""

    deps: object
    """What the tools get as `ToolContext.deps`; a turn that is resumed first gets the same."""
    saga: bool
    """Whether to undo what its tools did (`@tool(compensate=...)`) unless the turn completes."""
    tags: Mapping[str, str]
    """Names and values to find the turn by; those of the thread and those of the turn are put together."""
    sampling: Sampling
    """Settings of the calls of the engine's own model."""
    principal: Principal | None
    """Who says it. Of a thread that a tenant began, others are refused."""
    approvals: ApprovalRule | None
    """Whose approvals the calls of the turn need, wherever a gate asks."""
    on_disconnect: OnDisconnect
    """What happens to the turn when its watcher leaves, as in `RunOptions`."""
    attachments: Iterable[Attachment]
    """Images and documents that come with the text."""


class Thread(Generic[Answer]):
    """A conversation with an agent that lasts: each message is a run that continues the one before.

    `Agent.thread` opens one. All of it is in the journal, so any process may take the next turn; nothing is stored
    before the first one. Only one turn is at work at a time.

    Args:
        agent: the agent with which it begins, or that it was switched to.
        id: its name, such as that of a user, of 1 to 256 printable characters, not all spaces; the journal lists runs by it.
        busy: what to do with a message while the turn before is at work: "wait", "steer" or "refuse"; see `run`.
        options: options of each turn, unless its own say otherwise.
    """

    def __init__(
        self,
        agent: ThreadAgent,
        id: str,
        *,
        busy: Busy = "wait",
        **options: Unpack[TurnOptions],
    ) -> None:
        services = agent.engine.runtime
        if not is_filled_text(id):
            raise ConfigError(f"id: must be a text, got {id!r:.80}; name the thread")
        check_thread(id)
        if services.redactor.redact_text(id) != id:
            raise ConfigError("id: holds a secret; name the thread in another way")
        self.id, self._agent = id, agent
        self._busy: Busy = _check_busy(busy)
        self._options = _check_options(options)
        self._record = ThreadRecord(
            services, id, agent.name, self._options.get("principal")
        )

    def __repr__(self) -> str:
        return f"Thread({self._agent.name!r}, {self.id!r})"

    @overload
    async def run(
        self,
        text: str,
        *,
        output: None = ...,
        busy: Busy | None = ...,
        timeout: float | None = ...,
        **options: Unpack[TurnOptions],
    ) -> Result[Answer | None]: ...
    @overload
    async def run(
        self,
        text: str,
        *,
        output: type[Model],
        busy: Busy | None = ...,
        timeout: float | None = ...,
        **options: Unpack[TurnOptions],
    ) -> Result[Model | None]: ...
    async def run(
        self,
        text: str,
        *,
        output: type[Any] | None = None,
        busy: Busy | None = None,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Result[Any]:
        """Say something to the agent; return the result of the turn, as `Agent.run` does.

        A turn whose process died is resumed first. If the turn before waits with a question to the user, the text is its
        answer, and the result that of the turn which it continues.

        Args:
            text: what a person says.
            output: the type as which the answer is read; by default the agent's.
            busy: "wait" for the end of a turn at work, "steer" that turn with the text, which begins the next one if no
                model answers it there, or "refuse" it with `ThreadBusy`. By default the thread's. A turn that waits for an
                approval, or is suspended or parked, is `ThreadBusy` in any case.
            timeout: how many seconds to wait for the turn before, be it at work or blocked, also where it has the text as
                guidance; then `ThreadBusy`, whose `command` says whether it has it. The turn that it begins has its own.
            options: see `TurnOptions`.
        """
        send = self._prepare(text, output, busy, timeout, options)
        return await send(None)

    def _prepare(
        self,
        text: str,
        output: type[Any] | None,
        busy: Busy | None,
        timeout: float | None,
        options: Mapping[str, Any],
    ) -> Callable[[TurnItems | None], Coroutine[Any, Any, Result[Any]]]:
        """Return what sends a message, whose turn may be watched; raise `ConfigError` for a wrong option."""
        given = _merge_options(self._options, _check_options(options))
        message = _build_message(text, given.pop("attachments", ()))
        mode: Busy = self._busy if busy is None else _check_busy(busy)
        _check_timeout(timeout)

        async def send(items: TurnItems | None) -> Result[Any]:
            turns = self._build_runner(output, given, items)
            record = self._record.for_principal(given.get("principal"))
            sent = ThreadMessage(record, turns, message, mode, timeout)
            return await sent.take()

        return send

    @overload
    def start(
        self,
        text: str,
        *,
        deltas: Literal[False] = ...,
        output: type[Any] | None = ...,
        busy: Busy | None = ...,
        timeout: float | None = ...,
        **options: Unpack[TurnOptions],
    ) -> TurnHandle[Entry]: ...
    @overload
    def start(
        self,
        text: str,
        *,
        deltas: Literal[True],
        output: type[Any] | None = ...,
        busy: Busy | None = ...,
        timeout: float | None = ...,
        **options: Unpack[TurnOptions],
    ) -> TurnHandle[Entry | Delta]: ...
    def start(
        self,
        text: str,
        *,
        deltas: bool = False,
        output: type[Any] | None = None,
        busy: Busy | None = None,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnHandle[Any]:
        """Say something and watch the turn: `async with thread.start("...", deltas=True) as turn`; see `TurnHandle`.

        The options are those of `run`. The block is entered once the message has its turn, and `ThreadBusy` is raised there;
        that of a turn which did not end in time with the message as guidance is raised by `TurnHandle.result`.
        """
        send = self._prepare(text, output, busy, timeout, options)
        return TurnHandle(self._agent.engine.runtime, send, deltas=deltas)

    def run_sync(
        self,
        text: str,
        *,
        output: type[Any] | None = None,
        busy: Busy | None = None,
        timeout: float | None = None,
        **options: Unpack[TurnOptions],
    ) -> Result[Any]:
        """`run` for synchronous callers; works in Jupyter and beside a running loop."""
        work = self.run(text, output=output, busy=busy, timeout=timeout, **options)
        return LOOP_THREAD.run(work)

    async def resume(
        self, *, output: type[Any] | None = None, deps: object = None
    ) -> Result[Any]:
        """Continue the last turn where its journal ends, once what it waits for is decided; return its result.

        A turn that has ended gives its recorded result. Raises `ConfigError` for a thread without turns, `RunBusy` for a
        turn at work.
        """
        last = await self._record.find_last()
        if last is None:
            raise ConfigError(f"thread {self.id!r} has no turn to resume")
        given = {} if deps is None else {"deps": deps}
        options = _merge_options(self._options, given)
        return await self._build_runner(output, options).resume(last.info, is_own=True)

    async def history(self) -> Conversation:
        """Return what was said so far, as the next turn continues it.

        Where a turn ended without an answer, it says `[no answer: REASON]`.
        """
        last = await self._record.find_last()
        return Conversation() if last is None else await self._record.read_history(last)

    async def turns(self) -> list[Turn]:
        """Return the turns, the oldest first, with the one at work or waiting."""
        await self._record.find_last()
        return await self._record.read_turns()

    async def approvals(self) -> list[ThreadApproval]:
        """Return what people have approved for the whole thread and holds now, the newest first.

        Raises `ConfigError` for the thread of another tenant.

        `control(run_id).approve(question, seconds=..., scope="thread")` gives one: calls of that tool to the same
        destinations run in the later turns without a question, under the same version of the policy.
        """
        return await (await self._open_approvals()).find_held()

    async def revoke(
        self,
        approval: ThreadApproval | str,
        reason: str = "",
        *,
        by: str | Principal = "",
    ) -> None:
        """Revoke an approval of the thread, or the one with an id, for the turn at work too; it is recorded who does.

        A call that has begun continues. A denial of a call of the tool, in any turn, revokes it too. Raises `ConfigError`
        for an approval that does not hold, and for the thread of another tenant.
        """
        id = approval if isinstance(approval, str) else approval.id
        await (await self._open_approvals()).revoke(id, reason, by)

    async def _open_approvals(self) -> ThreadApprovals:
        """Return the approvals of the tenant whose thread it is."""
        services, last = self._agent.engine.runtime, await self._record.find_last()
        tenant = "" if last is None else last.info.tags.get(TENANT_TAG, "")
        return ThreadApprovals(
            services.journal, services.redactor, self.id, services.clock, services.command_signer,
            tenants=("", tenant),
        )  # fmt: skip

    async def fork(
        self,
        id: str,
        *,
        at: int | Turn | None = None,
        busy: Busy | None = None,
        **options: Unpack[TurnOptions],
    ) -> "Thread[Answer]":
        """Return a new thread that continues this one after a turn, which does not change.

        It has the options of this one, unless others are given. Raises `ConfigError` for a turn that is not there or has not
        ended, and for an id that has a thread.

        Args:
            id: the name of the new thread.
            at: the turn, or its number; by default the last one that has ended.
            busy: as in `Agent.thread`; by default that of this thread.
            options: see `TurnOptions`.
        """
        given = cast("TurnOptions", _merge_options(self._options, options))
        forked = Thread[Answer](self._agent, id, busy=busy or self._busy, **given)
        end = await self._record.read_end_of(at)
        name = TurnName(TurnName.first().incarnation, 0)
        tags = _list_tags(given)
        marker = TurnMarker(id, name, end, is_first=True, tags=tags)
        await marker.write(self._agent.engine)
        return forked

    async def switch(
        self,
        agent: "str | ThreadAgent",
        *,
        busy: Busy | None = None,
        timeout: float | None = None,
    ) -> None:
        """Continue with another agent from the next turn on, in every process; it is recorded.

        A turn at work is waited for, or refuses the switch (`busy="refuse"`), as it does a message.
        """
        name = _get_name(agent)
        self._build_runner(None, self._options).find_agent(name)
        _check_timeout(timeout)
        mode: Busy = self._busy if busy is None else _check_busy(busy)
        turns = self._build_runner(None, self._options)
        await ThreadSwitch(
            self._record, turns, name, mode, timeout,
            engine=self._agent.engine, tags=_list_tags(self._options),
        ).take()  # fmt: skip

    async def delete(self, *, abort: bool = False) -> DeletedThread:
        """Delete the thread for good; return what is gone, and what is left.

        That is its runs with their commands, its forks, and what its runs have stored as knowledge. The id can be used
        again. Raises `ThreadBusy` for a thread with a turn at work, unless it is to be aborted first.
        """
        await self._record.find_last()
        services = self._agent.engine.runtime
        known = list_reachable(services)
        # An agent may have had the store of the runtime before it got its own.
        bridges = [*(one.knowledge for one in known), *(one.runtime_knowledge for one in known)]  # fmt: skip
        stores = {id(one.store): one.store for one in bridges if one is not None}
        deletion = ThreadDeletion(services, self.id, stores.values(), abort=abort)
        return await deletion.delete()

    def _build_runner(
        self,
        output: type[Any] | None,
        options: Mapping[str, Any],
        items: TurnItems | None = None,
    ) -> TurnRunner:
        """Return what runs the turns in this process."""
        return TurnRunner(self.id, self._agent, output, options, items)


def _build_message(text: object, attachments: Any) -> Message:
    if not is_filled_text(text):
        raise ConfigError(f"text: must be a text that says something, got {text!r:.80}")
    is_list = hasattr(attachments, "__iter__")
    given: tuple[Any, ...] = tuple(attachments) if is_list else (attachments,)
    for one in given:
        if not isinstance(one, Attachment):
            raise ConfigError(
                f"attachments: must be a list of Attachment.image(...) and Attachment.document(...), got {one!r:.80}"
            )
    return Message("user", text, attachments=given)


def _get_name(agent: object) -> str:
    name = agent if isinstance(agent, str) else getattr(agent, "name", None)
    if is_filled_text(name):
        return name
    raise ConfigError(f"agent: must be an agent, or the name of one, got {agent!r:.80}")


def _check_busy(busy: Any) -> Busy:
    if busy in BUSY:
        return busy  # type: ignore[no-any-return]
    known = " or ".join(map(repr, BUSY))
    raise ConfigError(f"busy: must be {known}, got {busy!r}")


def _check_timeout(timeout: object) -> None:
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if timeout is None or (is_number and 0 <= cast("float", timeout) < math.inf):
        return
    raise ConfigError(
        f"timeout: must be seconds of at least 0, or None, got {timeout!r}"
    )


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a turn; raise `ConfigError` for one that the thread decides."""
    for name in options:
        if name not in TurnOptions.__annotations__:
            known = ", ".join(TurnOptions.__annotations__)
            raise ConfigError(
                f"{name}: a turn does not have this option; it has {known}"
            )
    check_tags(options.get("tags"))
    check_options(options)
    return dict(options)


def _list_tags(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a turn that no run writes, with those of the principal."""
    return tag_principal(check_tags(options.get("tags")), options.get("principal"))


def _merge_options(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a turn: those given, else the thread's own, and the tags of both."""
    tags = {**check_tags(own.get("tags")), **check_tags(given.get("tags"))}
    return {**own, **given, "tags": tags}
