"""Models: one file for each kind of endpoint, over one transport; `TextTools` for those without native tool calls."""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .anthropic import AnthropicProvider as AnthropicProvider
    from .fallback import FallbackProvider as FallbackProvider
    from .local import LocalProvider as LocalProvider
    from .openai import OpenAIProvider as OpenAIProvider
    from .quirks import Quirks as Quirks
    from .text_tools import TextTools as TextTools
    from .tiers import Tiers as Tiers

__all__ = [
    "AnthropicProvider",
    "FallbackProvider",
    "LocalProvider",
    "OpenAIProvider",
    "Quirks",
    "TextTools",
    "Tiers",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "AnthropicProvider": ".anthropic",
            "FallbackProvider": ".fallback",
            "LocalProvider": ".local",
            "OpenAIProvider": ".openai",
            "Quirks": ".quirks",
            "TextTools": ".text_tools",
            "Tiers": ".tiers",
        },
    )
