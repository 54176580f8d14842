"""Which hosts, ports and addresses tools may reach: pure rules, without a socket."""

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TypeAlias

from ..errors import ConfigError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

PORTS = (80, 443)
NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label with which resolvers read the whole name as an IPv4 address."""

# From IANA's registries of special-purpose addresses, in full: `ipaddress` differs by release.
NOT_PUBLIC_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network: many systems take 0.0.0.0 for the machine itself
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "168.63.129.16/32",  # looks public, and is Azure's own services beside each virtual machine
        "169.254.0.0/16",  # link-local, with the clouds' metadata at 169.254.169.254
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# All addresses that are assigned; unique-local, site-local and link-local ones lie outside.
PUBLIC_6 = IPv6Network("2000::/3")
NOT_PUBLIC_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # Teredo and other protocols
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
NAT64 = IPv6Network("64:ff9b::/96")
# Third quarter of an address that is a tunnel to an IPv4 address.
ISATAP = (0x00005EFE, 0x02005EFE)

# The addresses of a name that may be private: private networks, without the metadata of clouds.
PRIVATE = tuple(
    ip_network(network)
    for network in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::1",
        "fc00::/7",
    )
)
# Alibaba, AWS, Google, Oracle, Scaleway; a network if a cloud has more than one such service.
METADATA = tuple(
    ip_network(network)
    for network in (
        "100.100.100.200",
        "fd00:ec2::/32",
        "fd20:ce::/32",
        "fd00:c1::/32",
        "fd00:42::/32",
    )
)


def address_of(text: str) -> Address | None:
    """Return the address that a text is in its usual form, or `None`.

    An IPv4 address that is mapped into IPv6 is returned as IPv4.
    """
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Address) else found.ipv4_mapped or found


def embedded_address(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one leads to; else the address itself.

    These are mapped addresses (RFC 4291) and those behind NAT64 (RFC 6052).
    """
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet, and does not lead to a private network.

    An IPv6 address that leads to an IPv4 one is as public as that. Tunnels (6to4, Teredo, ISATAP) and
    IPv4-compatible addresses never are.
    """
    target = embedded_address(address)
    if not target.is_global:
        return False
    if isinstance(target, IPv4Address):
        return not is_in(target, NOT_PUBLIC_4)
    return _is_assigned(target) and not is_in(target, NOT_PUBLIC_6)


def _is_assigned(address: IPv6Address) -> bool:
    is_isatap = (int(address) >> 32) & 0xFFFFFFFF in ISATAP
    return address in PUBLIC_6 and address.scope_id is None and not is_isatap


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    """Whether an address is in one of the networks."""
    return any(address in network for network in networks)


def plain_host(host: str) -> str:
    """Return a host as it is compared and connected to.

    That is lower case, without the final dot, an address in its usual form. Raises `ValueError` for a
    text that is neither a name of ASCII letters, digits, "-" and "_" nor an address in its usual
    form. `0x7f000001`, `2130706433`, `017700000001` and `127.1` are refused, though resolvers accept
    them.
    """
    plain = host.lower().removesuffix(".")
    address = address_of(plain)
    if address is not None:
        return str(address)
    if not _is_host_name(plain):
        raise ValueError(
            f"{host[:100]!r} is not a host name, and not an address in its usual form"
        )
    return plain


def _is_host_name(name: str) -> bool:
    if len(name) > 253 or not NAME.fullmatch(name):
        return False
    return not NUMERIC_LABEL.fullmatch(name.rpartition(".")[2])


@dataclass(frozen=True)
class HostList:
    """A list of hosts: names, `*.example.com` for all below a name, addresses and networks."""

    names: frozenset[str]
    below: tuple[str, ...]
    networks: tuple[Network, ...]

    @classmethod
    def of(cls, field: str, given: Iterable[str] | str) -> "HostList":
        """Parse the list of a caller, as several texts or one with commas.

        Raises `ConfigError` naming `field`.
        """
        texts = [given] if isinstance(given, str) else list(given)
        entries = (part.strip() for text in texts for part in text.split(","))
        names: set[str] = set()
        below: list[str] = []
        networks: list[Network] = []
        for entry in entries:
            network = _parse_network(entry)
            if network is not None:
                networks.append(network)
            elif entry.startswith("*."):
                below.append("." + _parse_name(field, entry, entry[2:]))
            else:
                names.add(_parse_name(field, entry, entry))
        return cls(frozenset(names), tuple(below), tuple(networks))

    def __bool__(self) -> bool:
        return bool(self.names or self.below or self.networks)

    def __str__(self) -> str:
        below = (f"*{end}" for end in self.below)
        return ", ".join([*sorted(self.names), *below, *map(str, self.networks)])

    def has_host(self, host: str) -> bool:
        """Whether a plain host is on the list."""
        if host in self.names or host.endswith(self.below):
            return True
        address = address_of(host)
        return address is not None and self.has_address(address)

    def has_address(self, address: Address) -> bool:
        """Whether an address is in one of the networks."""
        return is_in(address, self.networks)


def _parse_network(entry: str) -> Network | None:
    try:
        return ip_network(address_of(entry) or entry)
    except ValueError:
        return None


def _parse_name(field: str, entry: str, name: str) -> str:
    try:
        return plain_host(name)
    except ValueError:
        raise ConfigError(
            f"{field}: {entry!r} is not a host; write 'example.com', '*.example.com', an address or a network, "
            "without scheme, port and path, and a name with other letters as in DNS, 'xn--…'"
        ) from None


class Destinations:
    """The hosts that tools may connect to; arguments as for `GuardedTransport`."""

    def __init__(
        self,
        allow: Iterable[str] | str = (),
        *,
        deny: Iterable[str] | str = (),
        allow_private: Iterable[str] | str = (),
        ports: Iterable[int] = PORTS,
    ) -> None:
        self.allow = HostList.of("allow", allow)
        self.deny = HostList.of("deny", deny)
        self.private = HostList.of("allow_private", allow_private)
        self.ports = tuple(ports)
        if not all(0 < port < 65536 for port in self.ports):
            raise ConfigError(
                f"ports: must be numbers from 1 to 65535, got {self.ports}"
            )

    def public_only(self) -> "Destinations":
        """Return the same policy without private hosts."""
        other = copy.copy(self)
        other.private = HostList.of("allow_private", ())
        return other

    def publishes(self, host: str) -> bool:
        """Whether a host is allowed by its name or address, and not as one that may be private."""
        return self.allow.has_host(host) and not self.private.has_host(host)

    def names(self, host: str) -> bool:
        """Whether a host is allowed by its name or address, and not only because it is public."""
        return self.allow.has_host(host) or self.private.has_host(host)

    def find_problem(self, scheme: str, host: str, port: int) -> str | None:
        """Return why a host may not be reached, for a model; `None` if its addresses decide."""
        if scheme not in ("http", "https"):
            return f"only http and https can be opened, not {scheme[:20]!r}"
        if port not in self.ports:
            return f"port {port} of {host} may not be reached; ports: {', '.join(map(str, self.ports))}"
        if self.deny.has_host(host):
            return f"{host} may not be reached"
        if self.allow and not self.names(host):
            return f"{host} is not on the list of hosts that may be reached"
        return None

    def admits(self, host: str, address: Address) -> bool:
        """Whether a host may be reached at one of its addresses."""
        if self._denies(address):
            return False
        if is_public(address) or self.private.has_address(address):
            return True
        return self.private.has_host(host) and _may_be_allowed(address)

    def _denies(self, address: Address) -> bool:
        denied = (address, embedded_address(address))
        return any(map(self.deny.has_address, denied))


def _may_be_allowed(address: Address) -> bool:
    """Whether a name that may be private may have this address."""
    return is_in(address, PRIVATE) and not is_in(address, METADATA)
