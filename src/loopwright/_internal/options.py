"""Typed options: a subclass becomes a frozen pydantic dataclass whose bad values raise `ConfigError`."""

import contextlib
import dataclasses
import functools
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, dataclass_transform

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails

from ..errors import ConfigError

MAX_SHOWN = 60  # characters of a bad value in an error
NO_SCHEMA = frozenset({"default", "metadata", "serialization", "config", "keys_schema"})
"""The keys of a schema that hold something else than the schemas of its parts, or that of the keys of a mapping: a
recorded option has the key 1 as "1", as JSON and files do."""
STORED = (str, int, float, list, dict)
"""The types of JSON that may hold a number or a truth value; a text may stand for one."""
MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})


def explain(
    error: ValidationError, owner: str, positional: tuple[str, ...] = ()
) -> str:
    """Describe in one line which fields are wrong; `positional` names the positional arguments in order."""
    details = error.errors(include_url=False, include_context=False)
    return _join(details, owner, positional)


def _join(
    details: Sequence[ErrorDetails], owner: str, positional: tuple[str, ...] = ()
) -> str:
    problems = [_describe(detail, owner, positional) for detail in details]
    return f"{owner}: " + "; ".join(problems)


def _describe(detail: ErrorDetails, owner: str, positional: tuple[str, ...]) -> str:
    first, *inner = detail["loc"] or ("value",)
    if isinstance(first, int) and first < len(positional):
        first = positional[first]
    if detail["type"] == "finite_number" and inner[-1:] == ["float"]:
        inner = inner[:-1]  # the type of a JSON value, not a field
    field = ".".join(map(str, (first, *inner)))
    if detail["type"] == "unexpected_keyword_argument":
        return f"{field}: {'there is' if inner else f'{owner} has'} no such option"
    if detail["type"] == "extra_forbidden":
        return f"{field}: there is no such option"
    if detail["type"] in MISSING:
        return f"{field}: required"
    if detail["type"] == "union_tag_not_found":
        key = detail["msg"].rpartition("discriminator ")[2]
        return f"{field}: needs the key {key}, got {detail.get('input')!r:.60}"
    value = repr(detail.get("input"))
    if len(value) > MAX_SHOWN:
        value = f"{value[: MAX_SHOWN - 3]}..."
    return f"{field}: {detail['msg']}, got {value}"


def list_needed(kind: Any) -> list[str]:
    """Return the options that have no default, but those that are positional."""
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.kw_only and not _has_default(field)
    ]


def _has_default(field: dataclasses.Field[Any]) -> bool:
    own: Any = field.default
    if isinstance(own, FieldInfo):
        return not own.is_required()
    is_missing = own is dataclasses.MISSING
    return not is_missing or field.default_factory is not dataclasses.MISSING


def check_some(kind: type[Any], *given: Any, **options: Any) -> None:
    """Raise `ConfigError` for options of a class that are wrong by themselves; those that it needs may be missing."""
    try:
        type.__call__(kind, *given, **options)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        wrong = [detail for detail in details if detail["type"] not in MISSING]
        if wrong:
            raise ConfigError(_join(wrong, kind.__name__)) from None


def read_stored(kind: type[Any], name: str, value: object) -> object:
    """Return a stored option as earlier versions took it: "15", 15.0 and `True` for a number, 1 for a truth value.

    So are those inside of a list, a mapping or what a mapping describes, such as `Sampling`.
    """
    fields: Mapping[str, FieldInfo] = getattr(kind, "__pydantic_fields__", {})
    read = value
    if name not in fields or not isinstance(value, STORED):
        return read
    annotation: Any = fields[name].annotation
    # The check of the option says what is wrong.
    with contextlib.suppress(ConfigError, PydanticUserError, ValidationError):
        read = _build_reader(annotation).validate_python(value)
    return read


@functools.cache
def _build_reader(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


class Validated(ABCMeta):
    """Metaclass of frozen pydantic dataclasses that raise `ConfigError` with the field's name instead of its error."""

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **_: Any
    ) -> None:
        super().__init__(name, bases, namespace)
        # The validator is built at first use, since an import should not pay for validators that it may never need.
        # Not in `__init_subclass__`: what stands for it until then is built as soon as `ABCMeta` looks at it.
        if bases:
            config = ConfigDict(
                allow_inf_nan=False,  # no journal could hold them
                arbitrary_types_allowed=True,
                extra="forbid",
                defer_build=True,
            )
            owner: type[Any] = cls
            dataclass(frozen=True, kw_only=True, config=config)(owner)

    # A type checker that saw `__call__` would no longer check the fields.
    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **options: Any) -> Any:
            try:
                return super().__call__(*args, **options)
            except ValidationError as error:
                raise ConfigError(_advise(cls, error)) from None


def _advise(cls: Any, error: ValidationError) -> str:
    """Describe the error, and list the options of the class if one is unknown."""
    fields = tuple(field.name for field in dataclasses.fields(cls))
    problem = explain(error, cls.__name__, positional=fields)
    shared = _list_shared(cls)
    own = ", ".join(name for name in fields if name not in shared)
    if own and f"{cls.__name__} has no such option" in problem:
        return f"{problem} (its own options: {own})"
    return problem


def _list_shared(cls: type[Any]) -> set[str]:
    """Return the options that all classes of this kind have, such as all engines."""
    bases = [base for base in cls.__mro__[1:] if issubclass(base, Options)]
    kind = bases[-2:][0]  # the last one is `Options`, which has none
    return set(getattr(kind, "__dataclass_fields__", ()))


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(dataclasses.field, Field),
)
class Options(metaclass=Validated):
    """Base of classes that are configured by typed fields, such as limits and engines.

    Numbers and truth values are taken as they are declared: neither `True` nor "15" is a whole number, nor "yes" a `bool`.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        _require_exact(schema, handler, set())
        return schema


def _require_exact(part: Any, handler: GetCoreSchemaHandler, seen: set[str]) -> None:
    """Have the numbers and truth values of a schema taken strictly, but for those of pydantic models, which say so."""
    if isinstance(part, list):
        for each in cast("list[Any]", part):  # type: ignore[redundant-cast] # for basedpyright
            _require_exact(each, handler, seen)
    if not isinstance(part, dict):
        return
    schema = cast("dict[str, Any]", part)
    match schema.get("type"):
        case "model":
            return
        case "int" | "float" | "bool":
            schema["strict"] = True
        case "definition-ref" if schema["schema_ref"] not in seen:
            seen.add(schema["schema_ref"])
            found = handler.resolve_ref_schema(cast("CoreSchema", part))
            _require_exact(found, handler, seen)
        case _:
            pass
    for name in schema.keys() - NO_SCHEMA:
        _require_exact(schema[name], handler, seen)
