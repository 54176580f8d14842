"""Forks with other words or another engine, the models of a run's parts, and approvals that its rule does not count."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from console_server import client_of, headers_of
from loopwright import ReActEngine, Runtime, Suspend, tool
from loopwright.agents import SettingsEditor
from loopwright.console import Console
from loopwright.events import RunStarted
from loopwright.journals import SQLiteJournal
from loopwright.principals import ApprovalRule, Principal
from loopwright.settings import MemorySettings
from loopwright.testing import ScriptedProvider, call
from waiting import eventually


@tool(effect="destructive")
async def order(item: str) -> str:
    """Order something."""
    return f"one {item}"


@tool(effect="read", label="sensitive")
async def pay() -> str:
    """Look the pay up."""
    return "the pay is 9"


def build_runtime(path: Path, provider: ScriptedProvider, **more: Any) -> Runtime:
    journal = SQLiteJournal(path / "runs.db")
    return Runtime(provider, tools=[order, pay], journal=journal, approver=Suspend(expires=3600), **more)  # fmt: skip


def connect(console: Console) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(console.app)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers_of(console))  # fmt: skip


def find_status(runtime: Runtime, run_id: str) -> str:
    return {one.run_id: one.status for one in runtime.journal.runs()}.get(run_id, "")


@pytest.mark.parametrize("text", ["", "Take a chair."], ids=["as it was", "words"])
async def test_a_fork_continues_with_the_words_of_a_person(
    tmp_path: Path, text: str
) -> None:
    provider = ScriptedProvider([call("order", item="lamp"), "Forked."])
    runtime = build_runtime(tmp_path, provider)
    await ReActEngine(runtime).run("Order.", run_id="lamps")
    await runtime.control("lamps").pause(by="Ada")  # a command to the run, not the fork
    async with connect(Console(runtime, user="Ada")) as client:
        body = {"run": "lamps", "action": "fork", "at": 1, "text": text}
        fork = (await client.post("/api/control", json=body)).json()["run"]
        await eventually(lambda: find_status(runtime, fork) == "completed")
        shown = (await client.get(f"/api/run?run={fork}")).json()

    asked = [one.content for one in provider.requests[-1].conversation]
    assert (shown["parent_run"], shown["answer"]) == ("lamps", "Forked.")
    assert any("Take a chair." in one for one in asked) is bool(text)
    assert find_status(runtime, "lamps") == "waiting"


async def test_another_engine_works_on_the_whole_conversation_of_a_turn(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider([call("pay"), "It is 9.", "Nine.", "A thought.", "9"])
    runtime = build_runtime(tmp_path, provider)
    thread = runtime.agent("clerk").thread("t")
    await thread.run("What is the pay?")
    last = await thread.run("Say it again.")
    async with connect(Console(runtime, user="Ada")) as client:
        body = {"run": last.run_id, "action": "fork", "at": 2, "engine": "chain-of-thought"}  # fmt: skip
        begun = (await client.post("/api/control", json=body)).json()["run"]
        await eventually(lambda: find_status(runtime, begun) == "completed")

    started = runtime.journal.read(begun)[0].event
    assert isinstance(started, RunStarted)
    said = [one.content for one in started.messages if one.content]
    assert said == ["What is the pay?", "the pay is 9", "It is 9.", "Say it again."]
    assert (started.label, started.untrusted) == ("sensitive", True)


async def test_a_fork_with_another_engine_works_anew_on_the_task(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider([call("order", item="lamp"), "A thought.", "two"])
    runtime = build_runtime(tmp_path, provider)
    await ReActEngine(runtime).run("How many?", run_id="lamps")
    async with connect(Console(runtime, user="Ada")) as client:
        body = {"run": "lamps", "action": "fork", "at": 3, "engine": "chain-of-thought", "text": "Be brief."}  # fmt: skip
        begun = (await client.post("/api/control", json=body)).json()["run"]
        await eventually(lambda: find_status(runtime, begun) == "completed")
        unknown = await client.post("/api/control", json={**body, "engine": "none"})

    started = runtime.journal.read(begun)[0].event
    assert isinstance(started, RunStarted)
    assert started.engine == "chain-of-thought"
    assert [one.content for one in started.messages] == ["How many?", "Be brief."]
    assert started.tags == {"begun-again-from": "lamps", "started-by": "Ada"}
    assert (unknown.status_code, "none" in unknown.json()["error"]) == (409, True)


async def test_a_run_is_named_to_the_page_once_the_journal_has_it(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, ScriptedProvider(["Hi.", "Hello."]))
    await ReActEngine(runtime).run("Greet.", run_id="first")
    task = {"engine": "react", "text": "Hi."}
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as other:  # fmt: skip
        async with connect(Console(runtime, user="Ada")) as client:
            other.execute("BEGIN IMMEDIATE")  # a process that writes for long
            begun = asyncio.create_task(client.post("/api/start", json=task))
            done, _ = await asyncio.wait({begun}, timeout=0.3)
            if not done:
                other.execute("ROLLBACK")
            run = (await begun).json()["run"]
            shown = await client.get(f"/api/run?run={run}")

    assert shown.status_code == 200


async def test_a_started_engine_uses_the_model_that_is_chosen_for_a_part(
    tmp_path: Path,
) -> None:
    heavy = ScriptedProvider(["No plan."] * 9)
    runtime = build_runtime(tmp_path, ScriptedProvider(["Done."] * 9), providers={"heavy": heavy})  # fmt: skip
    task = {"engine": "plan-execute", "text": "Order."}
    async with connect(Console(runtime, user="Ada")) as client:
        session = (await client.get("/api/session")).json()
        sent = {**task, "models": {"planner": "heavy"}}
        run = (await client.post("/api/start", json=sent)).json()["run"]
        await eventually(lambda: heavy.requests != [])
        await eventually(lambda: find_status(runtime, run) != "running")
        wrong: list[Any] = [{"planner": "light"}, {"prompts": "heavy"}, ["heavy"]]
        refused = [
            await client.post("/api/start", json={**task, "models": models})
            for models in wrong
        ]

    started = runtime.journal.read(run)[0].event
    assert isinstance(started, RunStarted)
    assert started.options["planner"] == "heavy"
    assert session["served"] == {"": "scripted/script", "heavy": "scripted/script"}
    assert (session["models"], "planner" in session["parts"]["plan-execute"]) == (["heavy"], True)  # fmt: skip
    assert [one.status_code for one in refused] == [409, 409, 409]
    assert "uses models for planner" in refused[1].json()["error"]


@pytest.mark.parametrize("who", [{"engine": "react"}, {"agent": "shop"}], ids=str)
async def test_a_started_run_keeps_the_model_that_is_chosen_for_it(
    tmp_path: Path, who: dict[str, str]
) -> None:
    main, heavy = ScriptedProvider([]), ScriptedProvider([call("order", item="lamp")])
    runtime = build_runtime(tmp_path, main, providers={"heavy": heavy})
    runtime.agent("shop")
    task = {**who, "text": "Order.", "models": {"model": "heavy"}}
    async with connect(Console(runtime, user="Ada")) as client:
        run = (await client.post("/api/start", json=task)).json()["run"]
        await eventually(lambda: find_status(runtime, run) == "waiting")
        part = {**task, "models": {"planner": "heavy"}}
        refused = await client.post("/api/start", json=part)
    later = ScriptedProvider(["Ordered."])
    resuming = build_runtime(tmp_path, main, providers={"heavy": later})
    resuming.agent("shop")
    await resuming.control(run).deny("0#0", "No lamps.")
    result = await resuming.resume(run)

    assert (result.answer, len(later.requests), main.requests) == ("Ordered.", 1, [])
    assert (refused.status_code, "uses models for model" in refused.text) == (409, True)


@pytest.mark.parametrize("name", ["engine.react.model", "agent.shop.model"])
async def test_a_model_is_refused_in_place_of_which_the_settings_have_another(
    tmp_path: Path, name: str
) -> None:
    models = {"heavy": ScriptedProvider([]), "light": ScriptedProvider(["Done."])}
    runtime = build_runtime(
        tmp_path, ScriptedProvider([]), providers=models, settings=MemorySettings()
    )
    runtime.agent("shop")
    await SettingsEditor(runtime, Principal("root", roles=("admin",))).write({name: "light"}, reason="")  # fmt: skip
    task = {"agent": "shop", "text": "Order."}
    async with connect(Console(runtime, user="Ada")) as client:
        refused, begun = [
            await client.post("/api/start", json={**task, "models": {"model": one}})
            for one in ("heavy", "light")
        ]
        run = begun.json()["run"]
        await eventually(lambda: find_status(runtime, run) == "completed")

    assert refused.status_code == 409
    assert (
        f"would be 'light' by the setting {name}, got 'heavy'"
        in refused.json()["error"]
    )
    assert models["heavy"].requests == []


@pytest.mark.parametrize(
    ("who", "reason"),
    [("ann", "approvals of a person, not who started the run alone"), ("bob", "")],
)
async def test_who_started_a_run_cannot_approve_it_where_its_rule_says_so(
    tmp_path: Path, who: str, reason: str
) -> None:
    provider = ScriptedProvider([call("order", item="lamp"), "Done."])
    runtime = build_runtime(tmp_path, provider)
    ann = Principal("ann", "acme")
    await ReActEngine(runtime).run(
        "Order.", run_id="lamps", principal=ann, approvals=ApprovalRule(not_starter=True)
    )  # fmt: skip
    user = Principal(who, "acme", ("approve",))
    with client_of(Console(runtime, user=lambda request: user)) as client:
        reasons = client.get("/api/run?run=lamps").json()["reasons"]
        body = {"run": "lamps", "action": "approve", "question": "0#0"}
        answer = client.post("/api/control", json=body)

    assert reason in reasons["approve"]
    assert (reasons["approve"] == "", reasons["deny"]) == (reason == "", "")
    assert answer.status_code == (409 if reason else 200)
