"""Runs, owners and entries as the kernel makes them; light, since child processes of the tests import it too."""

from loopwright.testing.contracts.entries import (
    DEAD,
    HOST,
    LIVE,
    ME,
    follow,
    header,
    write,
)

__all__ = ["DEAD", "HOST", "LIVE", "ME", "follow", "header", "write"]
