"""`chat`: a conversation with an agent or a model at a terminal; its thread is in the journal."""

import asyncio
import contextlib
import secrets
import shlex
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeAlias

from .._internal import dataclasses
from ..agents.agent import Agent, AgentDefinition, define_agent
from ..agents.thread_record import ThreadRecord
from ..agents.turn import Turn
from ..agents.turn_handle import TurnHandle
from ..errors import ConfigError, LoopwrightError, RunBusy
from ..events.control import CommandReceived
from ..events.effects import ModelFailed, ModelReplied, ModelRequested
from ..events.entry import Entry
from ..events.run import Question, RunFinished, RunSuspended
from ..events.timeline import Timeline
from ..gates.base import Approver, Suspend
from ..handle import RunHandle
from ..plugins import plugins
from ..providers.base import Delta
from ..runtime import Runtime
from .approver import approve_all
from .captured_output import capture_output
from .chat_screen import ChatScreen, Interrupt, open_screen
from .config import CommandOptions, load_object, open_journal, parse_engine_options
from .config_file import open_composition
from .questions import describe_answer
from .run import Interaction, make_runtime
from .text import clean, exact_call, one_line

WatchedTurn: TypeAlias = TurnHandle[Entry | Delta] | RunHandle[Entry | Delta, Any]
HINT = "(Ctrl-D leaves)\n"
SHOWN = (
    "thought", "call", "result", "problem", "retry", "limit", "recovery", "outcome", "fact", "paused",
)  # fmt: skip
"""The lines of a timeline that a chat shows between what is said."""


@dataclasses.dataclass(frozen=True)
class ChatTarget:
    """Whom to talk with: a model as "provider:model", or an agent as "module:object"; empty for `--provider`."""

    name: str
    thread: str | None
    engine: str
    system: str

    def open(self, chosen: CommandOptions, approver: Approver | Suspend) -> Agent[Any]:
        """Return the agent; raise `ConfigError` for a name that is none."""
        if chosen.config is not None:
            return self._open_composed(chosen, approver)
        kind, _, rest = self.name.partition(":")
        if self.name and kind not in plugins("providers"):
            if not rest:
                known = ", ".join(plugins("providers"))
                raise ConfigError(
                    f"AGENT: {self.name!r} is neither a model nor an agent; write provider:model with one of {known}, "
                    "or package.module:object"
                )
            return self._load(chosen, approver)
        if self.name and chosen.provider:
            raise ConfigError("--provider: the model is named already; leave one out")
        chosen = dataclasses.replace(chosen, provider=self.name or chosen.provider)
        journal = open_journal(chosen.journal)
        runtime = make_runtime(chosen, approver, journal)
        options = parse_engine_options(runtime, chosen.options)
        engine = runtime.engine(self.engine, **options)
        definition = AgentDefinition("", self.system)
        return define_agent(runtime, engine, definition, runtime.agents)

    def _open_composed(
        self, chosen: CommandOptions, approver: Approver | Suspend
    ) -> Agent[Any]:
        """Return the agent of a file of `--config`, or an engine of it as an agent without a name."""
        if self.name and chosen.agent:
            raise ConfigError("--agent: the agent is named already; leave one out")
        composition = open_composition(chosen, approver)
        found = composition.choose(self.name or chosen.agent)
        if isinstance(found, Agent):
            if self.system:
                raise ConfigError(f"--system: agent {found.name!r} has instructions of its own; leave it out")  # fmt: skip
            return found
        runtime = composition.runtime
        definition = AgentDefinition("", self.system)
        return define_agent(runtime, found, definition, runtime.agents)

    def _load(self, chosen: CommandOptions, approver: Approver | Suspend) -> Agent[Any]:
        """Return the agent of that name; raise `ConfigError` for an option that it would not heed."""
        found = load_object("AGENT", self.name)
        agent: Agent[Any] = found
        if not isinstance(found, Agent):
            raise ConfigError(
                f"AGENT: {self.name!r} is not an agent but a {type(found).__name__}; name what runtime.agent(...) returned"
            )
        engine = "" if self.engine == "react" else self.engine
        own = [("--journal", chosen.journal), ("--output", chosen.output)]
        for_models = [("--engine", engine), ("--system", self.system)]
        for option, value in (*chosen.list_services(), *own, *for_models):
            if value not in (None, "", ()):
                raise ConfigError(
                    f"{option}: agent {self.name!r} has its own; change it in the code, or leave the option out"
                )
        own_approver = agent.engine.runtime.approver is not None
        if own_approver and not isinstance(approver, Suspend):
            raise ConfigError(
                f"--yes: agent {self.name!r} has an approver of its own; leave the option out"
            )
        ask_here(agent, approver)
        return agent

    def format_command(self, thread: str, chosen: CommandOptions) -> str:
        """Return the command that continues the conversation."""
        words = [self.name or chosen.agent] if self.name or chosen.agent else []
        if self.engine != "react":
            words += ["--engine", self.engine]
        if self.system:
            words += ["--system", self.system]
        words += ["--thread", thread, *chosen.repeat()]
        return clean(shlex.join(["loopwright", "chat", *words]))


def _explain_parked(turn: Turn) -> str:
    """Return why a turn has no answer until a person decides, with the commands that do."""
    run_id = shlex.quote(turn.run_id)
    end = (
        f"`loopwright retry {run_id}` continues it, `loopwright close {run_id}` ends it"
    )
    return f"[parked: {one_line(turn.reason)}: {end}]\n"


def choose_chat_approver(interaction: Interaction) -> Approver | Suspend:
    """Return who decides about calls: the person at the terminal, or `--yes`.

    Raises `ConfigError` for options that a chat cannot heed.
    """
    if interaction.as_json:
        raise ConfigError(
            "--json: a chat prints text; leave it out, or use `loopwright run --json --thread ID`"
        )
    if interaction.approval == "wait":
        raise ConfigError(
            "--wait: a chat asks at the terminal; leave it out, or use `loopwright run --wait --thread ID`"
        )
    return approve_all if interaction.approval == "yes" else Suspend()


def ask_here(agent: Agent[Any], approver: Approver | Suspend) -> None:
    """Let the person at the terminal, or `--yes`, decide about calls of an agent whose runtime has no approver.

    The other agents of that may be handed the conversation, so theirs too.
    """
    agents: Iterable[Agent[Any]] = agent.engine.runtime.agents.values()
    for one in (agent, *agents):
        services = one.engine.runtime
        if services.approver is None:
            vars(services).update(approver=approver)  # of a frozen class


def hold_chat(
    target: ChatTarget, chosen: CommandOptions, interaction: Interaction
) -> int:
    """Talk until the person leaves; return the exit status."""
    screen = open_screen()
    with capture_output(screen.print):
        agent = target.open(chosen, choose_chat_approver(interaction))
        fresh = f"chat-{secrets.token_hex(4)}"
        thread = fresh if target.thread is None else target.thread
        runtime = agent.engine.runtime
        if not isinstance(runtime, Runtime):
            raise ConfigError("AGENT: must be of a Runtime")
        chat = Chat(runtime, agent, thread, screen)

        async def work() -> None:
            try:
                async with runtime:
                    await chat.hold()
            finally:
                await runtime.journal.close()

        asyncio.run(work())
    if interaction.quiet or not chat.has_spoken:
        return 0
    sys.stderr.write(f"continue it: {target.format_command(thread, chosen)}\n")
    return 0


class Chat:
    """A conversation at a terminal: what is typed while an answer is made guides it, Ctrl-C stops the answer."""

    def __init__(
        self, runtime: Runtime, agent: Agent[Any], thread: str, screen: ChatScreen
    ) -> None:
        self._runtime, self._agent, self._screen = runtime, agent, screen
        self._thread = agent.thread(thread)
        self._waiting: deque[str] = deque()
        """Messages that no model has read: they are the next ones."""
        self.has_spoken = False

    async def hold(self) -> None:
        """Show what was said, and talk until the person leaves."""
        async with self._screen:
            await self._show_history()
            while (text := await self._read()) is not None:
                try:
                    await self._take_turn(text)
                except LoopwrightError as error:
                    self._screen.print(f"error: {one_line(str(error))}\n")

    async def _read(self) -> str | None:
        """Return the next message; `None` if the person leaves."""
        while True:
            if self._waiting:
                return self._waiting.popleft()
            typed = await self._screen.read()
            if isinstance(typed, Interrupt):
                self._screen.print(HINT)
            elif typed is None or typed.strip():
                return typed

    async def _show_history(self) -> None:
        """Show what was said before, and continue a turn that waits, was suspended or whose process is gone."""
        turns = await self._thread.turns()
        for turn in turns:
            self._screen.print(f"> {clean(turn.text)}\n")
            if turn.answer is not None:
                self._screen.print(f"{clean(turn.answer)}\n")
            elif turn.status == "parked":
                self._screen.print(_explain_parked(turn))
            elif turn.status not in ("running", "waiting", "suspended", "released"):
                self._screen.print(f"[no answer: {turn.stop_reason}]\n")
        self.has_spoken = bool(turns)
        if not turns:
            return
        last = turns[-1]
        is_stopped = last.status in ("running", "suspended", "released")
        try:
            may_continue = is_stopped or await self._is_decided()
            if may_continue or await self._decide(last.run_id, last.pending):
                await self._resume(last.run_id)
        except RunBusy:
            self._screen.print("[no answer yet: another process is at work on it]\n")

    async def _is_decided(self) -> bool:
        """Return whether what the last turn waits for was decided meanwhile, so that the person is not asked."""
        services = self._agent.engine.runtime
        record = ThreadRecord(services, self._thread.id, self._agent.name)
        last = await record.find_last()
        return last is not None and await record.is_unowned(last)

    async def _take_turn(self, text: str) -> None:
        """Say something, and show the answer."""
        self.has_spoken = True
        async with self._thread.start(text, deltas=True) as run:
            pending = await self._follow(run)
        if await self._decide(run.run_id, pending):
            await self._resume(run.run_id)

    async def _resume(self, run_id: str) -> None:
        """Continue a turn once its questions are decided, until none is left."""
        may_continue = True
        while may_continue:
            async with await self._agent.resume(run_id, deltas=True) as run:
                pending = await self._follow(run)
            may_continue = await self._decide(run_id, pending)

    async def _follow(self, run: WatchedTurn) -> tuple[Question, ...]:
        """Show a turn, and pass on what is typed meanwhile; return what it waits for."""
        shown = ShownTurn(self._screen)
        showing = asyncio.ensure_future(shown.follow(run))
        try:
            if self._screen.is_interactive:
                await self._listen(run, shown, showing)
            await showing
        finally:
            showing.cancel()
        self._waiting.extend(shown.unread)
        return shown.pending

    async def _listen(
        self,
        run: WatchedTurn,
        shown: "ShownTurn",
        showing: asyncio.Future[None],
    ) -> None:
        """Pass on what is typed until the turn has ended, or nothing more can be typed."""
        while not showing.done():
            typed = asyncio.ensure_future(self._screen.read())
            await asyncio.wait((showing, typed), return_when=asyncio.FIRST_COMPLETED)
            if not typed.done():
                typed.cancel()
                await asyncio.wait((typed,))
            elif not await self._pass_on(run, typed.result(), shown):
                return

    async def _pass_on(
        self,
        run: WatchedTurn,
        typed: str | Interrupt | None,
        shown: "ShownTurn",
    ) -> bool:
        """Guide or stop the turn; return whether more can be typed."""
        if typed is None:
            return False
        if isinstance(typed, str):
            if not typed.strip():
                return True
            shown.unread.append(typed)
        elif shown.has_ended:
            self._screen.print(HINT)
        with contextlib.suppress(ConfigError):  # the turn has ended meanwhile
            await (run.steer(typed) if isinstance(typed, str) else run.abort())
        return True

    async def _decide(self, run_id: str, pending: Iterable[Question]) -> bool:
        """Ask the person about calls that wait for approval; return whether the turn can continue."""
        asked = list(pending)
        approvals = [one for one in asked if one.about == "approval"]
        for question in approvals:
            if not await self._ask(run_id, question):
                return False
        for question in asked:
            if question.about == "question":
                lines = [one_line(question.text), *describe_answer(question)]
                self._screen.print("".join(f"{line}\n" for line in lines))
            elif question.about != "approval":
                self._screen.print(
                    f"{one_line(question.text)}\n  decide it with `loopwright show {run_id}`\n"
                )
        return bool(approvals) and len(approvals) == len(asked)

    async def _ask(self, run_id: str, question: Question) -> bool:
        """Ask about one call; return `False` if the person leaves without a decision."""
        self._screen.forget_typed()  # what was typed before the question does not answer it
        control = self._runtime.control(run_id)
        self._screen.print(
            f"{one_line(question.text)}\n  {exact_call(question.tool, question.arguments)}\n"
            "y approves it; n or a reason denies it\n"
        )
        typed = await self._screen.read()
        if isinstance(typed, Interrupt):
            await control.abort()
            return True
        if typed is None:
            return False
        answer = typed.strip()
        if answer.casefold() in ("y", "yes"):
            await control.approve(question.id)
        else:
            reason = "" if answer.casefold() in ("", "n", "no") else answer
            await control.deny(question.id, reason)
        return True


class ShownTurn:
    """One turn as it is shown: replies as they are streamed, calls and results, the answer."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen, self._timeline = screen, Timeline()
        self._replies: dict[str, str] = {}
        self._received: dict[int, str] = {}
        self.unread: list[str] = []
        """What was typed meanwhile, and no model has read."""
        self.pending: tuple[Question, ...] = ()
        self.has_ended = False

    async def follow(self, run: WatchedTurn) -> None:
        """Show the turn to its end."""
        async for item in run:
            if isinstance(item, Delta):
                text = self._replies.get(item.key, "") + item.text
                self._replies[item.key] = text
                self._screen.stream(text)
            else:
                self._show(item)
        self._screen.stream("")
        await run.result()

    def _show(self, entry: Entry) -> None:
        match entry.event:
            case ModelRequested(commands=commands):
                self._take(commands)
            case ModelReplied() | ModelFailed():
                self._replies.pop(entry.key, None)
                self._screen.stream("")
            case CommandReceived(number=number, body=body):
                self._received[number] = str(body.get("text", ""))
            case RunSuspended(pending=pending):
                self.pending = pending
            case RunFinished():
                self._show_end(entry.event)
            case _:
                pass
        for line in self._timeline.lines(entry):
            if line.label in SHOWN:
                self._screen.print(f"  {line.label:<8} {one_line(line.text)}\n")

    def _show_end(self, ended: RunFinished) -> None:
        self.has_ended = True
        if not ended.answer:
            for words in self._replies.values():
                self._screen.print(f"{words}\n")
        text = ended.answer or f"[no answer: {ended.stop_reason}]"
        self._screen.print(f"{text}\n")
        if ended.error is not None and ended.stop_reason != "aborted":
            self._screen.print(f"error: {one_line(ended.error.message)}\n")

    def _take(self, commands: Iterable[int]) -> None:
        """Note which of the typed messages a model reads now."""
        for number in commands:
            with contextlib.suppress(ValueError):
                self.unread.remove(self._received.get(number, ""))
