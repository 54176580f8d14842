"""Support for tests: scripted models, cassettes, a controlled clock, crashes, and the contracts of plug-ins."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .cassette_file import Cassette as Cassette
    from .cassettes import RecordingProvider as RecordingProvider
    from .cassettes import ReplayingProvider as ReplayingProvider
    from .cassettes import cassette as cassette
    from .clock import FakeClock as FakeClock
    from .contracts.async_journals import AsyncJournalContract as AsyncJournalContract
    from .contracts.connected_journals import (
        ConnectedJournalContract as ConnectedJournalContract,
    )
    from .contracts.durable_journals import (
        DurableJournalContract as DurableJournalContract,
    )
    from .contracts.engines import EngineContract as EngineContract
    from .contracts.gates import GateContract as GateContract
    from .contracts.journals import JournalContract as JournalContract
    from .contracts.knowledge import KnowledgeContract as KnowledgeContract
    from .contracts.providers import ProviderContract as ProviderContract
    from .crash_harness import kill_everywhere as kill_everywhere
    from .crash_harness import witness as witness
    from .crash_harness import witnessed as witnessed
    from .journal_cassette import cassette_from_journal as cassette_from_journal
    from .replay_report import ReplayReport as ReplayReport
    from .replay_report import replay_check as replay_check
    from .requests import CassetteMiss as CassetteMiss
    from .scripted import Line as Line
    from .scripted import Script as Script
    from .scripted import ScriptedProvider as ScriptedProvider
    from .scripted import call as call
    from .simulation.faults import Faults as Faults
    from .simulation.runner import SimulationFailed as SimulationFailed
    from .simulation.runner import SimulationReport as SimulationReport
    from .simulation.runner import simulate as simulate
    from .truncated_journal import crashed as crashed

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".contracts.async_journals": ("AsyncJournalContract",),
            ".cassette_file": ("Cassette",),
            ".cassettes": (
                "RecordingProvider",
                "ReplayingProvider",
                "cassette",
            ),
            ".clock": ("FakeClock",),
            ".contracts.engines": ("EngineContract",),
            ".contracts.gates": ("GateContract",),
            ".contracts.connected_journals": ("ConnectedJournalContract",),
            ".contracts.durable_journals": ("DurableJournalContract",),
            ".contracts.journals": ("JournalContract",),
            ".contracts.knowledge": ("KnowledgeContract",),
            ".contracts.providers": ("ProviderContract",),
            ".crash_harness": ("kill_everywhere", "witness", "witnessed"),
            ".journal_cassette": ("cassette_from_journal",),
            ".replay_report": ("ReplayReport", "replay_check"),
            ".requests": ("CassetteMiss",),
            ".scripted": ("Line", "Script", "ScriptedProvider", "call"),
            ".simulation.faults": ("Faults",),
            ".simulation.runner": (
                "SimulationFailed",
                "SimulationReport",
                "simulate",
            ),
            ".truncated_journal": ("crashed",),
        },
    )
