"""Who may do what on the console: roles and tenants of principals, and the access file that records looks and deletions."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from console_server import client_of
from loopwright import (
    Completion,
    ConfigError,
    Delta,
    ReActEngine,
    Request,
    Runtime,
    Suspend,
    tool,
)
from loopwright.console import Console, check_access
from loopwright.console.service import ConsoleService
from loopwright.console.users import ConsoleUser
from loopwright.journals import SQLiteJournal
from loopwright.principals import Principal
from loopwright.security import AESCodec, CommandSigner, HmacSigner
from loopwright.testing import Line, ScriptedProvider, call
from waiting import eventually

ANN = Principal("ann", "acme", ("buyer",))
EVE = Principal("eve", "umbrella", ("admin",))
SECRET = "0123456789abcdef0123456789abcdef"


@tool(effect="destructive")
async def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool(effect="read", label="secret")
async def read_key() -> str:
    """Read a key."""
    return "the key is hunter2"


def build_runtime(path: Path, *script: Any, **more: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(list(script)),
        tools=[delete, read_key],
        journal=SQLiteJournal(path),
        approver=Suspend(expires=3600),
        **more,
    )


async def fill_journal(path: Path, **more: Any) -> Runtime:
    """Return a runtime whose journal has a waiting run and a thread of acme, and a run of umbrella."""
    asked = call("delete", path="old.txt")
    runtime = build_runtime(path, asked, "Hello.", "Done.", **more)
    await ReActEngine(runtime).run("Tidy up acme.", run_id="acme-1", principal=ANN)
    await runtime.agent("guide").thread("talk").run("Hi.", principal=ANN)
    await ReActEngine(runtime).run("Tidy up.", run_id="umbrella-1", principal=EVE)
    return runtime


@contextmanager
def asking(runtime: Runtime, user: Principal, **more: Any) -> Generator[httpx.Client]:
    with client_of(Console(runtime, user=lambda request: user, **more)) as client:
        yield client


def control(client: httpx.Client, run: str, action: str, **more: Any) -> httpx.Response:
    return client.post("/api/control", json={"run": run, "action": action, **more})


async def test_a_principal_sees_the_runs_of_its_tenant_alone(tmp_path: Path) -> None:
    runtime = await fill_journal(tmp_path / "runs.db")
    paths = [
        "run?run=acme-1", "entries?run=acme-1", "entry?run=acme-1&seq=1", "search?run=acme-1&text=a",
        "tools?run=acme-1", "verify?run=acme-1", "events?run=acme-1", "words?run=acme-1",
    ]  # fmt: skip
    with asking(runtime, EVE) as client:
        runs = client.get("/api/runs").json()
        asked = client.get("/api/questions").json()["questions"]
        threads = client.get("/api/threads").json()["threads"]
        turns = client.get("/api/thread?thread=talk").json()["turns"]
        costs = client.get("/api/costs").json()["rows"]
        others = client.get("/api/runs?tag=tenant%3Dacme").status_code
        refused = {path: client.get(f"/api/{path}").status_code for path in paths}
        steered = control(client, "acme-1", "steer", text="Stop.").status_code
        gone = client.post("/api/delete", json={"run": "acme-1"}).status_code
        shown = client.post("/api/reveal", json={"run": "acme-1"}).status_code

    assert [run["run_id"] for run in runs["runs"]] == ["umbrella-1"]
    assert (runs["counts"], asked, threads, turns) == ({"completed": 1}, [], [], [])
    assert sum(row["calls"] for row in costs) == 1
    assert (others, set(refused.values())) == (403, {404})
    assert (steered, gone, shown) == (404, 404, 404)
    assert runtime.journal.inbox("acme-1") == []


async def test_news_name_the_runs_of_a_users_tenant_alone(tmp_path: Path) -> None:
    runtime = await fill_journal(tmp_path / "runs.db")
    service = ConsoleService(runtime.journal, runtime)
    both = ["acme-1", "umbrella-1", "deleted"]
    seen = [
        service.select_runs(both, ConsoleUser(who))
        for who in ("Ada", ANN, Principal("root"))
    ]

    assert seen == [sorted(both), ["acme-1"], sorted(both)]


@pytest.mark.parametrize(
    ("roles", "done"),
    [
        ((), set[str]()),
        (("view",), set[str]()),
        (("operate",), {"steer", "message"}),
        (("approve",), {"approve"}),
        (("admin",), {"steer", "message", "approve", "reveal", "schedule"}),
        (("desk",), {"steer", "message", "approve"}),
    ],
)
async def test_each_role_does_what_it_may_and_is_refused_the_rest(
    tmp_path: Path, roles: tuple[str, ...], done: set[str]
) -> None:
    runtime = await fill_journal(tmp_path / "runs.db")
    bob = Principal("bob", "acme", roles)
    with asking(runtime, bob, roles={"desk": ("operate", "approve")}) as client:
        listed = client.get("/api/runs")
        reasons = client.get("/api/run?run=acme-1").json().get("reasons", {})
        answers = {
            "approve": control(client, "acme-1", "approve", question="0#0"),
            "steer": control(client, "acme-1", "steer", text="Be quick."),
            "message": client.post(
                "/api/message",
                json={"thread": "talk", "agent": "guide", "text": "Again?"},
            ),
            "reveal": client.post("/api/reveal", json={"run": "acme-1"}),
            "schedule": client.post(
                "/api/schedule",
                json={"action": "add", "name": "daily", "agent": "guide", "task": "Sum up.", "cron": "0 9 * * *"},
            ),
        }  # fmt: skip

    assert listed.status_code == (200 if roles else 403)
    assert {name for name, answer in answers.items() if answer.is_success} == done
    refused = {answer.status_code for name, answer in answers.items() if name not in done}  # fmt: skip
    assert refused <= {403}
    if roles:
        assert {name for name in ("steer", "approve") if not reasons[name]} == done & {"steer", "approve"}  # fmt: skip
    schedules = await runtime.schedules.list()
    assert [one.principal for one in schedules] == [bob.to_json()] * ("schedule" in done)  # fmt: skip


@pytest.mark.parametrize(
    ("roles", "error"),
    [
        ({"desk": "explode"}, "roles\\['desk'\\]: must be of view, operate"),
        ({"desk": 7}, "roles\\['desk'\\]: must be of"),
        ({"no role": "view"}, "roles: a role has letters"),
        (["desk"], "roles: must be a mapping"),
    ],
)
def test_roles_that_cannot_be_are_a_configuration_error(roles: Any, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Console(SQLiteJournal("runs.db"), user="Ada", roles=roles)


async def test_settings_are_for_no_user_of_one_tenant(tmp_path: Path) -> None:
    runtime = await fill_journal(tmp_path / "runs.db")
    with asking(runtime, EVE) as client:
        session = client.get("/api/session").json()
        answer = client.post("/api/settings", json={"changes": {"engine.react.enabled": False}})  # fmt: skip

    assert (session["tenant"], session["rights"][0]) == ("umbrella", "admin")
    assert "this runtime has none" in session["missing"]["settings"]
    assert answer.status_code == 409


async def test_a_schedule_of_another_tenant_is_as_if_it_were_not_there(
    tmp_path: Path,
) -> None:
    runtime = await fill_journal(tmp_path / "runs.db")
    boss = Principal("boss", "acme", ("admin",))
    await runtime.schedule("daily", "guide", "Sum up.", cron="0 9 * * *", principal=boss)  # fmt: skip
    with asking(runtime, EVE) as client:
        listed = client.get("/api/schedules").json()["schedules"]
        paused = client.post("/api/schedule", json={"action": "pause", "name": "daily"})
        added = client.post(
            "/api/schedule",
            json={"action": "add", "name": "daily", "agent": "guide", "task": "Mine.", "cron": "0 9 * * *"},
        )  # fmt: skip
    [kept] = await runtime.schedules.list()

    assert (listed, paused.status_code, added.status_code) == ([], 409, 409)
    assert "is taken" in added.json()["error"]
    assert (kept.task, kept.paused, kept.principal) == ("Sum up.", False, boss.to_json())  # fmt: skip


@pytest.mark.parametrize(
    ("change", "starter"),
    [
        ({"cron": "0 10 * * *"}, "boss"),
        ({"task": "Pay Eve."}, "root"),
        ({"agent": "react"}, "root"),
    ],
    ids=["time", "task", "agent"],
)
async def test_work_that_an_admin_changes_is_started_in_the_name_of_the_admin(
    tmp_path: Path, change: dict[str, str], starter: str
) -> None:
    runtime = await fill_journal(tmp_path / "runs.db")
    boss = Principal("boss", "acme", ("buyer", "admin"))
    given = {"agent": "guide", "task": "Sum up.", "cron": "0 9 * * *"}
    await runtime.schedule("daily", "guide", "Sum up.", cron="0 9 * * *", principal=boss)  # fmt: skip
    with asking(runtime, Principal("root", "acme", ("admin",))) as client:
        body = {"action": "add", "name": "daily", **given, **change}
        changed = client.post("/api/schedule", json=body)
    [kept] = await runtime.schedules.list()

    assert changed.is_success, changed.text
    assert kept.principal is not None
    assert (kept.principal["id"], kept.task) == (starter, change.get("task", "Sum up."))


# --- words as they come ---


class HeldProvider(ScriptedProvider):
    """Streams a chunk whenever the test, in another thread, lets it."""

    def __init__(self, *script: Line) -> None:
        super().__init__(list(script))
        self.steps = threading.Semaphore(0)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        async for delta in super().stream(request):
            await asyncio.to_thread(self.steps.acquire)
            yield delta


@pytest.mark.parametrize(("role", "sees"), [("operate", False), ("admin", True)])
async def test_words_after_something_secret_are_for_whom_it_was_revealed(
    tmp_path: Path, role: str, sees: bool
) -> None:
    asked = Completion("I look for it.", calls=(call("read_key"),))
    provider = HeldProvider(asked, "The key is hunter2.")
    journal = SQLiteJournal(tmp_path / "runs.db")
    runtime = Runtime(provider, tools=[read_key], journal=journal)
    said: dict[str, str] = {"0": "", "1": ""}
    with asking(runtime, Principal("bob", "acme", (role,))) as client:
        begun = client.post("/api/start", json={"engine": "react", "text": "Which?"})
        run = begun.json()["run"]
        await eventually(lambda: bool(journal.runs()))
        if sees:
            assert client.post("/api/reveal", json={"run": run}).is_success
        provider.steps.release()
        with client.stream("GET", f"/api/words?run={run}") as lines:
            kind = ""
            for line in lines.iter_lines():
                name, _, value = line.partition(": ")
                kind = value if name == "event" else kind
                if name == "data" and kind == "words":
                    words = json.loads(value)
                    said[words["key"]] += words["text"]
                    provider.steps.release(100)  # it is being watched
                if kind == "gone":
                    break

    assert said["0"].startswith("I look ")
    assert said["1"].startswith("The key ") if sees else said["1"] == ""


# --- the access file ---


async def test_a_schedule_of_an_unknown_tenant_is_reached_by_users_of_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    old = AESCodec({"old": bytes(32)}, current="old")
    writer = Runtime(ScriptedProvider(["x"]), journal=SQLiteJournal(path, codec=old))
    await writer.schedule("daily", "react", "Sum up.", cron="0 9 * * *")
    new = AESCodec({"new": bytes(32)}, current="new")
    runtime = Runtime(ScriptedProvider(["x"]), journal=SQLiteJournal(path, codec=new))
    deletion = {"action": "delete", "name": "daily"}

    with asking(runtime, Principal("ann", tenant="acme", roles=("admin",))) as client:
        refused = client.post("/api/schedule", json=deletion)
    kept = [one.name for one in await writer.schedules.list()]
    with asking(runtime, Principal("root", roles=("admin",))) as client:
        deleted = client.post("/api/schedule", json=deletion)

    assert (refused.status_code, kept) == (409, ["daily"])
    assert "there is no schedule 'daily'" in refused.text
    assert deleted.is_success, deleted.text
    assert SQLiteJournal(path).schedules.find_revision("daily") == 2


async def test_the_access_file_is_signed_and_shows_what_was_changed(
    tmp_path: Path,
) -> None:
    signer = CommandSigner(HmacSigner("desk", SECRET), {"desk": SECRET})
    runtime = build_runtime(tmp_path / "runs.db", *[call("read_key"), "It is."] * 2, commands=signer)  # fmt: skip
    for number in range(2):
        await ReActEngine(runtime).run("Which key?", run_id=f"key-{number}")
    with client_of(Console(runtime, user="Ada")) as client:
        for number in range(2):
            assert client.post("/api/reveal", json={"run": f"key-{number}"}).is_success
        assert client.post("/api/delete", json={"run": "key-1"}).json()["runs"] == ["key-1"]  # fmt: skip
    path = tmp_path / "runs.db.access"
    lines = path.read_bytes().splitlines(keepends=True)
    report = check_access(path, signer)
    damaged = {
        "changed": [lines[0].replace(b"Ada", b"Eve"), *lines[1:]],
        "moved": [lines[1], lines[0], lines[2]],
        "left out": [lines[0], lines[2]],
        "not finished": [*lines[:2], lines[2][:40]],
    }
    found: dict[str, tuple[str, ...]] = {}
    for name, content in damaged.items():
        path.write_bytes(b"".join(content))
        found[name] = check_access(path, signer).problems
    other = CommandSigner(keys={"desk": SECRET[::-1]})
    path.write_bytes(b"".join(lines))

    assert (report.ok, report.lines) == (True, 3)
    assert all(found.values()), found
    assert len(check_access(path, other).problems) == 3
    assert check_access(path).ok


def test_an_access_file_that_is_not_there_is_a_configuration_error(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="name an access file"):
        check_access(tmp_path / "none.access")


async def test_a_run_at_work_is_not_deleted(tmp_path: Path) -> None:
    runtime = await fill_journal(tmp_path / "runs.db")
    with client_of(Console(runtime, user="Ada")) as client:
        reason = client.get("/api/run?run=acme-1").json()["delete"]
        refused = client.post("/api/delete", json={"run": "acme-1"})

    assert "stop it first" in reason
    assert refused.status_code == 409
    assert not (tmp_path / "runs.db.access").exists()
