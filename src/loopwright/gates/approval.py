"""The approval gate: asks a person about the calls that it is configured for, and allows the rest."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import get_args

from ..errors import ConfigError
from ..labels import LABELS, Label, is_at_least
from ..messages import Effect, Json, canonical_json
from .base import RESPOND, Action, Allow, Ask, Decision, InstantGate, PolicyState

EFFECTS: tuple[Effect, ...] = get_args(Effect)
MAX_LINE = 200
"""Characters of a call's arguments on one line; longer ones are folded, an argument a line at least."""
FOLD = 100
"""Characters of a line of a folded argument."""


class ApprovalGate(InstantGate):
    """Asks about a call if any of these matches, and allows it otherwise.

    The question shows the exact arguments; the runtime's `approver` answers it, and an approval
    does not overrule another gate. Combine it with others by `AllOf`.

    Args:
        tools: names of tools, with `*` and `?`, or one text with commas between them.
        effects: effects that are asked about.
        label: ask about each call, except reads that are not outbound, of a run that has read
            anything as sensitive as this.
        untrusted: ask about each such call of a run that has read text from outside.
        answers: whether to ask about the answer of a run, too.

    Raises `ConfigError` for an unknown effect or label.
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
        """Ask about a call that matches, allow any other."""
        return Ask(format_question(action)) if self._asks(action, state) else Allow()

    def _asks(self, action: Action, state: PolicyState) -> bool:
        if action.tool == RESPOND:
            return self.answers
        if action.effect in self._effects:
            return True
        if any(fnmatchcase(action.tool, name) for name in self._tools):
            return True
        is_harmless = action.effect == "read" and not action.outbound
        return not is_harmless and self._asks_by_knowledge(state)

    def _asks_by_knowledge(self, state: PolicyState) -> bool:
        if self._untrusted and state.untrusted:
            return True
        return self._label is not None and is_at_least(state.label, self._label)


def format_question(action: Action) -> str:
    """Return the question about a call, with all its arguments in full, in their canonical form.

    Long arguments are folded: one begins a line, and its lines after the first are indented by four
    spaces, to be read without them and the line breaks.
    """
    arguments = canonical_json(dict(action.arguments)).decode()
    if len(arguments) > MAX_LINE:
        named = sorted(action.arguments.items())
        arguments = "".join(_fold(name, value) for name, value in named) + "\n"
    labels = f" [{', '.join(sorted(action.labels))}]" if action.labels else ""
    return f"{action.tool}({arguments}) is {action.effect}{labels}: run it?"


def _fold(name: str, value: Json) -> str:
    """Return an argument on lines of their own, nothing of it left out."""
    text = f"{canonical_json(name).decode()}: {canonical_json(value).decode()}"
    lines = [text[start : start + FOLD] for start in range(0, len(text), FOLD)]
    return "\n  " + "\n    ".join(lines)
