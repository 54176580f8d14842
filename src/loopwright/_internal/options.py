"""Typed options: a subclass becomes a frozen pydantic dataclass whose bad values raise `ConfigError`."""

import dataclasses
from abc import ABCMeta
from typing import TYPE_CHECKING, Any, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from ..errors import ConfigError


def explain(
    error: ValidationError, owner: str, positional: tuple[str, ...] = ()
) -> str:
    """Say in one line which fields are wrong, and how; `positional` names the arguments that were given by place."""
    problems: list[str] = []
    for problem in error.errors(include_url=False, include_context=False):
        first, *inner = problem["loc"] or ("value",)
        named = (
            positional[first]
            if isinstance(first, int) and first < len(positional)
            else first
        )
        field = ".".join(map(str, (named, *inner)))
        if problem["type"] == "unexpected_keyword_argument":
            problems.append(f"{field}: {owner} has no such option")
        elif problem["type"] in {
            "missing",
            "missing_argument",
            "missing_keyword_only_argument",
        }:
            problems.append(f"{field}: required")
        else:
            given = repr(problem.get("input"))
            shown = given if len(given) <= 60 else given[:57] + "..."
            problems.append(f"{field}: {problem['msg']}, got {shown}")
    return f"{owner}: " + "; ".join(problems)


class Reporting(ABCMeta):
    """Makes classes whose constructors raise `ConfigError`, naming the field, in place of pydantic's own error."""

    if (
        not TYPE_CHECKING
    ):  # a type checker that saw it would no longer look at the fields

        def __call__(cls, *args: Any, **options: Any) -> Any:
            try:
                return super().__call__(*args, **options)
            except ValidationError as error:
                raise ConfigError(_advice(cls, error)) from None


def _advice(cls: Any, error: ValidationError) -> str:
    fields = tuple(field.name for field in dataclasses.fields(cls))
    problem = explain(error, cls.__name__, positional=fields)
    own = ", ".join(name for name in fields if name != "runtime")
    return (
        f"{problem} (its own options: {own})"
        if own and "no such option" in problem
        else problem
    )


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(dataclasses.field, Field),
)
class Options(metaclass=Reporting):
    """Base of everything that is configured by typed fields: limits and engines."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Built at the first use: an import that pays for validators it may never need is slow.
        config = ConfigDict(
            arbitrary_types_allowed=True, extra="forbid", defer_build=True
        )
        dataclass(frozen=True, kw_only=True, config=config)(cls)
