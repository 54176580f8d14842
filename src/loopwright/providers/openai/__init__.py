"""OpenAI's APIs, Responses and Chat Completions, and whatever is compatible with them."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .provider import OpenAIProvider as OpenAIProvider
    from .quirks import Quirks as Quirks
    from .responses.provider import OpenAIResponsesProvider as OpenAIResponsesProvider
    from .responses.quirks import ResponsesQuirks as ResponsesQuirks

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".provider": ("OpenAIProvider",),
            ".quirks": ("Quirks",),
            ".responses.provider": ("OpenAIResponsesProvider",),
            ".responses.quirks": ("ResponsesQuirks",),
        },
    )
