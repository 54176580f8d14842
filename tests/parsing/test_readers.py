"""The readers of model text: strict JSON, Python literals, fences, brackets, markers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.parsing import (
    Tokenizer,
    find_closing_bracket,
    find_fences,
    read_fence,
    read_json,
    read_json_document,
    read_object,
)
from loopwright.parsing.thinking import strip_thinking

TOKENIZER = Tokenizer(
    {"action": "action", "input": "action input", "answer": "final answer"}
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
PROTOCOL = st.sampled_from(
    [
        "Action:",
        "Action Input:",
        "**",
        "Final Answer",
        "#",
        "```",
        "~~~",
        "\n",
        "\r",
        "\u2028",
        " ",
        "3",
        ":",
        "x",
        "> ",
    ]
)


def found(text: str) -> list[tuple[str, str]]:
    return [
        (mark.kind, text[mark.value_start :].partition("\n")[0].strip())
        for mark in TOKENIZER.tokenize(text).tokens
    ]


@given(VALUES)
def test_json_is_read_as_it_was_written(value: object) -> None:
    text = json.dumps(value)

    assert read_json(text + " tail") == (value, len(text))
    assert read_json_document(f"\n```json\n{text}\n```\n") == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "a key is given twice"),
        ('{"a": {"b": 1, "b": 1}}', "a key is given twice"),
        ("[NaN]", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[1e999]", "1e999 is too large"),
        (r'["\ud800"]', "half a surrogate"),
        (r'{"\udc00": 1}', "half a surrogate"),
        ("[" * 65 + "]" * 65, "deeper than 64"),
        ("[" * 100_000, "deeper than 64"),
        ('{"a": 1', "delimiter"),
        ('{"a": 1} x', "text after the JSON value"),
        ("```json\n{}\n```\nso", "text after the code fence"),
        ("```json\n{}", "never closed"),
        ("'a'", "Expecting value"),
        ("", "Expecting value"),
        ("9" * 5000, "4300 digits"),
        ('"' + "a" * 262_144 + '"', "Unterminated"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_a_reason(
    text: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        read_json_document(text)


def test_sixty_four_levels_and_whole_surrogate_pairs_are_fine() -> None:
    assert read_json_document("[" * 64 + "]" * 64) is not None
    assert read_json_document(r'"\ud83d\ude00"') == "😀"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 1}", {"a": 1}),
        ("{'a': True, 'b': None, \"c\": False}", {"a": True, "b": None, "c": False}),
        ("{'a': 'it\\'s', 'b': 'say \"so\"'}", {"a": "it's", "b": 'say "so"'}),
        ("{'a': [1, 2,], 'b': {},}", {"a": [1, 2], "b": {}}),
        ("{'a': '}', 'b': ']['}", {"a": "}", "b": "]["}),
        ('{"a": 1,}', {"a": 1}),
        (r"{'path': 'C:\\dir\n'}", {"path": "C:\\dir\n"}),
        ("{'a': 'True'}", {"a": "True"}),
    ],
)
def test_a_python_dict_is_read_where_json_fails(text: str, value: object) -> None:
    assert read_object(text + " tail'") == (value, len(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{'a': 1", "never closed"),
        ("{'a': 'x", "never closed"),
        ('{"a": "x', "never closed"),
        ("{'a': 1, 'a': 2}", "twice"),
        ("{'a': NaN}", "NaN"),
        ("{'a': (1, 2)}", "double quotes"),
        ("{'a': b'x'}", "double quotes"),
        ("{'a', 'b'}", "double quotes"),
        ("{1: 2}", "double quotes"),
        ("{,}", "double quotes"),
        ("{'a': 'x' 'y'}", "double quotes"),
        ("{'a': __import__('os')}", "double quotes"),
        ("['a']", "not an object"),
        ("[1]", "not an object"),
        ("{'a':" * 70 + "1" + "}" * 70, "deeper than 64"),
        ("{'a': '" + "x" * 20_000 + "'}", "never closed"),
        ("", "not an object"),
        ("word", "not an object"),
        ("}", "not an object"),
        ("{]", "double quotes"),
    ],
)
def test_a_literal_is_held_to_the_rules_of_json(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_object(text)


@given(VALUES)
def test_a_python_literal_is_read_rightly_or_not_at_all(value: object) -> None:
    text = repr({"value": value})
    try:
        found_value, end = read_object(text)
    except ValueError:
        assert "\\" in text, "only escapes that JSON does not have may be refused"
    else:
        assert (found_value, end) == ({"value": value}, len(text))


@pytest.mark.parametrize("prefix", range(1, 60))
def test_no_part_of_an_object_is_read_as_the_whole(prefix: int) -> None:
    whole = '{"to": "DE89 37", "amount": {"value": 100, "unit": [1, 2]}} '

    with pytest.raises(ValueError, match="never closed"):
        read_object(whole[: min(prefix, len(whole) - 2)])


def test_a_bracket_closes_where_its_own_partner_stands() -> None:
    assert find_closing_bracket("search[a [b] c] [d]", 6) == 14
    assert find_closing_bracket("search[Rio's \"sequel]", 6) == 20
    assert find_closing_bracket("search[a [b] c", 6) is None
    assert find_closing_bracket("[" + "[]" * 20_000 + "]", 0) is None


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("```json\n{}\n```", "{}\n"),
        ("```\nx\n``` ", "x\n"),
        ("```x = 1```", "x = 1"),
        ("```json {}```", "{}"),
        ("~~~~\n~~~\n~~~~", "~~~\n"),
        ("````\n```\na\n```\n````", "```\na\n```\n"),
        ("```{\n}\n```", "{\n}\n"),
        ("```c++\nx```\ny", "x"),
    ],
)
def test_the_contents_of_a_code_fence(text: str, contents: str) -> None:
    assert read_fence(text)[0] == contents


@pytest.mark.parametrize(
    "text", ["", "x```\n```", "```\nx", "```\nx\n~~~", "````\nx\n```"]
)
def test_an_open_code_fence_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fence"):
        read_fence(text)


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("Action: a", [("action", "a")]),
        ("action:a", [("action", "a")]),
        ("  ACTION : a", [("action", "a")]),
        ("**Action:** a", [("action", "a")]),
        ("**Action**: a", [("action", "a")]),
        ("** Action:** a", [("action", "a")]),
        ("__Action 3:__ a", [("action", "a")]),
        ("### Action 12: a", [("action", "a")]),
        ("Action #2: a", [("action", "a")]),
        ("Action\uff1aa", [("action", "a")]),
        ("x\r\nAction Input: a", [("input", "a")]),
        ("x\rAction Input: a", [("input", "a")]),
        ("action_input: a", [("input", "a")]),
        ("ActionInput: a", [("input", "a")]),
        ("Action   -Input: a", [("input", "a")]),
        ("FINAL_ANSWER:a", [("answer", "a")]),
        ("Final answer: a\nAction: b", [("answer", "a"), ("action", "b")]),
        ("so Action: a", []),
        ("* Action: a", []),
        ("- Action: a", []),
        ("> Action: a", []),
        ("`Action: a`", []),
        ('"Action: a"', []),
        ("Actions: a", []),
        ("Action a", []),
        ("Reaction: a", []),
        ("Action 12345: a", []),
        ("```\nAction: a\n```\nAction: b", [("action", "b")]),
        ("~~~text\nAction: a\n~~~\nAction: b", [("action", "b")]),
        ("see ```py\nAction: a\n``` \nAction: b", [("action", "b")]),
        ("use ```a``` so\nAction: b", [("action", "b")]),
        ("```\nAction: a\n```py\nAction: b", []),
        ("````\n```\nAction: a\n````\nAction: b", [("action", "b")]),
    ],
)
def test_a_marker_stands_at_a_line_start_outside_code(
    text: str, marks: list[tuple[str, str]]
) -> None:
    assert found(text) == marks


def test_markup_that_a_marker_leaves_open_is_told() -> None:
    assert [
        mark.markup
        for mark in TOKENIZER.tokenize("**Action: a**\n**Action:** b\nAction: c").tokens
    ] == ["**", "", ""]


def test_reading_stops_at_an_open_fence_and_after_ten_thousand_marks() -> None:
    assert TOKENIZER.tokenize("Action: a\n```\nAction: b").unread_start == 10
    assert len(TOKENIZER.tokenize("Action:\n" * 10_001).tokens) == 10_000
    assert TOKENIZER.tokenize("Action:\n" * 10_001).unread_start == 80_000
    assert find_fences("```\n" * 20_000)[1] == 40_000


@given(st.lists(PROTOCOL).map("".join) | st.text())
def test_a_quoted_text_has_no_markers(text: str) -> None:
    quoted = TOKENIZER.quote(text)

    assert TOKENIZER.tokenize(quoted).tokens == ()
    assert quoted.replace("> ", "") == text.replace("> ", "")
    assert all(TOKENIZER.tokenize(line).tokens == () for line in quoted.splitlines())


@given(st.lists(PROTOCOL).map("".join))
def test_marks_are_in_order_and_inside_the_text(text: str) -> None:
    places = [
        place
        for mark in TOKENIZER.tokenize(text).tokens
        for place in (mark.start, mark.value_start)
    ]

    assert places == sorted(places)
    assert not places or 0 <= places[0] <= places[-1] <= len(text)


# --- thinking ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "<think>\nFinal Answer: 41\n</think>\n\nFinal Answer: 42\n",
            "Final Answer: 42\n",
        ),
        ("\n <think></think>42", "42"),
        ("Perhaps 41.\n</think>\n42", "42"),  # the template opened the block
        ("<think>\nFinal Answer: 41", ""),
        ("<think>", ""),
        ("<think>41</think>", ""),
        ("<think>a</think>It closes with </think>.", "It closes with </think>."),
        ("HTML has no <think> tag.", "HTML has no <think> tag."),
        ("A block is <think>a</think>.", "A block is <think>a</think>."),
        ("42", "42"),
        ("", ""),
    ],
)
def test_what_a_reply_says_stands_behind_its_thinking(text: str, said: str) -> None:
    assert strip_thinking(text) == said
