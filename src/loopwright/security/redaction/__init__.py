"""Secrets out of what a run is told: registered values, and what has the shape of a secret.

It happens once, on entry, so that engine, model, fingerprint and journal all see the same bytes. `words` judges values
by their names, `shapes` has the patterns, `spellings` knows what other programs make of a registered value, `redactor`
applies them to texts, JSON values and streams.
"""

from .heuristics import REDACTED as REDACTED
from .redactor import Redactor as Redactor
from .redactor import StreamRedactor as StreamRedactor

__all__ = [
    "REDACTED",
    "Redactor",
    "StreamRedactor",
]
