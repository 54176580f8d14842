"""Hold back all that is live until a resumed run has replayed what its journal holds."""

import asyncio
from collections.abc import Callable

from ...errors import JournalError, LoopwrightError
from ...events.effect_key import EffectKey
from ..durability.replay import Replay
from .journal_writer import JournalWriter
from .signals import Signals

POLL_SECONDS = 0.05
"""How often a branch that waits looks whether the last recorded outcome was used."""
MAX_IDLE_POLLS = 1200
"""How often in sequence no branch may have made progress while recorded outcomes are unused.

Looks are counted and not seconds, since a machine that was paused for an hour looked once.
"""


class ReplayEnd:
    """The moment at which a resumed run has used every recorded outcome.

    Before it, nothing live begins: a branch that comes to something new waits until all
    recorded outcomes were asked for and the code came to all effects that had begun, or
    every branch waits as well. What is left then is a divergence, which is so found before
    anything was done or recorded.
    """

    def __init__(self, replay: Replay, signals: Signals, writer: JournalWriter) -> None:
        self._replay, self._signals, self._writer = replay, signals, writer
        self.is_reached = self._is_ending = replay.started is None
        self.strands = 1
        """The number of strands of the program that work: the root, or its branches and calls."""
        self._unmet = signals.cuts.exclude(replay.unfinished_places())
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._progress: tuple[int, ...] = ()
        self._idle_polls = 0
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: dict[str, Callable[[str], None]] = {}
        if not self.is_reached:
            writer.begin_replay()

    async def reach(self, key: str) -> None:
        """Wait before something new at `key` until the replay has ended; raise `ReplayDivergence`."""
        if self._signals.cuts.are_any:
            self._signals.check_cut(key)
        for effect, watcher in list(self._watchers.items()):
            if key.startswith(f"{effect}."):
                watcher(key)
        if self.is_reached:
            return
        self._unmet.discard(EffectKey.parse(key).effect)
        if self._replay.scopes.has_entry(key):
            self._signals.check_cancelled(key)
        self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            self._check()
            self._poll()
            await self._waiting[key]
        finally:
            self._waiting.pop(key, None)
        if self._signals.fatal is not None:
            raise self._signals.fatal
        self._signals.check_handoff(key)

    def watch(self, effect: str, watcher: Callable[[str], None]) -> None:
        """Call `watcher` with the key of whatever new comes up in the branches of an effect."""
        self._watchers[effect] = watcher

    def unwatch(self, effect: str) -> None:
        """Watch an effect no longer."""
        self._watchers.pop(effect, None)

    def meet(self, key: str) -> None:
        """Note that the code came to an effect: whether it is the recorded one is known then."""
        if key not in self._unmet:
            return
        self._unmet.remove(key)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._check)

    def add_branches(self, number: int) -> None:
        """Count branches that began, or with a negative number ended."""
        self.strands += number
        if self._waiting:
            self._check()

    def finish(self) -> None:
        """End the replay with the engine; raise `ReplayDivergence` if an outcome is unused."""
        unused = self._replay.effects.first_unused()
        # The journal failed, which says nothing about the code.
        is_lost = isinstance(self._signals.fatal, JournalError)
        if unused is not None and not is_lost:
            raise self._diverge(unused)
        self.abandon()

    def abandon(self) -> None:
        """End the replay of an engine that stopped before its end, such as one that waits."""
        if not self._is_ending:
            self._end()

    def _poll(self) -> None:
        """Look again and again, since a branch may use the last outcome and wait for nothing."""
        if self._waiting and not self._is_ending and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(POLL_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._count_idle_poll()
        self._check()
        self._poll()

    def _check(self) -> None:
        if self._is_ending:
            return
        unused = self._next_unused() or min(self._unmet, default=None)
        if unused is None:
            self._end()
        elif self._idle_polls >= self._max_idle_polls():
            self._diverge(unused)
            self._end()

    def _max_idle_polls(self) -> int:
        """Return how long to wait for progress: briefly where every branch waits, since one may be cancelled."""
        return 1 if len(self._waiting) >= self.strands else MAX_IDLE_POLLS

    def _next_unused(self) -> str | None:
        """Return a recorded outcome that no code asked for; steps of calls that wait do not count."""
        effects = self._replay.effects
        return effects.first_unused(ignored=self._waiting)

    def _count_idle_poll(self) -> None:
        progress = len(self._waiting), self.strands, self._replay.effects.used_count
        self._idle_polls = self._idle_polls + 1 if progress == self._progress else 0
        self._progress = progress

    def _diverge(self, unused: str) -> LoopwrightError:
        return self._signals.diverge_from(unused, "nothing")

    def _end(self) -> None:
        """Let all branches that wait continue; those that come before they do wait as well."""
        self._is_ending = True
        if self._signals.fatal is None:
            self._writer.end_replay()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._release)
        else:
            self.is_reached = True

    def _release(self) -> None:
        """Wake the branches in the order of their last entries, so that budgets go the same way."""
        self.is_reached = True
        for key in sorted(self._waiting, key=self._replay.scopes.last_entry):
            if not self._waiting[key].done():
                self._waiting[key].set_result(None)
