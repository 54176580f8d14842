"""The console: a page over a journal, to watch, steer and approve runs; the extra `console`."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .access import AccessReport as AccessReport
    from .access import check_access as check_access
    from .app import Console as Console

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__, {".access": ("AccessReport", "check_access"), ".app": ("Console",)}
    )
