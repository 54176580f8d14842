"""Knowledge: the port of what runs remember, and stores of it in memory and in SQLite."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .base import Embedder as Embedder
    from .base import Forget as Forget
    from .base import Knowledge as Knowledge
    from .base import Relation as Relation
    from .base import Remembered as Remembered
    from .base import check_scope as check_scope
    from .base import check_search as check_search
    from .bridge import DirectoryRules as DirectoryRules
    from .bridge import KnowledgeBridge as KnowledgeBridge
    from .bridge import scope_of as scope_of
    from .sqlite.store import MemoryKnowledge as MemoryKnowledge
    from .sqlite.store import SQLiteKnowledge as SQLiteKnowledge

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".base": (
                "Embedder",
                "Forget",
                "Knowledge",
                "Relation",
                "Remembered",
                "check_scope",
                "check_search",
            ),
            ".bridge": ("DirectoryRules", "KnowledgeBridge", "scope_of"),
            ".sqlite.store": ("MemoryKnowledge", "SQLiteKnowledge"),
        },
    )
