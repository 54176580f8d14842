"""`loopwright.testing` itself: light to import, without a test runner, and with a contract that each name explains."""

import inspect
import json
import subprocess
import sys
from typing import get_args

import pytest

from loopwright import Conversation, Request, testing
from loopwright.testing import (
    ConnectedJournalContract,
    DurableJournalContract,
    EngineContract,
    GateContract,
    ProviderContract,
    ScriptedProvider,
    call,
)

CONTRACTS = (
    EngineContract,
    ProviderContract,
    GateContract,
    DurableJournalContract,
    ConnectedJournalContract,
)


def loaded_after(statements: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some statements."""
    script = f"{statements}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_the_package_alone_loads_nothing() -> None:
    loaded = loaded_after("import loopwright.testing")

    assert {name for name in loaded if name.startswith("loopwright")} == {
        "loopwright", "loopwright._internal", "loopwright._internal.lazy",
        "loopwright.testing",
    }  # fmt: skip


def test_a_scripted_provider_loads_no_runtime_and_no_contract() -> None:
    loaded = loaded_after(
        "from loopwright.testing import ScriptedProvider, call, FakeClock"
    )

    assert (
        not {
            "loopwright.runtime",
            "loopwright.engine",
            "loopwright.testing.crash_harness",
            "httpx",
        }
        & loaded
    )
    assert not any(name.startswith("loopwright.testing.contracts") for name in loaded)


def test_nothing_of_it_needs_a_test_runner() -> None:
    names = ", ".join(testing.__all__)
    loaded = loaded_after(f"from loopwright.testing import {names}")

    assert not {"pytest", "_pytest", "hypothesis", "sqlite3", "httpx"} & loaded


ALIASES = {"Line", "Script"}  # of types: they can have no docstring


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_the_aliases_of_types_are_there(name: str) -> None:
    assert get_args(getattr(testing, name))


@pytest.mark.parametrize(
    "name", [name for name in testing.__all__ if name not in ALIASES]
)
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
def test_every_check_of_a_contract_says_what_it_holds_and_is_a_plain_function(
    check: object,
) -> None:
    assert str(inspect.getdoc(check)).endswith(".")
    assert not inspect.iscoroutinefunction(check)
    assert "journal" not in inspect.signature(check).parameters  # type: ignore[arg-type]


async def test_half_of_a_surrogate_pair_in_a_call_is_streamed_as_in_a_whole_reply() -> (
    None
):
    turn = call("look", what="\ud800", more=["ü", 1.5])
    request = Request(Conversation.of("a"))
    deltas = [delta async for delta in ScriptedProvider([turn]).stream(request)]
    pieces = "".join(delta.call.arguments for delta in deltas if delta.call is not None)

    assert json.loads(pieces) == turn.arguments
    assert deltas[-1].completion == await ScriptedProvider([turn]).complete(request)
