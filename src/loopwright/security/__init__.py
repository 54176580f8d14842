"""Secrets, labels and text from outside."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazily

if TYPE_CHECKING:
    from .classifier import PatternClassifier as PatternClassifier
    from .redaction import MARK as MARK
    from .redaction import Redactor as Redactor
    from .redaction import StreamRedactor as StreamRedactor
    from .signed_permits import CapabilitySigner as CapabilitySigner
    from .signed_permits import CapabilityVerifier as CapabilityVerifier
    from .signed_permits import MemoryNonces as MemoryNonces
    from .signed_permits import NonceStore as NonceStore
    from .signed_permits import SQLiteNonces as SQLiteNonces
    from .spotlighting import cleaned as cleaned
    from .spotlighting import shown as shown

__all__ = [
    "MARK",
    "CapabilitySigner",
    "CapabilityVerifier",
    "MemoryNonces",
    "NonceStore",
    "PatternClassifier",
    "Redactor",
    "SQLiteNonces",
    "StreamRedactor",
    "cleaned",
    "shown",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "CapabilitySigner": ".signed_permits",
            "CapabilityVerifier": ".signed_permits",
            "MARK": ".redaction",
            "MemoryNonces": ".signed_permits",
            "NonceStore": ".signed_permits",
            "PatternClassifier": ".classifier",
            "Redactor": ".redaction",
            "SQLiteNonces": ".signed_permits",
            "StreamRedactor": ".redaction",
            "cleaned": ".spotlighting",
            "shown": ".spotlighting",
        },
    )
