"""Attachments are found in all that is asked, and a message is looked at once."""

from collections.abc import Sequence

import pytest

from loopwright import Attachment, Conversation
from loopwright._kernel.session import checked_conversations
from loopwright._kernel.session.checked_conversations import AttachmentSearch
from loopwright.messages import Message
from loopwright.providers.unseen_attachments import has_attachments

PICTURE = Attachment.image(b"\x89PNG", media_type="image/png")


def test_only_new_messages_of_a_scope_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []

    def look(messages: Sequence[Message]) -> bool:
        looked.extend(message.content for message in messages)
        return has_attachments(messages)

    monkeypatch.setattr(checked_conversations, "has_attachments", look)
    search = AttachmentSearch()
    asked = Conversation().user("one").assistant("two")

    assert not search.are_any("", asked)
    assert not search.are_any("", asked.user("three"))
    assert looked == ["one", "two", "three"]
    assert not search.are_any("0", asked)
    assert looked[3:] == ["one", "two"]


def test_an_attachment_is_found_wherever_it_stands_and_again() -> None:
    search = AttachmentSearch()
    asked = Conversation().user("one")
    shown = asked.user("look", attachments=[PICTURE])

    assert not search.are_any("", asked)
    assert search.are_any("", shown)
    assert search.are_any("", shown.user("and now?"))
    assert not search.are_any("", asked.user("without"))
    assert search.are_any("", Conversation(shown.messages))
