"""A third-party package keeps every contract: its own tests pass in a process of their own, kills included."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.testing import (
    DurableJournalContract,
    EngineContract,
    GateContract,
    ProviderContract,
)
from third_party_package import SOURCE, install_third_party

ROOT = Path(__file__).parents[2]
CONTRACTS: dict[str, type] = {
    "TestTinyEngine": EngineContract,
    "TestTinyEngineOnOurJournal": EngineContract,
    "TestParrotProvider": ProviderContract,
    "TestThriftyGate": GateContract,
    "TestJSONLinesJournal": DurableJournalContract,
}


def checks_of(contract: type) -> list[str]:
    """The names of a contract's checks."""
    return [name for name in dir(contract) if name.startswith("test_")]


NOT_OFFERED = {"TestParrotProvider::test_several_replies_come_by_one_request"}
"""What a plug-in need not do: the parrot gives one reply to a request."""


@pytest.mark.timeout(600)
def test_its_own_tests_pass_against_the_contracts_kill_and_resume_included() -> None:
    path = os.pathsep.join((str(install_third_party()), str(ROOT / "src")))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pyproject.toml",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
    ]
    done = subprocess.run(
        [*command, "-v"],
        cwd=SOURCE,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    passed = set(re.findall(r"::(\w+::\w+) PASSED", done.stdout))
    promised = {
        f"{name}::{check}"
        for name, contract in CONTRACTS.items()
        for check in checks_of(contract)
    }
    skipped = set(re.findall(r"::(\w+::\w+) SKIPPED", done.stdout))
    assert promised - passed == skipped == NOT_OFFERED
