"""Request headers whose secret values no attribute, repr, error or log shows."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from pydantic import SecretStr

from ...errors import ConfigError

# Shorter keys are placeholders such as "none" or "x"; hiding them would garble every text.
MIN_SECRET = 6

HeaderPairs: TypeAlias = list[tuple[bytes, bytes]]


def conceal_headers(
    headers: Mapping[str, str | SecretStr], others: Iterable[SecretStr] = ()
) -> tuple[Callable[[bytes], HeaderPairs], Callable[[str], str]]:
    """Return two functions: one lists the headers for a body, the other hides their secret values, and others, in a text.

    The values live in closures only, so that no attribute of a transport holds them.

    Raises:
        ConfigError: a header has characters that HTTP does not allow.
    """
    for name, value in headers.items():
        if not _is_sendable(_reveal(value)):
            raise ConfigError(
                f"the header {name} holds characters that HTTP does not allow, such as a line break"
            )
    pairs = [
        (name.encode("ascii"), _reveal(value).encode("ascii"))
        for name, value in headers.items()
    ]
    secrets = _list_secrets(
        {**headers, **{str(i): one for i, one in enumerate(others)}}
    )

    def list_headers(body: bytes) -> HeaderPairs:
        return [*pairs, (b"content-length", b"%d" % len(body))]

    def hide_secrets(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    return list_headers, hide_secrets


def _list_secrets(headers: Mapping[str, str | SecretStr]) -> list[str]:
    secrets: list[str] = []
    for value in headers.values():
        key = _reveal(value).removeprefix("Bearer ")
        if isinstance(value, SecretStr) and len(key) >= MIN_SECRET:
            secrets.append(key)
    return secrets


def _reveal(value: str | SecretStr) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return value


def _is_sendable(value: str) -> bool:
    return value.isascii() and value.isprintable()
