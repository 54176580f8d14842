"""What of a long conversation a model call sends: the port for policies, and those that come with the library."""

from .base import ContextAnswer as ContextAnswer
from .base import ContextPolicy as ContextPolicy
from .base import ContextView as ContextView
from .base import FittingPolicy as FittingPolicy
from .base import View as View
from .fitting_policy import FittedContext as FittedContext

__all__ = (
    "ContextAnswer",
    "ContextPolicy",
    "ContextView",
    "FittedContext",
    "FittingPolicy",
    "View",
)
