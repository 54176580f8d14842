"""A journal in one SQLite file."""

from typing import TYPE_CHECKING

from ..._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .journal import SQLiteJournal as SQLiteJournal

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".journal": ("SQLiteJournal",),
        },
    )
