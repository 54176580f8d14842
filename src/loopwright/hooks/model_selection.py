"""Hook: choose the model of a call by the task: a light one for what is simple, a heavy one for what is not."""

from typing import Literal, TypeAlias

from .._internal import dataclasses
from ..parsing.task_signals import TaskSignals, read_signals
from .base import Before, Hook, ModelQuestion, Moment

MAX_SHORT = 12
"""Words of a task that a light model can do, unless it is work of some kind."""
Mode: TypeAlias = Literal["enforce", "suggest", "defer"]


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which of two models suits a task, and how sure that is (0 to 1)."""

    is_heavy: bool
    confidence: float


class ModelSelection(Hook):
    """Chooses one of `Runtime(providers=...)` for each call that reasons or plans.

    From `enforce` on its choice replaces any other; from `suggest` on only the run's own model; below that it leaves the
    call alone. A provider that the gates do not allow is never chosen: they are asked about a read named `model:NAME`.

    Args:
        light: the name of the provider for simple tasks; `None` for none.
        heavy: the name of the provider for large ones; `None` for none.
        enforce: confidence from which on a choice replaces that of an engine or of a hook before.
        suggest: confidence from which on it replaces the run's own model.
        own: the name of the run's own model, where it is one of `providers`, such as "medium".
    """

    name = "model-selection"
    version = "1"
    priority = 30

    def __init__(
        self,
        light: str | None = None,
        heavy: str | None = None,
        enforce: float = 0.85,
        suggest: float = 0.65,
        own: str = "",
    ) -> None:
        if not 0 <= suggest <= enforce <= 1:
            raise ValueError(
                f"enforce, suggest: must be 0 <= suggest <= enforce <= 1, got {enforce}, {suggest}"
            )
        self.light, self.heavy = light, heavy
        self.enforce, self.suggest, self.own = enforce, suggest, own

    async def before_model(self, at: Moment, asked: ModelQuestion) -> Before | None:
        """Choose a provider, if it is sure enough and policy allows it; record what it decided."""
        choice = choose_model(read_signals(asked.conversation.task))
        name = self.heavy if choice.is_heavy else self.light
        mode, is_own = self._find_mode(choice), asked.provider in ("", self.own)
        may_choose = mode == "enforce" or (mode == "suggest" and is_own)
        if name is None or name == asked.provider or not may_choose:
            self._record(at, "defer", choice, None)
            return None
        if not await at.permits(f"model:{name}", provider=name):
            self._record(at, "defer", choice, name)
            return None
        self._record(at, mode, choice, name)
        return Before(provider=name)

    def _find_mode(self, choice: Choice) -> Mode:
        if choice.confidence >= self.enforce:
            return "enforce"
        return "suggest" if choice.confidence >= self.suggest else "defer"

    def _record(self, at: Moment, mode: Mode, choice: Choice, name: str | None) -> None:
        at.state.update(mode=mode, confidence=choice.confidence, provider=name)


def choose_model(found: TaskSignals) -> Choice:
    """Return which model suits a task with these signals."""
    busy = sum(count >= 2 for count in found.kinds.values())
    weight = 2 * found.is_complex + found.is_multi_step + busy + (found.words > 60)
    if weight == 0:
        is_short = found.words <= MAX_SHORT
        if not is_short:
            return Choice(False, 0.6)
        return Choice(False, 0.7 if found.kinds else 0.95)
    return Choice(True, round(min(0.95, 0.5 + 0.15 * weight), 2))
