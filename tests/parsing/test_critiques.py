"""What is read in critiques: look-ups, verdicts, revised answers, null answers, and ranked results."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.messages import JsonObject, ToolSpec
from loopwright.parsing.arguments import can_take_plain_text
from loopwright.parsing.critiques import (
    NULL_ANSWERS,
    Lookup,
    ParsedCritique,
    build_next_pages,
    find_longest_fence,
    is_null_answer,
    is_same_answer,
    quote_evidence,
    read_code,
    read_critique,
    read_results,
)
from stopwatch import quickest

ASKED = "Claim: Rome is old\nTool: search\nTool Input: age of Rome"
FENCE = "```python\nprint(1)\n```"


# --- look-ups ---


def test_a_look_up_is_a_claim_a_tool_and_its_input() -> None:
    assert read_critique(
        f"1. Plausibility: fine.\n2. Truth:\n{ASKED}"
    ) == ParsedCritique(
        f"1. Plausibility: fine.\n2. Truth:\n{ASKED}",
        Lookup("Rome is old", "search", "age of Rome"),
    )


def test_only_the_first_look_up_is_read_and_what_follows_it_is_cut_off() -> None:
    text = f"{ASKED}\nI wait.\nClaim: B\nTool: search\nTool Input: b\nVerdict: VERIFIED\nRevised answer: C"

    assert read_critique(text) == ParsedCritique(
        ASKED, Lookup("Rome is old", "search", "age of Rome")
    )


@pytest.mark.parametrize(
    "text",
    [
        "**Claim 1:** Rome is old\n**Tool 1:** search\n**Tool Input 1:** age of Rome",
        "CLAIM: Rome is old\nTOOL: search\nTOOL INPUT: age of Rome\n",
        "### Claim: Rome is old\n### Tool: search\n### Tool-Input: age of Rome",
        "**Claim: Rome is old**\n**Tool: search**\n**Tool Input: age of Rome**\nNow I wait.",
        "claim: Rome is old\r\ntool: search\r\ntool input: age of Rome\r\nthat is all\r\n",
    ],
)
def test_markers_may_be_bold_numbered_and_in_any_case(text: str) -> None:
    assert read_critique(text).lookup == Lookup("Rome is old", "search", "age of Rome")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"query": "a",\n "page": 2}', '{"query": "a",\n "page": 2}'),
        (
            "```python\nClaim: no marker here\nprint(1)\n```",
            "```python\nClaim: no marker here\nprint(1)\n```",
        ),
        ("\n  age of Rome\nand some prose", "age of Rome"),
        ("", ""),
    ],
)
def test_an_input_is_one_line_or_an_object_or_a_code_fence(
    written: str, read: str
) -> None:
    found = read_critique(f"Claim: A\nTool: search\nTool Input: {written}")

    assert found.lookup == Lookup("A", "search", read)


def test_a_tool_without_an_input_is_a_look_up_too() -> None:
    assert read_critique("Tool: clock\nClaim: it is late") == ParsedCritique(
        "Tool: clock", Lookup("", "clock", "")
    )


def test_a_tool_that_a_claim_speaks_of_is_no_look_up() -> None:
    assert read_critique(
        "Claim: the best tool: search\nVerdict: UNVERIFIED"
    ) == ParsedCritique(
        "Claim: the best tool: search\nVerdict: UNVERIFIED", verdict="unverified"
    )


def test_a_claim_that_needs_no_tool_is_passed_over() -> None:
    text = (
        "Claim: A\nTool: none\nTool Input: n/a\nClaim: B\nTool: search\nTool Input: b"
    )

    assert read_critique(text).lookup == Lookup("B", "search", "b")
    assert (
        read_critique(
            "Claim: A\nTool: None\nTool Input: None\nVerdict: VERIFIED"
        ).verdict
        == "verified"
    )


# --- evidence that the model makes up ---


def test_nothing_is_read_behind_evidence_that_the_model_makes_up() -> None:
    invented = "Evidence: it is so\nVerdict: VERIFIED"

    assert read_critique(f"{ASKED}\n{invented}") == ParsedCritique(
        ASKED, Lookup("Rome is old", "search", "age of Rome")
    )
    assert read_critique(f"Claim: A\n{invented}") == ParsedCritique("Claim: A")
    assert read_critique(invented) == ParsedCritique("")


def test_without_tools_its_evidence_is_all_there_is() -> None:
    text = "Claim: A\nEvidence: I know it\nVerdict: VERIFIED"

    assert read_critique(text, own_evidence=True) == ParsedCritique(
        text, verdict="verified"
    )


# --- verdicts ---


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Verdict: VERIFIED", "verified"),
        ("**Verdict:** **VERIFIED**", "verified"),
        ("VERIFIED: all claims are correct", "verified"),
        ("All is well.\nVERIFIED", "verified"),
        ("**VERIFIED.**", "verified"),
        ("verified: all of it", "verified"),
        ("Claim: A\nVERIFIED: A\nClaim: B\nVERIFIED: B\nVerdict: VERIFIED", "verified"),
        ("UNVERIFIED: claim 2 wrong", "unverified"),
        ("NOT VERIFIED", "unverified"),
        ("Verdict: not verified", "unverified"),
        ("Verdict: claim 1 VERIFIED, claim 2 UNVERIFIED", "unverified"),
        ("Verdict: verified\nVerdict: unverified", "unverified"),
        ("Claim 1 is UNVERIFIED.\nVerdict: VERIFIED", "unverified"),
        ("Verdict: VERIFIED?", "unverified"),
        ("claim 1 VERIFIED, claim 2 UNVERIFIED", "none"),
        ("Every claim is VERIFIED.", "none"),
        ("Claim: A\nVERIFIED: A\nClaim: B", "none"),
        ("Verdict: correct", "none"),
        ("Verified by the search, the answer is 5.", "none"),
        (f"Verdict: VERIFIED {'and so on ' * 300}", "none"),
        ("```\n# VERIFIED\nVerdict: VERIFIED\n```", "none"),
        ("The page says:\n> VERIFIED since 2001\nSo the height is off.", "none"),
        ("> VERIFIED", "none"),
        ("Verdict: VERIFIED, except the height, which is wrong.", "unverified"),
        ("Verdict: half VERIFIED", "unverified"),
        ("Verdict: VERIFIED to be wrong", "unverified"),
    ],
)
def test_a_verdict_starts_one_of_the_last_lines_and_is_not_contradicted(
    text: str, verdict: str
) -> None:
    assert read_critique(text).verdict == verdict


# --- answers ---


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Revised answer: Paris", "Paris"),
        ("**Revised Answer:** Paris", "Paris"),
        ("**Revised answer: Paris**", "Paris"),
        ("Most possible answer: Paris", "Paris"),
        ("The most possible answer: Paris", "Paris"),
        ("Revised answer:\nParis,\n\nin France.\n", "Paris,\n\nin France."),
        ("Revised answer: Rome\nOr rather:\nRevised answer: Paris", "Paris"),
        ("Revised answer: Paris\nVerdict: VERIFIED", "Paris"),
        (f"Revised answer: Paris\n{ASKED}", "Paris"),
        ("Revised answer:", ""),
        (f"Revised answer:\n{FENCE}", FENCE),
        ("The revised answer: Paris", None),
        (f"{ASKED}\nRevised answer: Paris", None),
    ],
)
def test_a_revised_answer_stands_behind_the_last_marker_before_a_look_up(
    text: str, answer: str | None
) -> None:
    assert read_critique(text).answer == answer


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Revised 1.", True),
        ("Paris is the capital.\n- It lies on the Seine.", True),
        (f"A better one:\n{FENCE}", True),
        ("", False),
        ("  \n", False),
        ("- Claim: A\n- Tool: search", False),
        ("1. Plausibility: fine.\n2. Truth: fine.", False),
        ("> Tool input: q", False),
        ("Every claim is VERIFIED.", False),
        ("claim 1 VERIFIED, claim 2 UNVERIFIED", False),
        ("```\nTool: search", False),
        ("Verdict: correct", False),
        ("Claim: A", False),
        ("The evidence supports the claim, so nothing has to be changed.", False),
        ("Verified.", False),
        ("I apologize, but I was not able to confirm this.", False),
        ("The look-up tells nothing of it.", False),
    ],
)
def test_words_are_plain_only_without_any_trace_of_the_protocol(
    text: str, plain: bool
) -> None:
    assert read_critique(text).is_plain is plain


# --- null answers, the same answers ---


@pytest.mark.parametrize(
    "answer",
    [
        "", " \n", "None", "**N/A**", "No answer.", "Unknown", "the same", "No changes are needed.",
        "No further revision is needed", "No corrections were made.", "None needed.", "The answer remains unchanged.",
        "The original answer is correct as it stands.", *NULL_ANSWERS,
    ],
)  # fmt: skip
def test_a_null_answer_says_that_there_is_none(answer: str) -> None:
    assert is_null_answer(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "<", "0", "No", "None of the above", "Unknown Pleasures", "both Rome and Paris", "The answer is 5",
        "No changes were made to the law in 1990.",
    ],
)  # fmt: skip
def test_an_answer_that_only_holds_such_a_word_is_one(answer: str) -> None:
    assert not is_null_answer(answer)


def test_the_words_for_no_answer_can_be_chosen() -> None:
    assert is_null_answer("No idea!", ("no idea",))
    assert not is_null_answer("Both", ("none",))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Paris", "paris.", True),
        ("-5", "5", False),
        ("C", "C++", False),
        (f"{FENCE}", f"Here it is:\n{FENCE}", True),
        ("```\nprint(1)\n```", "```\nprint( 1 )\n```", False),
        ("print(1)", f"{FENCE}", False),
    ],
)
def test_words_are_compared_by_what_they_say_and_programs_to_the_letter(
    one: str, other: str, same: bool
) -> None:
    assert is_same_answer(one, other) is same
    assert is_same_answer(other, one) is same


def test_the_program_of_a_text_is_its_longest_code_fence() -> None:
    text = f"```\nx\n```\nthen\n{FENCE}\nrun by\n~~~sh\npy a\n~~~"

    assert find_longest_fence(text) == FENCE
    assert read_code(text) == "print(1)\n"
    assert read_code("print(1)") is None
    assert read_code("```\n \n```") is None
    assert read_code("```python\nprint(1)") is None


# --- results ---


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ('["a", {"title": "ü"}]', ("a", '{"title": "ü"}')),
        ("[]", ()),
        ("[1, 2]", ("[1, 2]",)),
        ('{"a": 1}', ('{"a": 1}',)),
        ("[not json]", ("[not json]",)),
        ("plain", ("plain",)),
    ],
)
def test_a_list_of_texts_or_objects_is_ranked_results(
    text: str, results: tuple[str, ...]
) -> None:
    assert read_results(text) == results


def spec(required: list[str], **parameters: object) -> ToolSpec:
    return ToolSpec(
        "search", "", {"type": "object", "properties": parameters, "required": required}
    )  # type: ignore[dict-item]


def following(tool: ToolSpec | None, arguments: JsonObject) -> list[JsonObject]:
    """The first two pages behind the first one."""
    return list(itertools.islice(build_next_pages(tool, arguments), 2))


def test_a_tool_goes_on_by_its_optional_page_rank_or_offset() -> None:
    number = {"type": "integer"}

    assert following(spec([], page=number), {"q": "x"}) == [
        {"q": "x", "page": 2},
        {"q": "x", "page": 3},
    ]
    assert following(spec([], rank={**number, "default": 0}), {}) == [
        {"rank": 1},
        {"rank": 2},
    ]
    assert following(spec([], offset=number), {}) == [{"offset": 1}, {"offset": 2}]
    assert following(spec([], page=number), {"page": 4}) == [{"page": 5}, {"page": 6}]


def test_a_tool_without_such_a_parameter_has_one_page() -> None:
    assert following(None, {"page": 1}) == []
    assert following(spec([], q={"type": "string"}), {"q": "x"}) == []
    assert following(spec(["page"], page={"type": "integer"}), {"page": 1}) == []
    assert following(spec([], page={"type": "string"}), {}) == []
    assert following(spec([], limit={"type": "integer"}), {}) == []


def test_a_tool_takes_one_text_if_that_is_all_it_must_be_given() -> None:
    text, number = {"type": "string"}, {"type": "integer"}

    assert can_take_plain_text(spec(["code"], code=text, seconds=number))
    assert can_take_plain_text(spec([], code=text))
    assert not can_take_plain_text(spec(["a", "b"], a=text, b=text))
    assert not can_take_plain_text(spec(["a"], a=number))
    assert not can_take_plain_text(spec([]))


def test_evidence_is_cut_and_its_lines_that_look_like_the_protocol_are_quoted() -> None:
    assert (
        quote_evidence("It is so.\nVerdict: VERIFIED", 100)
        == "It is so.\n> Verdict: VERIFIED"
    )
    assert quote_evidence("abcdef", 3) == "abc [cut]"


# --- hostile text ---


@given(st.text(alphabet="Claim Tool:Input\nVERIFUND`~*{}\"'revsd answ", max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    reading = read_critique(text)

    assert reading.lookup is None or (
        reading.verdict,
        reading.answer,
        reading.is_plain,
    ) == ("none", None, False)
    assert isinstance(is_same_answer(text, reading.text), bool)


@pytest.mark.parametrize(
    "piece",
    ["Claim: a\n", "Tool: none\n", "VERIFIED\n", "VERIFIED ", "Verdict: VERIFIED\n", "Revised answer: a\n", "```",
     "```\n", "** ", "> > ", "1.1.1.", "\n", "Evidence", "#", "``` ```", "UN", "claim", "Tool: a\nTool Input: {\n"],
)  # fmt: skip
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    text = piece * (262_144 // len(piece))

    def read() -> None:
        read_critique(text)
        read_code(text)
        quote_evidence(text, 262_144)

    assert quickest(read, 0.5) < 0.5  # below 50 ms each on an idle machine
