"""What AWS's own library does for Bedrock: botocore finds the credentials, signs (version 4) and splits event streams."""

import asyncio
import functools
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError, ProviderError, format_error

INSTALL = "BedrockProvider needs botocore: pip install 'loopwright[bedrock]'"
SERVICE = "bedrock"


def check_installed() -> None:
    """Raise `ConfigError` unless botocore is installed; it is loaded by the first call."""
    if importlib.util.find_spec("botocore") is None:
        raise ConfigError(INSTALL)


def load_session(profile: str | None) -> Any:
    """Return a session of botocore, which reads AWS's variables, files and the services of the machine.

    Raises:
        ConfigError: there is no such profile.
    """
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - slow to load, and only for Bedrock
    from botocore.session import Session  # noqa: PLC0415 - as above

    session = Session(profile=profile)
    try:
        session.get_scoped_config()
    except BotoCoreError as error:
        raise ConfigError(f"profile: {error}") from None
    return session


def find_region(region: str | None, profile: str | None) -> str:
    """Return the region that was given, else that of the environment or of AWS's files; raise `ConfigError` without one."""
    variables = ("AWS_REGION", "AWS_DEFAULT_REGION")
    found = region or next(filter(None, map(os.environ.get, variables)), None)
    if found is None:
        found = load_session(profile).get_config_variable("region")
    if not found:
        raise ConfigError("region: missing; pass one, or set AWS_REGION")
    return str(found)


def check_profile(profile: str | None) -> None:
    """Raise `ConfigError` if AWS's files have no profile of this name, or of that in AWS_PROFILE."""
    if profile or os.environ.get("AWS_PROFILE"):
        load_session(profile)


class Signer:
    """Signs requests to one URL.

    Args:
        url: where they go.
        region: part of the signature.
        profile: the profile of AWS's files whose credentials are used; botocore's choice by default.
    """

    def __init__(self, url: str, region: str, profile: str | None) -> None:
        self._url, self._region, self._profile = url, region, profile

    async def __call__(self, body: bytes) -> Mapping[str, str]:
        """Return the headers that sign a body; in a thread, since credentials may be fetched."""
        return await asyncio.to_thread(self._sign, body)

    @functools.cached_property
    def _session(self) -> Any:
        return load_session(self._profile)

    def _sign(self, body: bytes) -> Mapping[str, str]:
        session = self._session
        from botocore.auth import SigV4Auth  # noqa: PLC0415 - as above
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - as above
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - as above

        try:
            credentials = session.get_credentials()
            frozen = credentials and credentials.get_frozen_credentials()
        except BotoCoreError as error:
            text = f"AWS gave no credentials: {format_error(error)}"
            raise ProviderError(text, retryable=True) from None
        if not frozen:
            raise ProviderError(
                "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or "
                "AWS_BEARER_TOKEN_BEDROCK"
            )
        request = AWSRequest("POST", self._url, data=body)
        signature: Any = SigV4Auth(frozen, SERVICE, self._region)
        signature.add_auth(request)
        return dict(request.headers.items())


def load_event_buffer() -> Any:
    """Return a decoder of event streams, which takes bytes and iterates over whole events."""
    from botocore.eventstream import EventStreamBuffer  # noqa: PLC0415 - as above

    return EventStreamBuffer()
