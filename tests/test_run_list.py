"""`Runtime.runs`: the runs of a journal, and what a process lacks to resume each."""

from pathlib import Path

import pytest

from function_engine import FunctionEngine
from loopwright import (
    MemoryJournal,
    ReActEngine,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    tool,
)
from loopwright.errors import ConfigError
from loopwright.journals import Journal, RunFilter, SQLiteJournal
from loopwright.testing import ScriptedProvider, call


@tool(effect="destructive")
async def erase(what: str) -> str:
    """Erase."""
    return "gone"


async def wait(run: Run) -> object:
    """Wait for a person."""
    return (await run.call(ToolCall("erase", {"what": "x"}))).content


def runtime(journal: Journal, version: str = "") -> Runtime:
    provider = ScriptedProvider([call("erase", what="x")])
    return Runtime(
        provider,
        tools=[erase],
        journal=journal,
        approver=Suspend(),
        app_version=version,
    )


async def fill(journal: Journal) -> None:
    """Begin a run of an engine that no distribution registers, and waiting runs of three versions."""
    await FunctionEngine(runtime(journal), body=wait).run("Go.", run_id="unknown")
    for version in ("", "1", "2"):
        name = f"react-{version}"
        await ReActEngine(runtime(journal, version)).run("Go.", run_id=name)
    ended = Runtime(ScriptedProvider(["done"]), journal=journal, app_version="1")
    await ReActEngine(ended).run("Go.", run_id="ended")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_run_that_cannot_be_resumed_here_is_listed_as_such(
    kind: str, tmp_path: Path
) -> None:
    journal = MemoryJournal() if kind == "memory" else SQLiteJournal(tmp_path / "r.db")
    await fill(journal)

    async def missing(version: str, *accepts: str) -> dict[str, str]:
        listed = await runtime(journal, version).runs(accepts=accepts)
        return {run.info.run_id: run.missing for run in listed if run.missing}

    assert await missing("") == {"unknown": "engine"}
    assert await missing("2") == {
        "unknown": "engine",
        "react-": "version",
        "react-1": "version",
    }
    assert await missing("2", "1", "") == {"unknown": "engine"}
    await journal.close()


async def test_an_engine_of_ones_own_is_not_missing_where_it_is_passed() -> None:
    journal = MemoryJournal()
    await fill(journal)
    code = FunctionEngine(runtime(journal), body=wait)

    listed = await runtime(journal).runs(engines=[code])

    assert {run.missing for run in listed} == {""}


async def test_runs_are_selected_and_listed_page_by_page() -> None:
    journal = MemoryJournal()
    await fill(journal)
    services = runtime(journal)

    waiting = RunFilter(status="waiting")
    first = await services.runs(waiting, limit=2)
    second = await services.runs(waiting, limit=9, before=first[-1].info.run_id)

    assert [run.info.run_id for run in first] == ["react-2", "react-1"]
    assert [run.info.run_id for run in second] == ["react-", "unknown"]


async def test_versions_that_are_accepted_need_a_version_of_ones_own() -> None:
    with pytest.raises(ConfigError, match=r"^accepts: a worker without a version"):
        await runtime(MemoryJournal()).runs(accepts=["1"])
