"""Where an MCP server is: a program to start, or a URL; and how both are written in one line."""

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import ConfigError
from ..redaction import Redactor

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
    env: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str], repr=False)
    cwd: str | Path | None = None
    show_stderr: bool = False

    def __post_init__(self) -> None:
        if not self.command:
            raise ConfigError('command: name the program of the MCP server, like StdioServer("npx", ("-y", "..."))')
        if isinstance(self.args, str):
            raise ConfigError(f"args: needs a list of arguments, got the text {self.args!r}")
        object.__setattr__(self, "args", tuple(str(argument) for argument in self.args))

    @property
    def label(self) -> str:
        """A short name for it: the program's."""
        return Path(self.command).stem

    @property
    def secrets(self) -> tuple[str, ...]:
        """What of its arguments and variables is a secret by its name or shape."""
        return Redactor().secrets_in(shlex.join(self.args), dict(self.env))


@dataclasses.dataclass(frozen=True)
class HttpServer:
    """A server with a URL, spoken to by streamable HTTP.

    Args:
        url: its endpoint, "https://example.org/mcp".
        headers: sent with every request, such as an Authorization.
    """

    url: str
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str], repr=False)

    def __post_init__(self) -> None:
        if not URL.match(self.url) or not urlsplit(self.url).hostname:
            raise ConfigError(f"url: an MCP server's URL begins with https:// or http://, got {self.url!r}")

    @property
    def label(self) -> str:
        """A short name for it: its host."""
        return urlsplit(self.url).hostname or "server"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What of its address and headers is a secret by its name or shape."""
        return Redactor().secrets_in(self.url, dict(self.headers))


def server_of(given: StdioServer | HttpServer | str) -> StdioServer | HttpServer:
    """The server that a line names, by its URL or its command. Raises `ConfigError` if it names none."""
    if isinstance(given, (StdioServer, HttpServer)):
        return given
    if not given.strip():
        raise ConfigError(f'server: name an MCP server by its URL or its command, "npx -y a-server", got {given!r}')
    if URL.match(given):
        return HttpServer(given.strip())
    try:
        command, *args = shlex.split(given)
    except ValueError as error:
        raise ConfigError(f"server: the command {given!r} cannot be read: {error}") from None
    return StdioServer(command, tuple(args))


def named(line: str) -> tuple[str | None, str]:
    """What stands before and behind the `=` of "name=command" or "name=URL"; no name if there is none."""
    found = NAMED.match(line)
    return (found[1], line[found.end() :]) if found else (None, line)
