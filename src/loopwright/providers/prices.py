"""What model calls cost: prices that the application supplies, per million tokens."""

import dataclasses
import re
from collections.abc import Mapping

from .._internal.log import logger
from ..errors import ConfigError
from ..messages import Usage

_DATE = re.compile(r"[-@]\d{4}-?\d{2}-?\d{2}")


@dataclasses.dataclass(frozen=True)
class Price:
    """What a model costs per million tokens, in the application's own currency.

    Args:
        input: tokens sent.
        output: tokens received, reasoning included.
        cached: tokens sent that came from the provider's cache; as `input` if not given.
        cache_write: tokens sent that were written to it; as `input` if not given.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and not _is_amount(value):
                raise ConfigError(
                    f"Price: {field.name} must be a number, 0 or more, got {value!r}"
                )

    def cost(self, usage: Usage) -> float:
        """What this usage costs; cached tokens are a part of the input and are not paid twice."""
        cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        plain = max((usage.input_tokens or 0) - cached - written, 0)
        millionths = (
            plain * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + (usage.output_tokens or 0) * self.output
        )
        return millionths / 1_000_000


class Prices:
    """A table of prices by model: "gpt-4.1-mini", or "openai/gpt-4.1-mini" where providers differ."""

    def __init__(self, table: Mapping[str, Price] | None = None) -> None:
        if table is not None and not isinstance(table, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"prices: must be a mapping of models to Price(...), got {table!r}"
            )
        for model, price in (table or {}).items():
            name: object = model
            if not (isinstance(name, str) and name.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(
                    f"prices: a model's name must be a text, got {model!r}"
                )
            if not isinstance(price, Price):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(
                    f"prices[{model!r}]: must be a Price(...), got {price!r}"
                )
        self._table = dict(table or {})
        self._unknown: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._table)

    def find(self, provider: str, model: str, replied: str = "") -> Price | None:
        """The price of the model that replied, or of the one that was asked if that one is not in the table.

        A name with its provider counts before one without, and a date at the end of a name may be left off. A model
        without a price is logged once: its calls count as tokens only.
        """
        for name in _names(provider, model, replied):
            if name in self._table:
                return self._table[name]
        unknown = (provider, replied or model)
        if unknown not in self._unknown:
            self._unknown.add(unknown)
            logger().warning(
                "price_unknown", provider=provider, model=model, replied=replied,
                effect="its calls are not in the run's cost, so max_cost does not see them; other limits do",
                cure=f"Runtime(prices={{{model!r}: Price(input=..., output=...)}}), per million tokens",
            )  # fmt: skip
        return None


def _is_amount(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value < float("inf")
    )


def _names(provider: str, model: str, replied: str) -> list[str]:
    """The names that a price may stand under, the most exact first.

    The model that replied may be another than the one asked, behind a provider that falls back on others.
    """
    said, asked = _spellings(replied), _spellings(model)
    is_asked = any(
        one == name or one.endswith(f"/{name}") for one in asked for name in said
    )
    groups = [[*said, *asked]] if is_asked else [said, asked]
    return [
        name
        for group in groups
        for name in (*(f"{provider}/{one}" for one in group), *group)
    ]


def _spellings(model: str) -> list[str]:
    """A name as it is, and without a date: `gpt-4.1-mini-2025-04-14` is `gpt-4.1-mini`."""
    dates = list(_DATE.finditer(model))
    dated = bool(dates) and dates[-1].end() == len(model)
    return [
        name for name in (model, model[: dates[-1].start()] if dated else "") if name
    ]
