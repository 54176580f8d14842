"""Events of branches that end early or one by one: time-outs, deliveries, groups that were left."""

import dataclasses
from typing import Annotated, TypeAlias

from .describe import PUBLIC, DescribedEvent, public


@dataclasses.dataclass(frozen=True)
class TimeoutSet(DescribedEvent, heading="timeout", level="info"):
    """The engine bounds a branch by `seconds` of active time: until the run was active for `deadline` seconds."""

    seconds: Annotated[float, public("loopwright.timeout")]
    deadline: Annotated[float, PUBLIC]

    def summary(self) -> str:
        return f"{self.seconds:g} s"


@dataclasses.dataclass(frozen=True)
class TimeoutFired(DescribedEvent, heading="timed out", level="warning"):
    """The time of a branch was over: nothing new begins in it."""

    seconds: Annotated[float, public("loopwright.timeout")]

    def summary(self) -> str:
        return f"after {self.seconds:g} s"


BranchEvent: TypeAlias = TimeoutSet | TimeoutFired
