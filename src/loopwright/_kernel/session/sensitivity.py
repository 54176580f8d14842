"""Track how sensitive the texts are that a run has read, and whether any came from outside."""

from collections.abc import Callable

from ..._internal.log import logger
from ...events.effect_key import EffectKey
from ...labels import LABELS, Label, highest
from ...resilience.timeouts import capture
from ...security.redaction.errors import format_traceback
from ..durability.replay import Replay
from .secrets import Secrets
from .services import Services

RANKS = {label: rank for rank, label in enumerate(LABELS)}


class Sensitivity:
    """The highest label of what one run has read, and whether any of it is untrusted."""

    def __init__(
        self, services: Services, run_id: str, replay: Replay, secrets: Secrets
    ) -> None:
        self.label: Label = replay.totals.label
        self.untrusted = replay.totals.is_untrusted
        self.places = replay.totals.places
        self._classifier = services.classifier
        self._run_id, self._secrets = run_id, secrets

    def observe(self, label: Label, untrusted: bool, key: str = "") -> None:
        """Note that the run has read something with that label, from outside or not, at a key or everywhere."""
        self.places.note(key, label, untrusted)
        if RANKS[label] > RANKS[self.label]:
            self.label = label
        self.untrusted |= untrusted

    def lower(self, label: object, *, trusted: bool) -> Label:
        """Lower the run's label to `label`, if it is a lower one; return the label that holds now.

        With `trusted`, what the run has read so far counts as trusted.
        """
        if label in LABELS[: RANKS[self.label]]:
            self.label = LABELS[LABELS.index(label)]
        self.untrusted &= not trusted
        self.places.lower(self.label, trusted=trusted)
        return self.label

    def at(self, key: str) -> tuple[Label, bool]:
        """Return the label at a key, and whether what was read there came from outside.

        Of a branch that is what it read, and what was read before it, whatever others read meanwhile.
        """
        path = EffectKey.parse(key).path
        return self.places.at(path) if path else (self.label, self.untrusted)

    def classify(
        self, text: str | Callable[[], str], minimum: Label = "public"
    ) -> Label:
        """Return how sensitive a text is, at least `minimum`, which it is without a classifier.

        A text that is expensive to build is given as a function, called only if a
        classifier needs it. A text is secret if the classifier fails on it.
        """
        classifier = self._classifier
        if classifier is None:
            return minimum
        found = capture(
            lambda: LABELS[
                LABELS.index(classifier.label(text() if callable(text) else text))
            ]
        )
        if found.error is not None:
            logger().warning(
                "classifier_failed",
                run_id=self._run_id,
                traceback=format_traceback(self._secrets.redactor, found.error),
            )
            return "secret"
        label: Label = found.value
        return highest((minimum, label))
