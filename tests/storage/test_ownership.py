"""A store of knowledge opens no file that others may write, as a journal does not."""

from pathlib import Path

import pytest

from loopwright.errors import KnowledgeError
from loopwright.knowledge import Remembered, SQLiteKnowledge


async def test_knowledge_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    store = SQLiteKnowledge(path)
    await store.store(Remembered("x", "fact", scope="acme"), key="1")
    await store.close()
    for file, mode, problem in (
        (path, 0o660, "knowledge file .* may be written by other users"),
        (tmp_path / "k.db.lock", 0o606, "knowledge file .*lock' may be written"),
        (tmp_path, 0o777, "knowledge directory .* lets every user replace"),
    ):
        before = file.stat().st_mode
        file.chmod(mode)
        with pytest.raises(KnowledgeError, match=problem):
            await SQLiteKnowledge(path).search("x", scope="acme")
        file.chmod(before)

    assert await SQLiteKnowledge(path).search("x", scope="acme")


async def test_knowledge_follows_no_link_beside_its_file(tmp_path: Path) -> None:
    path, other = tmp_path / "k.db", tmp_path / "other"
    other.touch()
    (tmp_path / "k.db.lock").symlink_to(other)

    with pytest.raises(KnowledgeError, match=r"k\.db\.lock' is a symbolic link"):
        await SQLiteKnowledge(path).search("x", scope="acme")


async def test_knowledge_whose_file_was_replaced_writes_nothing_more(
    tmp_path: Path,
) -> None:
    store = SQLiteKnowledge(tmp_path / "k.db")
    await store.store(Remembered("x", "fact", scope="acme"), key="1")
    (tmp_path / "k.db").rename(tmp_path / "moved.db")

    with pytest.raises(
        KnowledgeError, match=r"was removed or replaced.*SQLiteKnowledge"
    ):
        await store.store(Remembered("y", "fact", scope="acme"), key="2")
    await store.close()
