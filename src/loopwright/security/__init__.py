"""Secrets, labels and text from outside."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

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

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".classifier": ("PatternClassifier",),
            ".redaction": ("MARK", "Redactor", "StreamRedactor"),
            ".signed_permits": (
                "CapabilitySigner",
                "CapabilityVerifier",
                "MemoryNonces",
                "NonceStore",
                "SQLiteNonces",
            ),
            ".spotlighting": ("cleaned", "shown"),
        },
    )
