"""Runs, owners and entries as the kernel makes them, for checks of journals."""

import dataclasses
import os

from ...events import Entry
from ...journal import Claim, Journal, Owner, RunHeader, chain_hash, process_start

HOST = Owner.of_this_process("").host
ME = str(Owner.of_this_process("me"))
LIVE = str(Owner(HOST, os.getppid(), process_start(os.getppid()), "live"))
DEAD = str(Owner(HOST, 2**22 + 1, "1", "dead"))  # a number that no process can have


def header(run_id: str = "r1", owner: str = ME) -> RunHeader:
    """A run as an engine begins it."""
    return RunHeader(run_id, "react", '{"max_iterations":5}', "1", owner, 1_700_000_000.25)


def follow(claim: Claim, *bodies: bytes, key: str = "0", kind: str = "fact_noted", at: float = 1.5) -> list[Entry]:
    """The entries that come next in a run, numbered and hashed as the kernel does it."""
    entries: list[Entry] = []
    for body in bodies:
        bare = Entry(claim.run_id, claim.head_seq + 1, key, kind, at, 1, claim.fence, body, "")
        entries.append(dataclasses.replace(bare, hash=chain_hash(claim.head_hash, bare)))
        claim.head_seq, claim.head_hash = entries[-1].seq, entries[-1].hash
    return entries


async def write(journal: Journal, claim: Claim, *bodies: bytes, status: str | None = None) -> list[Entry]:
    """Append and wait until it is kept."""
    entries = follow(claim, *bodies)
    journal.append(claim, entries, status=status)
    await journal.barrier(claim)
    return entries
