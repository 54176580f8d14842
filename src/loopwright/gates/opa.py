"""OpaGate: an Open Policy Agent is asked over its REST API; what it does not decide, in time and form, is denied."""

import asyncio
import contextlib
import dataclasses
import functools
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Annotated, ClassVar, Literal, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

import httpx
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    TypeAdapter,
    ValidationError,
)

from .._internal.log import logger
from ..errors import ConfigError
from ..messages import canonical_json
from ..parsing import read_json
from .base import RESPOND, Action, Allow, Ask, Decision, Deny, Modify, PolicyState

DATA = "/v1/data/"
TIMEOUT = 2.0  # seconds for a decision
MAX_BYTES = 65_536  # of an answer
REFUSED = "policy refused it"
ANSWER = "respond"
"""What OPA is told in place of `RESPOND`."""


class _Answer(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)


class _Allow(_Answer):
    decision: Literal["allow"]
    reason: str = ""


class _Deny(_Answer):
    decision: Literal["deny"]
    reason: str = ""


class _Modify(_Answer):
    decision: Literal["modify"]
    arguments: dict[str, JsonValue]
    reason: str = ""


class _Ask(_Answer):
    decision: Literal["ask"]
    question: str = Field(pattern=r"\S")
    reason: str = ""


_Result: TypeAlias = Annotated[
    _Allow | _Deny | _Modify | _Ask, Field(discriminator="decision")
]


class _Document(BaseModel):
    """What OPA's data API answers; a document that is undefined has no `result`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True)
    result: _Result


_DOCUMENT = TypeAdapter(_Document)


class OpaGate:
    """Asks an Open Policy Agent (https://www.openpolicyagent.org/docs/rest-api) for each decision.

    It sends `{"input": {"action": {...}, "state": {...}}}` with the fields of `Action` and `PolicyState`, and wants an
    object: `{"decision": "allow"}`, `{"decision": "deny", "reason": ...}`, `{"decision": "ask", "question": ...}` or
    `{"decision": "modify", "arguments": {...}, "reason": ...}`. Everything else denies, also a bare `true`.

    Args:
        url: where OPA listens, or the whole URL of a document of its data API.
        path: the document that decides, if `url` does not name it; its package and rule, with slashes.
        client: used in place of own connections; it is never closed, and its redirects are not followed.
        timeout: seconds for a decision, in all.
        headers: sent with each question.
        token: sent as a bearer token.
        max_bytes: longest answer that is read.
        version: of the policy that OPA has loaded. Give it another when that changes: permits that rest on the old
            one are then void.
        answers: whether it is asked about the answer of a run too, as a call of `respond`. A tool of that name is
            denied then: OPA could not tell the two apart.

    Raises:
        ConfigError: the URL or an option cannot be used.
    """

    def __init__(
        self,
        url: str = "http://localhost:8181",
        *,
        path: str = "loopwright/decision",
        client: httpx.AsyncClient | None = None,
        timeout: float = TIMEOUT,
        headers: Mapping[str, str] | None = None,
        token: str | SecretStr | None = None,
        max_bytes: int = MAX_BYTES,
        version: str = "",
        answers: bool = False,
    ) -> None:
        for option, value in (("timeout", timeout), ("max_bytes", max_bytes)):
            if not value > 0:
                raise ConfigError(f"{option}: must be above 0, got {value!r}")
        self._url = _parsed(url, path)
        self.timeout, self.answers = timeout, answers
        self.version = (
            f"opa {self._url.copy_with(query=None)}{' ' if version else ''}{version}"
        )
        self._client = client
        self._headers = _sealed(headers or {}, token)
        self._max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"OpaGate({str(self._url.copy_with(query=None))!r})"

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """What OPA says. It is asked once, as an answer that comes late is worth as little as none."""
        if self.answers and action.tool == ANSWER:
            return Deny(
                f"to the policy service {ANSWER} is the answer of a run, so no tool of that name is run"
            )
        try:
            async with asyncio.timeout(self.timeout):
                body = await self._ask(_question(action, state))
            return _decision(_DOCUMENT.validate_python(_json(body)).result)
        except ValidationError as error:
            problem = f"the answer is no decision: {_where(error)}"
        except _Useless as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, nothing is allowed
            problem = type(error).__name__  # its text may hold what was sent
        logger().warning(
            "opa_undecided",
            url=str(self._url.copy_with(query=None)),
            tool=action.tool,
            problem=problem,
        )
        return Deny(
            f"the policy service gave no decision about {action.tool}, so it was not run"
        )

    async def aclose(self) -> None:
        """Close the connections of the running event loop once no other gate uses them; its end closes them too."""
        loop = asyncio.get_running_loop()
        shared = _SHARED.get(loop)
        if shared is not None:
            shared.users.discard(self)
            if not shared.users:
                del _SHARED[loop]
                await shared.lifetime.aclose()

    async def _ask(self, question: bytes) -> bytes:
        client = self._client or await self._own()
        request = client.build_request(
            "POST",
            self._url,
            content=question,
            headers=self._headers(),
            timeout=self.timeout,
        )
        response = await client.send(request, stream=True, follow_redirects=False)
        async with contextlib.aclosing(response):
            kind = (
                response.headers.get("content-type", "")
                .partition(";")[0]
                .strip()
                .lower()
            )
            if response.status_code != 200:
                raise _Useless(f"the answer has status {response.status_code}")
            if (
                kind != "application/json"
                or response.headers.get("content-encoding", "identity") != "identity"
            ):
                raise _Useless("the answer is not plain application/json")
            body = b""
            async for part in response.aiter_raw():
                body += part
                if len(body) > self._max_bytes:
                    raise _Useless(f"the answer is longer than {self._max_bytes} bytes")
            return body

    async def _own(self) -> httpx.AsyncClient:
        """The client of the running loop: connections cannot be used from another one."""
        loop = asyncio.get_running_loop()
        shared = _SHARED.get(loop)
        if shared is None:
            client = _client()
            shared = _SHARED[loop] = _Shared(
                client, _until_the_loop_ends(client), WeakSet()
            )
            await anext(shared.lifetime)
        shared.users.add(self)
        return shared.client


class _Useless(Exception):
    """An answer that decides nothing; the text holds nothing of it, nor of the question."""


@dataclasses.dataclass(frozen=True)
class _Shared:
    """A client that all gates in one event loop use: a gate that nobody keeps would leave its connections open."""

    client: httpx.AsyncClient
    lifetime: AsyncGenerator[None]
    users: WeakSet[OpaGate]


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


async def _until_the_loop_ends(client: httpx.AsyncClient) -> AsyncGenerator[None]:
    """Close a client when its loop does: `asyncio.run` closes the generators that are open."""
    try:
        yield
    finally:
        await client.aclose()


def _client() -> httpx.AsyncClient:
    """A client that does what it is told: no redirects, no proxy from the environment, no cookies, no queue."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    return httpx.AsyncClient(
        follow_redirects=False,
        trust_env=False,
        verify=_tls(),
        limits=limits,
        cookies=no_cookies,
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    """The system's certificates; loading them takes 20 ms, so it is done once."""
    return ssl.create_default_context()


def _question(action: Action, state: PolicyState) -> bytes:
    shown = {
        **_fields(action),
        "arguments": dict(action.filled),
        "labels": sorted(action.labels),
    }
    del shown["defaults"]  # they are among the arguments
    if action.tool == RESPOND:
        shown["tool"] = ANSWER
    return canonical_json({"input": {"action": shown, "state": _fields(state)}})


def _fields(value: Action | PolicyState) -> dict[str, object]:
    return {
        field.name: getattr(value, field.name) for field in dataclasses.fields(value)
    }


def _json(body: bytes) -> object:
    """The value that a body is. Raises `_Useless` if it is no JSON, or has a key twice, NaN or too many levels."""
    try:
        text = body.decode().strip()
        value, end = read_json(text)
    except ValueError:
        raise _Useless("the answer is no sound JSON") from None
    if end != len(text):
        raise _Useless("the answer is more than one JSON value")
    return value


def _decision(result: _Result) -> Decision:
    match result:
        case _Allow():
            return Allow()
        case _Deny(reason=reason):
            return Deny(reason.strip() or REFUSED)
        case _Modify(arguments=arguments, reason=reason):
            return Modify(arguments, reason.strip() or "policy wants other arguments")
        case _Ask(question=question):
            return Ask(question)


def _where(error: ValidationError) -> str:
    """What is wrong with an answer, without its values: names of fields and kinds of error."""
    return "; ".join(
        f"{'.'.join(map(str, found['loc']))}: {found['type']}"
        for found in error.errors(
            include_url=False, include_context=False, include_input=False
        )
    )


def _parsed(url: str, path: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ConfigError(
            f"url: {error}: give something like 'http://localhost:8181'"
        ) from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigError(
            f"url: needs a scheme and a host, like 'http://localhost:8181', got {url!r}"
        )
    if parsed.userinfo:
        raise ConfigError(
            "url: holds a user name or password, which would show up in errors: use token or headers"
        )
    if DATA in parsed.path:
        return parsed.copy_with(fragment=None)
    if not path.strip("/"):
        raise ConfigError(
            "path: name the document that decides, like 'loopwright/decision'"
        )
    return parsed.copy_with(
        path=parsed.path.rstrip("/") + DATA + path.strip("/"), fragment=None
    )


def _sealed(
    headers: Mapping[str, str], token: str | SecretStr | None
) -> Callable[[], Mapping[str, str]]:
    """A function that knows the headers, so that no attribute shows them."""
    plain = token.get_secret_value() if isinstance(token, SecretStr) else token
    bearer = {"authorization": f"Bearer {plain}"} if plain else {}
    fixed = {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
    }
    pairs = {**headers, **bearer, **fixed}
    for name, value in pairs.items():
        if not (name.isascii() and value.isascii() and f"{name}{value}".isprintable()):
            raise ConfigError(
                f"headers: {name!r} holds characters that HTTP does not allow, such as a line break"
            )
    return lambda: pairs
