"""The context policy of a runtime or an agent, as it is given."""

from collections.abc import Callable
from typing import TypeAlias, cast

from ...errors import ConfigError
from .anchored_summary import Anchored
from .base import ContextPolicy, FittingPolicy
from .fitting_policy import FittedContext
from .sliding_context import SlidingContext
from .stages import Masking, Stages, Window

Context: TypeAlias = ContextPolicy | FittingPolicy | str
"""What a runtime or an agent takes as its policy: one of these, or the name of one."""
POLICIES: dict[str, Callable[[], ContextPolicy]] = {
    "anchored": lambda: Stages((Masking(), Anchored(), Window())),
    "masking": lambda: Stages((Masking(), Window())),
    "window": lambda: Stages((Window(),)),
}
"""The policies that have a name."""
DEFAULT_POLICY = POLICIES["masking"]()
EARLIER_DEFAULT = FittedContext(SlidingContext())
"""The default for runs that began before revision 3."""


def name_policy(policy: ContextPolicy) -> str:
    """Return what a policy is made of, by the names of the classes."""
    if isinstance(policy, FittedContext):
        return type(policy.policy).__name__
    if isinstance(policy, Stages):
        return "+".join(type(stage).__name__ for stage in policy.stages)
    return type(policy).__name__


def choose_policy(context: object) -> ContextPolicy:
    """Return a policy, the default one for `None`; raise `ConfigError` for what is none."""
    if context is None:
        return DEFAULT_POLICY
    if isinstance(context, str):
        if context not in POLICIES:
            names = ", ".join(sorted(POLICIES))
            raise ConfigError(
                f"context: must be one of {names}, or an object with a method `view`, got {context!r}"
            )
        return POLICIES[context]()
    is_object = not isinstance(context, type)
    if is_object and callable(getattr(context, "view", None)):
        return cast("ContextPolicy", context)
    if is_object and callable(getattr(context, "fit", None)):
        return FittedContext(cast("FittingPolicy", context))
    raise ConfigError(
        f"context: needs an object with a method `view` or `fit`, got {context!r:.80}"
    )


def name_other_policy(policy: ContextPolicy) -> str:
    """Return what a policy is made of; empty for the default one."""
    return "" if policy is DEFAULT_POLICY else name_policy(policy)
