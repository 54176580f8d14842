"""What a manifest can say of an argument: its type, and what that type wants to know."""

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
    """A table of the file: nothing in it is read as something else, and nothing is left unread."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False
    )


class Argument(Strict):
    """What every argument may say of itself."""

    description: str = ""
    default: str | int | float | bool | None = None

    def annotation(self, folder: Path) -> Any:
        """The type of its values, as a tool's parameter would have it."""
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
    least: int = 0  # a negative number is an option, to many programs
    most: int | None = None

    def annotation(self, folder: Path) -> Any:
        _check_order(self.least, self.most)
        return Annotated[int, Field(strict=True, ge=self.least, le=self.most)]


class _Number(Argument):
    type: Literal["number"]
    least: float = 0.0
    most: float | None = None

    def annotation(self, folder: Path) -> Any:
        _check_order(self.least, self.most)
        limits = Field(strict=True, ge=self.least, le=self.most, allow_inf_nan=False)
        return Annotated[
            float, limits, AfterValidator(lambda number: number + 0.0)
        ]  # there is no -0.0


def _check_order(least: float, most: float | None) -> None:
    if most is not None and least > most:
        raise ConfigError(
            f"least: must not be greater than most, which is {most:g}, got {least:g}"
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
    least: str = "0s"
    most: str = "366d"

    def annotation(self, folder: Path) -> Any:
        return Annotated[datetime.timedelta, DurationBetween(self.least, self.most)]


class _Matching(Argument):
    type: Literal["matching"]
    pattern: str
    most: Annotated[int, Field(ge=1)] = 200

    def annotation(self, folder: Path) -> Any:
        return Annotated[str, _no_option(Matching(self.pattern, self.most))]


def _no_option(kind: TextType) -> TextType:
    """The same, but for what a program would take for an option."""

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
