"""`metrics`: how the runs of a journal went, as lines and as JSON."""

import json

from .using import Invoke

ASK = ("run", "Go.", "--provider", "scripted:capital", "--tools", "scripted_cli:capital", "-q")  # fmt: skip


def test_metrics_are_printed_as_lines_and_as_json(invoke: Invoke) -> None:
    assert invoke(*ASK).exit_code == 0
    lines = invoke("metrics").stdout.splitlines()

    assert lines[:2] == ["runs          1 (1 completed)", "success       100 %"]
    found = json.loads(invoke("metrics", "--json").stdout)
    assert (found["total"], found["success_rate"], found["dead_letters"]) == (1, 1.0, 0)
    other = json.loads(invoke("metrics", "--json", "--tag", "team=x").stdout)
    assert (other["total"], other["success_rate"]) == (0, None)
