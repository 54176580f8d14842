"""Serve the console with uvicorn, on the loopback unless told otherwise."""

import ipaddress
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterable

from ..errors import ConfigError
from ..journals.base import Journal
from ..runtime import Runtime
from .app import Console
from .guard import LOOPBACK

try:
    import uvicorn
except ModuleNotFoundError as missing:  # pragma: no cover - tried without the extra
    raise ConfigError(
        f"the console needs {missing.name}: pip install 'loopwright[console]'"
    ) from None


async def serve(
    source: Runtime | Journal,
    *,
    user: str,
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Iterable[str] = (),
    token: str | None = None,
    open_page: bool = False,
    announce: Callable[[str], object] = sys.stderr.write,
) -> None:
    """Serve a journal, or a runtime with its journal, until the process is told to end; announce the address with the token.

    Port 0 is any free one. Raises `ConfigError` for an address that cannot be used.
    """
    console = Console(source, user=user, hosts=[*hosts, host], token=token)
    listening = _listen(host, port)
    address = _format_address(host, listening.getsockname()[1], console.token)
    announce(f"console: {address}\n")
    if host not in LOOPBACK:
        announce(
            "warning: everyone who reaches this host and knows the token can steer runs; traffic is not encrypted\n"
        )
    if open_page:
        webbrowser.open(address)
    config = uvicorn.Config(
        console.app,
        log_level="warning",
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigError(
            f"--host, --port: {host}:{port} cannot be used: {error}; choose others"
        ) from None
    return listening


def _format_address(host: str, port: int, token: str | None) -> str:
    try:
        is_six = ipaddress.ip_address(host).version == 6
    except ValueError:
        is_six = False
    name = f"[{host}]" if is_six else host
    return f"http://{name}:{port}/#token={token}"
