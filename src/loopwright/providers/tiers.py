"""Models by weight: local, light, medium and heavy, to be named by engines."""

from collections.abc import Iterator, Mapping

from ..errors import ConfigError
from .base import Provider
from .fallback import check_provider, close_all

NAMES = ("local", "light", "medium", "heavy")


class Tiers(Mapping[str, Provider]):
    """Providers under four names, from "local" to "heavy", for `Runtime(tiers["medium"], providers=tiers)`.

    Engines then choose by name: `PlanExecuteEngine(runtime, planner="heavy")`, `run.ask(..., provider="light")`. A tier
    that was not given is served by the next heavier one, else by the next lighter one, so that every name works.

    Args:
        local: a model on this machine.
        light: a small, cheap model.
        medium: the model for most of the work.
        heavy: the strongest model.

    Raises `ConfigError` if none is given, or something that is no provider.
    """

    def __init__(
        self,
        *,
        local: Provider | None = None,
        light: Provider | None = None,
        medium: Provider | None = None,
        heavy: Provider | None = None,
    ) -> None:
        given = {
            name: provider
            for name, provider in zip(NAMES, (local, light, medium, heavy), strict=True)
            if provider is not None
        }
        if not given:
            raise ConfigError(
                f"Tiers needs one of {', '.join(NAMES)}: Tiers(medium=OpenAIProvider('gpt-4.1-mini'))"
            )
        for name, provider in given.items():
            check_provider(name, provider)
        self._given = given
        self._served = {name: given[_nearest(name, given)] for name in NAMES}

    def __getitem__(self, name: str) -> Provider:
        return self._served[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)

    async def aclose(self) -> None:
        """Close each provider once, also where closing one fails."""
        await close_all(self._given.values())

    def __repr__(self) -> str:
        return f"Tiers({', '.join(f'{name}={one.name}/{one.model}' for name, one in self._given.items())})"


def _nearest(name: str, given: Mapping[str, Provider]) -> str:
    """The tier that serves `name`: itself, else the next heavier one, else the next lighter one."""
    place = NAMES.index(name)
    heavier, lighter = NAMES[place:], reversed(NAMES[:place])
    return next(tier for tier in (*heavier, *lighter) if tier in given)
