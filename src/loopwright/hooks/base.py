"""Hook: the port of code that looks at what goes to a model, comes from it or from a tool, and may change the text."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, get_args

from pydantic import BaseModel

from .._internal import dataclasses
from ..labels import Label
from ..limits import Spent
from ..messages import Conversation, Json, ToolSpec
from ..providers.settings import Sampling

M = TypeVar("M", bound=BaseModel)
EngineStage: TypeAlias = Literal[
    "pre_assess", "post_assess", "pre_reason", "post_reason", "pre_tool", "pre_reflect", "post_reflect", "pre_output",
    "post_output",
]  # fmt: skip
"""A stage of an engine that has them, for which `stage(at, name)` is called."""
Stage: TypeAlias = (
    Literal["before_model", "after_model", "after_tool", "before_answer"] | EngineStage
)
METHODS = ("before_model", "after_model", "after_tool", "before_answer", "stage")
"""The methods of a hook."""
ENGINE_STAGES: tuple[EngineStage, ...] = get_args(EngineStage)
STAGES: tuple[Stage, ...] = (
    "before_model", "after_model", "after_tool", "before_answer", *ENGINE_STAGES,
)  # fmt: skip


class Abort(Exception):
    """Raise it in a hook to end the run as aborted, with a reason."""


class HookAccess(Protocol):
    """What hooks may ask of a run."""

    async def ask(self, place: "Place", prompt: str, into: type[M], /) -> M:
        """Return the answer of the run's model; raise `AskFailed`."""
        ...

    async def permit(
        self, place: "Place", name: str, arguments: dict[str, Json], /
    ) -> bool:
        """Return whether all gates allow it; nothing is recorded."""
        ...

    def measure(self) -> Spent:
        """Return what the run has used of its limits."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """What hooks are called about: the purpose of a model call, a tool, the text of a stage, and the task."""

    purpose: str = ""
    text: str = ""
    task: str = ""
    tool: str = ""


@functools.lru_cache(maxsize=64)
def about_purpose(purpose: str) -> About:
    """Return what hooks are called about for a model call with a purpose."""
    return About(purpose)


@dataclasses.dataclass(slots=True, eq=False)
class Place:
    """Where in a run a stage is: what its hooks share."""

    run_id: str
    key: str
    agent: str
    engine: str
    iteration: int
    turns_left: int | None
    about: About
    label: Label
    untrusted: bool
    stage: Stage
    access: HookAccess


class Moment:
    """What a hook is told of the run, and what it may keep.

    `run_id`, `key` (the place in the run), `agent` (empty for none), `engine`, `iteration` (of the innermost loop, from 1),
    `turns_left` (of the run's limit; `None` without one), `purpose` (of the model call: "reason", "plan" …; empty for a tool
    and the answer), `label` and `untrusted` (of the run). In `stage`, `text` is what the stage is about and `task` the task
    of the run; otherwise they are empty. In `after_tool`, `tool` is the name of the tool.
    """

    __slots__ = ("_name", "_states", "known_state", "place")

    def __init__(
        self, place: Place, states: Mapping[str, dict[str, Json]], name: str
    ) -> None:
        self.place, self._states, self._name = place, states, name
        self.known_state: dict[str, Json] | None = None
        """The state, if the hook asked for it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.place if name in _OF_PLACE else self.place.about, name)

    @property
    def spent(self) -> Spent:
        """What the run has used of its limits by now."""
        return self.place.access.measure()

    @property
    def state(self) -> dict[str, Json]:
        """What the hook keeps in this scope of the run: JSON of at most 4 kB, recorded with what the hook did."""
        if self.known_state is None:
            self.known_state = dict(self._states.get(self._name, {}))
        return self.known_state

    async def ask(self, prompt: str, into: type[M]) -> M:
        """Ask the run's model: an effect of the run, on its budget. Raises `AskFailed`."""
        return await self.place.access.ask(self.place, prompt, into)

    async def permits(self, name: str, **arguments: Json) -> bool:
        """Return whether the gates of the run allow a read of that name; what they would ask a person about they do not.

        It is recorded nowhere but in what the hook does then.
        """
        return await self.place.access.permit(self.place, name, arguments)


_OF_PLACE = frozenset(field.name for field in dataclasses.fields(Place))


@dataclasses.dataclass(frozen=True)
class ModelQuestion:
    """A model call that is about to be made.

    Args:
        conversation: what the model is to read, without instructions and knowledge.
        tools: the tools that it is offered.
        provider: the name of the provider, one of `Runtime(providers=...)` or empty for the engine's own.
        sampling: its settings.
    """

    conversation: Conversation
    tools: tuple[ToolSpec, ...] = ()
    provider: str = ""
    sampling: Sampling = Sampling()


@dataclasses.dataclass(frozen=True)
class Before:
    """What a hook changes about a model call; what it leaves out stays.

    Args:
        messages: texts that the model reads in this call, fenced as data; at most 4,000 tokens of all hooks.
        provider: the name of one of `Runtime(providers=...)`.
        tools: the names of the tools to offer, of those that there are.
        sampling: settings that take precedence.
    """

    messages: tuple[str, ...] = ()
    provider: str | None = None
    tools: tuple[str, ...] | None = None
    sampling: Sampling = Sampling()


class Hook:
    """Base of a hook; any object with some of these methods and attributes is one.

    - `before_model(at, asked)` returns `Before(...)` or `None`
    - `after_model(at, text)`, `after_tool(at, text)` and `before_answer(at, answer)` return another text or `None`
    - `stage(at, name)` returns a remark for the model or `None`; of an engine that has such stages (`Run.stage`)

    They are functions or async functions. A hook keeps nothing itself but in `at.state`, since it is not called when a
    run is replayed.
    """

    name: ClassVar[str] = ""
    """Its name, by default that of the class."""
    version: ClassVar[str] = ""
    """Recorded with the run; another one on resume is drift."""
    priority: int = 0
    """Hooks with a lower one come first, then those with the lower name."""
    timeout: float = 5.0
    """Seconds that a call of an async method may take."""
    required: bool = False
    """Whether the run ends where the hook fails, which else is skipped and recorded."""
    purposes: tuple[str, ...] = ("reason", "plan")
    """The purposes of the model calls that it is called for; "*" for all."""


@dataclasses.dataclass(frozen=True, eq=False)
class PlannedHook:
    """A hook of a run, with what is known of it."""

    hook: Any
    name: str
    identity: str
    """Its name, version and options, as the first entry of a run has them."""
    priority: int
    timeout: float
    required: bool
    purposes: tuple[str, ...]
    methods: Mapping[Stage, Callable[..., Any]]
    """Its methods by stage."""

    def concerns(self, purpose: str) -> bool:
        """Whether it is called for model calls of a purpose."""
        return purpose in self.purposes or "*" in self.purposes
