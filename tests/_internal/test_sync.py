"""run_sync works wherever synchronous code stands: in a running loop, in threads, after a fork, until Ctrl-C."""

import asyncio
import contextvars
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from loopwright import (
    Completion,
    ConfigError,
    MemoryJournal,
    ReActEngine,
    Request,
    Result,
    Runtime,
    Tool,
    tool,
)
from loopwright._internal.sync import LOOP_THREAD
from loopwright.errors import PhaseError
from loopwright.journals import SQLiteJournal
from loopwright.providers import OpenAIProvider
from loopwright.testing import ScriptedProvider, call

WHO = contextvars.ContextVar("WHO", default="nobody")


def engine(*lines: object, tools: tuple[Tool, ...] = ()) -> ReActEngine:
    return ReActEngine(Runtime(ScriptedProvider(list(lines)), tools=tools))  # type: ignore[arg-type]


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A fresh interpreter that complains of what is left open."""
    command = [
        sys.executable,
        "-W",
        "error::ResourceWarning",
        "-W",  # what a fork of a process with threads does is what these tests are about
        "ignore:This process:DeprecationWarning",
        "-c",
        textwrap.dedent(script),
        *arguments,
    ]
    source = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.Popen(
        command, env=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# --- beside a running loop ---


async def test_it_works_within_a_coroutine() -> None:
    assert engine("blue").run_sync("What colour?").answer == "blue"


async def test_it_works_in_a_thread_beside_a_running_loop() -> None:
    result = await asyncio.to_thread(engine("blue").run_sync, "What colour?")

    assert result.answer == "blue"


async def test_run_and_run_sync_share_a_runtime_and_its_journal(tmp_path: Path) -> None:
    journal = SQLiteJournal(str(tmp_path / "runs.db"))
    shared = ReActEngine(
        Runtime(ScriptedProvider(["one", "two", "three"]), journal=journal)
    )

    answers = [
        (await shared.run("1")).answer,
        shared.run_sync("2").answer,
        (await shared.run("3")).answer,
    ]
    kept = {
        header.run_id: journal.verify(header.run_id).ok for header in journal.runs()
    }
    await journal.close()

    assert answers == ["one", "two", "three"]
    assert list(kept.values()) == [True] * 3


CELLS = [  # what a notebook does: its loop runs in the main thread, and cells are run within it, one after the other
    """
    from loopwright import ReActEngine, Runtime
    from loopwright.testing import ScriptedProvider
    engine = ReActEngine(Runtime(ScriptedProvider(["first", "second", "third"])))
    """,
    "print(engine.run_sync('1').answer)",
    "print((await engine.run('2')).answer)",
    "print(engine.resume_sync(engine.run_sync('3', run_id='r3').run_id).answer)",
]


@pytest.mark.faults
def test_it_works_in_the_cells_of_a_notebook() -> None:
    notebook = python(
        """
        import ast, asyncio, inspect, json, sys

        async def main():
            names = {}
            for cell in json.loads(sys.argv[1]):
                made = eval(compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
                if inspect.iscoroutine(made):
                    await made

        asyncio.run(main())
        """,
        json.dumps([textwrap.dedent(cell) for cell in CELLS]),
    )
    said, complaints = notebook.communicate(timeout=60)

    assert (said.split(), complaints) == (["first", "second", "third"], "")


async def test_on_its_own_thread_it_is_an_error_that_leaves_the_run_alone() -> None:
    seen: list[str] = []

    @tool(effect="read")
    async def nested() -> str:
        """Call run_sync where it would wait for itself."""
        for blocking in (engine("never").run_sync, engine("never").resume_sync):
            with pytest.raises(
                PhaseError, match=r"use `await engine\.run\(\.\.\.\)` there"
            ):
                blocking("x")
        seen.append(threading.current_thread().name)
        return "refused"

    result = engine(call("nested"), "done", tools=(nested,)).run_sync("Go.")

    assert (result.answer, result.tool_calls, len(seen)) == ("done", 1, 1)


# --- threads ---


def test_several_threads_run_concurrently() -> None:
    together = asyncio.Barrier(6)

    @tool(effect="read")
    async def meet(who: int) -> str:
        """Wait until six runs are here."""
        await together.wait()
        return f"{who} was here"

    def work(number: int) -> Result:
        return engine(
            call("meet", who=number), f"answer {number}", tools=(meet,)
        ).run_sync("Meet.")

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(work, range(6)))

    assert [result.answer for result in results] == [
        f"answer {number}" for number in range(6)
    ]
    assert [result.conversation.messages[2].content for result in results] == [
        f"{n} was here" for n in range(6)
    ]


@pytest.mark.faults
def test_threads_that_are_the_first_to_come_share_one_loop() -> None:
    script = """
    import asyncio, threading
    from concurrent.futures import ThreadPoolExecutor
    from loopwright import ReActEngine, Runtime, Completion
    from loopwright.testing import ScriptedProvider

    loops = set()

    def answer(request):
        loops.add(asyncio.get_running_loop())
        return "yes"

    start = threading.Barrier(8)

    def work(_):
        start.wait()
        return ReActEngine(Runtime(ScriptedProvider(answer))).run_sync("Go.").answer

    with ThreadPoolExecutor(8) as pool:
        print(*pool.map(work, range(8)), len(loops))
    """
    said, complaints = python(script).communicate(timeout=60)

    assert (said, complaints) == ("yes yes yes yes yes yes yes yes 1\n", "")


def test_the_tools_of_a_run_see_the_context_of_their_caller() -> None:
    @tool(effect="read")
    async def who() -> str:
        """Who is asking?"""
        return WHO.get()

    WHO.set("Ada")
    result = engine(call("who"), "done", tools=(who,)).run_sync("Go.")

    assert result.conversation.messages[2].content == "Ada"


@pytest.mark.parametrize("task", ["", " ", 7])
def test_an_error_is_raised_in_the_thread_of_the_caller(task: object) -> None:
    with pytest.raises(ConfigError, match="task: "):
        engine("never").run_sync(task)  # type: ignore[arg-type]


# --- connections ---


@dataclass
class Endpoint:
    """A Chat Completions server of this machine that counts what comes."""

    url: str = ""
    connections: list[int] = field(default_factory=list)  # requests on each


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A server that lasts for one test."""
    counted = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            self.number = len(counted.connections)
            counted.connections.append(0)
            super().setup()

        def do_POST(self) -> None:
            counted.connections[self.number] += 1
            self.rfile.read(int(self.headers["content-length"]))
            message = {"role": "assistant", "content": "over HTTP"}
            body = json.dumps(
                {"choices": [{"message": message, "finish_reason": "stop"}]}
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    counted.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    yield counted
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_connection_serves_one_call_after_another(endpoint: Endpoint) -> None:
    provider = OpenAIProvider("m", base_url=endpoint.url)
    online = ReActEngine(Runtime(provider))

    answers = [online.run_sync("Go.").answer for _ in range(4)]
    LOOP_THREAD.run(provider.aclose())

    assert answers == ["over HTTP"] * 4
    assert endpoint.connections == [4]


async def test_each_loop_has_connections_of_its_own_and_keeps_them(
    endpoint: Endpoint,
) -> None:
    provider = OpenAIProvider("m", base_url=endpoint.url)
    online = ReActEngine(Runtime(provider))

    for _ in range(2):
        online.run_sync("Go.")
        await online.run("Go.")
    await provider.aclose()
    LOOP_THREAD.run(provider.aclose())

    assert endpoint.connections == [2, 2]


# --- Ctrl-C ---

INTERRUPTED = """
    import asyncio, signal, sys, threading

    # A shell that runs the tests in the background has its children ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    from loopwright import ReActEngine, Runtime, Completion
    from loopwright.journals import SQLiteJournal
    from loopwright.testing import ScriptedProvider

    class Slow(ScriptedProvider):
        async def complete(self, request):
            if self.left == 2:
                print("asked", flush=True)
                try:
                    await asyncio.Event().wait()
                finally:
                    self.requests.append(request)
                    self._lines.pop(0)
                    print("cancelled", flush=True)
            return await super().complete(request)

    journal = SQLiteJournal(sys.argv[1])
    engine = ReActEngine(Runtime(Slow(["never", "after all"]), journal=journal))
    try:
        engine.run_sync("Go.", run_id="r")
    except KeyboardInterrupt:
        print("interrupted", [entry.kind for entry in journal.read("r")][-1], journal.runs()[0].status)
    print(engine.resume_sync("r").answer)
"""


@pytest.mark.faults
def test_an_interrupt_cancels_the_run_so_that_it_can_be_resumed(tmp_path: Path) -> None:
    with python(INTERRUPTED, str(tmp_path / "runs.db")) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "asked\n"
        child.send_signal(signal.SIGINT)
        said, complaints = child.communicate(timeout=60)

    assert said.splitlines() == [
        "cancelled",
        "interrupted run_suspended suspended",
        "after all",
    ]
    assert complaints == ""


# --- fork, and the end ---


@pytest.mark.faults
def test_after_a_fork_both_processes_go_on(endpoint: Endpoint) -> None:
    script = """
    import os, sys
    from loopwright import ReActEngine, Runtime
    from loopwright.providers import OpenAIProvider
    from loopwright._internal.sync import LOOP_THREAD

    provider = OpenAIProvider("m", base_url=sys.argv[1])
    engine = ReActEngine(Runtime(provider))
    print("before", engine.run_sync("Go.").answer, flush=True)
    child = os.fork()
    if child == 0:
        print("child", engine.run_sync("Go.").answer, flush=True)
        os._exit(0)
    print("exit", os.waitpid(child, 0)[1])
    print("parent", engine.run_sync("Go.").answer)
    LOOP_THREAD.run(provider.aclose())
    """
    said, complaints = python(script, endpoint.url).communicate(timeout=60)

    assert said.splitlines() == [
        "before over HTTP",
        "child over HTTP",
        "exit 0",
        "parent over HTTP",
    ]
    assert endpoint.connections == [2, 1], (
        "the child must not speak on its parent's connection"
    )
    assert complaints == ""


@pytest.mark.faults
def test_an_interpreter_that_used_it_ends_without_a_word() -> None:
    script = """
    from loopwright import ReActEngine, Runtime
    from loopwright.testing import ScriptedProvider

    print(ReActEngine(Runtime(ScriptedProvider(["bye"]))).run_sync("Go.").answer)
    """
    said, complaints = python(script).communicate(timeout=60)

    assert (said, complaints) == ("bye\n", "")


class Slow:
    """A provider that answers when a thread allows it."""

    name = model = "slow"
    capabilities = ScriptedProvider([]).capabilities

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    async def complete(self, request: Request) -> Completion:
        self.asked.set()
        await asyncio.to_thread(self.go.wait)
        return Completion("at last", answer="at last")


def test_another_thread_can_read_what_is_recorded_while_a_run_is_at_work() -> None:
    slow, journal = Slow(), MemoryJournal()
    working = ReActEngine(Runtime(slow, journal=journal))

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(working.run_sync, "Go.", run_id="r")
        slow.asked.wait()
        kinds = [entry.kind for entry in journal.read("r")]
        slow.go.set()
        result = future.result()

    assert kinds == ["run_started", "model_requested"]
    assert result.answer == "at last"


FORKED = """
    import os, sys
    from loopwright import ReActEngine, Runtime, tool
    from loopwright.journals import SQLiteJournal
    from loopwright.testing import ScriptedProvider, call

    @tool(effect="read")
    def look() -> str:
        "A tool that runs in a thread."
        return "seen"

    def answer(request):
        return request.conversation.messages[-1].content if len(request.conversation) > 1 else call("look")

    journal = SQLiteJournal(sys.argv[1]) if len(sys.argv) > 1 else None
    engine = ReActEngine(Runtime(ScriptedProvider(answer), tools=[look], journal=journal))
    print("before", engine.run_sync("Go.").answer, flush=True)
    child = os.fork()
    if child == 0:
        result = engine.run_sync("Go.")
        print("child", result.answer, result.stop_reason, result.error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent", engine.run_sync("Go.").answer)
"""


@pytest.mark.faults
def test_tools_that_run_in_threads_work_after_a_fork() -> None:
    said, complaints = python(FORKED).communicate(timeout=60)

    assert said.splitlines() == [
        "before seen",
        "child seen answered None",
        "parent seen",
    ]
    assert complaints == ""


@pytest.mark.faults
def test_journal_opened_before_a_fork_raises_and_blocks_no_caller(
    tmp_path: Path,
) -> None:
    said, complaints = python(FORKED, str(tmp_path / "runs.db")).communicate(timeout=60)
    before, child, parent = said.splitlines()

    assert (before, parent) == ("before seen", "parent seen")
    assert child.startswith("child None journal_error journal ")
    assert child.endswith("make a new SQLiteJournal in each process")
    assert complaints == ""


@pytest.mark.faults
def test_connections_that_are_open_at_the_end_are_closed_without_a_word(
    endpoint: Endpoint,
) -> None:
    script = """
    import sys
    from loopwright import ReActEngine, Runtime
    from loopwright.providers import OpenAIProvider

    print(ReActEngine(Runtime(OpenAIProvider("m", base_url=sys.argv[1]))).run_sync("Go.").answer)
    """
    said, complaints = python(script, endpoint.url).communicate(timeout=60)

    assert (said, complaints) == ("over HTTP\n", "")


@pytest.mark.faults
def test_a_run_that_is_at_work_at_the_end_is_suspended(tmp_path: Path) -> None:
    script = """
    import asyncio, sys, threading
    from loopwright import ReActEngine, Runtime
    from loopwright.journals import SQLiteJournal
    from loopwright.testing import ScriptedProvider

    asked = threading.Event()

    class Endless(ScriptedProvider):
        async def complete(self, request):
            asked.set()
            await asyncio.Event().wait()

    def work():
        try:
            ReActEngine(Runtime(Endless([]), journal=SQLiteJournal(sys.argv[1]))).run_sync("Go.", run_id="r")
        except BaseException:
            pass  # cancelled; a thread may not print while the interpreter ends

    threading.Thread(target=work, daemon=True).start()
    asked.wait()
    """
    _, complaints = python(script, str(tmp_path / "runs.db")).communicate(timeout=60)

    assert SQLiteJournal(tmp_path / "runs.db").read("r")[-1].kind == "run_suspended"
    assert complaints == ""
