"""Ports for servers that come back at their address."""

import secrets
import socket
from pathlib import Path

GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The first and the last port that the system gives to whoever asks for any (Linux)."""
LOWEST = 20_000


def find_port() -> int:
    """Return a free port that no other server or client is given while its own server is away."""
    first = int(GIVEN.read_text().split()[0]) if GIVEN.exists() else 32_768
    while True:
        port = LOWEST + secrets.randbelow(max(first - LOWEST, 10_000))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
