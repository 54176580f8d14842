"""From a journal to a cassette: a recorded run is driven again, and each model request that it makes is kept.

A journal holds what models replied, and of their requests only a fingerprint. The requests come out of the engine's own
code, so that code is driven once more over the recorded entries, as a resumed run would be: tools, gate, approvals,
clock and effects answer from the journal and do nothing, branches go where they went. Only the model calls are made,
and those are answered by the journal too.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from pydantic import BaseModel

from .._kernel.durability.effects import Outcome
from .._kernel.durability.replay import Replay
from .._kernel.durability.scopes import Scopes
from .._kernel.session.session import Session
from ..engine import LoopEngine
from ..errors import ConfigError, ContextTooLong, ProviderError, ReplayDivergence
from ..events.effect_key import EffectKey
from ..events.effects import (
    AttemptFailed,
    GateDecided,
    ModelFailed,
    ModelReplied,
    ModelRequested,
)
from ..events.entry import Entry
from ..events.run import RunFinished, RunStarted
from ..handle import RunHandle
from ..journals.base import Journal, RunHeader
from ..journals.owner import new_owner
from ..messages import Completion, Conversation
from ..providers.base import Capabilities, Provider, Request
from ..result import Result
from .cassette_file import Cassette, Place

ASKED: ContextVar[str] = ContextVar(
    "ASKED"
)  # the key of the model effect that this task has come to


async def cassette_from_journal(
    journal: Journal,
    run_id: str,
    path: Place,
    engine: Callable[[Provider], LoopEngine],
    *,
    capabilities: Capabilities = Capabilities(),
    output: type[BaseModel] | None = None,
    secrets: Iterable[str] = (),
) -> Cassette:
    """Make a cassette of a run that has ended; a run of the same engine, task and run id replays from it.

    Of a fork, replay it under the id of the run that was forked first (`RunForked.seed`): what `Run.random` and
    `Run.new_id` give comes from that id, and under its own the fork would ask with other numbers and ids.

    Args:
        journal: where the run is recorded; it is only read.
        run_id: the run. Raises `UnknownRun`; `ConfigError` if it has not ended, or was aborted with calls in flight.
        path: the file to write.
        engine: makes the engine as it was, on the provider that it is given and without a journal:
            `lambda model: ReActEngine(Runtime(model, tools=[look]))`. Raises `ReplayDivergence` if it is another.
        capabilities: what the recorded models could do by themselves, which no journal holds.
        output: the model class of the answer, if the run was given one.
        secrets: texts that are never written; see `Cassette`.
    """
    entries = await asyncio.to_thread(journal.read, run_id)
    started = _begun(run_id, entries)
    retold = Cassette(path, secrets=secrets)
    provider = _Retold(entries, retold, capabilities)
    again = engine(provider)
    owner, services = new_owner(), again.runtime
    claim = services.journal.create(
        RunHeader(run_id, again.name, "{}", "", str(owner), entries[0].at)
    )
    services.journal.append(claim, entries[:-1])
    claim.head_seq, claim.head_hash = entries[-2].seq, entries[-2].hash
    session = Session(
        services, claim, owner, _WithoutReplies(entries[:-1], provider.told), None
    )
    handle: RunHandle[Entry, Any] = RunHandle(
        again, session, Conversation(started.messages), output
    )
    result = await handle.result()
    _check(result, entries, services.journal.read(run_id)[len(entries) - 1 :])
    return retold


def _check(result: Result, entries: Sequence[Entry], new: Sequence[Entry]) -> None:
    """Raise `ReplayDivergence` unless the run came to the same, and asked for nothing that is not recorded."""
    ended = entries[-1].event
    where = next(
        (entry.key for entry in new if isinstance(entry.event, ModelRequested)), None
    )
    same_end = isinstance(ended, RunFinished) and (result.answer, result.status) == (
        ended.answer,
        ended.status,
    )
    if where is not None or not same_end:
        told = f"at {where}" if where is not None else "at the end"
        raise ReplayDivergence(
            f"{told} the engine is not the one that wrote run {result.run_id!r}: build it as it was"
        )


def _begun(run_id: str, entries: Sequence[Entry]) -> RunStarted:
    """The first entry of a run whose every effect has an outcome; raises `ConfigError`."""
    first, last = entries[0].event, entries[-1].event
    if not isinstance(first, RunStarted) or not isinstance(last, RunFinished):
        raise ConfigError(f"run_id: run {run_id!r} has not ended: resume it first")
    if last.status == "aborted":
        raise ConfigError(
            f"run_id: run {run_id!r} was aborted: the calls that were in flight have no replies"
        )
    return first


class _WithoutReplies(Replay):
    """What a journal answers, except for model calls: those are made, where they were made."""

    def __init__(self, entries: Sequence[Entry], told: set[str]) -> None:
        super().__init__(entries, _OnlyModelCalls())
        self._told = told  # the keys of the replies that were given already
        self.totals.active_seconds = 0.0  # retelling takes no time of the run
        self._recorded = self.effects.outcome
        self._decided = self.approvals.decision
        self.effects.outcome = self._outcome_without_reply
        self.approvals.decision = self._decision_of_effect

    def _outcome_without_reply(self, key: str) -> Outcome | None:
        """Return the recorded outcome, unless a model gave it."""
        found = self._recorded(key)
        if not isinstance(found, (ModelReplied, ModelFailed)):
            return found
        self.effects.agree(key)
        ASKED.set(key)
        return None

    def _decision_of_effect(self, key: str) -> GateDecided | None:
        """Return the recorded decision; raise where an effect stands in place of a model call."""
        effect = EffectKey.parse(key).effect
        if effect not in self._told and isinstance(
            self._recorded(effect), (ModelReplied, ModelFailed)
        ):
            raise self.divergence(effect, "a model call", "an effect")
        return self._decided(key)


class _OnlyModelCalls(Scopes):
    """Lets nothing new begin: only the recorded model calls are made again."""

    def __init__(self) -> None:
        super().__init__()
        self._model_calls: set[str] = set()

    def add(self, entry: Entry) -> None:
        """Note the position of an entry."""
        super().add(entry)
        if isinstance(entry.event, (ModelReplied, ModelFailed)):
            self._model_calls.add(entry.key)

    def has_outcome_after(self, text: str) -> bool:
        """Whether the run must not go on at a key."""
        return text not in self._model_calls


class _Retold:
    """Replies to each model call what the journal has at its place, and keeps the request."""

    def __init__(
        self, entries: Sequence[Entry], cassette: Cassette, capabilities: Capabilities
    ) -> None:
        self._cassette, self.capabilities = cassette, capabilities
        self._intents = {
            e.key: e.event for e in entries if isinstance(e.event, ModelRequested)
        }
        self._replies: dict[str, list[Completion | ProviderError]] = {}
        self.told: set[str] = set()
        for entry in entries:
            reply = _reply(entry)
            if reply is not None:
                self._replies.setdefault(entry.key, []).append(reply)
        first = next(iter(self._intents.values()), None)
        self.name, self.model = (first.provider, first.model) if first else ("", "")

    async def complete(self, request: Request) -> Completion:
        """What was replied then."""
        key = ASKED.get()
        intent, reply = self._intents[key], self._replies[key].pop(0)
        self.told.add(key)
        slot = self._cassette.expect(
            request, intent.provider, intent.model, self.capabilities
        )
        await self._cassette.keep(slot, reply)
        if isinstance(reply, ProviderError):
            raise reply
        return reply


def _reply(entry: Entry) -> Completion | ProviderError | None:
    """What a provider said in an entry. Of attempts that failed, those alone that changed what was asked next."""
    event = entry.event
    if isinstance(event, ModelReplied):
        return event.completion
    if not isinstance(event, (ModelFailed, AttemptFailed)):
        return None
    error = event.error.restore()
    if not isinstance(error, ProviderError) or (
        isinstance(event, AttemptFailed) and not isinstance(error, ContextTooLong)
    ):
        return None
    error.retryable = False  # the last attempt was the last
    return error
