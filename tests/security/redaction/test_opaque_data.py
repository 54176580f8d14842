"""Opaque data of providers: random texts are searched for registered values alone, readable ones for patterns too."""

import pytest

from loopwright.messages import Completion, Reasoning, ToolCall
from loopwright.security.redaction import Redactor
from loopwright.security.redaction.messages import redact_completion

LOOKS_LIKE_A_KEY = "AKIA" + "IOSFODNN7" + "EXAMPLE"
SECRET = "correct-horse-battery"


def redact(*blocks: dict[str, object], secrets: tuple[str, ...] = ()) -> Completion:
    thoughts = tuple(Reasoning("", "responses", block, "host") for block in blocks)  # type: ignore[arg-type]
    completion = Completion("x", answer="x", reasoning=thoughts)
    return redact_completion(Redactor(secrets), completion).completion


@pytest.mark.parametrize(
    "name",
    ["signature", "thoughtSignature", "encrypted_content", "redactedContent", "data"],
)
def test_random_text_that_matches_a_pattern_stays(name: str) -> None:
    block: dict[str, object] = {name: f"x+{LOOKS_LIKE_A_KEY}=="}

    assert redact(block).reasoning[0].block == block


@pytest.mark.parametrize(
    "block",
    [
        {"thinking": f"the key is {LOOKS_LIKE_A_KEY}", "signature": "s"},
        {"summary": [{"text": f"the key is {LOOKS_LIKE_A_KEY}"}]},
    ],
)
def test_readable_text_with_a_secret_is_left_out(block: dict[str, object]) -> None:
    assert redact(block).reasoning == (Reasoning(""),)


def test_registered_value_is_found_in_random_text_too() -> None:
    block: dict[str, object] = {"encrypted_content": f"x+{SECRET}=="}

    assert redact(block, secrets=(SECRET,)).reasoning == (Reasoning(""),)


def test_call_loses_opaque_data_that_holds_a_registered_value_and_nothing_else() -> (
    None
):
    block = {"thoughtSignature": SECRET}
    call = ToolCall("look", {"what": "sky"}, "c1", "gemini", block, "host")
    completion = Completion(calls=(call,))

    redacted = redact_completion(Redactor([SECRET]), completion)

    assert redacted.completion.calls == (ToolCall("look", {"what": "sky"}, "c1"),)
    assert redacted.originals == {}
