"""The failures of a connection to an MCP server, and of the tools that it lists."""


class ConnectionLost(Exception):
    """The connection ended before the answer arrived.

    `sent` says whether the call may have reached the server.
    """

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class CallRefused(Exception):
    """The server answered with an error of the protocol; `code` is that of JSON-RPC."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class UnreadableAnswer(Exception):
    """The server answered, and the answer cannot be parsed."""


class ServerUnreachable(Exception):
    """A connection cannot be made, or its tools cannot be listed."""


class UnsuitableTool(Exception):
    """A tool cannot be offered to a model; the message says why."""
