"""The console's page in a real Chromium: what a person sees and does. `make browser` runs these."""

import asyncio
import concurrent.futures
import dataclasses
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from console_server import serving
from cut_relay import CutRelay
from function_engine import FunctionEngine
from loopwright import (
    Journal,
    Limits,
    PlanExecuteEngine,
    ProviderError,
    ReActEngine,
    Request,
    Run,
    Runtime,
    Suspend,
    ToolCall,
    TreeOfThoughtsEngine,
    tool,
)
from loopwright.console import Console
from loopwright.events import ModelRequested
from loopwright.journals import SQLiteJournal
from loopwright.providers.context import ContextView, View
from loopwright.settings import SQLiteSettings
from loopwright.testing import ScriptedProvider, call
from ports import find_port
from stopwatch import measure_slowness
from xss_payloads import build_payloads

CHROMIUM = os.environ.get("LOOPWRIGHT_CHROMIUM", "")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="needs a Chromium: `make browser`"),
    pytest.mark.timeout(300),
]
CHILD = Path(__file__).parents[1] / "support" / "console_child.py"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
TOKEN = "0123456789abcdef0123456789abcdef"
PHONE = {"width": 390, "height": 780}
DESK = {"width": 1280, "height": 860}
UNBOUNDED = Limits(
    max_iterations=None, max_llm_calls=None, max_tool_calls=None, timeout=None
)
PLAN = """\
1. look_up("lamps")
2. look_up("prices")
3. delete(path="$1 $2")
join()"""


@tool(effect="destructive")
async def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool(effect="read", repeatable=True)
async def look_up(topic: str) -> str:
    """Look something up."""
    return f"notes about {topic}"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def axe() -> str:
    found = pytest.importorskip("axe_playwright_python")
    return (Path(found.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def complete(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread of its own, since the browser has an event loop in this one."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class Visitor:
    """A page of the console in a browser, which keeps what it asked for and what went wrong."""

    def __init__(self, chromium: Any, address: str, **options: Any) -> None:
        self.context = chromium.new_context(**{"viewport": DESK, **options})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", self.note_request)
        self.page.on("pageerror", self.note_error)
        self.page.on("dialog", self.note_dialog)
        self.address = address
        self.page.goto(f"{address}/#token={TOKEN}")
        self.page.wait_for_selector("#top nav")

    def note_request(self, request: Any) -> None:
        self.requests.append(request.url)

    def note_error(self, error: object) -> None:
        self.errors.append(str(error))

    def note_dialog(self, dialog: Any) -> None:
        self.errors.append(dialog.message)

    def go(self, view: str, selector: str) -> None:
        """Show a view, and wait until it has an element."""
        self.page.evaluate(f"location.hash = {json.dumps(view)}")
        self.page.wait_for_selector(selector)

    def close(self) -> None:
        """Close the page; it asked its own server alone, and nothing went wrong."""
        self.context.close()
        assert self.errors == []
        assert [one for one in self.requests if not one.startswith(self.address)] == []


def build_runtime(path: Path, model: Any, **more: Any) -> Runtime:
    return Runtime(
        ScriptedProvider(model, model="m"),
        tools=[delete, look_up],
        journal=SQLiteJournal(path),
        approver=Suspend(expires=3600),
        **more,
    )


def suspend_run(path: Path, run_id: str = "tidy") -> Runtime:
    runtime = build_runtime(path, [call("delete", path="old.txt"), "All tidy."])
    complete(ReActEngine(runtime).run("Tidy up.", run_id=run_id))
    return runtime


def fill_journal(path: Path) -> Journal:
    """Return a journal with a plan that waits, a tree, a thread of two turns, and a failed run."""

    def plan(request: Request) -> str:
        return PLAN

    def think(request: Request) -> str:
        asks_score = "0 to 10" in list(request.conversation)[-1].content
        return "Score: 7" if asks_score else "A lamp."

    waiting, tree = build_runtime(path, plan), build_runtime(path, think)  # fmt: skip
    talking = build_runtime(path, ["Hello.", "Again."])

    async def run() -> None:
        await PlanExecuteEngine(waiting).run("Order lamps.", run_id="plan")
        await TreeOfThoughtsEngine(tree, max_depth=2).run("A slogan.", run_id="tree")
        thread = talking.agent("guide").thread("ada")
        await thread.run("Hi.")
        await thread.run("Hi again.")
        await ReActEngine(build_runtime(path, [])).run("Fails.", run_id="failed")

    complete(run())
    return waiting.journal


def open_console(journal: Journal | Runtime) -> Console:
    return Console(journal, user="Ada", token=TOKEN)


ROUNDS = 5
"""How often a time is measured at most: other programs of the machine may be at work too.

That of the first rows, which is CPU time, counts by how much slower than usual the machine is (`stopwatch.py`).
"""
VIEWS = [
    ("#/", ".run"),
    ("#/run/plan", ".row .label"),
    ("#/run/tree", ".row .label"),
    ("#/run/failed", ".row .label"),
    ("#/start", ".start"),
    ("#/threads", ".run"),
    ("#/thread/ada", ".said"),
    ("#/costs", "tbody tr"),
    ("#/compare/plan/tree", "tbody tr"),
]


def show_all(visitor: Visitor) -> Iterator[str]:
    """Show each view, each part of a run, an entry, and the modals, one after the other."""
    page = visitor.page
    for view, selector in VIEWS:
        visitor.go(view, selector)
        yield view
    for run_id in ("plan", "tree"):
        visitor.go(f"#/run/{run_id}", ".row .label")
        for tab in ("plan", "tree", "children", "facts", "costs"):
            page.click(f"#tab-{tab}")
            yield f"{run_id} {tab}"
        page.click("#tab-timeline")
        page.locator(".row").nth(2).click()
        page.wait_for_selector(".panel .raw", state="attached")
        yield f"{run_id} entry"
    page.click("button.waiting.has >> nth=0")
    page.wait_for_selector("dialog[open]")
    yield "approval"
    page.keyboard.press("Escape")
    visitor.go("#/run/plan", "[data-action=steer]")
    page.click("[data-action=steer]")
    page.wait_for_selector("dialog[open]")
    yield "steer"
    page.keyboard.press("Escape")


# --- for everyone ---


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_every_view_is_accessible_and_fits_the_screen(
    chromium: Any, axe: str, tmp_path: Path, scheme: str, viewport: dict[str, int]
) -> None:
    with serving(open_console(fill_journal(tmp_path / "runs.db")).app) as address:
        visitor = Visitor(chromium, address, color_scheme=scheme, viewport=viewport)
        found: dict[str, Any] = {}
        wide: list[str] = []
        for view in show_all(visitor):
            found |= {
                f"{view}: {violation['id']}": [
                    n["html"][:160] for n in violation["nodes"]
                ]
                for violation in find_violations(visitor.page, axe)
            }
            if visitor.page.evaluate("document.documentElement.scrollWidth > innerWidth"):  # fmt: skip
                wide.append(view)
        visitor.close()

    assert found == {}
    assert wide == []


def find_violations(page: Any, axe: str) -> list[Any]:
    page.evaluate(axe)
    found: list[Any] = page.evaluate("axe.run().then((found) => found.violations)")
    return found


def test_an_approval_needs_nothing_but_the_keyboard(
    chromium: Any, tmp_path: Path
) -> None:
    runtime = suspend_run(tmp_path / "runs.db")
    with serving(open_console(runtime.journal).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        page.wait_for_selector(".waiting.has")
        press_until(page, "button.waiting.has")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open]")
        assert "old.txt" in page.inner_text("dialog .arguments")
        press_until(page, "#approve")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog", state="detached")
        visitor.close()
    result = complete(ReActEngine(runtime).resume("tidy"))

    [command] = runtime.journal.inbox("tidy")
    assert (command.kind, command.body["by"]) == ("approve", "Ada")
    assert result.status == "completed"


def wait_for(page: Any, condition: str) -> None:
    """Wait until an expression is true; the policy of the page keeps Playwright's own wait from reading a text as code."""
    for _ in range(1000):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never true: {condition}")


def press_until(page: Any, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def test_a_call_is_approved_with_other_arguments_or_denied_with_a_reason(
    chromium: Any, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    runtime = suspend_run(path)
    suspend_run(path, "other")
    with serving(open_console(runtime.journal).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        visitor.go("#/run/tidy", ".asks button")
        page.click(".asks button")
        page.click("dialog summary >> nth=0")
        page.fill("#edited", '{"path": "new.txt"}')
        assert "new.txt" in page.inner_text(".changes")
        page.click("#approve")
        page.wait_for_selector("dialog", state="detached")
        visitor.go("#/run/other", ".asks button[data-question]")
        page.click(".asks button")
        page.fill("#reason", "it is needed")
        page.click("#deny")
        page.wait_for_selector("dialog", state="detached")
        visitor.close()

    [approved] = runtime.journal.inbox("tidy")
    [denied] = runtime.journal.inbox("other")
    assert approved.body["arguments"] == {"path": "new.txt"}
    assert (denied.kind, denied.body["reason"]) == ("deny", "it is needed")


def test_a_call_is_approved_for_its_thread_and_that_is_revoked(
    chromium: Any, axe: str, tmp_path: Path
) -> None:
    asked = call("delete", path="old.txt")
    runtime = build_runtime(tmp_path / "runs.db", [asked, "Tidy.", asked, "Again."])
    thread = runtime.agent("clerk").thread("desk")
    waiting = complete(thread.run("Tidy up."))
    with serving(open_console(runtime.journal).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        visitor.go(f"#/run/{waiting.run_id}", ".asks button")
        page.click(".asks button")
        page.click("dialog summary >> nth=1")
        page.check("#grant")
        page.select_option("#scope", "thread")
        page.click("dialog .held summary")
        page.wait_for_selector("dialog .held .empty")
        assert find_violations(page, axe) == []
        page.click("#approve")
        page.wait_for_selector("dialog", state="detached")
        complete(thread.resume())
        again = complete(thread.run("Once more."))
        visitor.go("#/thread/desk", "#held")
        page.click("#held")
        page.wait_for_selector("dialog [data-approval] .danger")
        assert "old.txt" in page.inner_text("dialog .approvals")
        assert find_violations(page, axe) == []
        page.click("dialog [data-approval] .danger")
        page.wait_for_selector("dialog .approvals .empty")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog", state="detached")
        visitor.close()

    assert again.answer == "Again."
    assert complete(thread.approvals()) == []
    command = runtime.journal.inbox(waiting.run_id)[0]
    assert (command.body["scope"], command.body["seconds"]) == ("thread", 600)


def test_a_control_that_cannot_act_is_greyed_out_and_says_why(
    chromium: Any, tmp_path: Path
) -> None:
    runtime = suspend_run(tmp_path / "runs.db")
    with serving(open_console(runtime.journal).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        visitor.go("#/run/tidy", "[data-action=unpause]")
        button = page.locator("[data-action=unpause]")
        assert button.get_attribute("aria-disabled") == "true"
        button.click(force=True)
        assert page.inner_text("#status") == "Unpause: it is not paused"
        page.click("[data-action=steer]")
        page.fill("dialog textarea", "Only old files.")
        page.click("dialog .primary")
        page.wait_for_selector(".sent li")
        visitor.close()

    [command] = runtime.journal.inbox("tidy")
    assert command.body == {"text": "Only old files.", "by": "Ada"}


def test_two_pages_agree_within_a_second(chromium: Any, tmp_path: Path) -> None:
    times: list[float] = []
    for number in range(3):
        runtime = suspend_run(tmp_path / f"{number}.db")
        with serving(open_console(runtime.journal).app) as address:
            first, second = Visitor(chromium, address), Visitor(chromium, address)
            for visitor in (first, second):
                visitor.page.wait_for_selector(".waiting.has")
                visitor.page.click("button.waiting.has")
                visitor.page.wait_for_selector("#approve")
            first.page.click("#approve")
            first.page.wait_for_selector("dialog", state="detached")
            complete(ReActEngine(runtime).resume("tidy"))
            began = time.monotonic()
            second.page.wait_for_selector("dialog .problem:not([hidden])")
            times.append(time.monotonic() - began)
            assert second.page.locator("#approve").is_disabled()
            first.close()
            second.close()
    print(f"two pages agree after {min(times):.2f} to {max(times):.2f} s")

    assert min(times) < 1


# --- live ---


CUTS, KILLS = 20, (5, 15)
"""How often the connections of a page are cut, and at which of these its server is killed."""


def test_the_page_continues_after_its_server_was_killed(
    chromium: Any, tmp_path: Path
) -> None:
    path, port = tmp_path / "runs.db", find_port()
    server, relay = start_server(path, port), CutRelay(port)
    command = [sys.executable, str(CHILD), str(path), "far", "160", "0.1"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    visitor = Visitor(chromium, f"http://127.0.0.1:{relay.port}")
    page = visitor.page
    page.wait_for_selector(".run a")
    visitor.go("#/run/far", ".row .label")
    cut_at_work = 0
    for number in range(CUTS):
        shown = int(page.get_attribute(".row", "aria-setsize"))
        if number in KILLS:
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            server = start_server(path, port)
        cut_at_work += relay.cut() > 0 and child.poll() is None
        wait_for(
            page,
            f"Number(document.querySelector('.row').getAttribute('aria-setsize')) > {shown}"
            " || document.querySelector('.badge.s-completed') !== null",
        )
    assert child.wait(120) == 0
    page.wait_for_selector(".badge.s-completed", timeout=20_000)
    total = len(SQLiteJournal(path).read("far"))
    shown = page.get_attribute(".row", "aria-setsize")
    rows = scroll_through(page, total)
    visitor.errors.clear()
    visitor.close()
    server.terminate()
    server.wait()
    relay.close()

    assert shown == str(total)
    assert rows == list(range(1, total + 1))
    print(f"{cut_at_work} of {CUTS} cuts while the run was at work")


def start_server(path: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "loopwright", "console", str(path)]
    server = subprocess.Popen(
        [*command, "--port", str(port)],
        env={**os.environ, "LOOPWRIGHT_CONSOLE_TOKEN": TOKEN},
        stderr=subprocess.DEVNULL,
    )
    for _ in range(400):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
        time.sleep(0.05)
    raise AssertionError("the server does not listen")


def scroll_through(page: Any, total: int) -> list[int]:
    """Return the numbers of the rows from the first to the last, as one who scrolls sees them."""
    seen: list[int] = []
    for top in range(0, total * 30 + 1, 300):
        page.evaluate(f"document.querySelector('.timeline').scrollTop = {top}")
        wait_for(
            page,
            "[...document.querySelectorAll('.row')].every((one) => one.querySelector('.label'))",
        )
        page.wait_for_timeout(30)
        rows = page.eval_on_selector_all(".row", "found => found.map((one) => one.dataset.seq)")  # fmt: skip
        assert len(rows) == len(set(rows)), "a row is shown twice"
        seen += [seq for seq in map(int, rows) if seq not in seen]
    return sorted(seen)


def test_a_tool_starts_soon_after_the_approval_and_the_page_shows_it(
    chromium: Any, tmp_path: Path
) -> None:
    runtime = suspend_run(tmp_path / "runs.db")
    with serving(open_console(runtime.journal).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        visitor.go("#/run/tidy", ".asks button")
        page.click(".asks button")
        page.click("#approve")
        page.wait_for_selector("dialog", state="detached")
        began = time.monotonic()
        complete(ReActEngine(runtime).resume("tidy"))
        page.wait_for_selector(".badge.s-completed")
        took = time.monotonic() - began
        assert "All tidy." in page.inner_text(".answer")
        visitor.close()

    assert took < 2


# --- long runs ---


def unbounded(path: Path) -> Runtime:
    return Runtime(ScriptedProvider([]), journal=SQLiteJournal(path), limits=UNBOUNDED)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "runs.db"

    async def solve(run: Run) -> str:
        for number in range(10_000):
            run.note({"number": number, "text": "words " * 10})
        return "done"

    complete(FunctionEngine(unbounded(path), body=solve).run("Count.", run_id="long"))  # fmt: skip
    return path


def test_the_first_rows_of_ten_thousand_entries_come_soon(
    chromium: Any, long_run: Path
) -> None:
    found: list[float] = []
    while len(found) < ROUNDS and min(found, default=300) >= 300:
        with serving(open_console(SQLiteJournal(long_run)).app) as address:
            visitor = Visitor(chromium, address)
            times: list[float] = []
            for _ in range(20):
                visitor.go("#/costs", "tbody tr, table")
                times.append(visitor.page.evaluate(MEASURE))
            visitor.close()
        found.append(find_p95(times) / measure_slowness())
        print(f"first rows: p95 {find_p95(times):.0f} ms, {found[-1]:.0f} ms on the usual machine")  # fmt: skip

    assert min(found) < 300


def find_p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95) - 1]


MEASURE = """() => new Promise((done) => {
  const began = performance.now();
  location.hash = "#/run/long";
  const look = () => document.querySelector(".row .label") ? done(performance.now() - began) : requestAnimationFrame(look);
  look();
})"""


def test_scrolling_ten_thousand_entries_keeps_few_elements_and_frames_short(
    chromium: Any, long_run: Path
) -> None:
    found, most = list[float](), float("inf")
    with serving(open_console(SQLiteJournal(long_run)).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        visitor.go("#/run/long", ".row .label")
        while len(found) < ROUNDS and min(found, default=34) >= 34:
            frames, most = page.evaluate(SCROLL)
            found.append(find_p95(frames))
            print(f"frames: median {statistics.median(frames):.1f} ms, p95 {found[-1]:.1f} ms")  # fmt: skip
        page.evaluate("document.querySelector('.timeline').scrollTop = 30 * 5000")
        page.wait_for_selector(".row[data-seq='5005'] .label")
        text = page.inner_text(".row[data-seq='5005'] .text")
        session = visitor.context.new_cdp_session(page)
        heap = session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
        visitor.close()
    print(f"heap {heap:.1f} MB")

    assert most < 100
    assert '"number"' in text
    assert heap < 80
    assert min(found) < 34


SCROLL = """() => new Promise((done) => {
  const view = document.querySelector(".timeline");
  const frames = [];
  let most = 0, before = performance.now(), steps = 0;
  const step = (now) => {
    frames.push(now - before);
    before = now;
    most = Math.max(most, document.querySelectorAll(".row").length);
    view.scrollTop = (view.scrollTop + 700) % (view.scrollHeight - view.clientHeight);
    steps += 1;
    if (steps < 200) requestAnimationFrame(step); else done([frames.slice(5), most]);
  };
  requestAnimationFrame(step);
})"""


def test_a_search_shows_the_entries_that_hold_a_text(
    chromium: Any, long_run: Path
) -> None:
    with serving(open_console(SQLiteJournal(long_run)).app) as address:
        visitor = Visitor(chromium, address)
        visitor.go("#/run/long", ".row .label")
        visitor.page.fill("[aria-label='Search entries']", '"number":777')
        visitor.page.wait_for_selector(".row[aria-setsize='11'] .label")
        texts = visitor.page.locator(".row .text").all_inner_texts()
        visitor.close()

    assert all('"number":777' in text for text in texts)


# --- hostile texts ---


@pytest.mark.parametrize("bypass_csp", [False, True], ids=["policy", "no policy"])
def test_no_text_of_a_model_or_a_tool_is_markup(
    chromium: Any, tmp_path: Path, bypass_csp: bool
) -> None:
    payloads = build_payloads()
    journal = write_payloads(tmp_path / "runs.db", payloads)
    with serving(open_console(journal).app) as address:
        visitor = Visitor(chromium, address, bypass_csp=bypass_csp)
        page = visitor.page
        page.wait_for_selector(".run")
        while page.locator("text=Older runs").is_visible():
            count = page.locator(".run").count()
            page.click("text=Older runs")
            wait_for(page, f"document.querySelectorAll('.run').length > {count}")
        tasks = page.locator(".task").all_text_contents()
        visitor.go("#/run/all", ".row .label")
        total = int(page.get_attribute(".row", "aria-setsize"))
        scroll_through(page, total)
        for row in page.locator(".row").all()[:25:4]:
            row.click()
            page.wait_for_selector(".panel .raw", state="attached")
        for tab in ("facts", "plan", "children"):
            page.click(f"#tab-{tab}")
        visitor.go(
            "#/thread/" + "%3Cimg%20src%3Dx%20onerror%3Dwindow.__xss%3D1%3E", "h1"
        )
        visitor.go("#/run/asks", ".asks button")
        page.click(".asks button")
        page.wait_for_selector("dialog[open] .arguments")
        page.wait_for_timeout(300)
        ran = page.evaluate("window.__xss")
        strange = page.locator(
            "main script, main img, main iframe, dialog script, dialog img"
        ).count()
        visitor.close()

    assert ran is None
    assert strange == 0
    whole = [text for text in payloads if re.sub(r"\s", "", text)]
    shown = {re.sub(r"\s", "", text) for text in tasks}
    assert len([one for one in whole if re.sub(r"\s", "", one)[:200] in shown]) >= 195


def write_payloads(path: Path, payloads: list[str]) -> Journal:
    """Return a journal whose tasks, calls, results, facts and questions are payloads."""

    @tool(effect="read", repeatable=True)
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    async def solve(run: Run) -> str:
        for payload in payloads:
            run.note({"payload": payload, payload: 1})
            await run.call(ToolCall("echo", {"text": payload}))
        return payloads[0]

    asking = build_runtime(path, [call("delete", path="".join(payloads[:40]))])
    runtime = Runtime(
        ScriptedProvider(lambda request: "fine"),
        tools=[echo],
        journal=asking.journal,
        limits=UNBOUNDED,
    )

    async def run() -> None:
        for payload in payloads:
            await ReActEngine(runtime).run(payload or "x")
        await FunctionEngine(runtime, body=solve).run("All.", run_id="all")
        await ReActEngine(asking).run("Asks.", run_id="asks")

    complete(run())
    return asking.journal


def test_a_conversation_is_begun_streamed_steered_and_continued_in_the_page(
    chromium: Any, tmp_path: Path
) -> None:
    model = [
        "Hello Ada, I am here for you.",
        call("delete", path="old.txt"),
        "It is gone.",
    ]
    runtime = build_runtime(tmp_path / "runs.db", model)
    runtime.agent("guide")
    with serving(open_console(runtime).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        visitor.go("#/start", ".start")
        page.fill("#thread", "ada")
        page.keyboard.press("Enter")
        page.wait_for_selector(".composer")
        page.fill("#message", "I am Ada.")
        page.keyboard.press("Enter")
        wait_for(page, "document.querySelectorAll('.said.assistant').length > 0")
        wait_for(page, "document.body.innerText.includes('I am here for you.')")
        visitor.go("#/costs", "h1")
        visitor.go("#/thread/ada", ".composer")
        page.set_input_files("#files", files=[{"name": "a.png", "mimeType": "image/png", "buffer": PNG}])  # fmt: skip
        page.fill("#message", "Delete this.")
        page.click(".composer .primary")
        wait_for(page, "document.querySelector('button.waiting').textContent.startsWith('1')")  # fmt: skip
        # The question shows as soon as it is asked, a moment before the run stands; until then a message steers it.
        page.wait_for_selector(".talk .badge.s-waiting")
        page.fill("#message", "And be quick.")
        page.click(".composer .primary")
        page.wait_for_selector(".composer .problem:not([hidden])")
        blocked = page.inner_text(".composer .problem")
        visitor.close()
    turns = complete(runtime.agents["guide"].thread("ada").turns())

    assert "waits" in blocked
    assert [turn.status for turn in turns] == ["completed", "waiting"]
    started: Any = runtime.journal.read(turns[1].run_id)[0].event
    assert [one.media_type for one in started.messages[-1].attachments] == ["image/png"]


def test_a_task_is_started_and_without_a_runtime_the_form_says_why_not(
    chromium: Any, tmp_path: Path
) -> None:
    runtime = build_runtime(tmp_path / "runs.db", ["All is well."])
    with serving(open_console(runtime).app) as address:
        visitor = Visitor(chromium, address)
        visitor.go("#/start", ".start")
        visitor.page.select_option("#who", "engine react")
        visitor.page.fill("#task", "How is it?")
        visitor.page.click("text=Start >> nth=-1")
        wait_for(visitor.page, "document.body.innerText.includes('All is well.')")
        visitor.close()
    with serving(open_console(runtime.journal).app) as address:
        visitor = Visitor(chromium, address)
        visitor.go("#/start", ".start")
        reason = visitor.page.inner_text("p.note[role=note]")
        visitor.close()

    assert [info.status for info in runtime.journal.runs()] == ["completed"]
    assert "runtime" in reason


@dataclasses.dataclass
class MemorySnapshot:
    iterations: int
    text: str


@dataclasses.dataclass
class Critique:
    round: int
    verdict: str
    verified: bool


def test_memory_shows_as_a_difference_and_a_run_is_forked_with_other_words(
    chromium: Any, axe: str, tmp_path: Path
) -> None:
    async def solve(run: Run) -> str:
        run.note(MemorySnapshot(1, "one lamp\nno price"))
        run.note(Critique(1, "REFUTED", verified=True))
        run.note(MemorySnapshot(2, "one lamp\n12 euros"))
        return (await run.reason(run.conversation)).answer or ""

    runtime = build_runtime(tmp_path / "runs.db", ["A lamp."], providers={"heavy": ScriptedProvider(["x"])})  # fmt: skip
    complete(FunctionEngine(runtime, body=solve).run("Order.", run_id="order"))
    forked = build_runtime(tmp_path / "runs.db", [call("look_up", topic="chairs"), "A chair."])  # fmt: skip
    complete(ReActEngine(forked).run("Order.", run_id="react"))
    with serving(open_console(runtime).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        visitor.go("#/run/order", ".row .label")
        page.click("#tab-facts")
        last = page.locator(".card-MemorySnapshot").last
        lines = [last.locator(f".diff-{one}").inner_text() for one in ("kept", "gone", "new")]  # fmt: skip
        critique = page.inner_text(".card-Critique")
        violations = find_violations(page, axe)
        visitor.go("#/start", ".start")
        page.select_option("#who", "engine plan-execute")
        parts = page.locator("[id^=model-]").count()
        visitor.go("#/run/react", ".row .label")
        page.locator(".row").nth(0).click()
        page.click("text=Fork after this entry")
        page.fill("#fork-text", "Take a chair.")
        page.click("dialog .primary")
        wait_for(page, "location.hash.startsWith('#/run/run-')")
        visitor.close()

    texts = ("one lamp", "no price", "12 euros")
    assert all(text in line for text, line in zip(texts, lines, strict=True)), lines
    assert "verified" in critique
    assert "by a tool" in critique
    assert violations == []
    assert parts > 1


class NewestTurn:
    """A context policy that sends the task and the newest turn."""

    async def view(self, at: ContextView) -> View:
        length = len(at.conversation)
        spans = ((0, 1), (length - 2, length)) if length > 3 else ((0, length),)
        return View(length, spans)


def test_a_prompt_says_what_was_left_out_and_a_resumed_run_what_is_different(
    chromium: Any, axe: str, tmp_path: Path
) -> None:
    script = [*(call("look_up", topic=f"lamp {n}") for n in range(3)), call("delete", path="a")]  # fmt: skip
    before = build_runtime(tmp_path / "runs.db", script, context=NewestTurn())
    complete(ReActEngine(before).run("Order.", run_id="order"))
    other = ScriptedProvider(["Kept."], model="another")
    after = Runtime(other, tools=[delete, look_up], journal=before.journal, context=NewestTurn())  # fmt: skip
    suspended: Any = before.journal.read("order")[-1].event
    [question] = suspended.pending
    complete(after.control("order").deny(question.id, "Keep it."))
    complete(ReActEngine(after).resume("order"))
    asked = [e for e in before.journal.read("order") if isinstance(e.event, ModelRequested)]  # fmt: skip
    with serving(open_console(before.journal).app) as address:
        visitor = Visitor(chromium, address)
        page, notes = visitor.page, list[str]()
        visitor.go("#/run/order", ".row .label")
        for entry, place in ((asked[0], "0"), (asked[3], "1e6")):
            page.evaluate(f"document.querySelector('.space').parentElement.scrollTop = {place}")  # fmt: skip
            page.click(f".row[data-seq='{entry.seq}']")
            title = f"document.querySelector('.panel h2')?.textContent === 'Entry {entry.seq}'"  # fmt: skip
            wait_for(page, f"{title} && document.querySelector('.panel .message')")
            notes.append("".join(page.locator(".left-out").all_inner_texts()))
            messages = page.locator(".panel .message").all_inner_texts()
        violations = find_violations(page, axe)
        page.click("#tab-facts")
        drift = page.inner_text(".card-DriftNoticed")
        violations += find_violations(page, axe)
        visitor.close()

    left_out = "4 messages left out; of 7 messages, 1, 6 to 7 were sent."
    assert notes == ["", f"Context policy: {left_out}"]
    assert ["notes about lamp" in one for one in messages].count(True) == 1, messages
    assert "notes about lamp 2" in "".join(messages)
    assert "Drift: " in drift
    assert "another" in drift
    assert violations == []


def test_a_newcomer_finds_what_failed_what_waits_and_what_a_model_saw(
    chromium: Any, axe: str, tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    failing = build_runtime(path, [ProviderError("the key was refused (401)")])
    complete(ReActEngine(failing).run("Write a letter.", run_id="letter"))
    noting = build_runtime(path, [*(call("look_up", topic=f"lamp {n}") for n in range(12)), "Noted."])  # fmt: skip
    complete(ReActEngine(noting).run("Note lamps.", run_id="notes"))
    waiting = suspend_run(path)
    with serving(open_console(waiting.journal).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        page.wait_for_selector(".run a")
        listed = [page.inner_text(f"a[href='#/run/{one}']") for one in ("letter", "tidy")]  # fmt: skip
        violations = find_violations(page, axe)
        page.click("a[href='#/run/notes']")
        page.wait_for_selector(".row .label")
        page.fill("input[aria-label='Search entries']", "turn 12")
        wait_for(page, "document.querySelectorAll('.row').length === 2")
        labels = page.locator(".row .label").all_inner_texts()
        page.click(".row >> nth=1")
        page.wait_for_selector(".panel .message")
        messages = page.locator(".panel .message").all_inner_texts()
        violations += find_violations(page, axe)
        visitor.close()

    assert "the key was refused (401)" in listed[0]
    assert "waits for approval of delete" in listed[1]
    assert labels == ["prompt", "model"]
    assert "Note lamps." in messages[0]
    assert ("calls look_up" in messages[-2], "lamp 10" in messages[-2]) == (True, True)
    assert "notes about lamp 10" in messages[-1]
    assert violations == []


def test_a_setting_and_a_schedule_are_changed_in_the_page(
    chromium: Any, axe: str, tmp_path: Path
) -> None:
    settings = SQLiteSettings(tmp_path / "settings.db")
    runtime = build_runtime(tmp_path / "runs.db", [], settings=settings)
    runtime.agent("guide", instructions="Be friendly.")
    with serving(open_console(runtime).app) as address:
        visitor = Visitor(chromium, address, viewport=PHONE)
        page, found = visitor.page, list[Any]()
        visitor.go("#/settings", "[data-setting='agent.guide.limits.timeout']")
        found += find_violations(page, axe)
        page.click("[data-setting='agent.guide.limits.timeout']")
        page.fill("#value", "9000")
        page.wait_for_selector("dialog .problem:not([hidden])")
        assert "the limit of the code" in page.inner_text("dialog .problem")
        page.fill("#value", "30")
        page.fill("#why", "too slow")
        found += find_violations(page, axe)
        page.click("dialog .primary")
        page.wait_for_selector(".history tbody tr")
        assert "too slow" in page.inner_text(".history")
        visitor.go("#/schedules", "#add")
        page.click("#add")
        page.fill("#name", "daily")
        page.fill("#task", "Sum up.")
        found += find_violations(page, axe)
        page.click("dialog .primary")
        page.click("[data-schedule=daily] >> text=Pause")
        page.wait_for_selector("[data-schedule=daily] .s-paused")
        found += find_violations(page, axe)
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        visitor.close()

    assert (found, wide) == ([], False)
    assert settings.read().values == {"agent.guide.limits.timeout": 30}
    [added] = complete(runtime.schedules.list())
    assert (added.task, added.paused, added.by) == ("Sum up.", True, "Ada")


def test_a_call_of_a_person_has_the_fields_of_the_tools_schema(
    chromium: Any, tmp_path: Path
) -> None:
    runtime = suspend_run(tmp_path / "runs.db")
    with serving(open_console(runtime.journal).app) as address:
        visitor = Visitor(chromium, address)
        page = visitor.page
        visitor.go("#/run/tidy", "[data-action=override]")
        page.click("[data-action=override]")
        page.select_option("#tool", "look_up")
        page.fill("#argument-topic", "lamps")
        page.click("dialog .primary")
        page.wait_for_selector("dialog", state="detached")
        visitor.close()

    [command] = runtime.journal.inbox("tidy")
    assert command.body == {"tool": "look_up", "arguments": {"topic": "lamps"}, "by": "Ada"}  # fmt: skip
