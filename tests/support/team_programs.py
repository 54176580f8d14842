"""Runs of agents at work together, for crash tests: a team, and a boss with the tools that give work to agents."""

from loopwright import AllowAll, LoopEngine, Request, Runtime
from loopwright.agents import AgentsToolbox
from loopwright.engines import ChainEngine, TeamEngine
from loopwright.messages import ToolCall
from loopwright.testing import call
from programs import Line, Program, look, put, said, send

PLAN = '[{"agent": "one", "task": "Look."}, {"agent": "two", "task": "Send."}]'


def team_program(name: str) -> Program:
    """The program of that name, for another process to make it again."""
    return {"team": TEAM, "toolbox": TOOLBOX}[name]


def _make_team(runtime: Runtime) -> LoopEngine:
    runtime.agent("one", tools=[look, put])
    runtime.agent("two", engine=ChainEngine(runtime, steps=("sender",)))
    runtime.agent("sender", tools=[send])
    return TeamEngine(runtime, agents=("one", "two"), share="equal")


def _make_boss(runtime: Runtime) -> LoopEngine:
    runtime.agent("one", tools=[look, put])
    runtime.agent("sender", tools=[send])
    boss = runtime.agent("boss", tools=[AgentsToolbox(runtime, ["one", "sender"])])
    return boss.engine


def _work(request: Request, task: str) -> Line:
    """Call the tool of a task once, then answer."""
    if any(message.calls for message in request.conversation):
        return "blue"
    names = {"Look.": "look", "Put.": "put", "Send.": "send"}
    return call(names[task], what="sky")


def _lead_team(request: Request) -> Line:
    asked = said(request)
    if asked.startswith("Split the task"):
        return f'{{"value": {PLAN}}}'
    if "results of its parts" in asked:
        return "blue" if asked.count("blue") == 2 else "pale"
    for message in request.conversation:
        if "this is your part of it" in message.content:
            return _work(request, message.content.rpartition("\n")[2])
    return "blue"


def _lead_boss(request: Request) -> Line:
    first = request.conversation.messages[0].content
    if first in ("Look.", "Put.", "Send."):
        return _work(request, first)
    if first == "Which colour?":
        return "blue"
    turns = sum(message.role == "assistant" for message in request.conversation)
    lines: list[Line] = [
        [_delegate("one", "Look."), _delegate("sender", "Send.")],
        call("ask_agent", agent="one", question="Which colour?"),
        "blue",
    ]
    return lines[turns]


def _delegate(agent: str, task: str) -> ToolCall:
    return call("delegate", agent=agent, task=task)


TEAM = Program(_make_team, _lead_team, "blue", tools=(look, put, send), gate=AllowAll())
TOOLBOX = Program(_make_boss, _lead_boss, "blue", tools=(look, put, send), gate=AllowAll())  # fmt: skip
