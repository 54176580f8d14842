"""Secrets planted wherever something enters a run: none is found in what the run leaves behind."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import structlog

from fault_sizes import LONG, figure
from leaks import SHAPES, Left, secret_of
from loopwright import Action, Conversation, Delta, Deny, Message, ReActEngine, Runtime
from loopwright.journals import SQLiteJournal
from loopwright.messages import Reasoning, ToolCall, ToolSpec
from loopwright.observers import StructlogObserver
from loopwright.providers import Request
from loopwright.security import Redactor
from loopwright.testing import RecordingProvider, ReplayingProvider
from loopwright.tools import CallCompleted
from planted_secrets import PLANTED
from secret_sources import EverythingEngine, Gate, Model, Payer, pay, tools
from telemetry import Telemetry, everything_said

PLACES = (
    "task", "system prompt", "conversation", "results of a conversation", "reply", "thought", "reasoning",
    "signed reasoning", "arguments", "flags", "structured reply", "unreadable reply", "provider error",
    "crash of a provider", "result", "JSON result", "bytes", "tool error", "cause of an error", "note of an error",
    "dead letter", "denial", "question", "answer of an approver", "arguments of an engine", "note", "fact", "effect",
    "error of an effect", "option", "permit", "task of a child", "offer", "error of a child", "error of an engine",
    "deltas", "lookup", "error of a lookup", "resolution", "undoing", "error of undoing",
)  # fmt: skip


def told_by(text: str) -> Conversation:
    """A conversation of a caller that has the text in each of its places."""
    return Conversation(
        [
            Message("system", f"Be kind. {text}"),
            Message("user", text),
            Message(
                "assistant",
                text,
                (ToolCall("words", {"note": text}, "c1"),),
                reasoning=(Reasoning(text),),
            ),
            Message("tool", f"found:\n{text}", call_id="c1"),
            Message("user", f"Go on: {text}"),
        ]
    )


async def everything(text: str, left: Left, parts: Runtime) -> None:
    """The run that comes upon the text everywhere, and one whose model streams."""
    result = await EverythingEngine(parts, prompt=text).run(
        told_by(text), system=f"Know: {text}"
    )
    assert (result.status, result.stop_reason) == ("failed", "engine_error")
    left.show(result)
    async with ReActEngine(parts).start(text, deltas=True) as run:
        left.say("deltas", [item async for item in run if isinstance(item, Delta)])
        left.show(await run.result())


async def undone_and_doubted(text: str, left: Left, parts: Runtime) -> None:
    """Sagas that are undone; a call in doubt that its tool knows, and one that a person settles."""
    shared: dict[str, Any] = {
        "journal": parts.journal, "observers": parts.observers, "redactor": parts.redactor, "on_unknown": "ask"
    }  # fmt: skip
    for fails in (False, True):
        given = {**shared, "tools": [pay(text, fails=fails)]}
        failing = Runtime(Payer(text, fails=True), **given)
        left.show(await ReActEngine(failing).run("Pay.", saga=True))
        engine = ReActEngine(Runtime(Payer(text), **given))
        whole = await engine.run("Pay.")
        intent = next(
            entry.seq
            for entry in parts.journal.read(whole.run_id)
            if entry.kind == "tool_started"
        )
        run_id = await engine.fork(whole.run_id, at=intent)
        result = await engine.resume(run_id)
        assert result.status == ("waiting" if fails else "completed")
        if fails:
            await failing.resolve(
                run_id, result.pending[0].key, CallCompleted(f"a person says: {text}")
            )
            result = await engine.resume(run_id)
        assert result.status == "completed"
        left.show(result)


class Watched:
    """A folder with a journal, and everything that watches it."""

    def __init__(self, folder: Path, logs: list[Any]) -> None:
        self.left, self.logs, self.telemetry = (
            Left(folder),
            logs,
            Telemetry(content=True),
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.journal = SQLiteJournal(folder / "runs.db")

    def runtime(self, provider: Any, text: str, **options: Any) -> Runtime:
        async def refuse(action: Action, question: str) -> Deny:
            return Deny(f"no, {text}")

        given = {
            "tools": tools(text), "journal": self.journal, "gate": Gate(text), "approver": refuse,
            "observers": [StructlogObserver(content=True), self.telemetry.observer], **options,
        }  # fmt: skip
        return Runtime(provider, **given)

    async def leaks(self, secret: str) -> list[str]:
        """Where the secret is found, before and after the journal is closed."""
        self.left.texts["logs"] = [repr(self.logs)]
        self.left.texts["spans"] = [everything_said(self.telemetry.spans)]
        found = self.left.where(secret)
        await self.journal.close()
        return sorted({*found, *self.left.where(secret)})


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


async def come_upon(
    text: str, watched: Watched, *, whole: bool = True, **options: Any
) -> None:
    """All runs that come upon a text, recorded into a cassette; the last ones only if the `whole` is wanted."""
    recording = RecordingProvider(
        model := Model(text), watched.left.folder / "cassette.json"
    )
    await everything(text, watched.left, watched.runtime(recording, text, **options))
    watched.left.say("requests", model.requests)
    if whole:
        await undone_and_doubted(
            text, watched.left, watched.runtime(Model(text), text, **options)
        )


async def plant(
    name: str, folder: Path, logs: list[Any], **options: Any
) -> tuple[Watched, list[str]]:
    """All runs that come upon one shape; where its secret is found."""
    watched = Watched(folder, logs)
    await come_upon(PLANTED[name][0], watched, **options)
    return watched, await watched.leaks(secret_of(name))


@pytest.mark.timeout(300)
async def test_no_planted_secret_is_found_in_what_runs_leave_behind(
    tmp_path: Path, logs: list[Any]
) -> None:
    found: dict[str, list[str]] = {}
    size = 0
    for wave in (SHAPES[at : at + 8] for at in range(0, len(SHAPES), 8)):
        logs.clear()
        planted = await asyncio.gather(
            *(
                plant(
                    name,
                    tmp_path / quote(name, safe=""),
                    logs,
                    whole=LONG or not place % 4,
                )
                for place, name in enumerate(wave)
            )
        )
        found |= {
            name: where for name, (_, where) in zip(wave, planted, strict=True) if where
        }
        size += sum(watched.left.size for watched, _ in planted)
    assert found == {}
    count = (
        len(SHAPES) * len(PLACES)
        if LONG
        else len(SHAPES) * (len(PLACES) - 5) + len(SHAPES[::4]) * 5
    )
    figure(
        "secrets",
        f"{len(SHAPES)} shapes in {len(PLACES)} places ({count} plantings): 0 found in {size / 1e6:.0f} MB",
    )


@pytest.mark.parametrize("name", ["GitHub", "JSON", "RSA"])
async def test_the_search_finds_each_of_them_where_nothing_is_redacted(
    name: str, tmp_path: Path, logs: list[Any]
) -> None:
    watched, found = await plant(
        name, tmp_path, logs, redactor=Redactor(patterns=False)
    )

    assert found == sorted(
        {*watched.left.texts, "runs.db", "runs.db-wal", "runs.db.inbox"}
    )


@pytest.mark.parametrize("name", ["OpenAI project", "JSON", "Cookie", "PKCS 8"])
async def test_a_cassette_without_secrets_replays_all_the_same(
    name: str, tmp_path: Path
) -> None:
    text, place = PLANTED[name][0], tmp_path / "cassette.json"
    watched = Watched(tmp_path, [])
    recorded = RecordingProvider(Model(text), place)
    await everything(text, watched.left, watched.runtime(recorded, text))
    replaying = ReplayingProvider(place)
    await everything(text, watched.left, watched.runtime(replaying, text))
    await watched.journal.close()

    assert replaying.left == 0
    assert all(
        '+   "content": "crash"' in str(missed) for missed in replaying.misses
    )  # not recorded: it was no reply
    assert Left(tmp_path).where(secret_of(name)) == []
    direct = await Model(text).complete(
        Request(Conversation.of(text))
    )  # without a runtime, which would redact it
    recording = RecordingProvider(Model(text), tmp_path / "direct.json")
    told = ToolSpec(
        "words", text, {"type": "object", "properties": {"note": {"default": text}}}
    )
    asked = [
        Request(Conversation.of(text), (told,), "none"),
        Request(Conversation.of(text).assistant(direct.text).user(text)),
    ]
    for request in asked:
        await recording.complete(request)
    again = ReplayingProvider(tmp_path / "direct.json")
    replies = [await again.complete(request) for request in asked]
    assert [reply.text for reply in replies] == [Redactor().redact_text(text)] * 2
    assert Left(tmp_path).where(secret_of(name)) == []
