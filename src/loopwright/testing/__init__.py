"""What tests need: scripted models, cassettes, a clock that stands still, crashes, and the contracts of plug-ins."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazily

if TYPE_CHECKING:
    from .cassettes import Cassette as Cassette
    from .cassettes import RecordingProvider as RecordingProvider
    from .cassettes import ReplayingProvider as ReplayingProvider
    from .cassettes import cassette as cassette
    from .clock import FakeClock as FakeClock
    from .contracts.engines import EngineContract as EngineContract
    from .contracts.gates import GateContract as GateContract
    from .contracts.journals import DurableJournalContract as DurableJournalContract
    from .contracts.journals import JournalContract as JournalContract
    from .contracts.providers import ProviderContract as ProviderContract
    from .crash_harness import kill_everywhere as kill_everywhere
    from .crash_harness import witness as witness
    from .crash_harness import witnessed as witnessed
    from .journal_cassette import cassette_from_journal as cassette_from_journal
    from .requests import CassetteMiss as CassetteMiss
    from .scripted import Line as Line
    from .scripted import Script as Script
    from .scripted import ScriptedProvider as ScriptedProvider
    from .scripted import call as call
    from .truncated_journal import crashed as crashed

__all__ = [
    "Cassette",
    "CassetteMiss",
    "DurableJournalContract",
    "EngineContract",
    "FakeClock",
    "GateContract",
    "JournalContract",
    "Line",
    "ProviderContract",
    "RecordingProvider",
    "ReplayingProvider",
    "Script",
    "ScriptedProvider",
    "call",
    "cassette",
    "cassette_from_journal",
    "crashed",
    "kill_everywhere",
    "witness",
    "witnessed",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __getattr__ = lazily(
        __name__,
        {
            "Cassette": ".cassettes",
            "CassetteMiss": ".requests",
            "DurableJournalContract": ".contracts.journals",
            "EngineContract": ".contracts.engines",
            "FakeClock": ".clock",
            "GateContract": ".contracts.gates",
            "JournalContract": ".contracts.journals",
            "Line": ".scripted",
            "ProviderContract": ".contracts.providers",
            "RecordingProvider": ".cassettes",
            "ReplayingProvider": ".cassettes",
            "Script": ".scripted",
            "ScriptedProvider": ".scripted",
            "call": ".scripted",
            "cassette": ".cassettes",
            "cassette_from_journal": ".journal_cassette",
            "crashed": ".truncated_journal",
            "kill_everywhere": ".crash_harness",
            "witness": ".crash_harness",
            "witnessed": ".crash_harness",
        },
    )
