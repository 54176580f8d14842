"""Parts by name: what an entry point makes, what is said when it cannot, and who closes what was made."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopwright import (
    ConfigError,
    DefaultGate,
    MemoryJournal,
    ReActEngine,
    Runtime,
    plugins,
)
from loopwright.journals import SQLiteJournal
from loopwright.plugins import build_gate, build_journal, build_provider, build_tools

Install = Callable[[str, str], None]
CODE = '''
from loopwright import Completion, Tool, tool
from loopwright.providers import Capabilities

closed = []

class Parrot:
    name = "parrot"
    capabilities = Capabilities()

    def __init__(self, model=None):
        self.model = model or "grey"

    async def complete(self, request):
        return Completion(self.model, answer=f"{self.model}: {request.conversation.task}")

    async def aclose(self):
        closed.append(self.model)

@tool(effect="read")
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()

def whisper(text: str) -> str:
    """Say it quietly."""
    return text.lower()

def voices(only: str = ""):
    return [shout] if only == "loud" else [shout, whisper]

def refuses():
    raise RuntimeError("no beak")

def needs(place):
    return place

def nothing():
    return None

number = 5
'''
POINTS = """
[loopwright.providers]
parrot = parrots:Parrot
mute = parrots:nothing
refuses = parrots:refuses
[loopwright.toolboxes]
voices = parrots:voices
number = parrots:number
none = parrots:nothing
[loopwright.journals]
needs = parrots:needs
"""


@pytest.fixture(autouse=True)
def parrots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with parts of every kind, installed for one test."""
    folder = tmp_path / "site"
    info = folder / "parrots-2.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: parrots\nVersion: 2.0\n"
    )
    (info / "entry_points.txt").write_text(POINTS)
    (folder / "parrots.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "parrots", raising=False)
    plugins._find_installed.cache_clear()
    yield
    plugins._find_installed.cache_clear()


def refusal(build: Callable[[str], object], spec: str) -> str:
    with pytest.raises(ConfigError) as refused:
        build(spec)
    return str(refused.value)


def test_a_runtime_takes_its_provider_by_name_and_model() -> None:
    assert ReActEngine(Runtime("parrot:ara")).run_sync("hello").answer == "ara: hello"
    assert ReActEngine(Runtime("parrot")).run_sync("hello").answer == "grey: hello"


async def test_a_runtime_closes_the_provider_that_it_made_and_no_other() -> None:
    given = build_provider("parrot:given")
    async with Runtime("parrot:made"), Runtime(given):
        pass

    assert __import__("parrots").closed == ["made"]


def test_a_toolbox_gives_tools_of_its_functions() -> None:
    assert [tool.name for tool in build_tools("voices")] == ["shout", "whisper"]
    assert [tool.name for tool in build_tools("voices:loud")] == ["shout"]


def test_a_journal_is_named_by_its_place_alone(tmp_path: Path) -> None:
    assert isinstance(build_journal(str(tmp_path / "runs.db")), SQLiteJournal)
    assert isinstance(build_journal(f"sqlite:{tmp_path / 'runs.db'}"), SQLiteJournal)
    assert isinstance(build_journal("memory"), MemoryJournal)


def test_a_gate_is_named() -> None:
    assert isinstance(build_gate("default"), DefaultGate)


@pytest.mark.parametrize(
    ("build", "spec", "said"),
    [
        (
            build_provider,
            "mute",
            "plug-in 'mute' gave None, which has no method complete",
        ),
        (
            build_provider,
            "refuses",
            "plug-in 'refuses' of parrots 2.0 failed: RuntimeError: no beak",
        ),
        (
            build_tools,
            "number",
            "plug-in 'number' of parrots: parrots:number cannot be called",
        ),
        (build_tools, "none", "toolbox 'none' gave None, not a list of tools"),
        (
            build_tools,
            "voises",
            "toolboxes: there is no 'voises'; did you mean voices? Installed: clock, filesystem, manifest, math, mcp, "
            "memory, none, number, search, shell, skills, voices, web",
        ),
        (
            build_journal,
            "needs:x",
            "plug-in 'needs:x' gave 'x', which has no method barrier",
        ),
        (
            build_journal,
            "jsonl:x",
            "journal: 'jsonl:x' names no installed journal (memory, needs, sqlite) and no file: write \"runs.db\"",
        ),
        (
            build_journal,
            "",
            "journal: '' names no installed journal (memory, needs, sqlite) and no file: write \"runs.db\"",
        ),
        (
            build_gate,
            "cedars",
            "gates: there is no 'cedars'; did you mean cedar? Installed: allow-all, approval, cedar, content-safety, "
            "default, deny-all, opa, rules",
        ),
    ],
)
def test_a_part_that_cannot_be_made_is_named(
    build: Callable[[str], object], spec: str, said: str
) -> None:
    assert refusal(build, spec) == said


def test_an_argument_that_is_missing_is_asked_for() -> None:
    said = refusal(build_journal, "needs")

    assert said.startswith("plug-in 'needs' of parrots 2.0 failed: TypeError: ")
    assert said.endswith('it may want an argument, "needs:..."')
