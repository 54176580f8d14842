"""Journals that survive the process."""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .sqlite import SQLiteJournal as SQLiteJournal

__all__ = ["SQLiteJournal"]
__getattr__ = lazily(__name__, {"SQLiteJournal": ".sqlite"})
