"""Anthropic's Messages."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazily

if TYPE_CHECKING:
    from .provider import AnthropicProvider as AnthropicProvider
    from .provider import MessagesQuirks as MessagesQuirks

__all__ = [
    "AnthropicProvider",
    "MessagesQuirks",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "AnthropicProvider": ".provider",
            "MessagesQuirks": ".provider",
        },
    )
