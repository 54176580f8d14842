"""Security: redaction of secrets, classification of texts, spotlighting of third-party text, signed
permits.
"""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .aes_codec import AESCodec as AESCodec
    from .classifier import PatternClassifier as PatternClassifier
    from .redaction import REDACTED as REDACTED
    from .redaction import Redactor as Redactor
    from .redaction import StreamRedactor as StreamRedactor
    from .secret_store import SecretStore as SecretStore
    from .signatures import Ed25519Signer as Ed25519Signer
    from .signatures import KeyFile as KeyFile
    from .signatures import PublicKey as PublicKey
    from .signatures import Signer as Signer
    from .signed_commands import CommandSigner as CommandSigner
    from .signed_commands import HmacSigner as HmacSigner
    from .signed_heads import Anchor as Anchor
    from .signed_heads import AnchorReport as AnchorReport
    from .signed_heads import SignedHeads as SignedHeads
    from .signed_heads import check_anchors as check_anchors
    from .signed_heads import read_anchors as read_anchors
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
            ".aes_codec": ("AESCodec",),
            ".classifier": ("PatternClassifier",),
            ".redaction": ("REDACTED", "Redactor", "StreamRedactor"),
            ".secret_store": ("SecretStore",),
            ".signatures": ("Ed25519Signer", "KeyFile", "PublicKey", "Signer"),
            ".signed_commands": ("CommandSigner", "HmacSigner"),
            ".signed_heads": (
                "Anchor",
                "AnchorReport",
                "SignedHeads",
                "check_anchors",
                "read_anchors",
            ),
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
