"""Runs that use all that an engine can do, each with a model that is a function of the request, for crash tests."""

import asyncio
import json
import os
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from loopwright import (
    Action,
    Allow,
    Ask,
    ChainOfThoughtEngine,
    Completion,
    Journal,
    LoopEngine,
    PlanExecuteEngine,
    PolicyGate,
    PolicyState,
    ReActEngine,
    ReflexionEngine,
    Request,
    Run,
    Runtime,
    SelfAskEngine,
    Tool,
    ToolContext,
    ToolError,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.agents import InstructionContext
from loopwright.engines import FileReflections, MemoryReflections
from loopwright.errors import TimedOut
from loopwright.gates import Approver, Decision, InstantGate
from loopwright.hooks import Before, Hook, ModelQuestion, Moment
from loopwright.journals import SQLiteJournal
from loopwright.knowledge import KnowledgeBridge, MemoryKnowledge, SQLiteKnowledge
from loopwright.messages import ToolCall
from loopwright.testing import call
from loopwright.testing.crash_harness import WITNESS, Killable, witness, witnessed

Line = str | ToolCall | list[ToolCall] | Completion


@dataclass(frozen=True)
class Program:
    """An engine at work: how it is made, what it is asked, who answers, and what must come of it."""

    engine: Callable[[Runtime], LoopEngine]
    model: Callable[[Request], Line]
    answer: str
    task: str = "What is blue?"
    tools: Sequence[Tool] = ()
    approver: Approver | None = None
    gate: PolicyGate | None = None
    saga: bool = False
    knowledge: Callable[[], KnowledgeBridge | None] = lambda: None
    hooks: Sequence[Hook] = ()
    user: Callable[[str], Awaitable[str]] | None = None

    def journal(self, folder: Path) -> Journal:
        """Where it is kept when it is killed."""
        return SQLiteJournal(folder / "runs.db")

    def runtime(self, journal: Journal | None = None) -> Runtime:
        """What it runs on."""
        model = witnessed(self.model)
        return Runtime(
            model,
            tools=self.tools,
            journal=journal,
            approver=self.approver,
            gate=self.gate,
            knowledge=self.knowledge(),
            hooks=self.hooks,
            user=self.user,
        )

    def warm_up(self) -> None:
        """Run it once, in an interpreter that forks."""
        run_once(self)


def run_once(program: Killable) -> None:
    """Fill the caches of the library, in an interpreter that forks, by a run that no other finds."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[WITNESS] = f"{folder}/witness"
        try:
            asyncio.run(_run_once(program, program.journal(Path(folder))))
        finally:
            del os.environ[WITNESS]


async def _run_once(program: Killable, journal: Journal) -> None:
    async with program.runtime(journal) as runtime:
        result = await program.engine(runtime).run(program.task, run_id="warm-up")
        result.raise_for_status()
        await runtime.drain()
    await journal.close()


def program(name: str) -> Program:
    """The program of that name, for another process to make it again."""
    return {**PROGRAMS, **OTHER_PROGRAMS}[name]


@tool(effect="read")
async def look(ctx: ToolContext[None], what: str) -> str:
    """Look."""
    witness(ctx)
    return f"{what} is blue"


@tool(effect="idempotent")
def put(ctx: ToolContext[None], what: str) -> str:
    """Put."""
    witness(ctx)
    return f"{what} put"


@tool(effect="write")
async def send(ctx: ToolContext[None], what: str) -> str:
    """Send."""
    witness(ctx)
    return f"{what} sent"


def turns(*lines: Line) -> Callable[[Request], Line]:
    """A model that says these lines, one a turn of the conversation."""

    def model(request: Request) -> Line:
        return lines[
            sum(
                message.role == "assistant" for message in request.conversation.messages
            )
        ]

    return model


def _named(name: str) -> Callable[[Runtime], LoopEngine]:
    return lambda runtime: runtime.engine(name)


def said(request: Request) -> str:
    """The last thing that the model was told."""
    return request.conversation.messages[-1].content


# --- ReAct, a stranger's loop, and ReAct that hands over and has an engine among its tools ---

LOOPS = turns(
    [call("look", what="sky"), call("send", what="card"), call("put", what="cup")],
    [call("send", what="end")],
    "blue",
)


def _asks_an_engine(runtime: Runtime) -> LoopEngine:
    reasons = ChainOfThoughtEngine(Runtime(witnessed(_reasons)))
    inner = ReActEngine(Runtime(witnessed(LOOPS), tools=[look, send, put])).as_tool(
        name="ask", description="Ask."
    )
    outer = Runtime(runtime.provider, tools=[look, inner], journal=runtime.journal)
    return ReActEngine(outer, max_iterations=2, fallback=reasons)


OUTER = turns(
    [call("ask", task="a"), call("look", what="sky"), call("ask", task="b")],
    call("look", what="sea"),
)


# --- Chain of Thought: four samples in waves of two, each cut off once ---


def _reasons(request: Request) -> Line:
    if "cut off" in said(request):
        return "The sky is blue."
    if "What is the answer" in said(request):
        return "blue"
    return Completion("First, the sky", finish_reason="length")


# --- Self-Ask: two questions at once, one of which only the model can answer, and a tool that it names itself ---

FOLLOW_UPS = turns(
    "Yes.\nFollow up: sky\nFollow up: nothing", 'Follow up: send\nTool: send\nTool Input: {"what": "card"}',
    "So the final answer is: blue",
)  # fmt: skip


@tool(effect="read")
async def seek(ctx: ToolContext[None], what: str) -> str:
    """Seek."""
    witness(ctx)
    return "" if what == "nothing" else f"{what} is blue"


def _asks_itself(request: Request) -> Line:
    return "It is blue too." if "yourself" in said(request) else FOLLOW_UPS(request)


# --- Tree of Thoughts: by levels and depth first, with thoughts proposed together ---


def _searches(request: Request) -> Line:
    text = said(request)
    if "THOUGHT:" in text:
        depth = text.count("step")
        return f"THOUGHT: step {depth} grey\nTHOUGHT: step {depth} sky" + (
            "\nANSWER: blue" if depth == 2 else ""
        )
    return f"Score: {9 if 'sky' in text.rsplit('step', 1)[-1] else 3}"


# --- Plan-and-Execute: approved, a wave of three with a sub-goal, a step that fails, a second plan ---


@tool(effect="read")
async def fail(ctx: ToolContext[None], what: str) -> str:
    """Fail."""
    witness(ctx)
    raise ToolError(f"{what} is nowhere")


def _plans(request: Request) -> Line:
    text = said(request)
    if "Why another plan" in text:
        return '5. send("$1")\njoin()'
    if "Plan how" in text:
        return '1. look("sky")\n2. find out what the sea is like\n3. fail("the end")\n4. send("$3")\njoin()'
    if "Work on this one step" in text:
        return call("look", what="sea")
    if request.conversation.messages[-1].role == "tool":
        return "The sea is blue."
    return "Decision: REPLAN" if "Decision:" in text else "blue"


async def _yes(action: Action, question: str) -> bool:
    return True


class AskAboutPlans(InstantGate):
    """Lets a person decide about plans."""

    version = "plans-1"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Ask, if it is a plan."""
        return Ask("all right?") if action.tool == "approve_plan" else Allow()


# --- Reflexion: an episode with tools that fails, a lesson that is kept in a file, one that succeeds ---


def _tries(request: Request) -> Line:
    text, seen = (
        said(request),
        [message.content for message in request.conversation.messages],
    )
    if "SATISFACTORY or UNSATISFACTORY" in text:
        return (
            "SATISFACTORY" if "Answer:\nblue" in text else "UNSATISFACTORY\nIt is grey."
        )
    if "Name the mistake" in text:
        return "I should have looked."
    if request.conversation.messages[-1].role == "tool":
        return "blue" if "sky is blue" in text else "grey"
    return (
        call("look", what="sky")
        if any("should have looked" in said for said in seen)
        else call("send", what="card")
    )


def _learns(runtime: Runtime) -> LoopEngine:
    path = os.environ.get(WITNESS)
    return ReflexionEngine(
        runtime,
        store=FileReflections(f"{path}.lessons") if path else MemoryReflections(),
    )


# --- CRITIC: a claim that a tool refutes, a revision, a claim that is sent somewhere, a verdict ---


def _criticises(request: Request) -> Line:
    text = said(request)
    if "Evidence:" in text and "end with one of these" not in text:
        return "Verdict: VERIFIED" if "card sent" in text else "Revised answer: blue"
    if "end with one of these" in text:
        answer = [
            m.content for m in request.conversation.messages if m.role == "assistant"
        ][-1]
        tool_name, what = ("send", "card") if answer == "blue" else ("look", "sky")
        return f"Claim: the sky\nTool: {tool_name}\nTool Input: {what}"
    return "grey"


# --- threads: self-messages, spawned ones, posts, a todo, a timer, a cleared context, tools, and refused payloads ---

THREADS: dict[str, Sequence[Line]] = {
    "root": (
        "<spawn-thread suggested_sub_id='a'><initial-payload>Look.</initial-payload></spawn-thread>\n"
        "<spawn-thread suggested_sub_id='a'/>\n"
        "<todo-until condition='known'><step>look</step><step>tell</step></todo-until>",
        "<post to='root.a-1'>Send it.</post>\n<post to='root.b'>Who?</post>\n<self>Wait.</self>",
        "<clear-context keep='1'/>\n<answer>early</answer>",
    ),
    "root.a": (
        [call("look", what="sky")],
        "<post to='root'>blue</post>\n<a>Done?</a>",
        "<answer>It is blue.</answer>",
    ),
    "root.a-1": ([call("send", what="card"), call("look", what="sea")], "<answer>sent</answer>"),
    "cleared": (
        "<todo-until condition='known'><step done='true'>look</step><step done='true'>tell</step></todo-until>",
        "<timer seconds='0.05'>ring</timer>",
        "<answer>blue</answer>",
    ),
}  # fmt: skip
"""What each says, turn by turn; when it fires alone decides nothing, so that a kill changes no turn."""


def _speaks(request: Request) -> Line:
    messages = request.conversation.messages
    name = messages[0].content.split("You are thread ")[1].split(". ")[0]
    turn = sum(message.role == "assistant" for message in messages)
    if any("context-cleared" in message.content for message in messages):
        name, turn = "cleared", turn - 1
    return THREADS[name][turn]


# --- an engine that bounds works by time and takes their outcomes as they come ---


class Impatient(LoopEngine):
    """Bounds one work by time, takes the outcomes of others one by one, and leaves the slowest."""

    name = "impatient"

    async def solve(self, run: Run) -> str:
        """Send, look for too long, put things, look for ever."""

        def make(tool: str, what: str) -> Callable[[Run], Awaitable[str]]:
            async def work(branch: Run) -> str:
                made = await branch.call(ToolCall(tool, {"what": what}))
                return f"{made.content} {await branch.ask(f'{what}?')}"

            return work

        try:
            words = [await run.timeout(0.3, make("linger", "far star"))]
        except TimedOut:
            words = ["too far"]
        works = [make("send", "card"), make("put", "cup"), make("linger", "star")]
        async with run.as_completed(*works) as done:
            async for finished in done:
                words.append(str(finished.index))
                if len(words) == 2:
                    done.start(make("send", "letter"))
                if len(words) == 4:
                    break
        return f"{words[0]}, {', '.join(sorted(words[1:]))} {await run.ask('and?')}"


@tool(effect="read")
async def linger(ctx: ToolContext[None], what: str) -> str:
    """Look for ever."""
    witness(ctx)
    await asyncio.sleep(600)
    return f"{what} is blue"


# --- an engine that reads what is never the same ---


class Curious(LoopEngine):
    """Looks up what no other process reads, sends it, and asks about it, in branches too."""

    name = "curious"

    async def solve(self, run: Run) -> str:
        """Send what was read; every question holds it, so that a second read would be divergence."""

        async def read() -> str:
            return os.urandom(8).hex()

        async def count() -> int:
            return int.from_bytes(os.urandom(2))

        async def branch(inner: Run) -> str:
            return await inner.ask(await inner.lookup("inner", read, into=str))

        found = await run.lookup("outer", read, into=str)
        await run.call(ToolCall("send", {"what": found}))
        await run.gather(branch, branch, names=("one", "two"))
        number = await run.ask_user("How many?", into=int, expires=3600)
        return await run.ask(
            f"{found} {number + await run.lookup('last', count, into=int)}"
        )


async def _count(question: str) -> str:
    return "3" if "cannot be" in question else "some"


_FACT = call("store_knowledge", subject="sky", predicate="is", object="blue")


def _remembers() -> KnowledgeBridge | None:
    """A store beside the log of what really happened, for each process of a run anew."""
    path = os.environ.get(WITNESS)
    if path is None:
        return KnowledgeBridge(MemoryKnowledge(shared=True), auto_persist=True)
    store = SQLiteKnowledge(f"{path}.memory", shared=True)
    return KnowledgeBridge(store, auto_persist=True, required=True, timeout=60.0)


PROGRAMS: dict[str, Program] = {
    "react": Program(_named("react"), LOOPS, "blue", tools=(look, send, put)),
    "tiny": Program(_named("tiny"), LOOPS, "blue", tools=(look, send, put)),
    "react-as-tool": Program(_asks_an_engine, OUTER, "blue"),
    "chain-of-thought": Program(
        lambda runtime: ChainOfThoughtEngine(runtime, samples=4, wave=2), _reasons, "blue"
    ),
    "self-ask": Program(
        lambda runtime: SelfAskEngine(runtime, search="seek"), _asks_itself, "blue", tools=(seek, send)
    ),
    "plan-execute": Program(
        lambda runtime: PlanExecuteEngine(runtime, approve_plan=True),
        _plans, "blue", tools=(look, send, fail), approver=_yes, gate=AskAboutPlans(),
    ),
    "reflexion": Program(_learns, _tries, "blue", tools=(look, send)),
    "critic": Program(_named("critic"), _criticises, "blue", tools=(look, send)),
    "thread": Program(_named("thread"), _speaks, "blue", tools=(look, send)),
    "tree-of-thoughts": Program(
        lambda runtime: TreeOfThoughtsEngine(runtime, generate="propose", n_evaluations=2), _searches, "blue"
    ),
    "tree-of-thoughts-depth-first": Program(
        lambda runtime: TreeOfThoughtsEngine(
            runtime, generate="propose", search="depth-first", prune_below=4, max_visits=6
        ),
        _searches, "blue",
    ),
}  # fmt: skip


def instruct(about: InstructionContext) -> str:
    """Instructions that are different each time that they are written."""
    return f"You are {uuid.uuid4()}."


def compare_instructions(request: Request) -> Line:
    """A model that looks whether its instructions stay the same."""
    calls = [made for message in request.conversation for made in message.calls]
    if not calls:
        return call("put", what=request.system)
    said = {str(made.arguments["what"]) for made in calls}
    if len(calls) == 1:
        return call("look", what=request.system)
    return "the same" if said == {request.system} else "others"


class Steps(BaseModel):
    """What the model of a hook answers."""

    number: int


class Watching(Hook):
    """Counts calls in its state, says so, asks a model about a result, and changes it and the answer."""

    name = "watching"

    def before_model(self, at: Moment, asked: ModelQuestion) -> Before:
        """Say which call it is."""
        number = int(str(at.state.get("calls", 0))) + 1
        at.state["calls"] = number
        return Before(messages=(f"call {number}",))

    async def after_tool(self, at: Moment, text: str) -> str:
        """Add what a model and the state say."""
        asked = await at.ask("How many?", Steps)
        return f"{text} {asked.number} {at.state.get('calls')}"

    async def before_answer(self, at: Moment, answer: str) -> str:
        """Add how many calls there were, after a while."""
        await asyncio.sleep(0.001)
        return f"{answer} {at.state.get('calls')}"


def _watched(request: Request) -> Line:
    if said(request) == "How many?":
        return '{"number": 3}'
    calls = sum(len(message.calls) for message in request.conversation)
    return (call("put", what="cup"), call("look", what="sky"), "blue")[calls]


# --- a turn: asked first, rounds with a call that fails, hooks, a review that sends the answer back; and a plan ---

_HOOKS = (
    "assessor", "completion-check", "cost", "loop-detection", "model-selection", "promise", "tool-selection",
)  # fmt: skip


class Noting(Hook):
    """Looks at each stage, counts them, asks a model at one, and objects to an answer once."""

    name = "noting"

    async def stage(self, at: Moment, name: str) -> str | None:
        """Count a stage."""
        at.state[name] = int(str(at.state.get(name, 0))) + 1
        if name == "pre_tool":
            return f"mind {(await at.ask('How many?', Steps)).number}"
        return "Say blue." if name == "pre_output" and at.text != "blue" else None


def _takes_a_turn(request: Request) -> Line:
    text = said(request)
    if text == "How many?":
        return '{"number": 3}'
    if "has to be asked" in text:
        return "Which card?"
    if "Look back" in text:
        quality = 0.9 if "Answer: blue" in text else 0.2
        return f'{{"confidence": 0.9, "quality": {quality}, "issues": ["It is grey."]}}'
    calls = [made for message in request.conversation for made in message.calls]
    if not calls:
        return [call("send", what="card"), call("fail", what="sea")]
    answers = [one for one in request.conversation if one.content == "grey"]
    return "blue" if answers else "grey"


async def _says_which(question: str) -> str:
    return "the old one"


def _plans_a_turn(request: Request) -> Line:
    if "Work on this one step" in said(request):
        return call("look", what="sea")
    if "Plan how" in said(request):
        return '1. look("sky")\n2. put("$1")\n3. find out what the sea is like\njoin()'
    return "blue"


def _turn(runtime: Runtime) -> LoopEngine:
    return runtime.engine("turn", reflect=True, max_rounds=5, hooks=_HOOKS)


# --- the goal cycle: a plan that is rejected, steps that are good, failed, partial, a new plan, a question, a repetition ---


def _remembers_goals() -> KnowledgeBridge | None:
    """A store of its own beside the log of what really happened."""
    path = os.environ.get(WITNESS)
    if path is None:
        return None
    store = SQLiteKnowledge(f"{path}.goals", shared=True)
    return KnowledgeBridge(store, required=True, timeout=60.0, tools=False)


def _cycles(request: Request) -> Line:
    text = said(request)
    roles: dict[str, Callable[[str], dict[str, Any]]] = {
        "Plan how to reach": _plans_a_goal,
        "That plan cannot be used": lambda text: _steps("send", "fail"),
        "Prepare the input": _prepares,
        "A step towards": _evaluates,
        "Decide how": _decides,
        "Shorten this": lambda text: {"compressed": "The card is sent."},
        "The steps towards": lambda text: {"answer": "blue"},
    }
    return next(json.dumps(say(text)) for mark, say in roles.items() if mark in text)


def _steps(*skills: str) -> dict[str, Any]:
    return {"steps": [{"skill": skill, "input_description": skill} for skill in skills]}


def _plans_a_goal(text: str) -> dict[str, Any]:
    return _steps("put") if "[Answer of the user] yes" in text else _steps("fly")


def _prepares(text: str) -> dict[str, Any]:
    skill = text.partition("Its skill: ")[2].partition(":")[0]
    memory = "The card is to be sent. " * 30
    return {"input": {"what": f"{skill} it"}, "working_memory": memory}


def _evaluates(text: str) -> dict[str, Any]:
    score = 4 if "send it sent" in text else 3
    return {"quality": "good", "relevance": score, "usability": score}


def _decides(text: str) -> dict[str, Any]:
    if text.count("put, partial") == 2:
        return {"action": "continue"}
    if "put, partial" in text:
        return {"action": "done", "confidence": "30%", "working_memory": "perhaps"}
    if "look, partial" in text:
        return {"action": "ask_user", "question": "Shall I put it there?"}
    new = _steps("look")["steps"]
    return {"action": "adjust", "confidence": 0.9, "new_plan": new}


async def _agrees(question: str) -> str:
    return "yes"


OTHER_PROGRAMS: dict[str, Program] = {
    "turn": Program(
        _turn, _takes_a_turn, "blue", "Delete the card, and say what is blue.", (send, fail), _yes,
        hooks=(Noting(),), user=_says_which,
    ),
    "turn-plan": Program(
        _named("turn"), _plans_a_turn, "blue", "first look at the sky, then move the cup, and finally send me a note",
        (look, put), gate=AskAboutPlans(), approver=_yes,
    ),
    "goal-cycle": Program(
        lambda runtime: runtime.engine("goal-cycle", compress_every=2),
        _cycles, "blue", tools=(send, fail, look, put), knowledge=_remembers_goals, user=_agrees,
    ),
    "hooked": Program(
        _named("react"), _watched, "blue 3", tools=(put, look), hooks=(Watching(),)
    ),
    "knowing": Program(
        _named("react"), turns(_FACT, call("send", what="card"), "blue"), "blue", tools=(send,), knowledge=_remembers
    ),
    "instructed": Program(
        lambda runtime: runtime.agent("helper", instructions=instruct).engine,
        compare_instructions, "the same", tools=(look, put),
    ),
    "curious": Program(Curious, lambda request: "blue", "blue", tools=(send,), user=_count),
    "impatient": Program(
        Impatient, lambda request: "blue", "too far, 0, 1, 3 blue", tools=(send, put, linger)
    ),
}  # fmt: skip
"""Programs whose times or texts differ, for tests that do not compare these."""
