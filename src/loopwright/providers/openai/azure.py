"""OpenAI's models on Azure: deployments at a resource's own address, with a key or an Entra token."""

import os
from typing import Self, Unpack
from urllib.parse import quote, urlsplit

from pydantic import SecretStr

from ...errors import ConfigError
from ..base import Sampling
from ..http.endpoint import HEADERS, read_key
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


class AzureOpenAIProvider(OpenAIResponsesProvider):
    """A deployment at Azure by the Responses API.

    Source: https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle

    Args:
        deployment: the name of the deployment.
        endpoint: the address of the resource, AZURE_OPENAI_ENDPOINT by default: "https://mine.openai.azure.com".
        api_version: OPENAI_API_VERSION by default; without one the API is `v1`, which needs none.
        model: the model that is deployed, where the deployment's name does not say it: its quirks are those of the model.
        api_key: AZURE_OPENAI_API_KEY by default.
        token: returns an Entra token for each request, in place of the key (azure-identity: `get_bearer_token_provider`).
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here.
        sampling: the settings that a request leaves open.
        quirks: how the model differs; guessed by its name by default.

    Raises:
        ConfigError: there is no deployment, no endpoint, or neither key nor token.
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
        version = _find_version(api_version)
        path = "openai" if version else "openai/v1"
        super().__init__(
            _find_deployment(deployment),
            base_url=_build_url(endpoint, path, version),
            api_key=key,
            client=client,
            token=token,
            sampling=sampling,
            quirks=quirks or ResponsesQuirks.guess(model or deployment),
        )
        self._name, self._key_variable = "azure", KEY_VARIABLE

    def _build_headers(self) -> dict[str, str | SecretStr]:
        return _build_headers(self._key)

    @classmethod
    def from_env(
        cls, model: str | None = None, **options: Unpack[EndpointOptions]
    ) -> Self:
        """Return the provider for AZURE_OPENAI_DEPLOYMENT (unless `model`, a deployment, is given) and Azure's variables."""
        deployment = model or os.environ.get(DEPLOYMENT_VARIABLE) or ""
        return cls(
            deployment,
            endpoint=options.get("base_url"),
            api_key=options.get("api_key"),
            sampling=options.get("sampling"),
        )


class AzureChatProvider(OpenAIProvider):
    """A deployment at Azure by Chat Completions, for models that the Responses API does not serve there.

    Args:
        deployment: the name of the deployment.
        endpoint: the address of the resource, AZURE_OPENAI_ENDPOINT by default.
        api_version: OPENAI_API_VERSION by default; without one the API is `v1`, which needs none.
        api_key: AZURE_OPENAI_API_KEY by default.
        token: returns an Entra token for each request, in place of the key.
        client: an `httpx.AsyncClient` to use (proxies, certificates, time-outs); it is not closed here.
        sampling: the settings that a request leaves open.
        quirks: how the model differs; those of OpenAI by default.

    Raises:
        ConfigError: there is no deployment, no endpoint, or neither key nor token.
    """

    def __init__(
        self,
        deployment: str,
        *,
        endpoint: str | None = None,
        api_version: str | None = None,
        api_key: str | SecretStr | None = None,
        token: TokenCallback | None = None,
        client: Client | None = None,
        sampling: Sampling | None = None,
        quirks: Quirks = OPENAI,
    ) -> None:
        key = _read_key(api_key, token)
        del api_key
        version, name = _find_version(api_version), _find_deployment(deployment)
        path = f"openai/deployments/{quote(name, safe='')}" if version else "openai/v1"
        super().__init__(
            name,
            base_url=_build_url(endpoint, path, version),
            api_key=key,
            client=client,
            token=token,
            sampling=sampling,
            quirks=quirks,
        )
        self._name, self._key_variable = "azure", KEY_VARIABLE

    def _build_headers(self) -> dict[str, str | SecretStr]:
        return _build_headers(self._key)


def _build_headers(key: SecretStr | None) -> dict[str, str | SecretStr]:
    return {**HEADERS} if key is None else {**HEADERS, "api-key": key}


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
    return deployment


def _find_version(api_version: str | None) -> str:
    version = api_version or os.environ.get(VERSION_VARIABLE, "")
    return "" if version == "v1" else version.strip()


def _build_url(endpoint: str | None, path: str, version: str) -> str:
    address = (endpoint or os.environ.get(ENDPOINT_VARIABLE, "")).strip().rstrip("/")
    if not urlsplit(address).hostname:
        raise ConfigError(
            f"endpoint: must be the address of a resource, such as https://mine.openai.azure.com, got {address!r}; "
            f"pass it, or set {ENDPOINT_VARIABLE}"
        )
    query = f"?api-version={quote(version, safe='')}" if version else ""
    return f"{address}/{path}{query}"
