"""Call the hooks of an engine at their stages; what they changed is recorded, and replayed without them."""

import asyncio
import copy
import functools
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from ..._internal import dataclasses
from ...errors import format_error
from ...events.effect_key import EffectKey, hook_key
from ...events.hooks import HookRan
from ...events.run import ErrorRecord
from ...hooks.base import (
    STAGES,
    Abort,
    About,
    Moment,
    Place,
    PlannedHook,
    Stage,
)
from ...hooks.plan import list_stages
from ...limits import Spent
from ...messages import Json
from ...providers.base import Provider
from ..session.scope import Scope
from ..session.services import Services
from .context_questions import ContextQuestions
from .hook_call import (
    PASSING,
    SLOW,
    HookCalls,
    Waiting,
    finish_hook,
    read_state,
    start_call,
)
from .inference import SettleForContext

M = TypeVar("M", bound=BaseModel)
WITHOUT = About()
PermitAt = Callable[[str, str, dict[str, Json]], Awaitable[bool]]
"""Returns whether the gates allow something at a key; nothing is recorded."""


class Take(Protocol):
    """Reads what hooks return at a stage."""

    def __call__(self, returned: Any, /) -> tuple[Json, Any]:
        """Return what is recorded of a change, and what the next hook is given; raise `ValueError`."""
        ...

    def recall(self, changed: Json, value: Any, /) -> Any:
        """Return what the next hook is given after a change that is recorded."""
        ...


class HookStages:
    """The hooks of one scope, at their stages."""

    def __init__(
        self,
        scope: Scope,
        services: Services,
        engine_name: str,
        settle: SettleForContext,
        permit: PermitAt,
    ) -> None:
        self._scope, self._session, self._services = scope, scope.session, services
        self._engine_name, self._settle, self._permit = engine_name, settle, permit
        self._by_stage = scope.engine_usage.hooks(list_stages)
        self._selected: dict[tuple[Stage, str], tuple[PlannedHook, ...]] = {}
        self.is_empty = not any(self._by_stage.values())

    def select(self, stage: Stage, purpose: str = "") -> tuple[PlannedHook, ...]:
        """Return the hooks that are called at a stage, of a model call with a purpose."""
        hooks = self._by_stage[stage]
        if not hooks or not purpose:
            return hooks
        found = self._selected.get((stage, purpose))
        if found is None:
            found = tuple(hook for hook in hooks if hook.concerns(purpose))
            self._selected[stage, purpose] = found
        return found

    def recorded(self, key: str, stage: Stage) -> list[HookRan]:
        """Return what hooks did at a stage as the journal has it."""
        return self._session.replay.hooks.find(key, stage)

    def replay(self, records: Sequence[HookRan], value: Any) -> Any:
        """Return a text as recorded hooks left it; raise what they ended the run with."""
        for record in records:
            self._repeat(record)
            value = value if record.text is None else record.text
        return value

    def without(self, names: Collection[str]) -> "HookStages":
        """Return the stages without the hooks of those names."""
        other = copy.copy(self)
        kept = {
            stage: tuple(hook for hook in hooks if hook.name not in names)
            for stage, hooks in self._by_stage.items()
        }
        vars(other).update(_by_stage=kept, _selected={})
        return other

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the hooks that look at answers."""
        return tuple(hook.name for hook in self._by_stage["before_answer"])

    def clean(self, text: str) -> str:
        """Return a text of a hook as valid Unicode without secrets."""
        valid = text.encode("utf-8", "replace").decode()
        return self._session.secrets.redactor.redact_text(valid)

    @property
    def max_output_chars(self) -> int | None:
        """Return how long a result of a tool may be."""
        return self._services.limits.max_output_chars

    def has_gone_on(self) -> bool:
        """Whether the journal holds what the scope did from here on."""
        return not self._session.is_new and self._scope.has_gone_on()

    async def prepare(self) -> None:
        """Make what hooks look at durable."""
        await self._session.writer.barrier()

    async def reach(self, key: str) -> None:
        """Wait until the replay has ended, since a hook is called now."""
        if not self._session.is_new and EffectKey.parse(key).is_effect:
            await self._session.replay_end.reach(key)

    async def run(
        self,
        hooks: Sequence[PlannedHook],
        stage: Stage,
        key: str,
        value: Any,
        take: Take,
        about: About = WITHOUT,
    ) -> Any:
        """Let hooks look at a value, each at what the one before left; return it as the last one left it."""
        records = self.recorded(key, stage)
        known = {record.hook: record for record in records} if records else {}
        place, states = self._find_place(key, stage, about), self._scope.hook_states
        clock = self._session.services.clock
        calls = HookCalls(hooks, place, states, known, clock.monotonic)
        while True:
            returned, failure = start_call(calls, value)
            hook = calls.last
            if hook is None:
                return value
            if hook.name in known:
                record = known[hook.name]
                self._repeat(record)
                value = take.recall(record.changed, value)
                continue
            work = _Work(hook, stage, calls.moment, value, take, calls.began)
            value = await self._finish(work, returned, failure)

    async def _finish(
        self,
        work: "_Work",
        returned: Any,
        failure: Exception | asyncio.CancelledError | None,
    ) -> Any:
        """Return a value as a hook left it that did something, and record that."""
        changed: Json = None
        state: dict[str, Json] | None = None
        left, hook, moment = work.value, work.hook, work.moment
        known = self._scope.hook_states.get(hook.name, {})
        try:
            if failure is not None:
                raise failure
            if isinstance(returned, Waiting):
                returned = await finish_hook(hook, returned, self.prepare)
            if returned is not None:
                changed, left = work.take(returned)
                changed = None if left == work.value else changed
            state = read_state(moment, known)
        except PASSING:
            raise
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a hook is third-party code
            cuts = self._session.signals.cuts
            failure = cuts.read_own_error(self._scope.path, error)
            changed, left = None, work.value
        seconds = self._session.services.clock.monotonic() - work.began
        did_something = changed is not None or state is not None
        if did_something or failure is not None or seconds >= SLOW:
            record = self._record(work, changed, failure, seconds, state)
            self._repeat(record)
        return left

    def _record(
        self,
        work: "_Work",
        changed: Json,
        failure: Exception | None,
        seconds: float,
        state: Json,
    ) -> HookRan:
        """Record what a hook did."""
        session, hook = self._session, work.hook
        error: ErrorRecord | None = None
        if failure is not None:
            kind = type(failure).__name__
            text = session.secrets.redactor.redact_text(format_error(failure))
            error = ErrorRecord("Abort" if isinstance(failure, Abort) else kind, text)
        ended = isinstance(failure, Abort) or (failure is not None and hook.required)
        record = HookRan(
            hook.name, work.stage, changed, error, round(seconds, 6),
            session.secrets.redactor.redact_value(state), ended,
        )  # fmt: skip
        if record.texts:
            label = session.sensitivity.classify("\n".join(record.texts))
            record = dataclasses.replace(record, label=label)
        session.writer.record_after_replay(work.moment.place.key, record)
        return record

    def _repeat(self, record: HookRan) -> None:
        """Have what a recorded hook did count: its state, the label of its text, and the end of the run."""
        session = self._session
        if isinstance(record.state, dict):
            self._scope.hook_states[record.hook] = dict(record.state)
        session.sensitivity.observe(record.label, untrusted=False)
        if record.ended:
            raise session.signals.stick(record.build_ending())

    def _find_place(self, key: str, stage: Stage, about: About) -> Place:
        scope, read = self._scope, self._session.sensitivity
        limit = scope.max_iterations
        left = None if limit is None else max(limit - scope.iteration, 0)
        return Place(
            self._session.run_id, key, self._services.agent_name, self._engine_name, scope.iteration, left, about,
            read.label, read.untrusted, stage, self,
        )  # fmt: skip

    def measure(self) -> Spent:
        """Return what the run has used of its limits."""
        return self._session.budget.measure()

    async def permit(self, place: Place, name: str, arguments: dict[str, Json]) -> bool:
        """Return whether the gates allow something, as things are; nothing is recorded."""
        return await self._permit(place.key, name, arguments)

    async def ask(self, place: Place, prompt: str, into: type[M]) -> M:
        """Ask the engine's model for a hook, by an effect below the one that it is called at."""
        key, stage = place.key, place.stage
        effect = key if EffectKey.parse(key).is_effect else self._scope.upcoming()
        provider: Provider = self._services.provider
        numbers = self._scope.hook_questions
        make_key = functools.partial(_next_key, effect, STAGES.index(stage), numbers)
        questions = ContextQuestions(
            self._session, self._settle, effect, provider, make_key, "hook"
        )
        return (await questions(prompt, into)).value


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """A hook at work: what it is called with, how what it returns is read, and when it began."""

    hook: PlannedHook
    stage: Stage
    moment: Moment
    value: Any
    take: Take
    began: float


def _next_key(place: str, stage: int, numbers: dict[str, int]) -> str:
    name = f"{place}:{stage}"
    number = numbers[name] = numbers.get(name, -1) + 1
    return hook_key(place, stage, number)
