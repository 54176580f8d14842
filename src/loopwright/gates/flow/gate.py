"""The information flow gate: calls that the caller planned or typed run, to places that no outsider chose."""

from collections.abc import Iterable, Mapping

from ...errors import ConfigError
from ...messages import canonical_json
from ..approval import format_question
from ..base import Action, Allow, Ask, Decision, InstantGate, PolicyState


class FlowGate(InstantGate):
    """Allows what the caller wanted, and asks about what a text from outside may have put into the model.

    - A read that is not outbound is free.
    - A call of the plan (its tool, at most as often) runs if each of its destinations is trusted: typed
      by the caller, or standing whole in a directory or an address field of a result. One that names no
      destination may not carry a phrase out of a longer text from outside: what it writes is all that it does.
    - A further call of a tool that the plan has, unless it destroys, runs if all of its arguments are trusted.
    - Any other call runs only if every one of its arguments was typed by the caller.
    - It asks about everything else; without an approver that denies.

    The plan is one that was decided before the run read text from outside: that of Plan-and-Execute, or
    what the model plans when it is asked before the run begins. A plan that was changed since then permits
    nothing more. Tools say by `outbound`, `destinations`, `content`, `directory` and `addresses` what they
    do with data.

    It does not stop a choice among the caller's own values, a wrong amount or text that goes to a right
    destination, or an address field that outsiders fill.

    Args:
        plan: `True` asks the model of the run once, before its engine begins, which tools the task needs;
            it reads the trusted messages alone. Names of tools, each as often as it may be called, are a
            plan that is fixed for all runs. Without any, Plan-and-Execute's own plan counts alone.

    Raises `ConfigError` for a plan that is neither.
    """

    def __init__(self, *, plan: bool | Iterable[str] = False) -> None:
        self.plans = plan is True
        """Whether the run is to ask its model for a plan before its engine begins."""
        self._plan = None if isinstance(plan, bool) else _list_tools(plan)
        setting = canonical_json(self.plans if self._plan is None else [*self._plan])
        self.version = f"flow-2:{setting.decode()}"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Allow a call that cannot be the work of a text from outside, ask about any other."""
        if _is_free(action, state):
            return Allow()
        if self._is_planned(action, state):
            stray = find_untrusted(action, action.destinations)
            copied = [] if stray else action.copied
            if not stray and not copied:
                return Allow()
            reason = f"no trusted source names {_quote(stray)}"
            if copied:
                reason = (
                    f"it says nothing but {_quote(copied)} out of a text from outside"
                )
        elif is_typed(action) or self._is_repeated(action, state):
            return Allow()
        else:
            reason = (
                "no plan that was made before the run read text from outside has it"
            )
        return Ask(f"{format_question(action)} ({reason})")

    def _is_repeated(self, action: Action, state: PolicyState) -> bool:
        """Whether a call does what the plan has once more, with nothing in it that an outsider could write."""
        plan = state.plan if self._plan is None else self._plan
        if action.effect == "destructive" or action.tool not in (plan or ()):
            return False
        provenance = action.provenance
        return provenance.says_something and not find_untrusted(action, provenance)

    def _is_planned(self, action: Action, state: PolicyState) -> bool:
        if self._plan is None:
            return state.is_planned(action.tool)
        planned = self._plan.count(action.tool)
        used = state.facts().count_allowed(action.tool, state.key) if planned else 0
        return used < planned


def _is_free(action: Action, state: PolicyState) -> bool:
    """Whether a call needs no licence: it only reads, a person ordered it, or what it does is gated itself."""
    if state.author == "operator":
        return True
    if action.outbound:
        return False
    return action.effect == "read" or action.source == "engine"


def find_untrusted(action: Action, names: Iterable[str]) -> list[str]:
    """Return those of some arguments that are not trusted."""
    kinds = {name: action.provenance.kind_of(name) for name in names}
    return [name for name, kind in kinds.items() if kind in ("text", "derived")]


def is_typed(action: Action) -> bool:
    """Return whether the caller typed every argument of a call that has any."""
    provenance = action.provenance
    return provenance.says_something and all(
        provenance.kind_of(name) == "caller" for name in provenance
    )


def _quote(names: Iterable[str]) -> str:
    return ", ".join(names)


def _list_tools(plan: object) -> tuple[str, ...]:
    is_list = isinstance(plan, Iterable) and not isinstance(plan, (str, Mapping))
    tools: tuple[object, ...] = tuple(plan) if is_list else ()  # type: ignore[arg-type]
    names = tuple(name for name in tools if isinstance(name, str))
    if not is_list or len(names) < len(tools):
        raise ConfigError(
            f"plan: must be True, False or names of tools, got {plan!r:.80}"
        )
    return names
