"""The console's server, asked by HTTP over a real socket: what it shows, whom it refuses, what it has runs do."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as WebRequest
from starlette.routing import Mount

from console_server import client_of, headers_of, read_events, serving
from function_engine import FunctionEngine
from loopwright import (
    Action,
    Ask,
    ConfigError,
    Decision,
    Delta,
    LoopEngine,
    Modify,
    ReActEngine,
    Request,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    ToolError,
    ask_user,
    tool,
)
from loopwright.console import Console
from loopwright.console.launcher import Launcher
from loopwright.events import CommandReceived
from loopwright.gates import AllowAll
from loopwright.journals import SQLiteJournal
from loopwright.messages import Effect
from loopwright.principals import Principal
from loopwright.security import Redactor
from loopwright.testing import Line, ScriptedProvider, call
from loopwright.tools import CallNotExecuted, DeadLetter
from waiting import eventually

CHILD = Path(__file__).parents[1] / "support" / "console_child.py"


@tool(effect="destructive")
async def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool(effect="read", label="secret")
async def read_key() -> str:
    """Read a key."""
    return "the key is hunter2"


def build_runtime(path: Path, *script: Line) -> Runtime:
    return Runtime(
        ScriptedProvider(list(script)),
        tools=[delete, read_key, ask_user],
        journal=SQLiteJournal(path),
        approver=Suspend(expires=3600),
    )


async def suspend_run(path: Path, run_id: str = "tidy") -> Runtime:
    """Have a run wait for the approval of a call."""
    runtime = build_runtime(path, call("delete", path="old.txt"), "Done.")
    await ReActEngine(runtime).run("Tidy up.", run_id=run_id)
    return runtime


def find_commands(journal: Any, run_id: str) -> list[CommandReceived]:
    return [
        entry.event
        for entry in journal.read(run_id)
        if isinstance(entry.event, CommandReceived)
    ]


# --- what it shows ---


async def test_a_run_of_another_process_is_streamed_as_it_happens(
    tmp_path: Path,
) -> None:
    journal, begun = SQLiteJournal(tmp_path / "runs.db"), tmp_path / "begun"
    command = [str(CHILD), str(journal.path), "far", "20", "0.02", str(begun)]
    child = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.DEVNULL
    )
    await eventually(lambda: bool(journal.runs()))
    console = Console(journal, user="Ada")
    with serving(console.app) as address:
        async with httpx.AsyncClient(
            base_url=address, headers=headers_of(console), trust_env=False, timeout=60
        ) as client:
            seqs = await watch_until_end(client, "far", begun.touch)
    assert await child.wait() == 0

    assert seqs == list(range(1, len(journal.read("far")) + 1))


async def watch_until_end(
    client: httpx.AsyncClient, run_id: str, go_on: Callable[[], None]
) -> list[int]:
    """Return the numbers of the entries that were streamed; the run waits at its first tool until that was shown."""
    seqs: list[int] = []
    async with (
        asyncio.timeout(100),
        client.stream("GET", f"/api/events?run={run_id}&after=0") as response,
    ):
        async for number, _, value in read_events(response):
            if number is not None:
                seqs.append(number)
                if value["kind"] == "tool_started":
                    go_on()
                if value["kind"] == "run_finished":
                    return seqs
    raise AssertionError("the stream ended before the run")


async def test_the_list_shows_how_each_run_stands(tmp_path: Path) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")

    with client_of(Console(runtime.journal, user="Ada")) as client:
        answer = client.get("/api/runs").json()
        [question] = client.get("/api/questions").json()["questions"]
        attention = client.get("/api/attention").json()

    assert (attention["waiting"], attention["dead_letters"]) == (1, 0)
    [run] = answer["runs"]
    assert (run["run_id"], run["status"], run["task"]) == (
        "tidy",
        "waiting",
        "Tidy up.",
    )
    assert answer["counts"] == {"waiting": 1}
    assert question["arguments"] == {"path": "old.txt"}
    assert question["tool"] == "delete"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status=waiting", ["tidy"]),
        ("status=failed", []),
        ("text=TIDY", ["tidy"]),
        ("engine=react", ["tidy"]),
        ("tag=user%3D42", []),
    ],
)
async def test_the_list_is_filtered(
    tmp_path: Path, query: str, found: list[str]
) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")

    with client_of(Console(runtime.journal, user="Ada")) as client:
        runs = client.get(f"/api/runs?{query}").json()["runs"]

    assert [run["run_id"] for run in runs] == found


async def test_a_model_call_is_shown_with_the_prompt_as_it_was_sent(
    tmp_path: Path,
) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    [asked, *_] = [
        entry
        for entry in runtime.journal.read("tidy")
        if entry.kind == "model_requested"
    ]

    with client_of(Console(runtime.journal, user="Ada")) as client:
        entry = client.get(f"/api/entry?run=tidy&seq={asked.seq}").json()
        reply = client.get(f"/api/entry?run=tidy&seq={asked.seq + 1}").json()
        [listed] = client.get("/api/runs").json()["runs"]

    assert (reply["kind"], reply["request"]) == ("model_replied", entry["request"])
    assert [(one["about"], one["tool"]) for one in listed["asks"]] == [("approval", "delete")]  # fmt: skip
    assert entry["hash"] == asked.hash
    assert entry["request"]["messages"][-1]["content"] == "Tidy up."
    assert "delete" in [spec["name"] for spec in entry["request"]["tools"]]


async def test_a_search_names_the_entries_that_hold_a_text(tmp_path: Path) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    entries = runtime.journal.read("tidy")

    with client_of(Console(runtime.journal, user="Ada")) as client:
        by_text = client.get("/api/search?run=tidy&text=OLD.TXT").json()["seqs"]
        by_kind = client.get("/api/search?run=tidy&kind=gate_decided").json()["seqs"]

    decided = [one.seq for one in entries if one.kind == "gate_decided"]
    assert by_kind == decided
    assert set(decided) <= set(by_text)
    assert len(by_text) < len(entries)


# --- whom it refuses ---


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 200),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer ünknown"}, 401),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example:80"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_who_is_not_the_page_is_refused(
    tmp_path: Path, sent: dict[str, str], status: int
) -> None:
    console = Console(SQLiteJournal(tmp_path / "runs.db"), user="Ada")
    with client_of(console) as client:
        headers = {name.encode(): value.encode() for name, value in sent.items()}
        answer = client.get("/api/runs", headers=headers)

    assert answer.status_code == status
    assert (status == 200) == ("runs" in answer.json())


@pytest.mark.parametrize("missing", ["Authorization", "X-Loopwright-Console"])
async def test_a_request_without_a_header_of_the_page_is_refused(
    tmp_path: Path, missing: str
) -> None:
    console = Console(SQLiteJournal(tmp_path / "runs.db"), user="Ada")
    headers = headers_of(console)
    del headers[missing]
    with serving(console.app) as address:
        async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
            answer = await client.get(f"{address}/api/runs")

    assert answer.status_code == 403
    assert missing in answer.json()["error"]


async def test_the_page_needs_no_token_and_may_load_its_own_files_alone(
    tmp_path: Path,
) -> None:
    console = Console(SQLiteJournal(tmp_path / "runs.db"), user="Ada")
    with serving(console.app) as address:
        async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
            page = await client.get("/")
            script = await client.get("/static/main.js")
            outside = await client.get("/static/..%2Fapp.py")

    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy
    assert "<script>" not in page.text
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert outside.status_code == 404


@pytest.mark.parametrize("user", [None, "", "  ", 7])
def test_a_console_without_a_user_is_a_configuration_error(user: Any) -> None:
    with pytest.raises(ConfigError, match="user: say who uses the console"):
        Console(SQLiteJournal("runs.db"), user=user)


def test_a_token_that_is_short_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="token: must be at least 32"):
        Console(SQLiteJournal("runs.db"), user="Ada", token="secret")


def test_each_console_has_a_token_of_its_own() -> None:
    tokens = {
        Console(SQLiteJournal("runs.db"), user="Ada").token or "" for _ in range(20)
    }

    assert len(tokens) == 20
    assert min(map(len, tokens)) >= 43  # 256 bits in base64


async def test_a_mounted_console_asks_the_host_application_who_it_is(
    tmp_path: Path,
) -> None:
    def who(request: WebRequest) -> str | None:
        return request.headers.get("x-user")

    runtime = await suspend_run(tmp_path / "runs.db")
    console = Console(runtime, user=who)
    host = Starlette(routes=[Mount("/console", app=console.app)])
    page_header = {"X-Loopwright-Console": "1"}
    with (
        serving(host) as address,
        httpx.Client(base_url=f"{address}/console", trust_env=False) as client,
    ):
        get = client.get
        known = get("/api/session", headers={"X-User": "Bo", **page_header})
        unknown = get("/api/session", headers=page_header)
        foreign = get("/api/session", headers={"X-User": "Bo"})
        page = get("/")

    assert (known.json()["user"], known.json()["runtime"]) == ("Bo", True)
    assert (unknown.status_code, foreign.status_code) == (401, 403)
    assert page.status_code == 200


# --- bad input ---


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/run?run=nothing", 404),
        ("/api/events?run=nothing&after=0", 404),
        ("/api/entry?run=tidy&seq=99999", 404),
        ("/api/entry?run=tidy&seq=0", 404),
        ("/api/run", 400),
        ("/api/entries?run=tidy&after=-1", 400),
        ("/api/entries?run=tidy&after=x", 400),
        ("/api/entries?run=tidy&limit=1e9", 400),
        ("/api/runs?status=lost", 409),
        ("/api/nothing", 404),
        ("/nothing", 404),
    ],
)
async def test_a_bad_question_has_a_status_and_a_reason_without_a_stack(
    tmp_path: Path, path: str, status: int
) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        answer = client.get(path)

    assert answer.status_code == status
    assert answer.json()["error"]
    assert "Traceback" not in answer.text


class Books(LoopEngine):
    """Asks where."""

    name = "books"

    async def solve(self, run: Run) -> str:
        """Return the city."""
        return await run.ask_user("Where?", choices=("Paris", "Rome"))


async def test_an_answer_that_is_not_a_choice_is_refused_with_the_choices(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path / "runs.db")
    await Books(runtime).run("Book.", run_id="trip")
    given = {"action": "answer", "run": "trip"}
    with client_of(Console(runtime.journal, user="Ada")) as client:
        [question] = client.get("/api/questions").json()["questions"]
        wrong = client.post("/api/control", json={**given, "text": "Oslo"})
        right = client.post("/api/control", json={**given, "text": "rome"})

    assert question["choices"] == ["Paris", "Rome"]
    assert wrong.status_code == 409
    assert "must be one of 'Paris', 'Rome', got 'Oslo'" in wrong.json()["error"]
    assert right.status_code == 200
    assert (await Books(runtime).resume("trip")).answer == "Rome"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{}", "application/json", 400),
        (b'{"action": "pause", "run": 3}', "application/json", 400),
        (b'{"action": "explode", "run": "tidy"}', "application/json", 409),
        (b'{"action": "pause", "run": "nothing"}', "application/json", 404),
        (b'{"action": "steer", "run": "tidy", "text": 7}', "application/json", 409),
        (b'{"action": "steer", "run": "tidy", "text": " "}', "application/json", 409),
        (b'{"action": "approve", "run": "tidy"}', "application/json", 409),
        (b"action=pause", "application/x-www-form-urlencoded", 415),
        (b"\xff" * 10_000_000, "application/json", 413),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_a_bad_command_has_a_status_and_a_reason_without_a_stack(
    tmp_path: Path, body: bytes, kind: str, status: int
) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        answer = client.post(
            "/api/control", content=body, headers={"Content-Type": kind}
        )

    assert answer.status_code == status
    assert answer.json()["error"]
    assert "Traceback" not in answer.text
    assert runtime.journal.inbox("tidy") == []


async def test_a_body_of_unknown_length_is_bounded(tmp_path: Path) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        answer = client.post(
            "/api/control",
            content=(b"x" * 65536 for _ in range(10)),
            headers={"Content-Type": "application/json"},
        )

    assert answer.status_code == 413


async def test_a_missing_journal_is_an_empty_list(tmp_path: Path) -> None:
    with client_of(Console(SQLiteJournal(tmp_path / "none.db"), user="Ada")) as client:
        answer = client.get("/api/runs")

    assert answer.json() == {"runs": [], "counts": {}, "more": False}
    assert not (tmp_path / "none.db").exists()


async def test_a_file_that_is_no_journal_says_so(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_text("not a database" * 100)
    with client_of(Console(SQLiteJournal(tmp_path / "other.db"), user="Ada")) as client:
        answer = client.get("/api/runs")

    assert answer.status_code == 503
    assert "other.db" in answer.json()["error"]


async def test_the_stream_of_a_run_that_is_deleted_says_so_and_ends(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path / "runs.db", "Done.")
    await ReActEngine(runtime).run("Rest.", run_id="short")
    console = Console(runtime.journal, user="Ada")
    kinds: list[str] = []
    with serving(console.app) as address:
        async with (
            httpx.AsyncClient(headers=headers_of(console), trust_env=False) as client,
            client.stream("GET", f"{address}/api/events?run=short&after=0") as response,
        ):
            async for _, kind, value in read_events(response):
                kinds.append(kind)
                if kind == "entry" and value["kind"] == "run_finished":
                    await runtime.journal.delete("short")  # type: ignore[attr-defined]

    assert kinds[-1] == "gone"


# --- what it has runs do ---


async def test_an_approval_with_other_arguments_names_who_gave_it(
    tmp_path: Path,
) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        [question] = client.get("/api/run?run=tidy").json()["questions"]
        body = {
            "run": "tidy",
            "action": "approve",
            "question": question["id"],
            "arguments": {"path": "new.txt"},
        }
        assert client.post("/api/control", json=body).status_code == 200
        again = client.post("/api/control", json=body)
    result = await ReActEngine(runtime).resume("tidy")

    [command] = find_commands(runtime.journal, "tidy")[:1]
    assert (command.command, command.body["by"]) == ("approve", "Ada")
    assert "new.txt is gone" in [m.content for m in result.conversation][-2]
    assert again.status_code == 200, "the run had not received the first one yet"


class LocalFiles:
    """Moves what is to be deleted below a folder, and has a person asked about it."""

    async def evaluate(self, action: Action, state: object) -> Decision:
        path = str(action.arguments["path"])
        if path.startswith("/tmp/"):
            return Ask("is it needed?")
        return Modify({"path": f"/tmp/{path}"}, "only in /tmp")


async def test_an_approval_shows_what_policy_changed_of_the_proposal(
    tmp_path: Path,
) -> None:
    runtime = Runtime(
        ScriptedProvider([call("delete", path="old.txt")]),
        tools=[delete],
        journal=SQLiteJournal(tmp_path / "runs.db"),
        gate=LocalFiles(),
        approver=Suspend(),
    )
    await ReActEngine(runtime).run("Tidy up.", run_id="tidy")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        [question] = client.get("/api/questions").json()["questions"]

    assert question["arguments"] == {"path": "/tmp/old.txt"}
    assert question["proposed"] == {"path": "old.txt"}


async def test_an_approval_shows_no_proposal_with_what_became_a_secret(
    tmp_path: Path,
) -> None:
    secret = "zebra-4711-quux"

    def build(**more: Any) -> ReActEngine:
        script, journal = [call("delete", path=secret)], SQLiteJournal(tmp_path / "r.db")  # fmt: skip
        return ReActEngine(
            Runtime(ScriptedProvider(script), tools=[delete], journal=journal, approver=Suspend(), **more)
        )  # fmt: skip

    await build().run("Tidy up.", run_id="tidy")
    engine = build(redactor=Redactor([secret]))
    await engine.resume("tidy")
    with client_of(Console(engine.runtime.journal, user="Ada")) as client:
        found = client.get("/api/questions")

    [question] = found.json()["questions"]
    assert (question["arguments"], question["proposed"]) == ({"path": "[redacted]"}, None)  # fmt: skip
    assert secret not in found.text


async def test_a_denial_takes_its_reason_to_the_model(tmp_path: Path) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        [question] = client.get("/api/questions").json()["questions"]
        body = {
            "run": "tidy",
            "action": "deny",
            "question": question["id"],
            "reason": "it is needed",
        }
        assert client.post("/api/control", json=body).status_code == 200
    result = await ReActEngine(runtime).resume("tidy")

    [command] = find_commands(runtime.journal, "tidy")
    assert command.body["by"] == "Ada"
    assert any("it is needed" in m.content for m in result.conversation)


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("pause", {}),
        ("steer", {"text": "be quick"}),
        ("add_context", {"text": "it is Friday"}),
        ("follow_up", {"text": "and then?"}),
        ("override", {"tool": "delete", "arguments": {"path": "x"}}),
        ("stop", {}),
        ("abort", {}),
    ],
)
async def test_each_command_leaves_one_entry_that_names_who_sent_it(
    tmp_path: Path, action: str, more: dict[str, Any]
) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        body = {"run": "tidy", "action": action, **more}
        assert client.post("/api/control", json=body).status_code == 200
        unreceived = client.get("/api/run?run=tidy").json()["unreceived"]
    [sent] = runtime.journal.inbox("tidy")
    assert [one["kind"] for one in unreceived] == [action]
    assert sent.body["by"] == "Ada"

    await runtime.control("tidy").stop()
    await ReActEngine(runtime).resume("tidy")
    received = [one for one in find_commands(runtime.journal, "tidy") if one.command == action]  # fmt: skip
    assert [one.body.get("by") for one in received][:1] == ["Ada"]
    assert all(not one.refused for one in received)


async def test_what_cannot_be_done_is_named_with_its_reason_and_refused(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path / "runs.db", "Done.")
    await ReActEngine(runtime).run("Rest.", run_id="short")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        reasons = client.get("/api/run?run=short").json()["reasons"]
        answers = {
            name: client.post("/api/control", json={"run": "short", "action": name})
            for name in reasons
        }

    assert all(reasons.values())
    assert {name: answer.status_code for name, answer in answers.items()} == (
        dict.fromkeys(reasons, 409)
    )
    assert answers["pause"].json()["error"] == "pause: the run has ended (completed)"
    assert "needs a runtime" in answers["fork"].json()["error"]
    assert runtime.journal.inbox("short") == []


async def test_a_mounted_console_resumes_and_forks_a_run(tmp_path: Path) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    await runtime.control("tidy").deny("0#0", by="Ada")
    entries = runtime.journal.read("tidy")
    app = Console(runtime, user="Ada")
    transport = httpx.ASGITransport(app=app.app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers_of(app)
    ) as client:
        resumed = await client.post(
            "/api/control", json={"run": "tidy", "action": "resume"}
        )
        await until_ended(runtime, "tidy")
        forked = await client.post(
            "/api/control",
            json={"run": "tidy", "action": "fork", "at": len(entries) - 1},
        )

    assert (resumed.status_code, forked.status_code) == (200, 200)
    [copy] = [
        info for info in runtime.journal.runs() if info.run_id == forked.json()["run"]
    ]
    assert copy.parent_run == "tidy"


async def until_ended(runtime: Runtime, run_id: str) -> None:
    def has_ended() -> bool:
        unfinished = [info.run_id for info in runtime.journal.runs(unfinished=True)]
        return run_id not in unfinished

    await eventually(has_ended)


# --- what is hidden ---


async def test_the_list_does_not_say_what_a_run_asks_that_read_something_secret(
    tmp_path: Path,
) -> None:
    script = call("read_key"), call("delete", path="hunter2")
    runtime = build_runtime(tmp_path / "runs.db", *script)
    await ReActEngine(runtime).run("Tidy up.", run_id="key")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        [listed] = client.get("/api/runs").json()["runs"]

    assert (listed["status"], listed["asks"]) == ("waiting", [])


async def test_what_is_secret_is_hidden_until_asked_for_which_is_recorded(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path / "runs.db", call("read_key"), "It is hunter2.")
    await ReActEngine(runtime).run("Which key?", run_id="key")
    paths = ["run?run=key", "entries?run=key", "search?run=key&text=hunter2", "runs"]
    with client_of(Console(runtime.journal, user="Ada")) as client:
        before = [client.get(f"/api/{path}").text for path in paths]
        seqs = [row["seq"] for row in json.loads(before[1])["rows"] if row["hidden"]]
        refused = client.get(f"/api/entry?run=key&seq={seqs[0]}")
        shown = client.post("/api/reveal", json={"run": "key"})
        after = client.get("/api/entries?run=key").text
    access = (tmp_path / "runs.db.access").read_text().splitlines()

    assert not any("hunter2" in text for text in before)
    assert json.loads(before[2]) == {"seqs": []}
    assert (refused.status_code, shown.status_code) == (409, 200)
    assert "hunter2" in after
    [line] = map(json.loads, access)
    assert (line["by"], line["run_id"], line["previous"]) == ("Ada", "key", "")
    assert (tmp_path / "runs.db.access").stat().st_mode & 0o777 == 0o600


async def test_a_principal_of_the_application_signs_what_it_does(
    tmp_path: Path,
) -> None:
    runtime = await suspend_run(tmp_path / "runs.db")
    bob = Principal("bob", roles=("manager",))

    roles = {"manager": "operate"}
    with client_of(Console(runtime, user=lambda request: bob, roles=roles)) as client:
        assert client.get("/api/session").json()["user"] == "bob"
        sent = {"run": "tidy", "action": "steer", "text": "Stop."}
        assert client.post("/api/control", json=sent).status_code == 200

    [command] = runtime.journal.inbox("tidy")
    assert command.body["principal"] == bob.to_json()


# --- begin a run, and talk ---


class SlowProvider(ScriptedProvider):
    """Streams a word whenever the test lets it."""

    def __init__(self, script: list[Line]) -> None:
        super().__init__(script)
        self.steps = asyncio.Semaphore(0)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        async for delta in super().stream(request):
            await self.steps.acquire()
            yield delta


async def test_words_of_a_reply_are_streamed_to_the_page(tmp_path: Path) -> None:
    provider = SlowProvider(["Hello Ada, nice to meet you."])
    runtime = Runtime(provider, journal=SQLiteJournal(tmp_path / "runs.db"))
    runtime.agent("guide")
    console = Console(runtime, user="Ada")
    transport = httpx.ASGITransport(console.app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers_of(console)
    ) as client:
        body = {"thread": "ada", "agent": "guide", "text": "I am Ada."}
        run_id = (await client.post("/api/message", json=body)).json()["run"]
        launcher = Launcher(runtime)
        items = launcher.follow_words(
            run_id, 1, keep_alive=10, hides=lambda digest: False
        )
        words = list[str]()
        provider.steps.release()
        async for _, kind, value in items:
            if kind == "words":
                words.append(value["text"])
                for _ in range(1 if len(words) == 1 else 100):  # one at a time at first
                    provider.steps.release()
            if kind == "stood":
                break
        thread = (await client.get("/api/thread", params={"thread": "ada"})).json()

    assert len(words) > 1, "one by one, before the reply was whole"
    whole = "Hello Ada, nice to meet you."
    assert whole.startswith("".join(words)), "the entry of the reply has the rest"
    assert [one["answer"] for one in thread["turns"]] == [whole]
    assert thread["turns"][0]["agent"] == "guide"


@pytest.mark.parametrize(
    ("name", "body", "error"),
    [
        ("start", {"engine": "react"}, "text: must say something"),
        ("start", {"engine": "unheard-of", "text": "x"}, "unheard-of"),
        ("start", {"agent": "nobody", "text": "x"}, "agent: must be one of guide"),
        ("message", {"agent": "guide", "text": "x"}, "thread: name the conversation"),
        ("message", {"agent": "", "thread": "t", "text": "x"}, "agent: must be one of guide"),
        ("message", {"agent": "guide", "thread": "t", "text": "x", "attachments": [{"type": "audio"}]}, "an image or a PDF"),
    ],
)  # fmt: skip
def test_what_cannot_be_begun_is_refused_by_name(
    tmp_path: Path, name: str, body: dict[str, Any], error: str
) -> None:
    runtime = build_runtime(tmp_path / "runs.db", "Never.")
    runtime.agent("guide")
    with client_of(Console(runtime, user="Ada")) as client:
        refused = client.post(f"/api/{name}", json=body)
        session = client.get("/api/session").json()
    with client_of(Console(runtime.journal, user="Ada")) as client:
        alone = client.post(f"/api/{name}", json=body)

    assert refused.status_code == 409
    assert error in refused.json()["error"]
    assert session["agents"] == ["guide"]
    assert "react" in session["engines"]
    assert alone.status_code == 409
    assert not runtime.journal.runs()


@pytest.mark.parametrize("effect", ["idempotent", "write", "destructive", "looked up"])
async def test_a_dead_letter_is_retried_unless_it_may_have_taken_effect(
    tmp_path: Path, effect: str
) -> None:
    calls: list[str] = []

    def find_out(_: object) -> CallNotExecuted:
        return CallNotExecuted()

    lookup = find_out if effect == "looked up" else None
    known = cast("Effect", "write" if lookup else effect)

    @tool(effect=known, recovery=[DeadLetter()], lookup=lookup)
    def deliver() -> str:
        """Deliver a message."""
        calls.append("deliver")
        raise ToolError("the address is away")

    async def solve(run: Run) -> str:
        await run.call(ToolCall("deliver", {}))
        raise ValueError("it was not delivered")

    runtime = Runtime(
        ScriptedProvider([]),
        tools=[deliver],
        gate=AllowAll(),
        journal=SQLiteJournal(tmp_path / "runs.db"),
    )
    engine = FunctionEngine(runtime, body=solve)
    result = await engine.run("Deliver it.", run_id="away")

    with client_of(Console(runtime.journal, user="Ada")) as client:

        def show() -> tuple[str, bool]:
            shown = client.get("/api/run?run=away").json()
            return shown["reasons"]["retry"], shown["ending"] is None

        if effect in ("write", "destructive"):
            assert show()[0].startswith("it has dead letters of deliver alone, which")
            with pytest.raises(ConfigError, match="'away' has dead letters of deliver"):
                await runtime.control("away").retry("again")
            assert (result.status, calls) == ("failed", ["deliver"])
            return
        assert (result.status, show()) == ("failed", ("", False))
        await runtime.control("away").retry("again")
        assert "nothing to retry" in show()[0]  # it is released
        assert show()[1]
        await engine.resume("away")
        assert (calls, show()[0]) == (["deliver"] * 2, "")


async def test_a_retry_that_would_repeat_what_came_after_is_not_offered(
    tmp_path: Path,
) -> None:
    @tool(effect="idempotent", recovery=[DeadLetter()])
    def deliver() -> str:
        """Deliver a message."""
        raise ToolError("the address is away")

    async def solve(run: Run) -> str:
        await run.call(ToolCall("deliver", {}))
        await run.ask("What now?")
        raise ValueError("it was not delivered")

    runtime = Runtime(
        ScriptedProvider(["Nothing."]),
        tools=[deliver],
        journal=SQLiteJournal(tmp_path / "runs.db"),
    )
    await FunctionEngine(runtime, body=solve).run("Deliver it.", run_id="away")
    with client_of(Console(runtime.journal, user="Ada")) as client:
        reasons = client.get("/api/run?run=away").json()["reasons"]
    with pytest.raises(ConfigError) as refused:
        await runtime.control("away").retry("again")

    assert reasons["retry"].startswith("it did something after its failure")
    assert reasons["retry"].removeprefix("it ") in str(refused.value)
