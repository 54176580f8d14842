"""Tools of MCP servers."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazily

if TYPE_CHECKING:
    from .servers import HttpServer as HttpServer
    from .servers import StdioServer as StdioServer
    from .toolbox import McpToolbox as McpToolbox
    from .toolbox import mcp as mcp

__all__ = [
    "HttpServer",
    "McpToolbox",
    "StdioServer",
    "mcp",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "HttpServer": ".servers",
            "McpToolbox": ".toolbox",
            "StdioServer": ".servers",
            "mcp": ".toolbox",
        },
    )
