"""Where an MCP server is: a program to start, or a URL; and how both are written in one line."""

import base64
import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from ...errors import ConfigError
from ...security.redaction import Redactor

URL = re.compile(r"https?://", re.I)
NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)=(?=\S)")


@dataclasses.dataclass(frozen=True)
class StdioServer:
    """A server that is a program on this machine, spoken to through its standard input and output.

    Args:
        command: the program, looked up in the PATH.
        args: its arguments; there is no shell.
        env: variables that it needs besides PATH, HOME, LANG and the like; of ours it inherits no others.
        cwd: the folder it starts in; `None` is ours.
        show_stderr: whether what it writes to its standard error goes to ours.
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
                'command: name the program of the MCP server, like StdioServer("npx", ("-y", "..."))'
            )
        if isinstance(self.args, str):
            raise ConfigError(
                f"args: needs a list of arguments, got the text {self.args!r}"
            )
        object.__setattr__(self, "args", tuple(str(argument) for argument in self.args))

    @property
    def label(self) -> str:
        """A short name for it: the program's."""
        return Path(self.command).stem

    @property
    def secrets(self) -> tuple[str, ...]:
        """What of its arguments and variables is a secret by its name or shape."""
        return _secrets_in(*self.env.items(), *_of_arguments(self.args))


@dataclasses.dataclass(frozen=True)
class HttpServer:
    """A server with a URL, spoken to by streamable HTTP.

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
        """A short name for it: its host."""
        return urlsplit(self.url).hostname or "server"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What of its address and headers is a secret by its name or shape."""
        return _secrets_in(*_of_url(self.url), *_of_headers(self.headers))


def server_of(given: StdioServer | HttpServer | str) -> StdioServer | HttpServer:
    """The server that a line names, by its URL or its command. Raises `ConfigError` if it names none."""
    if isinstance(given, (StdioServer, HttpServer)):
        return given
    if not given.strip():
        raise ConfigError(
            f'server: name an MCP server by its URL or its command, "npx -y a-server", got {given!r}'
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


def named(line: str) -> tuple[str | None, str]:
    """What stands before and behind the `=` of "name=command" or "name=URL"; no name if there is none."""
    found = NAMED.match(line)
    return (found[1], line[found.end() :]) if found else (None, line)


def _secrets_in(*fields: tuple[str, str]) -> tuple[str, ...]:
    return Redactor().find_secrets(*({name: value} for name, value in fields))


def _of_arguments(args: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What each argument may name: what stands behind its `=`, or, of an option, the next one."""
    for argument, following in zip(args, (*args, "")[1:], strict=True):
        name, equals, value = argument.partition("=")
        follows = argument.startswith("-") and not following.startswith("-")
        yield name.lstrip("-"), value if equals else following if follows else ""
        yield "", argument


def _of_url(url: str) -> Iterator[tuple[str, str]]:
    parts = urlsplit(url)
    yield "", url
    yield "password", unquote(parts.password or "")
    yield from parse_qsl(parts.query)


def _of_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each header; what stands behind the scheme of a credential, which is always one; and each cookie by itself."""
    yield from headers.items()
    for name, value in headers.items():
        if name.lower() in ("authorization", "proxy-authorization"):
            scheme, _, credential = value.strip().partition(" ")
            yield "password", credential.strip() or scheme
            if scheme.lower() == "basic":
                yield "password", _password(credential)
        elif name.lower() == "cookie":
            yield from (
                ("token", crumb.partition("=")[2].strip()) for crumb in value.split(";")
            )


def _password(credential: str) -> str:
    """The password inside a credential of the scheme Basic (RFC 7617)."""
    try:
        return base64.b64decode(credential).decode().partition(":")[2]
    except ValueError:
        return ""
