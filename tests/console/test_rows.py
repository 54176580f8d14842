"""Messages of a prompt as the page shows them."""

from loopwright import Message, ToolCall
from loopwright.attachments import Attachment
from loopwright.console.rows import build_message
from loopwright.messages import Reasoning


def test_a_message_is_shown_with_its_thinking_its_calls_and_what_is_attached() -> None:
    image = Attachment("image", "image/png", data="AAAA", name="lamp.png")
    called = build_message(
        Message(
            "assistant",
            "I look.",
            origin="model",
            calls=(ToolCall("look_up", {"topic": "lamps"}),),
            reasoning=(Reasoning("Which lamps?"), Reasoning("Desk lamps.")),
        )
    )
    said = build_message(Message("user", "This one.", attachments=(image,)))

    assert called == {
        "role": "assistant",
        "content": "I look.",
        "origin": "model",
        "calls": [{"name": "look_up", "arguments": {"topic": "lamps"}}],
        "thinking": "Which lamps?\nDesk lamps.",
        "attachments": [],
    }
    assert said["attachments"] == ["image image/png lamp.png"]
