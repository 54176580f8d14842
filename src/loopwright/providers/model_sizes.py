"""What is known of models by their names: tokens of the context and of the longest reply, and whether they take images."""

import functools
import re
from typing import NamedTuple

from .._internal.regex import compile_late

MAX_NAMES = 256  # whose properties are remembered: they are asked for at each call
NOT_IN_NAME = compile_late(r"[^a-z0-9.]+")


class ModelSize(NamedTuple):
    """How many tokens a model takes and gives; `None` where that is not known.

    Args:
        context: of a request and its reply together.
        output: of the longest reply, with the thinking.
    """

    context: int | None = None
    output: int | None = None


UNKNOWN = ModelSize()
# By what a model's name begins with, behind the names of vendors and regions; the longest match counts. As published
# by the vendors (platform.openai.com/docs/models, platform.claude.com/docs, ai.google.dev/gemini-api/docs/models) in
# 2026; a model that is larger than its family here is used below its size.
SIZES = {
    "gpt-5": ModelSize(400_000, 128_000),
    "gpt-5-chat": ModelSize(128_000, 16_384),
    "gpt-5.1-chat": ModelSize(128_000, 16_384),
    "gpt-5.2-chat": ModelSize(128_000, 16_384),
    "gpt-4.1": ModelSize(1_047_576, 32_768),
    "gpt-4o": ModelSize(128_000, 16_384),
    "gpt-4-turbo": ModelSize(128_000, 4_096),
    "gpt-3.5-turbo": ModelSize(16_385, 4_096),
    "gpt-oss": ModelSize(131_072),
    "o1": ModelSize(200_000, 100_000),
    "o1-mini": ModelSize(128_000, 65_536),
    "o1-preview": ModelSize(128_000, 32_768),
    "o3": ModelSize(200_000, 100_000),
    "o4-mini": ModelSize(200_000, 100_000),
    "claude": ModelSize(200_000),
    "claude-3": ModelSize(200_000, 4_096),
    "claude-3-5": ModelSize(200_000, 8_192),
    "claude-3-7": ModelSize(200_000, 64_000),
    "claude-opus-4": ModelSize(200_000, 32_000),
    "claude-opus-4-5": ModelSize(200_000, 64_000),
    "claude-opus-4-6": ModelSize(1_000_000, 128_000),
    "claude-opus-5": ModelSize(1_000_000, 128_000),
    "claude-sonnet-4": ModelSize(200_000, 64_000),
    "claude-haiku-4-5": ModelSize(200_000, 64_000),
    "gemini-1.5": ModelSize(1_048_576, 8_192),
    "gemini-2.0": ModelSize(1_048_576, 8_192),
    "gemini-2.5": ModelSize(1_048_576, 65_536),
    "gemini-2.5-flash-image": ModelSize(65_536, 32_768),
    "gemini-3": ModelSize(1_048_576, 65_536),
    "gemini-3-pro-image": ModelSize(65_536, 32_768),
    "llama-3.1": ModelSize(131_072),
    "llama-3.3": ModelSize(131_072),
}

# The families whose models take no images; of a family that is not listed it is assumed, and learnt from a refusal.
TEXT_ONLY = (
    "gpt-3.5",
    "gpt-oss",
    "o1-mini",
    "o1-preview",
    "o3-mini",
    "deepseek",
    "codestral",
    "devstral",
    "command-r",
    "llama-3.1",
    "llama-3.3",
    "nova-micro",
    "qwen2.5-coder",
    "qwen3-coder",
)


@functools.lru_cache(MAX_NAMES)
def takes_images(model: str) -> bool:
    """Return whether a model takes images, as far as its name tells."""
    name = _normalize(model)
    return not any(_begins(name, known) for known in TEXT_ONLY)


@functools.lru_cache(MAX_NAMES)
def find_size(model: str) -> ModelSize:
    """Return the size of a model: "openai/gpt-4.1-mini" and "us.anthropic.claude-opus-4-5-20251101-v1:0" are known."""
    name = _normalize(model)
    found = [known for known in SIZES if _begins(name, known)]
    return SIZES[max(found, key=len)] if found else UNKNOWN


def _normalize(model: str) -> str:
    """Return a name between dashes, without the vendor's."""
    name = model.lower()
    for vendor in ("anthropic.", "amazon.", "meta.", "openai.", "mistral."):
        name = name.replace(vendor, "-")
    return f"-{NOT_IN_NAME.sub('-', name)}-"


def _begins(name: str, known: str) -> bool:
    """Return whether a part of a name begins with a known one; "gpt-5" is also the family of "gpt-5.1"."""
    return re.search(rf"-{re.escape(known)}(?![0-9a-z])", name) is not None
