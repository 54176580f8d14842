"""Write what stands in the place of a result that is masked or cut, and how it is read again."""

from ..._internal import dataclasses
from ...messages import Conversation, Message, is_untrusted
from ...providers.context.token_weights import MASK_START
from ...security.spotlighting import fence
from ..durability.history import mark_given
from ..session.session import Session


@dataclasses.dataclass(frozen=True)
class ResultMasks:
    """Writes the masks of the results of one conversation; without `can_recall` they name no handle."""

    session: Session
    conversation: Conversation
    can_recall: bool
    _written: dict[int, Message] = dataclasses.field(
        default_factory=dict[int, Message], init=False, repr=False, compare=False
    )

    def mask(self, index: int) -> Message:
        """Return the message in the place of a result."""
        if index not in self._written:
            self._written[index] = self._write(index)
        return self._written[index]

    def _write(self, index: int) -> Message:
        result = self.conversation.messages[index]
        about = f"{self._find_tool(index)}, {_format_size(result.content)}"
        hint = self._hint(result) or ", left out to save space"
        content = f"{MASK_START}{about}{hint}]"
        return dataclasses.replace(result, content=content, attachments=())

    def shorten(self, index: int, length: int) -> Message:
        """Return a result with the first characters only."""
        result, tool = self.conversation.messages[index], self._find_tool(index)
        shown = result.content[:length]
        if is_untrusted(result):
            shown = fence(shown, source=tool, delimiter=self.session.delimiter)
        about = f"the first {length} of {len(result.content)} characters of the result of {tool}"
        content = f"{shown}\n[{about}{self._hint(result)}]"
        return dataclasses.replace(result, content=content)

    def _hint(self, result: Message) -> str:
        """Return how a result is read again; empty where it cannot be."""
        session = self.session
        if not self.can_recall:
            return ""
        given, requests = session.requests.get_given(), session.requests
        mark = mark_given(given, session.services.journal)
        handle = requests.find_handle(result, mark)
        if not handle:
            return ""
        return f', kept as {handle}: read it with recall("{handle}")'

    def _find_tool(self, index: int) -> str:
        """Return the name of the tool that a result is of."""
        call_id = self.conversation.messages[index].call_id
        for message in reversed(self.conversation.messages[max(index - 64, 0) : index]):
            for call in message.calls:
                if call.id == call_id:
                    return call.name
        return "a tool"


def _format_size(text: str) -> str:
    size = len(text.encode("utf-8", "replace"))
    return f"{size} bytes" if size < 1_000 else f"{size / 1_000:.1f} kB"
