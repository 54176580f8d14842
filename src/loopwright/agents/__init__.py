"""Agents: engines with instructions, tools and a name of their own."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .agent import Agent as Agent
    from .agent import InstructionContext as InstructionContext
    from .agent import Instructions as Instructions
    from .handoff import Filter as Filter
    from .handoff import Handoff as Handoff
    from .next_turn import Busy as Busy
    from .registry import Agents as Agents
    from .schedules import Schedules as Schedules
    from .settings_editor import SettingsEditor as SettingsEditor
    from .thread import Thread as Thread
    from .thread import TurnOptions as TurnOptions
    from .thread_approvals import ThreadApproval as ThreadApproval
    from .thread_deletion import DeletedThread as DeletedThread
    from .thread_list import ThreadInfo as ThreadInfo
    from .tool import History as History
    from .toolbox import AgentsToolbox as AgentsToolbox
    from .toolbox import Preset as Preset
    from .turn import Turn as Turn
    from .turn_handle import TurnHandle as TurnHandle

if not TYPE_CHECKING:
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".agent": ("Agent", "InstructionContext", "Instructions"),
            ".handoff": ("Filter", "Handoff"),
            ".registry": ("Agents",),
            ".schedules": ("Schedules",),
            ".settings_editor": ("SettingsEditor",),
            ".thread": ("Thread", "TurnOptions"),
            ".next_turn": ("Busy",),
            ".tool": ("History",),
            ".toolbox": ("AgentsToolbox", "Preset"),
            ".thread_deletion": ("DeletedThread",),
            ".thread_approvals": ("ThreadApproval",),
            ".thread_list": ("ThreadInfo",),
            ".turn": ("Turn",),
            ".turn_handle": ("TurnHandle",),
        },
    )
