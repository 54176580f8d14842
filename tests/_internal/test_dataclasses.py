"""The dataclasses of the package behave as those of the standard library, of which each test is a comparison."""

import dataclasses as standard
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from loopwright._internal import dataclasses as own

SIDES = (own.dataclass, standard.dataclass)


class Point:
    """Two required fields, some with defaults, one that is only by name, one that is not given."""

    x: int
    y: float
    label: str = "here"
    tags: list[str] = standard.field(default_factory=list[str])
    note: str = standard.field(default="", repr=False, compare=False)
    weight: int = standard.field(default=1, kw_only=True)
    seen: dict[str, int] = standard.field(init=False, default_factory=dict[str, int])

    def total(self) -> float:
        return self.x + self.y


class Checked:
    """A class that checks itself, with a hash and a text of its own."""

    n: int = 0

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n: negative")

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "checked"


class Empty:
    """No field."""


def copy_of_field(value: Any) -> Any:
    names = ("default", "default_factory", "init", "repr", "compare", "kw_only")
    made: Any = value
    if not isinstance(value, standard.Field):
        return made
    return standard.field(**{name: getattr(made, name) for name in names})


def copy_of(source: type[Any]) -> type[Any]:
    """Return the class once more, since a decorator changes the one that it is given."""
    members: dict[str, Any] = {}
    for name, value in vars(source).items():
        if name not in {"__dict__", "__weakref__"}:
            members[name] = copy_of_field(value)
    return type(source.__name__, source.__bases__, members)


def pair_of(source: type[Any], **options: bool) -> tuple[type[Any], type[Any]]:
    """Return the class as our decorator makes it, and as the standard one does."""
    mine, theirs = (decorate(**options)(copy_of(source)) for decorate in SIDES)
    return mine, theirs


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def is_hashed(made: object) -> object:
    return type(made).__hash__ is not object.__hash__ and outcome(lambda: hash(made))


def behaviour(kind: type[Any], *given: Any, **named: Any) -> list[object]:
    """Return what a class does with these arguments, as comparable values."""
    made: Any = outcome(lambda: kind(*given, **named))
    found: list[object] = [
        repr(made),
        str(inspect.signature(kind)),
        kind.__match_args__,
    ]
    found.append([str(one) for one in standard.fields(kind)])
    found += [str(vars(kind)["__dataclass_params__"]), kind.__init__.__annotations__]
    if isinstance(made, kind):
        found += [made == kind(*given, **named), made == object(), made != 3]
        found += [is_hashed(made), standard.asdict(made)]
        found += [
            outcome(lambda: setattr(made, "x", 3)),
            outcome(lambda: delattr(made, "x")),
        ]
        found += [outcome(lambda: setattr(made, "other", 3)), vars(made)]
        found.append(repr(outcome(lambda: standard.replace(made, **named))))
    return found


@pytest.mark.parametrize("source", [Point, Checked, Empty])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"frozen": True},
        {"frozen": True, "kw_only": True},
        {"eq": False},
    ],
    ids=str,
)
def test_a_class_does_what_the_standard_decorator_makes_it_do(
    source: type[Any], options: dict[str, bool]
) -> None:
    mine, theirs = pair_of(source, **options)

    for given, named in [
        ((), {}),
        ((1, 2.5), {}),
        ((1, 2.5, "there"), {"weight": 3}),
        ((), {"x": 1, "y": 2, "tags": ["a"]}),
        ((), {"n": -1}),
        ((4,), {}),
        ((1, 2, 3, 4, 5, 6), {}),
    ]:
        assert behaviour(mine, *given, **named) == behaviour(theirs, *given, **named)


def test_fields_that_are_not_compared_count_neither_for_equality_nor_for_the_hash() -> (
    None
):
    @own.dataclass(frozen=True)
    class Noted:
        n: int
        note: str = own.field(default="", compare=False)
        big: str = own.field(default="", hash=False)

    assert Noted(1, "a") == Noted(1, "b")
    assert hash(Noted(1, "a", "c")) == hash(Noted(1, "b", "d"))
    assert Noted(1, "a", "c") != Noted(1, "a", "d")


def test_a_standard_dataclass_may_derive_from_one_and_the_other_way_round() -> None:
    @own.dataclass(frozen=True)
    class Base:
        n: int

    @standard.dataclass(frozen=True)
    class Theirs(Base):
        m: int = 2

    @own.dataclass(frozen=True)
    class Ours(Theirs):
        k: int = 3

    class Plain(Base):
        """No dataclass itself."""

    assert repr(Ours(1)).endswith("Ours(n=1, m=2, k=3)")
    assert Plain(4).n == 4
    assert Base(4) != Plain(4)
    with pytest.raises(standard.FrozenInstanceError):
        Plain(4).n = 5  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]


def test_a_copy_with_other_values_is_checked_where_its_class_checks_itself() -> None:
    checked, _ = pair_of(Checked, frozen=True)
    stored = Stored(1, (2,))
    vars(stored)["computed"] = "once"  # as a cached property does

    copy = own.replace(stored, n=4)

    assert (copy, vars(copy)) == (Stored(4, (2,)), {"n": 4, "rest": (2,)})
    assert own.replace(standard.make_dataclass("Theirs", ["n"])(1), n=2).n == 2
    with pytest.raises(ValueError, match="n: negative"):
        own.replace(checked(1), n=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'm'"):
        own.replace(stored, m=1)


@own.dataclass(frozen=True)
class Stored:
    """A class that pickle finds by name."""

    n: int
    rest: tuple[int, ...] = ()


def test_objects_are_pickled_and_matched_before_any_was_made_here() -> None:
    program = f"import {__name__} as t, pickle, sys; sys.stdout.write(repr(pickle.loads({pickle.dumps(Stored(1, (2,)))!r})))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip

    assert done.stdout == "Stored(n=1, rest=(2,))"
    match Stored(3):
        case Stored(n, rest):
            assert (n, rest) == (3, ())


def test_threads_that_make_the_first_object_at_once_all_get_one() -> None:
    for _ in range(50):
        mine = own.dataclass(frozen=True)(copy_of(Checked))
        start = threading.Barrier(4)
        made: list[Any] = []

        def make(
            kind: type[Any] = mine,
            start: threading.Barrier = start,
            made: list[Any] = made,
        ) -> None:
            start.wait()
            made.append(kind(n=5))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [one.n for one in made] == [5] * 4


def test_an_import_of_events_compiles_none_of_their_constructors() -> None:
    program = (
        "import inspect, sys, loopwright.events.effects as effects\n"
        "own = [one for one in vars(effects).values() if isinstance(one, type) and one.__module__ == effects.__name__]\n"
        "made = lambda: sum(inspect.isfunction(vars(one).get('__init__')) for one in own)\n"
        "before = made(); effects.FactNoted('a', 'b'); sys.stdout.write(f'{before} {made()}')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "0 1"
