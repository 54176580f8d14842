"""`PatternClassifier`, which says how sensitive a text is."""

from ...labels import Label
from ..redaction import Redactor
from .identifiers import has_number
from .personal_data import has_address, is_confidential, is_personal, tells_secret


class PatternClassifier:
    """A `Classifier` that knows "secret", "sensitive" and "normal" by patterns.

    "secret" is what gives access: keys, tokens, passwords, private keys, as `Redactor` finds them, and passwords that
    are told in words or in a table. "sensitive" is what is somebody's own affair: e-mail addresses of persons,
    telephone numbers, cards, accounts, national numbers, dates of birth, findings about patients, and what calls itself
    confidential. All else is "normal". It never says "public", since a text cannot vouch for itself.

    Names, postal addresses and what only a reader would understand are not recognised. Time is linear in the text.

    Args:
        redactor: finds secrets; one with the application's own registered values finds those too.
    """

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()

    def __repr__(self) -> str:
        return f"PatternClassifier({self._redactor!r})"

    def label(self, text: str) -> Label:
        """The label of a text; what is redacted in it is no secret any more."""
        if self._redactor.redact_text(text) is not text:
            return "secret"
        lowered = text.lower()
        if len(lowered) != len(
            text
        ):  # some letters become two: then places are not the same
            text = lowered
        if tells_secret(text, lowered):
            return "secret"
        personal = has_address(text) or has_number(text) or is_personal(text, lowered)
        return "sensitive" if personal or is_confidential(text, lowered) else "normal"
