"""kill -9 at every barrier of a run in an encrypted journal: it continues in another process that has the key."""

import itertools
from pathlib import Path

import pytest

from fault_sizes import sized
from loopwright import LoopEngine, ReActEngine, Runtime
from loopwright.journals import Journal, SQLiteJournal
from loopwright.providers import Request
from loopwright.security import AESCodec
from loopwright.testing import Line, call, kill_everywhere, witness, witnessed
from loopwright.tools import ToolContext, tool
from programs import run_once

pytestmark = pytest.mark.timeout(240)
WORD = "quagmire"


@tool(effect="write", name="send")
async def send(ctx: ToolContext[None], what: str) -> str:
    """Send something."""
    witness(ctx)
    return f"{what} sent"


class Encrypted:
    """A run whose journal is encrypted."""

    task = f"Send a {WORD}."

    def journal(self, folder: Path) -> SQLiteJournal:
        codec = AESCodec({"one": "A" * 43 + "="}, current="one")
        return SQLiteJournal(folder / "runs.db", codec=codec)

    def runtime(self, journal: Journal) -> Runtime:
        def model(request: Request) -> Line:
            told = [one for one in request.conversation if one.role == "tool"]
            return "Done." if told else call("send", what=WORD)

        return Runtime(witnessed(model), tools=[send], journal=journal)

    def engine(self, runtime: Runtime) -> LoopEngine:
        return ReActEngine(runtime)

    def warm_up(self) -> None:
        run_once(self)


def test_an_encrypted_run_continues_wherever_its_process_dies(tmp_path: Path) -> None:
    kills, chosen = 0, sized(short=3, long=100)
    for killed in itertools.islice(kill_everywhere(Encrypted, folder=tmp_path), chosen):
        kills += 1
        files = sorted(killed.folder.glob("runs.db*"))
        assert files
        assert not any(WORD.encode() in file.read_bytes() for file in files)
        plain = SQLiteJournal(killed.folder / "runs.db")
        assert plain.verify("the-run").ok

    assert kills >= 3
