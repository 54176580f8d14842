"""FittedContext: a policy of the first kind, with `fit`, as one that returns views."""

from ..._internal import dataclasses
from .base import ContextView, FittingPolicy, View
from .tokens import BYTES_PER_TOKEN


@dataclasses.dataclass(frozen=True)
class FittedContext:
    """Sends what a policy with a method `fit` selects."""

    policy: FittingPolicy

    async def view(self, at: ContextView) -> View:
        """Return what the policy selects, in tokens of 4 bytes as it counts them."""
        conversation = at.conversation
        fitted = self.policy.fit(conversation, max(at.room_bytes // BYTES_PER_TOKEN, 1))
        whole = View.whole(conversation)
        if fitted is conversation:
            return whole
        return dataclasses.replace(whole, replacement=fitted, size=fitted.size)
