"""Whether a path that a model wrote lies within a folder, told from its text alone."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ...errors import ConfigError

Parts: TypeAlias = tuple[str, ...]


def within(roots: Iterable[str]) -> Callable[[str], bool | None]:
    """Whether a path lies within one of some folders; `None` where its text does not tell. Raises `ConfigError`.

    Links are not followed, and nothing is looked up: that is for the tool to do.
    """
    read: list[Parts] = []
    for root in roots:
        parts = _parts(root)
        if parts is None:
            raise ConfigError(
                f'{root!r} names no folder: write "/srv/data", or "notes" for paths that are relative'
            )
        read.append(parts)

    def check(path: str) -> bool | None:
        parts = _parts(path)
        comparable = [
            root for root in read if parts is not None and root[0] == parts[0]
        ]
        return (
            any(parts[: len(root)] == root for root in comparable)
            if parts and comparable
            else None
        )

    return check


def _parts(path: str) -> Parts | None:
    """ "/" or ".", then the names of a path; `None` for what may mean another place than it seems to, or an option."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    unclear = (
        not path
        or not path.isprintable()
        or "\\" in path
        or path.startswith(("//", "~", "-"))
        or ".." in names
    )
    if unclear or (names and ":" in names[0]):  # C:/…, file:///…
        return None
    return ("/" if path.startswith("/") else ".", *names)
