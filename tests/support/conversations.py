"""What a model read and wrote: messages of requests and of results."""

from typing import Any

from loopwright import Request, Result


def tool_messages(result: Result) -> list[str]:
    """Return the contents of the tool messages that the model read."""
    return [
        message.content for message in result.conversation if message.role == "tool"
    ]


def roles_and_contents(request: Request) -> list[tuple[Any, str]]:
    """Return role and content of each message that a model was sent."""
    return [(message.role, message.content) for message in request.conversation]
