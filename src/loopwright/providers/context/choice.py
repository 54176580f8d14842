"""The context policy of a runtime or an agent, as it is given."""

from typing import cast

from ...errors import ConfigError
from .base import ContextPolicy, FittingPolicy
from .fitting_policy import FittedContext
from .sliding_context import SlidingContext


def choose_policy(context: object) -> ContextPolicy:
    """Return a policy, the default one for `None`; raise `ConfigError` for what is none."""
    if context is None:
        return FittedContext(SlidingContext())
    is_object = not isinstance(context, type)
    if is_object and callable(getattr(context, "view", None)):
        return cast("ContextPolicy", context)
    if is_object and callable(getattr(context, "fit", None)):
        return FittedContext(cast("FittingPolicy", context))
    raise ConfigError(
        f"context: needs an object with a method `view` or `fit`, got {context!r:.80}"
    )
