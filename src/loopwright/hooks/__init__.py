"""Hooks: code that looks at what goes to a model, comes from it or from a tool, and may change the text."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .base import Abort as Abort
    from .base import Before as Before
    from .base import EngineStage as EngineStage
    from .base import Hook as Hook
    from .base import ModelQuestion as ModelQuestion
    from .base import Moment as Moment
    from .result_gate import Drop as Drop
    from .result_gate import Inspection as Inspection
    from .result_gate import Keep as Keep
    from .result_gate import Replace as Replace
    from .result_gate import ResultGate as ResultGate
    from .result_gate import ResultInspector as ResultInspector
    from .result_gate import ToolResult as ToolResult

if not TYPE_CHECKING:
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".base": (
                "Abort",
                "Before",
                "EngineStage",
                "Hook",
                "ModelQuestion",
                "Moment",
            ),
            ".result_gate": (
                "Drop",
                "Inspection",
                "Keep",
                "Replace",
                "ResultGate",
                "ResultInspector",
                "ToolResult",
            ),
        },
    )
