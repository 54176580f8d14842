"""Model tiers: providers under the names local, light, medium and heavy, which engines refer to."""

from collections.abc import Iterator, Mapping

from ..errors import ConfigError
from .base import Provider
from .fallback import check_provider, close_all

TIERS = ("local", "light", "medium", "heavy")


class Tiers(Mapping[str, Provider]):
    """A mapping of four names, "local" to "heavy", to providers, for `Runtime(tiers["medium"], providers=tiers)`.

    Engines choose by name: `PlanExecuteEngine(runtime, planner="heavy")`, `run.ask(..., provider="light")`. Every name
    works: a missing tier is served by the next heavier one, else by the next lighter one.

    Args:
        local: a model on this machine.
        light: a small, cheap model.
        medium: the model for most calls.
        heavy: the strongest model.

    Raises:
        ConfigError: no provider is given, or a value is not a provider.
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
            for name, provider in zip(TIERS, (local, light, medium, heavy), strict=True)
            if provider is not None
        }
        if not given:
            raise ConfigError(
                f"Tiers needs one of {', '.join(TIERS)}: Tiers(medium=OpenAIProvider('gpt-4.1-mini'))"
            )
        for name, provider in given.items():
            check_provider(name, provider)
        self._given = given
        self._served = {name: given[_find_nearest(name, given)] for name in TIERS}

    def __getitem__(self, name: str) -> Provider:
        return self._served[name]

    def __iter__(self) -> Iterator[str]:
        return iter(TIERS)

    def __len__(self) -> int:
        return len(TIERS)

    async def aclose(self) -> None:
        """Close each provider once, even if closing another fails."""
        await close_all(self._given.values())

    def __repr__(self) -> str:
        return f"Tiers({', '.join(f'{name}={one.name}/{one.model}' for name, one in self._given.items())})"


def _find_nearest(name: str, given: Mapping[str, Provider]) -> str:
    """Return the tier that serves `name`: itself, else the next heavier one, else the next lighter one."""
    place = TIERS.index(name)
    heavier, lighter = TIERS[place:], reversed(TIERS[:place])
    return next(tier for tier in (*heavier, *lighter) if tier in given)
