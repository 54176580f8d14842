"""The toolbox `search`: four services on this machine, what a model reads of them, and Self-Ask on one."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from loopwright import ConfigError, Runtime, SelfAskEngine
from loopwright.plugins import build_tools
from loopwright.testing import ScriptedProvider
from loopwright.toolboxes.search import (
    BraveSearch,
    SearchResult,
    SearchService,
    SearxngSearch,
    TavilySearch,
    WikipediaSearch,
    search,
)

KEY = "BSA-very-secret-key-of-the-service"
OPTIONS: dict[str, Any] = {"allow_private": ["127.0.0.1"]}


class Service:
    """A server that answers with JSON, and what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, dict[str, str], str]] = []
        self.url = ""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.partition(": ") for line in lines if line]
        headers = {name.lower(): value for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = head.split(" ")
        self.asked.append((method, path, headers, body.decode()))
        status, answer = self.answers.pop(0)
        text = json.dumps(answer)
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())  # fmt: skip
        await writer.drain()
        writer.close()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made


Build = Callable[[str], SearchService]
CASES: list[tuple[Build, Any, str]] = [
    (
        lambda url: WikipediaSearch(base_url=url, **OPTIONS),
        {"query": {"search": [{"title": "Marie Curie", "snippet": 'was <span class="s">born</span> in 1867 &amp; died'}]}},
        "Marie Curie\nURL/wiki/Marie_Curie\nwas born in 1867 & died",
    ),
    (
        lambda url: SearxngSearch(url, **OPTIONS),
        {"results": [{"title": "Curie", "url": "https://a.example", "content": "born  1867"}, {"title": "B", "url": "https://b.example"}]},
        "Curie\nhttps://a.example\nborn 1867\n\nB\nhttps://b.example",
    ),
    (
        lambda url: BraveSearch(KEY, base_url=url, **OPTIONS),
        {"web": {"results": [{"title": "Curie", "url": "https://a.example", "description": "<strong>born</strong> 1867"}]}},
        "Curie\nhttps://a.example\nborn 1867",
    ),
    (
        lambda url: TavilySearch(KEY, base_url=url, **OPTIONS),
        {"results": [{"title": "Curie", "url": "https://a.example", "content": "born 1867", "score": 0.9}]},
        "Curie\nhttps://a.example\nborn 1867",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("build", "answer", "text"), CASES)
async def test_a_service_is_asked_and_its_answer_is_text(
    service: Service, build: Build, answer: Any, text: str
) -> None:
    service.answers = [(200, answer)]
    [web_search] = search(build(service.url), limit=3)
    found = await web_search("when was  Curie born")

    assert str(found).replace(service.url, "URL") == text
    method, path, headers, body = service.asked[0]
    sent = [
        *parse_qs(urlsplit(path).query).values(),
        *json.loads(body or "{}").values(),
    ]
    assert ["when was Curie born"] in sent or "when was Curie born" in sent
    assert (method == "POST") == bool(body)
    is_keyed = KEY in json.dumps(headers)
    assert is_keyed == ("Brave" in web_search.description or "Tavily" in web_search.description)  # fmt: skip
    assert (KEY in web_search.secrets) == is_keyed
    assert (web_search.effect, web_search.outbound) == ("read", True)


@pytest.mark.parametrize(("build", "answer", "text"), CASES)
async def test_an_answer_in_another_form_is_an_error_for_the_model(
    service: Service, build: Build, answer: Any, text: str
) -> None:
    for odd in ({"results": [7], "web": {"results": [7]}, "query": 7}, [], None):
        service.answers = [(200, odd)]
        [web_search] = search(build(service.url))
        with pytest.raises(Exception, match="in another form"):
            await web_search("Curie")


async def test_self_ask_searches_and_tries_a_busy_service_again(
    service: Service,
) -> None:
    service.answers = [(503, {}), (200, CASES[1][1])]
    model = ScriptedProvider(
        [
            "Yes.\nFollow up: When was Marie Curie born?",
            "So the final answer is: 1867",
        ]
    )
    runtime = Runtime(model, tools=search(SearxngSearch(service.url, **OPTIONS)))
    result = await SelfAskEngine(runtime).run("How old would Marie Curie be?")

    assert result.answer == "1867"
    assert len(service.asked) == 2
    assert "born 1867" in str(result.conversation.messages)
    assert result.untrusted


async def test_a_key_is_in_no_entry_though_the_service_repeats_it(
    service: Service,
) -> None:
    echo = {"results": [{"title": "T", "url": "https://a.example", "content": f"your key {KEY}"}]}  # fmt: skip
    service.answers = [(200, echo)]
    model = ScriptedProvider(["Follow up: What?", "So the final answer is: it"])
    runtime = Runtime(model, tools=search(TavilySearch(KEY, base_url=service.url, **OPTIONS)))  # fmt: skip
    await SelfAskEngine(runtime).run("What is it?", run_id="r")

    assert all(KEY.encode() not in entry.body for entry in runtime.journal.read("r"))
    assert len(service.asked) == 1


async def test_a_service_in_a_private_network_must_be_allowed(
    service: Service,
) -> None:
    [web_search] = search(SearxngSearch(service.url))
    with pytest.raises(Exception, match="is not a public address"):
        await web_search("Curie")
    assert service.asked == []


def test_a_service_by_name_needs_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BRAVE_API_KEY", "TAVILY_API_KEY", "SEARXNG_URL"):
        monkeypatch.delenv(name, raising=False)
    [keyless] = build_tools("search:wikipedia/de")
    assert (keyless.name, "Wikipedia" in keyless.description) == ("web_search", True)
    for service, problem in (
        ("brave", "BRAVE_API_KEY"),
        ("tavily", "TAVILY_API_KEY"),
        ("searxng", "SEARXNG_URL"),
        ("altavista", "must be one of wikipedia, searxng, brave, tavily"),
        ("wikipedia/../x", "language"),
        ("searxng/ftp://x", "base_url"),
    ):
        with pytest.raises(ConfigError, match=problem):
            search(service)
    with pytest.raises(ConfigError, match="service: needs `name`"):
        search(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="limit"):
        search(limit=21)


async def test_a_service_of_your_own_is_a_name_and_a_method() -> None:
    class Own:
        name = "our archive"

        async def search(self, query: str, limit: int) -> Sequence[SearchResult]:
            return [SearchResult(query, f"https://archive.example/{n}") for n in range(9)]  # fmt: skip

    [web_search] = search(Own(), limit=2)
    found = str(await web_search("ferry"))

    assert (
        found == "ferry\nhttps://archive.example/0\n\nferry\nhttps://archive.example/1"
    )
    assert "our archive" in web_search.description
