"""A reply on its way to who watches it come: piece by piece, without secrets."""

from collections.abc import Callable, Sequence

from ...providers.base import CallDelta, Delta
from ...security.redaction import Redactor, StreamRedactor
from ...security.redaction.messages import redact_completion


class Telling:
    """Tells the deltas of one reply; what may be the beginning of a secret is held back until it is clear.

    `begun` says whether words have come, which cannot be taken back.
    """

    def __init__(
        self, redactor: Redactor, key: str, watchers: Sequence[Callable[[Delta], None]]
    ) -> None:
        self._redactor, self._key, self._watchers = redactor, key, watchers
        self._text, self._reasoning = redactor.open_stream(), redactor.open_stream()
        self._calls: dict[int, StreamRedactor] = {}
        self.begun = False

    def tell(self, delta: Delta) -> None:
        """Tell the next piece, as far as it may be shown by now; with the last one, all that was held back."""
        self.begun = self.begun or bool(delta.text or delta.reasoning or delta.call)
        text = self._text.feed(delta.text) if delta.text else ""
        reasoning = self._reasoning.feed(delta.reasoning) if delta.reasoning else ""
        call = None if delta.call is None else self._call(delta.call)
        last = delta.completion is not None
        if (
            last or call is not None or delta.text
        ):  # a stretch of words is over when something else begins
            reasoning += self._reasoning.end()
        if last or call is not None:
            text += self._text.end()
        if delta.completion is None:
            self._show(Delta(text, reasoning, call, None, self._key))
            return
        self._show(Delta(call=call, key=self._key))
        for index, stream in self._calls.items():
            rest = stream.end()
            self._show(
                Delta(
                    call=CallDelta(index, arguments=rest) if rest else None,
                    key=self._key,
                )
            )
        self._show(
            Delta(
                text,
                reasoning,
                None,
                redact_completion(self._redactor, delta.completion).completion,
                self._key,
            )
        )

    def _call(self, call: CallDelta) -> CallDelta | None:
        """A piece of a call, as far as it may be shown by now."""
        stream = self._calls.setdefault(call.index, self._redactor.open_stream())
        redact = self._redactor.redact_text
        shown = CallDelta(
            call.index, redact(call.id), redact(call.name), stream.feed(call.arguments)
        )
        return shown if shown.id or shown.name or shown.arguments else None

    def _show(self, delta: Delta) -> None:
        if (
            delta.text
            or delta.reasoning
            or delta.call is not None
            or delta.completion is not None
        ):
            for watcher in self._watchers:
                watcher(delta)
