"""OpaGate asks an Open Policy Agent: what it sends, what it makes of the answers, and real Rego behind them."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator

import httpx
import pytest
from pydantic import SecretStr

from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Deny,
    Modify,
    PolicyGate,
    PolicyState,
    ReActEngine,
    Runtime,
    tool,
)
from loopwright.events import GateDecided
from loopwright.gates import RESPOND, OpaGate
from loopwright.plugins import build_gate
from loopwright.principals import Principal
from loopwright.testing import GateContract, ScriptedProvider, call
from rego_server import RegoServer, rego_server

STATE = PolicyState(
    "run-1", "3#0", "react", 2, 3, 4, "sensitive", True, 1_700_000_000.5
)


@pytest.fixture
def server() -> Iterator[RegoServer]:
    with rego_server() as serving:
        yield serving


def after(calls: int) -> PolicyState:
    return PolicyState("run-1", "3#0", "react", 2, 3, calls)


async def decided(gate: OpaGate, action: Action, state: PolicyState = STATE) -> object:
    async with contextlib.aclosing(gate):
        return await gate.evaluate(action, state)


# --- what is asked ---


async def test_the_input_has_who_started_the_run_and_where_values_come_from(
    server: RegoServer,
) -> None:
    action = Action("send", {"to": "Bob"}, outbound=True, destinations=("to",))
    state = PolicyState(
        "run-1", "3#0", "react", 2, 3, 4, principal=Principal("ann", "acme", ("a",))
    )

    await decided(OpaGate(server.url, provenance=True), action, state)

    asked = server.asked[0][2]["input"]
    assert asked["state"]["principal"] == {"id": "ann", "tenant": "acme", "roles": ["a"]}  # fmt: skip
    assert asked["state"]["author"] == "model"
    assert asked["action"]["destinations"] == ["to"]
    assert asked["action"]["provenance"] == {
        "to": {"kind": "derived", "trusted": False, "sources": ["derived model"]}
    }


async def test_the_input_is_the_action_and_where_the_run_stands(
    server: RegoServer,
) -> None:
    action = Action(
        "look", {"what": "sky"}, "call-7", "read", frozenset({"untrusted", "sensitive"})
    )

    assert await decided(OpaGate(server.url), action) == Allow()

    path, headers, body = server.asked[0]
    assert path == "/v1/data/loopwright/decision"
    assert (headers["content-type"], headers["accept-encoding"]) == (
        "application/json",
        "identity",
    )
    assert body == {
        "input": {
            "action": {
                "tool": "look", "arguments": {"what": "sky"}, "call_id": "call-7", "effect": "read",
                "labels": ["sensitive", "untrusted"],
            },
            "state": {
                "run_id": "run-1", "key": "3#0", "engine": "react", "iteration": 2, "llm_calls": 3, "tool_calls": 4,
                "label": "sensitive", "untrusted": True, "at": 1_700_000_000.5,
            },
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "path", "asked"),
    [
        ("/", "loopwright/decision", "/v1/data/loopwright/decision"),
        ("/opa/", "/desk/refunds/", "/opa/v1/data/desk/refunds"),
        (
            "/v1/data/desk/refunds?instrument",
            "loopwright/decision",
            "/v1/data/desk/refunds?instrument",
        ),
    ],
)
async def test_the_document_is_named_by_its_path_or_by_the_whole_url(
    server: RegoServer, url: str, path: str, asked: str
) -> None:
    await decided(OpaGate(server.url + url, path=path), Action("look", {}))

    assert [path for path, _, _ in server.asked] == [asked]


async def test_token_and_headers_are_sent_and_shown_nowhere(server: RegoServer) -> None:
    gate = OpaGate(
        server.url, token=SecretStr("hush-hush"), headers={"x-tenant": "acme"}
    )

    await decided(gate, Action("look", {}))

    _, headers, _ = server.asked[0]
    assert (headers["authorization"], headers["x-tenant"]) == (
        "Bearer hush-hush",
        "acme",
    )
    assert "hush" not in repr(gate) + gate.version + repr(vars(gate))


async def test_the_connection_is_kept_between_decisions(server: RegoServer) -> None:
    gate = OpaGate(server.url)

    for _ in range(3):
        await gate.evaluate(Action("look", {}, effect="read"), after(0))
    await gate.aclose()
    await gate.aclose()
    again = await decided(gate, Action("look", {}, effect="read"), after(0))

    assert (server.connections, again) == (2, Allow())


async def test_a_gate_that_is_closed_leaves_the_connection_to_the_others_of_its_loop(
    server: RegoServer,
) -> None:
    one, other = OpaGate(server.url), OpaGate(server.url, token="another")
    action = Action("look", {}, effect="read")

    first = [await gate.evaluate(action, after(0)) for gate in (one, other)]
    await one.aclose()
    last = await decided(other, action, after(0))

    assert ([*first, last], server.connections) == ([Allow()] * 3, 1)
    assert [headers.get("authorization") for _, headers, _ in server.asked] == [
        None,
        "Bearer another",
        "Bearer another",
    ]


def test_a_gate_may_be_asked_in_one_event_loop_after_another(
    server: RegoServer,
) -> None:
    gate = OpaGate(server.url)

    said = [
        asyncio.run(gate.evaluate(Action("look", {}, effect="read"), after(0)))
        for _ in range(2)
    ]

    assert (said, server.connections) == ([Allow(), Allow()], 2)


async def test_a_client_of_your_own_is_used_and_never_closed(
    server: RegoServer,
) -> None:
    async with httpx.AsyncClient(
        headers={"x-from": "mine"}, follow_redirects=True
    ) as client:
        said = await decided(
            OpaGate(server.url, client=client),
            Action("look", {}, effect="read"),
            after(0),
        )

        assert (said, client.is_closed, server.asked[0][1]["x-from"]) == (
            Allow(),
            False,
            "mine",
        )


# --- what real Rego decides ---


@pytest.mark.parametrize(
    ("action", "state", "expected"),
    [
        (Action("look", {}, effect="read"), after(0), Allow()),
        (
            Action("look", {}, effect="read", labels=frozenset({"untrusted"})),
            after(0),
            Allow(),
        ),
        (
            Action("send", {}, effect="write", labels=frozenset({"untrusted"})),
            after(0),
            Deny("what came from outside may not lead to a change"),
        ),
        (
            Action("look", {}, effect="read"),
            after(5),
            Deny("five calls are enough for one run"),
        ),
        (Action("refund", {"order": "4711", "cents": 900}), after(0), Allow()),
        (
            Action("refund", {"order": "4711", "cents": 90_000}),
            after(0),
            Modify({"order": "4711", "cents": 10_000}, "capped"),
        ),
        (Action("erase", {}, effect="destructive"), after(0), Ask("Let erase run?")),
    ],
)
async def test_a_policy_decides_by_effect_arguments_labels_and_rate(
    server: RegoServer, action: Action, state: PolicyState, expected: object
) -> None:
    assert await decided(OpaGate(server.url), action, state) == expected


async def test_what_the_policy_wants_changed_is_what_runs(server: RegoServer) -> None:
    @tool
    def refund(order: str, cents: int) -> str:
        """Pay money back."""
        return f"{cents} cents for {order}"

    gate = OpaGate(server.url)
    runtime = Runtime(
        ScriptedProvider([call("refund", order="4711", cents=90_000), "Done."]),
        tools=[refund],
        gate=gate,
    )
    result = await ReActEngine(runtime).run("Refund 900 euros.")
    await gate.aclose()

    verdicts = [
        e.event
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, GateDecided)
    ]
    assert result.conversation.messages[-2].content == "10000 cents for 4711"
    assert (verdicts[0].verdict, verdicts[0].policy_version) == ("modify", gate.version)


async def test_the_answer_of_a_run_is_asked_about_where_the_gate_wants_to_see_it(
    server: RegoServer,
) -> None:
    for gate in (OpaGate(server.url), OpaGate(server.url, answers=True)):
        async with contextlib.aclosing(gate):
            result = await ReActEngine(
                Runtime(ScriptedProvider(["Blue."]), gate=gate)
            ).run("Which colour?")
        assert (result.status, result.answer) == ("completed", "Blue.")

    (asked,) = [body for _, _, body in server.asked]
    assert isinstance(asked, dict)
    assert asked["input"]["action"] == {  # type: ignore[index, call-overload]
        "tool": "respond", "effect": "read", "call_id": "run:respond", "labels": [],
        "arguments": {"answer": "Blue.", "status": "completed", "stop_reason": "answered"},
    }  # fmt: skip


async def test_a_tool_that_is_called_like_the_answer_never_passes_for_it(
    server: RegoServer,
) -> None:
    ran: list[str] = []

    @tool(effect="read")
    def respond(answer: str) -> str:
        """Respond."""
        ran.append(answer)
        return answer

    model = ScriptedProvider([call("respond", answer="Blue."), "Blue."])
    async with contextlib.aclosing(OpaGate(server.url, answers=True)) as gate:
        result = await ReActEngine(Runtime(model, tools=[respond], gate=gate)).run(
            "Which colour?"
        )

    assert (ran, result.answer) == ([], "Blue.")
    assert [body["input"]["action"]["call_id"] for _, _, body in server.asked] == [
        RESPOND
    ]  # type: ignore[index, call-overload]


class TestOpaGate(GateContract):
    """The contract of all gates, with the rules of the stand-in; nobody listens behind the broken one."""

    @pytest.fixture(autouse=True)
    def _serving(self) -> Iterator[None]:
        with rego_server() as self.server:
            yield

    def gate(self) -> PolicyGate:
        return OpaGate(self.server.url)

    def broken(self) -> Iterable[PolicyGate]:
        return [
            OpaGate("http://127.0.0.1:1"),
            OpaGate(self.server.url, path="loopwright/nothing"),
        ]


# --- how it is set up ---


def test_the_version_names_the_document_and_the_policy_behind_it() -> None:
    assert OpaGate().version == "opa http://localhost:8181/v1/data/loopwright/decision"
    assert (
        OpaGate("https://opa:8181", path="a/b", version="7").version
        == "opa https://opa:8181/v1/data/a/b 7"
    )
    assert (
        OpaGate("https://opa/v1/data/a?key=hush").version == "opa https://opa/v1/data/a"
    )


def test_a_remote_gate_has_two_seconds_unless_told_otherwise() -> None:
    assert (OpaGate().timeout, OpaGate(timeout=0.5).timeout) == (2.0, 0.5)


def test_a_gate_is_found_by_its_name() -> None:
    gate = build_gate("opa:https://opa:8181/v1/data/desk/refunds")

    assert repr(gate) == "OpaGate('https://opa:8181/v1/data/desk/refunds')"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"url": "localhost:8181"},
            "url: needs a scheme and a host, like 'http://localhost:8181', got",
        ),
        ({"url": "ftp://localhost"}, "url: needs a scheme and a host"),
        (
            {"url": "http://[::1"},
            "url: .*; give something like 'http://localhost:8181'",
        ),
        ({"url": "http://me:hush@opa"}, "url: contains a user name or password"),
        ({"path": "/"}, "path: name the document that decides"),
        ({"timeout": 0.0}, "timeout: must be above 0, got 0.0"),
        ({"timeout": float("nan")}, "timeout: must be above 0, got nan"),
        ({"max_bytes": 0}, "max_bytes: must be above 0, got 0"),
        (
            {"token": "two\nlines"},
            "headers: 'authorization' contains characters that HTTP does not allow",
        ),
        ({"headers": {"x-ü": "1"}}, "headers: 'x-ü' contains characters"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(
    options: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        OpaGate(**options)  # type: ignore[arg-type]
