"""Prompts, options and limits that are changed while an application runs: the port, a SQLite file, and memory."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .base import SettingChange as SettingChange
    from .base import Settings as Settings
    from .memory import MemorySettings as MemorySettings
    from .sqlite import SQLiteSettings as SQLiteSettings

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".base": ("SettingChange", "Settings"),
            ".memory": ("MemorySettings",),
            ".sqlite": ("SQLiteSettings",),
        },
    )
