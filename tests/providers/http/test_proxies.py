"""Proxies and certificates of the environment: a proxy on this machine counts what goes through it."""

import asyncio
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loopwright import ReActEngine, Runtime
from loopwright.errors import ConfigError, ProviderError
from loopwright.journals import MemoryJournal
from loopwright.messages import Conversation
from loopwright.plugins import build_provider
from loopwright.providers import (
    AnthropicProvider,
    GeminiProvider,
    OpenAIProvider,
    OpenAIResponsesProvider,
    Request,
)

PASSWORD = "proxy-pass-9f3k"
ANSWER = json.dumps(
    {"choices": [{"message": {"content": "through"}, "finish_reason": "stop"}]}
).encode()
ASKED = Request(Conversation.of("x"))
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def build_reply(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Proxy:
    """Answers requests for other hosts itself, and tunnels to servers on this machine."""

    def __init__(self, *, status: int = 200) -> None:
        self.seen: list[str] = []
        self.authorizations: list[str] = []
        self.url = ""
        self._status = status
        self._open: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}

    async def close(self) -> None:
        """Hang up, and wait until every connection has ended."""
        for writer in self._open.values():
            writer.close()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            await self.answer(reader, writer)
        finally:
            writer.close()

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *headers = head.strip().split("\r\n")
                fields = {
                    name.lower(): value
                    for name, _, value in (one.partition(": ") for one in headers)
                }
                self.seen.append(line)
                self.authorizations.append(fields.get("proxy-authorization", ""))
                if self._status != 200:
                    writer.write(
                        f"HTTP/1.1 {self._status} No\r\ncontent-length: 0\r\n\r\n".encode()
                    )
                elif line.startswith("CONNECT"):
                    await self.tunnel(line.split()[1], reader, writer)
                    break
                else:
                    await reader.readexactly(int(fields["content-length"]))
                    writer.write(build_reply(ANSWER))
                await writer.drain()

    async def tunnel(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far, near = await asyncio.open_connection(
            "127.0.0.1", int(target.partition(":")[2])
        )
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

        async def pump(
            source: asyncio.StreamReader, target: asyncio.StreamWriter
        ) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65_536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(pump(reader, near), pump(far, writer))


@contextlib.asynccontextmanager
async def running(proxy: Proxy) -> AsyncGenerator[Proxy]:
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *map(str.lower, VARIABLES)):
        monkeypatch.delenv(name, raising=False)


async def complete(provider: Any) -> Any:
    try:
        return await provider.complete(ASKED)
    finally:
        await provider.aclose()


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_of_the_environment_gets_the_requests(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Proxy()) as proxy:
        monkeypatch.setenv(variable, f"http://{proxy.url}")
        provider = OpenAIProvider("m", base_url="http://model.example/v1")
        for _ in range(3):
            assert (await provider.complete(ASKED)).answer == "through"
        await provider.aclose()
    assert proxy.seen == ["POST http://model.example/v1/chat/completions HTTP/1.1"] * 3


@pytest.mark.parametrize(
    "build",
    [
        lambda url: OpenAIResponsesProvider("m", base_url=url, api_key="key-123456"),
        lambda url: AnthropicProvider("m", base_url=url, api_key="key-123456"),
        lambda url: GeminiProvider("m", base_url=url, api_key="key-123456"),
    ],
    ids=["responses", "anthropic", "gemini"],
)
async def test_every_provider_uses_it(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Proxy()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)  # also without a scheme
        with pytest.raises(ProviderError):  # the answer is one of Chat Completions
            await complete(build("http://model.example/v1"))
    assert len(proxy.seen) == 1


@pytest.mark.parametrize(
    "excepted", ["model.example", ".example", "*", "other, model.example:80"]
)
async def test_hosts_in_no_proxy_are_asked_directly(
    excepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Proxy()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.url}")
        monkeypatch.setenv("NO_PROXY", excepted)
        with pytest.raises(ProviderError):  # there is no such host
            await complete(OpenAIProvider("m", base_url="http://model.example/v1"))
        assert proxy.seen == []
        if excepted != "*":
            await complete(OpenAIProvider("m", base_url="http://another.test/v1"))
            assert len(proxy.seen) == 1


async def test_a_client_that_is_given_decides_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(Proxy()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.url}")
        transport = httpx.MockTransport(
            lambda request: httpx.Response(200, content=ANSWER)
        )
        async with httpx.AsyncClient(transport=transport) as client:
            provider = OpenAIProvider(
                "m", base_url="http://model.example/v1", client=client
            )
            assert (await provider.complete(ASKED)).answer == "through"
    assert proxy.seen == []


async def test_name_and_password_are_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = MemoryJournal()
    async with running(Proxy(status=407)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:{PASSWORD}@{proxy.url}")
        provider = OpenAIProvider("m", base_url="http://model.example/v1")
        engine = ReActEngine(Runtime(provider, journal=journal))
        result = await engine.run("x", run_id="r")
        await provider.aclose()
    assert result.status == "failed"
    assert proxy.authorizations[0].startswith("Basic ")
    shown = [repr(provider), str(result.error), repr(result), caplog.text]
    shown += [repr(entry) for entry in journal.read("r")]
    assert not [text for text in shown if PASSWORD in text]


@pytest.mark.parametrize(
    "value", [f"gopher://user:{PASSWORD}@x", "http://", f"http://u:{PASSWORD}@x:port"]
)
def test_a_value_that_is_no_proxy_is_refused_by_the_name_of_its_variable(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", value)
    with pytest.raises(ConfigError, match="HTTP_PROXY: not the URL of a proxy") as told:
        OpenAIProvider("m", base_url="http://model.example/v1")
    assert PASSWORD not in str(told.value)


async def test_a_proxy_that_is_away_is_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(ProviderError) as told:
        await complete(OpenAIProvider("m", base_url="http://model.example/v1"))
    assert told.value.retryable


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost that is its own authority."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl command here to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    command = [
        openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost", "-keyout", str(folder / "key"), "-out", str(folder / "crt"),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return folder


@contextlib.asynccontextmanager
async def secure_server(authority: Path) -> AsyncGenerator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.split(b"content-length:")[1].split(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(build_reply(ANSWER))
                await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "crt", authority / "key")
    asyncio.get_running_loop().set_exception_handler(lambda loop, details: None)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("is_proxied", [True, False])
async def test_an_authority_of_one_s_own_is_trusted(
    authority: Path, is_proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "crt"))
    async with running(Proxy()) as proxy, secure_server(authority) as port:
        if is_proxied:
            monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.url}")
        url = f"https://localhost:{port}/v1"
        provider = OpenAIProvider("m", base_url=url, api_key="key-123456")
        assert (await complete(provider)).answer == "through"
        tunnelled = [f"CONNECT localhost:{port} HTTP/1.1"]
        assert proxy.seen == (tunnelled if is_proxied else [])


@pytest.mark.parametrize("is_proxied", [True, False])
async def test_without_it_the_server_is_refused_for_good(
    authority: Path, is_proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(Proxy()) as proxy, secure_server(authority) as port:
        if is_proxied:
            monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.url}")
        url = f"https://localhost:{port}/v1"
        provider = OpenAIProvider("m", base_url=url, api_key="key-123456")
        with pytest.raises(ProviderError) as told:
            await complete(provider)
    assert not told.value.retryable


# By name, and on the command line


async def test_a_model_by_name_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "http://model.example/v1")
    async with running(Proxy()) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.url}")
        assert (await complete(build_provider("vllm:m"))).answer == "through"
    assert len(proxy.seen) == 1


async def test_the_command_line_uses_it(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    async with running(Proxy()) as proxy:
        environment = {
            **os.environ,
            "VLLM_BASE_URL": "http://model.example/v1",
            "HTTP_PROXY": f"http://{proxy.url}",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loopwright", "run", "x", "--provider", "vllm:m", "-q",
            cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
    assert (process.returncode, out.decode().strip()) == (0, "through"), err.decode()
    assert len(proxy.seen) == 1
