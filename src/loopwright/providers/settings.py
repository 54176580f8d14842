"""Sampling: what a model call may set, and how a provider sends each setting or refuses it by its name."""

import functools
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, TypeAlias, TypedDict, cast

from pydantic import SecretStr

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..errors import ConfigError, ProviderError
from ..messages import Json, JsonObject

ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high"]

OWN_HEADERS = frozenset(
    {
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "x-amz-date",
        "x-amz-security-token",
        "proxy-authorization",
        "accept",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
    }
)
"""The headers that a provider sends itself, in lower case."""
NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
WHOLE_NUMBERS = ("max_tokens", "seed", "top_k", "n")
SAMPLES_HINT = "Sampling.n: one call has one reply; Run.samples asks for several"

_HEADER_NAME = compile_late(r"[a-z0-9!#$%&'*+.^_`|~-]++")
_HEADER_VALUE = compile_late(r"[\t -~]*+")


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How a model samples its tokens; `None`, or an empty `stop`, leaves a setting to the provider.

    Args:
        temperature: 0 for the most probable tokens, higher for more variety.
        stop: texts that end the reply; they are not part of it.
        max_tokens: upper bound of the output tokens.
        top_p: share of the probability mass that tokens are sampled from.
        seed: makes sampling repeatable where the endpoint supports it.
        effort: how much the model may think before it replies.
        top_k: number of most probable tokens that are sampled from.
        presence_penalty: -2 to 2; above 0, tokens that the text has already become less probable.
        frequency_penalty: the same, with each time that the text has them.
        extra_body: fields that are added to the body of the request as they are, for what the endpoint alone knows.
        extra_headers: headers that are added to the request; those of the provider, such as its key, cannot be set.
        n: how many replies one request asks for. `Run.samples` sets it; any other call has one reply.
        required: the settings that are refused by name where the model does not know them. Others among `temperature`,
            `top_p`, `stop` and `seed` are left out then, since engines set them without knowing the model. The
            settings of a provider, an engine and a run are required.
    """

    temperature: float | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    effort: ReasoningEffort | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    extra_body: JsonObject | None = dataclasses.field(default=None, hash=False)
    extra_headers: Mapping[str, str] | None = dataclasses.field(
        default=None, hash=False
    )
    n: int | None = None
    required: frozenset[str] = dataclasses.field(
        default=frozenset(), compare=False, repr=False
    )

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a setting that is not of its type, where that is a number or a list of texts."""
        for name in NUMBERS + WHOLE_NUMBERS:
            value = getattr(self, name)
            if value is not None and not _is_number(value, name in WHOLE_NUMBERS):
                what = "a whole number" if name in WHOLE_NUMBERS else "a number"
                raise ConfigError(
                    f"Sampling.{name}: must be {what} or None, got {value!r:.80}"
                )
        if not _are_texts(self.stop):
            raise ConfigError(
                f"Sampling.stop: must be a tuple of texts, got {self.stop!r:.80}"
            )

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the settings that `options` gave, as a journal may hold them: earlier versions took other types."""
        return cls().change(**{**options, "stop": tuple(options.get("stop", ()))})

    def change(self, **settings: Any) -> Self:
        """Return these settings with others in place of some; what a journal holds is not checked again."""
        names = [field.name for field in dataclasses.fields(self)]
        unknown = settings.keys() - {*names}
        if unknown:
            known = ", ".join(names)
            raise ConfigError(
                f"Sampling: has no {', '.join(sorted(unknown))}; it has {known}"
            )
        changed = object.__new__(type(self))
        vars(changed).update({name: getattr(self, name) for name in names} | settings)
        return changed

    def override(self, given: Self) -> Self:
        """Return the settings of `given`, and these where it leaves one open."""
        if not given.options:
            return self
        merged = self.from_options({**self.options, **given.options})
        required = (self.required - given.options.keys()) | given.required
        return merged.change(required=required)

    def require(self) -> Self:
        """Return the same settings, all of them required."""
        return self.change(required=frozenset(self.options))

    @functools.cached_property
    def options(self) -> dict[str, Json]:
        """The settings that are set, by name."""
        given: dict[str, Json] = {
            name: value for name, value in vars(self).items() if value is not None
        }
        del given["required"]
        if self.stop:
            given["stop"] = list(self.stop)
        else:
            del given["stop"]
        return given


class EndpointOptions(TypedDict, total=False):
    """What a provider that is built by name may be given beside its model; the environment has what is left out."""

    base_url: str | None
    """Where the endpoint is."""
    api_key: str | SecretStr | None
    """The key of the endpoint."""
    sampling: Sampling | None
    """The settings that a request leaves open."""


def find_model(name: str, model: str | None, variable: str = "") -> str:
    """Return a model's name, by default that of the variable `NAME_MODEL`; raise `ConfigError` without one."""
    variable = variable or f"{name.upper()}_MODEL"
    found = (model or os.environ.get(variable) or "").strip()
    if found:
        return found
    raise ConfigError(f'model: missing; write "{name}:MODEL", or set {variable}')


class Settings(dict[str, Json]):
    """The settings of one request by name, which a provider takes out as it sends them.

    Args:
        model: what errors call the model.
        own: the settings of the provider.
        asked: those of the request, which come first.
    """

    def __init__(self, model: str, own: Sampling, asked: Sampling) -> None:
        merged = own.require().override(asked)
        super().__init__(merged.options)
        self._model, self._required = model, merged.required
        if self.get("n") == 1:
            del self["n"]
        self.headers = _check_headers(self.pop("extra_headers", None))

    def take_extra_body(self, reserved: frozenset[str]) -> JsonObject:
        """Remove `extra_body` and return it; raise `ProviderError` if it has a field of the library's."""
        extra = self.pop("extra_body", None)
        if not isinstance(extra, Mapping):
            return {}
        for name in reserved.intersection(extra):
            raise ProviderError(
                f"Sampling.extra_body: {name!r} is set by the library; take it out"
            )
        return extra

    def refuse(self, *names: str, why: str = "") -> None:
        """Raise `ProviderError` if one of these is set, which the model or its endpoint does not know."""
        for name in names:
            if name in self:
                reason = why or f"{self._model} takes none"
                cure = "leave it out for this model"
                raise ProviderError(f"Sampling.{name}: {reason}; {cure}")

    def drop(self, *names: str, why: str = "") -> None:
        """Remove these, which the model does not know; raise `ProviderError` for one that is required."""
        self.refuse(*self._required.intersection(names), why=why)
        for name in names:
            self.pop(name, None)

    def refuse_headers(self) -> None:
        """Raise `ProviderError` if headers were given, for a model that is not asked over HTTP."""
        if self.headers:
            raise ProviderError(
                f"Sampling.extra_headers: {self._model} takes none; leave them out for this model"
            )

    def refuse_samples(self) -> None:
        """Raise `ProviderError` if more than one reply is asked for."""
        if "n" in self:
            raise ProviderError(f"{SAMPLES_HINT}; got {self['n']}")


def check_recordable(sampling: object, redact: Callable[[Json], Json]) -> None:
    """Raise `ConfigError` unless these are settings of a run, if any, that its journal can hold."""
    if sampling is None:
        return
    if not isinstance(sampling, Sampling):
        raise ConfigError(
            f"sampling: must be like Sampling(temperature=0), got {sampling!r:.80}"
        )
    settings: Json = sampling.options
    if sampling.n is not None:
        raise ConfigError(f"{SAMPLES_HINT}; got {sampling.n}")
    if redact(settings) is not settings:
        raise ConfigError(
            "sampling: holds a secret, which no journal may hold; give these settings to the provider instead"
        )


def _is_number(value: object, is_whole: bool) -> bool:
    """Return whether a setting is a number that JSON can hold."""
    if isinstance(value, bool) or not isinstance(value, int if is_whole else (int, float)):  # fmt: skip
        return False
    return math.isfinite(value)


def _are_texts(value: object) -> bool:
    """Return whether a value is a tuple or a list of texts, not one text."""
    if not isinstance(value, (tuple, list)):
        return False
    items = cast("list[object]", value)
    return all(isinstance(one, str) for one in items)


def _check_headers(given: object) -> Mapping[str, str]:
    """Return the headers by their names in lower case; raise `ProviderError` for one that cannot be sent."""
    if not isinstance(given, Mapping):
        return {}
    headers: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", given).items():
        lower = str(name).lower()
        if lower in OWN_HEADERS:
            raise ProviderError(
                f"Sampling.extra_headers: {lower!r} is set by the library; take it out"
            )
        is_value = isinstance(value, str) and _HEADER_VALUE.fullmatch(value)
        if not is_value or not _HEADER_NAME.fullmatch(lower):
            raise ProviderError(
                f"Sampling.extra_headers: {lower!r} is not a name with a text of ASCII characters; correct it"
            )
        headers[lower] = str(value)
    return headers
