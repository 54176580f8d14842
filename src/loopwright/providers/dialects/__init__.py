"""Text dialects: how models without native tool calls are told about tools, and how their text is parsed."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from ...parsing.arguments import Signature as Signature
    from .dialect import Dialect as Dialect
    from .dialect import Parsed as Parsed
    from .dialect import TypedDialect as TypedDialect
    from .json import JsonDialect as JsonDialect
    from .react import ReActDialect as ReActDialect
    from .streaming import StreamingDialect as StreamingDialect
    from .streaming import StreamParser as StreamParser
    from .xml import XmlDialect as XmlDialect

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "...parsing.arguments": ("Signature",),
            ".dialect": ("Dialect", "Parsed", "TypedDialect"),
            ".json": ("JsonDialect",),
            ".react": ("ReActDialect",),
            ".streaming": ("StreamParser", "StreamingDialect"),
            ".xml": ("XmlDialect",),
        },
    )
