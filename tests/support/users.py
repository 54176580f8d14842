"""Rights of another user for a while, so that a test meets what the system refuses to most users but not to root."""

import contextlib
import os
from collections.abc import Generator

NOBODY = 65534  # a user without rights


@contextlib.contextmanager
def another_user() -> Generator[None]:
    """This process with the rights of nobody, if it has more."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
