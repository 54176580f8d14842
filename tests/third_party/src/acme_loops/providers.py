"""A provider without a network: a parrot."""

import asyncio
from collections.abc import AsyncIterator

from loopwright import (
    Capabilities,
    Completion,
    ConfigError,
    Delta,
    ProviderError,
    Request,
    ToolCall,
    Usage,
)

PARROTS = ("grey", "green", "mute")


class ParrotProvider:
    """Calls the first tool that wants a text with what it heard, and repeats the last thing that it was told."""

    name = "acme"
    capabilities = Capabilities(native_tools=True, json_schema=False)

    def __init__(self, model: str = "grey") -> None:
        if model not in PARROTS:
            raise ConfigError(
                f"model: acme has the parrots {', '.join(PARROTS)}, got {model!r}"
            )
        self.model = model

    async def complete(self, request: Request) -> Completion:
        """Listen, and say it again."""
        await asyncio.sleep(0)
        if self.model == "mute":
            raise ProviderError("the mute parrot says nothing", status=503)
        heard = request.conversation.messages[-1]
        usage = Usage(len(heard.content) + 1, 3)
        if request.tools and request.tool_choice == "auto" and heard.role == "user":
            call = _call(request, heard.content)
            if call is not None:
                return Completion(
                    "Krah?",
                    (call,),
                    finish_reason="tool_calls",
                    usage=usage,
                    model=self.model,
                )
        said = f"{heard.content}, krah!"
        return Completion(said, answer=said, usage=usage, model=self.model)

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """The same, letter by letter."""
        completion = await self.complete(request)
        for letter in completion.text:
            yield Delta(text=letter)
        yield Delta(completion=completion)


def _call(request: Request, text: str) -> ToolCall | None:
    for tool in request.tools:
        required = tool.schema.get("required")
        if isinstance(required, list) and len(required) == 1:
            return ToolCall(tool.name, {str(required[0]): text})
    return None
