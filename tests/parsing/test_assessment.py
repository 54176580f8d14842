"""The assessor: recorded cases, cases in plain words, the weights of its table, and what it does without tools."""

import json

import pytest

from loopwright import ToolSpec
from loopwright.parsing.assessment import MIN_DIRECT, Assessment, assess
from recordings import MISSING, fixture

CASES = fixture("cortex_metacog_cases.json")
OWN: list[tuple[str, str]] = [
    ("delete all files", "ask_first"),
    ("rm everything in the temporary folder", "ask_first"),
    ("terminate the EC2 instances i-0 to i-9", "ask_first"),
    ("Revoke all keys of the API.", "ask_first"),
    ("empty the trash", "ask_first"),
    ("git push origin main --force", "ask_first"),
    ("git push origin main", "direct"),
    ("How does a contract terminate?", "direct"),
    ("Could you please wipe the staging disk?", "ask_first"),
    ("how do I delete all files in a folder?", "direct"),
    ("Remove the typo from this sentence: I liek tea.", "direct"),
    ("What is the capital of Norway?", "direct"),
    ("thanks", "direct"),
    ("", "direct"),
    ("translate this to German", "ask_first"),
    ("make it faster", "ask_first"),
    ("fix this bug in auth.py", "direct"),
    ("restart the server", "ask_first"),
    ("restart the server web-3", "direct"),
    ("you know what to do", "ask_first"),
    ("Drop me a line when you are done.", "direct"),
    ("first refactor the auth system, then migrate the users, finally update the API", "plan_with_rollback"),
    ("1. book the flight\n2. book the hotel\n3. send Ana the dates", "plan_with_rollback"),
    ("first back up the users table, then drop the table, and finally restore it", "plan_with_rollback"),
    ("research the populations of Oslo, Bergen and Tromso, with the sources for each of them and the years", "parallelize"),
    ("audit the login endpoint for injection and xss, and find the root cause of the crash in the api", "delegate"),
    ("find and understand the whole implementation of billing in the codebase and write tests and code for it", "delegate"),
    ("run a security audit on all endpoints for owasp top 10 injection and xss vulnerabilities", "delegate"),
]  # fmt: skip


@pytest.mark.skipif(not CASES.exists(), reason=MISSING)
def test_recorded_cases_are_assessed_as_they_were() -> None:
    cases = json.loads(CASES.read_text())["cases"]
    found = {case["text"]: assess(case["text"]).decision for case in cases}

    assert found == {case["text"]: case["decision"] for case in cases}
    assert len(found) >= 5


@pytest.mark.parametrize(("task", "decision"), OWN)
def test_a_task_in_plain_words_is_assessed_by_what_it_asks(
    task: str, decision: str
) -> None:
    found = assess(task)

    assert found.decision == decision, found
    assert 0 < found.confidence <= 1


@pytest.mark.parametrize(
    ("task", "confidence", "reason"),
    [
        ("do it", 0.9, "ambiguous"),
        ("fix my server", 0.8, "unspecified"),
        ("delete all files", 0.85, "destructive"),
        ("say hello", 0.95, "simple"),
    ],
)
def test_early_decisions_have_the_confidence_of_the_table(
    task: str, confidence: float, reason: str
) -> None:
    found = assess(task)

    assert (found.confidence, found.reason) == (confidence, reason)


def test_a_long_task_about_the_server_is_not_asked_about_for_that() -> None:
    words = "restart the server and tell me whether every one of the nightly jobs has run today"
    assert assess(words).reason != "unspecified"


def test_weights_add_up_and_the_confidence_is_the_share_of_the_best() -> None:
    plan = assess("first migrate the schema, then deploy, and finally delete the old copies")  # fmt: skip
    together = assess("research and compare Oslo, Bergen and Tromso, with the documentation of each of them")  # fmt: skip

    assert plan.signals == {"direct": 1.0, "plan_with_rollback": 6.0}
    assert plan.confidence == round(6 / 7, 3)
    assert together.signals == {"direct": 1.0, "delegate": 1.0, "parallelize": 3.0}
    assert together.confidence == 0.6


def test_what_came_before_says_what_it_is() -> None:
    assert assess("review it", context=True).decision == "direct"
    assert assess("fix my server", context=True).decision == "direct"
    assert assess("delete all files", context=True).decision == "ask_first"
    assert assess("Yes, delete all files.", context=True).decision == "direct"


def test_tools_say_what_there_is_and_what_can_be_done() -> None:
    def spec(name: str, about: str = "") -> ToolSpec:
        return ToolSpec(name, about, {"type": "object"})

    audit = "run a security audit on all endpoints for owasp top 10 injection and xss vulnerabilities"
    steps = "first book the flight, then book the hotel, and finally send Ana the dates"

    assert assess("restart the server", [spec("restart", "Restart the server.")]).decision == "direct"  # fmt: skip
    assert assess(audit, [spec("look")]).decision == "direct"
    assert assess(audit, [spec("delegate")]).decision == "delegate"
    assert assess(steps, []).decision == "direct"
    assert assess("delete all files", []).decision == "direct"
    assert assess(audit).agents == ("security",)


def test_too_little_confidence_is_escalated_unless_that_is_off() -> None:
    unsure = (
        "first tell me a story about a dog that lives in the mountains, then another about a cat that lives near the sea, "
        "and say which of the two stories is the nicer one for a small child"
    )
    found, kept = assess(unsure), assess(unsure, escalate=False)

    assert kept.decision == "direct"
    assert kept.confidence < MIN_DIRECT
    assert (found.decision, found.escalated) == ("ask_first", True)
    assert isinstance(found, Assessment)


@pytest.mark.parametrize(
    "filler", ["a, " * 20_000, "then " * 20_000, "`" * 50_000, "delete " * 9_000, "please " * 9_000]
)  # fmt: skip
def test_hostile_texts_take_no_time(filler: str) -> None:
    assert assess(filler).confidence > 0
