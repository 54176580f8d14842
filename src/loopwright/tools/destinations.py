"""Whether two calls of a tool go to the same destinations."""

from collections.abc import Collection, Mapping

from ..messages import JsonObject, hash_each
from .base import Tool


def is_to_same(
    tool: Tool | None,
    arguments: JsonObject,
    same: Mapping[str, str],
    declared: Collection[str] = (),
) -> bool:
    """Return whether a call has the destinations of another one, whose arguments have the digests `same`, by their names.

    One that leaves a destination out goes to another one: what the tool takes then. Without a tool that is every argument.
    `declared` are the destinations of the other one by its own tool, which may be that of another engine.
    """
    here, there = {*arguments}, {*same}
    if tool is not None:
        others = {*declared}
        here = {*tool.find_destinations(arguments)} | (here & others)
        there = {*tool.find_destinations(same)} | (there & others)
    return hash_each(arguments, here) == {name: same[name] for name in there}
