"""Ask the model which tools a task needs, before the engine begins and anything from outside is read."""

import dataclasses
import functools
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ...errors import AskFailed
from ...events.effect_key import patch_key
from ...events.effects import FactNoted
from ...gates.run_facts import DecidedPlan, PlannedCall
from ...messages import Conversation, Json, Message, is_untrusted
from ...parsing.arguments import describe_tools
from ...providers.base import Sampling
from ..durability.flow_record import PLAN_PURPOSE
from ..session.scope import Scope
from .cycle import Cycle
from .output_type import OutputType
from .reason import settle
from .side_effects import is_patched
from .structured_output import ask_model

PLAN_FIRST = "plan-before-engine"
"""The patch of runs that were asked for a plan."""
PROMPT = """\
Which tools will you have to call for the request above, and how often? Do not begin yet.
Name each tool once for each call that may be needed, in order; calls that turn out not to be needed do no harm, \
others will be refused. Tools:
{tools}"""


class ToolPlan(BaseModel):
    """The tools that a task needs."""

    model_config = ConfigDict(defer_build=True)

    calls: list[str] = Field(description="the names of the tools, one for each call")


async def settle_plan(cycle: Cycle) -> None:
    """Have the model plan, if a gate wants that; a run that was asked before is asked again in its replay."""
    scope, services = cycle.scope, cycle.services
    if scope.path:  # a child has the plan of its root
        return
    recorded = cycle.session.replay.effects.side(patch_key(scope.path, PLAN_FIRST))
    if recorded is None and not _wants_plan(cycle):
        return
    if not is_patched(scope, PLAN_FIRST):
        return
    prompt = PROMPT.format(tools=describe_tools(services.tools.specs))
    trusted = _trusted_part(cycle.conversation).user(prompt)
    settled = functools.partial(settle, cycle)
    wanted = OutputType[Any](ToolPlan, "plan")
    try:
        with scope.enter("ask"):
            reply = await ask_model(
                settled, trusted, wanted, Sampling(), services.provider, PLAN_PURPOSE
            )
        plan = DecidedPlan(tuple(map(PlannedCall, reply.calls)))
    except AskFailed:
        plan = DecidedPlan()
    _note(scope, plan)


def _wants_plan(cycle: Cycle) -> bool:
    """Whether a gate wants a plan and the engine makes none, for a task that a person typed."""
    gates = (guard.gate for guard in cycle.guards)
    if not len(cycle.services.tools) or not any(
        getattr(g, "plans", False) for g in gates
    ):
        return False
    engine, given = cycle.engine, cycle.conversation
    if getattr(engine, "decides_plan", False) and not given.untrusted:
        return False
    return any(one.role == "user" for one in _trusted_part(given).messages)


def _trusted_part(given: Conversation) -> Conversation:
    """Return what people typed in a conversation, without attachments."""
    return Conversation(
        dataclasses.replace(one, attachments=())
        for one in given.messages
        if _is_typed(one)
    )


def _is_typed(message: Message) -> bool:
    is_ours = message.role in ("system", "user")
    return (
        is_ours
        and message.origin in ("caller", "operator")
        and not is_untrusted(message)
    )


def _note(scope: Scope, plan: DecidedPlan) -> None:
    key, session = scope.side_key("plan"), scope.session
    if session.replay.effects.side(key) is None:
        steps: list[Json] = [{"tool": step.tool} for step in plan.steps]
        noted = session.facts[key] = FactNoted(type(plan).__name__, {"steps": steps})
        session.writer.record_after_replay(key, noted)
