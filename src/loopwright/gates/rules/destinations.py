"""The hosts to which a text would send something, as far as all clients read the same ones."""

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from ..._internal import dataclasses
from ...errors import ConfigError

# Only schemes whose host is the host that the request goes to.
_URL = re.compile(r"(?:https?|wss?|ftp)://[^ ]*", re.I)
_LABELS = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)
# Only the characters that mailboxes need. Neither mailboxes nor display names may contain what
# ends the host of a URL, since a client may read `evil.com/@example.com` as a URL without its
# scheme, nor what a mail program reads as an option or a route.
_MAILBOX = re.compile(r"(?!-)[A-Za-z0-9_+'=-]+(?:\.[A-Za-z0-9_+'=-]+)*")
# The text before an `&` must not look like a host that a query follows (`evil.com&x`), and there
# must not be a `cc=`.
_MAILBOX_AND = re.compile(
    r"(?!localhost&)[a-z][a-z0-9_+'-]*(?:&[a-z0-9_+'-]+)+(?:\.[a-z0-9_+'-]+)*",
    re.I | re.A,
)
_NAME = re.compile(r"(?!-)[^<>@,;:\"\\()\[\]/?#!%|{}^`$=*~]*")
# In `Sales #1 <a@example.com>` no client can find another host, as long as no host stands before
# the character that would end it: nothing with a dot, a number or an escape. Routes (`evil!bob`)
# and encoded words (`=?utf-8?...`) are refused as well.
_LOOSE_NAME = re.compile(
    r"(?=.* )[^\W_](?:[^<>@,;:\"\\()\[\]|{}^`~.。．｡!%=]|[!%](?= |\Z)|=(?!\?))*"  # noqa: RUF001
)
_BEFORE_END = re.compile(r"(?!localhost *\Z)[a-z][a-z0-9 &'_+-]*", re.I | re.A)
_SEPARATOR = re.compile("[,;]")
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*")
_PORT = re.compile("[0-9]{1,5}")


@dataclasses.dataclass(frozen=True)
class Destination:
    """A host, in lower case and ASCII, and the mailbox there if it is a mail address."""

    host: str
    mailbox: str | None = None


@dataclasses.dataclass(frozen=True)
class DestinationPattern:
    """A host or all hosts below it, and there one mailbox, every mailbox (`*`) or anything (`None`)."""

    host: str
    below: bool
    mailbox: str | None

    def matches(self, destination: Destination) -> bool:
        """Whether a destination is covered by the pattern."""
        return self._matches_mailbox(destination) and self._matches_host(destination)

    def _matches_mailbox(self, destination: Destination) -> bool:
        if self.mailbox is None:
            return True
        if self.mailbox == "*":
            return destination.mailbox is not None
        return destination.mailbox == self.mailbox

    def _matches_host(self, destination: Destination) -> bool:
        if self.below:
            return destination.host.endswith(f".{self.host}")
        return destination.host == self.host


def parse_pattern(text: str) -> DestinationPattern:
    """Parse "example.com", "*.example.com", "*@example.com" or "bob@example.com".

    Raises `ConfigError`.
    """
    mailbox, at, host_text = text.rpartition("@")
    below = host_text.startswith("*.")
    try:
        host = _normalize_host(host_text.removeprefix("*."))
        _check(not at or mailbox == "*" or _is_mailbox(mailbox))
        _check(not (below and _is_ip_address(host)))
    except ValueError:
        raise ConfigError(
            f'{text!r} is not a destination; write "example.com", "*.example.com" for all '
            'hosts below it, "*@example.com" for mail only, or "bob@example.com"'
        ) from None
    return DestinationPattern(host, below, mailbox.lower() if at else None)


def parse_destinations(text: str) -> Sequence[Destination] | None:
    """Return the destinations in a text, separated by commas or semicolons.

    Returns `None` if two clients might read an entry differently, or if an entry is not a URL,
    a mail address or a host name.
    """
    if not text:
        return ()
    if not text.isprintable():  # no line breaks, no tabs, no invisible characters
        return None
    try:
        return [
            _parse_destination(entry.strip(" ")) for entry in _SEPARATOR.split(text)
        ]
    except ValueError:
        return None


def _check(condition: object) -> None:
    """Raise `ValueError`, for a text that is ambiguous or not a destination."""
    if not condition:
        raise ValueError


def _parse_destination(entry: str) -> Destination:
    if "://" in entry:
        return _parse_url(entry)
    if "@" in entry:
        return _parse_mail_address(entry)
    name, colon, port = entry.partition(":")
    _check(not colon or _PORT.fullmatch(port))
    host = _normalize_host(name)
    _check("." in host or host == "localhost")
    return Destination(host)


def _parse_url(text: str) -> Destination:
    _check(_URL.fullmatch(text))
    split = urlsplit(text)
    _ = split.port  # raises `ValueError` for a port that is not a number
    _check("@" not in split.netloc)  # http://good.com@evil.com
    return Destination(_normalize_host(split.hostname or ""))


def _parse_mail_address(text: str) -> Destination:
    if text.endswith(">"):
        name, _, text = text[:-1].partition("<")
        _check(_NAME.fullmatch(name) or _is_loose_name(name))
    mailbox, _, host = text.rpartition("@")
    _check(len(mailbox) <= 64 and _is_mailbox(mailbox))
    return Destination(_normalize_host(host), mailbox.lower())


def _is_mailbox(text: str) -> bool:
    matched = _MAILBOX.fullmatch(text) or _MAILBOX_AND.fullmatch(text)
    return matched is not None


def _is_loose_name(text: str) -> bool:
    """Whether a text is a display name although it contains what may end a host."""
    if not _LOOSE_NAME.fullmatch(text):
        return False
    head, *rest = re.split("[/?#]", text, maxsplit=1)
    return not rest or _BEFORE_END.fullmatch(head) is not None


def _normalize_host(name: str) -> str:
    """Return a host in lower case and punycode, without a final dot.

    Raises `ValueError` for one that clients may read differently.
    """
    name = name.lower().removesuffix(".")
    if ":" in name:
        return _normalize_ipv6(name)
    _check(len(name) <= 253)
    name = _encode_punycode(name)
    _check(_LABELS.fullmatch(name))
    # Refuses 0x7f.1, 2130706433 and 127.1, which some clients read as addresses.
    return str(ipaddress.IPv4Address(name)) if _is_ip_address(name) else name


def _normalize_ipv6(name: str) -> str:
    address = ipaddress.IPv6Address(name)
    _check(not address.scope_id)
    return str(address.ipv4_mapped or address)


def _is_ip_address(name: str) -> bool:
    """Whether a client reads a host as an address: by its last label (URL standard, WHATWG)."""
    return ":" in name or _NUMBER.fullmatch(name.rpartition(".")[2]) is not None


def _encode_punycode(name: str) -> str:
    """Return the ASCII form of a name that is another way to write exactly that name.

    A text that only a mapping turns into a name (full-width letters, ß, joiners) is refused:
    clients map it differently. Look-alikes appear as what they are.
    """
    if name.isascii():
        return name
    encoded = name.encode("idna")
    _check(encoded.decode("idna") == name)
    return encoded.decode("ascii")
