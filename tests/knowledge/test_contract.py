"""The stores of this package keep the contract of stores of knowledge."""

from pathlib import Path

from loopwright.knowledge import Knowledge, MemoryKnowledge, SQLiteKnowledge
from loopwright.testing import KnowledgeContract


class TestSQLiteKnowledge(KnowledgeContract):
    def knowledge(self, folder: Path, *, shared: bool = False) -> Knowledge:
        return SQLiteKnowledge(folder / "memory.db", shared=shared)


class TestMemoryKnowledge(KnowledgeContract):
    def knowledge(self, folder: Path, *, shared: bool = False) -> Knowledge:
        return MemoryKnowledge(shared=shared)
