"""Classes of options build what checks their values when they are first used."""

from typing import Any

import pytest

from loopwright._internal.options import Options
from loopwright.errors import ConfigError


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
