"""Deliver: webhooks get what a run answered, at least once under one key; notes and functions beside them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loopwright import Deny, ReActEngine, Runtime
from loopwright.errors import ConfigError
from loopwright.events import CallDeadLettered, GateDecided
from loopwright.followups import Callback, Deliver, EndedRun, KnowledgeNote, Webhook
from loopwright.gates import Action, Allow, PolicyState
from loopwright.journals import MemoryJournal, SQLiteJournal
from loopwright.knowledge import MemoryKnowledge
from loopwright.testing import FakeClock, ScriptedProvider

HOME = ("127.0.0.1",)
TOKEN = "bot123456:AAF-secret-token-of-the-bot"


class Hook:
    """A server that takes deliveries: the status of each, and what it got."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.port = 0

    @property
    def keys(self) -> list[str]:
        """The idempotency keys that came."""
        return [headers["idempotency-key"] for _, headers, _ in self.got]

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.partition(": ") for line in lines if line]
        headers = {name.lower(): value for name, _, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
        self.got.append((head.split(" ")[1], headers, json.loads(body)))
        status = self.statuses.pop(0) if self.statuses else 200
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    made = Hook()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


async def deliver(*to: Any, journal: Any = None, **options: Any) -> tuple[Runtime, Any]:
    """Run, then do what is due; return the runtime and the result of the delivery."""
    runtime = Runtime(
        ScriptedProvider(["It rains in Bergen."]),
        journal=journal or MemoryJournal(),
        clock=FakeClock(),
        after=[Deliver(to=list(to))],
        **options,
    )
    await ReActEngine(runtime).run("Where does it rain?", run_id="r", tags={"user": "ada"})  # fmt: skip
    await runtime.drain()
    return runtime, await runtime.resume("r@after:deliver")


async def test_a_webhook_is_sent_the_answer_under_a_key(hook: Hook) -> None:
    _, result = await deliver(Webhook(url=hook.url(), allow_private=HOME))

    assert (result.status, result.answer) == ("completed", "delivered to 1")
    [(path, headers, body)] = hook.got
    assert (path, headers["content-type"]) == ("/hook", "application/json")
    assert headers["idempotency-key"] == "r@after:deliver:0#0"
    assert body == {
        "run_id": "r", "status": "completed", "answer": "It rains in Bergen.", "error": None, "agent": "", "thread": "",
        "tags": {"user": "ada"},
    }  # fmt: skip


async def test_a_busy_webhook_is_tried_again_under_the_same_key(hook: Hook) -> None:
    hook.statuses = [503, 429, 200]
    _, result = await deliver(Webhook(url=hook.url(), allow_private=HOME))

    assert result.status == "completed"
    assert len(hook.got) == 3
    assert len(set(hook.keys)) == 1


@pytest.mark.parametrize(("statuses", "sent"), [([503] * 9, 3), ([404], 1)])
async def test_what_cannot_be_delivered_is_a_dead_letter_and_is_listed(
    hook: Hook, statuses: list[int], sent: int
) -> None:
    hook.statuses = statuses
    runtime, result = await deliver(
        Webhook(url=hook.url(), allow_private=HOME, attempts=3)
    )

    assert len(hook.got) == sent
    assert result.status == "failed"
    assert "not delivered" in str(result.error)
    events = [entry.event for entry in runtime.journal.read("r@after:deliver")]
    assert [one.queue for one in events if isinstance(one, CallDeadLettered)] == [
        "delivery"
    ]
    assert [listed.info.run_id for listed in await runtime.due()] == ["r@after:deliver"]
    assert (await runtime.resume("r")).status == "completed"


async def test_a_dead_delivery_is_sent_again_under_its_key_and_no_other_is(
    hook: Hook,
) -> None:
    hook.statuses = [404, 200]
    first, second = (Webhook(url=hook.url(), allow_private=HOME) for _ in range(2))
    runtime, failed = await deliver(first, second)
    dead = [headers["idempotency-key"] for path, headers, _ in hook.got][:1]
    control = runtime.control("r@after:deliver")
    await control.retry("the receiver works again", by="ann")
    await runtime.drain()
    sent = await runtime.resume("r@after:deliver")

    assert (failed.status, sent.status) == ("failed", "completed")
    assert len(hook.got) == 3
    assert hook.got[-1][1]["idempotency-key"] == dead[0]
    assert await runtime.due() == []
    with pytest.raises(ConfigError, match=r"nothing to retry"):
        await control.retry("once more")


async def test_a_delivery_with_a_note_behind_it_is_not_sent_again(hook: Hook) -> None:
    hook.statuses = [404]
    target = Webhook(url=hook.url(), allow_private=HOME)
    store = MemoryKnowledge()
    runtime, failed = await deliver(target, KnowledgeNote(), knowledge=store)

    assert failed.status == "failed"
    with pytest.raises(ConfigError, match=r"did something after its failure"):
        await runtime.control("r@after:deliver").retry("it works again")


async def test_the_ssrf_guard_and_the_gate_stand_before_a_webhook(hook: Hook) -> None:
    _, guarded = await deliver(Webhook(url=hook.url()))
    assert guarded.status == "failed"

    seen: list[Action] = []

    class NoDelivery:
        version = "1"

        async def evaluate(self, action: Action, state: PolicyState) -> Any:
            seen.append(action)
            return Deny("not outside") if action.destinations else Allow()

    runtime, denied = await deliver(
        Webhook(url=hook.url("/secret-path"), allow_private=HOME), gate=NoDelivery()
    )
    assert denied.status == "failed"
    assert hook.got == []
    [sender] = Deliver(to=[Webhook(url=hook.url())]).tools
    assert (sender.outbound, sender.effect) == (True, "idempotent")
    [action] = [one for one in seen if one.destinations]
    assert action.arguments["url"] == f"http://127.0.0.1:{hook.port}"
    decided = [one.event for one in runtime.journal.read("r@after:deliver")]
    assert any(isinstance(one, GateDecided) for one in decided)


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_an_address_from_a_variable_is_in_no_file(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_HOOK", hook.url(f"/{TOKEN}/sendMessage"))
    target = Webhook(
        url="env:OPS_HOOK", format="telegram", options={"chat_id": "42"}, allow_private=HOME
    )  # fmt: skip
    journal = SQLiteJournal(tmp_path / "runs.db")
    hook.statuses = [500, 200]
    _, result = await deliver(target, journal=journal)
    await journal.close()

    assert result.status == "completed"
    assert hook.got[0][0] == f"/{TOKEN}/sendMessage"
    assert hook.got[0][2] == {"chat_id": "42", "text": "It rains in Bergen."}
    stored = bytes_in(tmp_path)
    assert TOKEN.encode() not in stored
    assert b"env:OPS_HOOK" in stored


async def test_discord_gets_a_message_that_mentions_nobody(hook: Hook) -> None:
    target = Webhook(url=hook.url(), format="discord", options={"username": "weather"}, allow_private=HOME)  # fmt: skip
    await deliver(target)

    assert hook.got[0][2] == {
        "allowed_mentions": {"parse": []},
        "username": "weather",
        "content": "It rains in Bergen.",
    }


async def test_a_note_and_a_function_get_the_answer_beside_a_webhook_that_fails(
    hook: Hook,
) -> None:
    called: list[str] = []

    async def call(ended: EndedRun) -> None:
        called.append(ended.result.answer or "")

    store = MemoryKnowledge()
    hook.statuses = [400]
    _, result = await deliver(
        Webhook(url=hook.url(), allow_private=HOME), KnowledgeNote(), Callback(call), knowledge=store
    )  # fmt: skip

    assert result.status == "failed"
    assert called == ["It rains in Bergen."]
    [item] = await store.search("rains Bergen", scope="ada", kinds=["reasoning"])
    assert (item.text, item.source_run) == ("It rains in Bergen.", "r")
    assert Callback.durable is False


async def test_another_process_delivers_what_is_due(hook: Hook) -> None:
    """Its runtime knows nothing of the delivery: the journal does."""
    journal = MemoryJournal()
    target = Webhook(url=hook.url(), allow_private=HOME)
    begun = Runtime(
        ScriptedProvider(["It rains."]), journal=journal, after=[Deliver(to=[target])]
    )
    begun._background.start = lambda run_ids: None  # type: ignore[method-assign]
    vars(begun)["start_due"] = lambda run_ids: None
    await ReActEngine(begun).run("Where?", run_id="r")
    assert hook.got == []

    [result] = await Runtime(ScriptedProvider([]), journal=journal).drain()
    assert (result.status, len(hook.got)) == ("completed", 1)


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ([], "to"),
        ([Webhook(url="ftp://x.example")], "url"),
        ([Webhook(url="https://ada:pw@x.example")], "url"),
        ([Webhook(url="env:NOT_THERE")], "url: the variable NOT_THERE is not set"),
        ([Webhook(url="https://x.example", format="fax")], "fax"),
        (["https://x.example"], "to"),
    ],
)
def test_a_target_that_cannot_be_is_refused(to: list[Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Deliver(to=to)
