"""What HTTP providers share: a model at an endpoint, its API key, and the errors that failed responses stand for."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Mapping
from typing import ClassVar, Never, TypeAlias

from pydantic import SecretStr

from ...errors import ContextTooLong, ProviderError
from ...messages import Completion
from ..base import Request
from ..model_sizes import ModelSize, find_size, takes_images
from ..settings import Sampling, Settings
from .response import Response, is_retryable, read_retry_after
from .transport import NO_HEADERS, HTTPTransport, StreamingResponse
from .wire import WireError

MAX_REFUSAL = 2_000  # characters
TOO_LARGE = "request too large"
"""What a 429 says of a request that is larger than a minute's tokens: it is refused however long one waits."""
MIN_KEY = 8  # characters of an API key
MAX_PLACEHOLDER = 19  # characters; a longer key is a secret even without a digit
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "user-agent": "loopwright",
}

Encode: TypeAlias = Callable[[str | None], bytes]
"""Returns the body of a request with the opaque data of a source; without any for `None`."""


def read_key(given: str | SecretStr | None, variable: str) -> SecretStr | None:
    """Return the API key that was given, else the one in an environment variable; `None` for an empty one."""
    if given is None:
        given = os.environ.get(variable, "")
    if isinstance(given, SecretStr):
        given = given.get_secret_value()
    key = given.strip()
    return SecretStr(key) if key else None


def _is_secret(key: str) -> bool:
    """Return whether a key is not a placeholder ("ollama", "EMPTY") for a local server that requires any key."""
    if len(key) < MIN_KEY:
        return False
    return len(key) > MAX_PLACEHOLDER or any(map(str.isdigit, key))


class Endpoint:
    """A model at an HTTP endpoint; the base of the providers for each API."""

    api: ClassVar[str]
    """The API's name in errors."""
    opaque_names: ClassVar[tuple[str, ...]] = ()
    """What a refusal of opaque data names, in lower case."""
    _model = _base_url = ""  # so that the repr of a half-made provider works
    _known_model = ""
    """The model's own name, where the endpoint has another one for it: sizes and senses are known by it."""
    _name: str
    _transport: HTTPTransport
    _key_variable: str
    _key: SecretStr | None = None
    _sampling = Sampling()
    """The settings that a request leaves open."""
    _credentials = ""
    """What authorizes requests where no key does, for errors."""
    _account = ""
    """Whose the opaque data of replies is, where no key says it."""
    _deployment = ""
    """What of the account serves the model, where another of its deployments may not read opaque data of this one."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API key, which the runtime removes from everything it records; empty for a placeholder."""
        if self._key is None:
            return ()
        key = self._key.get_secret_value()
        return (key,) if _is_secret(key) else ()

    @property
    def name(self) -> str:
        """The API's owner at its own address ("openai", "anthropic"), else the endpoint's host and port."""
        return self._name

    @property
    def model(self) -> str:
        """The model's name at the endpoint."""
        return self._model

    @functools.cached_property
    def source(self) -> str:
        """Where opaque data of a reply may be sent back to: the host, and a digest of account (API key) and deployment."""
        host, account = self._transport.host, self._account
        if self._key is not None:
            account = self._key.get_secret_value()
        if self._deployment:
            account = f"{account}\n{self._deployment}"
        if not account:
            return host
        return f"{host}#{hashlib.sha256(account.encode()).hexdigest()[:12]}"

    @property
    def _size(self) -> ModelSize:
        return find_size(self._known_model or self._model)

    @property
    def _takes_images(self) -> bool:
        return takes_images(self._known_model or self._model)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r}, base_url={self._base_url!r})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a provider holds an API key and open connections: it cannot be pickled or copied"
        )

    async def aclose(self) -> None:
        """Close the connections of the running event loop; an injected client stays open."""
        await self._transport.aclose()

    async def _open(
        self, transport: HTTPTransport, request: Request, encode: Encode
    ) -> StreamingResponse:
        """Send a request, and once more without opaque data if that is what a 400 names."""
        body = encode(self.source)
        headers = self._read_headers(request)
        response = await transport.open(body, headers)
        if response.status != 400:
            return response
        without = encode(None)
        whole = await response.read_and_keep()
        text = whole.body.decode(errors="replace").lower()
        if without == body or not any(name in text for name in self.opaque_names):
            return response
        await response.aclose()
        return await transport.open(without, headers)

    def _read_headers(self, request: Request) -> Mapping[str, str]:
        own, asked = self._sampling.extra_headers, request.sampling.extra_headers
        if own is None and asked is None:
            return NO_HEADERS
        return self._read_settings(request).headers

    def _read_settings(self, request: Request) -> Settings:
        """Return the settings of a request, and the provider's where it leaves one open."""
        return Settings(self._model, self._sampling, request.sampling)

    def _mark_source(self, reply: Completion) -> Completion:
        """Return the reply with this endpoint as the source of its reasoning."""
        if not reply.reasoning:
            return reply
        marked = [
            dataclasses.replace(thought, source=self.source)
            for thought in reply.reasoning
        ]
        return dataclasses.replace(reply, reasoning=tuple(marked))

    def _build_refusal(self, reason: str, status: int) -> ProviderError:
        shown = self._transport.hide_secrets(reason)[:MAX_REFUSAL]
        return ProviderError(f"{self._model} refused: {shown}", status=status)

    def _build_unreadable_error(self, response: Response) -> ProviderError:
        """Return the error for a 2xx response that is not a reply: a gateway's failure, or another API."""
        failure = WireError.read(response.body)
        status = self._read_status(failure)
        if failure.text and status is not None:
            return self._build_error(response, status)
        kind = response.header("content-type") or "no content type"
        return ProviderError(
            f"{self._transport.url} answered with status {response.status} and no {self.api} reply ({kind}): "
            f"{self._transport.excerpt(response.body) or 'an empty body'}",
            status=response.status,
        )

    def _build_error(self, response: Response, status: int) -> ProviderError:
        """Return the error that a status other than 2xx stands for."""
        failure = WireError.read(response.body)
        reason = self._transport.excerpt(failure.text or response.body) or "no reason"
        text = f"{self._transport.url}: {self._explain_status(status)} (status {status}): {reason}"
        if self._is_too_long(status, failure):
            return ContextTooLong(text, status=status)
        is_too_large = status == 429 and TOO_LARGE in reason.lower()
        may_retry = is_retryable(dataclasses.replace(response, status=status))
        return ProviderError(
            text,
            status=status,
            retryable=may_retry and not is_too_large,
            retry_after=read_retry_after(response),
        )

    def _read_status(self, failure: WireError) -> int | None:
        """Return the HTTP status that a failure in a 2xx response stands for."""
        return failure.status

    def _is_too_long(self, status: int, failure: WireError) -> bool:
        return status in {400, 413, 422} and failure.is_too_long

    def _explain_status(self, status: int) -> str:
        if status == 404:
            return f"no model {self._model!r} here, or no {self.api} API: check model and base_url"
        if status not in {401, 403}:
            return f"the call of {self._model} failed"
        if self._key is not None:
            return (
                f"the API key was not accepted, check {self._key_variable} or api_key"
            )
        if self._credentials:
            return f"{self._credentials} not accepted"
        return f"no API key was given, set {self._key_variable} or pass api_key"
