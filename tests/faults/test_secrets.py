"""Secrets planted wherever something enters a run: none is found in what the run leaves behind."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import pickle
import random
import re
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import structlog
from pydantic import BaseModel

from fault_sizes import LONG, figure
from loopwright import (
    Action,
    Allow,
    Ask,
    AskFailed,
    Conversation,
    DeadLetter,
    Delta,
    Deny,
    Done,
    Limits,
    LoopEngine,
    LoopwrightError,
    Message,
    NotDone,
    ProviderError,
    ReActEngine,
    Result,
    Run,
    Runtime,
    ToolContext,
    ToolError,
    tool,
)
from loopwright.journals import SQLiteJournal
from loopwright.messages import Completion, Reasoning, ToolCall
from loopwright.observers import StructlogObserver
from loopwright.policy import PolicyState
from loopwright.provider import CallDelta, Capabilities, Request
from loopwright.providers.anthropic import AnthropicProvider
from loopwright.providers.openai import OpenAIProvider
from loopwright.redaction import MARK, Redactor
from loopwright.testing import RecordingProvider, ReplayingProvider, call
from loopwright.testing.crashes import crashed
from planted import PLANTED, marked
from telemetry import Telemetry, everything_said

WINDOW = 14  # characters of a secret that are enough to know it by
SHORTEST = 6  # characters; a shorter one would be found in what has nothing to do with it


def secret_of(name: str) -> str:
    """What of a planted text is the secret: what stands where the mark is in what is kept."""
    text, kept = PLANTED[name]
    pattern = "(.+)".join(map(re.escape, marked(kept).split(MARK)))
    found = re.fullmatch(pattern, text, re.DOTALL)
    assert found is not None
    return found[1]


SHAPES = [name for name in PLANTED if len(secret_of(name)) >= SHORTEST]


def needles(secret: str) -> set[bytes]:
    """Pieces of a secret (the first, the last, one in the middle), in the spellings in which they may lie about."""
    body = secret.split("-----")[2] if secret.startswith("-----") else secret  # the head of a key is none
    body = max(body.split("\n"), key=len)
    places = {0, max(0, len(body) - WINDOW), max(0, len(body) // 2 - WINDOW // 2)}
    return {form for place in places for form in spellings(body[place : place + WINDOW])}


def spellings(piece: str) -> set[bytes]:
    """A text as it is, as JSON in JSON, in an address, and in base64 at each of its three places."""
    forms = {piece, json.dumps(piece)[1:-1], json.dumps(json.dumps(piece)[1:-1])[1:-1], quote(piece), quote_plus(piece)}
    forms |= {quote(piece, safe=""), repr(piece)[1:-1]}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + piece.encode()).decode()
        inner = encoded[4 if before else 0 : (len(piece) + before) // 3 * 4]
        if len(inner) >= 10:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form.encode() for form in forms}


@dataclasses.dataclass
class Left:
    """What runs left behind, by where it lies."""

    folder: Path
    texts: dict[str, list[str]] = dataclasses.field(default_factory=dict[str, list[str]])

    def say(self, where: str, what: object) -> None:
        """Something that was shown."""
        self.texts.setdefault(where, []).append(what if isinstance(what, str) else repr(what))

    def show(self, result: Result[Any]) -> None:
        """All that a result tells."""
        self.say("repr of the result", result)
        self.say("conversation", result.conversation)
        self.say("facts and questions", (result.facts, result.pending))
        if result.error is not None:
            self.say("traceback", "".join(traceback.format_exception(result.error)))
            self.say("chain of the error", [repr(error) for error in chain(result.error)])
            self.say("pickled error", pickle.dumps(result.error).decode("latin-1"))
            with pytest.raises(LoopwrightError) as caught:
                result.raise_for_status()
            self.say("raise_for_status", "".join(traceback.format_exception(caught.value)))

    def where(self, secret: str) -> list[str]:
        """Where a secret is found."""
        sought = needles(secret)
        held = {where: "\n".join(texts).encode("utf-8", "surrogatepass") for where, texts in self.texts.items()}
        held |= {str(path.relative_to(self.folder)): data for path, data in self.files()}
        return [where for where, data in held.items() if any(needle in data for needle in sought)]

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """All files of the folder, with what they hold."""
        yield from ((path, path.read_bytes()) for path in sorted(self.folder.rglob("*")) if path.is_file())

    @property
    def size(self) -> int:
        """Bytes that are searched."""
        texts = sum(len(text) for told in self.texts.values() for text in told)
        return texts + sum(len(held) for _, held in self.files())


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and all that led to it, whether Python shows it or not."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and all(one is not other for other in seen):
            seen.append(one)
            waiting += one.__cause__, one.__context__
    return iter(seen)


# --- a run that is told the same text at every place ---


class Words(BaseModel):
    """A structured reply."""

    words: str


class Gate:
    """Denies, changes or asks about what it is told to, in the words of the text."""

    version = "gate-1"

    def __init__(self, text: str) -> None:
        self._text = text

    async def evaluate(self, action: Action, state: PolicyState) -> Any:
        """Decide."""
        match action.tool:
            case "forbidden":
                return Deny(self._text)
            case "asked":
                return Ask(self._text)
            case _:
                return Allow()


def tools(text: str) -> list[Any]:
    """Tools that say the text in each way in which a tool can say something."""

    @tool(effect="read")
    async def words(note: str = "") -> str:
        """Text."""
        return f"It says:\n{text}\n{note}"

    @tool(effect="read")
    def fields(note: str = "") -> dict[str, Any]:
        """JSON."""
        return {"found": text, "inner": json.dumps({"deeper": [text, note]})}

    @tool(effect="read")
    def raw(note: str = "") -> bytes:
        """Bytes."""
        return f"{text} {note}".encode()

    @tool(effect="read")
    def told(note: str = "") -> str:
        """An error with words for the model."""
        raise ToolError(f"{text} {note}")

    @tool(effect="read")
    def broken(note: str = "") -> str:
        """An error with a cause, a note and a local variable."""
        kept = text
        try:
            raise KeyError(kept)
        except KeyError as error:
            error.add_note(kept)
            raise ValueError(kept, {"body": kept}) from error

    @tool(effect="write", recovery=(DeadLetter(queue="later"),))
    def dropped(note: str = "") -> str:
        """An error that is set aside."""
        raise OSError(text)

    @tool
    def forbidden(note: str = "") -> str:
        """Denied."""
        return text

    @tool
    def asked(note: str = "") -> str:
        """Asked about."""
        return text

    return [words, fields, raw, told, broken, dropped, forbidden, asked]


TOOLS = ("words", "fields", "raw", "told", "broken", "dropped", "forbidden", "asked")


class Model:
    """Says the text in each way in which a model can; when it streams, cut at random places."""

    name, model, capabilities = "model", "of-secrets", Capabilities(json_schema=True)

    def __init__(self, text: str) -> None:
        self._text, self._random = text, random.Random(text)
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Completion:
        """By what is asked."""
        self.requests.append(request)
        asked = request.conversation.messages[-1].content
        text, thoughts = self._text, (Reasoning(self._text), Reasoning("", "thinking", {"thinking": self._text}))
        if asked == "provider error":
            raise ProviderError(f"the model said: {text}", status=400)
        if asked == "crash":
            raise ValueError(text, {"body": text})
        if request.schema is not None:
            said = "no JSON: " + text if asked == "unreadable" else json.dumps({"words": text})
            return Completion(said, answer=said)
        if any(message.role == "tool" for message in request.conversation.messages):
            return Completion(text, answer=text, reasoning=thoughts, flags=(f"note: {text}",), model=text)
        if not request.tools:
            return Completion(text, answer=text, reasoning=thoughts)
        calls = tuple(call(name, note=text) for name in TOOLS)
        return Completion(text, calls, thought=text, reasoning=thoughts)

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        """The same piece by piece."""
        whole = await self.complete(request)
        for thought in whole.reasoning:
            for piece in self._cut(thought.text):
                yield Delta(reasoning=piece)
        for piece in self._cut(whole.text):
            yield Delta(text=piece)
        for index, made in enumerate(whole.calls):
            yield Delta(call=CallDelta(index, name=made.name))
            for piece in self._cut(json.dumps(made.arguments)):
                yield Delta(call=CallDelta(index, arguments=piece))
        yield Delta(completion=whole)

    def _cut(self, text: str) -> Iterator[str]:
        places = sorted({0, len(text), *(self._random.randrange(len(text) + 1) for _ in range(6))})
        return (text[begin:end] for begin, end in zip(places, places[1:], strict=False))


@dataclasses.dataclass
class Fact:
    """Something that an engine notes."""

    said: str
    deep: list[dict[str, str]]


class BrokenEngine(LoopEngine):
    """A child that fails in the words of the text, which is its option."""

    name = "broken"
    prompt: str = ""

    async def solve(self, run: Run) -> str:
        """Fail."""
        run.offer(self.prompt)
        raise RuntimeError(self.prompt)


class EverythingEngine(LoopEngine):
    """Comes upon the text in each way in which an engine can, and fails with it in the end."""

    name = "everything"
    prompt: str = ""

    async def solve(self, run: Run) -> str:
        """All verbs."""
        text = self.prompt
        proposal = await run.reason(run.conversation)
        seen = await run.act(await run.gate(proposal))
        await run.reason(run.conversation.observe(proposal, seen))
        await run.act(await run.gate(run.propose(*(ToolCall(name, {"note": text}) for name in TOOLS), thought=text)))
        for question in ("what?", "unreadable"):
            with contextlib.suppress(AskFailed):
                await run.ask(question, into=Words)
        for question in ("provider error", "crash"):
            with contextlib.suppress(ProviderError):
                await run.ask(question)
        run.note({"said": text, "list": [text]})
        run.note(Fact(text, [{"said": text}]))
        await run.effect("value", self._value, into=dict[str, str])
        for error in (ValueError(text), ProviderError(text), ToolError(text)):
            with contextlib.suppress(LoopwrightError):
                await run.effect("error", self._raises(error), into=str)
        await run.permit("plan", {"steps": [text]})
        run.keep((await run.delegate(BrokenEngine(self.runtime, prompt=text), f"Do this: {text}")).conversation)
        try:
            raise KeyError(text)
        except KeyError as error:
            error.add_note(text)
            raise RuntimeError(text, [text]) from error

    async def _value(self) -> dict[str, str]:
        return {"said": self.prompt}

    @staticmethod
    def _raises(error: Exception) -> Callable[[], Any]:
        async def fail() -> str:
            raise error

        return fail


PLACES = (
    "task", "system prompt", "conversation", "results of a conversation", "reply", "thought", "reasoning", "signed reasoning",
    "arguments", "flags", "structured reply", "unreadable reply", "provider error", "crash of a provider", "result",
    "JSON result", "bytes", "tool error", "cause of an error", "note of an error", "dead letter", "denial", "question",
    "answer of an approver", "arguments of an engine", "note", "fact", "effect", "error of an effect", "option",
    "permit", "task of a child", "offer", "error of a child", "error of an engine", "deltas", "lookup", "error of a lookup",
    "resolution", "undoing", "error of undoing",
)  # fmt: skip


def told_by(text: str) -> Conversation:
    """A conversation of a caller that has the text in each of its places."""
    return Conversation([
        Message("system", f"Be kind. {text}"),
        Message("user", text),
        Message("assistant", text, (ToolCall("words", {"note": text}, "c1"),), reasoning=(Reasoning(text),)),
        Message("tool", f"found:\n{text}", call_id="c1"),
        Message("user", f"Go on: {text}"),
    ])


async def deny(action: Action, question: str, text: str) -> Deny:
    return Deny(f"no: {text}")


async def everything(text: str, left: Left, parts: Runtime) -> None:
    """The run that comes upon the text everywhere, and one whose model streams."""
    result = await EverythingEngine(parts, prompt=text).run(told_by(text), system=f"Know: {text}")
    assert (result.status, result.stop_reason) == ("failed", "engine_error")
    left.show(result)
    async with ReActEngine(parts).start(text, deltas=True) as run:
        left.say("deltas", [item async for item in run if isinstance(item, Delta)])
        left.show(await run.result())


async def doubt(text: str, left: Left, parts: Runtime) -> None:
    """A call in doubt, whose tool looks it up in the words of the text, and a person after it; a saga that is undone."""
    found: list[Any] = [Done(f"known: {text}"), OSError(text)]

    async def look_up(ctx: ToolContext[Any]) -> Any:
        came = found.pop(0)
        if isinstance(came, Exception):
            raise came
        return came

    async def undo(ctx: ToolContext[Any], result: str) -> str:
        if "late" in ctx.key:
            return text
        if not found:
            raise ValueError(text)
        return f"undone: {text}"

    @tool(lookup=look_up, compensate=undo)
    async def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    def line(request: Request) -> Any:
        last = request.conversation.messages[-1]
        return Completion(text, answer=text) if last.role == "tool" else Completion(calls=(call("pay", cents=1),))

    class Payer(Model):
        async def complete(self, request: Request) -> Completion:
            reply: Completion = line(request)
            if reply.answer is not None and self.fails:
                raise ProviderError(text)
            return reply

        fails = False

    options: dict[str, Any] = {
        "tools": [pay], "journal": parts.journal, "observers": parts.observers, "redactor": parts.redactor
    }  # fmt: skip
    for fails in (False, True):
        model = Payer(text)
        model.fails = fails
        left.show(await ReActEngine(Runtime(model, **options)).run("Pay.", saga=True))
    model = Payer(text)
    found[:] = [Done(f"known: {text}"), OSError(text)]
    whole = await ReActEngine(Runtime(model, **options)).run("Pay.")
    entries = parts.journal.read(whole.run_id)
    intent = next(entry.seq for entry in entries if entry.kind == "tool_started")
    for number in range(2):  # the tool knows; the tool fails, and a person says it
        run_id = await ReActEngine(Runtime(model, **options)).fork(whole.run_id, at=intent)
        again = Runtime(model, on_unknown="ask", **options)
        result = await ReActEngine(again).resume(run_id)
        if number:
            assert result.status == "waiting"
            await again.resolve(run_id, result.pending[0].key, Done(f"a person says: {text}"))
            result = await ReActEngine(again).resume(run_id)
        assert result.status == "completed"
        left.show(result)


class Watched:
    """A folder with a journal, and everything that watches it."""

    def __init__(self, folder: Path, logs: list[Any]) -> None:
        self.left, self.logs, self.telemetry = Left(folder), logs, Telemetry(content=True)
        folder.mkdir(exist_ok=True)
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


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


async def come_upon(text: str, watched: Watched, **options: Any) -> None:
    """All runs that come upon a text, recorded into a cassette."""
    recording = RecordingProvider(model := Model(text), watched.left.folder / "cassette.json")
    await everything(text, watched.left, watched.runtime(recording, text, **options))
    watched.left.say("requests", model.requests)
    await doubt(text, watched.left, watched.runtime(Model(text), text, **options))


@pytest.mark.timeout(300)
async def test_no_planted_secret_is_found_in_what_runs_leave_behind(tmp_path: Path, logs: list[Any]) -> None:
    found: dict[str, list[str]] = {}
    size = 0
    for number, name in enumerate(SHAPES):
        logs.clear()
        watched = Watched(tmp_path / str(number), logs)
        await come_upon(PLANTED[name][0], watched)
        found[name] = await watched.leaks(secret_of(name))
        size += watched.left.size
    assert {name: where for name, where in found.items() if where} == {}
    count = len(SHAPES) * len(PLACES)
    figure("secrets", f"{len(SHAPES)} shapes in {len(PLACES)} places each ({count}): 0 found in {size / 1e6:.0f} MB")


@pytest.mark.parametrize("name", ["GitHub", "JSON", "RSA"])
async def test_the_search_finds_each_of_them_where_nothing_is_redacted(
    name: str, tmp_path: Path, logs: list[Any]
) -> None:
    watched = Watched(tmp_path, logs)
    await come_upon(PLANTED[name][0], watched, redactor=Redactor(shapes=False))
    found = await watched.leaks(secret_of(name))

    assert found == sorted({*watched.left.texts, "cassette.json", "runs.db", "runs.db-wal", "runs.db.inbox"})


_ = asyncio, base64, dataclasses, AsyncGenerator, LONG, Limits, AnthropicProvider, OpenAIProvider, ReplayingProvider, crashed, NotDone
