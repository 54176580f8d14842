"""What was said in a run, as messages of AG-UI, with the ids that its events have."""

from collections.abc import Callable, Iterable, Iterator

from pydantic_core import to_json

from ...events.effect_key import EffectKey
from ...events.effects import ModelReplied, ModelRequested, ToolFinished
from ...events.entry import Entry
from ...events.run import RunFinished, RunStarted
from .model_calls import HIDDEN, is_user_reply, read_reply
from .protocol import core


class MessageReader:
    """Reads the messages of a run from its entries, with the ids that the events have.

    Args:
        run_id: the run in the journal.
        is_secret: whether what the entry of a number says is withheld.
    """

    def __init__(self, run_id: str, is_secret: Callable[[int], bool]) -> None:
        self._run_id, self._is_secret = run_id, is_secret
        self._requests: set[str] = set()
        self._last_text = ""

    def read(self, entries: Iterable[Entry]) -> Iterator[core.Message]:
        """Return what people, the agent and its tools said."""
        for entry in entries:
            is_secret = self._is_secret(entry.seq)
            match entry.event:
                case RunStarted() as event:
                    yield from self._start(event, is_secret=is_secret)
                case ModelRequested() as event if is_user_reply(entry.key, event):
                    self._requests.add(entry.key)
                case ModelReplied() as event if entry.key in self._requests:
                    yield from self._reply(entry, event, is_secret=is_secret)
                case ToolFinished() as event if EffectKey.parse(entry.key).effect in self._requests:  # fmt: skip
                    yield self._finish_call(entry, event, is_secret=is_secret)
                case RunFinished(answer=str() as answer) if (
                    answer.strip() != self._last_text.strip() and not is_secret
                ):
                    yield core.AssistantMessage(
                        id=f"{self._run_id}/answer", content=answer
                    )
                case _:
                    pass

    def _start(self, event: RunStarted, *, is_secret: bool) -> Iterator[core.Message]:
        asked = [one for one in event.messages if one.role == "user"]
        for number, message in enumerate(asked):
            content = HIDDEN if is_secret else message.content
            yield core.UserMessage(id=f"{self._run_id}/user/{number}", content=content)

    def _reply(
        self, entry: Entry, event: ModelReplied, *, is_secret: bool
    ) -> Iterator[core.Message]:
        text = read_reply(event, is_secret=is_secret)
        self._last_text = text or self._last_text
        calls = [
            core.ToolCall(
                id=f"{self._run_id}/{entry.key}#{number}",
                function=core.FunctionCall(
                    name=call.name,
                    arguments="{}" if is_secret else to_json(call.arguments).decode(),
                ),
            )
            for number, call in enumerate(event.completion.calls)
        ]
        if text or calls:
            yield core.AssistantMessage(
                id=f"{self._run_id}/{entry.key}",
                content=text or None,
                tool_calls=calls or None,
            )

    def _finish_call(
        self, entry: Entry, event: ToolFinished, *, is_secret: bool
    ) -> core.Message:
        key = EffectKey.parse(entry.key).original
        content = HIDDEN if is_secret or event.label == "secret" else event.content
        return core.ToolMessage(
            id=f"{self._run_id}/{key}/result",
            tool_call_id=f"{self._run_id}/{key}",
            content=content,
        )
