"""What goes wrong in a world, drawn by its seed."""

import random

from ..._internal import dataclasses

CALM_AT = 90.0
"""Virtual seconds after which nothing goes wrong any more."""


@dataclasses.dataclass(frozen=True)
class Faults:
    """The kinds of faults that worlds may have; each world has a part of them, so that they do not hide each other.

    Args:
        crashes: processes are killed and started again.
        pauses: processes are paused for a while, longer than a lease too.
        clocks: clocks of processes are wrong, drift and jump.
        store: operations of the store fail, before or after they took effect, or come late.
        provider: the model answers late, fails, hangs, or says nonsense.
        tools: tools answer late, fail or hang.
        people: people steer, pause and abort runs, and take their time to answer.
        versions: processes that start later have newer code, which takes the runs of the older one.
    """

    crashes: bool = True
    pauses: bool = True
    clocks: bool = True
    store: bool = True
    provider: bool = True
    tools: bool = True
    people: bool = True
    versions: bool = True

    def draw(self, source: random.Random) -> "Faults":
        """Return the faults of one world: each kind that is on, with an even chance."""
        drawn = {
            field.name: getattr(self, field.name) and source.random() < 0.5
            for field in dataclasses.fields(self)
        }
        return Faults(**drawn)

    @property
    def is_none(self) -> bool:
        """Whether nothing goes wrong."""
        return not any(dataclasses.astuple(self))

    @property
    def keeps_answers(self) -> bool:
        """Whether a run ends as it would without them, unless newer code asked for more."""
        return not (self.provider or self.tools or self.people)

    def describe(self) -> str:
        """Return the names of the kinds that are on."""
        on = [
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name)
        ]
        return ", ".join(on) or "none"


ALL_FAULTS = Faults()
NO_FAULTS = Faults(*[False] * len(dataclasses.fields(Faults)))
