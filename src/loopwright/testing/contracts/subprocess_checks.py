"""Checks of a journal from another process: it claims runs, reads their commands, and sends some."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..._internal import dataclasses
from ...errors import RunBusy
from ...journals.base import Journal
from ...journals.owner import ACTIVE_TOKENS, Owner
from ..crash_harness import Killable, build_job, make_program


@dataclasses.dataclass(frozen=True)
class Visit:
    """What another process got: the fence of each run, `None` for a busy one, and the first run's commands."""

    claimed: dict[str, int | None]
    read: list[int]
    sent: list[int]


def visit_journal(make: type[Killable], folder: Path, run_ids: Sequence[str]) -> Visit:
    """Let a fresh interpreter open the journal that an object of this class has in the directory."""
    job = build_job(make, (), folder, run_ids=list(run_ids))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    command = [sys.executable, "-m", __name__, json.dumps(job)]
    done = subprocess.run(  # noqa: S603 - this interpreter, on this module
        command, stdout=subprocess.PIPE, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        raise AssertionError(
            f"another process that opens the journal ended with {done.returncode}"
        )
    # The last line, because the journal may print others before.
    return Visit(**json.loads(done.stdout.splitlines()[-1]))


async def _visit(journal: Journal, run_ids: Sequence[str]) -> Visit:
    owner = Owner.of_this_process("another-process")
    ACTIVE_TOKENS.add(owner.token)
    claimed: dict[str, int | None] = {}
    for run_id in run_ids:
        try:
            claim = await journal.claim(run_id, str(owner), lease=3600.0)
            claimed[run_id] = claim.fence
        except RunBusy:
            claimed[run_id] = None
    read = [command.number for command in journal.inbox(run_ids[0])]
    sent = [journal.send(run_ids[0], "steer", {"n": number}) for number in (1, 2, 3)]
    await journal.close()
    return Visit(claimed, read, sent)


if __name__ == "__main__":
    work = json.loads(sys.argv[1])
    opened = make_program(work).journal(Path(work["folder"]))
    visit = asyncio.run(_visit(opened, work["run_ids"]))
    sys.stdout.write(json.dumps(dataclasses.asdict(visit)) + "\n")
