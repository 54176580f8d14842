"""The gate of a host, chosen in steps: permissive only if that is said, else by policy files, else closed."""

import re
from collections.abc import Iterable
from pathlib import Path

from ..clock import Clock
from ..errors import ConfigError
from .all_of import AllOf
from .base import AllowAll, DenyAll, PolicyGate
from .rules.gate import RuleGate

SHARED = "shared"
"""The name of the policy file that counts for all surfaces."""
SUFFIXES = (".toml", ".yaml", ".yml")
_SURFACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def choose_gate(
    folder: str | Path | None,
    surface: str,
    *,
    permissive: bool = False,
    tools: Iterable[str] | None = None,
    clock: Clock | None = None,
) -> PolicyGate:
    """Return the gate for a surface of a host, such as its command line, its chat or its webhook.

    1. With `permissive=True` everything is allowed. Nothing else is read as a yes.
    2. Else the rule files `shared` and `<surface>` (`.toml`, `.yaml`, `.yml`) in the folder decide, and both must allow
       where there are both.
    3. Without a folder, or a file for the surface, everything is denied.

    Args:
        folder: the folder with the policy files.
        surface: its name, of small letters, digits, "_" and "-"; not "shared".
        permissive: whether to allow everything.
        tools: the names of the tools there are: a rule that names another one is an error.
        clock: the clock for the limits of rules.

    Raises `ConfigError` for a bad name, file or rule, for two files of one name, and for one like `chat.TOML` or `chat.json`
    that is not read.
    """
    if permissive is True:
        return AllowAll()
    if not _SURFACE.fullmatch(surface) or surface == SHARED:
        raise ConfigError(
            f"surface: must be a name of small letters, digits, '_' and '-' other than {SHARED!r}, got {surface!r}"
        )
    files = [] if folder is None else _find_files(Path(folder), surface)
    gates = [RuleGate.from_file(file, clock=clock) for file in files]
    for gate in gates if tools is not None else ():
        gate.check_tools(tools or ())
    if not gates:
        return DenyAll()
    return gates[0] if len(gates) == 1 else AllOf(*gates)


def _find_files(folder: Path, surface: str) -> list[Path]:
    """Return the policy files for a surface, the shared one first."""
    found, files = list[Path](), _list_policies(folder)
    for name in (SHARED, surface):
        there = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
        there = [file for file in there if file.exists() or file.is_symlink()]
        if len(there) > 1:
            raise ConfigError(
                f"folder: {str(folder)!r} has {' and '.join(file.name for file in there)}; keep one of them"
            )
        for file in files:
            if file.stem.lower() == name and not any(_is_same(file, one) for one in there):  # fmt: skip
                cure = f"keep that or {there[0].name}" if there else f"name it {name}.toml or {name}.yaml"  # fmt: skip
                raise ConfigError(
                    f"folder: {str(folder)!r} has {file.name}, which is not read; {cure}"
                )
        found += there
    return found


def _list_policies(folder: Path) -> list[Path]:
    """Return the files that look like policy files, read or not."""
    try:
        files = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise ConfigError(
            f"folder: {str(folder)!r} cannot be read: {error.strerror}"
        ) from None
    return [file for file in files if file.suffix.lower() in (*SUFFIXES, ".json")]


def _is_same(file: Path, read: Path) -> bool:
    """Return whether a file is one that is read, also where capitals in names do not matter."""
    if file == read:
        return True
    return file.exists() and read.exists() and file.samefile(read)
