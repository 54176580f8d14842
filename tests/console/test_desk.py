"""Settings, schedules and tools on the console, and who asked for a run to be resumed or forked."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from console_server import client_of, headers_of
from loopwright import MemoryJournal, ReActEngine, Runtime, Suspend, tool
from loopwright.console import Console
from loopwright.events import RunForked, RunResumed, RunStarted
from loopwright.journals import SQLiteJournal
from loopwright.settings import SQLiteSettings
from loopwright.testing import ScriptedProvider, call
from waiting import eventually


@tool(effect="destructive")
async def order(item: str, count: int = 1, speed: Literal["slow", "fast"] = "slow") -> str:  # fmt: skip
    """Order something."""
    return f"{count} {item}"


def build_runtime(path: Path, *script: Any) -> Runtime:
    runtime = Runtime(
        ScriptedProvider(list(script)),
        tools=[order],
        journal=SQLiteJournal(path / "runs.db"),
        approver=Suspend(expires=3600),
        settings=SQLiteSettings(path / "settings.db"),
    )
    runtime.agent("guide", instructions="Be friendly.")
    return runtime


async def test_a_setting_is_checked_changed_read_by_the_next_run_and_reverted(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, "Yes.", "Yes.", "Yes.")
    name = "agent.guide.instructions"
    limit = "agent.guide.limits.max_llm_calls"
    await runtime.agents["guide"].run("Well?", run_id="before")
    with client_of(Console(runtime, user="Ada")) as client:

        def post(**body: Any) -> httpx.Response:
            return client.post("/api/settings", json=body)

        known = client.get("/api/settings").json()
        wrong = post(changes={limit: 10**6}, check=True)
        checked = post(changes={limit: 5}, check=True)
        made = post(changes={name: "Be short."}, reason="complaints", expected=0)
        late = post(changes={name: "Be long."}, expected=0)
        now = client.get("/api/settings").json()
        result = await runtime.agents["guide"].run("Well?", run_id="after")
        shown = client.get("/api/run?run=after").json()["settings"]
        back = post(revert=0, expected=1)
        history = client.get("/api/settings").json()["history"]

    owners = {one["owner"]: one["settings"] for one in known["owners"]}
    [of_agent] = [one for one in owners["agent.guide"] if one["name"] == name]
    assert (known["version"], of_agent["value"], of_agent["is_set"]) == (0, "Be friendly.", False)  # fmt: skip
    assert any(one["name"] == "engine.react.enabled" for one in owners["engine.react"])
    assert (wrong.status_code, checked.json()["version"]) == (409, 0)
    assert "the limit of the code" in wrong.json()["error"]
    assert (made.json()["version"], late.status_code) == (1, 409)
    assert "expected=0" in late.json()["error"]
    [changed] = [one for group in now["owners"] for one in group["settings"] if one["is_set"]]  # fmt: skip
    assert (changed["name"], changed["value"]) == (name, "Be short.")
    started = runtime.journal.read(result.run_id)[0].event
    assert isinstance(started, RunStarted)
    assert started.settings is not None
    assert (started.settings.version, shown) == (1, 1)
    assert back.json()["version"] == 2
    assert [one["by"] for one in history] == ["Ada", "Ada"]
    assert [one["reason"] for one in history] == ["as in version 0", "complaints"]


async def test_every_listed_setting_may_be_written_as_it_is(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path)
    with client_of(Console(runtime, user="Ada")) as client:
        owners = client.get("/api/settings").json()["owners"]
        given = {one["name"]: one["code"] for group in owners for one in group["settings"]}  # fmt: skip
        body = {"changes": given, "check": True}
        checked = client.post("/api/settings", json=body)

    assert len(given) > 300
    assert checked.json() == {"version": 0}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"changes": {}},
        {"changes": {"engine.react.gate": 1}},
        {"changes": {"engine.react.enabled": 1}},
        {"revert": "1"},
        {"revert": 9},
        {"changes": {"engine.react.enabled": True}, "reason": 7},
        {"changes": {"engine.react.enabled": True}, "expected": "0"},
    ],
)
async def test_bad_settings_are_refused_with_a_reason(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    runtime = build_runtime(tmp_path)
    with client_of(Console(runtime, user="Ada")) as client:
        answer = client.post("/api/settings", json=body)

    assert answer.status_code == 409
    assert answer.json()["error"]
    assert runtime.settings is not None
    assert runtime.settings.read().version == 0


async def test_what_is_not_there_says_why(tmp_path: Path) -> None:
    with client_of(Console(MemoryJournal(), user="Ada")) as client:
        missing = client.get("/api/session").json()["missing"]
        settings = client.get("/api/settings")

    assert "--config agents.toml" in missing["settings"]
    assert "--config agents.toml" in missing["start"]
    assert settings.status_code == 409


async def test_a_schedule_is_added_paused_run_and_deleted(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path, "Done.")
    given = {
        "action": "add",
        "name": "daily",
        "agent": "guide",
        "task": "Sum up.",
        "cron": "0 9 * * 1-5",
        "zone": "Europe/Berlin",
    }
    with client_of(Console(runtime, user="Ada")) as client:

        def post(action: str) -> httpx.Response:
            body = {"action": action, "name": "daily"}
            return client.post("/api/schedule", json=body)

        assert client.post("/api/schedule", json=given).is_success
        [added] = client.get("/api/schedules").json()["schedules"]
        assert post("pause").is_success
        [paused] = client.get("/api/schedules").json()["schedules"]
        assert post("unpause").is_success
        run_id = post("run").json()["run"]
        await runtime.drain()
        [ran] = client.get("/api/schedules").json()["schedules"]
        assert post("delete").is_success
        left = client.get("/api/schedules").json()["schedules"]
        unknown = post("pause")
        wrong = client.post("/api/schedule", json={**given, "cron": "0 25 * * *"})
        nobody = client.post("/api/schedule", json={**given, "agent": "nobody"})

    assert (added["by"], added["next_at"] > 0, added["paused"]) == ("Ada", True, False)
    assert (paused["paused"], paused["next_at"]) == (True, None)
    assert (ran["last_run"], ran["last_status"]) == (run_id, "completed")
    assert left == []
    assert {unknown.status_code, wrong.status_code, nobody.status_code} == {409}
    assert "cron:" in wrong.json()["error"]


async def test_a_journal_without_a_runtime_has_schedules_too(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path)
    given = {"action": "add", "name": "daily", "agent": "react", "task": "Sum up.", "cron": "0 9 * * *"}  # fmt: skip
    with client_of(Console(runtime.journal, user="Ada")) as client:
        assert client.post("/api/schedule", json=given).is_success

    assert [one.name for one in await runtime.schedules.list()] == ["daily"]


async def test_tools_have_the_schemas_that_the_model_was_offered(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, call("order", item="lamp"), "Done.")
    await ReActEngine(runtime).run("Order.", run_id="lamps")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        [offered] = client.get("/api/tools?run=lamps").json()["tools"]

    assert (offered["name"], offered["description"]) == ("order", "Order something.")
    assert list(offered["schema"]["properties"]) == ["item", "count", "speed"]


async def test_a_resumed_run_and_a_fork_name_who_asked_for_it(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path, call("order", item="lamp"), "Done.", "Done.")
    await ReActEngine(runtime).run("Order.", run_id="lamps")
    await runtime.control("lamps").deny("0#0", by="Ada")
    console = Console(runtime, user="Ada")
    transport = httpx.ASGITransport(console.app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers_of(console)
    ) as client:
        body: dict[str, Any] = {"run": "lamps", "action": "resume"}
        assert (await client.post("/api/control", json=body)).is_success
        await eventually(lambda: find_status(runtime, "lamps") == "completed")
        body = {"run": "lamps", "action": "fork", "at": 4}
        fork = (await client.post("/api/control", json=body)).json()["run"]
        await eventually(lambda: find_status(runtime, fork) != "suspended")

    resumed = [one.event for one in runtime.journal.read("lamps")]
    forked = [one.event for one in runtime.journal.read(fork)]
    assert [one.by for one in resumed if isinstance(one, RunResumed)] == ["Ada"]
    assert [one.by for one in forked if isinstance(one, RunForked)] == ["Ada"]


def find_status(runtime: Runtime, run_id: str) -> str:
    return {one.run_id: one.status for one in runtime.journal.runs()}[run_id]


async def test_a_run_that_is_started_from_the_page_names_who_did(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, "Done.")
    with client_of(Console(runtime, user="Ada")) as client:
        body = {"engine": "react", "text": "Rest."}
        run_id = client.post("/api/start", json=body).json()["run"]

    started = runtime.journal.read(run_id)[0].event
    assert isinstance(started, RunStarted)
    assert started.tags == {"started-by": "Ada"}


CONFIG = """
[runtime]
provider = "model"
journal = "runs.db"
settings = "settings.db"

[providers.model]
provider = "openai"
model = "m"
base_url = "http://127.0.0.1:9"
api_key = "none"

[agents.guide]
instructions = "Be friendly."
"""


async def test_the_command_serves_the_runtime_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_text(CONFIG)
    command = ["-m", "loopwright", "console", "--config", "agents.toml"]
    environment = {**os.environ, "LOOPWRIGHT_CONSOLE_TOKEN": "t" * 40}
    served = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=tmp_path, env=environment, stderr=asyncio.subprocess.PIPE
    )  # fmt: skip
    try:
        assert served.stderr is not None
        line = (await served.stderr.readline()).decode()
        found = re.search(r"http://[^/]+", line)
        assert found is not None, line + (await served.stderr.read()).decode()
        headers = {"X-Loopwright-Console": "1", "Authorization": "Bearer " + "t" * 40}
        async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
            session = (await client.get(f"{found[0]}/api/session")).json()
            added = await client.post(
                f"{found[0]}/api/settings", json={"changes": {"agent.guide.enabled": False}}
            )  # fmt: skip
    finally:
        served.terminate()
        await served.wait()

    assert (session["runtime"], session["agents"]) == (True, ["guide"])
    assert session["missing"] == {"settings": "", "schedules": "", "start": ""}
    assert added.json() == {"version": 1}
    assert (tmp_path / "settings.db").exists()
