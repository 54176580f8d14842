"""A chat over HTTP: threads, server-sent events, reconnect, approvals by button, cancel on disconnect.

    pip install fastapi uvicorn
    python examples/fastapi_chat.py          # serves the app to itself and shows a conversation
    python examples/fastapi_chat.py 8000     # serves it at http://127.0.0.1:8000, with chat.db in the current folder
    python examples/fastapi_chat.py 8000 openai:gpt-4.1-mini     # the same with a model

Each message is a turn of a thread, which continues on the server when the browser is closed. A browser that comes
back sends the number of the last event that it has seen (`Last-Event-ID`) and gets those that follow. A message that
is sent again with the same id is not answered again. A worker continues the turns of a server that was killed, and
those whose calls were approved. A turn that kills one server after the other is parked: the browser says so, and
its buttons try it again or give it up. What a browser shows is in `fastapi_chat.html`.

Without a model's name a `ScriptedProvider` plays it: it blocks a card where a message has a word and a number ("block 7").
Who may open which thread is yours to check.
"""

import asyncio
import contextlib
import json
import re
import socket
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import uvicorn
from fastapi import FastAPI, Header, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel

from loopwright import (
    ConfigError,
    Delta,
    Entry,
    Runtime,
    RunWatch,
    Suspend,
    ToolCall,
    Worker,
    tool,
)
from loopwright.agents import Agent, Turn
from loopwright.errors import RunBusy, ThreadBusy, UnknownRun
from loopwright.events import (
    ModelReplied,
    RunFinished,
    RunParked,
    RunSuspended,
    ToolFinished,
)
from loopwright.journals import RunFilter, SQLiteJournal
from loopwright.providers import Request as ModelRequest
from loopwright.testing import ScriptedProvider, call

QUIET_SECONDS = 15.0
"""After so long without an event a comment is sent, so that proxies keep the connection and a lost one is noticed."""


class Message(BaseModel):
    """What a person says, with an id of the browser's choice."""

    text: str
    id: str


class Begun(BaseModel):
    """The turn that a message began, by its run."""

    run_id: str


class Decision(BaseModel):
    """A person's decision about a call that waits for approval."""

    question: str
    allow: bool
    reason: str = ""


def describe(item: Entry | Delta) -> dict[str, Any]:
    """Return what a browser needs to know of an item."""
    if isinstance(item, Delta):
        return {"key": item.key, "text": item.text}
    about: dict[str, Any] = {"kind": item.kind, "key": item.key}
    match item.event:
        case ModelReplied(completion=reply):
            about["text"] = reply.text
        case ToolFinished(tool=name, content=content, status=status):
            about.update(tool=name, content=content, status=status)
        case RunSuspended(pending=pending):
            about["questions"] = [
                {"id": asked.id, "tool": asked.tool, "arguments": asked.arguments}
                for asked in pending
            ]
        case RunParked(reason=reason):
            about["reason"] = reason
        case RunFinished(answer=answer, status=status):
            about.update(answer=answer, status=status)
        case _:
            pass
    return about


async def format_events(
    watch: RunWatch[Entry | Delta],
) -> AsyncGenerator[str]:
    """Write what a run does as server-sent events; entries have their number as id, chunks of replies have none."""
    yield f"event: run\ndata: {json.dumps(watch.run_id)}\n\n"
    async with watch:
        while True:
            try:
                item = await asyncio.wait_for(anext(watch), QUIET_SECONDS)
            except TimeoutError:
                yield ": still here\n\n"
                continue
            except StopAsyncIteration:
                break
            number = f"id: {item.seq}\n" if isinstance(item, Entry) else ""
            kind = "entry" if isinstance(item, Entry) else "delta"
            yield f"{number}event: {kind}\ndata: {json.dumps(describe(item))}\n\n"
    yield "event: end\ndata: null\n\n"


def respond(events: AsyncIterator[str]) -> StreamingResponse:
    """Return a response of server-sent events."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


class Chat:
    """The threads of an agent, as the routes use them."""

    def __init__(self, runtime: Runtime, agent: Agent[Any]) -> None:
        self.runtime, self.agent = runtime, agent
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def send(self, thread_id: str, message: Message) -> Begun:
        """Begin the turn of a message, unless it was begun before; it continues without its client."""
        async with self._locks[thread_id]:
            tags = {"message": message.id}
            where = RunFilter(thread=thread_id, tags=tags)
            known = await self.runtime.runs(where, limit=1)
            if known:
                return Begun(run_id=known[0].info.run_id)
            thread = self.agent.thread(thread_id)
            async with thread.start(
                message.text, deltas=True, on_disconnect="continue", tags=tags
            ) as run:
                return Begun(run_id=run.run_id)

    async def ask(self, thread_id: str, message: Message) -> StreamingResponse:
        """Answer with the events of a turn that ends if its client goes away."""
        return respond(self._ask(thread_id, message.text))

    async def _ask(self, thread_id: str, text: str) -> AsyncIterator[str]:
        thread = self.agent.thread(thread_id)
        async with thread.start(text, deltas=True, on_disconnect="abort") as run:
            watch = self.runtime.attach(run.run_id, deltas=True)
            async with contextlib.aclosing(format_events(watch)) as events:
                async for event in events:
                    yield event

    async def watch(
        self, run_id: str, last_event_id: Annotated[int, Header(ge=0)] = 0
    ) -> StreamingResponse:
        """Answer with the events of a turn that follow the last one that the client has seen."""
        watch = self.runtime.attach(run_id, after=last_event_id, deltas=True)
        return respond(format_events(await watch.open()))

    async def decide(self, run_id: str, decision: Decision) -> None:
        """Approve or deny a call; the worker continues the turn."""
        control = self.runtime.control(run_id)
        if decision.allow:
            await control.approve(decision.question)
        else:
            await control.deny(decision.question, decision.reason)

    async def abort(self, run_id: str) -> None:
        """End a turn at once."""
        await self.runtime.control(run_id).abort()

    async def retry(self, run_id: str) -> None:
        """Let a turn continue that was parked; the worker does."""
        await self.runtime.control(run_id).retry()

    async def give_up(self, run_id: str) -> None:
        """End a turn that was parked without an answer, so that its thread takes the next message."""
        await self.runtime.control(run_id).close("the user gave it up")

    async def read(self, thread_id: str) -> list[Turn]:
        """Answer with what was said in a thread."""
        return await self.agent.thread(thread_id).turns()

    @contextlib.asynccontextmanager
    async def serve(self, _: FastAPI) -> AsyncGenerator[None]:
        """Keep a worker, which continues what another process left and what a person decided."""
        worker = asyncio.create_task(Worker(self.runtime, poll=0.25).serve())
        try:
            async with self.runtime:  # waits for the turns whose clients went away
                yield
        finally:
            worker.cancel()
            await asyncio.wait((worker,))
            await self.runtime.journal.close()


def build_app(runtime: Runtime, agent: Agent[Any]) -> FastAPI:
    """Return the application that serves an agent."""
    chat = Chat(runtime, agent)
    app = FastAPI(lifespan=chat.serve)

    @app.get("/")
    async def show_page() -> HTMLResponse:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"))

    app.get("/threads/{thread_id}")(chat.read)
    app.post("/threads/{thread_id}/messages", status_code=202)(chat.send)
    app.post("/threads/{thread_id}/questions")(chat.ask)
    app.get("/runs/{run_id}/events")(chat.watch)
    app.post("/runs/{run_id}/decisions", status_code=202)(chat.decide)
    app.post("/runs/{run_id}/abort", status_code=202)(chat.abort)
    app.post("/runs/{run_id}/retry", status_code=202)(chat.retry)
    app.post("/runs/{run_id}/give-up", status_code=202)(chat.give_up)
    for kind, status in ERRORS.items():
        app.add_exception_handler(kind, build_error_handler(status))
    return app


ERRORS: dict[type[Exception], int] = {
    UnknownRun: 404,
    RunBusy: 409,
    ThreadBusy: 409,
    ConfigError: 422,
}


def build_error_handler(status: int) -> Any:
    """Return a handler that answers an error with its text, and with the turn that blocks a thread."""

    async def handle(_: Request, error: Exception) -> JSONResponse:
        about = {"detail": str(error)}
        if isinstance(error, ThreadBusy):
            about["run_id"] = error.run_id
        return JSONResponse(about, status_code=status)

    return handle


PAGE = Path(__file__).with_suffix(".html")


# --- a conversation with the application, to see it work ---


@tool(effect="destructive")
async def block_card(number: str) -> str:
    """Block a card."""
    return f"card {number} is blocked"


def play_model(request: ModelRequest) -> str | ToolCall:
    """Say what a model would, in every process the same."""
    last = request.conversation.messages[-1]
    if last.role == "tool":
        return f"Your {last.content}."
    number = re.search(r"block.*?(\d+)", last.content, re.IGNORECASE)
    if number:
        return call("block_card", number=number[1])
    return f"Hello{last.content.removeprefix('I am')}"


def build_runtime(path: Path, model: str = "") -> Runtime:
    """Return the services of the application, with the model of a name if there is one."""
    return Runtime(
        model or ScriptedProvider(play_model), tools=[block_card], approver=Suspend(),
        journal=SQLiteJournal(path), lease=30.0,
    )  # fmt: skip


async def read_events(
    client: httpx.AsyncClient, run_id: str, seen: int = 0, until: str = "end"
) -> tuple[int, dict[str, Any]]:
    """Watch a turn as a browser does, up to a kind of entry; return the number of the last one and what it shown."""
    headers, shown = {"Last-Event-ID": str(seen)}, dict[str, Any]()
    async with client.stream(
        "GET", f"/runs/{run_id}/events", headers=headers
    ) as response:
        async for line in response.aiter_lines():
            field, _, value = line.partition(": ")
            if field == "id":
                seen = int(value)
            elif field == "data" and value.startswith('{"kind"'):
                shown = json.loads(value)
                print(f"{seen:>4} {shown['kind']}")
                if shown["kind"] == until:
                    break
    return seen, shown


async def converse(client: httpx.AsyncClient) -> None:
    """Say hello, leave in the middle, come back, and approve a call."""
    hello = {"text": "I am Ada.", "id": "m1"}
    run = (await client.post("/threads/ada/messages", json=hello)).json()["run_id"]
    seen, _ = await read_events(client, run, until="model_requested")
    print("     (the connection is lost)")
    _, shown = await read_events(client, run, seen)
    print(f"Answer: {shown['answer']}")

    block = {"text": "Block my card 7.", "id": "m2"}
    run = (await client.post("/threads/ada/messages", json=block)).json()["run_id"]
    again = (await client.post("/threads/ada/messages", json=block)).json()["run_id"]
    print(f"Sent again: {'the same turn' if again == run else 'another turn'}")
    seen, shown = await read_events(client, run, until="run_suspended")
    [asked] = shown["questions"]
    print(f"May {asked['tool']}({asked['arguments']}) be done? Yes.")
    decision = {"question": asked["id"], "allow": True}
    await client.post(f"/runs/{run}/decisions", json=decision)
    _, shown = await read_events(client, run, seen)
    print(f"Answer: {shown['answer']}")
    turns = (await client.get("/threads/ada")).json()
    print(f"{len(turns)} turns in the thread")


async def serve(runtime: Runtime, port: int = 0) -> None:
    """Serve the application, at a port or to itself."""
    agent = runtime.agent("support", instructions="You help customers of a bank.")
    config = uvicorn.Config(build_app(runtime, agent), log_level="warning")
    server, listening = (
        uvicorn.Server(config),
        socket.create_server(("127.0.0.1", port)),
    )
    url = "http://{}:{}".format(*listening.getsockname())
    serving = asyncio.create_task(server.serve([listening]))
    if port:
        print(f"{url} (Ctrl-C ends it)")
    else:
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            await converse(client)
        server.should_exit = True
    await serving


def main(port: str = "", model: str = "") -> None:
    """Serve a chat that lasts at a port; without one show a conversation."""
    if port:
        asyncio.run(serve(build_runtime(Path("chat.db"), model), int(port)))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(build_runtime(Path(folder) / "chat.db")))


if __name__ == "__main__":
    main(*sys.argv[1:])
