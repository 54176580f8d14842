"""What can happen in a run: one frozen type for each event, and the entry that holds it."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .agents import HandedOff as HandedOff
    from .agents import InstructionsSet as InstructionsSet
    from .branches import BranchDelivered as BranchDelivered
    from .branches import BranchesClosed as BranchesClosed
    from .branches import BranchesOpened as BranchesOpened
    from .branches import BranchFinished as BranchFinished
    from .branches import BranchStarted as BranchStarted
    from .branches import TimeoutFired as TimeoutFired
    from .branches import TimeoutSet as TimeoutSet
    from .control import CommandReceived as CommandReceived
    from .control import Declassified as Declassified
    from .control import FollowedUp as FollowedUp
    from .control import QuestionWithdrawn as QuestionWithdrawn
    from .control import RunContinued as RunContinued
    from .control import RunPaused as RunPaused
    from .describe import kind_of as kind_of
    from .effects import AttemptFailed as AttemptFailed
    from .effects import BreakerChanged as BreakerChanged
    from .effects import CallsProposed as CallsProposed
    from .effects import ChildFinished as ChildFinished
    from .effects import ChildStarted as ChildStarted
    from .effects import ClockRead as ClockRead
    from .effects import DriftNoticed as DriftNoticed
    from .effects import EffectFinished as EffectFinished
    from .effects import EffectStarted as EffectStarted
    from .effects import FactNoted as FactNoted
    from .effects import GateDecided as GateDecided
    from .effects import LimitHit as LimitHit
    from .effects import ModelFailed as ModelFailed
    from .effects import ModelReplied as ModelReplied
    from .effects import ModelRequested as ModelRequested
    from .effects import ModelWaiting as ModelWaiting
    from .effects import PatchDecided as PatchDecided
    from .effects import SleepSet as SleepSet
    from .effects import ToolFinished as ToolFinished
    from .effects import ToolStarted as ToolStarted
    from .entry import EVENT_TYPES as EVENT_TYPES
    from .entry import Entry as Entry
    from .entry import Event as Event
    from .entry import UnknownEvent as UnknownEvent
    from .entry import decode_event as decode_event
    from .entry import encode_body as encode_body
    from .entry import encode_event as encode_event
    from .hooks import HookRan as HookRan
    from .knowledge import KnowledgeUnavailable as KnowledgeUnavailable
    from .lifecycle import restore_answer as restore_answer
    from .payloads import Codec as Codec
    from .payloads import PayloadPlace as PayloadPlace
    from .recovery import CallDeadLettered as CallDeadLettered
    from .recovery import RecoveryTriggered as RecoveryTriggered
    from .recovery import UndoBegun as UndoBegun
    from .recovery import UndoCall as UndoCall
    from .recovery import UndoFinished as UndoFinished
    from .recovery import UndoStarted as UndoStarted
    from .recovery import UnknownOutcomeResolved as UnknownOutcomeResolved
    from .request_records import ContentStored as ContentStored
    from .request_records import RequestChanged as RequestChanged
    from .request_records import RequestRecord as RequestRecord
    from .run import ErrorRecord as ErrorRecord
    from .run import Follows as Follows
    from .run import Question as Question
    from .run import RunFinished as RunFinished
    from .run import RunForked as RunForked
    from .run import RunParked as RunParked
    from .run import RunResumed as RunResumed
    from .run import RunRetried as RunRetried
    from .run import RunStarted as RunStarted
    from .run import RunSuspended as RunSuspended
    from .run import Status as Status
    from .run import StopReason as StopReason
    from .run_settings import RunSettings as RunSettings

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".agents": ("HandedOff", "InstructionsSet"),
            ".branches": (
                "BranchDelivered",
                "BranchesClosed",
                "BranchesOpened",
                "BranchFinished",
                "BranchStarted",
                "TimeoutFired",
                "TimeoutSet",
            ),
            ".control": (
                "CommandReceived",
                "Declassified",
                "FollowedUp",
                "QuestionWithdrawn",
                "RunContinued",
                "RunPaused",
            ),
            ".describe": ("kind_of",),
            ".effects": (
                "AttemptFailed",
                "ModelWaiting",
                "BreakerChanged",
                "CallsProposed",
                "ChildFinished",
                "ChildStarted",
                "ClockRead",
                "DriftNoticed",
                "EffectFinished",
                "EffectStarted",
                "FactNoted",
                "GateDecided",
                "LimitHit",
                "ModelFailed",
                "ModelReplied",
                "ModelRequested",
                "PatchDecided",
                "SleepSet",
                "ToolFinished",
                "ToolStarted",
            ),
            ".entry": (
                "EVENT_TYPES",
                "Entry",
                "Event",
                "UnknownEvent",
                "decode_event",
                "encode_body",
                "encode_event",
            ),
            ".hooks": ("HookRan",),
            ".knowledge": ("KnowledgeUnavailable",),
            ".payloads": ("Codec", "PayloadPlace"),
            ".recovery": (
                "CallDeadLettered",
                "RecoveryTriggered",
                "UndoBegun",
                "UndoCall",
                "UndoFinished",
                "UndoStarted",
                "UnknownOutcomeResolved",
            ),
            ".lifecycle": ("restore_answer",),
            ".request_records": ("ContentStored", "RequestChanged", "RequestRecord"),
            ".run_settings": ("RunSettings",),
            ".run": (
                "ErrorRecord",
                "Follows",
                "Question",
                "RunFinished",
                "RunForked",
                "RunParked",
                "RunResumed",
                "RunRetried",
                "RunStarted",
                "RunSuspended",
                "Status",
                "StopReason",
            ),
        },
    )
