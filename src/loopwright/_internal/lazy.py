"""Names that are imported at first use (PEP 562), so that an unused name costs nothing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeAlias

LazyAttributes: TypeAlias = tuple[
    list[str], Callable[[str], object], Callable[[], list[str]]
]


def lazy_attributes(
    package: str, exports: Mapping[str, tuple[str, ...]]
) -> LazyAttributes:
    """Return `__all__`, `__getattr__` and `__dir__` of a package that loads its names late.

    Args:
        package: the `__name__` of the package.
        exports: the public names by the module that defines them, relative to the package.
    """
    homes = {name: home for home, names in exports.items() for name in names}
    namespace = vars(sys.modules[package])

    def load_attribute(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(home, package), name)
        return value

    def list_attributes() -> list[str]:
        return sorted({*namespace, *homes})

    constants_first = sorted(homes, key=lambda name: (not name.isupper(), name))
    return constants_first, load_attribute, list_attributes
