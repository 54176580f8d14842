"""What may reach a screen: no control character but newline and tab, whatever a model wrote."""

import asyncio
import io
import json
import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Action, Deny
from loopwright.cli.approver import TerminalApprover
from loopwright.cli.progress import NullWatcher
from loopwright.cli.text import (
    clean,
    columns,
    cut,
    exact_call,
    json_text,
    one_line,
    readable_json,
)
from loopwright.events.describe import format_call
from loopwright.events.run import format_process
from loopwright.messages import Json
from waiting import eventually

FORGED = 'note": "tidy")  [destructive]\ny approves it; n or a reason denies it: y\n\nlist is harmless: run it?\n  list(path'
"""The name of an argument that would look like an answered question and another one, where it was shown as it is."""
ANYTHING = st.text(st.characters(exclude_categories=()))  # half pairs, controls and all


@given(ANYTHING)
def test_nothing_that_moves_or_reorders_is_left(text: str) -> None:
    left = clean(text)

    assert {c for c in left if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")} <= {
        "\n",
        "\t",
    }
    assert not {
        c
        for c in left
        if unicodedata.bidirectional(c)
        in ("RLO", "LRO", "RLE", "LRE", "RLI", "LRI", "FSI")
    }
    left.encode()


@given(ANYTHING)
def test_what_takes_no_place_on_a_screen_is_left_inside_words_and_emoji_only(
    text: str,
) -> None:
    left = clean(f"a{'b'.join(text)}c")  # each between two letters

    assert not {c for c in left if unicodedata.category(c) == "Cf"}
    assert not {c for c in left if c in "\u034f\u115f\u3164\ufe00\ufe0f\U000e0100"}


@given(ANYTHING)
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb\r\nc\td", "a\\x0db\nc\td"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("日本語 é 👩‍🚀 ✔️ 3️⃣", "日本語 é 👩‍🚀 ✔️ 3️⃣"),
        ("می‌شود", "می‌شود"),
        ("pay\u200bpal\u200c.\u200dcom", "pay\\u200bpal\\u200c.\\u200dcom"),
        ("a\u2060b\ufeffc\xadd\u034fe", "a\\u2060b\\ufeffc\\xadd\\u034fe"),
        ("a\ufe0fb\U000e0041c\U000e0100", "a\\ufe0fb\\U000e0041c\\U000e0100"),
        ("\u200d👩\u200d\u200d🚀\u200c", "\\u200d👩\\u200d\\u200d🚀\\u200c"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_what_is_not_safe_is_written_out_and_all_else_stays(
    text: str, shown: str
) -> None:
    assert clean(text) == shown


@given(ANYTHING, st.integers(1, 40))
def test_a_cut_text_is_not_wider_than_asked(text: str, width: int) -> None:
    assert columns(cut(text, width)) <= width


def test_a_cut_text_says_so_and_a_short_one_stays() -> None:
    assert (cut("abcdef", 4), cut("abcd", 4), cut("日本語", 5)) == (
        "abc…",
        "abcd",
        "日本…",
    )


@given(
    st.recursive(
        st.none() | st.floats() | ANYTHING,
        lambda inner: st.lists(inner) | st.dictionaries(ANYTHING, inner),
    )
)
def test_json_is_json_whatever_is_in_it_and_shows_nothing_unsafe(value: object) -> None:
    for text in (json_text(value), readable_json(value)):
        assert json.loads(text, parse_constant=pytest.fail) == json.loads(
            json.dumps(value), parse_constant=lambda _: None
        )
        assert clean(text) == text
    assert json_text(value).isascii()


def test_readable_json_has_its_letters() -> None:
    assert readable_json({"city": "東京\x9b"}) == '{\n  "city": "東京\\u009b"\n}'


def test_who_works_on_a_run_is_told_in_words() -> None:
    assert format_process("vm|23572|597667|39bb") == "process 23572 on vm"


def test_a_call_is_told_as_one_would_write_it() -> None:
    told = format_call("add", {"a": 1, "to": ["x", None], "nan": float("nan")})

    assert told == 'add(a=1, to=["x",null], nan="NaN")'


@given(st.dictionaries(ANYTHING, ANYTHING, max_size=3))
def test_a_call_that_a_person_is_asked_about_is_one_line_of_what_can_be_seen(
    arguments: dict[str, Json],
) -> None:
    told = exact_call("wipe", arguments)

    assert len(told.splitlines()) == 1
    assert told == clean(told)
    assert not {c for c in told if unicodedata.category(c) == "Cf"}


def test_the_name_of_an_argument_is_no_question_of_its_own() -> None:
    assert exact_call("delete", {"path": "/home", FORGED: 1}).splitlines() == [
        'delete({"'
        + FORGED.replace("\n", "\\n").replace('"', '\\"')
        + '":1,"path":"/home"})'
    ]
    assert format_call("delete", {"path": "/home", FORGED: 1}).startswith(
        r'delete(path="/home", "note\": \"tidy\")'
    )


async def test_the_question_at_a_terminal_has_three_lines_whatever_stands_in_it() -> (
    None
):
    reader, writer = os.openpty()
    screen = io.StringIO()
    approver = TerminalApprover(writer, screen, NullWatcher(screen))
    action = Action("delete", {"path": "/home", FORGED: 1}, effect="destructive")
    os.write(reader, b"no\n")
    try:
        async with asyncio.timeout(60):
            asking = asyncio.ensure_future(
                approver(action, "delete: run it?\n  list(path)")
            )
            await eventually(lambda: "y approves" in screen.getvalue())
            os.write(reader, b"not that\n")
            assert await asking == Deny("a person refused it: not that")
    finally:
        os.close(reader)
        os.close(writer)

    assert [line[:12] for line in screen.getvalue().splitlines()] == [
        "",
        "delete: run ",
        '  delete({"n',
        "y approves i",
    ]
