"""Tool profiles: which of an application's tools a model can see."""

import re
from collections.abc import Iterable
from typing import Annotated, Protocol, TypeAlias, TypeVar

from pydantic import Field

from .._internal.options import Options

Glob: TypeAlias = Annotated[str, Field(min_length=1)]


class ProfiledTool(Protocol):
    """The properties of a tool that a profile uses, as `Tool` has them."""

    @property
    def name(self) -> str:
        """Return the name that a model calls."""
        ...

    @property
    def verified(self) -> bool:
        """Whether a person has reviewed it."""
        ...


ToolT = TypeVar("ToolT", bound=ProfiledTool)


class ToolProfile(Options):
    """A choice of tools; the others are neither listed nor callable, and never mentioned.

    The fields are applied in their order. In a glob `*` stands for any characters and `?` for one; it
    must match the whole name, and case counts.

    Args:
        include: globs of names to show; none shows all.
        exclude: globs of names to hide.
        verified_only: whether to hide tools that are not marked `verified`.
        max_tools: how many to show, the first ones of the list; `None` for all.
    """

    include: tuple[Glob, ...] = ()
    exclude: tuple[Glob, ...] = ()
    verified_only: bool = False
    max_tools: Annotated[int, Field(ge=1)] | None = None

    def choose(self, tools: Iterable[ToolT]) -> tuple[ToolT, ...]:
        """Return the tools that this profile shows, in the order given."""
        included = _compile_globs(self.include or ("*",))
        excluded = _compile_globs(self.exclude)
        chosen = (
            tool
            for tool in tools
            if included.fullmatch(tool.name) and not excluded.fullmatch(tool.name)
        )
        if self.verified_only:
            chosen = (tool for tool in chosen if tool.verified)
        return tuple(chosen)[: self.max_tools]


def _compile_globs(globs: tuple[str, ...]) -> re.Pattern[str]:
    """Return one pattern for several globs; for none, one that matches no name."""
    escaped = map(re.escape, globs)
    sources = (g.replace(r"\*", ".*").replace(r"\?", ".") for g in escaped)
    expression = "|".join(f"(?:{source})" for source in sources)
    return re.compile(expression or "(?!)", re.DOTALL)
