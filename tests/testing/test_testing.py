"""`loopwright.testing` itself: light to import, without a test runner, and with a contract that each name explains."""

import inspect
import json
import subprocess
import sys

import pytest

from loopwright import testing
from loopwright.testing import DurableJournalContract, EngineContract, GateContract, ProviderContract

CONTRACTS = (EngineContract, ProviderContract, GateContract, DurableJournalContract)


def loaded_after(statements: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some statements."""
    script = f"{statements}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_package_alone_loads_nothing() -> None:
    loaded = loaded_after("import loopwright.testing")

    assert {name for name in loaded if name.startswith("loopwright")} == {
        "loopwright", "loopwright.lazy", "loopwright.testing",
    }  # fmt: skip


def test_a_scripted_provider_loads_no_runtime_and_no_contract() -> None:
    loaded = loaded_after("from loopwright.testing import ScriptedProvider, call, FakeClock")

    assert not {"loopwright.runtime", "loopwright.engine", "loopwright.testing.killing", "httpx"} & loaded
    assert not any(name.startswith("loopwright.testing.contracts") for name in loaded)


def test_nothing_of_it_needs_a_test_runner() -> None:
    names = ", ".join(testing.__all__)
    loaded = loaded_after(f"from loopwright.testing import {names}")

    assert not {"pytest", "_pytest", "hypothesis", "sqlite3", "httpx"} & loaded


@pytest.mark.parametrize("name", testing.__all__)
def test_every_name_is_there_and_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(testing, name))


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(getattr(contract, name), id=f"{contract.__name__}.{name}")
        for contract in CONTRACTS
        for name in dir(contract)
        if name.startswith("test_")
    ],
)
def test_every_check_of_a_contract_says_what_it_holds_and_is_a_plain_function(check: object) -> None:
    assert str(inspect.getdoc(check)).endswith(".")
    assert not inspect.iscoroutinefunction(check)
    assert "journal" not in inspect.signature(check).parameters  # type: ignore[arg-type]
