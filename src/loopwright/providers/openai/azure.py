"""OpenAI's models on Azure: deployments at a resource's own address, with a key or an Entra token."""

import os
from collections.abc import Callable
from typing import NamedTuple, Self, Unpack, cast
from urllib.parse import parse_qs, quote, urlsplit

from pydantic import SecretStr

from ..._internal.regex import compile_late
from ...errors import ConfigError
from ..base import Sampling
from ..http.endpoint import HEADERS, Endpoint, read_key
from ..http.tokens import TokenCallback
from ..http.transport import Client
from ..settings import EndpointOptions
from .provider import OpenAIProvider
from .quirks import OPENAI, Quirks
from .responses.provider import OpenAIResponsesProvider
from .responses.quirks import ResponsesQuirks

KEY_VARIABLE = "AZURE_OPENAI_API_KEY"
ENDPOINT_VARIABLE = "AZURE_OPENAI_ENDPOINT"
VERSION_VARIABLE = "OPENAI_API_VERSION"
DEPLOYMENT_VARIABLE = "AZURE_OPENAI_DEPLOYMENT"
UNDATED_VERSIONS = ("v1", "preview", "latest")
"""The versions of the API that is called `v1`, whose addresses name no deployment."""

# What Azure's pages show behind the address of a resource, as the place to call.
_SHOWN_PATH = compile_late(
    r"/openai(?:/v1)?(?:/deployments/[^/]+)?(?:/responses|/chat/completions)?\Z"
)
_DATED_VERSION = compile_late(r"\d{4}-\d{2}-\d{2}(?:-preview)?")


class Resource(NamedTuple):
    """Where a resource of Azure is called, and by which version of its API; "" for `v1`, which is named in the path."""

    address: str
    version: str

    @property
    def is_dated(self) -> bool:
        """Whether the version is one of those before `v1`."""
        return self.version not in ("", *UNDATED_VERSIONS)

    def build_url(self, deployment: str = "") -> str:
        """Return the base URL of the API; a dated version is told the deployment in it, where there is one."""
        path = "openai" if self.is_dated else "openai/v1"
        if self.is_dated and deployment:
            path += f"/deployments/{quote(deployment, safe='')}"
        query = f"?api-version={self.version}" if self.version else ""
        return f"{self.address}/{path}{query}"


class AzureDeployment(Endpoint):
    """A deployment at Azure, whichever API of OpenAI it is called by."""

    def _serve(self, deployment: str, model: str | None) -> None:
        """Note the deployment, and the model that it serves where that has another name."""
        self._name, self._key_variable = "azure", KEY_VARIABLE
        self._known_model, self._deployment = model or deployment, deployment

    def _build_headers(self) -> dict[str, str | SecretStr]:
        return {**HEADERS} if self._key is None else {**HEADERS, "api-key": self._key}

    @classmethod
    def from_env(
        cls,
        model: str | None = None,
        *,
        api_version: str | None = None,
        deployed_model: str | None = None,
        **options: Unpack[EndpointOptions],
    ) -> Self:
        """Return the provider for AZURE_OPENAI_DEPLOYMENT (unless `model`, a deployment, is given) and Azure's variables."""
        build = cast("Callable[..., Self]", cls)
        return build(
            model or os.environ.get(DEPLOYMENT_VARIABLE) or "",
            endpoint=options.get("base_url"),
            api_version=api_version,
            model=deployed_model,
            api_key=options.get("api_key"),
            sampling=options.get("sampling"),
        )


class AzureOpenAIProvider(AzureDeployment, OpenAIResponsesProvider):  # pyright: ignore[reportIncompatibleMethodOverride] - options of a TypedDict that is open
    """A deployment at Azure by the Responses API.

    Source: https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle

    Args:
        deployment: the name of the deployment.
        endpoint: the address of the resource, AZURE_OPENAI_ENDPOINT by default: "https://mine.openai.azure.com". What
            Azure's pages show behind it, such as "/openai/v1/", is left out.
        api_version: a date, such as "2025-04-01-preview", or "preview" or "v1"; by default that of the endpoint's query,
            else OPENAI_API_VERSION, else "v1".
        model: the model that is deployed, where the deployment's name does not say it: quirks, context and longest reply
            are those of the model.
        api_key: AZURE_OPENAI_API_KEY by default.
        token: returns an Entra token for each request, in place of the key (azure-identity: `get_bearer_token_provider`).
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here.
        sampling: the settings that a request leaves open.
        quirks: how the model differs; guessed by its name by default.

    Raises:
        ConfigError: there is no deployment, no endpoint, no such version, or neither key nor token.
    """

    def __init__(
        self,
        deployment: str,
        *,
        endpoint: str | None = None,
        api_version: str | None = None,
        model: str | None = None,
        api_key: str | SecretStr | None = None,
        token: TokenCallback | None = None,
        client: Client | None = None,
        sampling: Sampling | None = None,
        quirks: ResponsesQuirks | None = None,
    ) -> None:
        key = _read_key(api_key, token)
        del api_key
        name = _find_deployment(deployment)
        super().__init__(
            name,
            base_url=_find_resource(endpoint, api_version).build_url(),
            api_key=key,
            client=client,
            token=token,
            sampling=sampling,
            quirks=quirks or ResponsesQuirks.guess(model or name),
        )
        self._serve(name, model)


class AzureChatProvider(AzureDeployment, OpenAIProvider):  # pyright: ignore[reportIncompatibleMethodOverride] - as above
    """A deployment at Azure by Chat Completions, for models that the Responses API does not serve there.

    Args:
        deployment: the name of the deployment.
        endpoint: the address of the resource, AZURE_OPENAI_ENDPOINT by default, as for `AzureOpenAIProvider`.
        api_version: as for `AzureOpenAIProvider`.
        model: the model that is deployed, where the deployment's name does not say it: context and longest reply are
            those of the model.
        api_key: AZURE_OPENAI_API_KEY by default.
        token: returns an Entra token for each request, in place of the key.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here.
        sampling: the settings that a request leaves open.
        quirks: how the model differs; those of OpenAI by default.

    Raises:
        ConfigError: there is no deployment, no endpoint, no such version, or neither key nor token.
    """

    def __init__(
        self,
        deployment: str,
        *,
        endpoint: str | None = None,
        api_version: str | None = None,
        model: str | None = None,
        api_key: str | SecretStr | None = None,
        token: TokenCallback | None = None,
        client: Client | None = None,
        sampling: Sampling | None = None,
        quirks: Quirks = OPENAI,
    ) -> None:
        key = _read_key(api_key, token)
        del api_key
        name = _find_deployment(deployment)
        super().__init__(
            name,
            base_url=_find_resource(endpoint, api_version).build_url(name),
            api_key=key,
            client=client,
            token=token,
            sampling=sampling,
            quirks=quirks,
        )
        self._serve(name, model)


def _read_key(
    given: str | SecretStr | None, token: TokenCallback | None
) -> str | SecretStr:
    """Return the key, or an empty text with a token."""
    if token is not None:
        return ""
    key = read_key(given, KEY_VARIABLE)
    if key is None:
        raise ConfigError(
            f"api_key: missing; pass one or a token, or set {KEY_VARIABLE}"
        )
    return key


def _find_deployment(deployment: str) -> str:
    if not deployment.strip():
        raise ConfigError(
            f"deployment: missing; pass its name, or set {DEPLOYMENT_VARIABLE}"
        )
    return deployment.strip()


def _find_resource(endpoint: str | None, api_version: str | None) -> Resource:
    """Return the resource at an address, which may be one that Azure's pages show as the place to call."""
    given = (endpoint or os.environ.get(ENDPOINT_VARIABLE, "")).strip()
    place = urlsplit(given)
    if not place.hostname or place.scheme not in ("https", "http"):
        raise ConfigError(
            f"endpoint: must be the address of a resource, such as https://mine.openai.azure.com, got {given!r}; "
            f"pass it, or set {ENDPOINT_VARIABLE}"
        )
    query = parse_qs(place.query)
    shown = query.pop("api-version", [""])[0]
    if query:
        raise ConfigError(
            f"endpoint: takes no query but api-version, got {sorted(query)}; leave it out"
        )
    path = _SHOWN_PATH.sub("", place.path.rstrip("/"))
    address = f"{place.scheme}://{place.netloc}{path}"
    return Resource(address, _find_version(api_version or shown))


def _find_version(given: str) -> str:
    version = (given or os.environ.get(VERSION_VARIABLE, "")).strip()
    if version not in UNDATED_VERSIONS and not _is_date(version):
        raise ConfigError(
            f"api_version: must be a date such as 2024-10-21, preview or v1, got {version!r}; "
            f"correct it, or unset {VERSION_VARIABLE}"
        )
    return "" if version == "v1" else version


def _is_date(version: str) -> bool:
    return not version or _DATED_VERSION.fullmatch(version) is not None
