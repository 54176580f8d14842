"""A gate of Cedar policies."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazily

if TYPE_CHECKING:
    from .gate import CedarGate as CedarGate

__all__ = [
    "CedarGate",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "CedarGate": ".gate",
        },
    )
