"""Code and pages use standard words: none of those that once needed an explanation stands in them."""

from pathlib import Path

import pytest

from vocabulary import Use, uses_in_code, uses_in_page, words_in_prose

ROOT = Path(__file__).parents[2]
CODE = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
HISTORY = {"CHANGELOG.md", "docs/glossary.md", "docs/upgrading.md"}
"""Pages that name old words on purpose."""

PROMPT = "a text for a model, which the fingerprints of recorded runs cover"
STORED = "a value of stored entries"
ALLOWED: dict[tuple[str, str], str] = {
    ("src/loopwright/engines/chain_of_thought.py", "go on"): PROMPT,
    ("src/loopwright/engines/critic.py", "go on"): PROMPT,
    ("src/loopwright/engines/plan_execute.py", "what came of"): PROMPT,
    ("src/loopwright/engines/react.py", "go on"): PROMPT,
    ("src/loopwright/engines/thought_decomposition.py", "go on"): PROMPT,
    ("src/loopwright/engines/thought_decomposition.py", "going on"): PROMPT,
    ("src/loopwright/parsing/plans/checks.py", "is no reference"): PROMPT,
    ("src/loopwright/parsing/self_tests.py", "is no python"): PROMPT,
    ("src/loopwright/parsing/xml_text.py", "is no call"): PROMPT,
    ("src/loopwright/testing/contracts/models.py", "go on"): PROMPT,
    ("src/loopwright/tools/recovery.py", "mendedcall"): PROMPT,
    ("src/loopwright/tools/recovery.py", "what came of"): PROMPT,
    ("src/loopwright/_kernel/phases/tool_call.py", "elsewhere"): STORED,
    ("src/loopwright/tools/recovery.py", "elsewhere"): STORED,
    ("docs/how-to/side-effects.md", "doubt"): STORED,
    ("examples/chain_of_thought.py", "is no whole"): "what a model says",
    ("CONTRIBUTING.md", "take back"): "of a choice",
    ("docs/how-to/providers.md", "anybody"): "a question to a model",
    ("docs/performance.md", "floor"): "the lowest cost",
    ("examples/structured_output.py", "pieces"): "articles in a basket",
    (
        "src/loopwright/_kernel/session/progress_monitor.py",
        "going on",
    ): "words to a model",
    (
        "src/loopwright/events/control.py",
        "questionwithdrawn",
    ): "an event of stored entries",
    ("src/loopwright/events/effects.py", "sealed"): "a field of stored entries",
    ("src/loopwright/parsing/answers.py", "_doubt_before"): "words of doubt in a reply",
    (
        "src/loopwright/parsing/answers.py",
        "_has_doubt_before",
    ): "words of doubt in a reply",
    ("src/loopwright/parsing/answers.py", "_letter"): "a letter of an alphabet",
    ("src/loopwright/parsing/answers.py", "_lone_letter"): "a letter of an alphabet",
    ("src/loopwright/parsing/answers.py", "_read_letter"): "a letter of an alphabet",
    ("src/loopwright/providers/anthropic/request.py", "go on"): "words to a model",
    ("src/loopwright/providers/dialects/react.py", "go on"): "words to a model",
    (
        "src/loopwright/providers/dialects/react_stream.py",
        "_letters",
    ): "a letter of an alphabet",
    (
        "src/loopwright/security/classifier/identifiers.py",
        "_dni_letters",
    ): "a letter of an alphabet",
    (
        "src/loopwright/security/redaction/heuristics.py",
        "_letter",
    ): "a letter of an alphabet",
    (
        "src/loopwright/security/redaction/heuristics.py",
        "_letters_only",
    ): "a letter of an alphabet",
    (
        "src/loopwright/security/redaction/known_values.py",
        "_longest_first",
    ): "an order, not a bound",
    (
        "src/loopwright/security/redaction/known_values.py",
        "_plain_letters",
    ): "a letter of an alphabet",
    (
        "src/loopwright/security/redaction/patterns.py",
        "_is_token_letter",
    ): "a letter of an alphabet",
    (
        "src/loopwright/security/redaction/patterns.py",
        "letter",
    ): "a letter of an alphabet",
    (
        "src/loopwright/parsing/spotlighting.py",
        "_escaped_letter",
    ): "a letter of an alphabet",
    (
        "src/loopwright/parsing/spotlighting.py",
        "_quote_letter",
    ): "a letter of an alphabet",
    ("src/loopwright/toolboxes/math.py", "floor"): "the function",
}
"""Plain uses of a word, by file and word, each with the reason why it is not the private one."""


def private_uses() -> list[Use]:
    """Find what is not allowed, in all files."""
    found = [use for path in CODE for use in uses_in_code(path, named(path))]
    found += [
        use
        for path in PAGES
        if named(path) not in HISTORY
        for use in uses_in_page(path, named(path))
    ]
    return [use for use in found if (use.file, use.word.lower()) not in ALLOWED]


def named(path: Path) -> str:
    """Name a file from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def test_code_and_pages_have_no_private_words() -> None:
    found = private_uses()

    assert found == [], "\n".join(map(str, found))


def test_each_allowed_use_still_stands_where_it_is_allowed() -> None:
    standing = {
        (use.file, use.word.lower())
        for path in CODE
        for use in uses_in_code(path, named(path))
    } | {
        (use.file, use.word.lower())
        for path in PAGES
        for use in uses_in_page(path, named(path))
    }

    assert set(ALLOWED) - standing == set()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A call of which nobody knows", ["nobody"]),
        ("the run stands still", ["stands still"]),
        ("root is no folder", ["is no folder"]),
        ("there is no folder", []),
        ("the `told` column", []),
        ("Return the outcome of the call.", []),
    ],
)
def test_private_words_are_found_as_whole_words_only(
    text: str, words: list[str]
) -> None:
    assert [word for word, _ in words_in_prose(text)] == words


def test_private_words_are_found_in_names_comments_and_texts(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Say what nobody said."""\n'
        "def _told(letter: str) -> None:  # heard in a moment\n"
        '    raise ValueError("it is no letter", "sealed")\n'
    )

    assert sorted((use.line, use.word) for use in uses_in_code(module, "m")) == [
        (1, "nobody"),
        (2, "_told"),
        (2, "heard"),
        (2, "letter"),
        (3, "is no letter"),
    ]
