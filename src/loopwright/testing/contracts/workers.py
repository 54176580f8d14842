"""Checks of a journal that workers share: leases, orphaned runs, and the inbox."""

import asyncio
import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

from ...clock import SystemClock
from ...errors import ConfigError, Fenced, RunBusy, UnknownRun
from ...journals.base import (
    COMMAND_BYTES,
    RESUMABLE,
    Claim,
    Command,
    Journal,
    RunInfo,
)
from ...journals.claims import get_watch, is_orphaned
from ..assertions import assert_equal, assert_true, assert_type, expect_error
from .entries import (
    AWAY,
    DEAD,
    LIVE,
    ME,
    another_machine,
    header,
    until_over,
    wall_clock_set,
    with_journal,
    write,
)

BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"text": "ünï ☃ 🌍 \0 'quoted' \\ \n"},
    {
        "n": 1,
        "f": 1.5,
        "t": True,
        "nothing": None,
        "list": [1, [2, {}]],
        "object": {"a": {"b": "c"}},
    },
)


class WorkerChecks:
    """The checks of `JournalContract` that workers rely on."""

    def journal(self, folder: Path) -> Journal:
        """Your journal in that folder: a new one where the folder is empty, else the one that was there."""
        raise NotImplementedError(
            f"{type(self).__name__}: override journal(self, folder)"
        )

    # --- leases ---

    @with_journal
    async def test_a_new_run_has_the_lease_that_its_header_asks_for(
        self, journal: Journal
    ) -> None:
        """It begins with the first entries; without one there is no end."""
        before = time.time()
        claim = await _begin(journal, "r1", AWAY, lease=100.0)
        await _begin(journal, "r2", AWAY)

        _ends(claim, before + 100.0, time.time() + 100.0)
        assert_equal(
            [info.lease_until for info in journal.runs()],
            [None, claim.lease_until],
            "the ends of the leases",
        )

    @with_journal
    async def test_a_claim_has_the_lease_that_it_asks_for(
        self, journal: Journal
    ) -> None:
        """In place of the one before; without one there is no end."""
        await _begin(journal, "r1", DEAD, lease=1.0)
        before = time.time()
        claim = await journal.claim("r1", AWAY, lease=100.0)

        _ends(claim, before + 100.0, time.time() + 100.0)
        assert_equal(
            _info(journal).lease_until, claim.lease_until, "the end of the lease"
        )
        claim = await journal.claim("r1", ME, take_over=True)
        assert_equal(
            (claim.lease_until, _info(journal).lease_until),
            (None, None),
            "the end of no lease",
        )

    @with_journal
    async def test_a_run_is_busy_until_its_lease_is_over(
        self, journal: Journal
    ) -> None:
        """Its owner is on another host, about which nothing is known; the error says when the lease ends."""
        await _begin(journal, "r1", AWAY, lease=3600.0)
        with expect_error(
            RunBusy, "claiming a run with a lease that is not over", saying="UTC"
        ):
            await journal.claim("r1", ME)
        await _begin(journal, "r2", AWAY)
        with expect_error(RunBusy, "claiming a run of another host that has no lease"):
            await journal.claim("r2", ME)

        assert_equal(
            (await journal.claim("r1", ME, take_over=True)).fence,
            2,
            "the fence of the new owner",
        )

    @with_journal
    async def test_a_run_whose_lease_is_over_is_claimed_from_a_live_owner(
        self, journal: Journal
    ) -> None:
        """The old owner is refused as `Fenced` from then on, whatever it does."""
        for run_id, owner in (("r1", LIVE), ("r2", AWAY)):
            old = await _begin(journal, run_id, owner, lease=0.05)
            await until_over(0.05)
            try:
                new = await journal.claim(run_id, ME)
            except RunBusy as busy:
                raise AssertionError(
                    f"a run whose lease is over was not free: {busy}"
                ) from busy
            assert_equal(new.fence, 2, "the fence of the new owner")
            with expect_error(Fenced, "renewing a lease after another claimed the run"):
                await journal.renew(old, 100.0)
            with expect_error(Fenced, "writing after another claimed the run"):
                await write(journal, old, b"too late")
            with expect_error(Fenced, "a barrier after another claimed the run"):
                await journal.barrier(old)
            await write(journal, new, b"2")
            assert_equal(len(journal.read(run_id)), 2, "entries")
            assert_true(journal.verify(run_id).ok, "the chain does not verify")

    @with_journal
    async def test_a_dead_owner_loses_the_run_whatever_its_lease(
        self, journal: Journal
    ) -> None:
        """A claim does not wait for the lease of a process that ended."""
        await _begin(journal, "r1", DEAD, lease=3600.0)

        assert_equal((await journal.claim("r1", ME)).fence, 2, "the fence")

    @with_journal
    async def test_a_lease_that_is_renewed_does_not_end(self, journal: Journal) -> None:
        """Its new end counts from the renewal, for a new run and for a claimed one."""
        for run_id in ("new", "claimed"):
            claim = await _begin(journal, run_id, AWAY, lease=0.2)
            if run_id == "claimed":
                claim = await journal.claim(run_id, AWAY, take_over=True, lease=0.2)
            before = time.time()
            await journal.renew(claim, 3600.0)
            _ends(claim, before + 3600.0, time.time() + 3600.0)
            assert_equal(
                _info(journal).lease_until, claim.lease_until, "the end of the lease"
            )
            await until_over(0.2)
            with expect_error(RunBusy, "claiming a run whose lease was renewed"):
                await journal.claim(run_id, ME)
            await write(journal, claim, b"2")

    @with_journal
    async def test_wall_clocks_decide_nothing_about_a_lease(
        self, journal: Journal
    ) -> None:
        """Set forward or back by a day, they neither end a lease nor keep it."""
        for day in (-86_400.0, 86_400.0):
            await _begin(journal, f"held{day}", AWAY, lease=3600.0)
            await _begin(journal, f"over{day}", AWAY, lease=0.05)
            await until_over(0.05)
            with wall_clock_set(day):
                with expect_error(
                    RunBusy, f"claiming a leased run, wall clock set by {day} s"
                ):
                    await journal.claim(f"held{day}", ME)
                try:
                    await journal.claim(f"over{day}", ME)
                except RunBusy as busy:
                    raise AssertionError(
                        f"a run whose lease is over was not free, wall clock set by {day} s: {busy}"
                    ) from busy

    @with_journal
    async def test_a_run_of_another_machine_is_free_once_its_lease_was_not_renewed(
        self, journal: Journal
    ) -> None:
        """For its whole length, as this process sees it; one that is renewed is not."""
        with another_machine():
            renewed = await _begin(journal, "renewed", AWAY, lease=0.5)
            await _begin(journal, "left", AWAY, lease=0.5)
        with expect_error(RunBusy, "claiming a run of another machine just now"):
            await journal.claim("left", ME)
        is_free = False
        for _ in range(20):
            await asyncio.sleep(0.1)
            with another_machine():
                await journal.renew(renewed, 0.5)
            with expect_error(RunBusy, "claiming a run whose lease was just renewed"):
                await journal.claim("renewed", ME)
            with contextlib.suppress(RunBusy):
                is_free = is_free or (await journal.claim("left", ME)).fence == 2

        assert_true(is_free, "a run whose lease was not renewed for long was not free")

    @with_journal
    async def test_only_the_owner_renews_a_lease(self, journal: Journal) -> None:
        """What another tries is `Fenced` and changes nothing."""
        old = await _begin(journal, "r1", AWAY, lease=100.0)
        new = await journal.claim("r1", ME, take_over=True, lease=200.0)

        with expect_error(Fenced, "renewing a lease after a take-over"):
            await journal.renew(old, 3600.0)
        assert_equal(
            _info(journal).lease_until,
            new.lease_until,
            "the end of the new owner's lease",
        )

    @with_journal
    async def test_a_run_that_is_freed_has_no_lease(self, journal: Journal) -> None:
        """A renewal that comes late gives it none."""
        for status in ("suspended", "waiting", "completed"):
            claim = await _begin(journal, status, AWAY, lease=100.0)
            await write(journal, claim, b"{}", status="running")
            assert_equal(
                _info(journal).lease_until,
                claim.lease_until,
                "the end of the lease of a running run",
            )
            await write(journal, claim, status=status)
            await journal.renew(claim, 100.0)

            info = _info(journal)
            assert_equal(
                (info.owner, info.lease_until, claim.lease_until),
                (None, None, None),
                f"owner and lease: {status}",
            )

    @with_journal
    async def test_a_lease_is_a_number_of_seconds(self, journal: Journal) -> None:
        """Above 0 and with an end; anything else is a `ConfigError`, and the run stays as it was."""
        claim = await _begin(journal, "r1", DEAD)
        listed = journal.runs()
        for lease in (0.0, -1.0, float("nan"), float("inf")):
            with expect_error(ConfigError, f"a lease of {lease}", saying="lease"):
                await journal.claim("r1", ME, lease=lease)
            with expect_error(ConfigError, f"a lease of {lease}", saying="lease"):
                await journal.renew(claim, lease)
            with expect_error(ConfigError, f"a lease of {lease}", saying="lease"):
                await _begin(journal, "r2", ME, lease=lease)
        assert_equal(journal.runs(), listed, "the runs")

    # --- runs to claim ---

    @with_journal
    async def test_unfinished_runs_are_listed_alone(self, journal: Journal) -> None:
        """Those that run, wait or are suspended, newest first."""
        statuses = (
            "completed",
            "running",
            "failed",
            "suspended",
            "limit",
            "waiting",
            "aborted",
            "stuck",
        )
        for status in statuses:
            await write(journal, await _begin(journal, status, LIVE), status=status)

        unfinished = [status for status in reversed(statuses) if status in RESUMABLE]
        assert_equal(
            [info.run_id for info in journal.runs(unfinished=True)],
            unfinished,
            "the unfinished runs",
        )
        assert_equal(
            [info.run_id for info in journal.runs()],
            list(reversed(statuses)),
            "all runs",
        )

    @with_journal
    async def test_orphans_are_distinguished_from_runs_at_work(
        self, journal: Journal
    ) -> None:
        """Running, with an owner that is dead or whose lease is over."""
        await _begin(journal, "dead", DEAD, lease=3600.0)
        await _begin(journal, "over", AWAY, lease=0.05)
        await until_over(0.05)
        for run_id, owner, lease in (
            ("at work", LIVE, None),
            ("away", AWAY, None),
            ("leased", AWAY, 3600.0),
        ):
            await _begin(journal, run_id, owner, lease=lease)
        await write(journal, await _begin(journal, "waits", DEAD), status="waiting")

        found = [
            info.run_id
            for info in journal.runs(unfinished=True)
            if is_orphaned(info, get_watch(journal, SystemClock()))
        ]
        assert_equal(found, ["over", "dead"], "the orphans")

    # --- the inbox ---

    @with_journal
    async def test_commands_come_back_as_they_were_sent(self, journal: Journal) -> None:
        """Oldest first, with growing numbers, each run its own."""
        before = time.time()
        for run_id in ("r1", "r2"):
            await _begin(journal, run_id, LIVE)
        numbers = [journal.send("r1", "steer", body) for body in BODIES]
        journal.send("r2", "abort", {"of": "r2"})

        commands = journal.inbox("r1")
        assert_true(
            all(before <= command.at <= time.time() for command in commands),
            "the times of the commands",
        )
        sent = [
            Command(n, "r1", c.at, "steer", b)
            for n, c, b in zip(numbers, commands, BODIES, strict=True)
        ]
        assert_equal(commands, sent, "the commands")
        assert_equal(
            numbers, sorted({n for n in numbers if n > 0}), "numbers that grow, above 0"
        )
        assert_equal(
            [(c.kind, c.body) for c in journal.inbox("r2")],
            [("abort", {"of": "r2"})],
            "the other run's commands",
        )

    @with_journal
    async def test_an_inbox_is_read_from_where_its_reader_is(
        self, journal: Journal
    ) -> None:
        """`after` the last number it has seen; an inbox to which nothing was sent is empty."""
        assert_equal(journal.inbox("nowhere"), [], "the inbox of no run")
        await _begin(journal, "r1", LIVE)
        assert_equal(journal.inbox("r1"), [], "an inbox to which nothing was sent")
        numbers = [journal.send("r1", "steer", {"n": n}) for n in range(5)]

        assert_equal(
            [c.body for c in journal.inbox("r1", numbers[2])],
            [{"n": 3}, {"n": 4}],
            "commands after the third",
        )
        assert_equal(journal.inbox("r1", numbers[-1]), [], "commands after the last")
        journal.inbox("r1").clear()
        body = journal.inbox("r1")[0].body
        assert_type(body, dict, "the body of a command")
        dict.clear(body)  # type: ignore[arg-type]
        assert_equal(
            [c.body for c in journal.inbox("r1")],
            [{"n": n} for n in range(5)],
            "what a reader cannot change",
        )

    @with_journal
    async def test_commands_to_an_unknown_run_are_refused(
        self, journal: Journal
    ) -> None:
        """As `UnknownRun` naming it; also before the run has entries."""
        journal.create(header("nowhere"))

        with expect_error(UnknownRun, "sending to an unknown run", saying="nowhere"):
            journal.send("nowhere", "steer", {})
        assert_equal(journal.inbox("nowhere"), [], "the inbox of no run")

    @with_journal
    async def test_what_is_no_command_is_refused(self, journal: Journal) -> None:
        """A body is a JSON object of bounded size, a kind is a name; anything else is a `ConfigError`."""
        await _begin(journal, "r1", LIVE)
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        wrong: tuple[Any, ...] = (
            {"text": "x" * COMMAND_BYTES}, {"at": float("nan")}, {"bytes": b"x"}, {1: "one"}, {"tuple": (1, 2)},
            {"lone": "\ud800"}, {"object": object()}, ["a"], "text", None, {"deep": deep},
        )  # fmt: skip
        for body in wrong:
            with expect_error(
                ConfigError,
                "sending anything but a JSON object of that size",
                saying="body",
            ):
                journal.send("r1", "steer", body)
        for kind in ("", " ", "two words", "x" * 65, "ünï"):
            with expect_error(
                ConfigError, f"a command of kind {kind!r}", saying="kind"
            ):
                journal.send("r1", kind, {})
        assert_equal(journal.inbox("r1"), [], "the inbox")

        journal.send(
            "r1", "steer", {"text": "x" * (COMMAND_BYTES - len('{"text":""}'))}
        )
        assert_equal(len(journal.inbox("r1")), 1, "commands of the greatest size")

    @with_journal
    async def test_many_send_at_once(self, journal: Journal) -> None:
        """From several threads, also to another owner's run while it is written: every command has its own number."""
        claim = await _begin(journal, "r1", LIVE)

        def send(sender: int) -> list[tuple[int, int, int]]:
            return [
                (journal.send("r1", "note", {"of": sender, "n": n}), sender, n)
                for n in range(5)
            ]

        senders = asyncio.gather(
            *(asyncio.to_thread(send, sender) for sender in range(4))
        )
        await write(journal, claim, b"{}")
        sent = [command for commands in await senders for command in commands]
        found = [(c.number, c.body["of"], c.body["n"]) for c in journal.inbox("r1")]

        assert_equal(found, sorted(sent), "the commands")
        assert_equal(len({number for number, *_ in sent}), 20, "numbers of 20 commands")
        assert_true(journal.verify("r1").ok, "the chain does not verify")


async def _begin(
    journal: Journal, run_id: str, owner: str, *, lease: float | None = None
) -> Claim:
    """A run with one entry."""
    claim = journal.create(dataclasses.replace(header(run_id, owner), lease=lease))
    await write(journal, claim, b"{}")
    return claim


def _info(journal: Journal) -> RunInfo:
    return journal.runs()[0]


def _ends(claim: Claim, earliest: float, latest: float) -> None:
    until = claim.lease_until
    assert_true(
        until is not None and earliest <= until <= latest,
        f"the lease ends at {until}, not {earliest} to {latest}",
    )
