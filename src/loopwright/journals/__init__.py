"""Journals that survive the process."""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .sqlite import SQLiteJournal as SQLiteJournal

__all__ = ["SQLiteJournal"]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(__name__, {"SQLiteJournal": ".sqlite"})
