"""Events of branches that end early or one by one: time-outs, deliveries, groups that were left."""

from typing import Annotated, TypeAlias

from .._internal import dataclasses
from ..messages import Usage
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
    """The time of a branch was over: nothing new begins in it.

    `usage` is what its model calls without a reply had used, estimated.
    """

    seconds: Annotated[float, public("loopwright.timeout")]
    usage: Annotated[Usage, PUBLIC] = Usage()

    def summary(self) -> str:
        return f"after {self.seconds:g} s"


@dataclasses.dataclass(frozen=True)
class BranchStarted(DescribedEvent, heading="branch", level="info"):
    """A branch of `Run.gather` began its work; `name` is what the engine calls it."""

    name: Annotated[str, public("loopwright.branch", log="branch")]
    index: Annotated[int, PUBLIC]

    def summary(self) -> str:
        return f"{self.name} began"


@dataclasses.dataclass(frozen=True)
class BranchFinished(DescribedEvent, heading="branch", level="info"):
    """A named branch of `Run.gather` ended; `error` is the class of what it raised, empty where it returned."""

    name: Annotated[str, public("loopwright.branch", log="branch")]
    index: Annotated[int, PUBLIC]
    error: Annotated[str, PUBLIC] = ""

    def summary(self) -> str:
        return (
            f"{self.name} raised {self.error}" if self.error else f"{self.name} ended"
        )


@dataclasses.dataclass(frozen=True)
class BranchesOpened(DescribedEvent, heading="branches", level="debug"):
    """The engine began branches of which it is given each when that has ended."""

    def summary(self) -> str:
        return "each is given when it has ended"


@dataclasses.dataclass(frozen=True)
class BranchDelivered(DescribedEvent, heading="branch", level="debug"):
    """The engine was given the outcome of a branch, by its `index`: nothing new begins in it."""

    index: Annotated[int, PUBLIC]

    def summary(self) -> str:
        return f"{self.index} has ended"


@dataclasses.dataclass(frozen=True)
class BranchesClosed(DescribedEvent, heading="branches", level="info"):
    """The engine left its branches before all had ended: nothing new begins in them.

    `usage` is what their model calls without a reply had used, estimated.
    """

    usage: Annotated[Usage, PUBLIC] = Usage()

    def summary(self) -> str:
        return "the engine continues without the others"


BranchEvent: TypeAlias = (
    TimeoutSet
    | TimeoutFired
    | BranchStarted
    | BranchFinished
    | BranchesOpened
    | BranchDelivered
    | BranchesClosed
)
