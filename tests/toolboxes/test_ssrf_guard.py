"""The guarded transport: nothing but checked addresses is connected to, and no answer takes more than it may."""

import asyncio
import gzip
import itertools
import socket
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from lateness import allowed
from loopwright import ConfigError, ToolError
from loopwright.toolboxes import GuardedTransport, ssrf_guard
from loopwright.toolboxes.ssrf_guard import RequestRefused, look_up
from websites import Answer, Site, answered, redirected, secure, website

HOME = "127.0.0.1"


class Names:
    """A name server: it gives each name the next of its answers (the last again and again), and counts."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {
            name.replace("_", "."): iter(given) for name, given in answers.items()
        }
        self._last: dict[str, Sequence[str]] = {}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        self._last[host] = next(self._answers[host], self._last.get(host, []))
        return self._last[host]


def client(site: Site, **options: object) -> httpx.AsyncClient:
    """A client of httpx that may reach 127.0.0.1 under any name, at the port of a site."""
    given = {"allow_private": [HOME], "ports": [site.port], **options}
    return httpx.AsyncClient(transport=GuardedTransport(**given), trust_env=False)


# --- where it does not go ---

FORMS = [
    *(
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "127.0.0.1.",
        "0.0.0.0",
        "0",
    ),
    *(
        "0x7f000001",
        "0X7F.1",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.01",
    ),
    *(
        "\uff11\uff12\uff17\uff0e\uff10\uff0e\uff10\uff0e\uff11",
        "127\u30020\u30020\u30021",
        "ⓛocalhost",
        "127.0.0.1%00.example.com",
        "example.com@127.0.0.1",
    ),
    *(
        "user:pw@localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
    ),
    *(
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::1]",
        "[fe80::1%25lo]",
    ),
    *(
        "100.64.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "224.0.0.1",
    ),
]


async def outcome(asked: Awaitable[httpx.Response]) -> str:
    """The name of the error that a request ended with."""
    try:
        await asked
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return type(error).__name__
    return "answered"


async def test_no_way_to_write_an_address_of_this_machine_or_its_networks_reaches_it() -> (
    None
):
    async with website() as site, client(site, allow_private=()) as http:
        ends = {
            host: await outcome(http.get(f"http://{host}:{site.port}/"))
            for host in FORMS
        }

        assert {
            host: end
            for host, end in ends.items()
            if end not in ("RequestRefused", "InvalidURL")
        } == {}
        assert site.connections == 0
        assert (
            await outcome(http.get(f"http://127.0.0.1.nip.invalid:{site.port}/"))
        ) == "ConnectError"  # no name at all


async def test_no_way_to_write_an_address_slips_through_a_redirect_that_a_client_follows() -> (
    None
):
    names = Names(public_example=[[HOME]])
    async with website() as site:
        async with client(
            site, allow_private=["public.example"], resolve=as_the_system(names)
        ) as http:
            ends: dict[str, str] = {}
            for host in FORMS:
                site.answers["/"] = redirected(f"http://{host}:{site.port}/inside")
                url = f"http://public.example:{site.port}/"
                ends[host] = await outcome(http.get(url, follow_redirects=True))

        assert {
            host: end
            for host, end in ends.items()
            if end not in ("RequestRefused", "RemoteProtocolError")
        } == {}
        assert set(site.asked) == {"GET /"}


def as_the_system(names: Names) -> Callable[[str, int], object]:
    """Names that are known here, and for all others the operating system."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return (
            await names(host, port)
            if host.endswith(".example")
            else await look_up(host, port)
        )

    return resolve


@pytest.mark.parametrize(
    "form", ["0x7f000001", "2130706433", "017700000001", "127.1", "localhost"]
)
async def test_a_form_that_resolves_to_this_machine_is_refused_by_its_address_too(
    form: str,
) -> None:
    """Two lines of defence: also a host that passed as a name is refused for what it stands for."""
    names = Names(odd_example=[await look_up(form, 80)])
    async with website() as site, client(site, allow_private=(), resolve=names) as http:
        with pytest.raises(
            RequestRefused, match=r"^odd\.example is not a public address$"
        ):
            await http.get(f"http://odd.example:{site.port}/")

        assert (site.connections, names.asked) == (0, ["odd.example"])


@pytest.mark.parametrize(
    "addresses",
    [
        ["8.8.8.8", "127.0.0.1"],
        ["127.0.0.1", "8.8.8.8"],
        ["2606:4700::1111", "::1"],
        ["8.8.8.8", "nonsense"],
        ["fe80::1%1"],
    ],
)
async def test_one_bad_address_spoils_all_that_a_name_has(addresses: list[str]) -> None:
    names = Names(mixed_example=[addresses])
    async with website() as site, client(site, allow_private=(), resolve=names) as http:
        with pytest.raises(
            RequestRefused, match=r"^mixed\.example is not a public address$"
        ):
            await http.get(f"http://mixed.example:{site.port}/")

        assert site.connections == 0


async def test_a_name_that_is_rebound_after_the_check_is_not_looked_up_again() -> None:
    names = Names(rebind_example=[[HOME], ["127.0.0.2"]])
    async with (
        website() as site,
        website(host="127.0.0.2", port=site.port) as inside,
        client(site, resolve=names) as http,
    ):
        first = await http.get(f"http://rebind.example:{site.port}/")
        again = await http.get(
            f"http://rebind.example:{site.port}/"
        )  # over the same connection

        assert (first.text, again.text) == ("hello", "hello")
        assert (site.connections, inside.connections, names.asked) == (
            1,
            0,
            ["rebind.example"],
        )


async def test_a_name_that_is_rebound_between_two_connections_is_checked_anew() -> None:
    names = Names(rebind_example=[[HOME], ["127.0.0.2"]])
    async with website() as site, website(host="127.0.0.2", port=site.port) as inside:
        async with client(site, resolve=names, max_idle=0) as http:
            assert (
                await http.get(f"http://rebind.example:{site.port}/")
            ).text == "hello"
            with pytest.raises(
                RequestRefused, match=r"^rebind\.example is not a public address$"
            ):
                await http.get(f"http://rebind.example:{site.port}/")

        assert (site.connections, inside.connections) == (1, 0)


async def test_scheme_port_and_lists_are_checked_before_anything_is_looked_up() -> None:
    names = Names()
    async with website() as site:
        for url, options, why in [
            (
                f"ftp://a.example:{site.port}/",
                {},
                "only http and https can be opened, not 'ftp'",
            ),
            (
                "http://a.example:22/",
                {},
                f"port 22 of a.example may not be reached; ports: {site.port}",
            ),
            (
                "https://a.example/",
                {},
                f"port 443 of a.example may not be reached; ports: {site.port}",
            ),
            (
                f"http://b.example:{site.port}/",
                {"allow": "a.example"},
                "b.example is not on the list of hosts that may be reached",
            ),
            (
                f"http://b.example:{site.port}/",
                {"deny": "*.example"},
                "b.example may not be reached",
            ),
        ]:
            async with client(site, resolve=names, **options) as http:
                with pytest.raises(RequestRefused) as caught:
                    await http.get(url)
            assert str(caught.value) == why

        assert (site.connections, names.asked) == (0, [])


async def test_a_denied_address_is_denied_under_every_name() -> None:
    names = Names(fine_example=[[HOME]])
    async with website() as site, client(site, resolve=names, deny=HOME) as http:
        with pytest.raises(RequestRefused, match="is not a public address"):
            await http.get(f"http://fine.example:{site.port}/")

        assert site.connections == 0


async def test_proxies_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with website() as site, website() as proxy, client(site) as http:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")

        assert (await http.get(f"http://127.0.0.1:{site.port}/")).text == "hello"
        assert (site.connections, proxy.connections) == (1, 0)


async def test_a_refusal_is_an_httpx_error_for_the_model_and_names_no_address() -> None:
    names = Names(intranet_example=[["10.1.2.3"]])
    transport = GuardedTransport(resolve=names)
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(RequestRefused) as caught:
            await http.get("http://intranet.example/")

    assert isinstance(caught.value, ToolError)
    assert isinstance(caught.value, httpx.TransportError)
    assert str(caught.value) == "intranet.example is not a public address"
    assert caught.value.request.url.host == "intranet.example"


# --- where it goes ---


async def test_what_is_allowed_by_name_network_or_address_is_reached() -> None:
    names = Names(wiki_intranet_example=[[HOME]])
    async with website() as site:
        for host, allowed in [
            ("127.0.0.1", "127.0.0.0/8"),
            ("wiki.intranet.example", "*.intranet.example"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
            ("WIKI.intranet.example.", "wiki.intranet.example"),
        ]:
            async with client(site, allow_private=allowed, resolve=names) as http:
                assert (await http.get(f"http://{host}:{site.port}/")).text == "hello"

    assert site.connections == 4


async def test_an_address_of_ipv6_is_reached_if_it_is_allowed() -> None:
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6 here")
    try:
        async with (
            website(host="::1") as site,
            client(site, allow_private="::1") as http,
        ):
            reply = await http.get(f"http://[0:0::1]:{site.port}/")
            host = site.heads[0].lower().partition("host: ")[2].partition("\r\n")[0]
    except OSError:
        pytest.skip("there is no IPv6 here")

    assert (reply.text, host) == ("hello", f"[::1]:{site.port}")


async def test_the_head_of_what_is_too_large_to_read_can_be_asked_for() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"
    async with website({"/": head}) as site, client(site, max_bytes=1000) as http:
        reply = await http.head(f"http://127.0.0.1:{site.port}/")

    assert reply.headers["content-length"] == "1000000"


async def test_host_and_encoding_are_the_transport_s_own_and_the_rest_is_the_caller_s() -> (
    None
):
    names = Names(a_example=[[HOME]])
    async with website() as site, client(site, resolve=names) as http:
        headers = {
            "host": "internal.example",
            "accept-encoding": "br",
            "x-own": "1",
            "user-agent": "me",
            "accept": "*/*",
        }
        await http.get(
            f"http://A.example.:{site.port}/",
            headers=headers,
            extensions={"target": b"/elsewhere"},
        )
        lines = site.heads[0].strip().split("\r\n")

    assert (lines[0], sorted(line.lower() for line in lines[1:])) == (
        "GET / HTTP/1.1",
        sorted(
            [
                *(
                    f"host: a.example:{site.port}",
                    "accept-encoding: gzip",
                    "x-own: 1",
                    "user-agent: me",
                    "accept: */*",
                ),
                "connection: keep-alive",
            ]
        ),
    )


async def test_a_body_is_sent() -> None:
    async with website() as site, client(site) as http:
        reply = await http.post(
            f"http://127.0.0.1:{site.port}/", content=b"BODY / 12345\r\n\r\n"
        )

    assert (reply.text, site.asked[0], site.heads[1]) == (
        "hello",
        "POST /",
        "BODY / 12345\r\n\r\n",
    )


async def test_redirects_are_left_to_the_caller() -> None:
    async with (
        website({"/": redirected("/next"), "/next": answered(b"there")}) as site,
        client(site) as http,
    ):
        here = await http.get(f"http://127.0.0.1:{site.port}/")
        there = await http.get(f"http://127.0.0.1:{site.port}/", follow_redirects=True)

    assert (here.status_code, there.text) == (302, "there")


async def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    names = Names(two_example=[["127.0.0.3", HOME]])
    async with (
        website() as site,
        client(site, allow_private=["127.0.0.0/8"], resolve=names) as http,
    ):
        assert (await http.get(f"http://two.example:{site.port}/")).text == "hello"


async def test_a_name_without_an_address_and_one_that_is_not_found_cannot_be_connected_to() -> (
    None
):
    async def fails(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    for resolve in (Names(gone_example=[[]]), fails):
        async with httpx.AsyncClient(
            transport=GuardedTransport(resolve=resolve)
        ) as http:
            with pytest.raises(
                httpx.ConnectError, match=r"^no address of gone\.example is known$"
            ):
                await http.get("http://gone.example/")


async def test_a_silent_name_server_is_awaited_no_longer_than_the_timeout() -> None:
    async def hangs(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(3600)
        return []

    async with httpx.AsyncClient(
        transport=GuardedTransport(resolve=hangs), timeout=0.05
    ) as http:
        with pytest.raises(
            httpx.ConnectTimeout,
            match=r"^the address of slow\.example was not found in time$",
        ):
            await http.get("http://slow.example/")


async def test_a_server_that_is_not_there_is_a_connect_error_and_the_next_request_is_fine() -> (
    None
):
    async with website() as site:
        gone = site.port
    async with website(port=gone) as site, client(site, max_idle=0) as http:
        assert (await http.get(f"http://127.0.0.1:{gone}/")).text == "hello"
    async with client(site) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"http://127.0.0.1:{gone}/")


class Hello(BaseHTTPRequestHandler):
    """A server that keeps its connections, in threads: it needs no event loop."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.wfile.write(answered(b"hello"))

    def log_message(self, *_: object) -> None:
        """Keep the report of the tests clean."""


def test_one_transport_serves_several_event_loops_each_over_connections_of_its_own() -> (
    None
):
    async def visit(transport: GuardedTransport) -> str:
        response = await transport.handle_async_request(
            httpx.Request("GET", f"http://127.0.0.1:{server.server_port}/")
        )
        text = await response.aread()
        await response.aclose()
        return text.decode()

    with (
        ThreadingHTTPServer((HOME, 0), Hello) as server,
        asyncio.Runner() as one,
        asyncio.Runner() as other,
    ):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        transport = GuardedTransport(allow_private=HOME, ports=[server.server_port])
        said = [runner.run(visit(transport)) for runner in (one, other, one, other)]
        for runner in (one, other):
            runner.run(transport.aclose())
        server.shutdown()

    assert said == ["hello"] * 4


@pytest.mark.parametrize("field", ["max_bytes", "timeout"])
def test_a_limit_that_is_none_is_refused_at_once(field: str) -> None:
    for value in (0, -1, float("nan")):
        with pytest.raises(ConfigError, match=f"^{field}: must be greater than 0"):
            GuardedTransport(**{field: value})


# --- TLS ---


async def test_name_and_certificate_of_a_tls_server_are_those_of_the_url(
    tmp_path: Path,
) -> None:
    asked: list[str | None] = []
    tls, trusted = secure(tmp_path, "secure.example")
    tls.sni_callback = lambda _, name, __: asked.append(name)
    names = Names(secure_example=[[HOME]], other_example=[[HOME]])
    async with (
        website(tls=tls) as site,
        client(site, resolve=names, ssl_context=trusted) as http,
    ):
        good = await http.get(f"https://secure.example.:{site.port}/")
        with pytest.raises(httpx.ConnectError, match="Hostname mismatch"):
            await http.get(f"https://other.example:{site.port}/")
        with pytest.raises(
            httpx.ConnectError, match="Hostname mismatch"
        ):  # no way to ask for another certificate
            await http.get(
                f"https://other.example:{site.port}/",
                extensions={"sni_hostname": "secure.example"},
            )

        assert (good.text, asked) == (
            "hello",
            ["secure.example", "other.example", "other.example"],
        )
        assert site.asked == ["GET /"]


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    tls, _ = secure(tmp_path, "secure.example")
    async with (
        website(tls=tls) as site,
        client(site, resolve=Names(secure_example=[[HOME]])) as http,
    ):
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await http.get(f"https://secure.example:{site.port}/")

        assert site.asked == []


# --- what an answer may take ---


async def fetched(answer: Answer, **options: object) -> httpx.Response:
    async with website({"/": answer}) as site, client(site, **options) as http:
        return await http.get(f"http://127.0.0.1:{site.port}/")


async def test_a_body_of_just_the_size_is_read_and_one_byte_more_is_not() -> None:
    assert len((await fetched(answered(b"x" * 1000), max_bytes=1000)).content) == 1000

    with pytest.raises(
        RequestRefused,
        match=r"^127\.0\.0\.1 sent more than 1000 bytes, which is more than is read$",
    ):
        await fetched(answered(b"x" * 1001), max_bytes=1000)


async def test_a_body_that_does_not_say_how_long_it_is_ends_at_the_size() -> None:
    sent = 0

    async def endless(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 10_000)
            await writer.drain()
            sent += 10_000

    with pytest.raises(RequestRefused, match="sent more than 100000 bytes"):
        await fetched(endless, max_bytes=100_000)
    assert sent < 50_000_000


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "GZIP"])
async def test_a_packed_body_is_unpacked(encoding: str) -> None:
    text = bytes(range(256)) * 1000
    packed = zlib.compress(text) if encoding == "deflate" else gzip.compress(text)
    reply = await fetched(
        answered(packed, content_encoding=encoding), max_bytes=len(text)
    )

    assert (
        reply.content == text,
        "content-encoding" in reply.headers,
        "content-length" in reply.headers,
    ) == (*(True, False, False),)


async def test_a_packed_body_of_several_members_is_unpacked_whole() -> None:
    reply = await fetched(
        answered(
            gzip.compress(b"one ") + gzip.compress(b"two"), content_encoding="gzip"
        )
    )

    assert reply.text == "one two"


async def test_a_bomb_is_noticed_before_it_goes_off() -> None:
    pieces: list[int] = []

    async def read(site: Site, http: httpx.AsyncClient) -> None:
        async with http.stream("GET", f"http://127.0.0.1:{site.port}/") as reply:
            async for piece in reply.aiter_raw():
                pieces.append(len(piece))

    bomb = gzip.compress(bytes(50_000_000), 6)
    async with (
        website({"/": answered(bomb, content_encoding="gzip")}) as site,
        client(site, max_bytes=1_000_000) as http,
    ):
        with pytest.raises(RequestRefused, match="sent more than 1000000 bytes"):
            await read(site, http)

    assert (len(bomb) < 60_000, set(pieces), sum(pieces)) == (
        True,
        {65_536},
        15 * 65_536,
    )


@pytest.mark.parametrize(
    "encoding", ["br", "zstd", "compress", "gzip, gzip", "aes128gcm"]
)
async def test_a_body_that_is_packed_in_another_way_is_refused(encoding: str) -> None:
    with pytest.raises(
        RequestRefused, match="with a content encoding that was not requested"
    ):
        await fetched(answered(b"x", content_encoding=encoding))


async def test_a_packed_body_of_nothing_ends_at_the_size_too() -> None:
    with pytest.raises(RequestRefused, match="sent more than 10000 bytes"):
        await fetched(
            answered(gzip.compress(b"") * 1000, content_encoding="gzip"),
            max_bytes=10_000,
        )


async def test_an_answer_that_is_refused_for_its_head_is_hung_up_on() -> None:
    hung_up = asyncio.Event()

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 100_000)
                await writer.drain()
        except OSError:
            hung_up.set()

    async with website({"/": endless}) as site, client(site) as http:
        with pytest.raises(RequestRefused, match="with a content encoding"):
            await http.get(f"http://127.0.0.1:{site.port}/")
        await asyncio.wait_for(hung_up.wait(), 60)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], "the compressed body was cut short"),
        (b"this is no gzip at all", "cannot be decompressed"),
        (gzip.compress(b"x", mtime=0) + b"and more", "cannot be decompressed"),
    ],
)
async def test_a_packed_body_that_is_broken_is_not_taken_for_whole(
    body: bytes, why: str
) -> None:
    with pytest.raises(httpx.DecodingError, match=why):
        await fetched(answered(body, content_encoding="gzip"))


async def test_an_empty_body_may_call_itself_packed() -> None:
    assert (await fetched(answered(b"", content_encoding="gzip"))).content == b""


async def trickle_head(writer: asyncio.StreamWriter) -> None:
    for byte in itertools.chain(b"HTTP/1.1 200 OK\r\n", itertools.cycle(b"x: y\r\n")):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.01)


async def trickle_body(writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100000\r\n\r\n"
    )
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0.01)


async def trickle_notes(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("slow", [trickle_head, trickle_body, trickle_notes])
async def test_a_server_that_lets_its_answer_trickle_is_left_at_the_deadline(
    slow: Answer,
) -> None:
    start = time.monotonic()
    with pytest.raises(
        httpx.ReadTimeout,
        match=r"^127\.0\.0\.1 did not answer in full within 0\.3 seconds$",
    ):
        await fetched(slow, timeout=0.3)

    assert time.monotonic() - start < 2 + allowed()


async def test_a_head_without_end_is_refused() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"".join(
        b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(200)
    )

    with pytest.raises(httpx.RemoteProtocolError):
        await fetched(head + b"\r\n")


async def test_an_answer_that_breaks_off_is_an_error() -> None:
    async def breaks_off(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()

    with pytest.raises(httpx.RemoteProtocolError):
        await fetched(breaks_off)


async def test_after_a_refused_answer_the_transport_goes_on() -> None:
    answers: dict[str, Answer] = {
        "/large": answered(b"x" * 2000),
        "/odd": answered(b"x", content_encoding="br"),
    }
    async with (
        website({**answers, "/": answered(b"fine")}) as site,
        client(site, max_bytes=1000) as http,
    ):
        for path in ("/large", "/odd"):
            with pytest.raises(RequestRefused):
                await http.get(f"http://127.0.0.1:{site.port}{path}")

        assert (await http.get(f"http://127.0.0.1:{site.port}/")).text == "fine"


async def test_name_servers_that_do_not_answer_hold_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, real = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: str, *options: Any, **named: Any) -> Any:
        if host.startswith("slow"):
            go.wait(60)
            raise OSError("no answer")
        return real("127.0.0.1", *options, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(ssrf_guard, "MAX_HANGING", 10)
    transport = GuardedTransport(timeout=0.3)
    try:
        async with httpx.AsyncClient(transport=transport) as http:
            slow = [http.get(f"http://slow{number}.example/") for number in range(40)]
            ends = [
                type(end) for end in await asyncio.gather(*slow, return_exceptions=True)
            ]
            assert set(ends) <= {httpx.ConnectTimeout, httpx.ReadTimeout}

            async with asyncio.timeout(10):  # the event loop's own threads are free
                await asyncio.gather(*(asyncio.to_thread(int) for _ in range(40)))
                assert await asyncio.get_running_loop().getaddrinfo("good.example", 80)
            before = threading.active_count()
            while ssrf_guard._LOOK_UPS.abandoned < 10:
                with pytest.raises((httpx.ConnectTimeout, httpx.ReadTimeout)):
                    await http.get("http://slow.example/")
            with pytest.raises(httpx.ConnectError):
                await http.get("http://good.example/")
            assert threading.active_count() <= before + 10
    finally:
        go.set()
    while ssrf_guard._LOOK_UPS.abandoned:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    with pytest.raises(ssrf_guard.RequestRefused, match="not a public address"):
        await GuardedTransport().handle_async_request(
            httpx.Request("GET", "http://good.example/")
        )
