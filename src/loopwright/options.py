"""Typed options: a subclass becomes a frozen pydantic dataclass whose bad values raise `ConfigError`."""

import dataclasses
from typing import Any, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from .errors import ConfigError


def explain(error: ValidationError, owner: str) -> str:
    """Say in one line which fields are wrong, and how."""
    problems: list[str] = []
    for problem in error.errors(include_url=False, include_context=False):
        field = ".".join(str(part) for part in problem["loc"]) or "value"
        if problem["type"] == "unexpected_keyword_argument":
            problems.append(f"{field}: {owner} has no such option")
        elif problem["type"] in {"missing", "missing_argument", "missing_keyword_only_argument"}:
            problems.append(f"{field}: required")
        else:
            given = repr(problem.get("input"))
            shown = given if len(given) <= 60 else given[:57] + "..."
            problems.append(f"{field}: {problem['msg']}, got {shown}")
    return f"{owner}: " + "; ".join(problems)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field, Field))
class Options:
    """Base of everything that is configured by typed fields: limits and engines."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", defer_build=True)
        dataclass(frozen=True, kw_only=True, config=config)(cls)
        build: Any = cls.__init__

        def __init__(self: Any, *args: Any, **options: Any) -> None:
            try:
                build(self, *args, **options)
            except ValidationError as error:
                known = ", ".join(name for name in type(self).__annotations__ if name not in ("name", "runtime"))
                problem = explain(error, type(self).__name__)
                hint = f" (its own options: {known})" if known and "no such option" in problem else ""
                raise ConfigError(problem + hint) from None

        type.__setattr__(cls, "__init__", __init__)
