"""Conversations in the forms of OpenAI and of Anthropic, for other code that speaks these APIs."""

from loopwright import Attachment, Conversation, Reasoning
from loopwright.messages import Message, ToolCall
from loopwright.providers import to_anthropic_messages, to_openai_messages
from loopwright.testing import call

PIXEL = Attachment.image(b"\x89PNG\r\n\x1a\n", media_type="image/png")
LOOK = call("look", thing="desk", count=2)
TALK = Conversation(
    (
        Message("system", "Be short."),
        Message("user", "What is there?", attachments=(PIXEL,)),
        Message("assistant", "I look.", calls=(LOOK,), reasoning=(Reasoning("hm"),)),
        Message("tool", "a desk", call_id=LOOK.id),
        Message("user", "And?"),
        Message("assistant", "A desk."),
    )
)


def test_conversation_in_the_form_of_openai() -> None:
    system, user, assistant, result, again, answer = to_openai_messages(TALK)

    assert system == {"role": "system", "content": "Be short."}
    assert user["content"][1] == {"type": "text", "text": "What is there?"}
    assert user["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    (made,) = assistant.pop("tool_calls")
    assert assistant == {"role": "assistant", "content": "I look."}
    assert made["function"] == {"name": "look", "arguments": '{"thing":"desk","count":2}'}  # fmt: skip
    assert result == {"role": "tool", "tool_call_id": made["id"], "content": "a desk"}
    assert again == {"role": "user", "content": "And?"}
    assert answer == {"role": "assistant", "content": "A desk."}


def test_conversation_in_the_form_of_anthropic() -> None:
    found = to_anthropic_messages(TALK)

    assert found.system == [{"type": "text", "text": "Be short."}]
    first, assistant, second, answer = found.messages
    assert [block["type"] for block in first["content"]] == ["image", "text"]
    said, made = assistant["content"]
    assert said == {"type": "text", "text": "I look."}
    assert (made["type"], made["name"], made["input"]) == ("tool_use", "look", {"thing": "desk", "count": 2})  # fmt: skip
    result, text = second["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", made["id"])
    assert text == {"type": "text", "text": "And?"}
    assert answer == {"role": "assistant", "content": [{"type": "text", "text": "A desk."}]}  # fmt: skip


def test_conversation_that_ends_with_the_user_keeps_its_last_turn() -> None:
    talk = Conversation.of("Hello.")

    assert to_anthropic_messages(talk).messages == [
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]}
    ]
    assert to_openai_messages(talk) == [{"role": "user", "content": "Hello."}]


def test_attachment_of_a_result_follows_it_for_openai() -> None:
    shown = Message("tool", "a picture", call_id="c1", attachments=(PIXEL,))  # fmt: skip
    asked = (ToolCall("look", {"thing": "wall"}, "c1"),)
    talk = Conversation((Message("user", "Look."), Message("assistant", "", calls=asked), shown))  # fmt: skip

    roles = [message["role"] for message in to_openai_messages(talk)]
    assert roles == ["user", "assistant", "tool", "user"]
