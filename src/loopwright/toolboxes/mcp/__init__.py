"""Tools of MCP servers."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .servers import HttpServer as HttpServer
    from .servers import StdioServer as StdioServer
    from .toolbox import McpToolbox as McpToolbox
    from .toolbox import mcp as mcp

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".servers": ("HttpServer", "StdioServer"),
            ".toolbox": ("McpToolbox", "mcp"),
        },
    )
