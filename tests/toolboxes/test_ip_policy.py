"""Which addresses are public, which hosts are written as hosts, and what lists admit."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import ConfigError
from loopwright.toolboxes.ip_policy import (
    Destinations,
    HostList,
    address_of,
    is_public,
    plain_host,
)

NOT_PUBLIC = {
    "this network": ["0.0.0.0", "0.1.2.3"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "private": [
        "10.0.0.1",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "192.168.255.255",
    ],
    "carrier-grade NAT": ["100.64.0.1", "100.127.255.255", "100.100.100.200"],
    "link-local": ["169.254.0.1", "169.254.169.254", "fe80::1", "fe80::1%1", "febf::1"],
    "protocols": ["192.0.0.1", "192.0.0.170", "192.0.0.192"],
    "documentation": [
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "2001:db8::1",
        "3fff::1",
    ],
    "benchmarks": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "4000::1", "e000::1"],
    "unspecified": ["::"],
    "a cloud's own": [
        "168.63.129.16",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
    ],
    "unique-local": ["fc00::1", "fdff:ffff::1"],
    "site-local": ["fec0::1", "feff::1"],
    "discarded": ["100::1"],
    "segment routing": ["5f00::1"],
    "IPv4-mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"],
    "IPv4-compatible": ["::127.0.0.1", "::10.0.0.1", "::8.8.8.8"],
    "IPv4-translated": ["::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"],
    "NAT64": [
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b::100.64.0.1",
    ],
    "local NAT64": ["64:ff9b:1::1", "64:ff9b:1::8.8.8.8", "64:ff9b:0:1::8.8.8.8"],
    "6to4": ["2002:7f00:1::1", "2002:a00:1::", "2002:808:808::1", "192.88.99.1"],
    "Teredo": ["2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "ORCHID": ["2001:10::1", "2001:20::1"],
    "ISATAP": ["2600::5efe:10.0.0.1", "2600::200:5efe:127.0.0.1"],
}
PUBLIC = [
    *(
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
    ),
    *(
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
    ),
    *(
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "168.63.129.15",
    ),
    *(
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00:1450::1",
        "2001:200::1",
        "2003::1",
        "::ffff:8.8.8.8",
    ),
    "64:ff9b::8.8.8.8",
]


@pytest.mark.parametrize("kind", NOT_PUBLIC)
def test_what_leads_into_a_network_of_one_s_own_or_nowhere_is_not_public(
    kind: str,
) -> None:
    assert [text for text in NOT_PUBLIC[kind] if is_public(ip_address(text))] == []


def test_the_neighbours_of_what_is_not_public_are_public() -> None:
    assert [text for text in PUBLIC if not is_public(ip_address(text))] == []


@given(st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_calls_private(address) -> None:
    inner = getattr(address, "ipv4_mapped", None) or address
    doubtful = (
        inner.is_private
        or inner.is_loopback
        or inner.is_link_local
        or inner.is_multicast
        or inner.is_reserved
    )

    assert not (is_public(address) and doubtful) or "64:ff9b::" in str(address)


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:", "64:ff9b::"]))
def test_an_address_within_an_address_is_as_public_as_itself(
    inner, prefix: str
) -> None:
    assert is_public(ip_address(f"{prefix}{inner}")) is is_public(inner)


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("under_score.example", "under_score.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("::FFFF:127.0.0.1", "127.0.0.1"),
        ("2606:4700:0:0::1111", "2606:4700::1111"),
        ("0x7f.example", "0x7f.example"),
    ],
)
def test_a_host_has_one_way_to_be_written(host: str, plain: str) -> None:
    assert plain_host(host) == plain


@pytest.mark.parametrize(
    "host",
    [
        *(
            "0x7f000001",
            "0X7F000001",
            "2130706433",
            "017700000001",
            "127.1",
            "127.0.1",
            "0x7f.1",
            "0177.0.0.1",
        ),
        *(
            "127.0.0.0x1",
            "127.0.0.01",
            "256.1.1.1",
            "1.2.3.4.5",
            "example.1",
            "example.0x",
            "2130706433.",
        ),
        *(
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "a%00b",
            "a/b",
            "a@b",
            "a:b",
            "[::1]",
            "\uff11\uff12\uff17.0.0.1",
            "bücher.example",
        ),
        *("x" * 64, ".".join(["x" * 60] * 5), "a\n", "fe80::1%25eth0%"),
    ],
)
def test_what_resolvers_may_read_in_several_ways_is_no_host(host: str) -> None:
    with pytest.raises(
        ValueError, match="not a host name, and not an address in its usual form"
    ):
        plain_host(host)


def test_a_list_has_names_all_below_a_name_addresses_and_networks() -> None:
    listed = HostList.of(
        "allow",
        ["Example.com, *.python.org", "10.0.0.5", "192.168.0.0/16", "::ffff:1.2.3.4"],
    )
    hosts = [
        "example.com",
        "www.example.com",
        "docs.python.org",
        "a.b.python.org",
        "python.org",
        "evilpython.org",
    ]
    hosts += ["10.0.0.5", "10.0.0.6", "192.168.7.7", "1.2.3.4", "example.com.evil.org"]

    assert [host for host in hosts if listed.has_host(host)] == [
        *(
            "example.com",
            "docs.python.org",
            "a.b.python.org",
            "10.0.0.5",
            "192.168.7.7",
            "1.2.3.4",
        )
    ]
    assert (
        str(listed)
        == "example.com, *.python.org, 10.0.0.5/32, 192.168.0.0/16, 1.2.3.4/32"
    )


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "a,,b",
        "https://example.com",
        "example.com/x",
        "example.com:443",
        "*",
        "*.",
        "*.*",
        "exam*le.com",
        "10.0.0.5/8",
    ],
)
@pytest.mark.parametrize("field", ["allow", "deny", "allow_private"])
def test_a_list_with_something_else_in_it_is_refused_at_once(
    entry: str, field: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: "):
        Destinations(**{field: entry})


def test_a_port_that_is_none_is_refused_at_once() -> None:
    for ports in [(0,), (80, 65536), (-1,)]:
        with pytest.raises(ConfigError, match=r"^ports: must be numbers"):
            Destinations(ports=ports)


def test_scheme_port_and_lists_decide_before_anything_is_looked_up() -> None:
    places = Destinations(
        "example.com,*.example.com",
        deny="bad.example.com",
        allow_private="intranet.example,10.0.0.5",
    )
    asked = {
        ("https", "example.com", 443): None,
        ("http", "www.example.com", 80): None,
        ("http", "intranet.example", 80): None,
        ("http", "10.0.0.5", 80): None,
        ("ftp", "example.com", 443): "only http and https can be opened, not 'ftp'",
        (
            "https",
            "example.com",
            22,
        ): "port 22 of example.com may not be reached; ports: 80, 443",
        ("https", "bad.example.com", 443): "bad.example.com may not be reached",
        (
            "https",
            "evil.example",
            443,
        ): "evil.example is not on the list of hosts that may be reached",
        (
            "http",
            "10.0.0.6",
            80,
        ): "10.0.0.6 is not on the list of hosts that may be reached",
    }

    assert {place: places.find_problem(*place) for place in asked} == asked


def test_without_a_list_every_host_may_be_asked_for_and_its_addresses_decide() -> None:
    places = Destinations(deny=["9.9.9.9", "149.112.112.0/24"])
    found = [
        "1.1.1.1",
        "9.9.9.9",
        "64:ff9b::9.9.9.9",
        "149.112.112.112",
        "10.0.0.1",
        "::1",
        "2606:4700::1111",
    ]

    assert places.find_problem("https", "anywhere.example", 443) is None
    assert [
        each for each in found if places.admits("anywhere.example", ip_address(each))
    ] == [
        "1.1.1.1",
        "2606:4700::1111",
    ]


def test_private_networks_are_admitted_by_any_name_and_names_for_own_networks() -> None:
    places = Destinations(
        allow_private=["10.0.0.0/8", "intranet.example", "*.lan.example"]
    )
    inside = [
        "10.1.2.3",
        "192.168.0.1",
        "127.0.0.1",
        "100.64.0.1",
        "fd12::1",
        "::1",
        "1.1.1.1",
    ]
    never = [
        "169.254.169.254",
        "fe80::1",
        "0.0.0.0",
        "224.0.0.1",
        "100.100.100.200",
        "fd00:ec2::254",
        "168.63.129.16",
    ]
    never += ["fd00:ec2::23", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd20:ce::254"]

    def admitted(host: str) -> list[str]:
        return [
            each for each in [*inside, *never] if places.admits(host, ip_address(each))
        ]

    assert admitted("intranet.example") == inside
    assert admitted("db.lan.example") == inside
    assert admitted("other.example") == ["10.1.2.3", "1.1.1.1"]


def test_a_denied_address_is_denied_whatever_else_admits_it() -> None:
    places = Destinations(
        "example.com", deny="10.0.0.5", allow_private="10.0.0.0/8,example.com"
    )

    assert not places.admits("example.com", ip_address("10.0.0.5"))
    assert places.admits("example.com", ip_address("10.0.0.6"))


def test_an_address_is_read_in_its_usual_form_only() -> None:
    texts = [
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "127.1",
        "0x7f000001",
        "2130706433",
        "example.com",
        "",
    ]

    assert [str(address_of(text)) for text in texts] == [
        "127.0.0.1",
        "127.0.0.1",
        *["None"] * 5,
    ]
