"""Journals: the port and the one in memory, and SQLite."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .base import COMMAND_BYTES as COMMAND_BYTES
    from .base import RESUMABLE as RESUMABLE
    from .base import Claim as Claim
    from .base import Command as Command
    from .base import Journal as Journal
    from .base import MemoryJournal as MemoryJournal
    from .base import RunHeader as RunHeader
    from .base import RunInfo as RunInfo
    from .base import Verification as Verification
    from .base import chain_hash as chain_hash
    from .base import check_row as check_row
    from .base import checked_id as checked_id
    from .base import command_body as command_body
    from .base import ensure_free as ensure_free
    from .base import follow_chain as follow_chain
    from .base import lease_end as lease_end
    from .base import orphaned as orphaned
    from .base import read_command_body as read_command_body
    from .base import status_of_claimed as status_of_claimed
    from .base import taken as taken
    from .base import verify_chain as verify_chain
    from .owner import Owner as Owner
    from .sqlite.journal import SQLiteJournal as SQLiteJournal

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".base": (
                "COMMAND_BYTES",
                "RESUMABLE",
                "Claim",
                "Command",
                "Journal",
                "MemoryJournal",
                "RunHeader",
                "RunInfo",
                "Verification",
                "chain_hash",
                "check_row",
                "checked_id",
                "command_body",
                "ensure_free",
                "follow_chain",
                "lease_end",
                "orphaned",
                "read_command_body",
                "status_of_claimed",
                "taken",
                "verify_chain",
            ),
            ".owner": ("Owner",),
            ".sqlite.journal": ("SQLiteJournal",),
        },
    )
