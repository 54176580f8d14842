"""The journal of a run as lines for people: messages, decisions about calls and their outcomes."""

from collections.abc import Iterable, Sequence

from .._internal import dataclasses
from ..messages import ToolCall
from .describe import format_call
from .effect_key import EffectKey, call_key
from .effects import (
    CallsProposed,
    GateDecided,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    ToolFinished,
)
from .entry import Entry, Event
from .run import RunStarted

MAX_DEPTH = 8
REFERRED = frozenset(
    one.kind for one in (ModelRequested, ModelReplied, CallsProposed, GateDecided)
)
"""Kinds of entries that lines of later ones may refer to."""


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a timeline; `text` is as the model or tool wrote it: what shows it cleans it."""

    seq: int
    key: str
    label: str
    text: str

    @property
    def depth(self) -> int:
        """Return the depth of branches and children at which it happened; 0 is the engine itself."""
        return min(self.key.count("."), MAX_DEPTH)


class Timeline:
    """Turn the entries of one run, in order, into lines; some entries give none, some several.

    An event has its own lines. Some of them refer to an earlier event: the reply of a model to the request, a decision
    to the proposed call, the result of a refused call to the decision.
    """

    def __init__(self) -> None:
        self._requests: dict[str, ModelRequested] = {}
        self._calls: dict[str, ToolCall] = {}
        self._refusals: dict[str, str] = {}

    def read(self, entries: Iterable[Entry]) -> None:
        """Read entries whose lines are not shown, so that later lines can refer to them."""
        for entry in entries:
            self._remember(entry.event, EffectKey.parse(entry.key).place)

    def lines(self, entry: Entry) -> list[Line]:
        """Return the lines of one entry."""
        key = EffectKey.parse(entry.key).place
        found = self._find_lines(entry.event, key)
        if isinstance(entry.event, RunStarted):
            found = [("run", entry.run_id), *found]
        return [Line(entry.seq, key, label, text) for label, text in found if text]

    def _find_lines(self, event: Event, key: str) -> list[tuple[str, str]]:
        self._remember(event, key)
        lines = event.lines()
        match event:
            case ModelReplied() | ModelFailed():
                return self._name_model(key, lines)
            case GateDecided():
                return self._show_decision(event, key, lines)
            case ToolFinished() if self._refusals.get(key) == event.content:
                return []  # the line of the decision has the same text
            case _:
                return lines

    def _remember(self, event: Event, key: str) -> None:
        """Keep what later lines may refer to; the kinds of these events are `REFERRED`."""
        match event:
            case ModelRequested():
                self._requests[key] = event
            case ModelReplied(completion):
                self._remember_calls(key, completion.calls)
            case CallsProposed(calls):
                self._remember_calls(key, calls)
            case GateDecided() if event.reason and event.verdict != "ask":
                self._refusals[key] = event.reason
            case _:
                pass

    def _remember_calls(self, key: str, calls: Sequence[ToolCall]) -> None:
        for number, call in enumerate(calls):
            self._calls[call_key(key, number)] = call

    def _name_model(
        self, key: str, lines: list[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        """Put the model that was asked, and the purpose of the call, before the first line."""
        (label, text), *others = lines
        request = self._requests.get(key)
        asked = "asked" if request is None else request.summary()
        return [(label, f"{asked}: {text}"), *others]

    def _show_decision(
        self, event: GateDecided, key: str, lines: list[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        call = self._calls.get(key)
        if call is None:  # an engine's own effect, a delegation
            return lines
        changed = event.arguments
        arguments = call.arguments if changed is None else changed
        return [("call", f"{format_call(event.tool, arguments)}  [{event.decision}]")]
