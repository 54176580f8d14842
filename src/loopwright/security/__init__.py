"""Security: redaction of secrets, classification of texts, spotlighting of third-party text, signed
permits.
"""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .classifier import PatternClassifier as PatternClassifier
    from .redaction import REDACTED as REDACTED
    from .redaction import Redactor as Redactor
    from .redaction import StreamRedactor as StreamRedactor
    from .signed_permits import CapabilitySigner as CapabilitySigner
    from .signed_permits import CapabilityVerifier as CapabilityVerifier
    from .signed_permits import MemoryNonces as MemoryNonces
    from .signed_permits import NonceStore as NonceStore
    from .signed_permits import SQLiteNonces as SQLiteNonces
    from .spotlighting import spotlight as spotlight
    from .spotlighting import strip_control_characters as strip_control_characters

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".classifier": ("PatternClassifier",),
            ".redaction": ("REDACTED", "Redactor", "StreamRedactor"),
            ".signed_permits": (
                "CapabilitySigner",
                "CapabilityVerifier",
                "MemoryNonces",
                "NonceStore",
                "SQLiteNonces",
            ),
            ".spotlighting": ("strip_control_characters", "spotlight"),
        },
    )
