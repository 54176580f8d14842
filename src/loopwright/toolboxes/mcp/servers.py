"""The address of an MCP server: a program to start, or a URL; and the notation of both in one line."""

import base64
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from ..._internal import dataclasses
from ...errors import ConfigError
from ...security.redaction import Redactor

URL = re.compile(r"https?://", re.I)
NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)=(?=\S)")


@dataclasses.dataclass(frozen=True)
class StdioServer:
    """A server that is a program on this machine, connected by its standard input and output.

    Args:
        command: the program, looked up in the PATH.
        args: its arguments; there is no shell.
        env: variables that it needs besides PATH, HOME, LANG and the like, the only ones it inherits.
        cwd: the directory in which it starts; `None` is ours.
        show_stderr: whether its standard error is copied to ours.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(
        default_factory=dict[str, str], repr=False
    )
    cwd: str | Path | None = None
    show_stderr: bool = False

    def __post_init__(self) -> None:
        if not self.command:
            raise ConfigError(
                'command: must name the program of the MCP server, like StdioServer("npx", ("-y", "..."))'
            )
        if isinstance(self.args, str):
            raise ConfigError(
                f"args: needs a list of arguments, got the text {self.args!r}"
            )
        object.__setattr__(self, "args", tuple(map(str, self.args)))

    @property
    def label(self) -> str:
        """Return a short name: the program's."""
        return Path(self.command).stem

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the arguments and variables that are secrets by name or pattern."""
        return _find_secrets(*self.env.items(), *_argument_fields(self.args))


@dataclasses.dataclass(frozen=True)
class HttpServer:
    """A server with a URL, connected by streamable HTTP.

    Args:
        url: its endpoint, "https://example.org/mcp".
        headers: sent with every request, such as an Authorization.
    """

    url: str
    headers: Mapping[str, str] = dataclasses.field(
        default_factory=dict[str, str], repr=False
    )

    def __post_init__(self) -> None:
        if not URL.match(self.url) or not urlsplit(self.url).hostname:
            raise ConfigError(
                f"url: an MCP server's URL begins with https:// or http://, got {self.url!r}"
            )

    @property
    def label(self) -> str:
        """Return a short name: the host."""
        return urlsplit(self.url).hostname or "server"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the parts of its address and headers that are secrets by name or pattern."""
        return _find_secrets(*_url_fields(self.url), *_header_fields(self.headers))


def parse_server(given: StdioServer | HttpServer | str) -> StdioServer | HttpServer:
    """Return the server that a line names, by its URL or its command. Raises `ConfigError`."""
    if isinstance(given, (StdioServer, HttpServer)):
        return given
    if not given.strip():
        raise ConfigError(
            f'server: must name an MCP server by its URL or its command, "npx -y a-server", got {given!r}'
        )
    if URL.match(given):
        return HttpServer(given.strip())
    try:
        command, *args = shlex.split(given)
    except ValueError as error:
        raise ConfigError(
            f"server: the command {given!r} cannot be read: {error}"
        ) from None
    return StdioServer(command, tuple(args))


def split_name(line: str) -> tuple[str | None, str]:
    """Return the name and the rest of "name=command" or "name=URL"; no name if there is none."""
    found = NAMED.match(line)
    return (found[1], line[found.end() :]) if found else (None, line)


def _find_secrets(*fields: tuple[str, str]) -> tuple[str, ...]:
    return Redactor().find_secrets(*({name: value} for name, value in fields))


def _argument_fields(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Return the value of each argument by name: after its `=`, or the next argument of an option."""
    for argument, following in zip(args, (*args, "")[1:], strict=True):
        name, equals, value = argument.partition("=")
        has_next = argument.startswith("-") and not following.startswith("-")
        if not equals and has_next:
            value = following
        yield name.lstrip("-"), value
        yield "", argument


def _url_fields(url: str) -> Iterator[tuple[str, str]]:
    parts = urlsplit(url)
    yield "", url
    yield "password", unquote(parts.password or "")
    yield from parse_qsl(parts.query)


def _header_fields(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return each header, the credential of each authorization, and the value of each cookie."""
    yield from headers.items()
    for name, value in headers.items():
        if name.lower() in ("authorization", "proxy-authorization"):
            yield from _credential_fields(value)
        elif name.lower() == "cookie":
            for crumb in value.split(";"):
                yield "token", crumb.partition("=")[2].strip()


def _credential_fields(value: str) -> Iterator[tuple[str, str]]:
    scheme, _, credential = value.strip().partition(" ")
    yield "password", credential.strip() or scheme
    if scheme.lower() == "basic":
        yield "password", _decode_password(credential)


def _decode_password(credential: str) -> str:
    """Return the password in a credential of the scheme Basic (RFC 7617)."""
    try:
        return base64.b64decode(credential).decode().partition(":")[2]
    except ValueError:
        return ""
