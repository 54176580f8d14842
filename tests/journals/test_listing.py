"""What runs are listed by: tags and threads."""

from pathlib import Path

import pytest

from loopwright import ReActEngine, Runtime
from loopwright.errors import ConfigError
from loopwright.journals import Journal, MemoryJournal, SQLiteJournal
from loopwright.testing import ScriptedProvider


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    return (
        MemoryJournal() if request.param == "memory" else SQLiteJournal(tmp_path / "r")
    )


async def test_tags_and_thread_of_a_run_are_listed_recorded_and_kept_by_a_fork(
    journal: Journal,
) -> None:
    engine = ReActEngine(Runtime(ScriptedProvider(["yes"]), journal=journal))
    await engine.run("Is it?", run_id="r", tags={"user": "42"}, thread="chat 7")
    await engine.fork("r", at=1, new_id="f")

    for info in journal.runs():
        assert (info.tags, info.thread) == ({"user": "42"}, "chat 7")
        assert journal.verify(info.run_id).ok


async def test_a_secret_in_a_tag_is_redacted(journal: Journal) -> None:
    engine = ReActEngine(Runtime(ScriptedProvider(["yes"]), journal=journal))
    key = "sk-proj-" + "Ab3dEf6hIj9kLm2n" * 3
    await engine.run("Is it?", tags={"key": key}, thread=key)

    (info,) = journal.runs()
    assert key not in repr((info, journal.read(info.run_id)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tags": ["user"]}, "tags: must be a mapping"),
        ({"tags": {"user": 42}}, r"tags\['user'\]: must be 1 to 256 printable"),
        ({"tags": {"user": "a\nb"}}, r"tags\['user'\]: must be 1 to 256 printable"),
        ({"tags": {"": "a"}}, "tags: a name must be 1 to 64 printable"),
        ({"tags": {f"{n}": "a" for n in range(33)}}, "tags: at most 32, got 33"),
        ({"thread": 7}, "thread: must be at most 256 printable"),
        ({"thread": "x" * 257}, "thread: must be at most 256 printable"),
    ],
)
async def test_wrong_tags_and_threads_are_refused_by_name(
    options: dict[str, object], message: str
) -> None:
    engine = ReActEngine(Runtime(ScriptedProvider(["yes"])))
    with pytest.raises(ConfigError, match=message):
        await engine.run("Is it?", **options)  # type: ignore[arg-type]
