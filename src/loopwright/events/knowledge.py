"""The event of a store of knowledge that does not work."""

from typing import Annotated

from .._internal import dataclasses
from .describe import Counter, DescribedEvent, public
from .run import ErrorRecord


@dataclasses.dataclass(frozen=True)
class KnowledgeUnavailable(
    DescribedEvent,
    heading="knowledge",
    level="warning",
    counter=Counter(
        "loopwright.knowledge.failures",
        "{failure}",
        "Times that the store of knowledge did not work, and the run continued.",
    ),
):
    """The store of knowledge did not work, and the run continued without it; `verb` is "search" or "store"."""

    verb: Annotated[str, public("loopwright.knowledge.verb", metric=True)]
    error: Annotated[ErrorRecord, public("error.type")]

    def summary(self) -> str:
        return f"{self.verb} failed: {self.error.summary()}"
