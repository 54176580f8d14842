"""What is common to the wire formats of servers: tolerant models, and what a server says of a failure."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "available context size",
    "context window",
    "prompt is too long",
    "exceed context limit",
)


class Wire(BaseModel):
    """What servers send: unknown fields are passed over, numbers serve as text."""

    model_config = ConfigDict(
        coerce_numbers_to_str=True, allow_inf_nan=False, defer_build=True
    )


Count = Annotated[int | None, Field(ge=0)]


class WireError(Wire):
    """What a server says of a failure: an object with a message, or its fields at the top, or a plain string."""

    error: Annotated["WireError | str | Any", Field(union_mode="left_to_right")] = None
    message: Annotated[str | Any, Field(union_mode="left_to_right")] = None
    detail: JsonValue = None
    code: Annotated[str | Any, Field(union_mode="left_to_right")] = None
    type: Annotated[str | Any, Field(union_mode="left_to_right")] = None

    @classmethod
    def read(cls, body: bytes) -> Self:
        """The failure in these bytes; an empty one if they hold none."""
        try:
            return cls.model_validate_json(body)
        except ValidationError:
            return cls()

    @property
    def text(self) -> str:
        """The server's own words, or an empty string."""
        if isinstance(self.error, WireError):
            return self.error.text
        return next(
            (str(said) for said in (self.error, self.message, self.detail) if said), ""
        )

    @property
    def status(self) -> int | None:
        """An HTTP status in the place of the code: how a gateway tells in a 200 that the server behind it failed."""
        code = self.error.code if isinstance(self.error, WireError) else self.code
        return (
            int(code)
            if isinstance(code, str) and code in map(str, range(400, 600))
            else None
        )

    @property
    def is_too_long(self) -> bool:
        """Whether the conversation does not fit the model's context."""
        inner = self.error if isinstance(self.error, WireError) else self
        said = f"{inner.code} {inner.type} {inner.text}".lower()
        return any(sign in said for sign in TOO_LONG)
