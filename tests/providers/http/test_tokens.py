"""Tokens that callbacks fetch: they block no event loop, and stand in no error."""

import asyncio
import threading
import traceback

import httpx
import pytest

from loopwright import Conversation
from loopwright.errors import ProviderError
from loopwright.providers import GeminiProvider, Request
from loopwright.providers.http.tokens import BearerToken

ASKED = Request(Conversation.of("x"))
TOKEN = "ya29-a-token-of-nobody-1234567890"


async def test_a_plain_callback_runs_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    def fetch() -> str:
        threads.append(threading.current_thread())
        return TOKEN

    headers = await BearerToken(fetch)(b"")
    assert headers == {"authorization": f"Bearer {TOKEN}"}
    assert threads != [threading.current_thread()]


async def test_a_callback_may_return_something_to_await() -> None:
    async def later() -> str:
        await asyncio.sleep(0)
        return TOKEN

    for fetch in (later, lambda: later()):
        headers = await BearerToken(fetch)(b"")
        assert headers == {"authorization": f"Bearer {TOKEN}"}


async def test_the_error_of_a_callback_is_named_and_shows_no_text_of_it() -> None:
    def fetch() -> str:
        raise RuntimeError("refresh_token=1//0gSECRET")

    with pytest.raises(ProviderError, match="raised RuntimeError") as raised:
        await BearerToken(fetch)(b"")
    assert raised.value.retryable
    shown = "".join(traceback.format_exception(raised.value))
    assert "SECRET" not in shown
    assert raised.value.__context__ is None


async def test_a_token_that_a_server_repeats_is_hidden() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        text = f"invalid token {request.headers['authorization'].split()[1]}"
        return httpx.Response(401, json={"error": {"message": text}})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        provider = GeminiProvider(
            "gemini-2.5-pro",
            base_url="http://api.example",
            token=lambda: TOKEN,
            client=client,
        )
        with pytest.raises(ProviderError) as raised:
            await provider.complete(ASKED)
    assert "invalid token ***" in str(raised.value)
    assert "the token of token= was not accepted" in str(raised.value)
