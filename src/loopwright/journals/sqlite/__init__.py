"""A journal in one SQLite file."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazily

if TYPE_CHECKING:
    from .journal import SQLiteJournal as SQLiteJournal

__all__ = [
    "SQLiteJournal",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "SQLiteJournal": ".journal",
        },
    )
