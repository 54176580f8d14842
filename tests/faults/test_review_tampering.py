"""Reviews of a critic are facts in the journal's chain: each changed field is found, and so is a wrong key."""

import asyncio
import contextlib
import dataclasses
import json
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from fault_sizes import figure, sized
from loopwright import Runtime
from loopwright.engines import DirectorCriticEngine, DraftReview, FixedRounds
from loopwright.journals import SQLiteJournal, chain_hash
from loopwright.security import (
    Ed25519Signer,
    KeyFile,
    PublicKey,
    SignedHeads,
    check_anchors,
    read_anchors,
)
from loopwright.testing import ScriptedProvider

FLIPS = sized(100, 1_000)
SIGNER, STRANGE = Ed25519Signer("key-1", b"1" * 32), Ed25519Signer("key-1", b"2" * 32)
KEYS = KeyFile([PublicKey("key-1", SIGNER.public_key)])
FIELDS = [*DraftReview.__dataclass_fields__]
REVIEWS = [
    {"feedback": "Sources?", "scores": {"truth": 0.5, "plain words": 1.0}},
    {"feedback": "Good.", "scores": {"truth": 0.9, "plain words": 0.9}},
    {"feedback": "Too long.", "scores": {"truth": 0.9, "plain words": 0.2}},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with a reviewed run, and the anchors of its head."""
    made = tmp_path_factory.mktemp("reviewed")

    async def work() -> None:
        script = [line for at, review in enumerate(REVIEWS) for line in (f"draft {at}", json.dumps(review))]  # fmt: skip
        journal = SQLiteJournal(made / "runs.db")
        engine = DirectorCriticEngine(
            Runtime(ScriptedProvider(script), journal=journal),
            mode="rubric",
            rubric={"truth": 0.5, "plain words": 0.5},
            convergence=FixedRounds(3),
        )
        result = await engine.run("Write.", run_id="r")
        assert result.answer == "draft 1"
        SignedHeads(journal, SIGNER, made / "anchors.jsonl").anchor()
        await journal.close()

    asyncio.run(work())
    return made


def change(value: Any, source: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, dict):
        scores = cast("dict[str, float]", value)
        name = source.choice([*scores])
        return {**scores, name: change(scores[name], source)}
    if isinstance(value, (int, float)):
        return value + source.choice((-1, 1)) * source.randrange(1, 10) / 10
    at = source.randrange(len(value) + 1)
    return f"{value[:at]}{source.choice('xyz')}{value[at + source.randrange(2) :]}x"


def tamper(path: Path, source: random.Random, *, rewrite: bool) -> str:
    """Change one field of one review; with `rewrite` the hashes behind it fit again. Return the field."""
    journal = SQLiteJournal(path)
    entries = journal.read("r")
    asyncio.run(journal.close())
    places = [at for at, entry in enumerate(entries) if entry.kind == "fact_noted"]
    at = source.choice(places[:-1])
    body = json.loads(entries[at].body)
    field = source.choice(FIELDS)
    body["value"][field] = change(body["value"][field], source)
    entries[at] = dataclasses.replace(entries[at], body=json.dumps(body).encode())
    with contextlib.closing(sqlite3.connect(path)) as sql, sql:
        sql.execute(
            "UPDATE events SET body = ? WHERE seq = ?", (entries[at].body, at + 1)
        )
        previous = ""
        for entry in entries if rewrite else ():
            previous = chain_hash(previous, entry)
            sql.execute(
                "UPDATE events SET hash = ? WHERE seq = ?", (previous, entry.seq)
            )
            sql.execute("UPDATE runs SET head_hash = ?", (previous,))
    sql.close()
    return field


@pytest.mark.timeout(300)
def test_each_changed_field_of_a_review_is_found(folder: Path, tmp_path: Path) -> None:
    source, found = random.Random(5), dict.fromkeys(FIELDS, 0)
    for number in range(FLIPS):
        path, is_rewritten = tmp_path / "runs.db", number % 2 == 1
        shutil.copy(folder / "runs.db", path)
        field = tamper(path, source, rewrite=is_rewritten)
        journal = SQLiteJournal(path)
        verified = journal.verify("r")
        anchors = read_anchors(folder / "anchors.jsonl")
        anchored = check_anchors(journal, anchors, KEYS)
        asyncio.run(journal.close())

        # A chain that was rewritten whole fits in itself: the signed head has another one.
        assert verified.ok == is_rewritten, f"{field}: {verified.problem}"
        assert not anchored.ok, f"{field} was changed"
        found[field] += 1
    figure(__name__, f"{FLIPS} changes of {len(found)} fields of reviews, all found")

    assert min(found.values()) > 0
    assert sum(found.values()) == FLIPS


def test_heads_signed_by_another_key_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "runs.db", tmp_path / "runs.db")
    journal = SQLiteJournal(tmp_path / "runs.db")
    SignedHeads(journal, STRANGE, tmp_path / "anchors.jsonl").anchor()
    anchors = read_anchors(tmp_path / "anchors.jsonl")
    report = check_anchors(journal, anchors, KEYS)
    honest = check_anchors(journal, read_anchors(folder / "anchors.jsonl"), KEYS)
    asyncio.run(journal.close())

    assert honest.ok
    assert not report.ok
    assert "signature" in report.problems[0]
