"""An installed distribution whose provider `scripted` follows a script, and whose toolbox `desk` has two tools."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopwright import plugins
from loopwright.compose import Composition, load

ENTRY_POINTS = """\
[loopwright.providers]
scripted = scripted_compose:scripted
[loopwright.toolboxes]
desk = scripted_compose:desk
"""
CODE = '''\
"""A provider and tools for files of `loopwright.compose`."""
from collections.abc import Iterable
from typing import Unpack

from pydantic import BaseModel

from loopwright import tool
from loopwright.providers.settings import EndpointOptions
from loopwright.testing import ScriptedProvider, call

class City(BaseModel):
    """A city."""
    name: str

@tool(effect="read")
def look(thing: str) -> str:
    """Look at something."""
    return f"{thing}: a key {SEEN.get('api_key')}"

@tool(effect="destructive")
def burn(thing: str) -> str:
    """Burn something."""
    return f"{thing} burnt"

SEEN = {}
CLOSED = []

def desk(names: Iterable[str] = ("look", "burn"), *, label: str = "") -> list[object]:
    """The toolbox."""
    return [{"look": look, "burn": burn}[name] for name in names]

def follow(request):
    if any(message.role == "tool" for message in request.conversation.messages):
        return f"Done: {request.conversation.messages[-1].content}"
    return call(request.conversation.task.split()[0], thing="desk")

class Scripted(ScriptedProvider):
    """Calls the tool that is the first word of the task."""
    async def aclose(self) -> None:
        """Note it."""
        CLOSED.append(self.model)

def scripted(model: str = "plain", *, answers: list[str] | None = None, **options: Unpack[EndpointOptions]):
    """The provider."""
    SEEN.update(options)
    return Scripted(follow if answers is None else answers, model=model)

READY = ScriptedProvider(["Here."])
'''
Write = Callable[[str], Composition]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, beside which the distribution is installed."""
    installed, work = tmp_path / "installed", tmp_path / "work"
    metadata = installed / "scripted_compose-1.0.dist-info"
    metadata.mkdir(parents=True)
    work.mkdir()
    described = "Metadata-Version: 2.1\nName: scripted-compose\nVersion: 1.0\n"
    (metadata / "METADATA").write_text(described)
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (installed / "scripted_compose.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.chdir(work)
    plugins._find_installed.cache_clear()
    yield work
    plugins._find_installed.cache_clear()
    sys.modules.pop("scripted_compose", None)


@pytest.fixture
def compose(folder: Path) -> Write:
    """Loads what a text describes."""

    def compose(text: str) -> Composition:
        (folder / "agents.toml").write_text(text)
        return load("agents.toml")

    return compose
