"""Toolboxes: tools that come with the library, and the guarded way to the web that they use."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .mcp.toolbox import HttpServer as HttpServer
    from .mcp.toolbox import McpToolbox as McpToolbox
    from .mcp.toolbox import StdioServer as StdioServer
    from .ssrf_guard import GuardedTransport as GuardedTransport

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".mcp.toolbox": ("HttpServer", "McpToolbox", "StdioServer"),
            ".ssrf_guard": ("GuardedTransport",),
        },
    )
