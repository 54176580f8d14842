"""Toolboxes: tools that come with the library, and the guarded way to the web that they use."""

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .egress import GuardedTransport as GuardedTransport

__all__ = ["GuardedTransport"]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(__name__, {"GuardedTransport": ".egress"})
