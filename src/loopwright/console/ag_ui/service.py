"""What AG-UI asks for: begin or resume a turn, watch it, come back to it, stop it."""

import asyncio
import weakref
from collections.abc import Sequence
from typing import Any

from ..._kernel.control.run_control import RunControl
from ...agents import Agent
from ...errors import ConfigError, UnknownRun
from ...events.run import Question
from ...journals.base import RunInfo
from ...journals.listing import RunFilter
from ...labels import Untrusted
from ...principals import Principal, Sender
from ...runtime import Runtime
from ..guard import RefusedRequest, require
from ..resumed_runs import ResumedRuns
from ..service import ConsoleService
from ..threads import call_in_thread
from ..users import ConsoleUser, Right
from .interrupts import find_right, name_interrupt, send_answer
from .protocol import (
    core,
    describe_context,
    find_message,
    find_results,
    read_attachments,
    read_input,
    read_text,
)
from .streams import RunStreams, Stream

CHAT: frozenset[Right] = frozenset(("chat",))
REQUEST = "ag_ui_run"
"""The tag of a turn with the `runId` of the request that began it."""


class AgUi:
    """Begins, resumes and watches the turns of a runtime's agents.

    Args:
        runtime: what runs them.
        service: the console, whose rules say what a user may see.
        has_users: whether the application knows its users, so that each has threads of their own.
    """

    def __init__(
        self, runtime: Runtime, service: ConsoleService, *, has_users: bool
    ) -> None:
        self._runtime, self._service = runtime, service
        self._has_users = has_users
        self.streams = RunStreams(runtime, service)
        """What the requests watch."""
        self._resumed = ResumedRuns(runtime)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    # --- requests ---

    async def run(self, body: bytes, agent: str, asking: ConsoleUser) -> Stream:
        """Begin the turn of the newest message, or resume one with answers; return what to watch."""
        given, user = read_input(body), asking.sender
        if not given.thread_id or not given.run_id:
            raise RefusedRequest(400, "threadId, runId: must not be empty")
        lock = self._locks.setdefault(given.thread_id, asyncio.Lock())
        async with lock:  # a request that is sent twice at once begins one turn
            last = await self._find_last(given.thread_id, user)
            if given.resume:
                return await self._answer(given, last, given.resume, asking)
            require(asking, "chat")
            if results := find_results(given):
                return await self._take_results(given, last, results, user)
            return await self._begin(given, last, self._find_agent(agent, last), user)

    async def come_back(self, run_id: str, after: int, user: Sender) -> Stream:
        """Return how to watch a run from an entry on; raise `UnknownRun` for that of another user."""
        info = await call_in_thread(self._service.records.find, run_id)
        self._check_owner(info, user)
        if after > info.head_seq:
            raise ConfigError(
                f"after: run {run_id!r} has {info.head_seq} entries, got {after}"
            )
        return Stream(run_id, info.thread, run_id, after, _name(user), has_history=True)

    async def stop(self, run_id: str, user: Sender) -> None:
        """End a run as aborted after its step."""
        info = await call_in_thread(self._service.records.find, run_id)
        self._check_owner(info, user)
        await self._runtime.control(run_id).stop(by=user)
        if info.status in ("waiting", "suspended"):
            self._resumed.begin_served(info, user)

    def _find_agent(self, name: str, last: RunInfo | None) -> Agent[Any]:
        """Return the agent of a name; without one that of the thread, or the only one."""
        agents = self._runtime.agents
        name = name or (last.agent if last is not None else "")
        if not name and len(agents) == 1:
            name = next(iter(agents))
        if name not in agents:
            known = ", ".join(agents) or "none"
            raise RefusedRequest(404, f"agent: must be one of {known}, got {name!r:.80}")  # fmt: skip
        return agents[name]

    async def _find_last(self, thread_id: str, user: Sender) -> RunInfo | None:
        """Return the last turn of a thread; raise `UnknownRun` for a thread of another user."""
        where = RunFilter(thread=thread_id)
        found = await call_in_thread(self._service.records.list_runs, where, 1)
        for info in found:
            self._check_owner(info, user, f"thread {thread_id!r}")
            return info
        return None

    def _check_owner(self, info: RunInfo, user: Sender, what: str = "") -> None:
        principal = self._find_principal(user)
        owned = principal.tags.items() if principal is not None else ()
        if any(info.tags.get(name) != value for name, value in owned):
            raise UnknownRun(f"{what or f'run {info.run_id!r}'} is not in the journal")

    def _find_principal(self, user: Sender) -> Principal | None:
        """Return whose the threads are: of a console for one person they are not told apart."""
        if isinstance(user, Principal) or not self._has_users:
            return user if isinstance(user, Principal) else None
        return Principal(user)

    async def _begin(
        self,
        given: core.RunAgentInput,
        last: RunInfo | None,
        agent: Agent[Any],
        user: Sender,
    ) -> Stream:
        """Begin the turn of a message; one that is sent again is not answered again."""
        message = find_message(given)
        if message is None:
            raise RefusedRequest(
                400,
                "messages: the last one must be a user's, or resume must say what is answered",
            )
        known = await self._find_request(given)
        if known is not None:
            return Stream(known, given.thread_id, given.run_id, 0, _name(user))
        text = "\n\n".join(filter(None, [read_text(message), describe_context(given)]))
        tags = {REQUEST: given.run_id}
        thread = agent.thread(given.thread_id)
        async with thread.start(
            text, deltas=True, on_disconnect="continue", busy="refuse", tags=tags,
            attachments=read_attachments(message), principal=self._find_principal(user),
        ) as turn:  # fmt: skip
            run_id = turn.run_id
        is_same = last is not None and last.run_id == run_id
        after = last.head_seq if last is not None and is_same else 0
        return Stream(run_id, given.thread_id, given.run_id, after, _name(user))

    async def _find_request(self, given: core.RunAgentInput) -> str | None:
        """Return the run that a request began before."""
        where = RunFilter(thread=given.thread_id, tags={REQUEST: given.run_id})
        found = await call_in_thread(self._service.records.list_runs, where, 1)
        return found[0].run_id if found else None

    async def _answer(
        self,
        given: core.RunAgentInput,
        last: RunInfo | None,
        answers: Sequence[core.ResumeEntry],
        asking: ConsoleUser,
    ) -> Stream:
        """Send the answers to what a run asks, and continue it; what is decided already stays so."""
        user = asking.sender
        info = _check_begun(given, last)
        questions = await self.streams.read_questions(info.run_id)
        asked = {name_interrupt(info.run_id, one): one for one in questions}
        given_to = [(asked[one.interrupt_id], one) for one in answers if one.interrupt_id in asked]  # fmt: skip
        # All are checked before the first is sent: a refused request has done nothing.
        needed: set[Right] = {find_right(*pair) for pair in given_to}
        for right in needed or CHAT:
            require(asking, right)
        control = self._runtime.control(info.run_id)
        for question, answer in given_to:
            await send_answer(control, question, answer, user)
        return self._continue_turn(given, info, user)

    async def _take_results(
        self,
        given: core.RunAgentInput,
        last: RunInfo | None,
        results: Sequence[core.ToolMessage],
        user: Sender,
    ) -> Stream:
        """Answer the calls of the front end's tools with what they returned, and continue the run."""
        info = _check_begun(given, last)
        tools = self.streams.client_tools
        asked = {
            f"{info.run_id}/{one.key}": one
            for one in await self.streams.read_questions(info.run_id)
            if one.about == "question" and one.tool in tools
        }
        control = self._runtime.control(info.run_id)
        for result in results:
            if result.tool_call_id in asked:
                await self._send_result(control, asked[result.tool_call_id], result, user)  # fmt: skip
        return self._continue_turn(given, info, user)

    async def _send_result(
        self,
        control: RunControl,
        question: Question,
        result: core.ToolMessage,
        user: Sender,
    ) -> None:
        text = f"error: {result.error}" if result.error else read_text(result)
        # It comes from a page: a run that reads it is as untrusted as with any tool's result.
        await control.answer(
            Untrusted(text or "(nothing)"), question=question.key, by=user
        )

    def _continue_turn(
        self, given: core.RunAgentInput, info: RunInfo, user: Sender
    ) -> Stream:
        """Have a turn continue, and return how to watch what follows."""
        self._resumed.begin_served(info, user)
        return Stream(
            info.run_id, given.thread_id, given.run_id, info.head_seq, _name(user)
        )


def _check_begun(given: core.RunAgentInput, last: RunInfo | None) -> RunInfo:
    """Return the last turn of the thread of a request; raise `UnknownRun` for a thread without one."""
    if last is None:
        raise UnknownRun(f"thread {given.thread_id!r} is not in the journal")
    return last


def _name(user: Sender) -> str:
    return str(user)
