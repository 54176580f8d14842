"""Removal of secrets from what enters a run: registered values, and texts that look like secrets.

It happens once, on entry, so that engine, model, fingerprint and journal all see the same bytes.
`heuristics` judges values by their names, `patterns` has the forms of secrets, `prefilter` chooses
the patterns to try, `known_values` and `encodings` find registered values, `redactor` applies them
to texts and JSON values, `stream` to streams. `messages` and `errors` redact what a run handles.
"""

from .heuristics import REDACTED as REDACTED
from .redactor import Redactor as Redactor
from .stream import StreamRedactor as StreamRedactor

__all__ = [
    "REDACTED",
    "Redactor",
    "StreamRedactor",
]
