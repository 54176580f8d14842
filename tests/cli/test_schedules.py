"""`schedule`: add, list, pause, run and delete; a worker of the command line fires it."""

import json

from .using import Invoke

ADD = ("schedule", "add", "digest", "Sum up.", "--cron", "0 9 * * 1-5", "--by", "Ada")


def test_a_schedule_is_added_listed_run_and_deleted(invoke: Invoke) -> None:
    added = invoke(*ADD)
    assert added.stdout.startswith("digest\tnext ")
    [listed] = invoke("schedule", "list", "--json").stdout.splitlines()
    assert json.loads(listed) | {"agent": "react", "by": "Ada", "paused": False} == (
        json.loads(listed)
    )

    assert "paused" in invoke("schedule", "pause", "digest").stdout
    run_id = invoke("schedule", "run", "digest").stdout.strip()
    worked = invoke(
        "worker", "--once", "--provider", "scripted:capital", "--tools", "scripted_cli:capital", "-q"
    )  # fmt: skip
    assert worked.stdout == f"{run_id}\tcompleted\n"
    assert "next" in invoke("schedule", "unpause", "digest").stdout
    assert invoke("schedule", "delete", "digest").exit_code == 0
    assert invoke("schedule", "list").stdout == ""


def test_a_wrong_schedule_is_refused(invoke: Invoke) -> None:
    for arguments, problem in (
        ((*ADD[:4], "--cron", "0 9 30 2 *"), "cron"),
        ((*ADD, "--missed", "never"), "missed: must be one of"),
        (("schedule", "pause", "digest"), "there is no schedule 'digest'"),
    ):
        refused = invoke(*arguments)
        assert (refused.exit_code, problem in refused.stderr) == (2, True), arguments
