"""The approval gate: asks a person about the calls that it is told to, and leaves the rest alone."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import get_args

from ..errors import ConfigError
from ..labels import LABELS, Label, at_least
from ..messages import Effect, canonical_json
from .base import RESPOND, Action, Allow, Ask, Decision, InstantGate, PolicyState

EFFECTS: tuple[Effect, ...] = get_args(Effect)
SHOWN = 2_000
"""Characters of a call's arguments that a person is shown; more are counted, and the call says that there are more."""


class ApprovalGate(InstantGate):
    """Asks about a call if any of these fits, and allows it otherwise.

    The question shows the exact arguments; who answers it is the runtime's `approver`, and no gate beside this one is
    overruled by that. Put it beside others with `AllOf`.

    Args:
        tools: names of tools, with `*` and `?`, or one text with commas between them.
        effects: effects that are asked about.
        label: what a run that has read anything as sensitive as this does is asked about, unless it only reads.
        untrusted: so is what a run does that has read words from outside.
        answers: whether the answer of a run is asked about, too.

    Raises `ConfigError` for a word that there is not.
    """

    def __init__(
        self,
        tools: Iterable[str] | str = (),
        *,
        effects: Iterable[Effect] = ("destructive",),
        label: Label | None = None,
        untrusted: bool = False,
        answers: bool = False,
    ) -> None:
        named = tools.split(",") if isinstance(tools, str) else list(tools)
        self._tools = tuple(name.strip() for name in named if name.strip())
        self._effects = tuple(effects)
        self._label: Label | None = label
        self._untrusted, self.answers = untrusted, answers
        for effect in self._effects:
            if effect not in EFFECTS:
                raise ConfigError(
                    f"effects: must be among {', '.join(EFFECTS)}, got {effect!r}"
                )
        if label is not None and label not in LABELS:
            raise ConfigError(
                f"label: must be one of {', '.join(LABELS)}, got {label!r}"
            )
        setting = [
            sorted(self._tools),
            sorted(self._effects),
            label,
            untrusted,
            answers,
        ]
        self.version = f"approval-1:{canonical_json(setting).decode()}"

    def decide(self, action: Action, state: PolicyState) -> Decision:
        """Ask about what fits, allow the rest."""
        return Ask(question_of(action)) if self._fits(action, state) else Allow()

    def _fits(self, action: Action, state: PolicyState) -> bool:
        if action.tool == RESPOND:
            return self.answers
        if action.effect in self._effects or any(
            fnmatchcase(action.tool, name) for name in self._tools
        ):
            return True
        knows = self._label is not None and at_least(state.label, self._label)
        return action.effect != "read" and (
            knows or (self._untrusted and state.untrusted)
        )


def question_of(action: Action) -> str:
    """A call as a person is asked about it, with its arguments in their canonical form."""
    told = canonical_json(dict(action.arguments)).decode()
    shown = (
        told
        if len(told) <= SHOWN
        else f"{told[:SHOWN]}… [{len(told) - SHOWN} more characters]"
    )
    marks = f" [{', '.join(sorted(action.labels))}]" if action.labels else ""
    return f"{action.tool}({shown}) is {action.effect}{marks}: run it?"
