"""What was read where in a run: it counts in its scope, around it and inside it, and not in branches beside it."""

from loopwright._kernel.durability.read_places import ReadPlaces
from loopwright.labels import Label


def places(*opened: str) -> ReadPlaces:
    read = ReadPlaces()
    for path in opened:
        read.open(path)
    return read


def test_what_was_read_counts_in_its_scope_around_it_and_inside_it_not_beside() -> None:
    read = places("1.0", "1.1", "1.0.2.0", "1.0.2.1")
    read.note("1.0.0", "normal", untrusted=False)
    read.note("1.0.1#0", "secret", untrusted=False)
    read.note("1.0.2.0.0", "public", untrusted=True)
    expected: dict[str, tuple[Label, bool]] = {
        "": ("secret", True), "1.0": ("secret", True), "1.0.2.0": ("secret", True), "1.0.2.1": ("secret", False),
        "1.1": ("public", False), "1.1.0.0": ("public", False), "2.0": ("secret", True),
    }  # fmt: skip

    assert {path: read.at(path) for path in expected} == expected


def test_what_was_read_without_a_place_counts_everywhere() -> None:
    read = places("1.0", "1.1")
    read.note("", "normal", untrusted=True)
    read.note("1.1.0", "public", untrusted=False)

    assert [read.at(path) for path in ("", "1.0", "1.1")] == [("normal", True)] * 3


def test_scopes_that_began_one_after_the_other_read_from_each_other() -> None:
    read = ReadPlaces()
    read.note("1.0.0", "secret", untrusted=True)
    assert read.at("1.1") == ("secret", True)

    read.open("1.1")  # the other is no branch, such as a child engine
    assert read.at("1.1") == ("secret", True)
    read.open("1.0")
    assert read.at("1.1") == ("public", False)


def test_lowering_a_label_never_raises_one_and_keeps_what_is_not_trusted() -> None:
    read = places("1.0", "1.1")
    read.note("1.0.0", "secret", untrusted=True)
    read.note("1.1.0", "public", untrusted=True)
    read.lower("normal", trusted=False)

    assert (read.at("1.0"), read.at("1.1")) == (("normal", True), ("public", True))
    read.lower("public", trusted=True)
    assert (read.at("1.0"), read.at("1.1")) == (("public", False), ("public", False))
