"""Surroundings: what the people, models and tools of a world know of it."""

import random
from collections.abc import Callable
from typing import Any, Protocol

from ..._kernel.control.run_control import RunControl
from ...journals.memory import MemoryJournal
from ...providers.base import Request
from .ledger import Ledger
from .programs import Program


class Surroundings(Protocol):
    """A world, as those see it who live in it."""

    seed: int
    program: Program
    store: MemoryJournal
    ledger: Ledger
    is_calm: bool
    model: Callable[[Request], Any]

    def source(self, name: str, /) -> random.Random:
        """Return a random source of this world, whose numbers do not depend on the others'."""
        ...

    def is_faulty(self, kind: str, /) -> bool:
        """Return whether faults of a kind happen now."""
        ...

    def has_ended(self) -> bool:
        """Return whether every run has ended."""
        ...

    def may_die(self, source: random.Random, /) -> None:
        """Kill the process that asks, perhaps."""
        ...

    def control(self, run_id: str, /) -> RunControl:
        """Return the control of a run, for people."""
        ...
