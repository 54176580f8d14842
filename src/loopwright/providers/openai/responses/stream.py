"""A streamed reply of the Responses API: events become deltas, and together the reply that would have come whole."""

from typing import Self

from pydantic import JsonValue, ValidationError

from ...base import CallDelta, Delta
from ...http.wire import Lenient, Wire
from .request import Item
from .response import CALLS, WireReply

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
TEXTS = frozenset({"response.output_text.delta"})
THOUGHTS = frozenset(
    {"response.reasoning_summary_text.delta", "response.reasoning_text.delta"}
)
ARGUMENTS = frozenset(
    {"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}
)


class WireEvent(Wire):
    """One event of a stream."""

    type: str
    response: Lenient[Item] = None
    item: Lenient[Item] = None
    output_index: Lenient[int] = None
    delta: JsonValue = None

    @classmethod
    def read(cls, data: str) -> Self | None:
        """Return the event in this data, or `None` if it is not an event."""
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            return None

    @property
    def is_failure(self) -> bool:
        """Whether it reports that the request failed."""
        return self.type == "error"


class ReplyAssembly:
    """Joins the events of one reply.

    An item counts as it was when it was done: at the end of the stream the server seals the same reasoning again, with
    other bytes, and the first ones are those that are sent back.
    """

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}
        self._calls: dict[int, int] = {}  # the number of a call, by its output index
        self._final: Item | None = None

    @property
    def is_over(self) -> bool:
        """Whether the server has announced the end of the reply."""
        return self._final is not None

    def add(self, event: WireEvent) -> Delta | None:
        """Add an event; return what it shows of the reply, if anything."""
        index = event.output_index or 0
        if self._final is not None:
            return None
        if event.type in ENDS:
            self._final = event.response or {}
        elif event.type == "response.output_item.done":
            self._items[index] = event.item or {}
        elif event.type == "response.output_item.added":
            return self._begin_item(index, event.item or {})
        elif isinstance(event.delta, str):
            return self._grow(index, event.type, event.delta)
        return None

    def build(self) -> WireReply | None:
        """Return the reply, or `None` if it is incomplete."""
        if self._final is None:
            return None
        final = self._final.get("output")
        listed = final if isinstance(final, list) else []
        output: dict[int, JsonValue] = dict(enumerate(listed))
        output |= self._items
        items: list[JsonValue] = [output[index] for index in sorted(output)]
        return WireReply.build({**self._final, "output": items})

    def _begin_item(self, index: int, item: Item) -> Delta | None:
        if item.get("type") not in CALLS:
            return None
        number = self._calls.setdefault(index, len(self._calls))
        call_id, name = str(item.get("call_id") or ""), str(item.get("name") or "")
        return Delta(call=CallDelta(number, call_id, name))

    def _grow(self, index: int, kind: str, text: str) -> Delta | None:
        if kind in TEXTS:
            return Delta(text)
        if kind in THOUGHTS:
            return Delta(reasoning=text)
        if kind in ARGUMENTS and index in self._calls:
            return Delta(call=CallDelta(self._calls[index], arguments=text))
        return None
