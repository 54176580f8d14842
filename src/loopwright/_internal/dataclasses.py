"""The standard `dataclasses`, whose `dataclass` compiles `__init__` at its first use and needs no code for the rest."""

import dataclasses as standard
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY as KW_ONLY
from dataclasses import MISSING as MISSING
from dataclasses import Field as Field
from dataclasses import asdict as asdict
from dataclasses import astuple as astuple
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import is_dataclass as is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

# What `_DeferredInit` and the functions below can make; with any other option the standard decorator does the work.
OWN_OPTIONS = frozenset({"frozen", "eq", "kw_only"})

COPIED = "__copied_fields__"
"""The attribute of a class with the names of the fields that `replace` copies."""

T = TypeVar("T")


class _Factory:
    """Stands in a signature for the default of a field that has a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


FACTORY = _Factory()


class _DeferredInit:
    """Stands in a class for its `__init__`, which is compiled and takes over when it is first asked for."""

    def __init__(self, owner: type[Any], is_frozen: bool) -> None:
        self._owner, self._is_frozen = owner, is_frozen
        self._made: Callable[..., None] | None = None

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        if self._made is None:
            self._made = compile_init(self._owner, self._is_frozen)
            self._owner.__init__ = self._made
        return self._made.__get__(instance, owner)


def compile_init(owner: type[Any], is_frozen: bool) -> Callable[..., None]:
    """Return the `__init__` of a class that has its fields, as the standard decorator would make it."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_factory": FACTORY}
    positional, keywords, body = ["self"], list[str](), list[str]()
    for one in standard.fields(owner):
        value = _declare_value(one, names)
        if one.init:
            place = keywords if one.kw_only else positional
            place.append(_declare_parameter(one, names))
        if value:
            target = f"_set(self, {one.name!r}, {value})"
            body.append(target if is_frozen else f"self.{one.name} = {value}")
    if hasattr(owner, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *keywords] if keywords else ())])
    text = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    exec(text, names)  # noqa: S102 - of field names alone, as the standard library does
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{owner.__qualname__}.__init__"
    made.__module__ = owner.__module__
    made.__annotations__ = {
        one.name: one.type for one in standard.fields(owner) if one.init
    } | {"return": None}
    return made


def _declare_parameter(one: Field[Any], names: dict[str, Any]) -> str:
    if one.default is not MISSING:
        names[f"_default_{one.name}"] = one.default
        return f"{one.name}=_default_{one.name}"
    return one.name if one.default_factory is MISSING else f"{one.name}=_factory"


def _declare_value(one: Field[Any], names: dict[str, Any]) -> str:
    """Return the expression of a field's value; none where its class holds the value."""
    if one.default_factory is MISSING:
        return one.name if one.init else ""
    names[f"_make_{one.name}"] = one.default_factory
    made = f"_make_{one.name}()"
    return f"{made} if {one.name} is _factory else {one.name}" if one.init else made


def _read_by(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads these attributes of an object into a tuple."""
    match tuple(names):
        case ():
            return lambda _: ()
        case (name,):
            read = attrgetter(name)
            return lambda one: (read(one),)
        case several:
            return attrgetter(*several)


def _add_repr(owner: type[Any], own: tuple[Field[Any], ...]) -> None:
    names = [one.name for one in own if one.repr]

    @reprlib.recursive_repr()
    def __repr__(self: object) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    owner.__repr__ = __repr__  # type: ignore[assignment]


def _add_comparison(
    owner: type[Any], own: tuple[Field[Any], ...], is_frozen: bool
) -> None:
    """Add equality, and a hash as the standard rules have it: none where the fields may change."""
    read = _read_by(one.name for one in own if one.compare)
    has_equality = "__eq__" in vars(owner)

    def __eq__(self: object, other: object) -> bool:
        if other.__class__ is self.__class__:
            return read(self) == read(other)
        return NotImplemented

    if not has_equality:
        owner.__eq__ = __eq__  # type: ignore[assignment]
    if has_equality or "__hash__" not in vars(owner):
        _add_hash(owner, own, is_frozen)


def _add_hash(owner: type[Any], own: tuple[Field[Any], ...], is_frozen: bool) -> None:
    if vars(owner).get("__hash__") is not None:
        return
    hashed = (one for one in own if (one.compare if one.hash is None else one.hash))
    read = _read_by(one.name for one in hashed)

    def __hash__(self: object) -> int:
        return hash(read(self))

    owner.__hash__ = __hash__ if is_frozen else None  # type: ignore[assignment]


def _freeze(owner: type[Any], own: tuple[Field[Any], ...]) -> None:
    names = frozenset(one.name for one in own)

    def refuse(verb: str, self: object, name: str) -> None:
        if type(self) is owner or name in names:
            raise standard.FrozenInstanceError(f"cannot {verb} field {name!r}")

    def __setattr__(self: object, name: str, value: object) -> None:
        refuse("assign to", self, name)
        super(owner, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        refuse("delete", self, name)
        super(owner, self).__delattr__(name)

    owner.__setattr__ = __setattr__  # type: ignore[assignment]
    owner.__delattr__ = __delattr__  # type: ignore[assignment]


def replace(one: T, /, **changes: Any) -> T:
    """Return a copy of a dataclass with other values of these fields."""
    kind: Any = type(one)
    names: frozenset[str] | None = kind.__dict__.get(COPIED)
    if names is None or not names >= changes.keys():
        given: Any = one
        return cast("T", standard.replace(given, **changes))
    made: Any = object.__new__(kind)
    values, given = made.__dict__, one.__dict__
    if len(given) == len(names):
        values.update(given)
    else:  # it holds computed properties, too
        values.update({name: given[name] for name in names})
    values.update(changes)
    return cast("T", made)


def _may_be_copied(owner: type[Any], own: tuple[Field[Any], ...]) -> bool:
    """Return whether an object is nothing but its fields: all given, and none checked or made of another."""
    has_own = "__init__" in vars(owner) or "__new__" in vars(owner)
    return all(one.init for one in own) and not (
        has_own or hasattr(owner, "__post_init__")
    )


def _is_plain(owner: type[Any], options: dict[str, bool]) -> bool:
    """Return whether the class needs nothing but what is made here: no base with fields, no slots, no order."""
    has_fields = any(hasattr(base, "__dataclass_fields__") for base in owner.__bases__)
    is_odd = has_fields or "__setattr__" in vars(owner)
    return not is_odd and options.keys() <= OWN_OPTIONS


def _add_methods(owner: type[Any], options: dict[str, bool]) -> type[Any]:
    if not _is_plain(owner, options):
        return standard.dataclass(**options)(owner)
    keywords = {"kw_only": options.get("kw_only", False)}
    standard.dataclass(init=False, repr=False, eq=False, **keywords)(owner)
    is_frozen, is_compared = options.get("frozen", False), options.get("eq", True)
    parameters = owner.__dataclass_params__
    parameters.init = parameters.repr = True
    parameters.eq, parameters.frozen = is_compared, is_frozen
    own = standard.fields(owner)
    if "__repr__" not in vars(owner):
        _add_repr(owner, own)
    if is_compared:
        _add_comparison(owner, own, is_frozen)
    if is_frozen:
        _freeze(owner, own)
    if _may_be_copied(owner, own):
        setattr(owner, COPIED, frozenset(one.name for one in own))
    if "__init__" not in vars(owner):
        deferred: Any = _DeferredInit(owner, is_frozen)
        owner.__init__ = deferred
    return owner


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(owner: type[Any] | None = None, /, **options: bool) -> Any:
        """Make a class a dataclass, with the options and results of the standard decorator."""
        if owner is not None:
            return _add_methods(owner, options)
        return lambda one: _add_methods(one, options)
