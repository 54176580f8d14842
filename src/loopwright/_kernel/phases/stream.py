"""Show a reply to its watchers chunk by chunk, without secrets."""

from collections.abc import Callable

from ...messages import Completion
from ...providers.base import CallDelta, Delta
from ...security.redaction import Redactor, StreamRedactor
from ...security.redaction.messages import redact_completion


class ReplyStream:
    """Shows the deltas of one reply; what may be the start of a secret is held back until that is clear."""

    def __init__(
        self,
        redactor: Redactor,
        key: str,
        attempt: int,
        show: Callable[[Delta], None],
        agent: str = "",
    ) -> None:
        self._redactor, self._key, self._notify = redactor, key, show
        self._attempt, self._agent = attempt, agent
        self._text, self._reasoning = redactor.open_stream(), redactor.open_stream()
        self._calls: dict[int, StreamRedactor] = {}

    def receive(self, delta: Delta) -> None:
        """Show the next chunk as far as it is clear; with the last one, all that was held back."""
        text = self._text.feed(delta.text)
        reasoning = self._reasoning.feed(delta.reasoning)
        call = self._redact_call(delta.call)
        ends_text = call is not None or delta.completion is not None
        if ends_text or delta.text:  # reasoning ends when something else begins
            reasoning += self._reasoning.end()
        if ends_text:
            text += self._text.end()
        if delta.completion is None:
            self._show(text, reasoning, call)
        else:
            self._show_calls(call)
            redacted = redact_completion(self._redactor, delta.completion)
            whole = redacted.completion
            self._notify(self._delta(text, reasoning, None, whole))

    def _show_calls(self, last: CallDelta | None) -> None:
        """Show the last chunk of a call, and what was held back of all calls."""
        self._show(call=last)
        for index, stream in self._calls.items():
            rest = CallDelta(index, arguments=stream.end())
            self._show(call=_skip_empty(rest))

    def _redact_call(self, call: CallDelta | None) -> CallDelta | None:
        """Return a chunk of a call, as far as it may be shown by now."""
        if call is None:
            return None
        stream = self._calls.setdefault(call.index, self._redactor.open_stream())
        redact = self._redactor.redact_text
        arguments = stream.feed(call.arguments)
        shown = CallDelta(call.index, redact(call.id), redact(call.name), arguments)
        return _skip_empty(shown)

    def _show(
        self, text: str = "", reasoning: str = "", call: CallDelta | None = None
    ) -> None:
        if any((text, reasoning, call)):
            self._notify(self._delta(text, reasoning, call, None))

    def _delta(
        self,
        text: str,
        reasoning: str,
        call: CallDelta | None,
        whole: Completion | None,
    ) -> Delta:
        return Delta(
            text, reasoning, call, whole, self._key, self._attempt, self._agent
        )


def _skip_empty(call: CallDelta) -> CallDelta | None:
    """Return a chunk of a call, or `None` if it says nothing."""
    says_something = any((call.id, call.name, call.arguments))
    return call if says_something else None
