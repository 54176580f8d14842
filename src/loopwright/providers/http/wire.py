"""Wire models: the tolerant base that all of them have, and the failure that a server describes."""

from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    ValidationError,
)
from pydantic_core.core_schema import CoreSchema, with_default_schema

TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "available context size",
    "context window",
    "prompt is too long",
    "exceed context limit",
)
STATUSES = {str(status): status for status in range(400, 600)}


class Wire(BaseModel):
    """Base of what servers send: unknown fields are ignored, and numbers are accepted as text."""

    model_config = ConfigDict(
        coerce_numbers_to_str=True, allow_inf_nan=False, defer_build=True
    )


Count = Annotated[int | None, Field(ge=0)]

T = TypeVar("T")


class _NoneIfInvalid:
    """Replaces an invalid value by `None`; pydantic does it without a call into Python."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return with_default_schema(handler(source), default=None, on_error="default")


Lenient = Annotated[T | None, _NoneIfInvalid()]
"""A field whose invalid value is treated as absent, like an unknown field."""


class WireError(Wire):
    """A server's description of a failure: an object with a message, its fields at the top level, or a text."""

    error: Annotated["WireError | str | Any", Field(union_mode="left_to_right")] = None
    message: Annotated[str | Any, Field(union_mode="left_to_right")] = None
    detail: JsonValue = None
    code: Annotated[str | Any, Field(union_mode="left_to_right")] = None
    type: Annotated[str | Any, Field(union_mode="left_to_right")] = None

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Return the failure in these bytes; an empty one if they describe none."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return cls()

    @property
    def inner(self) -> "WireError":
        """The object that holds the fields: the nested one if there is one, else this one."""
        return self.error if isinstance(self.error, WireError) else self

    @property
    def text(self) -> str:
        """The server's own text, or an empty text."""
        if isinstance(self.error, WireError):
            return self.error.text
        candidates = (self.error, self.message, self.detail)
        return next((str(text) for text in candidates if text), "")

    @property
    def status(self) -> int | None:
        """The HTTP status in the code: a gateway reports the failure of the server behind it in a 200."""
        code = self.inner.code
        if not isinstance(code, str):
            return None
        return STATUSES.get(code)

    @property
    def is_too_long(self) -> bool:
        """Whether the conversation does not fit the model's context."""
        inner = self.inner
        text = f"{inner.code} {inner.type} {inner.text}".lower()
        return any(sign in text for sign in TOO_LONG)
