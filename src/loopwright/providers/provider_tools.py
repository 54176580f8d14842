"""Provider-side tools: declared here, and run by the model's provider while it replies."""

from collections.abc import Iterable
from typing import Literal, Protocol, TypeAlias

from .._internal import dataclasses
from ..errors import ConfigError, ProviderError
from ..messages import Json, JsonObject

ProviderToolKind: TypeAlias = Literal["web_search", "code_interpreter", "file_search"]
KINDS: tuple[ProviderToolKind, ...] = ("web_search", "code_interpreter", "file_search")


@dataclasses.dataclass(frozen=True)
class ProviderTool:
    """A tool that the provider runs by itself: `Runtime(tools=[ProviderTool("web_search")])`.

    Policy decides before each request that offers it, as about an outbound action `provider:KIND` without arguments.

    Args:
        kind: "web_search", "code_interpreter" or "file_search".
        allowed_domains: a search finds pages of these alone.
        blocked_domains: a search finds no pages of these.
        max_uses: how often one reply may use it.
        stores: the ids of what a file search looks in: vector stores at OpenAI, file search stores at Google.
        extra: fields that are added to its description as they are, for what the API alone knows.

    Raises:
        ConfigError: there is no such kind, or a field has a value that no API takes.
    """

    kind: ProviderToolKind
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_uses: int | None = None
    stores: tuple[str, ...] = ()
    extra: JsonObject = dataclasses.field(default_factory=dict[str, Json], hash=False)

    def __post_init__(self) -> None:
        """Refuse what no API takes."""
        if self.kind not in KINDS:
            raise ConfigError(
                f"ProviderTool: kind: must be one of {', '.join(KINDS)}, got {self.kind!r}"
            )
        if self.kind == "file_search" and not self.stores:
            raise ConfigError(
                "ProviderTool: stores: a file search needs the id of one at least"
            )
        if self.max_uses is not None and self.max_uses < 1:
            raise ConfigError(
                f"ProviderTool: max_uses: must be at least 1, got {self.max_uses}"
            )

    @property
    def action(self) -> str:
        """What policy knows it as."""
        return f"{ACTION_PREFIX}{self.kind}"

    def refuse(self, api: str, *fields: str) -> None:
        """Raise `ProviderError` if one of these is set, which an API has no field for."""
        for field in fields:
            if getattr(self, field):
                raise ProviderError(
                    f"ProviderTool({self.kind!r}).{field}: {api} takes none; leave it out for this model"
                )


ACTION_PREFIX = "provider:"
"""What the names of the actions begin with that policy decides about."""


class _Named(Protocol):
    """What is read of a provider, whose port knows these tools."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def capabilities(self) -> "_Able": ...


class _Able(Protocol):
    @property
    def provider_tools(self) -> tuple[ProviderToolKind, ...]: ...


def check_provider_tools(provider: _Named, tools: Iterable[ProviderTool]) -> None:
    """Raise `ConfigError` for a tool that the provider cannot run."""
    kinds = provider.capabilities.provider_tools
    for tool in tools:
        if tool.kind not in kinds:
            known = ", ".join(sorted(kinds)) or "none"
            raise ConfigError(
                f"tools: {provider.name}/{provider.model} cannot run {tool.kind!r} by itself, it runs {known}; "
                "leave ProviderTool out, or take another model"
            )


def bound_uses(tool: ProviderTool, left: int | None) -> int | None:
    """Return how often one reply may use a tool, of which the run has `left` uses; `None` without a bound."""
    bounds = [bound for bound in (tool.max_uses, left) if bound is not None]
    return min(bounds, default=None)
