"""Chat Completions, of OpenAI and of whatever is compatible."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazily

if TYPE_CHECKING:
    from .provider import OpenAIProvider as OpenAIProvider
    from .quirks import Quirks as Quirks

__all__ = [
    "OpenAIProvider",
    "Quirks",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "OpenAIProvider": ".provider",
            "Quirks": ".quirks",
        },
    )
