"""The services that a run may come to: of all agents, of engines that are tools, and of parts of engines."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, cast

from .._kernel.session.services import Services
from ..engine import LoopEngine


def list_reachable(services: Services) -> list[Services]:
    """Return services and those of all engines that a run of them may come to."""
    known: list[object] = [services]
    for node in known:  # the list grows while it is read
        for one in _list_next(node):
            if not any(one is other for other in known):
                known.append(one)
    return [one for one in known if isinstance(one, Services)]


def _list_next(node: object) -> Iterator[object]:
    """Yield what work may be given to from here."""
    if isinstance(node, Services):
        yield from (agent.engine for agent in node.agents.values())
        yield from (tool.engine for tool in node.tools.targets if tool.engine)
        return
    # What stands for the engine of a tool until a call chooses one has the runtime that it is chosen from.
    yield getattr(node, "runtime", None)
    if isinstance(node, LoopEngine):
        for field in dataclasses.fields(node):  # pyright: ignore[reportArgumentType] - a pydantic dataclass
            yield from _list_parts(getattr(node, field.name))


def _list_parts(value: object) -> Iterator[LoopEngine]:
    """Yield the engines in the value of an option."""
    if isinstance(value, LoopEngine):
        yield value
    elif isinstance(value, Mapping):
        for one in cast("Mapping[Any, object]", value).values():
            yield from _list_parts(one)
    elif isinstance(value, (list, tuple)):
        for one in cast("list[object]", value):
            yield from _list_parts(one)
