"""Whether a path that a model wrote lies within a directory, decided by its text alone."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from ...errors import ConfigError

PathNames: TypeAlias = tuple[str, ...]
"""The names in a path, after "/" for an absolute path and "." for a relative one."""

_AMBIGUOUS = re.compile(
    r"""
      \Z                    # empty
    | //                    # another kind of root on some systems
    | [~-]                  # a home directory; an option
    | .*\\                  # a separator on Windows
    | (?:.*/)?\.\.(?:/|\Z)  # a parent directory
    | (?:\.?/)*[^/]*:       # a drive or a scheme: C:/…, file:///…
    """,
    re.VERBOSE,
)


def compile_roots(roots: Iterable[str]) -> Callable[[str], bool | None]:
    """Return a function that says whether a path lies within one of the directories.

    It returns `None` for a path whose text does not decide it. Links are not followed and
    nothing is looked up in the file system: that is the task of the tool. Raises `ConfigError`.
    """
    allowed = tuple(map(_parse_root, roots))

    def is_within(path: str) -> bool | None:
        names = _split(path)
        return None if names is None else _is_within(names, allowed)

    return is_within


def _parse_root(root: str) -> PathNames:
    names = _split(root)
    if names is None:
        raise ConfigError(
            f"{root!r} does not name a directory; "
            'write "/srv/data", or "notes" for relative paths'
        )
    return names


def _is_within(names: PathNames, allowed: Sequence[PathNames]) -> bool | None:
    """Compare with the roots of the same kind, absolute or relative; `None` if there are none."""
    comparable = [root for root in allowed if root[0] == names[0]]
    if not comparable:
        return None
    return any(names[: len(root)] == root for root in comparable)


def _split(path: str) -> PathNames | None:
    """Return the names in a path; `None` if it is ambiguous, or may be an option."""
    if not path.isprintable() or _AMBIGUOUS.match(path):
        return None
    names = (name for name in path.split("/") if name not in ("", "."))
    return ("/" if path.startswith("/") else ".", *names)
