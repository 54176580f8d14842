"""What a journal is given that cannot be is a `ConfigError` that names it, before anything is opened."""

import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from loopwright import ConfigError, MemoryJournal
from loopwright.journals import SQLiteJournal

Call = tuple[str, tuple[Any, ...], dict[str, Any], str]
BOTH: list[Call] = [
    ("read", (None,), {}, "run_id: must be the id of a run, got None"),
    ("read", ("r",), {"after": None}, "after: must be a whole number, got None"),
    ("read", ("r",), {"after": "x"}, "after: must be a whole number, got 'x'"),
    ("read", ("r",), {"after": True}, "after: must be a whole number, got True"),
    ("request", (None, "0"), {}, "run_id: must be the id"),
    ("request", ("r", None), {}, "key: must be the key of a model call, got None"),
    ("request", ("r", "0"), {"attempt": "x"}, "attempt: must be a whole number"),
    ("request", ("r", "0"), {"attempt": None}, "attempt: must be a whole number"),
    ("request", ("r", "0"), {"attempt": 1.5}, "attempt: must be a whole number"),
    ("runs", (), {"unfinished": "no"}, "unfinished: must be True or False, got 'no'"),
    ("runs", (), {"where": "x"}, "where: must be a RunFilter"),
    ("count_runs", ("x",), {}, "where: must be a RunFilter"),
    ("news", (None,), {}, "after: must be a whole number"),
    ("verify", (None,), {}, "run_id: must be the id"),
    ("verify", ("r",), {"head": 5}, "head: must be the hash of an entry, got 5"),
    ("verify", ("r",), {"policy": "no"}, "policy: must be True or False"),
    ("send", (None, "steer", {}), {}, "run_id: must be the id"),
    ("send", ("r", None, {}), {}, "kind None: use a letter"),
    ("send", ("r", "steer", None), {}, "body: must be a JSON object"),
    ("inbox", (None,), {}, "run_id: must be the id"),
    ("inbox", ("r",), {"after": "x"}, "after: must be a whole number"),
    ("claim", (None, "o"), {}, "run_id: must be the id"),
    ("claim", ("r", None), {}, "owner: must be the name of the owner, got None"),
    ("claim", ("r", "o"), {"take_over": "no"}, "take_over: must be True or False"),
    ("claim", ("r", "o"), {"lease": "x"}, "lease: must be seconds above 0, got 'x'"),
    ("claim", ("r", "o"), {"lease": float("nan")}, "lease: must be seconds above 0"),
    ("delete", (None,), {}, "run_id: must be the id"),
    ("delete", ("r",), {"cascade": "no"}, "cascade: must be True or False, got 'no'"),
    ("delete", ("r",), {"abort": 1}, "abort: must be True or False, got 1"),
]
SQLITE: list[Call] = [
    ("inbox_news", ("x",), {}, "after: must be a whole number"),
    ("delete", ("r",), {"deleted_by": None}, "deleted_by: "),
    ("prune", (), {"older_than": "x"}, "older_than: "),
    ("prune", (), {"keep": 1, "status": 5}, "status: "),
    ("prune", (), {"keep": "x"}, "keep: "),
    ("export", (None, ["r"]), {}, "path: must be the path of a file, got None"),
    ("export", ("x", 5), {}, "run_ids: must be a list of ids, got 5"),
    ("export", ("x", [5]), {}, "run_ids: must be a list of the ids of runs, got 5"),
    ("import_", (None,), {}, "path: must be the path of a file, got None"),
    ("backup", (5,), {}, "path: must be the path of a file, got 5"),
]


@pytest.mark.parametrize(
    ("kind", "wrong"), [("memory", BOTH), ("sqlite", [*BOTH, *SQLITE])]
)
async def test_wrong_arguments_are_refused_before_anything_is_opened(
    tmp_path: Path, kind: str, wrong: list[Call]
) -> None:
    path = tmp_path / "runs.db"
    journal: Any = MemoryJournal() if kind == "memory" else SQLiteJournal(path)
    for method, given, options, message in wrong:
        with pytest.raises(ConfigError) as refused:  # noqa: PT012 - some methods are coroutines
            found = getattr(journal, method)(*given, **options)
            if inspect.isawaitable(found):
                await found
        assert str(refused.value).startswith(message), (method, given, options)

    assert os.listdir(tmp_path) == []
    await journal.close()
