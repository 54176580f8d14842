"""Tools: typed functions that a model can call."""

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import (
    Any,
    ClassVar,
    Generic,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    PydanticUserError,
    ValidationError,
    create_model,
)

from .._internal import dataclasses
from .._internal.engine_code import is_engine_code
from .._internal.options import explain
from .._internal.regex import compile_late
from ..errors import ConfigError, PhaseError, ToolError
from ..labels import LABELS, Label
from ..messages import Effect, Json, JsonObject, ToolSpec
from ..security.permit_claims import Claims
from ..security.redaction import Redactor
from ..security.secret_store import NO_SECRETS, SecretStore
from .child_call import TASK, ChildCall
from .data_flow import check_parameters, list_names
from .handoff import HandoffTarget
from .recovery import RecoveryStrategy, check_strategy
from .schema import without_titles
from .signature import (
    is_generator,
    plain_function,
    read_docstring,
    read_parameters,
    without_partials,
)

Deps = TypeVar("Deps")
NAME = compile_late(r"[A-Za-z0-9_-][A-Za-z0-9_ .-]{0,127}")
EFFECTS = ("read", "idempotent", "write", "destructive")


@dataclasses.dataclass(frozen=True)
class ToolContext(Generic[Deps]):
    """The call that a tool serves; take it as a first parameter named `ctx`.

    Args:
        run_id: the run.
        key: the place of the call in the run.
        idempotency_key: stays the same when the call is made again after a crash; pass it to the
            service behind the tool.
        deadline: seconds for this call in all.
        deps: the value that the caller passed as `deps=`.
        arguments: those of the call, as JSON, as policy saw them; `lookup` and `compensate` get
            no others.
        undoes: in `compensate`, the idempotency key of the call to undo.
        claims: what policy permitted, to be signed for an executor on another machine
            (`CapabilitySigner`); not set for `lookup` and `compensate`, and neither are the others.
        label: how sensitive what the run has read is.
        untrusted: whether it has read text from outside.
        tags: the tags of the run.
        thread: the thread of the run.
        secrets: those of `Runtime(secrets=...)`, by name; each is read when it is asked for.
    """

    run_id: str
    key: str
    idempotency_key: str
    deadline: float | None
    deps: Deps
    arguments: JsonObject = dataclasses.field(
        default_factory=dict[str, Json], compare=False
    )
    undoes: str = ""
    claims: Claims | None = dataclasses.field(default=None, compare=False, repr=False)
    label: Label = dataclasses.field(default="public", compare=False)
    untrusted: bool = dataclasses.field(default=False, compare=False)
    tags: Mapping[str, str] = dataclasses.field(
        default_factory=dict[str, str], compare=False
    )
    thread: str = dataclasses.field(default="", compare=False)
    secrets: SecretStore = dataclasses.field(
        default=NO_SECRETS, compare=False, repr=False
    )


Lookup: TypeAlias = Callable[[ToolContext[Any]], Any]
Compensate: TypeAlias = Callable[[ToolContext[Any], str], Any]


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    Args:
        name: the name that the model calls.
        description: the description that the model reads.
        schema: JSON schema of its arguments, an object without additional properties.
        effect: its effect on the world, as in MCP's hints; the gate and a resumed run decide by it.
        function: called with the arguments as keywords (and `ctx` first, if it takes one); async or
            sync.
        timeout: seconds for one call, if other than the run's `tool_timeout`.
        max_concurrency: calls of it that one run makes concurrently.
        repeatable: whether repeated calls with the same result are normal (polling).
        max_output_chars: longest result, if other than the run's limit.
        recovery: the strategies for a call that fails, in order: `Retry`, `Fallback`,
            `CachedResult`, `LlmRecovery`, `Escalate`, `DeadLetter`, or a `RecoveryStrategy` of your own.
            Without any, the model reads the error.
        lookup: finds out whether an interrupted call took effect: given a `ToolContext` it returns
            `CallCompleted(result)`, `CallNotExecuted()` or `OutcomeUnknown()`; async or sync.
        compensate: undoes a call when a run with `saga` does not complete: given a `ToolContext` and
            the call's result. It may be called again after a crash, with the same idempotency key.
        label: the least sensitivity of its results; the run has it from then on.
        trusted: its results are not text from outside (a clock, a calculator). Results of other tools
            are cleaned of invisible characters and of the runtime's own markers, and fenced if they
            are more than a short line.
        verified: a person has reviewed it; a `ToolProfile` may show only such tools.
        secrets: values that it knows and must not disclose, such as its key for a service, of 6
            characters or more; a runtime with the tool redacts them in all that enters a run.
        arguments_model: converts validated JSON to the types that the function expects.
        takes_context: whether `function` takes a `ToolContext` first.
        engine: the engine that answers its calls as a child of the run; see `LoopEngine.as_tool`.
        child: what that engine is given for a call, and how its answer is read.
        asks_user: its calls are answered by the user of the run; see `ask_user`.
        recalls: its calls are answered from the journal of the run; see `recall`.
        third_party: its schema is not the application's own, but an MCP server's, say: a check of
            arguments by it may take less time.
        handoff: the agent that a call hands the run off to; `runtime.agent(handoffs=...)` makes such tools.
        outbound: data leaves the house by a call of it: to a recipient, in an address that is
            fetched, in words that are searched for.
        destinations: the parameters that decide where a call sends or changes something; `None` is
            every one that is not `content`.
        content: the parameters that are only passed on: a subject, a body.
        directory: whatever stands in its results may be a destination: outsiders cannot write them
            (a list of channels, the hotels of a catalogue).
        addresses: the fields of its results that may be a destination, such as "sender".
        source: where it is from: "own", or the name of the server or file that declares it.
    """

    name: str
    description: str
    schema: JsonObject
    function: Callable[..., Any] = dataclasses.field(repr=False)
    effect: Effect = "write"
    timeout: float | None = None
    max_concurrency: int | None = None
    repeatable: bool = False
    max_output_chars: int | None = None
    recovery: tuple[RecoveryStrategy, ...] = ()
    lookup: Lookup | None = dataclasses.field(default=None, repr=False)
    compensate: Compensate | None = dataclasses.field(default=None, repr=False)
    label: Label = "normal"
    trusted: bool = False
    verified: bool = False
    secrets: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    arguments_model: type[BaseModel] | None = dataclasses.field(
        default=None, repr=False
    )
    takes_context: bool = False
    engine: Any = dataclasses.field(default=None, repr=False)
    child: ChildCall = dataclasses.field(default=TASK, repr=False)
    asks_user: bool = False
    recalls: bool = False
    third_party: bool = False
    handoff: HandoffTarget | None = dataclasses.field(default=None, repr=False)
    outbound: bool = False
    destinations: tuple[str, ...] | None = None
    content: tuple[str, ...] = ()
    directory: bool = False
    addresses: tuple[str, ...] = ()
    source: str = "own"

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"tool name {self.name!r}: use letters, digits, '_' or '-', at most 128; "
                "@tool(name=...) gives another"
            )
        self._check_choice("effect", EFFECTS)
        self._check_choice("label", LABELS)
        for field in ("timeout", "max_concurrency", "max_output_chars"):
            self._check_positive(field, getattr(self, field))
        for field in ("lookup", "compensate"):
            self._check_function(field, getattr(self, field))
        self._list_recovery()
        self._list_secrets()
        self._list_data_flow()

    def _list_data_flow(self) -> None:
        for field in ("destinations", "content", "addresses"):
            given = getattr(self, field)
            if given is not None:
                object.__setattr__(self, field, list_names(self.name, field, given))
        check_parameters(self.name, "content", self.content, self.schema)
        if self.destinations is not None:
            check_parameters(self.name, "destinations", self.destinations, self.schema)

    def _check_choice(self, field: str, choices: Collection[str]) -> None:
        value = getattr(self, field)
        if value not in choices:
            raise ConfigError(
                f"tool {self.name!r}: {field} must be one of {', '.join(choices)}, got {value!r}"
            )

    def _check_positive(self, field: str, value: Any) -> None:
        if value is None:
            return
        if not isinstance(value, (int, float)) or not value > 0:  # nor is NaN
            raise ConfigError(
                f"tool {self.name!r}: {field} must be a number greater than 0, got {value!r}"
            )

    def _check_function(self, field: str, value: Any) -> None:
        if value is None:
            return
        if not callable(value):
            raise ConfigError(
                f"tool {self.name!r}: {field} must be a function, got {value!r}"
            )
        if is_generator(value):
            raise ConfigError(
                f"tool {self.name!r}: {field} must do its work when it is called, "
                "so it must not yield"
            )

    def _list_secrets(self) -> None:
        given: Any = self.secrets
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"tool {self.name!r}: secrets: must be a list of texts")
        known = tuple(cast("Iterable[str]", given))  # it may be an iterator
        try:
            Redactor(known)
        except ConfigError as error:
            raise ConfigError(f"tool {self.name!r}: {error}") from None
        object.__setattr__(self, "secrets", known)

    def _list_recovery(self) -> None:
        strategies = list_strategies(self.recovery)
        for strategy in strategies:
            try:
                check_strategy(strategy, self.effect)
            except ConfigError as error:
                raise ConfigError(f"tool {self.name!r}: recovery: {error}") from None
        object.__setattr__(self, "recovery", strategies)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, without gate and journal: for your own code and tests.

        Raises `PhaseError` in the code of an engine, which calls tools through its run.
        """
        if is_engine_code():
            raise PhaseError(
                f"tool {self.name!r}: an engine may not call it directly, past gate and journal; "
                "use `await run.act(await run.gate(run.propose(ToolCall(...))))`"
            )
        return self.function(*args, **kwargs)

    def for_call(self, arguments: JsonObject) -> Self:
        """Return the tool with the engine that answers these arguments; raise `ConfigError` for none."""
        choose = self.child.choose
        if choose is None:
            return self
        return dataclasses.replace(self, engine=choose(arguments))

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """Return the description of it that a model reads."""
        about = self.description if self.handoff is None else self.handoff.describe()
        return ToolSpec(self.name, about, self.schema)

    @functools.cached_property
    def defaults(self) -> JsonObject:
        """Return the schema's defaults of arguments, except those that are null."""
        properties = cast("dict[str, Json]", self.schema.get("properties", {}))
        given = {
            name: field.get("default")
            for name, field in properties.items()
            if isinstance(field, dict)
        }
        return {name: value for name, value in given.items() if value is not None}

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function (or an object whose call is one)."""
        return inspect.iscoroutinefunction(plain_function(self.function))

    def find_destinations(self, arguments: Iterable[str]) -> tuple[str, ...]:
        """Return the arguments that decide where a call goes: the declared ones, else all but the content."""
        if self.destinations is not None:
            return tuple(filter(self.destinations.__contains__, arguments))
        return tuple(itertools.filterfalse(self.content.__contains__, arguments))

    def bind_arguments(self, arguments: JsonObject) -> dict[str, Any]:
        """Return the keyword arguments for the function.

        Raises `ValueError` naming an argument that does not fit.
        """
        if self.arguments_model is None:
            return dict(arguments)
        try:
            values = self.arguments_model.model_validate(arguments)
        except ValidationError as error:
            raise ValueError(explain(error, self.name)) from None
        fields = self.arguments_model.model_fields
        bound: dict[str, Any] = {}
        for name, field in fields.items():
            bound[field.alias or name] = getattr(values, name)
        return bound


def list_strategies(given: Any) -> tuple[Any, ...]:
    """Return the strategies that a tool was given: one or several."""
    if isinstance(given, RecoveryStrategy) or not hasattr(given, "__iter__"):
        return (given,)
    return tuple(given)


class _Arguments(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, defer_build=True
    )


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    effect: Effect = "write",
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    max_concurrency: int | None = None,
    repeatable: bool = False,
    max_output_chars: int | None = None,
    recovery: RecoveryStrategy | Iterable[RecoveryStrategy] = (),
    lookup: Lookup | None = None,
    compensate: Compensate | None = None,
    label: Label = "normal",
    trusted: bool = False,
    verified: bool = False,
    secrets: Iterable[str] = (),
    outbound: bool = False,
    destinations: Iterable[str] | None = None,
    content: Iterable[str] = (),
    directory: bool = False,
    addresses: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function: its signature and docstring give name, schema and description.

    Every parameter needs an annotation. A first parameter `ctx` receives a `ToolContext`. An `Args:`
    section gives the descriptions of parameters. Raises `ConfigError` naming the function and the
    parameter that is wrong.
    """
    if function is None:

        def decorate(decorated: Callable[..., Any]) -> Tool:
            return tool_from_function(decorated, **options)

        return decorate
    return tool_from_function(function, **options)


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Tool:
    """Make a tool of a function, or raise `ConfigError`; see `tool`."""
    if not callable(function):
        raise ConfigError(
            f"tools: {function!r} is not a function; pass functions, or Tool values made with @tool"
        )
    called = without_partials(function)
    tool_name = name or str(getattr(called, "__name__", type(called).__name__))
    for unknown in options.keys() - {field.name for field in dataclasses.fields(Tool)}:
        raise ConfigError(f"tool {tool_name!r}: @tool has no option {unknown!r}")
    summary, parameters = read_docstring(inspect.getdoc(plain_function(function)) or "")
    takes_context, fields = read_parameters(
        function, tool_name, parameters, context=ToolContext
    )
    try:
        build: Any = create_model  # its overloads cannot express "fields of any name"
        model: type[BaseModel] = build(
            f"{tool_name}_arguments", __base__=_Arguments, **fields
        )
        schema = cast("dict[str, Json]", without_titles(model.model_json_schema()))
    except (PydanticUserError, TypeError) as error:
        raise ConfigError(
            f"tool {tool_name!r}: its signature has no JSON schema: {error}"
        ) from error
    return Tool(
        name=tool_name,
        description=description or summary,
        schema={"type": "object", "properties": {}, **schema},
        function=function,
        arguments_model=model,
        takes_context=takes_context,
        **options,
    )


@runtime_checkable
class ToolSource(Protocol):
    """Tools that may change during the life of a runtime, such as those of an MCP server."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the tools as they are known now."""
        ...

    async def refresh(self) -> tuple[Tool, ...]:
        """Return the tools as they are now.

        Called before a model call: it must be quick if nothing changed, and must not raise.
        """
        ...


def _refuse_outside_run(question: str) -> str:
    raise ToolError("only a run can ask its user; give the tool to a Runtime")


ask_user = Tool(
    "ask_user",
    "Ask the user a question when only they can know the answer, and wait for it.",
    {
        "type": "object",
        "properties": {
            "question": {
                "type": "string",
                "pattern": r"\S",
                "description": "the question, in full",
            }
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    _refuse_outside_run,
    "read",
    trusted=True,
    asks_user=True,
)
"""The tool by which a model asks the user of the run, as an engine does with `Run.ask_user`."""


def client_tool(
    name: str,
    description: str,
    schema: JsonObject,
    *,
    effect: Effect = "write",
    label: Label = "normal",
) -> Tool:
    """Return a tool that the program of the user carries out: a front end that draws a chart or reads a form.

    Its calls are gated like any. Then the run waits until the result is sent: by AG-UI as a message of the front end, or
    by `control.answer(result, question=key)`. What it returns is not trusted.

    Args:
        name: as the model calls it.
        description: what the model is told of it.
        schema: the JSON schema of its arguments, an object.
        effect: what it does to the world, as in `tool`.
        label: how sensitive its results are.
    """
    return Tool(
        name, description, schema, _refuse_outside_run, effect, label=label, asks_user=True
    )  # fmt: skip
