"""Amazon Bedrock's Converse API."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .provider import BedrockProvider as BedrockProvider

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".provider": ("BedrockProvider",),
        },
    )
