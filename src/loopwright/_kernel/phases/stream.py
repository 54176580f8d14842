"""Show a reply to its watchers chunk by chunk, without secrets."""

from collections.abc import Callable, Sequence

from ...providers.base import CallDelta, Delta
from ...security.redaction import Redactor, StreamRedactor
from ...security.redaction.messages import redact_completion


class ReplyStream:
    """Shows the deltas of one reply; what may be the start of a secret is held back until that is clear.

    `has_begun` says whether text was received, which may have been shown to a watcher.
    """

    def __init__(
        self, redactor: Redactor, key: str, watchers: Sequence[Callable[[Delta], None]]
    ) -> None:
        self._redactor, self._key, self._watchers = redactor, key, watchers
        self._text, self._reasoning = redactor.open_stream(), redactor.open_stream()
        self._calls: dict[int, StreamRedactor] = {}
        self.has_begun = False

    def receive(self, delta: Delta) -> None:
        """Show the next chunk as far as it is clear; with the last one, all that was held back."""
        if delta.text or delta.reasoning or delta.call:
            self.has_begun = True
        text = self._text.feed(delta.text) if delta.text else ""
        reasoning = self._reasoning.feed(delta.reasoning) if delta.reasoning else ""
        call = self._redact_call(delta.call) if delta.call is not None else None
        ends_text = call is not None or delta.completion is not None
        if ends_text or delta.text:  # reasoning ends when something else begins
            reasoning += self._reasoning.end()
        if ends_text:
            text += self._text.end()
        if delta.completion is None:
            self._show(text, reasoning, call)
            return
        self._show(call=call)
        for index, stream in self._calls.items():
            rest = stream.end()
            self._show(call=CallDelta(index, arguments=rest) if rest else None)
        redacted = redact_completion(self._redactor, delta.completion).completion
        self._notify(Delta(text, reasoning, None, redacted, self._key))

    def _redact_call(self, call: CallDelta) -> CallDelta | None:
        """Return a chunk of a call, as far as it may be shown by now."""
        stream = self._calls.setdefault(call.index, self._redactor.open_stream())
        redact = self._redactor.redact_text
        arguments = stream.feed(call.arguments)
        shown = CallDelta(call.index, redact(call.id), redact(call.name), arguments)
        return shown if shown.id or shown.name or shown.arguments else None

    def _show(
        self, text: str = "", reasoning: str = "", call: CallDelta | None = None
    ) -> None:
        if text or reasoning or call is not None:
            self._notify(Delta(text, reasoning, call, None, self._key))

    def _notify(self, delta: Delta) -> None:
        for watcher in self._watchers:
            watcher(delta)
