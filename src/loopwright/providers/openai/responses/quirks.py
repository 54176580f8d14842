"""`ResponsesQuirks`: how models and endpoints for the Responses API differ."""

import re
from typing import Self

from ...._internal import dataclasses
from ...provider_tools import KINDS, ProviderToolKind

# gpt-4o and gpt-4.1 do not reason, nor do chat models (gpt-5-chat-latest) and older families.
_PLAIN = re.compile(r"gpt-(?:3|4)|chatgpt|-chat", re.IGNORECASE)
_REASONING = re.compile(r"(?:^|[/.])(?:o\d|gpt-\d|codex)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResponsesQuirks:
    """How a model or an endpoint for the Responses API differs from others.

    Args:
        sampling: it accepts `temperature` and `top_p`, which reasoning models refuse.
        encrypted_reasoning: it returns its reasoning encrypted, to be sent back, as `include`
            asks; models that do not reason refuse that.
        stateless: it accepts `store: false`.
        strict_tools: it accepts `strict` in the description of a tool.
        json_schema: it constrains its reply to a JSON schema.
        provider_tools: the kinds of tools that it can run by itself.
    """

    sampling: bool = True
    encrypted_reasoning: bool = False
    stateless: bool = True
    strict_tools: bool = True
    json_schema: bool = True
    provider_tools: tuple[ProviderToolKind, ...] = KINDS

    @classmethod
    def guess(cls, model: str) -> Self:
        """Return the known quirks of a model, by its name."""
        is_plain = _PLAIN.search(model) is not None
        reasons = not is_plain and _REASONING.search(model) is not None
        return cls(sampling=not reasons, encrypted_reasoning=reasons)
