"""The knowledge of an agent: the runtime's store, one of its own, or none, and the follow-ups that go with it."""

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from .._kernel.session.services import Services
from ..errors import ConfigError
from ..events.followups import PlannedFollowUp
from ..followups.base import FollowUp
from ..followups.registry import ANSWER_GIST, FollowUps, plan_follow_ups
from ..knowledge.base import Knowledge
from ..knowledge.bridge import KnowledgeBridge
from ..toolboxes.knowledge import build_bridge

OwnKnowledge: TypeAlias = Knowledge | KnowledgeBridge | Literal["runtime"] | None
"""A store of knowledge of an agent; `None` for none, "runtime" for that of its runtime."""


def equip_agent(
    runtime: Any,
    agent: str,
    knowledge: Any,
    after: Iterable[FollowUp | str] | None,
) -> tuple[Services, tuple[PlannedFollowUp, ...] | None]:
    """Return the services of a runtime with the knowledge of an agent, and its follow-ups; `None` for the runtime's.

    An agent with knowledge of its own has the follow-ups that the runtime was given, and those that its own knowledge
    adds. Raises `ConfigError` for what is not a store, and for a follow-up that needs a store where there is none.
    """
    services = _choose_knowledge(runtime, knowledge)
    if after is None and services is runtime:
        return services, None
    given = _list_given(runtime) if after is None else after
    return services, plan_follow_ups(runtime.follow_ups, agent, given, services)


def _choose_knowledge(runtime: Services, knowledge: Any) -> Services:
    if isinstance(knowledge, str):
        if knowledge == "runtime":
            return runtime
        raise ConfigError(
            f'knowledge: must be a store, a KnowledgeBridge, "runtime" or None, got {knowledge!r:.80}'
        )
    return runtime.with_knowledge(*build_bridge(knowledge))


def _list_given(runtime: Any) -> list[FollowUp]:
    """Return the follow-ups that a runtime was given, without the one that its knowledge has added."""
    bridge: KnowledgeBridge | None = runtime.knowledge
    known: FollowUps = runtime.follow_ups
    inherited = known.inherit(runtime.after)
    if bridge is None or not bridge.auto_persist:
        return inherited
    return [one for one in inherited if one.name != ANSWER_GIST]
