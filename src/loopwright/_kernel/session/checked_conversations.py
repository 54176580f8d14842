"""How much of what is asked in each scope was checked before, so that only new messages are checked."""

from ...messages import Conversation
from ...providers.unseen_attachments import has_attachments


def has_grown_from(conversation: Conversation, length: int, digest: bytes) -> bool:
    """Whether a conversation is known to begin with the `length` messages of the one with that digest.

    Only the last conversations that it grew from are known, so `False` says nothing.
    """
    is_same = digest == conversation.digest
    return is_same or (length, digest) in conversation.grown_from


class CheckedConversations:
    """The last conversation of each scope that was checked and found clean."""

    def __init__(self) -> None:
        self._checked: dict[str, tuple[int, bytes]] = {}
        """Its length and its digest."""

    def count(self, path: str, conversation: Conversation) -> int:
        """Return how many messages at the beginning of a conversation of a scope are known to be clean."""
        length, digest = self._checked.get(path, (0, b""))
        return length if has_grown_from(conversation, length, digest) else 0

    def add(self, path: str, conversation: Conversation) -> None:
        """Note that a conversation of a scope is clean."""
        self._checked[path] = len(conversation), conversation.digest


class AttachmentSearch:
    """Searches what is asked in each scope for attachments; only new messages are searched."""

    def __init__(self) -> None:
        self._without = CheckedConversations()

    def are_any(self, path: str, conversation: Conversation) -> bool:
        """Return whether a message of a conversation has an attachment."""
        start = self._without.count(path, conversation)
        found = has_attachments(conversation.messages[start:])
        if not found:
            self._without.add(path, conversation)
        return found
