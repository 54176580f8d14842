"""Toolboxes: tools that come with the library, and the guarded way to the web that they use."""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .egress import GuardedTransport as GuardedTransport
    from .mcp import HttpServer as HttpServer
    from .mcp import McpToolbox as McpToolbox
    from .mcp import StdioServer as StdioServer

__all__ = ["GuardedTransport", "HttpServer", "McpToolbox", "StdioServer"]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "GuardedTransport": ".egress",
            "HttpServer": ".mcp",
            "McpToolbox": ".mcp",
            "StdioServer": ".mcp",
        },
    )
