"""What Acme promises of its plug-ins: the contracts of Loopwright, and what is Acme's own."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from acme_loops.engines import TinyEngine
from acme_loops.gates import ThriftyGate
from acme_loops.journals import JSONLinesJournal
from acme_loops.providers import ParrotProvider

from loopwright import (
    Journal,
    LoopEngine,
    PolicyGate,
    Provider,
    Runtime,
    available_engines,
)
from loopwright.plugins import build_gate, build_journal, build_provider, build_tools
from loopwright.testing import (
    DurableJournalContract,
    EngineContract,
    GateContract,
    ProviderContract,
)


class TestTinyEngine(EngineContract):
    def engine(self, runtime: Runtime) -> LoopEngine:
        return TinyEngine(runtime)


class TestTinyEngineOnOurJournal(EngineContract):
    """Killed on a journal of our own."""

    def engine(self, runtime: Runtime) -> LoopEngine:
        return TinyEngine(runtime, max_iterations=7)

    def journal(self, folder: Path) -> Journal:
        return JSONLinesJournal(folder / "runs")


class TestParrotProvider(ProviderContract):
    def provider(self) -> Provider:
        return ParrotProvider("green")

    def failing(self) -> Iterable[Provider]:
        yield ParrotProvider("mute")


class TestThriftyGate(GateContract):
    def gate(self) -> PolicyGate:
        return ThriftyGate("3")

    def broken(self) -> Iterable[PolicyGate]:
        yield ThriftyGate("0")


class TestJSONLinesJournal(DurableJournalContract):
    def journal(self, folder: Path) -> Journal:
        return JSONLinesJournal(folder / "runs")


def test_all_five_are_found_by_their_names(tmp_path: Path) -> None:
    runtime = Runtime(
        "acme:grey", tools=build_tools("desk:de"), gate=build_gate("thrifty:1")
    )
    result = runtime.engine("tiny", max_iterations=4).run_sync("Hello")

    assert available_engines()["tiny"].distribution == "acme-loops"
    assert isinstance(build_provider("acme"), ParrotProvider)
    assert isinstance(build_journal(f"jsonl:{tmp_path}"), JSONLinesJournal)
    assert result.answer == "HELLO, JAWOHL!, krah!"


def test_a_line_that_a_crash_cut_off_is_none(tmp_path: Path) -> None:
    runtime = Runtime("acme:grey", journal=JSONLinesJournal(tmp_path))
    TinyEngine(runtime).run_sync("Hello", run_id="r")
    (path,) = tmp_path.glob("*.jsonl")
    entries = JSONLinesJournal(tmp_path).read("r")
    with path.open("a") as file:
        file.write('{"entries": [{"run_')

    assert JSONLinesJournal(tmp_path).read("r") == entries


@pytest.mark.parametrize("change", ["answer", "hash"])
def test_a_change_of_the_file_is_found(change: str, tmp_path: Path) -> None:
    journal = JSONLinesJournal(tmp_path)
    TinyEngine(Runtime("acme:grey", journal=journal)).run_sync("Hello", run_id="r")
    (path,) = tmp_path.glob("*.jsonl")
    entry = journal.read("r")[2]
    old = {"answer": f'"kind": "{entry.kind}"', "hash": entry.hash}[change]
    new = {"answer": '"kind": "another"', "hash": "0" * 64}[change]
    path.write_text(path.read_text().replace(old, new))

    assert journal.verify("r").ok is False
