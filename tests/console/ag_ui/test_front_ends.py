"""Front ends of AG-UI over a real socket: begin, watch, answer, come back, stop, and who may do so."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from ag_ui_front_end import (
    TOKEN,
    FrontEnd,
    build_console,
    build_runtime,
    connect,
    spoken,
    types,
    weather,
)
from console_server import serving
from loopwright import (
    Action,
    Ask,
    Decision,
    Limits,
    PlanExecuteEngine,
    PolicyState,
    ReActEngine,
    Runtime,
    Worker,
)
from loopwright.console import Console
from loopwright.console.ag_ui.service import AgUi
from loopwright.console.ag_ui.streams import Stream
from loopwright.console.service import ConsoleService
from loopwright.events import CommandReceived, RunResumed, ToolFinished
from loopwright.journals import SQLiteJournal
from loopwright.principals import Principal
from loopwright.testing import ScriptedProvider, call
from waiting import eventually

SOUND = {"type": "audio", "source": {"type": "url", "value": "https://x"}}


async def test_a_conversation_with_tools_has_its_events_in_order(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(
        tmp_path,
        "Hello Ada.",
        [call("weather", city="Rome"), call("weather", city="Atlantis")],
        "21 in Rome.",
    )
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            hello = await front.say("I am Ada.")
            asked = await front.say("And in Rome?")
    assert types(hello)[0] == "RUN_STARTED"
    assert spoken(hello) == "Hello Ada."
    assert hello[-1] == {
        **hello[-1],
        "type": "RUN_FINISHED",
        "runId": "r1",
        "threadId": "t1",
        "result": "Hello Ada.",
        "outcome": {"type": "success"},
    }
    assert hello[-1]["usage"][0]["inputTokens"] > 0
    results = {one["toolCallId"]: one["content"] for one in asked if one["type"] == "TOOL_CALL_RESULT"}  # fmt: skip
    names = {one["toolCallId"]: one["toolCallName"] for one in asked if one["type"] == "TOOL_CALL_START"}  # fmt: skip
    assert list(names) == [f"{front.run}/0#0", f"{front.run}/0#1"]
    assert sorted(results.values()) == ["21 in Rome", "no such city"]
    assert spoken(asked) == "21 in Rome."


async def test_approval_question_and_client_tool_end_the_stream_and_are_answered(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(
        tmp_path,
        [call("delete", name="a"), call("delete", name="b")],
        call("ask_user", question="Which year?"),
        call("draw_chart", kind="bar"),
        "All done.",
    )
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            approvals = await front.say("Tidy up.")
            changed = {"approved": True, "arguments": {"name": "c"}}
            asked = await front.answer(
                approvals, changed, {"approved": False, "reason": "keep b"}
            )
            chart = await front.answer(asked, "1984")
            drawn = {"id": "m", "role": "tool", "toolCallId": f"{front.run}/2#0", "content": "drawn"}  # fmt: skip
            done = await front.post({**front.body(), "messages": [drawn]})
    first, second = approvals[-1]["outcome"]["interrupts"]
    assert (first["reason"], first["metadata"]["arguments"]) == ("approval", {"name": "a"})  # fmt: skip
    assert second["toolCallId"] == f"{front.run}/0#1"
    assert first["expiresAt"] > "2026"
    assert {one["content"] for one in asked if one["type"] == "TOOL_CALL_RESULT"} == {"c is gone", "keep b"}  # fmt: skip
    assert asked[-1]["outcome"]["interrupts"][0]["message"] == "Which year?"
    assert chart[-1]["outcome"] == {"type": "success"}, "the front end carries it out"
    assert spoken(done) == "All done."
    entries = runtime.journal.read(front.run)
    [result] = [e.event for e in entries if isinstance(e.event, ToolFinished) and e.event.tool == "draw_chart"]  # fmt: skip
    assert (result.content, result.untrusted) == ("drawn", True)
    assert {str(e.event.body["by"]) for e in entries if isinstance(e.event, CommandReceived)} == {"ada"}  # fmt: skip


async def test_an_answer_to_a_turn_of_another_version_waits_for_its_worker(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"app_version": "1", "lease": 30.0}
    old = build_runtime(tmp_path, call("delete", name="a"), **options)
    new = build_runtime(tmp_path, app_version="2")
    with serving(build_console(old).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            asked = await front.say("Tidy up.")
    with serving(build_console(new).app) as address:
        async with connect(address) as client:
            front.client = client
            answering = asyncio.ensure_future(front.answer(asked, True))
            await eventually(lambda: new.journal.inbox(front.run))
            [waiting] = new.journal.runs()
            worker = Worker(build_runtime(tmp_path, "It is gone.", **options))
            [result] = await worker.drain()
            done = await answering

    assert (waiting.status, result.answer) == ("waiting", "It is gone.")
    assert spoken(done) == "It is gone."
    versions = [e.event.app_version for e in new.journal.read(front.run) if isinstance(e.event, RunResumed)]  # fmt: skip
    assert versions == ["1"]


class HeldGate:
    """Asks about every call; from the second time on it is slow, as a policy service may be."""

    version = "held"

    def __init__(self) -> None:
        self.times, self.is_asked, self.go_on = 0, asyncio.Event(), asyncio.Event()

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        self.times += 1
        if self.times > 1:
            self.is_asked.set()
            await self.go_on.wait()
        return Ask("May it?")


async def test_a_question_that_a_process_is_about_to_decide_is_not_shown_as_open(
    tmp_path: Path,
) -> None:
    gate = HeldGate()
    runtime = build_runtime(tmp_path, call("delete", name="a"), "Gone.", gate=gate)
    asked = await runtime.agents["guide"].thread("t1").run("Delete a.")
    service = ConsoleService(runtime.journal, runtime)
    streams = AgUi(runtime, service, has_users=False).streams
    stream = Stream(asked.run_id, "t1", "r2", 0, "ada", has_history=True)
    items, seen = streams.follow(stream, keep_alive=0.2), list[Any]()
    await anext(items)  # it has read the journal, where the run waits
    await runtime.control(asked.run_id).approve(asked.pending[0].id, by="ada")
    resumed = asyncio.create_task(runtime.resume(asked.run_id))
    await gate.is_asked.wait()
    async for _, event in items:
        if event is None:  # it has read all that is there, and waits
            gate.go_on.set()
        else:
            seen.append(event.model_dump(by_alias=True, mode="json"))
    await resumed

    outcomes = [one["outcome"]["type"] for one in seen if one["type"] == "RUN_FINISHED"]
    assert outcomes == ["success"]
    assert gate.go_on.is_set()


async def test_an_old_answer_decides_no_other_run(tmp_path: Path) -> None:
    runtime = build_runtime(
        tmp_path, call("delete", name="a"), "Kept.", call("delete", name="a"), "Gone."
    )
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            first = await front.say("Delete a.")
            await front.answer(first, False)
            second = await front.say("Delete a.")
            stale = await front.answer(first, True)
            again = await front.come_back(front.seen)
            done = await front.answer(second, None)

    assert stale[-1]["outcome"]["interrupts"] == second[-1]["outcome"]["interrupts"]
    assert again[-1]["outcome"] == second[-1]["outcome"]
    assert [one["content"] for one in done if one["type"] == "TOOL_CALL_RESULT"] == ["cancelled"]  # fmt: skip


async def test_a_request_that_is_sent_again_is_not_answered_again(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, "Once.", "Twice.")
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            body = front.body("Hello.")
            first, again = await front.post(body), await front.post(body)

    assert spoken(first) == spoken(again) == "Once."
    assert len(runtime.journal.runs()) == 1


async def test_a_front_end_that_comes_back_has_no_gap_and_no_double(
    tmp_path: Path,
) -> None:
    lines = [*(call("weather", city=f"City {n}") for n in range(6)), "Enough."]
    runtime = build_runtime(tmp_path, *lines)
    rng = random.Random(7)
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            whole = await front.say("Look around.")
            last = len(runtime.journal.read(front.run))
            for _ in range(12):
                after = rng.randint(0, last)
                later = await front.come_back(after)
                check_whole(whole, later)


def check_whole(whole: list[dict[str, Any]], later: list[dict[str, Any]]) -> None:
    """What the snapshot has and what follows are together what was said at first."""
    [snapshot] = [one for one in later if one["type"] == "MESSAGES_SNAPSHOT"]
    results = [m["content"] for m in snapshot["messages"] if m["role"] == "tool"]
    results += [one["content"] for one in later if one["type"] == "TOOL_CALL_RESULT"]
    calls = [c["id"] for m in snapshot["messages"] for c in m.get("toolCalls", ())]
    calls += [one["toolCallId"] for one in later if one["type"] == "TOOL_CALL_START"]
    assert results == [one["content"] for one in whole if one["type"] == "TOOL_CALL_RESULT"]  # fmt: skip
    assert calls == [one["toolCallId"] for one in whole if one["type"] == "TOOL_CALL_START"]  # fmt: skip
    assert later[-1]["result"] == "Enough."
    known = [m["content"] for m in snapshot["messages"] if m["role"] == "assistant" and m.get("content")]  # fmt: skip
    assert [*known, *filter(None, [spoken(later)])] == ["Enough."]


async def test_stop_is_a_command_and_a_closed_socket_is_none(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path, call("delete", name="a"), "Never.")
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            await front.say("Delete a.")
            stopped = await client.post(f"/ag-ui/{front.run}/stop")
            await eventually(lambda: runtime.journal.runs()[0].status == "aborted")
            events = await front.come_back(0)

    assert stopped.status_code == 200
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert not [one for one in events if one.get("outcome", {}).get("type") == "interrupt"]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected", "last"),
    [
        (call("weather", city="Rome"), ["CUSTOM", "RUN_FINISHED"], "success"),
        (ValueError("no"), ["RUN_ERROR"], None),
    ],
    ids=["limit", "failed"],
)
async def test_limits_and_failures_have_events_of_their_own(
    tmp_path: Path, line: Any, expected: list[str], last: str | None
) -> None:
    runtime = build_runtime(tmp_path, line)
    limits = Limits(max_iterations=1, best_effort=False)
    runtime.agent("short", limits=limits)
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            front.address = "/ag-ui?agent=short"
            events = await front.say("Go.")

    assert types(events)[-len(expected) :] == expected
    outcome: Any = events[-1].get("outcome") or {}
    assert outcome.get("type") == last


async def test_steps_of_engines_are_steps_and_facts_are_state(tmp_path: Path) -> None:
    plan = '1. weather("Rome")\njoin()'
    runtime = Runtime(
        ScriptedProvider([plan, "It is 21."]),
        tools=[weather],
        journal=SQLiteJournal(tmp_path / "runs.db"),
    )
    runtime.agent("planner", engine=PlanExecuteEngine(runtime))
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            events = await FrontEnd(client).say("Plan it.")

    begun = [one["stepName"] for one in events if one["type"] == "STEP_STARTED"]
    ended = [one["stepName"] for one in events if one["type"] == "STEP_FINISHED"]
    facts = [change["path"] for one in events if one["type"] == "STATE_DELTA" for change in one["delta"]]  # fmt: skip
    assert begun == ended
    assert begun[0].startswith("plan ")
    assert "/facts/Plan" in facts
    assert spoken(events) == "It is 21."


async def test_what_may_be_secret_is_withheld(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path, call("read_key"), "It is hunter2.")
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            events = await front.say("Read it.")
            again = await front.come_back(0)

    assert "hunter2" not in json.dumps(events)
    assert "hunter2" not in json.dumps(again)
    assert "withheld" in json.dumps(events)


async def test_users_of_an_application_have_threads_of_their_own(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, "Hello Ann.", "Hello Bob.")
    names = {name: Principal(name, "acme", ("operate",)) for name in ("ann", "bob")}
    console = Console(runtime, user=lambda request: names.get(request.headers.get("x-user", "")))  # fmt: skip
    with serving(console.app) as address:
        async with connect(address, **{"X-User": "ann"}) as ann:
            front = FrontEnd(ann)
            assert spoken(await front.say("I am Ann.")) == "Hello Ann."
        async with connect(address, **{"X-User": "bob"}) as bob:
            other = FrontEnd(bob)
            refused = await other.say("And who am I?")
            watched = await bob.get(f"/ag-ui/{front.run}/events")
            stopped = await bob.post(f"/ag-ui/{front.run}/stop")
            other.thread = "t2"
            own = await other.say("I am Bob.")
        async with connect(address) as nobody:
            unknown = await FrontEnd(nobody).say("Hello.")

    assert refused[0]["type"] == watched.status_code == stopped.status_code == 404
    assert spoken(own) == "Hello Bob."
    assert unknown[0]["type"] == 401


async def test_a_front_end_does_what_the_roles_of_its_user_let_it(
    tmp_path: Path,
) -> None:
    script = call("ask_user", question="Which?"), call("delete", name="a"), "Gone."
    runtime = build_runtime(tmp_path, *script)

    def find_user(request: Any) -> Principal:
        return Principal("ann", "acme", tuple(request.headers["x-roles"].split()))

    with serving(Console(runtime, user=find_user).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)

            async def act(roles: str, work: Any, *given: Any, **more: Any) -> Any:
                client.headers["x-roles"] = roles
                return await work(*given, **more)

            begun = [await act(roles, front.say, "Tidy.") for roles in ("", "view")]
            asked = await act("operate", front.say, "Tidy up.")
            answered = await act("view approve", front.answer, asked, "a")
            no_answer = await act("view", front.say, "", resume=[{"interruptId": "x", "status": "cancelled"}])  # fmt: skip
            watched = [await act(roles, client.get, f"/ag-ui/{front.run}/events") for roles in ("", "view")]  # fmt: skip
            stopped = await act("view", client.post, f"/ag-ui/{front.run}/stop")
            waiting = await act("operate", front.answer, asked, "a")
            decided = [await act("operate", front.answer, waiting, one) for one in (True, None)]  # fmt: skip
            kept = runtime.journal.runs()[0].status
            done = await act("view approve", front.answer, waiting, True)

    refused = [*begun, answered, no_answer, *decided]
    assert [one[0]["type"] for one in refused] == [403] * len(refused)
    assert [one.status_code for one in (*watched, stopped)] == [403, 200, 403]
    assert waiting[-1]["outcome"]["interrupts"][0]["reason"] == "approval"
    assert (kept, spoken(done)) == ("waiting", "Gone.")


async def test_a_customer_who_may_chat_has_threads_of_its_own_and_nothing_else(
    tmp_path: Path,
) -> None:
    script = call("ask_user", question="Which?"), call("delete", name="a"), "Hello Bob."
    runtime = build_runtime(tmp_path, *script)
    roles = {"ann": ("customer",), "bob": ("operate",)}

    def find_user(request: Any) -> Principal:
        name = request.headers["x-user"]
        return Principal(name, "acme", roles[name])

    console = Console(runtime, user=find_user, roles={"customer": "chat"})
    with serving(console.app) as address:
        async with connect(address, **{"X-User": "ann"}) as ann:
            front = FrontEnd(ann)
            asked = await front.say("Tidy up.")
            waiting = await front.answer(asked, "a")
            decided = [await front.answer(waiting, one) for one in (True, False, None)]
            kept = runtime.journal.runs()[0].status
            async with connect(address, **{"X-User": "bob"}) as bob:
                theirs = FrontEnd(bob, "t2")
                await theirs.say("I am Bob.")
            others = [
                (await FrontEnd(ann, "t2").say("And I?"))[0]["type"],
                (await ann.get(f"/ag-ui/{theirs.run}/events")).status_code,
                (await ann.post(f"/ag-ui/{theirs.run}/stop")).status_code,
            ]
            ann.headers["x-loopwright-console"] = "1"
            routes = [one for one in console_routes(console) if "/api/" in one[1]]
            page = [await ann.request(method, path, json={}) for method, path in routes]
            watched = await ann.get(f"/ag-ui/{front.run}/events")
            stopped = await ann.post(f"/ag-ui/{front.run}/stop")

    assert asked[-1]["outcome"]["interrupts"][0]["reason"] == "question"
    assert waiting[-1]["outcome"]["interrupts"][0]["reason"] == "approval"
    assert [one[0]["type"] for one in decided] == [403, 403, 403]
    assert (kept, others) == ("waiting", [404, 404, 404])
    assert len(page) > 20
    assert {one.status_code for one in page} == {403}
    assert (watched.status_code, stopped.status_code) == (200, 200)


def console_routes(console: Console) -> list[tuple[str, str]]:
    """The method and path of each route of a console."""
    routes: Any = console._routes()  # pyright: ignore[reportPrivateUsage]
    return [(method, one.path) for one in routes for method in one.methods - {"HEAD"}]


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"threadId": ""}, 400, "threadId"),
        ({"messages": [{"role": "robot", "id": "1", "content": "x"}]}, 400, "messages"),
        ({"messages": []}, 400, "the last one must be a user's"),
        ({"resume": [{"interruptId": "x", "status": "resolved"}]}, 404, "not in the journal"),
        ({"messages": [{"id": "1", "role": "user", "content": [SOUND]}]}, 400, "got 'audio'"),
    ],
    ids=["no thread", "role", "nothing said", "no such thread", "sound"],
)  # fmt: skip
async def test_bad_input_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], status: int, error: str
) -> None:
    runtime = build_runtime(tmp_path, "Never.")
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client)
            [refused] = await front.post({**front.body("Hello."), **change})

    assert refused["type"] == status
    assert error in refused["error"]
    assert not runtime.journal.runs()


async def test_strangers_and_journals_without_a_runtime_are_refused(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(tmp_path, "Never.")
    with serving(build_console(runtime).app) as address:
        async with connect(address, Authorization="Bearer wrong") as client:
            [wrong] = await FrontEnd(client).say("Hello.")
        async with connect(address, Origin="https://evil.example") as client:
            [foreign] = await FrontEnd(client).say("Hello.")
        async with connect(address) as client:
            json_type = {"Content-Type": "application/json"}
            large = await client.post("/ag-ui", content=b"[" * 9_000_000, headers=json_type)  # fmt: skip
            other = await client.post("/ag-ui", content=b"{}", headers={"Content-Type": "text/plain"})  # fmt: skip
            lost = await client.post("/ag-ui?agent=nobody", json=FrontEnd(client).body("Hi."))  # fmt: skip
    with serving(Console(runtime.journal, user="ada", token=TOKEN).app) as address:
        async with connect(address) as client:
            [alone] = await FrontEnd(client).say("Hello.")

    assert (wrong["type"], foreign["type"]) == (401, 403)
    assert (large.status_code, other.status_code, lost.status_code) == (413, 415, 404)
    assert alone["type"] == 409
    assert "runtime" in alone["error"]


async def test_a_run_of_another_process_is_watched_to_its_end(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path, "Never.")
    elsewhere = build_runtime(tmp_path, call("delete", name="a"), "Gone.")
    thread = elsewhere.agents["guide"].thread("far")
    await thread.run("Delete a.")
    [info] = runtime.journal.runs()
    with serving(build_console(runtime).app) as address:
        async with connect(address) as client:
            front = FrontEnd(client, "far")
            front.run = info.run_id
            watching = asyncio.create_task(front.come_back(2))
            suspended: Any = runtime.journal.read(info.run_id)[-1].event
            [question] = suspended.pending
            waiting = await watching
            await elsewhere.control(info.run_id).approve(question.id)
            watching = asyncio.create_task(front.come_back(front.seen))
            await elsewhere.resume(info.run_id)
            events = await watching

    assert waiting[-1]["outcome"]["type"] == "interrupt"
    assert spoken(events) == "Gone."
    assert isinstance(elsewhere.agents["guide"].engine, ReActEngine)
