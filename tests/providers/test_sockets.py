"""Own sockets over TLS: a good certificate works, connections are kept, a bad one is refused for good."""

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loopwright import Conversation, ProviderError, Request
from loopwright.providers import OpenAIProvider, transport

ANSWER = json.dumps({"choices": [{"message": {"content": "over TLS"}, "finish_reason": "stop"}]}).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
ASKED = Request(Conversation.of("x"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost with its key, made for this test."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command here to make a certificate with")
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*make, "-keyout", str(file), "-out", str(file) + ".crt"], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The certificate, trusted by the connections of this test."""
    monkeypatch.setattr(transport, "_tls", lambda: ssl.create_default_context(cafile=str(certificate) + ".crt"))
    return certificate


@asynccontextmanager
async def server(certificate: Path) -> AsyncIterator[tuple[int, list[int]]]:
    """A TLS server that answers every request; its port, and the number of requests on each connection."""
    requests: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(0)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                requests[-1] += 1
                writer.write(HEAD + ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    asyncio.get_running_loop().set_exception_handler(lambda loop, details: None)  # a refused handshake is expected
    try:
        yield listening.sockets[0].getsockname()[1], requests
    finally:
        listening.close()


async def test_calls_over_tls_share_one_connection(trusted: Path) -> None:
    async with server(trusted) as (port, requests):
        provider = OpenAIProvider("m", base_url=f"https://localhost:{port}/v1", api_key="a-long-key")
        answers = [(await provider.complete(ASKED)).answer for _ in range(3)]
        await provider.aclose()

    assert answers == ["over TLS"] * 3
    assert requests == [3]


async def test_a_certificate_of_another_host_is_refused_and_not_tried_again(trusted: Path) -> None:
    async with server(trusted) as (port, _):
        provider = OpenAIProvider("m", base_url=f"https://127.0.0.1:{port}/v1", api_key="a-long-key")
        with pytest.raises(ProviderError, match="certificate verify failed") as raised:
            await provider.complete(ASKED)
        await provider.aclose()

    assert not raised.value.retryable


async def test_a_call_over_tls_that_is_cancelled_does_not_wait_for_the_server_s_goodbye(trusted: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await over.wait()
        writer.transport.abort()

    asked, over = asyncio.Event(), asyncio.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted)
    async with await asyncio.start_server(silent, "127.0.0.1", 0, ssl=context) as listening:
        port = listening.sockets[0].getsockname()[1]
        provider = OpenAIProvider("m", base_url=f"https://localhost:{port}/v1", api_key="x")
        call = asyncio.ensure_future(provider.complete(ASKED))
        await asked.wait()
        call.cancel()
        done, _ = await asyncio.wait([call], timeout=10)  # the goodbye would be waited for three times as long
        over.set()

    assert done == {call}
