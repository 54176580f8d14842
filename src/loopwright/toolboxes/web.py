"""The toolbox `web`: reading pages, over connections that reach nothing but what they may."""

import asyncio
import codecs
import http
import re
import ssl
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import httpx
from pydantic import Field

from ..errors import ConfigError, ToolError
from ..tools.base import Tool, tool
from .html import page_text
from .ip_policy import address_of, is_public, plain_host
from .ssrf_guard import GuardedTransport, Refused

MAX_HOPS = 5
MAX_URL = 2_000
MAX_NAMED = 20  # hosts that a model is told of
SLACK = (
    1.0  # seconds by which the runtime's time-out is later than ours, which says more
)
HEADERS = {
    "user-agent": "loopwright",
    "accept": "text/html, application/xhtml+xml, application/json, text/*;q=0.9, */*;q=0.1",
}
REDIRECTS = (301, 302, 303, 307, 308)
HTML = ("text/html", "application/xhtml+xml")
PLAIN = re.compile(
    r"text/[\w.+-]+|application/(([\w.-]+\+)?(json|xml|yaml)|x-yaml|javascript|x-ndjson|toml)"
)
# What browsers know (WHATWG), and no codec that costs more than linear time.
CHARSETS = re.compile(
    r"utf-8|utf-16(-[lb]e)?|cp125[0-8]|cp8(66|74)|iso8859-([2-8]|1[03-6])|koi8-[ru]|mac-roman|gb2312|gbk|gb18030|big5|"
    r"euc_jp|shift_jis|cp932|iso2022_jp|euc_kr"
)
LATIN = (
    "ascii",
    "iso8859-1",
    "iso8859-9",
)  # by which all on the web mean the code pages of Windows
META = re.compile(
    rb"<meta[^<>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([\w.:-]{1,40})", re.I
)
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Page(NamedTuple):
    """What was found at a URL: where in the end, its content type without and with parameters, and the body."""

    url: httpx.URL
    kind: str
    content_type: str
    body: bytes


class Elsewhere(NamedTuple):
    """A redirect that is not followed."""

    target: httpx.URL


def web(
    allow: Iterable[str] | str = (),
    *,
    max_bytes: int = 2_000_000,
    timeout: float = 20.0,
    transport: GuardedTransport | None = None,
) -> list[Tool]:
    """The tool `fetch_page`, which reads a page of the web as plain text.

    It sends no cookies, credentials and referrer, and asks with GET. A redirect is followed, up to five times, within a
    host (with or without `www.`) and to hosts that `allow` names, but not to another one that may be private. Of any
    other the model is told, so that its next call says where it goes, and a gate sees that.

    Args:
        allow: hosts that may be read, as for `GuardedTransport`, "example.com,*.python.org"; else every public one.
        max_bytes: largest page.
        timeout: seconds for one page in all, redirects too.
        transport: connects in place of one of the toolbox's own; it has its own `allow`, and is not closed.

    Raises:
        ConfigError: an argument cannot be used.
    """
    if transport is not None and allow:
        raise ConfigError(
            "allow: give it to the transport, GuardedTransport(allow, ...), or leave the transport out"
        )
    for field, value in (("max_bytes", max_bytes), ("timeout", timeout)):
        if not value > 0:
            raise ConfigError(f"{field}: must be greater than 0, got {value!r}")
    transport = transport or GuardedTransport(
        allow, max_bytes=max_bytes, timeout=timeout, max_idle=0
    )
    reader = _Reader(transport, max_bytes, timeout)

    @tool(effect="read", description=reader.description, timeout=timeout + SLACK)
    async def fetch_page(
        url: Annotated[str, Field(min_length=1, max_length=MAX_URL)],
    ) -> str:
        """Read a page.

        Args:
            url: its whole address, beginning with https:// or http://.
        """
        return await reader.read(_parsed(url))

    return [fetch_page]


class _Reader:
    """Gets pages over one transport."""

    def __init__(
        self, transport: GuardedTransport, max_bytes: int, timeout: float
    ) -> None:
        self._transport, self._max_bytes, self._timeout = transport, max_bytes, timeout
        self._public = transport.public_only()
        allowed = transport.destinations.allow
        count = len(allowed.names) + len(allowed.below) + len(allowed.networks)
        hosts = f" Hosts that can be read: {allowed}." if 0 < count <= MAX_NAMED else ""
        self.description = (
            "Read a page of the web as text. HTML comes without its markup, links as [text](address). Text and JSON "
            f"come as they are.{hosts}"
        )

    async def read(self, url: httpx.URL) -> str:
        """What a model reads of a page. Raises `ToolError` for all that may go wrong on the way to it."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._text(url)
        except (TimeoutError, httpx.TimeoutException):
            raise ToolError(
                f"{url.host} did not answer in full within {self._timeout:g} seconds"
            ) from None
        except httpx.HTTPError as error:
            if isinstance(error, ToolError):
                raise
            raise ToolError(_told(url.host, error)) from error

    async def _text(self, start: httpx.URL) -> str:
        found = await self._found(start)
        if isinstance(found, Elsewhere):
            return f"{start} redirects to another host: {found.target}\nCall fetch_page with that address to read it."
        text, title = (
            _decoded(found.body, found.content_type, is_html=found.kind in HTML),
            "",
        )
        if found.kind in HTML:
            title, text = await asyncio.to_thread(page_text, text, str(found.url))
        head = [f"URL: {found.url}", *([f"Title: {title}"] if title else []), ""]
        return "\n".join([*head, text or "(The page has no text.)"])

    async def _found(self, start: httpx.URL) -> Page | Elsewhere:
        url, private = (
            start,
            "",
        )  # the host of the call, if it is in a private network: there it may stay
        for hop in range(MAX_HOPS + 1):
            transport = (
                self._transport if hop == 0 or _plain(url) == private else self._public
            )
            try:
                response = await transport.handle_async_request(
                    httpx.Request("GET", url, headers=HEADERS)
                )
            except Refused:
                if transport is self._public and self._might_be_private(url):
                    return Elsewhere(url)
                raise
            try:
                if response.status_code not in REDIRECTS:
                    return await self._page(url, response)
                private = (
                    _plain(url) if hop == 0 and _came_from_inside(response) else private
                )
            finally:
                await response.aclose()
            target = _target(url, response)
            if not self._follows(url, target):
                return Elsewhere(target)
            url = target
        raise ToolError(f"{url.host} redirects more than {MAX_HOPS} times")

    def _follows(self, url: httpx.URL, target: httpx.URL) -> bool:
        """Whether a redirect stays where the call said it would go, or goes where the owner said that anyone may.

        Into a private network no page leads by itself: a gate that looks at destinations would not see it.
        """
        here, there = _plain(url), _plain(target)
        destinations = self._transport.destinations
        if here == there or destinations.publishes(there):
            return bool(there)
        return here.removeprefix("www.") == there.removeprefix(
            "www."
        ) and not destinations.private.has_host(there)

    def _might_be_private(self, url: httpx.URL) -> bool:
        """Whether a call of its own might reach what a redirect may not lead to."""
        destinations, address = self._transport.destinations, address_of(_plain(url))
        return bool(destinations.private) and (
            address is None or destinations.admits(_plain(url), address)
        )

    async def _page(self, url: httpx.URL, response: httpx.Response) -> Page:
        if not response.is_success:
            raise ToolError(
                f"{url} answered with status {_status(response.status_code)}"
            )
        content_type = response.headers.get("content-type", "").lower()
        kind = content_type.partition(";")[0].strip()
        if not (kind in HTML or PLAIN.fullmatch(kind)):
            named = (
                kind
                if re.fullmatch(r"[\w.+/-]{1,80}", kind, re.A)
                else "no known content type"
            )
            raise ToolError(
                f"{url} is {named}, which is no text: only HTML, text and JSON can be read"
            )
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._max_bytes:
                raise ToolError(
                    f"{url} is larger than {self._max_bytes} bytes, the most that is read"
                )
        return Page(url, kind, content_type, bytes(body))


def _parsed(url: str) -> httpx.URL:
    """The URL that a model wrote. Raises `ToolError` for what one reader might read otherwise than another."""
    text = url.strip()
    if re.search(r"[\s\\\x00-\x1f\x7f]", text):
        raise ToolError(
            "an address has no blanks and backslashes: write them as %20 and %5C"
        )
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ToolError(f"this is no address of a page: {error}") from None
    if not (parsed.scheme and parsed.host):
        raise ToolError("write the whole address, as https://example.com/page")
    if parsed.userinfo:
        raise ToolError("write the address without a user name and password")
    return parsed.copy_with(fragment=None)


def _target(url: httpx.URL, response: httpx.Response) -> httpx.URL:
    location, target = response.headers.get("location", ""), url
    try:
        target = url.join(location).copy_with(fragment=None)
        _parsed(str(target))
    except (httpx.InvalidURL, ToolError):
        location = ""
    if not 0 < len(location) <= MAX_URL:
        raise ToolError(f"{url} redirects to nowhere that can be read")
    if url.scheme == "https" and target.scheme != "https":
        raise ToolError(
            f"{url} redirects to an address without encryption, which is not followed"
        )
    return target


def _came_from_inside(response: httpx.Response) -> bool:
    """Whether an answer came from an address that is not of the public internet; no, if nobody knows any more."""
    server = response.extensions["network_stream"].get_extra_info("server_addr")
    address = address_of(server[0]) if server else None
    return address is not None and not is_public(address)


def _plain(url: httpx.URL) -> str:
    try:
        return plain_host(url.raw_host.decode("ascii"))
    except ValueError:
        return ""


def _status(code: int) -> str:
    try:
        return f"{code} ({http.HTTPStatus(code).phrase})"
    except ValueError:
        return str(code)


def _told(host: str, error: httpx.HTTPError) -> str:
    """What a model reads of a failed connection: nothing of addresses and systems behind the name."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"{host} has no valid certificate"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectError):
        return f"{host} could not be reached"
    return f"the answer of {host} broke off, or was no HTTP"


def _decoded(body: bytes, content_type: str, *, is_html: bool) -> str:
    """A body as text: by its mark, its content type, its own `<meta>` (of HTML), or as UTF-8 with a look at Latin."""
    for mark, name in MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    declared = re.search(r"charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", content_type)
    in_page = META.search(body[:2048]) if is_html and declared is None else None
    name = _charset(
        declared[1]
        if declared
        else in_page[1].decode("ascii", "replace")
        if in_page
        else ""
    )
    if name:
        return body.decode(name, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("utf-8" if declared else "cp1252", "replace")


def _charset(label: str) -> str:
    """The codec for a label; nothing if there is none that is safe to use."""
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return ""
    if name in LATIN:
        return "cp1254" if name == "iso8859-9" else "cp1252"
    return name if CHARSETS.fullmatch(name) else ""
