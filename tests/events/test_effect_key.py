"""The grammar of keys: what a key is built of is what is read from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import JournalError
from loopwright.events.effect_key import (
    EffectKey,
    asked_key,
    branch_key,
    call_key,
    closed_key,
    context_key,
    done_key,
    fired_key,
    hook_key,
    is_context,
    is_inside,
    is_substitute,
    offer_key,
    opened_key,
    patch_key,
    recovery_question_key,
    sample_key,
    side_key,
    substitute_key,
    timeout_key,
    undo_key,
)

NUMBERS = st.integers(0, 10_000)
PATHS = st.lists(NUMBERS, max_size=6).map(lambda path: ".".join(map(str, path)))


def effect(path: str, number: int) -> str:
    return f"{path}.{number}" if path else str(number)


@given(PATHS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_every_key_that_is_built_is_read_back(
    path: str, number: int, call: int, step: int, question: int
) -> None:
    at = effect(path, number)
    made = call_key(at, call)

    assert EffectKey.parse(at) == EffectKey(at, "", path, number)
    assert EffectKey.parse(made) == EffectKey(made, "", path, number, call)
    instead = substitute_key(made, step)
    assert EffectKey.parse(instead) == EffectKey(instead, "", path, number, call, step)
    asked = recovery_question_key(made, step, question)
    assert EffectKey.parse(asked) == EffectKey(
        asked, "", path, number, call, step, question
    )


@given(st.sampled_from(["note", "now", "id", "limit", "follow"]), PATHS, NUMBERS)
def test_a_note_is_read_back_and_is_not_an_effect(
    kind: str, path: str, number: int
) -> None:
    text = side_key(kind, path, number)
    key = EffectKey.parse(text)

    assert key == EffectKey(text, kind, path, number)
    assert (key.is_effect, key.place) == (False, effect(path, number))


@given(PATHS, NUMBERS, NUMBERS)
def test_undoing_a_call_has_the_key_of_the_call_with_a_word_before_it(
    path: str, number: int, call: int
) -> None:
    made = call_key(effect(path, number), call)
    key = EffectKey.parse(undo_key(made))

    assert (key.kind, key.path, key.number, key.call) == ("undo", path, number, call)
    assert (key.is_effect, key.place) == (False, made)


@pytest.mark.parametrize(
    ("text", "parents"),
    [
        ("3", []),
        ("2.0.1", ["2.0", "2"]),
        ("2.0.1#3", ["2.0.1", "2.0", "2"]),
        ("2.0.1#3~1", ["2.0.1#3", "2.0.1", "2.0", "2"]),
        ("2.0.1#3~1m0", ["2.0.1#3", "2.0.1", "2.0", "2"]),
    ],
)
def test_the_parents_of_a_key_are_what_holds_it(text: str, parents: list[str]) -> None:
    found, parent = [], EffectKey.parse(text).parent
    while parent is not None:
        found.append(parent.text)
        parent = parent.parent

    assert found == parents


@pytest.mark.parametrize(
    ("text", "around"),
    [("3", []), ("2.0.1#3~1", ["2.0", "2"]), ("2.0", ["2"])],
)
def test_the_scopes_around_a_key_go_from_the_inside_out(
    text: str, around: list[str]
) -> None:
    assert [place.text for place in EffectKey.parse(text).around] == around


@pytest.mark.parametrize(
    ("text", "effect", "original", "is_call", "is_effect"),
    [
        ("", "", "", False, False),
        ("12", "12", "12", False, True),
        ("2.0.1#3", "2.0.1", "2.0.1#3", True, True),
        ("2.0.1#3~1", "2.0.1", "2.0.1#3", True, True),
        ("2.0.1#3~1m0", "2.0.1", "2.0.1#3", True, True),
        ("respond:", "respond:", "respond:", False, False),
        ("undo:0#1", "undo:0", "undo:0#1", True, False),
    ],
)
def test_a_key_names_its_effect_and_its_original_call(
    text: str, effect: str, original: str, is_call: bool, is_effect: bool
) -> None:
    key = EffectKey.parse(text)

    assert (key.text, key.effect, key.original) == (text, effect, original)
    assert (key.is_call, key.is_effect) == (is_call, is_effect)


@pytest.mark.parametrize(
    ("key", "other", "after"),
    [
        ("2", "2", True),
        ("10", "9", True),
        ("1", "2", False),
        ("3.0.0", "2", True),
        ("2#4", "2", True),
        ("2.0.1", "2.0.1#3", True),
        ("2.0.0", "2.0.1", False),
        ("2.1.5", "2.0.1", False),
        ("2", "2.0.1", False),
        ("20.0.1", "2.0.0", False),
    ],
)
def test_a_key_is_at_or_after_another_in_the_scope_of_the_other(
    key: str, other: str, after: bool
) -> None:
    assert EffectKey.parse(key).is_at_or_after(EffectKey.parse(other)) is after


@pytest.mark.parametrize(
    ("path", "outer", "inside"),
    [
        ("", "", True),
        ("2.0", "", True),
        ("2.0", "2.0", True),
        ("2.0.1.1", "2.0", True),
        ("2.01", "2.0", False),
        ("20.0", "2", False),
        ("", "2", False),
    ],
)
def test_a_scope_is_inside_another_by_whole_numbers(
    path: str, outer: str, inside: bool
) -> None:
    assert is_inside(path, outer) is inside


def test_the_scope_of_an_engine_that_answers_a_call_is_named_after_the_call() -> None:
    assert EffectKey.parse("2.0.1#3").child_path == "2.0.1.3"


@pytest.mark.parametrize("text", ["abc", "2.", "2.x#0", "#1"])
def test_a_text_that_is_not_a_key_is_refused(text: str) -> None:
    with pytest.raises(JournalError, match="key: must be a place"):
        EffectKey.parse(text)


def test_keys_are_written_as_the_journals_of_earlier_versions_have_them() -> None:
    assert [
        call_key("2.0.1", 3), substitute_key("1#0", 2), recovery_question_key("1#0", 2, 1), sample_key("4", 0),
        hook_key("4", 2, 0), hook_key("4#1~2", 1, 3), context_key("4", 1), offer_key("4", 0), offer_key("4~s1", 2),
        side_key("note", "2.0", 7), patch_key("2.0", "v2"), asked_key("3"), branch_key("3", 1),
        branch_key("3", 1, ended=True), timeout_key("3"), fired_key("3"), opened_key("3"), done_key("3", 1),
        closed_key("3"), undo_key("1#0"),
    ] == [
        "2.0.1#3", "1#0~2", "1#0~2m1", "4~s0",
        "4~h2__0", "4~h1_1_2_3", "4~c1", "4~p0", "4~p2",
        "note:2.0.7", "patch:2.0:v2", "asked:3", "begun:3.1",
        "ended:3.1", "timeout:3", "fired:3", "open:3", "done:3.1",
        "closed:3", "undo:1#0",
    ]  # fmt: skip


def test_a_key_says_whether_it_is_an_offer_a_substitute_or_the_context_policy_s() -> (
    None
):
    keys = ["4", "4#1", "4#1~2", "4#1~2m0", "4~c0", "4~p0#0", "4~s1", "note:.0"]

    assert [key for key in keys if EffectKey.parse(key).is_offer] == ["4~p0#0"]
    assert [key for key in keys if is_substitute(key)] == ["4#1~2", "4#1~2m0"]
    assert [key for key in keys if is_context(key)] == ["4~c0"]
    assert [EffectKey.parse(key).place for key in ("note:.0", "done:2.1", "4#1")] == [
        "0",
        "2.1",
        "4#1",
    ]
