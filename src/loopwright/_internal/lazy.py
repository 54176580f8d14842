"""Names that are loaded at first use (PEP 562), so that importing a package costs nothing that is not used."""

from collections.abc import Callable, Mapping
from importlib import import_module


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A module `__getattr__` for `package` that finds each name in its home module, relative to the package."""

    def load(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home, package), name)

    return load
