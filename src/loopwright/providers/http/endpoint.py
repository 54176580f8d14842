"""What providers over HTTP have in common: a model at an endpoint, the key to it, and what a failed answer means."""

import dataclasses
import os
from typing import ClassVar, Never

from pydantic import SecretStr

from ...errors import ContextTooLong, ProviderError
from .replies import Reply, retry_after, worth_retrying
from .transport import HTTPTransport
from .wire import WireError

LONGEST_REFUSAL = 2_000
SHORTEST_KEY, LONGEST_WORD = (
    8,
    20,
)  # characters of an API key; one without a digit is a word unless it is long
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "user-agent": "loopwright",
}


def key_of(given: str | SecretStr | None, variable: str) -> SecretStr | None:
    """The API key that was given, or that an environment variable holds; an empty one is none."""
    if given is None:
        given = os.environ.get(variable, "")
    text = (given.get_secret_value() if isinstance(given, SecretStr) else given).strip()
    return SecretStr(text) if text else None


def _is_secret(key: str) -> bool:
    """Whether a key is one, and no word that is written where a local server wants any key ("ollama", "EMPTY")."""
    return len(key) >= SHORTEST_KEY and (
        any(letter.isdigit() for letter in key) or len(key) >= LONGEST_WORD
    )


class Endpoint:
    """A model at an endpoint."""

    api: ClassVar[str]
    """What the endpoint should speak, as an error names it."""
    _model = _base_url = ""  # so that a half-made provider has a repr too
    _name: str
    _transport: HTTPTransport
    _key_variable: str
    _has_key: bool
    _key: SecretStr | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API key, so that a runtime takes it out of all that it is told; a placeholder is none."""
        key = "" if self._key is None else self._key.get_secret_value()
        return (key,) if _is_secret(key) else ()

    @property
    def name(self) -> str:
        """The API's owner at its own address ("openai", "anthropic"), or the host (and port) of another endpoint."""
        return self._name

    @property
    def model(self) -> str:
        """The model's name at the endpoint."""
        return self._model

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r}, base_url={self._base_url!r})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a provider holds an API key and open connections: it cannot be pickled or copied"
        )

    async def aclose(self) -> None:
        """Close the connections of the running event loop; an injected client stays open."""
        await self._transport.aclose()

    def _refused(self, words: str, status: int) -> ProviderError:
        return ProviderError(
            f"{self._model} refused: {self._transport.hidden(words)[:LONGEST_REFUSAL]}",
            status=status,
        )

    def _unusable(self, reply: Reply) -> ProviderError:
        """An answer of status 2xx that is no reply: a gateway's error, or something else than this API."""
        told = WireError.read(reply.body)
        status = self._status_in(told)
        if told.text and status is not None:
            return self._failure(reply, status)
        kind = reply.header("content-type") or "no content type"
        return ProviderError(
            f"{self._transport.url} answered with status {reply.status} and no {self.api} reply ({kind}): "
            f"{self._transport.excerpt(reply.body) or 'an empty body'}",
            status=reply.status,
        )

    def _failure(self, reply: Reply, status: int) -> ProviderError:
        """The error that a status other than 2xx stands for."""
        told = WireError.read(reply.body)
        words = self._transport.excerpt(told.text or reply.body) or "no reason"
        text = (
            f"{self._transport.url}: {self._advice(status)} (status {status}): {words}"
        )
        if self._is_too_long(status, told):
            return ContextTooLong(text, status=status)
        retryable = worth_retrying(dataclasses.replace(reply, status=status))
        return ProviderError(
            text, status=status, retryable=retryable, retry_after=retry_after(reply)
        )

    def _status_in(self, told: WireError) -> int | None:
        """The HTTP status that a failure told with status 2xx stands for."""
        return told.status

    def _is_too_long(self, status: int, told: WireError) -> bool:
        return status in {400, 413, 422} and told.is_too_long

    def _advice(self, status: int) -> str:
        if status in {401, 403}:
            if self._has_key:
                return f"the API key was not accepted, check {self._key_variable} or api_key"
            return f"no API key was given, set {self._key_variable} or pass api_key"
        if status == 404:
            return f"no model {self._model!r} here, or no {self.api} API: check model and base_url"
        return f"the call of {self._model} failed"
