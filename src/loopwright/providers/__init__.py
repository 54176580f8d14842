"""Models: one file for each kind of endpoint, over one transport; `TextTools` for those without native tool calls."""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .local import LocalProvider as LocalProvider
    from .openai import OpenAIProvider as OpenAIProvider
    from .text_tools import TextTools as TextTools

__all__ = ["LocalProvider", "OpenAIProvider", "TextTools"]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(__name__, {"LocalProvider": ".local", "OpenAIProvider": ".openai", "TextTools": ".text_tools"})
