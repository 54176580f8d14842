"""What another process makes of a journal: it takes runs up where it may, reads their commands, and sends some."""

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import RunBusy
from ...journals.base import Journal
from ...journals.owner import ACTIVE_TOKENS, Owner
from ..crash_harness import Killable
from ..crash_harness import _made as made  # pyright: ignore[reportPrivateUsage]


@dataclasses.dataclass(frozen=True)
class Seen:
    """What another process got: a fence for each run, None for a busy one; and of the first run's inbox."""

    taken: dict[str, int | None]
    read: list[int]
    sent: list[int]


def visited(make: type[Killable], folder: Path, run_ids: Sequence[str]) -> Seen:
    """Let a fresh interpreter open the journal that an object of this class has in the folder."""
    job: dict[str, Any] = {
        "module": make.__module__,
        "file": sys.modules[make.__module__].__file__,
        "name": make.__qualname__,
        "arguments": [],
        "folder": str(folder),
        "run_ids": list(run_ids),
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
    }
    command = [sys.executable, "-m", __name__, json.dumps(job)]
    done = subprocess.run(  # noqa: S603 - ours
        command, stdout=subprocess.PIPE, text=True, env=environment, check=False
    )
    if done.returncode != 0:
        raise AssertionError(
            f"another process that opens the journal ended with {done.returncode}"
        )
    return Seen(
        **json.loads(done.stdout.splitlines()[-1])
    )  # what the journal prints comes before


async def _visit(journal: Journal, run_ids: Sequence[str]) -> Seen:
    owner = Owner.of_this_process("elsewhere")
    ACTIVE_TOKENS.add(owner.token)
    taken: dict[str, int | None] = {}
    for run_id in run_ids:
        try:
            taken[run_id] = (
                await journal.claim(run_id, str(owner), lease=3600.0)
            ).fence
        except RunBusy:
            taken[run_id] = None
    read = [command.number for command in journal.inbox(run_ids[0])]
    sent = [journal.send(run_ids[0], "steer", {"n": number}) for number in (1, 2, 3)]
    await journal.close()
    return Seen(taken, read, sent)


if __name__ == "__main__":
    work = json.loads(sys.argv[1])
    told = asyncio.run(
        _visit(made(work).journal(Path(work["folder"])), work["run_ids"])
    )
    sys.stdout.write(json.dumps(dataclasses.asdict(told)) + "\n")
