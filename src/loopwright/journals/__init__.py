"""Journals: the port and the one in memory, and SQLite."""

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_attributes

if TYPE_CHECKING:
    from .access import AwaitableReads as AwaitableReads
    from .asynchronous import AsyncJournal as AsyncJournal
    from .base import RESUMABLE as RESUMABLE
    from .base import Claim as Claim
    from .base import Command as Command
    from .base import EarlierRunGone as EarlierRunGone
    from .base import Journal as Journal
    from .base import NewRun as NewRun
    from .base import RunHeader as RunHeader
    from .base import RunInfo as RunInfo
    from .base import Verification as Verification
    from .base import chain_hash as chain_hash
    from .base import check_history as check_history
    from .base import check_run_id as check_run_id
    from .base import decode_command_body as decode_command_body
    from .base import encode_command_body as encode_command_body
    from .base import format_id_taken as format_id_taken
    from .base import verify_chain as verify_chain
    from .batch_claims import BatchClaimingJournal as BatchClaimingJournal
    from .batch_claims import BatchClaims as BatchClaims
    from .capabilities import FollowUpJournal as FollowUpJournal
    from .claims import LeaseWatch as LeaseWatch
    from .claims import ensure_claimable as ensure_claimable
    from .claims import find_ending as find_ending
    from .claims import get_claimed_status as get_claimed_status
    from .claims import is_orphaned as is_orphaned
    from .leases import Lease as Lease
    from .listing import ListedRun as ListedRun
    from .listing import RunFilter as RunFilter
    from .memory import MemoryJournal as MemoryJournal
    from .metrics import RunMetrics as RunMetrics
    from .owner import Owner as Owner
    from .pushes import PushingJournal as PushingJournal
    from .recorded_requests import RequestReader as RequestReader
    from .renewals import BatchRenewingJournal as BatchRenewingJournal
    from .sqlite.journal import SQLiteJournal as SQLiteJournal
    from .sqlite.rates import SQLiteRates as SQLiteRates

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__, __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            ".access": ("AwaitableReads",),
            ".asynchronous": ("AsyncJournal",),
            ".base": (
                "RESUMABLE",
                "Claim",
                "Command",
                "EarlierRunGone",
                "Journal",
                "NewRun",
                "RunHeader",
                "RunInfo",
                "Verification",
                "chain_hash",
                "check_history",
                "check_run_id",
                "encode_command_body",
                "decode_command_body",
                "format_id_taken",
                "verify_chain",
            ),
            ".batch_claims": ("BatchClaimingJournal", "BatchClaims"),
            ".capabilities": ("FollowUpJournal",),
            ".claims": (
                "LeaseWatch",
                "ensure_claimable",
                "find_ending",
                "get_claimed_status",
                "is_orphaned",
            ),
            ".leases": ("Lease",),
            ".listing": ("ListedRun", "RunFilter"),
            ".memory": ("MemoryJournal",),
            ".metrics": ("RunMetrics",),
            ".owner": ("Owner",),
            ".pushes": ("PushingJournal",),
            ".recorded_requests": ("RequestReader",),
            ".renewals": ("BatchRenewingJournal",),
            ".sqlite.journal": ("SQLiteJournal",),
            ".sqlite.rates": ("SQLiteRates",),
        },
    )
