"""OpaGate: asks an Open Policy Agent over its REST API; without a valid and timely answer, it denies."""

import asyncio
import contextlib
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

from .._internal import dataclasses
from .._internal.log import logger
from ..errors import ConfigError
from ..messages import canonical_json
from ..parsing import read_json
from ..principals import MAX_PEOPLE, ROLE_PATTERN, ApprovalRule
from .base import RESPOND, Action, Allow, Ask, Decision, Deny, Modify, PolicyState

DATA = "/v1/data/"
TIMEOUT = 2.0  # seconds for a decision
MAX_BYTES = 65_536  # of an answer
REFUSED = "policy refused it"
ANSWER = "respond"
"""The name that OPA reads for the action `RESPOND`."""
LEFT_OUT = ("tracer", "facts", "author", "source", "destinations", "principal")
"""Fields that are left out."""


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


class _Approvals(_Answer):
    role: str = Field(default="", pattern=ROLE_PATTERN)
    people: int = Field(default=1, ge=1, le=MAX_PEOPLE)
    not_starter: bool = False


class _Ask(_Answer):
    decision: Literal["ask"]
    question: str = Field(pattern=r"\S")
    reason: str = ""
    approvals: list[_Approvals] = Field(default_factory=list["_Approvals"])


_Result: TypeAlias = Annotated[
    _Allow | _Deny | _Modify | _Ask, Field(discriminator="decision")
]


class _Document(BaseModel):
    """The answer of OPA's data API; a document that is undefined has no `result`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True)
    result: _Result


_DOCUMENT = TypeAdapter(_Document)


class OpaGate:
    """Asks an Open Policy Agent (https://www.openpolicyagent.org/docs/rest-api) for each decision.

    It sends `{"input": {"action": {...}, "state": {...}}}` with the fields of `Action` and
    `PolicyState`, and needs an object: `{"decision": "allow"}`, `{"decision": "deny", "reason": ...}`,
    `{"decision": "ask", "question": ...}` or `{"decision": "modify", "arguments": {...}, "reason":
    ...}`. Anything else denies, also a bare `true`. `state.principal` is who started the run, with `id`, `tenant` and
    `roles`; it is undefined without one. An "ask" may have `approvals`, a list of `{"role", "people", "not_starter"}`.

    Args:
        url: where OPA listens, or the whole URL of a document of its data API.
        path: the document that decides, if `url` does not name it: package and rule, with slashes.
        client: used in place of connections of the gate; it is never closed, and its redirects are
            not followed.
        timeout: seconds for a decision, in all.
        headers: sent with each question.
        token: sent as a bearer token.
        max_bytes: longest answer that is read.
        provenance: whether it is told where each argument comes from, too, as `action.provenance[name]` with `kind`,
            `trusted` and `sources`; and `action.source`, `action.destinations` and `state.author`.
        version: of the policy that OPA has loaded. Change it when that changes: permits under the old
            version are then void.
        answers: whether it is asked about the answer of a run too, as a call of `respond`. A tool of
            that name is then denied: OPA could not tell the two apart.

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
        provenance: bool = False,
    ) -> None:
        for option, value in (("timeout", timeout), ("max_bytes", max_bytes)):
            if not value > 0:
                raise ConfigError(f"{option}: must be above 0, got {value!r}")
        self._url = _parsed(url, path)
        self.timeout, self.answers = timeout, answers
        self._with_provenance = provenance
        self.version = (
            f"opa {self._url.copy_with(query=None)}{' ' if version else ''}{version}"
        )
        self._client = client
        self._headers = _hide_headers(headers or {}, token)
        self._max_bytes = max_bytes

    def __repr__(self) -> str:
        return f"OpaGate({str(self._url.copy_with(query=None))!r})"

    async def evaluate(self, action: Action, state: PolicyState) -> Decision:
        """Return the decision of OPA. It is asked once: a late answer is worth no more than none."""
        if self.answers and action.tool == ANSWER:
            return Deny(
                f"to the policy service {ANSWER} is the answer of a run, so no tool of that name is run"
            )
        try:
            async with asyncio.timeout(self.timeout):
                body = await self._ask(self._question(action, state))
            return _decision(_DOCUMENT.validate_python(_json(body)).result)
        except ValidationError as error:
            problem = f"the answer is not a decision: {_describe(error)}"
        except _UnusableAnswer as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - after any failure, nothing is allowed
            problem = type(error).__name__  # its text may contain the request
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
        """Close the connections of the running event loop, if no other gate uses them.

        The end of the loop closes them, too.
        """
        loop = asyncio.get_running_loop()
        shared = _SHARED.get(loop)
        if shared is not None:
            shared.users.discard(self)
            if not shared.users:
                del _SHARED[loop]
                await shared.lifetime.aclose()

    def _question(self, action: Action, state: PolicyState) -> bytes:
        shown, known = _describe_call(action), _fields(state)
        if state.principal is not None:  # undefined without one, as in inputs of before
            known["principal"] = state.principal.to_json()
        if self._with_provenance:
            shown |= _describe_flow(action)
            known["author"] = state.author
        return canonical_json({"input": {"action": shown, "state": known}})

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
            _check_answer(response)
            body = b""
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self._max_bytes:
                    raise _UnusableAnswer(
                        f"the answer is longer than {self._max_bytes} bytes"
                    )
            return body

    async def _own(self) -> httpx.AsyncClient:
        """Return the client of the running loop; another loop cannot use its connections."""
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


class _UnusableAnswer(Exception):
    """An answer decides nothing; the message contains neither the answer nor the question."""


def _check_answer(response: httpx.Response) -> None:
    """Raise `_UnusableAnswer` unless the answer is a success in plain JSON."""
    if response.status_code != 200:
        raise _UnusableAnswer(f"the answer has status {response.status_code}")
    content_type = response.headers.get("content-type", "").partition(";")[0]
    encoding = response.headers.get("content-encoding", "identity")
    if content_type.strip().lower() != "application/json" or encoding != "identity":
        raise _UnusableAnswer("the answer is not plain application/json")


@dataclasses.dataclass(frozen=True)
class _Shared:
    """A client that all gates in one event loop share.

    A gate that is dropped without `aclose` would otherwise leave its connections open.
    """

    client: httpx.AsyncClient
    lifetime: AsyncGenerator[None]
    users: WeakSet[OpaGate]


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


async def _until_the_loop_ends(client: httpx.AsyncClient) -> AsyncGenerator[None]:
    """Close a client when its loop ends: `asyncio.run` closes the generators that are open."""
    try:
        yield
    finally:
        await client.aclose()


def _client() -> httpx.AsyncClient:
    """Return a client without redirects, proxies from the environment, cookies and a queue."""
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
    """Return the system's certificates; they are loaded once, since that takes 20 ms."""
    return ssl.create_default_context()


def _describe_flow(action: Action) -> dict[str, object]:
    """Return where the call comes from, where it goes, and where each argument is from."""
    provenance = {
        name: {
            "kind": found.kind,
            "trusted": found.trusted,
            "sources": [str(source) for source in found.sources],
        }
        for name, found in action.provenance.items()
    }
    return {
        "source": action.source,
        "destinations": list(action.destinations),
        "provenance": provenance,
    }


def _describe_call(action: Action) -> dict[str, object]:
    shown = {
        **_fields(action),
        "arguments": dict(action.filled),
        "labels": sorted(action.labels),
    }
    del shown["defaults"]  # they are among the arguments
    if not action.outbound:
        del shown["outbound"]  # as in inputs of before; undefined is false in Rego
    if action.tool == RESPOND:
        shown["tool"] = ANSWER
    return shown


def _fields(value: Action | PolicyState) -> dict[str, object]:
    return {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.name not in LEFT_OUT
    }


def _json(body: bytes) -> object:
    """Return the value of a body.

    Raises `_UnusableAnswer` if it is not JSON, or has duplicate keys, NaN or too many levels.
    """
    try:
        text = body.decode().strip()
        value, end = read_json(text)
    except ValueError:
        raise _UnusableAnswer("the answer is not valid JSON") from None
    if end != len(text):
        raise _UnusableAnswer("the answer is more than one JSON value")
    return value


def _decision(result: _Result) -> Decision:
    match result:
        case _Allow():
            return Allow()
        case _Deny(reason=reason):
            return Deny(reason.strip() or REFUSED)
        case _Modify(arguments=arguments, reason=reason):
            return Modify(arguments, reason.strip() or "policy wants other arguments")
        case _Ask(question=question, approvals=approvals):
            rules = [ApprovalRule(**dict(one)) for one in approvals]
            return Ask(question, tuple(rules))


def _describe(error: ValidationError) -> str:
    """Return the problems of an answer without its values: fields and kinds of error."""
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
            f"url: {error}; give something like 'http://localhost:8181'"
        ) from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigError(
            f"url: needs a scheme and a host, like 'http://localhost:8181', got {url!r}"
        )
    if parsed.userinfo:
        raise ConfigError(
            "url: contains a user name or password, which errors would show; use token or headers"
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


def _hide_headers(
    headers: Mapping[str, str], token: str | SecretStr | None
) -> Callable[[], Mapping[str, str]]:
    """Return a function that returns the headers, so that no attribute shows them."""
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
                f"headers: {name!r} contains characters that HTTP does not allow, such as a line break"
            )
    return lambda: pairs
