"""`PatternClassifier`, which says how sensitive a text is."""

from ...labels import Label
from ..redaction import Redactor
from .identifiers import has_personal_number
from .personal_data import (
    has_email_address,
    is_confidential,
    is_personal,
    states_secret,
)


class PatternClassifier:
    """A `Classifier` that recognises "secret", "sensitive" and "normal" by patterns.

    "secret" is what gives access: keys, tokens, passwords, private keys, as `Redactor` finds them,
    and passwords that stand in a sentence or a table. "sensitive" is personal or confidential:
    e-mail addresses of persons, telephone numbers, cards, accounts, national numbers, dates of
    birth, findings about patients, and texts that call themselves confidential. All else is
    "normal". It never says "public", since a text cannot vouch for itself.

    Names, postal addresses and what only a reader would understand are not recognised. Time is
    linear in the text.

    Args:
        redactor: finds secrets; one with the application's registered values finds those too.
    """

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()

    def __repr__(self) -> str:
        return f"PatternClassifier({self._redactor!r})"

    def label(self, text: str) -> Label:
        """Return the label of a text; a redacted secret in it does not count."""
        if self._redactor.redact_text(text) is not text:
            return "secret"
        lowered = text.lower()
        if len(lowered) != len(text):
            text = lowered  # some letters become two, so that positions would differ
        if states_secret(text, lowered):
            return "secret"
        return "sensitive" if _is_sensitive(text, lowered) else "normal"


def _is_sensitive(text: str, lowered: str) -> bool:
    if has_email_address(text) or has_personal_number(text):
        return True
    return is_personal(text, lowered) or is_confidential(text, lowered)
