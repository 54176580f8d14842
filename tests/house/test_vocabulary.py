"""Code and pages use standard words: none of those that once needed an explanation stands in them."""

from collections import Counter
from pathlib import Path

import pytest

from vocabulary import Use, uses_in_code, uses_in_page, words_in_prose

ROOT = Path(__file__).parents[2]
CODE = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
HISTORY = {"CHANGELOG.md", "docs/glossary.md", "docs/upgrading.md"}
"""Pages that name old words on purpose."""

PROMPT = "a text for a model, which the fingerprints of recorded runs cover"
ALLOWED: dict[tuple[str, str], str] = {
    ("src/loopwright/engines/chain_of_thought.py", "go on"): PROMPT,
    ("src/loopwright/engines/critic.py", "go on"): PROMPT,
    ("src/loopwright/engines/plan_execute.py", "what came of"): PROMPT,
    ("src/loopwright/engines/react.py", "go on"): PROMPT,
    ("src/loopwright/engines/thought_decomposition.py", "go on"): PROMPT,
    ("src/loopwright/engines/thought_decomposition.py", "going on"): PROMPT,
    ("src/loopwright/testing/contracts/models.py", "go on"): PROMPT,
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
        "src/loopwright/security/spotlighting.py",
        "_escaped_letter",
    ): "a letter of an alphabet",
    (
        "src/loopwright/security/spotlighting.py",
        "_quote_letter",
    ): "a letter of an alphabet",
    ("src/loopwright/toolboxes/math.py", "floor"): "the function",
}
"""Plain uses of a word, by file and word, each with the reason why it is not the private one."""


REMAINING = {
    "docs/api/policy.md": 1,
    "docs/control.md": 2,
    "docs/decisions/0013-streaming-is-for-watching.md": 1,
    "docs/decisions/0016-recovery-inside-the-effect-of-a-call.md": 3,
    "docs/decisions/0018-commands-to-a-run.md": 1,
    "docs/how-to/secrets.md": 2,
    "docs/how-to/side-effects.md": 1,
    "docs/security.md": 1,
    "docs/tutorial.md": 1,
    "examples/approval.py": 2,
    "examples/cassettes.py": 1,
    "examples/cedar_gate.py": 1,
    "examples/chain_of_thought.py": 1,
    "examples/plan_execute.py": 3,
    "examples/policy.py": 2,
    "examples/react.py": 1,
    "examples/resume_after_crash.py": 1,
    "examples/self_ask.py": 1,
    "examples/steering.py": 1,
    "examples/tree_of_thoughts.py": 1,
    "examples/worker_after_kill.py": 3,
    "src/loopwright/_kernel/phases/act.py": 1,
    "src/loopwright/_kernel/phases/execution.py": 1,
    "src/loopwright/_kernel/phases/model_call.py": 1,
    "src/loopwright/_kernel/phases/tool_call.py": 2,
    "src/loopwright/_kernel/session/session.py": 1,
    "src/loopwright/cli/terminal.py": 1,
    "src/loopwright/labels.py": 1,
    "src/loopwright/parsing/plans/checks.py": 1,
    "src/loopwright/parsing/self_tests.py": 1,
    "src/loopwright/parsing/xml_text.py": 1,
    "src/loopwright/providers/http/sse.py": 1,
    "src/loopwright/resilience/circuit_breaker.py": 1,
    "src/loopwright/security/redaction/patterns.py": 1,
    "src/loopwright/security/redaction/redactor.py": 1,
    "src/loopwright/tools/recovery.py": 5,
}
"""How many private words a file still has; a number may only fall, and a file without one has none."""


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


def test_code_and_pages_gain_no_private_words() -> None:
    found = private_uses()
    per_file = Counter(use.file for use in found)
    more = {
        file: count
        for file, count in per_file.items()
        if count > REMAINING.get(file, 0)
    }

    assert more == {}, "\n".join(str(use) for use in found if use.file in more)


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
