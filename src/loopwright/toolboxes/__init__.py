"""Toolboxes: tools that come with the library, and the guarded way to the web that they use."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazily

if TYPE_CHECKING:
    from .mcp.toolbox import HttpServer as HttpServer
    from .mcp.toolbox import McpToolbox as McpToolbox
    from .mcp.toolbox import StdioServer as StdioServer
    from .ssrf_guard import GuardedTransport as GuardedTransport

__all__ = [
    "GuardedTransport",
    "HttpServer",
    "McpToolbox",
    "StdioServer",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "GuardedTransport": ".ssrf_guard",
            "HttpServer": ".mcp.toolbox",
            "McpToolbox": ".mcp.toolbox",
            "StdioServer": ".mcp.toolbox",
        },
    )
