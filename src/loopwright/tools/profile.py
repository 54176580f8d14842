"""Tool profiles: which of an application's tools a model gets to see at all."""

import re
from collections.abc import Iterable
from typing import Annotated, Protocol, TypeAlias, TypeVar

from pydantic import Field

from .._internal.options import Options

Glob: TypeAlias = Annotated[str, Field(min_length=1)]


class Named(Protocol):
    """What a profile has to know of a tool; `Tool` is one."""

    @property
    def name(self) -> str:
        """What a model calls it."""
        ...

    @property
    def verified(self) -> bool:
        """Whether somebody has looked at it."""
        ...


Some = TypeVar("Some", bound=Named)


class ToolProfile(Options):
    """A choice among tools; what it leaves out is neither listed nor callable, and never mentioned.

    The fields are applied in their order. In a glob `*` stands for any characters and `?` for one; it matches the whole
    name, and upper and lower case are two.

    Args:
        include: globs of names to show; none shows all.
        exclude: globs of names to hide.
        verified_only: whether to hide tools that nobody has marked `verified`.
        most: how many to show, the first ones of the list; `None` for all.
    """

    include: tuple[Glob, ...] = ()
    exclude: tuple[Glob, ...] = ()
    verified_only: bool = False
    most: Annotated[int, Field(ge=1)] | None = None

    def choose(self, tools: Iterable[Some]) -> tuple[Some, ...]:
        """The tools that this profile shows, in the order given."""
        included, excluded = _matcher(self.include or ("*",)), _matcher(self.exclude)
        chosen = [
            tool
            for tool in tools
            if included.fullmatch(tool.name) and not excluded.fullmatch(tool.name)
        ]
        return tuple(
            tool for tool in chosen if tool.verified or not self.verified_only
        )[: self.most]


def _matcher(globs: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern for several globs; of none, one that matches no name."""
    parts = [re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".") for glob in globs]
    return re.compile("|".join(f"(?:{part})" for part in parts) or "(?!)", re.DOTALL)
