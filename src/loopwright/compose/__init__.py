"""An application from a file: providers, tools, gates, engines, pipelines and agents by the names of entry points."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .composition import CodeServices as CodeServices
    from .composition import Composition as Composition
    from .composition import load as load

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__, {".composition": ("CodeServices", "Composition", "load")}
    )
