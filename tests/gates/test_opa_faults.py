"""OpaGate fails closed: behind a policy service that does anything but decide, not one destructive tool starts."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path

import httpx
import pytest
import structlog

from loopwright import Action, Allow, Deny, PolicyState, ReActEngine, Runtime, tool
from loopwright.events import GateDecided, ToolStarted
from loopwright.gates import OpaGate
from loopwright.testing import ScriptedProvider, call

Talk = Callable[[asyncio.StreamWriter], Awaitable[None]]
ACTION = Action("erase", {"what": "disk"}, effect="destructive")
STATE = PolicyState("run-1", "3#0", "react", 2, 3, 0)
UNDECIDED = "the policy service gave no decision about erase, so it was not run"
ALLOW = b'{"result": {"decision": "allow"}}'


def answer(
    body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json"
) -> bytes:
    head = [
        f"HTTP/1.1 {status}",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(head).encode() + body


def result(value: bytes) -> bytes:
    return answer(b'{"result": ' + value + b"}")


@contextlib.asynccontextmanager
async def saying(
    talk: bytes | Talk, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """A server that reads one request on each connection, and answers with bytes or as a function does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(
                int(
                    head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                )
            )
            if isinstance(talk, bytes):
                writer.write(talk)
            else:
                await talk(writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the gate has hung up
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as listening:
        scheme = "https" if tls else "http"
        yield f"{scheme}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def starts_behind(gate: OpaGate) -> tuple[int, list[str]]:
    """How often a destructive tool starts in a real run behind the gate, and what its model is told."""
    ran: list[str] = []

    @tool(effect="destructive")
    async def erase(what: str) -> str:
        """Erase something."""
        ran.append(what)
        return "erased"

    runtime = Runtime(
        ScriptedProvider([call("erase", what="disk"), "I may not."]),
        tools=[erase],
        gate=gate,
    )
    async with contextlib.aclosing(gate):
        ended = await ReActEngine(runtime).run("Erase the disk.")
    events = [entry.event for entry in runtime.journal.read(ended.run_id)]
    assert len(ran) == sum(isinstance(event, ToolStarted) for event in events)
    return len(ran), [
        event.reason for event in events if isinstance(event, GateDecided)
    ]


async def test_a_destructive_tool_starts_when_the_service_allows_it() -> None:
    """So that the tests below show something."""
    async with saying(answer(ALLOW, kind="application/json; charset=utf-8")) as url:
        assert await starts_behind(OpaGate(url)) == (1, [""])


FAULTS = {
    "no result, as of a document that is undefined": answer(b"{}"),
    "a result of null": result(b"null"),
    "a bare true": result(b"true"),
    "a bare word": result(b'"allow"'),
    "a list": result(b'[{"decision": "allow"}]'),
    "an empty object": result(b"{}"),
    "an answer that is a list": answer(b'[{"result": {"decision": "allow"}}]'),
    "an unknown decision": result(b'{"decision": "permit"}'),
    "a decision in capitals": result(b'{"decision": "ALLOW"}'),
    "a decision that is true": result(b'{"decision": true}'),
    "an obligation that nobody would meet": result(
        b'{"decision": "allow", "obligations": ["log it"]}'
    ),
    "arguments beside an allow": result(b'{"decision": "allow", "arguments": {}}'),
    "a modify without arguments": result(b'{"decision": "modify"}'),
    "a modify with a list": result(b'{"decision": "modify", "arguments": []}'),
    "an ask without a question": result(b'{"decision": "ask"}'),
    "an ask with an empty question": result(b'{"decision": "ask", "question": "  "}'),
    "a reason that is not a text": result(b'{"decision": "allow", "reason": 1}'),
    "a key twice": result(b'{"decision": "deny", "decision": "allow"}'),
    "the result twice": answer(
        b'{"result": {"decision": "deny"}, "result": {"decision": "allow"}}'
    ),
    "no JSON": answer(b"allow"),
    "JSON that is cut off": answer(ALLOW[:-1]),
    "two values": answer(ALLOW + ALLOW),
    "JSON in a code fence": answer(b"```json\n" + ALLOW + b"\n```"),
    "NaN": answer(b'{"result": {"decision": "allow"}, "metrics": NaN}'),
    "nested too deeply": answer(
        b'{"x": ' + b"[" * 100 + b"]" * 100 + b', "result": {"decision": "allow"}}'
    ),
    "bytes that are no UTF-8": answer(
        b'{"result": {"decision": "allow", "reason": "\xff"}}'
    ),
    "an empty body": answer(b""),
    "status 201": answer(ALLOW, status="201 Created"),
    "status 204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "status 400": answer(ALLOW, status="400 Bad Request"),
    "status 401": answer(ALLOW, status="401 Unauthorized"),
    "status 404": answer(ALLOW, status="404 Not Found"),
    "status 500": answer(ALLOW, status="500 Internal Server Error"),
    "status 503": answer(ALLOW, "retry-after: 0", status="503 Unavailable"),
    "another content type": answer(ALLOW, kind="text/html"),
    "no content type": b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(ALLOW)
    + ALLOW,
    "a compressed body": answer(ALLOW, "content-encoding: gzip"),
    "a body that ends early": answer(ALLOW).replace(
        b"content-length: 33", b"content-length: 99"
    ),
    "a body that is longer than allowed": answer(ALLOW[:-1] + b" " * 70_000 + b"}"),
    "no HTTP": b"allow\r\n\r\n",
    "a connection that is closed without a word": b"",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_no_decision_starts_nothing(fault: str) -> None:
    async with saying(FAULTS[fault]) as url:
        assert await starts_behind(OpaGate(url)) == (0, [UNDECIDED])


@pytest.mark.parametrize(
    "status",
    ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"],
)
@pytest.mark.parametrize(
    "own_client", [False, True], ids=["its client", "a client of the caller's"]
)
async def test_a_redirect_is_not_followed(status: str, own_client: bool) -> None:
    async with saying(answer(ALLOW)) as elsewhere, contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(
            saying(answer(ALLOW, f"location: {elsewhere}/allow", status=status))
        )
        client = httpx.AsyncClient(follow_redirects=True) if own_client else None
        if client is not None:
            await stack.enter_async_context(client)

        assert await starts_behind(OpaGate(url, client=client)) == (0, [UNDECIDED])


async def test_a_service_that_is_silent_has_denied_when_its_time_is_over() -> None:
    over = asyncio.Event()

    async def silence(_: asyncio.StreamWriter) -> None:
        await over.wait()

    async with saying(silence) as url:
        started, reasons = await starts_behind(OpaGate(url, timeout=0.2))
        over.set()

    assert (started, len(reasons)) == (0, 1)
    assert reasons[0] in (UNDECIDED, "the policy gate did not decide in time")


async def test_a_body_that_trickles_in_is_not_waited_for_beyond_the_time_in_all() -> (
    None
):
    """Each byte comes in time, so that only a limit of the whole ends it; asked without a run and its own limit."""
    sent = 0

    async def trickle(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(answer(ALLOW)[: -len(ALLOW)])
        for byte in ALLOW:
            writer.write(bytes([byte]))
            await writer.drain()
            sent += 1
            await asyncio.sleep(0.05)

    async with (
        saying(trickle) as url,
        contextlib.aclosing(OpaGate(url, timeout=0.3)) as gate,
    ):
        assert await gate.evaluate(ACTION, STATE) == Deny(UNDECIDED)

    assert sent < len(ALLOW)


async def test_a_body_without_end_is_read_no_further_than_allowed() -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        while True:
            writer.write(b"1000\r\n" + b" " * 4096 + b"\r\n")
            sent += 4096
            await writer.drain()

    async with saying(endless) as url:
        assert await starts_behind(OpaGate(url)) == (0, [UNDECIDED])

    assert (
        sent < 50_000_000
    )  # what fits into the buffers of both sides beyond the 65,536 bytes


async def test_nobody_listens() -> None:
    async with saying(b"") as url:
        pass

    assert await starts_behind(OpaGate(url)) == (0, [UNDECIDED])


async def test_a_client_that_is_closed_already_decides_nothing() -> None:
    client = httpx.AsyncClient()
    await client.aclose()

    assert await starts_behind(OpaGate("http://127.0.0.1:1", client=client)) == (
        0,
        [UNDECIDED],
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody has signed but its owner."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command here to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


async def test_a_certificate_that_is_not_trusted_decides_nothing(
    certificate: Path,
) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=certificate)

    async with (
        saying(answer(ALLOW), tls) as url,
        httpx.AsyncClient(verify=trusting) as client,
    ):
        assert await starts_behind(OpaGate(url)) == (0, [UNDECIDED])
        assert await starts_behind(OpaGate(url, client=client)) == (1, [""])


async def test_a_proxy_of_the_environment_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        saying(answer(ALLOW)) as proxy,
        saying(result(b'{"decision": "deny", "reason": "no"}')) as url,
    ):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)

        assert await starts_behind(OpaGate(url)) == (0, ["no"])


async def test_a_cookie_of_the_service_is_not_kept() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            answer(ALLOW, "set-cookie: tenant=acme; Path=/", "connection: close")
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with contextlib.aclosing(OpaGate(url)) as gate:
            assert [await gate.evaluate(ACTION, STATE) for _ in range(2)] == [
                Allow(),
                Allow(),
            ]

    assert [b"cookie" in head.lower() for head in seen] == [False, False]


async def test_arguments_that_are_no_json_are_not_sent() -> None:
    async with saying(answer(ALLOW)) as url, contextlib.aclosing(OpaGate(url)) as gate:
        assert await gate.evaluate(
            Action("erase", {"what": float("nan")}), STATE
        ) == Deny(UNDECIDED)


@pytest.fixture
def lines() -> Iterator[list[MutableMapping[str, object]]]:
    with structlog.testing.capture_logs() as kept:
        yield kept


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (answer(b"{}"), "the answer is not a decision: result: missing"),
        (
            result(b'{"decision": "hush"}'),
            "the answer is not a decision: result: union_tag_invalid",
        ),
        (
            result(b'{"decision": "allow", "hush": 1}'),
            "the answer is not a decision: result.allow.hush: extra_forbidden",
        ),
        (answer(ALLOW, status="503 Unavailable"), "the answer has status 503"),
        (b"", "RemoteProtocolError"),
    ],
)
async def test_the_log_says_what_was_wrong_and_nothing_of_what_was_sent(
    said: bytes, problem: str, lines: list[MutableMapping[str, object]]
) -> None:
    async with (
        saying(said) as url,
        contextlib.aclosing(OpaGate(url, token="hush-hush")) as gate,
    ):
        await gate.evaluate(Action("erase", {"what": "the secret"}), STATE)

    assert lines == [
        {
            "event": "opa_undecided", "log_level": "warning", "url": f"{url}/v1/data/loopwright/decision",
            "tool": "erase", "problem": problem,
        }
    ]  # fmt: skip
