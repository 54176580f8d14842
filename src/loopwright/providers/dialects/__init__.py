"""Text dialects: how models without native tool calls are told of tools, and how their text is read."""

from ...parsing.arguments import Signature
from .dialect import Dialect, Parsed
from .json import JsonDialect
from .react import ReActDialect
from .streaming import Watch, Watched
from .xml import XmlDialect

__all__ = [
    "Dialect",
    "JsonDialect",
    "Parsed",
    "ReActDialect",
    "Signature",
    "Watch",
    "Watched",
    "XmlDialect",
]
