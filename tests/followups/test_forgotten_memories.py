"""Random histories of runs with memories and vectors: what is forgotten is in no search, history, or byte of the file."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from embedders import WordEmbedder
from fault_sizes import figure, sized
from loopwright import MemoryJournal, ReActEngine, Runtime
from loopwright.followups import Memories
from loopwright.knowledge import SQLiteKnowledge
from loopwright.testing import ScriptedProvider

HISTORIES = sized(20, 10_000)
IN_ONE_FILE = 50


@dataclasses.dataclass
class History:
    """The random runs of one user, and the words that only they said."""

    store: SQLiteKnowledge
    source: random.Random
    scope: str
    said: dict[str, list[str]] = dataclasses.field(default_factory=dict[str, list[str]])
    gone: list[str] = dataclasses.field(default_factory=list[str])

    async def run(self, number: int) -> None:
        """Say something with words of its own, and have it remembered."""
        run_id = f"{self.scope}-r{number}"
        names = [f"Q{self.source.getrandbits(40):010x}" for _ in range(3)]
        preference = self.source.choice(("I prefer {}", "Call me {}", "I never eat {}"))
        task = f"{preference.format(names[0])}. Who is Ms {names[1]}?"
        runtime = Runtime(
            ScriptedProvider([f"She knows Mr {names[2]}."]), journal=MemoryJournal(),
            knowledge=self.store, after=[Memories()],
        )  # fmt: skip
        await ReActEngine(runtime).run(task, run_id=run_id, tags={"user": self.scope})
        await runtime.drain()
        assert await runtime.due() == []
        self.said[run_id] = names

    async def forget(self) -> None:
        """Forget what one run left."""
        run_id = self.source.choice(sorted(self.said))
        assert await self.store.forget(source_run=run_id) >= 3
        self.gone += self.said.pop(run_id)

    async def check(self) -> None:
        """Find what holds, and nothing of what is gone."""
        for word in self.gone:
            assert await self.hits(word) == []
        for names in self.said.values():
            assert len(await self.hits(names[1])) >= 2

    async def hits(self, word: str) -> list[str]:
        found = await self.store.search(word, scope=self.scope, threshold=0.0, limit=50)
        return [item.text for item in found if word in item.text]


async def live(history: History) -> list[str]:
    """Run and forget in random order; return the words that are gone."""
    for number in range(5):
        await history.run(number)
        if history.source.random() < 0.5:
            await history.forget()
    await history.check()
    everything: dict[str, Any] = {"scope": history.scope}
    if history.source.random() < 0.5:
        await history.store.forget(**everything)
        history.gone += [name for names in history.said.values() for name in names]
        history.said = {}
        await history.check()
    return history.gone


@pytest.mark.faults
@pytest.mark.timeout(sized(120, 7200))
async def test_random_histories_of_memories_leave_nothing(tmp_path: Path) -> None:
    count = 0
    for first in range(0, HISTORIES, IN_ONE_FILE):
        folder = tmp_path / str(first)
        folder.mkdir()
        store = SQLiteKnowledge(folder / "k.db", embedder=WordEmbedder(24))
        gone = list[str]()
        for number in range(first, min(first + IN_ONE_FILE, HISTORIES)):
            history = History(store, random.Random(number), f"u{number}")
            gone += await live(history)
        await store.close()
        left = b"".join(file.read_bytes() for file in sorted(folder.iterdir()))
        assert [word for word in gone if word.encode() in left] == []
        assert [word for word in gone if word.lower().encode() in left] == []
        count += len(gone)

    assert count > 5 * HISTORIES
    figure("memories", f"{HISTORIES:,} random histories, {count:,} words forgotten")
