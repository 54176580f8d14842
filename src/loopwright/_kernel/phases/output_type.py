"""`OutputType`: a type that a model's reply is read as: its schema, its reader and its journal form."""

import types
import typing
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
)

from ..._internal.options import explain
from ...errors import ConfigError, format_error
from ...messages import Json, JsonObject
from ...parsing import read_json_document
from ...providers.base import OutputSchema
from ...tools.schema import wrap_schema

T = TypeVar("T")
UNREADABLE = (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    TypeError,
)
FIELD = "value"
"""The field of the object around a type that is none, since endpoints hold a reply to objects alone."""


class OutputType(Generic[T]):
    """Any type that pydantic reads: a model, a dataclass, a TypedDict, a list, a union, an enum.

    Args:
        into: the type.
        field: what an error calls it.

    Raises:
        ConfigError: pydantic cannot read such a type, or JSON cannot describe it.
    """

    def __init__(self, into: Any, field: str = "output") -> None:
        self.name = describe_type(into)
        if isinstance(into, types.FunctionType):
            raise ConfigError(f"{field}: must be a type, got the function {into!r}")
        try:
            self._adapter: TypeAdapter[T] = TypeAdapter(into)
            own = self._adapter.json_schema()
        except UNREADABLE as error:
            raise ConfigError(
                f"{field}: must be a type that pydantic can read, such as a model class, a dataclass or list[str], "
                f"got {into!r}: {error}"
            ) from None
        is_model = isinstance(into, type) and issubclass(into, BaseModel)
        self._is_wrapped = not is_model and own.get("type") != "object"
        self.own_schema: JsonObject = own
        """The schema of the type itself, which `schema` may have in an object around it."""
        self.schema: JsonObject = wrap_schema(own, FIELD) if self._is_wrapped else own

    def as_schema(self) -> OutputSchema:
        """Return the schema for a request, by the name that the journal has."""
        return OutputSchema(self.name, self.schema)

    def read(self, text: str) -> T:
        """Return the value in `text`: strict JSON, alone or in a code fence; raise ValueError saying what is wrong."""
        value = read_json_document(text)
        if self._is_wrapped and isinstance(value, dict) and set(value) == {FIELD}:
            value = value[FIELD]
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            raise ValueError(explain(error, self.name)) from None
        except Exception as error:
            raise ValueError(
                f"{self.name} cannot be made of it: {format_error(error)}"
            ) from error

    def dump(self, value: T) -> Json:
        """Return a value as the journal holds it."""
        dumped = self._adapter.dump_python(value, mode="json", round_trip=True)
        return cast("Json", dumped)

    def restore(self, recorded: Json) -> T:
        """Return the value that the journal holds; raise `ConfigError` if it is not one of this type."""
        try:
            return self._adapter.validate_python(recorded, by_alias=True, by_name=True)
        except ValidationError as error:
            raise ConfigError(
                f"output: what the run recorded does not fit: {explain(error, self.name)}"
            ) from None
        except Exception as error:
            raise ConfigError(
                f"output: {self.name} cannot be made of what the run recorded: {format_error(error)}"
            ) from error


def is_document(text: str) -> bool:
    """Whether a text is an object or a list in JSON, of whatever type."""
    try:
        return isinstance(read_json_document(text), (dict, list))
    except ValueError:
        return False


def describe_type(into: Any) -> str:
    """Return the name of a type as a journal records it, which does not depend on how Python writes it."""
    origin, inner = typing.get_origin(into), typing.get_args(into)
    if into is ...:
        return "..."
    if origin is None:
        return str(getattr(into, "__name__", type(into).__name__))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin is typing.Annotated:
        return describe_type(inner[0])
    names = [*map(describe_type, inner)]
    if origin in {typing.Union, types.UnionType}:
        return " | ".join(names)
    return f"{origin.__name__}[{', '.join(names)}]"
