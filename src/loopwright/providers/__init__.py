"""Models: the port, one package for each kind of endpoint, and `TextTools` for those without native tool calls."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .anthropic.conversation import AnthropicMessages as AnthropicMessages
    from .anthropic.conversation import to_anthropic_messages as to_anthropic_messages
    from .anthropic.provider import AnthropicProvider as AnthropicProvider
    from .any_llm import AnyLLMProvider as AnyLLMProvider
    from .base import CallDelta as CallDelta
    from .base import Capabilities as Capabilities
    from .base import CountingProvider as CountingProvider
    from .base import Delta as Delta
    from .base import OutputSchema as OutputSchema
    from .base import Provider as Provider
    from .base import Request as Request
    from .base import Sampling as Sampling
    from .base import SamplingProvider as SamplingProvider
    from .base import StreamingProvider as StreamingProvider
    from .base import admit_attempt as admit_attempt
    from .base import stream_deltas as stream_deltas
    from .bedrock.provider import BedrockProvider as BedrockProvider
    from .clearance import ClearedProvider as ClearedProvider
    from .context.sliding_context import SlidingContext as SlidingContext
    from .dialects.text_tools import TextTools as TextTools
    from .fallback import FallbackProvider as FallbackProvider
    from .gemini.provider import GeminiProvider as GeminiProvider
    from .local import LocalProvider as LocalProvider
    from .openai.azure import AzureChatProvider as AzureChatProvider
    from .openai.azure import AzureOpenAIProvider as AzureOpenAIProvider
    from .openai.conversation import to_openai_messages as to_openai_messages
    from .openai.provider import OpenAIProvider as OpenAIProvider
    from .openai.quirks import Quirks as Quirks
    from .openai.responses.provider import (
        OpenAIResponsesProvider as OpenAIResponsesProvider,
    )
    from .openai.responses.quirks import ResponsesQuirks as ResponsesQuirks
    from .prices import Price as Price
    from .provider_tools import ProviderTool as ProviderTool
    from .tiers import Tiers as Tiers

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".anthropic.conversation": ("AnthropicMessages", "to_anthropic_messages"),
            ".anthropic.provider": ("AnthropicProvider",),
            ".any_llm": ("AnyLLMProvider",),
            ".base": (
                "CallDelta",
                "Capabilities",
                "CountingProvider",
                "Delta",
                "OutputSchema",
                "Provider",
                "Request",
                "Sampling",
                "SamplingProvider",
                "StreamingProvider",
                "admit_attempt",
                "stream_deltas",
            ),
            ".bedrock.provider": ("BedrockProvider",),
            ".clearance": ("ClearedProvider",),
            ".context.sliding_context": ("SlidingContext",),
            ".dialects.text_tools": ("TextTools",),
            ".fallback": ("FallbackProvider",),
            ".gemini.provider": ("GeminiProvider",),
            ".local": ("LocalProvider",),
            ".openai.conversation": ("to_openai_messages",),
            ".openai.azure": ("AzureChatProvider", "AzureOpenAIProvider"),
            ".openai.provider": ("OpenAIProvider",),
            ".openai.quirks": ("Quirks",),
            ".openai.responses.provider": ("OpenAIResponsesProvider",),
            ".openai.responses.quirks": ("ResponsesQuirks",),
            ".prices": ("Price",),
            ".provider_tools": ("ProviderTool",),
            ".tiers": ("Tiers",),
        },
    )
