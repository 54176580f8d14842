"""Text dialects: how models without native tool calls are told about tools, and how their text is parsed."""

from ...parsing.arguments import Signature
from .dialect import Dialect, Parsed, TypedDialect
from .json import JsonDialect
from .react import ReActDialect
from .streaming import StreamingDialect, StreamParser
from .xml import XmlDialect

__all__ = [
    "Dialect",
    "JsonDialect",
    "Parsed",
    "ReActDialect",
    "Signature",
    "StreamParser",
    "StreamingDialect",
    "TypedDialect",
    "XmlDialect",
]
