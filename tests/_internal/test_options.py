"""Classes of options build what checks their values when they are first used."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from loopwright import Runtime
from loopwright._internal.options import Options
from loopwright.errors import ConfigError
from loopwright.plugins import available_engines, load_engine_class
from loopwright.testing import ScriptedProvider


def test_options_build_their_validator_with_the_first_object() -> None:
    class Given(Options):
        count: int = 1

    class More(Given):
        name: str

    kinds: tuple[Any, ...] = (Given, More)
    before = [kind.__pydantic_complete__ for kind in kinds]
    with pytest.raises(ConfigError, match="name: required"):
        kinds[1](count=2)

    assert before == [False, False]
    assert [kind.__pydantic_complete__ for kind in kinds] == [False, True]
    assert (More(name="a").count, Given(count=3).count) == (1, 3)


@dataclasses.dataclass(frozen=True)
class Part:
    """A value with a type of its own."""

    share: float = 1.0
    inner: "Part | None" = None


class Model(BaseModel):
    """A model, which is read as pydantic reads models."""

    count: int = 0


class Several(Options):
    """Options of each type that has numbers in it."""

    whole: int = Field(default=1, ge=0)
    real: float | None = None
    flag: bool = False
    weights: Mapping[str, float] = Field(default_factory=dict[str, float])
    by_number: Mapping[int, float] = Field(default_factory=dict[int, float])
    counts: tuple[int, ...] = ()
    part: Part = Part()
    model: Model = Field(default_factory=Model)
    kind: Literal["int", "other"] = "other"
    data: Mapping[str, Any] = Field(default_factory=lambda: {"type": "int"})


def test_numbers_and_truth_values_of_options_are_taken_as_declared() -> None:
    wrong: list[tuple[str, Any]] = [
        ("whole", True), ("whole", "15"), ("whole", 15.0), ("real", "0.5"), ("real", True), ("flag", 1), ("flag", "yes"),
        ("weights", {"a": "0.5"}), ("counts", [True]), ("part", {"share": "1"}), ("part", {"inner": {"share": True}}),
    ]  # fmt: skip
    for name, value in wrong:
        with pytest.raises(ConfigError, match=f"Several: {name}"):
            Several(**{name: value})

    given: Any = {"real": 2, "counts": [1], "part": {"share": 1}, "model": {"count": "3"}}  # fmt: skip
    found = Several(**given, kind="int")
    assert (found.real, found.counts, found.part, found.model.count) == (2.0, (1,), Part(), 3)  # fmt: skip
    assert Several().data == {"type": "int"}
    recorded: Any = json.loads(json.dumps({"by_number": {1: 0.5}}))
    assert Several(**recorded).by_number == {1: 0.5}


def test_no_engine_takes_a_text_or_a_truth_value_for_a_number() -> None:
    runtime, checked = Runtime(ScriptedProvider([])), 0
    for name in available_engines():
        kind: Any = load_engine_class(name)
        for field in dataclasses.fields(kind):
            own = getattr(field.default, "default", field.default)
            if isinstance(own, (int, float)):
                others = ["yes", 1] if isinstance(own, bool) else ["1", True]
                for value in others:
                    with pytest.raises(ConfigError, match=f"{field.name}: .*got {value!r}"):  # fmt: skip
                        kind(runtime, **{field.name: value})
                checked += 1
    assert checked > 40
