"""Tools: typed functions made callable by a model, and the registry that validates calls to them."""

import asyncio
import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import (
    Any,
    ClassVar,
    Generic,
    Protocol,
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

from .._internal.log import logger
from .._internal.options import explain
from ..errors import ConfigError, ToolError, format_error
from ..labels import LABELS, Label
from ..messages import Effect, Json, JsonObject, ToolSpec
from ..resilience.timeouts import run_with_timeout
from ..security.permit_claims import Claims
from ..security.redaction import Redactor
from .recovery import STRATEGIES, CachedResult, Fallback, Recovery, Retry
from .schema import ArgumentSchema, brief, without_titles
from .signature import (
    fields_of,
    is_generator,
    plain_function,
    read_docstring,
    without_partials,
)

Deps = TypeVar("Deps")
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_ .-]{0,127}")
EFFECTS = ("read", "idempotent", "write", "destructive")
RENEWAL = 10.0  # seconds that sources of tools have, between two steps, to say whether they have others


@dataclasses.dataclass(frozen=True)
class ToolContext(Generic[Deps]):
    """What a tool may know of the call it serves; take it as a first parameter named `ctx`.

    Args:
        run_id: the run.
        key: the place of the call in the run.
        idempotency_key: stays the same when the call is made again after a crash; hand it to the service behind the
            tool.
        deadline: seconds this call has in all.
        deps: what the caller passed as `deps=`.
        arguments: those of the call, as JSON, as policy saw them; `lookup` and `compensate` get nothing else.
        undoes: in `compensate`, the idempotency key of the call to undo.
        claims: what policy let through, to be signed for an executor on another machine (`CapabilitySigner`); not set
            for `lookup` and `compensate`.
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


Lookup: TypeAlias = Callable[[ToolContext[Any]], Any]
Compensate: TypeAlias = Callable[[ToolContext[Any], str], Any]


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    Args:
        name: what the model calls it.
        description: what the model reads about it.
        schema: JSON schema of its arguments, an object without additional properties.
        effect: what running it does to the world, as in MCP's hints; decides what the gate and a resumed run do with
            it.
        function: called with the arguments as keywords (and `ctx` first, if it takes one); async or sync.
        timeout: seconds for one call, if other than the run's `tool_timeout`.
        max_concurrency: calls of it at work at once in one run.
        repeatable: whether the same call with the same result again and again is fine (polling).
        max_output_chars: longest result, if other than the run's limit.
        recovery: what is done when a call fails, in order: `Retry`, `Fallback`, `CachedResult`, `LlmRecovery`,
            `Escalate`, `DeadLetter`. With none the model is told, and that is all.
        lookup: finds out whether an interrupted call took effect: given a `ToolContext` it returns `CallCompleted(result)`,
            `CallNotExecuted()` or `OutcomeUnknown()`; async or sync.
        compensate: undoes a call when a run marked `saga` does not complete: given a `ToolContext` and the call's
            result. It may be called again after a crash, with the same idempotency key.
        label: how sensitive its results are at least; the run is as sensitive from then on.
        trusted: its results are no text from outside (a clock, a calculator). Results of other tools are cleaned of
            invisible characters and of markers of the runtime's own, and fenced where they are more than a short line.
        verified: somebody has looked at it; a `ToolProfile` may show only such tools.
        secrets: values that it knows and nobody is to be told, such as its key for a service, of 6 characters or more;
            a runtime with the tool takes them out of all that enters a run.
        arguments_model: turns validated JSON into the types that the function expects.
        takes_context: whether `function` wants a `ToolContext` first.
        engine: the engine that answers its calls as a child of the run; see `LoopEngine.as_tool`.
        asks_user: its calls are answered by the person who uses the run; see `ask_user`.
        foreign: somebody else wrote its schema, such as an MCP server: a check of arguments by it may take less time.
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
    recovery: tuple[Recovery, ...] = ()
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
    asks_user: bool = False
    foreign: bool = False

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"tool name {self.name!r}: use letters, digits, '_' or '-', at most 128; @tool(name=...) gives another"
            )
        for field, words in (("effect", EFFECTS), ("label", LABELS)):
            if getattr(self, field) not in words:
                given = getattr(self, field)
                raise ConfigError(
                    f"tool {self.name!r}: {field} must be one of {', '.join(words)}, got {given!r}"
                )
        for field in ("timeout", "max_concurrency", "max_output_chars"):
            value = getattr(self, field)
            if value is not None and not (
                isinstance(value, (int, float)) and value > 0
            ):  # NaN is not greater either
                raise ConfigError(
                    f"tool {self.name!r}: {field} must be a number greater than 0, got {value!r}"
                )
        for field in ("lookup", "compensate"):
            self._check_function(field, getattr(self, field))
        self._list_recovery()
        self._list_secrets()

    def _check_function(self, field: str, value: Any) -> None:
        if value is not None and not callable(value):
            raise ConfigError(
                f"tool {self.name!r}: {field} must be a function, got {value!r}"
            )
        if value is not None and is_generator(value):
            raise ConfigError(
                f"tool {self.name!r}: {field} must do its work when it is called, so it must not yield"
            )

    def _list_secrets(self) -> None:
        given: Any = self.secrets
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(f"tool {self.name!r}: secrets: give a list of texts")
        known = tuple(cast("Iterable[str]", given))  # it may be an iterator
        try:
            Redactor(known)
        except ConfigError as error:
            raise ConfigError(f"tool {self.name!r}: {error}") from None
        object.__setattr__(self, "secrets", known)

    def _list_recovery(self) -> None:
        given: Any = self.recovery
        several = isinstance(given, Iterable) and not isinstance(given, STRATEGIES)
        object.__setattr__(
            self,
            "recovery",
            tuple(cast("Iterable[Recovery]", given)) if several else (given,),
        )
        for strategy in self.recovery:
            self._check_recovery(strategy)

    def _check_recovery(self, strategy: Recovery) -> None:
        if not isinstance(strategy, STRATEGIES):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"tool {self.name!r}: recovery takes Retry(), Fallback(tool), CachedResult(), LlmRecovery(), "
                f"Escalate() and DeadLetter(), got {strategy!r}"
            )
        if isinstance(strategy, Retry) and self.effect not in ("read", "idempotent"):
            raise ConfigError(
                f"tool {self.name!r}: recovery: Retry would repeat a side effect; if the tool hands "
                "ctx.idempotency_key to its service, say so with effect='idempotent'"
            )
        if isinstance(strategy, CachedResult) and self.effect != "read":
            raise ConfigError(
                f"tool {self.name!r}: recovery: CachedResult is for tools whose effect is 'read'"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, past gate and journal: for your own code and tests."""
        return self.function(*args, **kwargs)

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""
        return ToolSpec(self.name, self.description, self.schema)

    @functools.cached_property
    def defaults(self) -> JsonObject:
        """What stands in for arguments that a call leaves out, as far as the schema says it; not where that is null."""
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

    def keywords(self, arguments: JsonObject) -> dict[str, Any]:
        """The keyword arguments for the function; raises ValueError naming the argument that does not fit."""
        if self.arguments_model is None:
            return dict(arguments)
        try:
            values = self.arguments_model.model_validate(arguments)
        except ValidationError as error:
            raise ValueError(explain(error, self.name)) from None
        fields = self.arguments_model.model_fields
        return {
            field.alias or name: getattr(values, name) for name, field in fields.items()
        }


class _Arguments(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True
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
    recovery: Recovery | Iterable[Recovery] = (),
    lookup: Lookup | None = None,
    compensate: Compensate | None = None,
    label: Label = "normal",
    trusted: bool = False,
    verified: bool = False,
    secrets: Iterable[str] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function: name, schema and description come from its signature and docstring.

    Every parameter needs an annotation. A first parameter `ctx` receives a `ToolContext`. Descriptions of parameters
    are read from an `Args:` section. Raises `ConfigError` naming the function and the parameter that is wrong.
    """
    if function is None:

        def decorate(decorated: Callable[..., Any]) -> Tool:
            return _from_function(decorated, **options)

        return decorate
    return _from_function(function, **options)


def _from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Tool:
    if not callable(function):
        raise ConfigError(
            f"tools: {function!r} is no function: pass functions, or Tool values made with @tool"
        )
    called = without_partials(function)
    tool_name = name or str(getattr(called, "__name__", type(called).__name__))
    for unknown in options.keys() - {field.name for field in dataclasses.fields(Tool)}:
        raise ConfigError(f"tool {tool_name!r}: @tool has no option {unknown!r}")
    summary, parameters = read_docstring(inspect.getdoc(plain_function(function)) or "")
    takes_context, fields = fields_of(
        function, tool_name, parameters, context=ToolContext
    )
    try:
        build: Any = create_model  # its overloads cannot say "fields under any name"
        model: type[BaseModel] = build(
            f"{tool_name}_arguments", __base__=_Arguments, **fields
        )
        schema = cast("dict[str, Json]", without_titles(model.model_json_schema()))
    except (PydanticUserError, TypeError) as error:
        raise ConfigError(
            f"tool {tool_name!r}: no JSON schema can be made of its signature: {error}"
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
    """Tools that may change while a runtime lives, such as those of an MCP server."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools as they are known now."""
        ...

    async def renewed(self) -> tuple[Tool, ...]:
        """The tools as they are now; asked before a model call, and quick when nothing changed. Never raises."""
        ...


Tools: TypeAlias = Iterable[Tool | Callable[..., Any] | ToolSource] | ToolSource


Choose: TypeAlias = Callable[[Iterable[Tool]], Iterable[Tool]]


class ToolRegistry:
    """The tools of a runtime, each with its compiled validator; names are unique. It does not change: see `renewed`."""

    def __init__(self, tools: Tools = (), *, choose: Choose | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, ArgumentSchema] = {}
        if not isinstance(tools, (Iterable, ToolSource)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"tools: pass a list of functions and Tool values, got {tools!r}"
            )
        self._given = (tools,) if isinstance(tools, ToolSource) else tuple(tools)
        self._sources = [
            given for given in self._given if isinstance(given, ToolSource)
        ]
        self._of_sources = [source.tools for source in self._sources]
        for each in self._there(choose):
            self._add(each)
        self._choose = choose
        self._check_fallbacks()
        self.specs: tuple[ToolSpec, ...] = tuple(t.spec for t in self._tools.values())

    def _add(self, new: Tool) -> None:
        if new.name in self._tools:
            raise ConfigError(
                f"two tools are named {new.name!r}: rename one with @tool(name=...)"
            )
        self._tools[new.name] = new
        self._schemas[new.name] = ArgumentSchema(
            new.name,
            new.schema,
            ours=new.arguments_model is not None,
            foreign=new.foreign,
        )

    def _there(self, choose: Choose | None) -> Iterable[Tool]:
        """The tools that were given, or those of them that are chosen: of the others nothing is left."""
        found: list[Tool] = []
        for given in self._given:
            for each in given.tools if isinstance(given, ToolSource) else (given,):
                found.append(each if isinstance(each, Tool) else _from_function(each))
        return found if choose is None else choose(found)

    def _check_fallbacks(self) -> None:
        for each in self._tools.values():
            for name in [
                strategy.tool
                for strategy in each.recovery
                if isinstance(strategy, Fallback)
            ]:
                other = self._tools.get(name)
                if other is None or other is each or other.engine is not None:
                    raise ConfigError(
                        f"tool {each.name!r}: recovery falls back to {name!r}, which must be another tool of this "
                        f"runtime and no engine; there are {', '.join(self._tools)}"
                    )

    async def renewed(self, remaining: float | None = None) -> "ToolRegistry":
        """This registry, or another one if a source of tools has others by now: for the time between two steps.

        A source that does not say so within `RENEWAL` seconds, or `remaining` if these are fewer, has what it had.
        """
        if not self._sources:
            return self
        patience = RENEWAL if remaining is None else min(RENEWAL, remaining)
        answers = await asyncio.gather(
            *(run_with_timeout(source.renewed(), patience) for source in self._sources)
        )
        for ended in answers:
            if ended.timed_out or ended.error is not None:
                why = (
                    f"no list within {patience:g} s"
                    if ended.error is None
                    else format_error(ended.error)
                )
                logger().warning("tools_not_renewed", error=why)
        if all(
            ended.value in (None, old)
            for ended, old in zip(answers, self._of_sources, strict=True)
        ):
            return self
        try:
            return ToolRegistry(self._given, choose=self._choose)
        except (
            ConfigError
        ) as error:  # a tool that others fall back to is gone, or a name is taken
            logger().warning("tools_not_renewed", error=str(error))
            return self

    @property
    def secrets(self) -> tuple[str, ...]:
        """What its tools know and nobody is to be told."""
        return tuple(secret for each in self for secret in each.secrets)

    def get(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def problem(self, name: str, arguments: Json | JsonObject) -> str | None:
        """What is wrong with a call, in words that help the model mend it; `None` if nothing is."""
        if name not in self._tools:
            near = difflib.get_close_matches(name, self._tools, n=3, cutoff=0.5)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            return f"There is no tool {name!r}.{hint} Tools: {', '.join(self._tools) or 'none'}."
        schema = self._schemas[name]
        if schema.fits_plainly(arguments):
            return None
        problem = schema.problem(arguments)
        if problem is not None:
            return problem
        try:
            self._tools[name].keywords(
                cast("JsonObject", arguments)
            )  # what a schema cannot say, such as a date's form
        except RecursionError:
            return f"The arguments of {name} are nested too deeply."
        except ValueError as error:
            return f"The arguments do not fit: {brief(str(error))}"
        return None


def _only_by_a_run(question: str) -> str:
    raise ToolError("only a run can ask its user: give the tool to a Runtime")


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
    _only_by_a_run,
    "read",
    trusted=True,
    asks_user=True,
)
"""The tool by which a model asks the person who uses the run, as an engine does with `Run.ask_user`."""
