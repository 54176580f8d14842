"""Build a cassette from a journal by replaying the run and recording its model requests.

A journal holds the replies of models, but only a fingerprint of their requests. The requests are built by the engine, so
the engine is run again over the recorded entries, as on a resume: tools, gate, approvals, clock and effects answer from
the journal without doing anything, and branches continue as recorded. Only the model calls are made, and the journal
replies to them as well.
"""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from .._kernel.durability.effects import Outcome
from .._kernel.durability.history import open_conversation
from .._kernel.durability.replay import Replay
from .._kernel.durability.scopes import Scopes
from .._kernel.phases.output_type import OutputType
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
from ..events.lifecycle import restore_answer
from ..events.run import RunFinished, RunStarted
from ..handle import RunHandle
from ..journals.access import read_run
from ..journals.base import Journal, RunHeader
from ..journals.owner import new_owner
from ..messages import Completion
from ..providers.base import Capabilities, Provider, Request
from ..result import Result
from .cassette_file import Cassette, Place

MODEL_CALL: ContextVar[str] = ContextVar("MODEL_CALL")
"""The key of the model call that this task makes."""


async def cassette_from_journal(
    journal: Journal,
    run_id: str,
    path: Place,
    engine: Callable[[Provider], LoopEngine],
    *,
    capabilities: Capabilities = Capabilities(),
    output: Any = None,
    secrets: Iterable[str] = (),
) -> Cassette:
    """Build a cassette of a run that has ended, from which a run of the same engine, task and run id replays.

    Replay a fork under the id of the run that was forked first (`RunForked.seed`): `Run.random` and `Run.new_id` depend
    on that id, and another id would change the requests.

    Args:
        journal: the journal of the run; it is only read.
        run_id: the run. Raises `UnknownRun`; `ConfigError` if it has not ended, or was aborted with calls in flight.
        path: the file to write.
        engine: builds the engine as it was, on the given provider and without a journal:
            `lambda model: ReActEngine(Runtime(model, tools=[look]))`. Raises `ReplayDivergence` if it differs.
        capabilities: capabilities of the recorded models, which no journal holds.
        output: the type of the answer, if the run had one.
        secrets: texts that are never written; see `Cassette`.
    """
    read_as = None if output is None else OutputType[Any](output)
    entries = await read_run(journal, run_id)
    restore_answer(entries)
    started = _check_ended(run_id, entries)
    cassette = Cassette(path, secrets=secrets)
    provider = _JournalProvider(entries, cassette, capabilities)
    rebuilt = engine(provider)
    session = _open_session(rebuilt, run_id, entries, provider.replied)
    handle: RunHandle[Entry, Any] = RunHandle(
        rebuilt, session, open_conversation(journal, started), read_as
    )
    result = await handle.result()
    written = rebuilt.runtime.journal.read(run_id)[len(entries) - 1 :]
    _check(result, entries, written)
    return cassette


def _open_session(
    engine: LoopEngine, run_id: str, entries: Sequence[Entry], replied: set[str]
) -> Session:
    """Return a session over a copy of the entries in the engine's journal, without the last one."""
    owner, services = new_owner(), engine.runtime
    claim = services.journal.create(
        RunHeader(run_id, engine.name, "{}", "", str(owner), entries[0].at)
    )
    services.journal.append(claim, entries[:-1])
    claim.head_seq, claim.head_hash = entries[-2].seq, entries[-2].hash
    replay = _WithoutReplies(entries[:-1], replied)
    session = Session(services, claim, owner, replay, None)
    session.records_requests = False
    session.replay_end.abandon()  # the recorded model calls are made among the replayed
    return session


def _check(result: Result, entries: Sequence[Entry], written: Sequence[Entry]) -> None:
    """Raise `ReplayDivergence` unless the run ended as recorded and made no other model call."""
    ended = entries[-1].event
    new = [entry.key for entry in written if isinstance(entry.event, ModelRequested)]
    is_same = isinstance(ended, RunFinished) and (
        (result.answer, result.status) == (ended.answer, ended.status)
    )
    if new or not is_same:
        place = f"at {new[0]}" if new else "at the end"
        raise ReplayDivergence(
            f"{place} the engine is not the one that wrote run {result.run_id!r}: build it as it was"
        )


def _check_ended(run_id: str, entries: Sequence[Entry]) -> RunStarted:
    """Return the start of a run whose effects all have an outcome; raise `ConfigError` for another run."""
    first, last = entries[0].event, entries[-1].event
    if not isinstance(first, RunStarted) or not isinstance(last, RunFinished):
        raise ConfigError(f"run_id: run {run_id!r} has not ended: resume it first")
    if last.status == "aborted":
        raise ConfigError(
            f"run_id: run {run_id!r} was aborted: the calls that were in flight have no replies"
        )
    return first


class _WithoutReplies(Replay):
    """Replays a journal except for model calls, which are made where they were recorded."""

    def __init__(self, entries: Sequence[Entry], replied: set[str]) -> None:
        super().__init__(entries, _OnlyModelCalls())
        self._replied = replied  # the keys of the model calls that were made
        self.totals.active_seconds = 0.0  # replaying takes no time of the run
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
        MODEL_CALL.set(key)
        return None

    def _decision_of_effect(self, key: str) -> GateDecided | None:
        """Return the recorded decision; raise if the effect was recorded as a model call."""
        effect = EffectKey.parse(key).effect
        if effect not in self._replied and isinstance(
            self._recorded(effect), (ModelReplied, ModelFailed)
        ):
            raise self.divergence(effect, "a model call", "an effect")
        return self._decided(key)


class _OnlyModelCalls(Scopes):
    """Lets nothing new start: only the recorded model calls are made again."""

    def __init__(self) -> None:
        super().__init__()
        self._model_calls: set[str] = set()

    def add(self, entry: Entry) -> None:
        """Note the position of an entry."""
        super().add(entry)
        if isinstance(entry.event, (ModelReplied, ModelFailed)):
            self._model_calls.add(entry.key)

    def has_outcome_after(self, text: str) -> bool:
        """Return whether the run must not continue at a key."""
        return text not in self._model_calls


class _JournalProvider:
    """Gives each model call its recorded reply, and records the request."""

    def __init__(
        self, entries: Sequence[Entry], cassette: Cassette, capabilities: Capabilities
    ) -> None:
        self._cassette, self.capabilities = cassette, capabilities
        self._intents = {
            e.key: e.event for e in entries if isinstance(e.event, ModelRequested)
        }
        self._replies: dict[str, list[Completion | ProviderError]] = {}
        self.replied: set[str] = set()
        for entry in entries:
            reply = _reply(entry)
            if reply is not None:
                self._replies.setdefault(entry.key, []).append(reply)
        first = next(iter(self._intents.values()), None)
        self.name, self.model = (first.provider, first.model) if first else ("", "")

    async def complete(self, request: Request) -> Completion:
        """Return the recorded reply, or raise the recorded failure."""
        key = MODEL_CALL.get()
        intent, reply = self._intents[key], self._replies[key].pop(0)
        self.replied.add(key)
        slot = self._cassette.expect(
            request, intent.provider, intent.model, self.capabilities
        )
        await self._cassette.keep(slot, reply)
        if isinstance(reply, ProviderError):
            raise reply
        return reply


def _reply(entry: Entry) -> Completion | ProviderError | None:
    """Return the provider's reply or failure in an entry.

    Failed attempts do not count, except for those that changed the next request.
    """
    event = entry.event
    if isinstance(event, ModelReplied):
        return event.completion
    if not isinstance(event, (ModelFailed, AttemptFailed)):
        return None
    error = event.error.restore()
    if not isinstance(error, ProviderError):
        return None
    if isinstance(event, AttemptFailed) and not isinstance(error, ContextTooLong):
        return None
    error.retryable = False  # the run made no further attempt
    return error
