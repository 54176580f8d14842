"""Where a text would send something: the hosts of URLs and mail addresses, read so that no client reads others."""

import dataclasses
import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from ...errors import ConfigError

_SCHEME = re.compile(
    r"(?:https?|wss?|ftp)://", re.I
)  # those of which the host is where the request goes
_LABELS = re.compile(
    r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)
# No more than mailboxes need: neither in them nor in names of people stands what ends the host of a URL, since a client
# may take `evil.com/@example.com` for one without its scheme, nor what a mail program takes for an option or a route.
_MAILBOX = re.compile(r"(?!-)[A-Za-z0-9_+'=-]+(?:\.[A-Za-z0-9_+'=-]+)*")
# What stands before an `&` must not look like a host with a query behind it (`evil.com&x`), nor may there be a `cc=`.
_MAILBOX_AND = re.compile(
    r"(?!localhost&)[a-z][a-z0-9_+'-]*(?:&[a-z0-9_+'-]+)+(?:\.[a-z0-9_+'-]+)*",
    re.I | re.A,
)
_NAME = re.compile(r"(?!-)[^<>@,;:\"\\()\[\]/?#!%|{}^`$=*~]*")
# In `Sales #1 <a@example.com>` no client can find another host, as long as there is none in front of what ends one:
# nothing with a dot, a number or an escape. Nor are there routes (`evil!bob`) and encoded words (`=?utf-8?...`).
_LOOSE_NAME = re.compile(
    r"(?=.* )[^\W_](?:[^<>@,;:\"\\()\[\]|{}^`~.。．｡!%=]|[!%](?= |\Z)|=(?!\?))*"  # noqa: RUF001
)
_BEFORE_END = re.compile(r"(?!localhost *\Z)[a-z][a-z0-9 &'_+-]*", re.I | re.A)
_BETWEEN = re.compile("[,;]")
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]*")
_PORT = re.compile("[0-9]{1,5}")


@dataclasses.dataclass(frozen=True)
class Destination:
    """A host, in lower case and ASCII, and the mailbox there if it is a mail address."""

    host: str
    mailbox: str | None = None


@dataclasses.dataclass(frozen=True)
class Place:
    """An entry of a list: a host or all below it, and there one mailbox, all of them (`*`), or anything (`None`)."""

    host: str
    below: bool
    mailbox: str | None

    def has(self, destination: Destination) -> bool:
        """Whether a destination is there."""
        if self.mailbox is not None and (
            destination.mailbox is None
            or self.mailbox not in ("*", destination.mailbox)
        ):
            return False
        return (
            destination.host.endswith(f".{self.host}")
            if self.below
            else destination.host == self.host
        )


def read_place(text: str) -> Place:
    """Read "example.com", "*.example.com", "*@example.com" or "bob@example.com". Raises `ConfigError`."""
    mailbox, at, host = text.rpartition("@")
    below = host.startswith("*.")
    plain = _host(host.removeprefix("*."))
    fits = mailbox in ("", "*") if not at else mailbox == "*" or _is_mailbox(mailbox)
    if plain is None or not fits or (below and (":" in plain or _is_address(plain))):
        raise ConfigError(
            f'{text!r} names no destination: write "example.com", "*.example.com" for all hosts below it, '
            '"*@example.com" for mail only, or "bob@example.com"'
        )
    return Place(plain, below, mailbox.lower() if at else None)


def read_destinations(text: str) -> Sequence[Destination] | None:
    """The destinations in a text, parted by commas or semicolons; none in an empty one.

    `None` if there is a part of which two clients might think differently, or which is neither a URL, a mail address
    nor a host name.
    """
    if not text:
        return ()
    if not text.isprintable():  # no line breaks, no tabs, nothing invisible
        return None
    read = [_destination(part.strip(" ")) for part in _BETWEEN.split(text)]
    found = [destination for destination in read if destination is not None]
    return found if len(found) == len(read) else None


def _destination(part: str) -> Destination | None:
    if "://" in part:
        return _of_url(part)
    if "@" in part:
        return _of_mail(part)
    name, colon, port = part.partition(":")
    host = _host(name)
    if (
        host is None
        or (colon and not _PORT.fullmatch(port))
        or ("." not in host and host != "localhost")
    ):
        return None
    return Destination(host)


def _of_url(part: str) -> Destination | None:
    if not _SCHEME.match(part) or " " in part:
        return None
    try:
        split = urlsplit(part)
        name, _ = split.hostname, split.port
    except ValueError:
        return None
    if "@" in split.netloc or not name:  # http://good.com@evil.com
        return None
    host = _host(name)
    return None if host is None else Destination(host)


def _of_mail(part: str) -> Destination | None:
    if part.endswith(">"):
        name, _, part = part[:-1].partition("<")
        if not _NAME.fullmatch(name) and not _is_loose_name(name):
            return None
    mailbox, _, name = part.rpartition("@")
    host = _host(name)
    if host is None or len(mailbox) > 64 or not _is_mailbox(mailbox):
        return None
    return Destination(host, mailbox.lower())


def _is_mailbox(text: str) -> bool:
    return (
        _MAILBOX.fullmatch(text) is not None or _MAILBOX_AND.fullmatch(text) is not None
    )


def _is_loose_name(text: str) -> bool:
    """Whether it is the name of somebody although it holds what may end a host."""
    head, *rest = re.split("[/?#]", text, maxsplit=1)
    return _LOOSE_NAME.fullmatch(text) is not None and (
        not rest or _BEFORE_END.fullmatch(head) is not None
    )


def _host(name: str) -> str | None:
    """A host as it is compared: lower case, punycode, no dot at the end; `None` if that is not beyond doubt."""
    name = name.lower().removesuffix(".")
    if ":" in name:
        return _ipv6(name)
    if len(name) > 253:
        return None
    ascii_name = name if name.isascii() else _punycode(name)
    if ascii_name is None or not _LABELS.fullmatch(ascii_name):
        return None
    if not _is_address(ascii_name):
        return ascii_name
    try:
        return str(ipaddress.IPv4Address(ascii_name))
    except ValueError:  # 0x7f.1, 2130706433, 127.1: whatever the client makes of them
        return None


def _ipv6(name: str) -> str | None:
    try:
        address = ipaddress.IPv6Address(name)
    except ValueError:
        return None
    return None if address.scope_id else str(address.ipv4_mapped or address)


def _is_address(name: str) -> bool:
    """Whether a client takes a name for an IPv4 address: by its last label, as in the URL standard of WHATWG."""
    return _NUMBER.fullmatch(name.rpartition(".")[2]) is not None


def _punycode(name: str) -> str | None:
    """The ASCII form of a name, if it is another way to write exactly that name: look-alikes come out as what they are.

    What only becomes a name by a mapping (full-width letters, ß, joiners) is mapped differently from client to client.
    """
    try:
        encoded = name.encode("idna")
        return encoded.decode("ascii") if encoded.decode("idna") == name else None
    except UnicodeError:
        return None
