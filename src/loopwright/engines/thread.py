"""ThreadEngine: threads that send messages to themselves and to each other, as in AgentServer (xml-pipeline 2.0)."""

import dataclasses
import functools
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from ..engine import LoopEngine
from ..errors import ConfigError, LimitReached, LoopwrightError, Stuck, Unreadable
from ..labels import read_provenance
from ..messages import Conversation, Message
from ..parsing.payloads import (
    ASIDES,
    TEXT,
    PayloadError,
    read_payloads,
    write_element,
)
from ..prompts import PromptSet
from ..run import Run
from .thread_board import ROOT, Mail, ThreadBoard, ThreadState
from .thread_exchange import FORMS, PayloadExchange, ThreadRules
from .thread_facts import ContextCleared as ContextCleared
from .thread_facts import MessagePosted as MessagePosted
from .thread_facts import PayloadRefused as PayloadRefused
from .thread_facts import ThreadEnded, TimerFired, Wave
from .thread_facts import ThreadSpawned as ThreadSpawned
from .thread_facts import TimerSet as TimerSet
from .thread_facts import TodoChanged as TodoChanged

PROMPTS = PromptSet(
    protocol="""\
You are thread {id}. {place} This conversation is all that you remember. You work in turns, and say what happens next by
payloads in your reply: XML elements, each on a line of its own. Other words are notes to yourself.

<self>your next thought</self>: have another turn.
<spawn-thread suggested_sub_id="name"><initial-payload>a task, in full</initial-payload></spawn-thread>: start a thread
that works at the same time and knows nothing of this conversation. You get its id, and later what it found.
<post to="id of a thread">text</post>: send a message.
<clear-context keep="{keep}"/>: forget all but your task and the newest messages.
<todo-until condition="what must hold"><step done="false">a step</step></todo-until>: write down what is still to do;
send it again with `done="true"` for what is done. You cannot end before every step is done.
<timer seconds="60">a note</timer>: get this note when the time is over.
{finals}: end, with your whole answer in it. It stands last.

{cure}. Every payload gets an answer. When you have posted, spawned or set a timer you wait until something comes, unless
you also send <self>.""",
    root="You work for the user.",
    spawned="Thread {parent} started you and gets your answer.",
)
CURE = (
    "In a text, write `&lt;` and `&amp;` for `<` and `&`, or <![CDATA[...]]> around it"
)
FIRST = Wave(0, (), (), {})
"""What a run finds where no turn of its conversation was before."""
GUIDANCE = ("steer", "add_context")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True)
class TurnOutcome:
    """A turn of a thread: the conversation behind it and before its reply, the reply, and why there is none.

    `delivered` are the texts that the runtime gave to its model.
    """

    conversation: Conversation
    before: Conversation
    reply: str = ""
    has_called: bool = False
    delivered: tuple[str, ...] = ()
    failure: LoopwrightError | None = None


class ThreadEngine(LoopEngine):
    """Let threads reason by messages to themselves, spawn other threads and post to them, until the first one answers.

    A thread is its conversation: all that it remembers. A reply hands payloads to the engine, XML elements that are read
    strictly and from the model's own words alone; each gets a visible answer, and what cannot be understood a visible
    error. Tools are called as everywhere; their results are in the next turn.

    Threads move in waves: each live one has a turn, at the same time. Then their payloads take effect, by the ids of the
    threads and their order in the reply. A thread that posted, spawned or set timers waits until mail comes, unless it
    also has something to do; if all wait, the run sleeps until the next timer. Policy decides about `spawn_thread`,
    `post_message` and `final_answer`.

    Args:
        max_turns: turns of all threads together; then the best answer so far is asked for.
        max_threads: threads at a time, with the first one; 64 are spawned in all.
        order: "breadth" gives each live thread a turn, "depth" those of the deepest level alone.
        peers: who may post to whom, as pairs of patterns of ids, such as `(("root", "*"), ("*", "root"))`; without any,
            everybody may.
        finals: the payloads that end a thread with an answer.
        keep_on_clear: messages that clearing the context keeps, beside the instructions and the task.
        prompts: `protocol` begins each thread, with `root` or `spawned` in it.
    """

    name = "thread"
    asks_to_act = False  # a thought about what comes next is a payload
    max_turns: int = Field(default=25, ge=1)
    max_threads: int = Field(default=8, ge=1)
    order: Literal["breadth", "depth"] = "breadth"
    peers: tuple[tuple[str, str], ...] = ()
    finals: tuple[str, ...] = ("answer",)
    keep_on_clear: int = Field(default=10, ge=0)
    prompts: PromptSet = PROMPTS

    def __post_init__(self) -> None:
        """Refuse finals whose name means something else, and empty patterns of peers."""
        super().__post_init__()
        for final in self.finals:
            if not _NAME.fullmatch(final) or final in (*FORMS, *ASIDES, ROOT):
                raise ConfigError(
                    f"finals: must be names of elements that mean nothing else, got {final!r}; pass another name"
                )
        if not self.finals or len(set(self.finals)) < len(self.finals):
            raise ConfigError(
                f"finals: needs at least one name, each once, got {self.finals!r}"
            )
        if not all(pattern for pair in self.peers for pattern in pair):
            raise ConfigError(
                f'peers: holds an empty pattern, got {self.peers!r}; "*" is every thread'
            )

    async def solve(self, run: Run) -> str:
        """Have waves of turns until the first thread answers, or no turns are left."""
        board = await self._open_board(run)
        rules = ThreadRules(
            self.max_turns, self.max_threads, self.peers, self.finals, self.keep_on_clear,
            functools.partial(self._open_thread, run),
        )  # fmt: skip
        exchange = PayloadExchange(run, board, rules)
        turns, answer = run.iterations(self.max_turns), None
        delivered: tuple[str, ...] = ()
        try:
            while answer is None:
                await self._wake(run, board, delivered)
                live = board.list_live(self.order)
                playing = [thread for thread, _ in zip(live, turns, strict=False)]
                if not playing:
                    break
                delivered, answer = await self._play(run, board, exchange, playing)
        except LimitReached:
            pass  # the best answer is asked for, or refused for the same reason
        finally:
            run.keep(_remove_protocol(run, board.root.conversation))
        if answer is not None:
            return answer
        return self._read_answer(await run.best_answer(run.latest))

    # --- how threads begin ---

    async def _open_board(self, run: Run) -> ThreadBoard:
        """Return the first thread, with what the last turn of the conversation left of it."""
        reserved = (*FORMS, *ASIDES, *self.finals, ROOT)
        [last] = await run.thread_facts(Wave, last=1) or (FIRST,)
        ids = [one.id for one in last.threads if one.id != ROOT]
        board = ThreadBoard(reserved, (*last.earlier, *ids))
        task = _find_task(run.conversation)
        instructed = run.conversation.with_system(self._instruct(ROOT, ""))
        opening = (instructed.messages[0], *task)
        root = ThreadState(ROOT, "", instructed, opening, is_awake=True)
        board.threads[ROOT] = root
        root.todos.update({about: dict(steps) for about, steps in last.todos.items()})
        for thread in last.threads:
            if thread.status != "ended" and thread.id != ROOT:
                root.deliver("thread-ended", {"id": thread.id, "by": "end-of-run"})
        return board

    def _instruct(self, id: str, parent: str) -> str:
        fill = self.prompts.fill
        place = fill("spawned", parent=parent) if parent else fill("root")
        finals = ", ".join(f"<{final}>...</{final}>" for final in self.finals)
        return fill(
            "protocol", id=id, place=place, keep=self.keep_on_clear, finals=finals, cure=CURE,
        )  # fmt: skip

    def _open_thread(
        self, run: Run, id: str, parent: str, task: str, spawner: ThreadState
    ) -> ThreadState:
        """Return a thread that knows the caller's system message and its task, which is as trusted as its spawner."""
        system = [one for one in run.conversation.messages[:1] if one.role == "system"]
        instructed = Conversation(system).with_system(self._instruct(id, parent))
        if task:
            known = spawner.conversation
            given = Message("user", task, origin="engine", label=known.label, untrusted=known.untrusted)  # fmt: skip
            instructed = instructed.add(given)
        opening = instructed.messages
        return ThreadState(id, parent, instructed, opening, is_awake=bool(task))

    # --- waves ---

    async def _wake(
        self, run: Run, board: ThreadBoard, delivered: tuple[str, ...]
    ) -> None:
        """Deliver what people said and the timers that are due; sleep until the next one if all threads wait.

        Then a thread is live: whatever a turn hands out wakes another thread, or is a timer.
        """
        read = list(delivered)
        for command in await run.received(GUIDANCE):
            text = str(command.body.get("text", ""))
            known = next((one for one in read if one.endswith(f"\n{text}")), None)
            if (
                known is not None
            ):  # it came during the wave, and the first thread has read it
                read.remove(known)
                continue
            label, untrusted = read_provenance(command.body)
            element = write_element("message", {"from": "user"}, text)
            board.root.inbox.append(Mail(element, label, untrusted))
        if board.timers:
            self._fire(run, board, run.now().timestamp())
        if not board.list_live(self.order) and board.timers:
            due = min(timer.due for timer in board.timers)
            await run.sleep(until=datetime.fromtimestamp(due, UTC))
            self._fire(run, board, due)

    def _fire(self, run: Run, board: ThreadBoard, now: float) -> None:
        for timer in board.fire_timers(now):
            run.note(TimerFired(timer.id, timer.thread))

    async def _play(
        self,
        run: Run,
        board: ThreadBoard,
        exchange: PayloadExchange,
        playing: Sequence[ThreadState],
    ) -> tuple[tuple[str, ...], str | None]:
        """Have a turn of each of these threads at once; return what the first one got beside its mail, and the answer."""
        for thread in playing:
            thread.read_mail()
        works = [functools.partial(_have_turn, one.conversation) for one in playing]
        turns = await run.gather(*works, names=[one.id for one in playing])
        board.waves += 1
        answer: str | None = None
        for thread, turn in zip(playing, turns, strict=True):
            thread.conversation = turn.conversation
            if turn.failure is not None:
                self._fail(run, board, thread, turn.failure)
                continue
            thread.is_awake = turn.has_called
            answer = await exchange.take(thread, turn.reply, has_called=turn.has_called)
            if answer is not None:  # it is added to the conversation when the run ends
                thread.conversation = turn.before
                break
        run.note(board.describe(tuple(thread.id for thread in playing)))
        known = dict(zip((one.id for one in playing), turns, strict=True))
        return known[ROOT].delivered if ROOT in known else (), answer

    def _fail(
        self,
        run: Run,
        board: ThreadBoard,
        thread: ThreadState,
        failure: LoopwrightError,
    ) -> None:
        """End a thread whose model cannot be read or is stuck; with the first one, the run ends."""
        if thread is board.root:
            raise failure
        by = "stuck" if isinstance(failure, Stuck) else "unreadable"
        run.note(ThreadEnded(thread.id, by))
        board.end(thread, by, "")

    def _read_answer(self, reply: str) -> str:
        """Return the answer in the reply to the question for the best one, which may be a payload."""
        forms = {**FORMS, **dict.fromkeys(self.finals, TEXT)}
        try:
            payloads = read_payloads(reply, forms)
        except PayloadError:
            return reply
        texts = [one.text for one in payloads if one.tag in self.finals and one.text]
        return texts[-1] if texts else reply


async def _have_turn(conversation: Conversation, branch: Run) -> TurnOutcome:
    """Ask the model of a thread for its next turn, and make the calls in it."""
    try:
        proposal = await branch.reason(conversation)
        observations = await branch.act(await branch.gate(proposal))
    except (Unreadable, Stuck) as failure:
        return TurnOutcome(conversation, conversation, failure=failure)
    after = conversation.observe(proposal, observations)
    has_called = bool(proposal.calls)
    before = after if has_called else conversation.add(*proposal.delivered)
    reply = proposal.thought if proposal.answer is None else proposal.answer
    delivered = tuple(message.content for message in proposal.delivered)
    return TurnOutcome(after, before, reply, has_called, delivered)


def _find_task(conversation: Conversation) -> tuple[Message, ...]:
    """Return the message of the conversation that holds the task."""
    asked = [message for message in conversation if message.role == "user"]
    return tuple(asked[-1:])


def _remove_protocol(run: Run, conversation: Conversation) -> Conversation:
    """Return a conversation of the first thread with the caller's own system message, for the next turn."""
    system = [one for one in run.conversation.messages[:1] if one.role == "system"]
    plain = Conversation([*system, *conversation.messages[1:]])
    return plain.with_provenance(conversation.label, untrusted=conversation.untrusted)
