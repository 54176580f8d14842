"""The cost of model calls, by prices per million tokens that the application supplies."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from .._internal import dataclasses
from .._internal.log import logger
from .._internal.regex import compile_late
from ..errors import ConfigError
from ..messages import Usage

_DATE_AT_END = compile_late(r"[-@]\d{4}-?\d{2}-?\d{2}\Z")


@dataclasses.dataclass(frozen=True)
class Price:
    """The price of a model per million tokens, in a currency of the application's choice.

    Args:
        input: input tokens.
        output: output tokens, reasoning included.
        cached: input tokens that the provider read from its cache; `None` means as `input`.
        cache_write: input tokens that the provider wrote to its cache; `None` means as `input`.
        provider_calls: the price of one use of a tool that the provider runs, by its kind: `{"web_search": 0.01}`.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    provider_calls: Mapping[str, float] = dataclasses.field(
        default_factory=dict[str, float], hash=False
    )

    def __post_init__(self) -> None:
        values = {**vars(self), **vars(self).get("provider_calls", {})}
        del values["provider_calls"]
        for name, value in values.items():
            if value is not None and not _is_amount(value):
                raise ConfigError(
                    f"Price: {name} must be a number, 0 or more, got {value!r}"
                )

    def cost(self, usage: Usage, provider_calls: Iterable[str] = ()) -> float:
        """Return the cost of this usage, and of the tools that the provider ran.

        Cached tokens are part of the input and are paid once.
        """
        cached, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        plain = max((usage.input_tokens or 0) - cached - written, 0)
        millionths = (
            plain * self.input
            + cached * _first_known(self.cached, self.input)
            + written * _first_known(self.cache_write, self.input)
            + (usage.output_tokens or 0) * self.output
        )
        tools = sum(self.provider_calls.get(kind, 0.0) for kind in provider_calls)
        return millionths / 1_000_000 + tools


class Prices:
    """A table of prices by model: "gpt-4.1-mini", or "openai/gpt-4.1-mini" where providers differ."""

    def __init__(self, table: Mapping[str, Price] | None = None) -> None:
        if table is not None:
            _check_table(table)
        self._table = dict(table or {})
        self.are_any = bool(table)
        """Whether there is a price."""
        self._unknown: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._table)

    def find(self, provider: str, model: str, replied: str = "") -> Price | None:
        """Return the price of the model that replied, else of the requested one, else `None`.

        A name with its provider takes precedence over one without, and a date at the end of a name is optional. A model
        without a price is logged once; its calls count as tokens only.
        """
        for name in _list_names(provider, model, replied):
            if name in self._table:
                return self._table[name]
        self._log_unknown(provider, model, replied)
        return None

    def _log_unknown(self, provider: str, model: str, replied: str) -> None:
        unknown = (provider, replied or model)
        if unknown in self._unknown:
            return
        self._unknown.add(unknown)
        logger().warning(
            "price_unknown", provider=provider, model=model, replied=replied,
            effect="its calls are not in the run's cost, so max_cost does not see them; other limits do",
            cure=f"Runtime(prices={{{model!r}: Price(input=..., output=...)}}), per million tokens",
        )  # fmt: skip


def _check_table(table: Mapping[Any, object]) -> None:
    """Raise `ConfigError` for a table that a type checker would refuse."""
    if not isinstance(table, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"prices: must be a mapping of models to Price(...), got {table!r}"
        )
    for model, price in table.items():
        if not isinstance(model, str) or not model.strip():
            raise ConfigError(f"prices: a model's name must be a text, got {model!r}")
        if not isinstance(price, Price):
            raise ConfigError(f"prices[{model!r}]: must be a Price(...), got {price!r}")


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 <= value < math.inf


def _first_known(price: float | None, default: float) -> float:
    return default if price is None else price


def _list_names(provider: str, model: str, replied: str) -> list[str]:
    """Return the names to look a price up by, the most specific first.

    Behind a provider that falls back, the model that replied may differ from the requested one.
    """
    actual, requested = _list_variants(replied), _list_variants(model)
    if _is_same_model(actual, requested):
        return _qualify(provider, [*actual, *requested])
    return [*_qualify(provider, actual), *_qualify(provider, requested)]


def _is_same_model(actual: list[str], requested: list[str]) -> bool:
    """Return whether two lists of names share one; the requested name may have a vendor in front."""
    suffixes = tuple(f"/{name}" for name in actual)
    return any(f"/{name}".endswith(suffixes) for name in requested)


def _qualify(provider: str, names: list[str]) -> list[str]:
    return [f"{provider}/{name}" for name in names] + names


def _list_variants(model: str) -> list[str]:
    """Return a model's name, also without a date at its end: `gpt-4.1-mini-2025-04-14` is `gpt-4.1-mini`."""
    names = dict.fromkeys((model, _DATE_AT_END.sub("", model)))
    return [name for name in names if name]
