"""The arguments that a manifest can declare: a model for each type with its options."""

import dataclasses
import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..errors import ConfigError
from ..tools.argument_types import (
    Cidr,
    DurationBetween,
    Host,
    HostName,
    IpAddress,
    Matching,
    PlainWord,
    Port,
    SafeText,
    SandboxedPath,
    TextType,
    WebUrl,
)


class Strict(BaseModel):
    """A table of the file, without type conversions and unknown fields."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False
    )


class Argument(Strict):
    """The fields of every argument."""

    description: str = ""
    default: str | int | float | bool | None = None

    def annotation(self, folder: Path) -> Any:
        """Return the annotation that a tool's parameter of this type would have."""
        raise NotImplementedError


class _Plain(Argument):
    type: Literal[
        "boolean",
        "text",
        "word",
        "port",
        "host",
        "host_name",
        "url",
        "ip_address",
        "cidr",
    ]

    def annotation(self, folder: Path) -> Any:
        return PLAIN[self.type]


PLAIN: dict[str, Any] = {
    "boolean": Annotated[bool, Field(strict=True)],
    "text": SafeText,
    "word": PlainWord,
    "port": Port,
    "host": Host,
    "host_name": HostName,
    "url": WebUrl,
    "ip_address": IpAddress,
    "cidr": Cidr,
}


class _Integer(Argument):
    type: Literal["integer"]
    minimum: int = 0  # to many programs, a negative number is an option
    maximum: int | None = None

    def annotation(self, folder: Path) -> Any:
        _check_order(self.minimum, self.maximum)
        return Annotated[int, Field(strict=True, ge=self.minimum, le=self.maximum)]


class _Number(Argument):
    type: Literal["number"]
    minimum: float = 0.0
    maximum: float | None = None

    def annotation(self, folder: Path) -> Any:
        _check_order(self.minimum, self.maximum)
        limits = Field(
            strict=True, ge=self.minimum, le=self.maximum, allow_inf_nan=False
        )
        # Adding 0.0 makes -0.0 positive.
        return Annotated[float, limits, AfterValidator(lambda number: number + 0.0)]


def _check_order(minimum: float, maximum: float | None) -> None:
    if maximum is not None and minimum > maximum:
        raise ConfigError(
            f"minimum: must not be greater than the maximum, {maximum:g}, got {minimum:g}"
        )


class _Enum(Argument):
    type: Literal["enum"]
    values: Annotated[list[str], Field(min_length=1)]

    def annotation(self, folder: Path) -> Any:
        return Literal[tuple(self.values)]


class _Path(Argument):
    type: Literal["path"]
    root: str

    def annotation(self, folder: Path) -> Any:
        return Annotated[Path, SandboxedPath(folder / self.root)]


class _Duration(Argument):
    type: Literal["duration"]
    minimum: str = "0s"
    maximum: str = "366d"

    def annotation(self, folder: Path) -> Any:
        return Annotated[
            datetime.timedelta, DurationBetween(self.minimum, self.maximum)
        ]


class _Matching(Argument):
    type: Literal["matching"]
    pattern: str
    max_length: Annotated[int, Field(ge=1)] = 200

    def annotation(self, folder: Path) -> Any:
        return Annotated[str, _refuse_options(Matching(self.pattern, self.max_length))]


def _refuse_options(kind: TextType) -> TextType:
    """Return the type without texts that a program would read as an option."""

    def read(text: str) -> object:
        if text.startswith("-"):
            raise ValueError
        return kind.read(text)

    return dataclasses.replace(
        kind, read=read, allowed=f"{kind.allowed} and does not begin with '-'"
    )


Arguments: TypeAlias = Annotated[
    _Plain | _Integer | _Number | _Enum | _Path | _Duration | _Matching,
    Field(discriminator="type"),
]
KINDS: dict[str, type[Argument]] = {
    **dict.fromkeys(PLAIN, _Plain),
    "integer": _Integer,
    "number": _Number,
    "enum": _Enum,
    "path": _Path,
    "duration": _Duration,
    "matching": _Matching,
}
