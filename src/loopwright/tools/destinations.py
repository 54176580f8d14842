"""Whether two calls of a tool go to the same destinations."""

from collections.abc import Mapping

from ..messages import JsonObject, hash_each
from .base import Tool


def is_to_same(
    tool: Tool | None, arguments: JsonObject, same: Mapping[str, str]
) -> bool:
    """Return whether a call has the destinations of another one, whose arguments have the digests `same`, by their names.

    One that leaves a destination out goes to another one: what the tool takes then. Without a tool that is every argument.
    """
    here, there = tuple(arguments), tuple(same)
    if tool is not None:
        here, there = tool.find_destinations(here), tool.find_destinations(there)
    return hash_each(arguments, here) == {name: same[name] for name in there}
