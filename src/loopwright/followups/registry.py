"""FollowUps: the follow-ups of a runtime and of its agents by name."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from .._internal.regex import compile_late
from .._kernel.session.services import Services
from ..errors import ConfigError
from ..events.followups import FOLLOW_UP, OWN_KNOWLEDGE, PlannedFollowUp
from ..journals.base import RunInfo
from ..journals.capabilities import FollowUpJournal
from ..plugins import plugin, plugins
from ..security.redaction import Redactor
from .base import FollowUp

NAME = compile_late(r"[a-z][a-z0-9-]{0,39}")

ANSWER_GIST = "answer-gist"
"""What `KnowledgeBridge(auto_persist=True)` adds; by name, since most processes need none of its modules."""


class FollowUps:
    """The follow-ups of a runtime, by the agent whose runs they follow (empty for the runtime's own) and their name.

    Args:
        agents: the agents of the runtime by name.
    """

    def __init__(self, agents: Mapping[str, Any]) -> None:
        self._agents = agents
        self._known: dict[tuple[str, str], FollowUp] = {}

    def add(
        self,
        agent: str,
        given: object,
        redactor: Redactor,
        more: Iterable[FollowUp] = (),
    ) -> tuple[PlannedFollowUp, ...]:
        """Add follow-ups or their names, and `more`; return what a run records of them. Raises `ConfigError`."""
        if isinstance(given, (str, FollowUp)) or not isinstance(given, Iterable):
            raise ConfigError(f"after: must be a list of follow-ups, got {given!r:.80}")
        found = [_resolve(one) for one in cast("Iterable[object]", given)]
        found += more
        names = [one.name for one in found]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ConfigError(
                f"after: has {', '.join(sorted(twice))} twice; one follow-up of a name is done once a run"
            )
        self._known |= {(agent, one.name): one for one in found}
        return tuple(one.plan(redactor) for one in found)

    def check_store(self, agent: str, planned: Iterable[PlannedFollowUp]) -> None:
        """Raise `ConfigError` for a follow-up that needs a store of knowledge, where there is none."""
        for one in planned:
            if self._known[agent, one.name].needs_knowledge:
                raise ConfigError(
                    f"after: {one.name!r} needs a store, got knowledge=None; pass "
                    + (
                        "knowledge=, or after=() for none"
                        if agent
                        else "Runtime(knowledge=...)"
                    )
                )

    def inherit(self, planned: Iterable[PlannedFollowUp]) -> list[FollowUp]:
        """Return the follow-ups that the runtime has planned for its runs."""
        return [self._known["", one.name] for one in planned]

    def find_agent(self, options: Mapping[str, Any]) -> Services | None:
        """Return the services of the agent whose run is followed; `None` without an agent, or where it is not known.

        Raises `ConfigError` for an unknown one that had knowledge of its own: another store would get what it is to know.
        """
        agent = self._agents.get(str(options["agent"]))
        if agent is None and OWN_KNOWLEDGE in options:
            raise ConfigError(
                f"agent {options['agent']!r} has knowledge of its own, and is not defined here; define it with "
                f"runtime.agent({options['agent']!r}, knowledge=...)"
            )
        return None if agent is None else agent.engine.runtime

    def find(self, options: Mapping[str, Any]) -> FollowUp:
        """Return the follow-up of a run by what that records: options from there, code from here.

        Raises `ConfigError` if it is neither among these nor installed.
        """
        name = str(options["follow_up"])
        known = self._find_known(str(options["agent"]), name)
        if known is None and options["opaque"]:
            raise ConfigError(
                f"after: follow-up {name!r} has options that no journal holds, {', '.join(options['opaque'])}; "
                "pass it in Runtime(after=...) again"
            )
        recorded: dict[str, Any] = dict(options["options"])
        if known is not None and options["opaque"]:
            return known
        return (
            load_follow_up_class(name)(**recorded)
            if known is None
            else type(known)(**recorded)
        )

    def can_do(self, info: RunInfo) -> bool:
        """Return whether a run can be resumed as far as its follow-up is concerned; any other run can."""
        if info.engine != FOLLOW_UP:
            return True
        if not info.options:  # its journal lacks the key, as resuming it says
            return True
        options = json.loads(info.options)
        if OWN_KNOWLEDGE in options and options["agent"] not in self._agents:
            return False
        is_known = self._find_known(options["agent"], options["follow_up"]) is not None
        return is_known or (
            not options["opaque"] and options["follow_up"] in plugins("followups")
        )

    def _find_known(self, agent: str, name: str) -> FollowUp | None:
        return self._known.get((agent, name)) or self._known.get(("", name))


def plan_follow_ups(
    known: FollowUps, agent: str, given: object, services: Services
) -> tuple[PlannedFollowUp, ...]:
    """Add follow-ups of an agent, or of all runs; raise `ConfigError` if they lack a journal or a store that they need."""
    bridge, own = services.knowledge, list[FollowUp]()
    if bridge is not None and bridge.auto_persist:
        own.append(load_follow_up_class(ANSWER_GIST)())
    planned = known.add(agent, given, services.redactor, own)
    journal: object = services.journal
    if planned and not isinstance(journal, FollowUpJournal):
        raise ConfigError(
            f"after: {type(journal).__name__} has no method `append_end`, which stores follow-ups with the end of a run; "
            "leave follow-ups and auto_persist out, or use a journal that has it, such as SQLiteJournal"
        )
    if bridge is None:
        known.check_store(agent, planned)
    return planned


def _resolve(given: object) -> FollowUp:
    """Return a follow-up that was given, or that of an installed name; raise `ConfigError` for anything else."""
    found = load_follow_up_class(given)() if isinstance(given, str) else given
    if not isinstance(found, FollowUp):
        raise ConfigError(
            f"after: needs a FollowUp or the name of one, got {given!r:.80}"
        )
    if not NAME.fullmatch(found.name):
        raise ConfigError(
            f"after: the name of a follow-up must be lower-case letters, digits and '-', at most 40, got {found.name!r}"
        )
    return found


def load_follow_up_class(name: str) -> type[FollowUp]:
    """Return the class of an installed follow-up; raise `ConfigError` if it is unknown, broken or something else."""
    found = plugin("followups", name)
    loaded = found.load()
    if not (isinstance(loaded, type) and issubclass(loaded, FollowUp)):
        raise ConfigError(
            f"plug-in {name!r} of {found.distribution}: {found.target} is not a subclass of FollowUp"
        )
    return loaded
