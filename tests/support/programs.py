"""Runs that use all that an engine can do, each with a model that is a function of the request, for crash tests."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopwright import (
    ChainOfThoughtEngine,
    Completion,
    LoopEngine,
    ReActEngine,
    Request,
    Runtime,
    SelfAskEngine,
    Tool,
    ToolContext,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.messages import ToolCall
from loopwright.policy import Approver
from loopwright.testing import ScriptedProvider, call

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


def log(line: str) -> None:
    """Write a line that survives the process; nothing where no log is asked for."""
    path = os.environ.get("KILLED_LOG")
    if path is None:
        return
    with Path(path).open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


@tool(effect="read")
async def look(ctx: ToolContext[None], what: str) -> str:
    """Look."""
    log(f"tool {ctx.key} {ctx.idempotency_key}")
    return f"{what} is blue"


@tool(effect="idempotent")
def put(ctx: ToolContext[None], what: str) -> str:
    """Put."""
    log(f"tool {ctx.key} {ctx.idempotency_key}")
    return f"{what} put"


@tool(effect="write")
async def send(ctx: ToolContext[None], what: str) -> str:
    """Send."""
    log(f"tool {ctx.key} {ctx.idempotency_key}")
    return f"{what} sent"


def turns(*lines: Line) -> Callable[[Request], Line]:
    """A model that says these lines, one a turn of the conversation."""

    def model(request: Request) -> Line:
        return lines[sum(message.role == "assistant" for message in request.conversation.messages)]

    return model


def _named(name: str) -> Callable[[Runtime], LoopEngine]:
    return lambda runtime: runtime.engine(name)


def logged(model: Callable[[Request], Line]) -> ScriptedProvider:
    """A provider that asks a model and writes down that it did."""

    def answer(request: Request) -> Line:
        log(f"model {len(request.conversation)}")
        return model(request)

    return ScriptedProvider(answer)


def said(request: Request) -> str:
    """The last thing that the model was told."""
    return request.conversation.messages[-1].content


# --- ReAct, a stranger's loop, and ReAct that hands over and has an engine among its tools ---

LOOPS = turns(
    [call("look", what="sky"), call("send", what="card"), call("put", what="cup")], [call("send", what="end")], "blue"
)


def _asks_an_engine(runtime: Runtime) -> LoopEngine:
    reasons = ChainOfThoughtEngine(Runtime(logged(_reasons)))
    inner = ReActEngine(Runtime(logged(LOOPS), tools=[look, send, put])).as_tool(name="ask", description="Ask.")
    outer = Runtime(runtime.provider, tools=[look, inner], journal=runtime.journal)
    return ReActEngine(outer, max_iterations=2, fallback=reasons)


OUTER = turns([call("ask", task="a"), call("look", what="sky"), call("ask", task="b")], call("look", what="sea"))


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
    log(f"tool {ctx.key} {ctx.idempotency_key}")
    return "" if what == "nothing" else f"{what} is blue"


def _asks_itself(request: Request) -> Line:
    return "It is blue too." if "yourself" in said(request) else FOLLOW_UPS(request)


# --- Tree of Thoughts: by levels and depth first, with thoughts proposed together ---


def _searches(request: Request) -> Line:
    text = said(request)
    if "THOUGHT:" in text:
        depth = text.count("step")
        return f"THOUGHT: step {depth} grey\nTHOUGHT: step {depth} sky" + ("\nANSWER: blue" if depth == 2 else "")
    return f"Score: {9 if 'sky' in text.rsplit('step', 1)[-1] else 3}"


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
