"""The toolbox `web`: reading pages over guarded connections."""

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
from .option_checks import check_positive
from .ssrf_guard import GuardedTransport, RequestRefused

MAX_HOPS = 5
MAX_URL = 2_000
MAX_NAMED = 20
"""Hosts that the description of the tool lists."""
SLACK = 1.0
"""Seconds by which the runtime's timeout is later than ours, whose error says more."""
HEADERS = {
    "user-agent": "loopwright",
    "accept": "text/html, application/xhtml+xml, application/json, text/*;q=0.9, */*;q=0.1",
}
REDIRECTS = (301, 302, 303, 307, 308)
HTML = ("text/html", "application/xhtml+xml")
PLAIN = re.compile(
    r"text/[\w.+-]+|application/(([\w.-]+\+)?(json|xml|yaml)|x-yaml|javascript|x-ndjson|toml)"
)
# The charsets of browsers (WHATWG), without codecs that take more than linear time.
CHARSETS = re.compile(
    r"utf-8|utf-16(-[lb]e)?|cp125[0-8]|cp8(66|74)|iso8859-([2-8]|1[03-6])|koi8-[ru]|mac-roman|gb2312|gbk|gb18030|big5|"
    r"euc_jp|shift_jis|cp932|iso2022_jp|euc_kr"
)
LATIN = ("ascii", "iso8859-1", "iso8859-9")
"""Labels that mean the Windows code pages on the web."""
CHARSET = re.compile(r"charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})")
META = re.compile(
    rb"<meta[^<>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([\w.:-]{1,40})", re.I
)
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Page(NamedTuple):
    """A page: its final URL, its content type without and with parameters, and the body."""

    url: httpx.URL
    kind: str
    content_type: str
    body: bytes


class Redirect(NamedTuple):
    """A redirect that is not followed."""

    target: httpx.URL


def web(
    allow: Iterable[str] | str = (),
    *,
    max_bytes: int = 2_000_000,
    timeout: float = 20.0,
    transport: GuardedTransport | None = None,
) -> list[Tool]:
    """Return the tool `fetch_page`, which reads a page of the web as plain text.

    It sends GET requests without cookies, credentials and referrer. A redirect is followed, up to five
    times, within a host (with or without `www.`) and to hosts that `allow` names, but not to another
    host that may be private. Any other target is returned to the model, so that its next call names
    it, and a gate sees it.

    Args:
        allow: hosts that may be read, as for `GuardedTransport`, "example.com,*.python.org"; by
            default every public one.
        max_bytes: largest page.
        timeout: seconds for one page in all, with redirects.
        transport: used in place of one of the toolbox; it has its own `allow`, and is not closed.

    Raises:
        ConfigError: an argument cannot be used.
    """
    if transport is not None and allow:
        raise ConfigError(
            "allow: cannot be combined with transport; use GuardedTransport(allow, ...)"
        )
    check_positive(max_bytes=max_bytes, timeout=timeout)
    transport = transport or GuardedTransport(
        allow, max_bytes=max_bytes, timeout=timeout, max_idle=0
    )
    return [_build_fetch_page(_Reader(transport, max_bytes, timeout), timeout)]


def _build_fetch_page(reader: "_Reader", timeout: float) -> Tool:
    @tool(
        effect="read",
        description=reader.description,
        timeout=timeout + SLACK,
        outbound=True,
    )
    async def fetch_page(
        url: Annotated[str, Field(min_length=1, max_length=MAX_URL)],
    ) -> str:
        """Read a page.

        Args:
            url: its whole address, beginning with https:// or http://.
        """
        return await reader.read(_parse_url(url))

    return fetch_page


class _Reader:
    """Reads pages over one transport."""

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
        """Return a page as a model reads it. Raises `ToolError` for every failure."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._read_text(url)
        except (TimeoutError, httpx.TimeoutException):
            raise ToolError(
                f"{url.host} did not answer in full within {self._timeout:g} seconds"
            ) from None
        except httpx.HTTPError as error:
            if isinstance(error, ToolError):
                raise
            raise ToolError(_format_failure(url.host, error)) from error

    async def _read_text(self, start: httpx.URL) -> str:
        found = await self._fetch(start)
        if isinstance(found, Redirect):
            return f"{start} redirects to another host: {found.target}\nCall fetch_page with that address to read it."
        is_html = found.kind in HTML
        title, text = "", _decode(found.body, found.content_type, is_html=is_html)
        if is_html:
            title, text = await asyncio.to_thread(page_text, text, str(found.url))
        head = [f"URL: {found.url}", *([f"Title: {title}"] if title else []), ""]
        return "\n".join([*head, text or "(The page has no text.)"])

    async def _fetch(self, start: httpx.URL) -> Page | Redirect:
        """Return the page, after redirects that may be followed.

        If the host of the call is in a private network, redirects may stay there.
        """
        url, private_host = start, ""
        for hop in range(MAX_HOPS + 1):
            is_own = hop == 0 or _plain_host(url) == private_host
            transport = self._transport if is_own else self._public
            try:
                response = await transport.handle_async_request(
                    httpx.Request("GET", url, headers=HEADERS)
                )
            except RequestRefused:
                if transport is self._public and self._might_be_private(url):
                    return Redirect(url)
                raise
            try:
                if response.status_code not in REDIRECTS:
                    return await self._read_page(url, response)
                if hop == 0 and _is_from_private_network(response):
                    private_host = _plain_host(url)
            finally:
                await response.aclose()
            target = _redirect_target(url, response)
            if not self._follows(url, target):
                return Redirect(target)
            url = target
        raise ToolError(f"{url.host} redirects more than {MAX_HOPS} times")

    def _follows(self, url: httpx.URL, target: httpx.URL) -> bool:
        """Whether a redirect stays at the host of the call, or leads to one that anyone may read.

        A page never leads into a private network: a gate that judges destinations would not see it.
        """
        here, there = _plain_host(url), _plain_host(target)
        destinations = self._transport.destinations
        if here == there or destinations.publishes(there):
            return bool(there)
        if destinations.private.has_host(there):
            return False
        return here.removeprefix("www.") == there.removeprefix("www.")

    def _might_be_private(self, url: httpx.URL) -> bool:
        """Whether a call for it might reach a host that a redirect must not lead to."""
        host, destinations = _plain_host(url), self._transport.destinations
        if not destinations.private:
            return False
        address = address_of(host)
        return address is None or destinations.admits(host, address)

    async def _read_page(self, url: httpx.URL, response: httpx.Response) -> Page:
        if not response.is_success:
            status = _format_status(response.status_code)
            raise ToolError(f"{url} answered with status {status}")
        content_type = response.headers.get("content-type", "").lower()
        kind = content_type.partition(";")[0].strip()
        if kind not in HTML and not PLAIN.fullmatch(kind):
            is_type = re.fullmatch(r"[\w.+/-]{1,80}", kind, re.A)
            raise ToolError(
                f"{url} is {kind if is_type else 'of an unknown content type'}, which is not text: "
                "only HTML, text and JSON can be read"
            )
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._max_bytes:
                raise ToolError(
                    f"{url} is larger than {self._max_bytes} bytes, the largest size that is read"
                )
        return Page(url, kind, content_type, bytes(body))


def _parse_url(url: str) -> httpx.URL:
    """Parse the URL of a model. Raises `ToolError` for one that clients may read differently."""
    text = url.strip()
    if re.search(r"[\s\\\x00-\x1f\x7f]", text):
        raise ToolError(
            "an address has no blanks and backslashes: write them as %20 and %5C"
        )
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ToolError(f"this is not the address of a page: {error}") from None
    if not (parsed.scheme and parsed.host):
        raise ToolError("write the whole address, as https://example.com/page")
    if parsed.userinfo:
        raise ToolError("write the address without a user name and password")
    return parsed.copy_with(fragment=None)


def _redirect_target(url: httpx.URL, response: httpx.Response) -> httpx.URL:
    location = response.headers.get("location", "")
    try:
        target = url.join(location).copy_with(fragment=None)
        _parse_url(str(target))
        is_usable = 0 < len(location) <= MAX_URL
    except (httpx.InvalidURL, ToolError):
        target, is_usable = url, False
    if not is_usable:
        raise ToolError(f"{url} redirects to an address that cannot be read")
    if url.scheme == "https" and target.scheme != "https":
        raise ToolError(
            f"{url} redirects to an address without encryption, which is not followed"
        )
    return target


def _is_from_private_network(response: httpx.Response) -> bool:
    """Whether an answer came from an address that is not public; false if it is not known."""
    server = response.extensions["network_stream"].get_extra_info("server_addr")
    address = address_of(server[0]) if server else None
    return address is not None and not is_public(address)


def _plain_host(url: httpx.URL) -> str:
    try:
        return plain_host(url.raw_host.decode("ascii"))
    except ValueError:
        return ""


def _format_status(code: int) -> str:
    try:
        return f"{code} ({http.HTTPStatus(code).phrase})"
    except ValueError:
        return str(code)


def _format_failure(host: str, error: httpx.HTTPError) -> str:
    """Return a failed connection for a model, without the addresses and systems behind the name."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"{host} has no valid certificate"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectError):
        return f"{host} could not be reached"
    return f"the answer of {host} broke off, or was not HTTP"


def _decode(body: bytes, content_type: str, *, is_html: bool) -> str:
    """Return a body as text.

    Its byte order mark decides, then its content type, then the `<meta>` of HTML; else it is UTF-8,
    or Latin if it cannot be.
    """
    for mark, encoding in BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    declared = CHARSET.findall(content_type)[:1]
    in_page = META.findall(body[:2048])[:1] if is_html else []
    labels = declared or [label.decode("ascii", "replace") for label in in_page]
    codec = _find_codec("".join(labels))
    if codec:
        return body.decode(codec, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("utf-8" if declared else "cp1252", "replace")


def _find_codec(label: str) -> str:
    """Return the codec for a label; an empty text if there is none that is safe to use."""
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return ""
    if name in LATIN:
        return "cp1254" if name == "iso8859-9" else "cp1252"
    return name if CHARSETS.fullmatch(name) else ""
