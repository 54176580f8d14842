"""What of a long conversation a model call sends: the port for policies, and those that come with the library."""

from .anchored_summary import Anchored as Anchored
from .anchored_summary import Summary as Summary
from .base import ContextAnswer as ContextAnswer
from .base import ContextPolicy as ContextPolicy
from .base import ContextView as ContextView
from .base import FittingPolicy as FittingPolicy
from .base import View as View
from .fitting_policy import FittedContext as FittedContext
from .stages import Masking as Masking
from .stages import Stage as Stage
from .stages import Stages as Stages
from .stages import Window as Window

__all__ = (
    "Anchored",
    "ContextAnswer",
    "ContextPolicy",
    "ContextView",
    "FittedContext",
    "FittingPolicy",
    "Masking",
    "Stage",
    "Stages",
    "Summary",
    "View",
    "Window",
)
