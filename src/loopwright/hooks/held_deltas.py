"""Hold back what models stream until the hooks that may change it have spoken."""

from collections.abc import Callable, Collection, Sequence

from ..messages import Completion
from ..providers.base import Delta


class HeldDeltas:
    """The deltas of replies that watchers do not see yet, by the key of the reply."""

    def __init__(self, show: Callable[[Delta], None]) -> None:
        self._show_one = show
        self._held: dict[str, list[Delta]] = {}
        self._answers: dict[str, str] = {}
        """The texts of held replies that may be the answer, by their keys."""

    def hold(self, key: str) -> None:
        """Hold the deltas of a reply back."""
        self._held[key] = []

    def find_watcher(self, key: str) -> Callable[[Delta], None]:
        """Return what is called with the deltas of a reply."""
        held = self._held.get(key)
        return self._show_one if held is None else held.append

    def speak(
        self, key: str, completion: Completion, is_changed: bool, is_answer: bool
    ) -> None:
        """Show a reply as hooks left it; one that may be the answer once that is given."""
        if key not in self._held:
            return
        if is_changed:
            self._held[key] = _replace(self._held[key], completion)
        if is_answer:
            self._answers[key] = completion.answer or ""
        else:
            self._show(self._held.pop(key))

    def answer(self, before: Collection[str], answer: str) -> None:
        """Show all that is held, with the answer of the run as hooks left it in place of these texts."""
        changed = Completion(answer, answer=answer)
        for key, text in self._answers.items():
            if text in before and text != answer and key in self._held:
                self._held[key] = _replace(self._held[key], changed)
        for held in self._held.values():
            self._show(held)
        self._held.clear()
        self._answers.clear()

    def _show(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            self._show_one(delta)


def _replace(deltas: Sequence[Delta], completion: Completion) -> list[Delta]:
    """Return one delta with a changed reply in place of those of the model."""
    if not deltas:
        return []
    last = deltas[-1]
    text = completion.answer if completion.answer is not None else completion.thought
    return [Delta(text, "", None, completion, last.key, last.attempt, last.agent)]
