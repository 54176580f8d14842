"""A run's journal as lines for people: who said what, which calls were let through, what came of them."""

import dataclasses
from collections.abc import Iterable
from functools import singledispatchmethod

from ..events.control import (
    CommandReceived,
    Declassified,
    FollowedUp,
    RunContinued,
    RunPaused,
)
from ..events.effect_key import EffectKey, call_key
from ..events.effects import (
    AttemptFailed,
    BreakerChanged,
    CallDeadLettered,
    CallsProposed,
    ChildFinished,
    ChildStarted,
    DriftNoticed,
    EffectFinished,
    FactNoted,
    GateDecided,
    LimitHit,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RecoveryTriggered,
    ToolFinished,
    UndoBegun,
    UndoFinished,
    UnknownOutcomeResolved,
)
from ..events.entry import Entry, Event, UnknownEvent
from ..events.run import (
    ErrorRecord,
    RunFinished,
    RunForked,
    RunResumed,
    RunStarted,
    RunSuspended,
)
from ..messages import ToolCall, Usage
from .text import as_call, as_process, as_value

SAID = (
    "text",
    "key",
    "tool",
    "arguments",
    "seconds",
    "reason",
    "label",
    "by",
    "verdict",
    "result",
)
"""What of a command's body is shown; the rest binds it to its question."""
VERDICTS = {"allow": "allowed", "modify": "changed", "deny": "denied", "ask": "asks"}


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a timeline; `text` is as the model or tool wrote it: whoever shows it cleans it."""

    seq: int
    key: str
    label: str
    text: str

    @property
    def depth(self) -> int:
        """How deep in branches and children it happened; 0 is the engine itself."""
        return min(self.key.count("."), 8)


class Timeline:
    """Turns the entries of one run, in order, into lines; some entries give none, some several."""

    def __init__(self) -> None:
        self._asked: dict[str, ModelRequested] = {}
        self._calls: dict[str, ToolCall] = {}
        self._refused: dict[str, str] = {}

    def read(self, entries: Iterable[Entry]) -> None:
        """Take in entries whose lines nobody wants, so that later ones can refer to them."""
        for entry in entries:
            self.lines(entry)

    def lines(self, entry: Entry) -> list[Line]:
        """The lines of one entry."""
        key = _place(entry.key)
        opening = [("run", entry.run_id)] if isinstance(entry.event, RunStarted) else []
        return [
            Line(entry.seq, key, label, text)
            for label, text in opening + self._told(entry.event, key)
            if text
        ]

    @singledispatchmethod
    def _told(self, event: Event, key: str) -> list[tuple[str, str]]:
        """Label and text of each line; of most intents nothing is told, their outcome is."""
        return []

    @_told.register
    def _(self, event: RunStarted, key: str) -> list[tuple[str, str]]:
        changed = {
            name: value
            for name, value in event.options.items()
            if value not in (None, {}, [])
        }
        options = ", ".join(
            f"{name}={as_value(value)}" for name, value in changed.items()
        )
        told = [("engine", f"{event.engine}  {options}".rstrip())]
        told += [
            ("system", message.content)
            for message in event.messages
            if message.role == "system"
        ]
        task = next(
            (message for message in reversed(event.messages) if message.role == "user"),
            None,
        )
        if task is not None:
            told += [
                ("attached", f"{sent.kind} {sent.name or sent.media_type or sent.url}")
                for sent in task.attachments
            ]
            told.append(("task", task.content))
        return told

    @_told.register
    def _(self, event: RunResumed, key: str) -> list[tuple[str, str]]:
        return [("resumed", f"by {as_process(event.owner)}")]

    @_told.register
    def _(self, event: RunForked, key: str) -> list[tuple[str, str]]:
        return [("forked", f"from {event.run_id}, after its entry {event.seq}")]

    @_told.register
    def _(self, event: RunSuspended, key: str) -> list[tuple[str, str]]:
        asked = [("question", question.text) for question in event.pending]
        return [*asked, ("end", f"suspended: {event.reason}")]

    @_told.register
    def _(self, event: CommandReceived, key: str) -> list[tuple[str, str]]:
        words = {
            name: value
            for name, value in event.body.items()
            if name in SAID and value not in (None, "")
        }
        said = ", ".join(f"{name}={as_value(value)}" for name, value in words.items())
        refused = [("refused", event.refused)] if event.refused else []
        return [
            ("person", f"{event.command.replace('_', ' ')}  {said}".rstrip()),
            *refused,
        ]

    @_told.register
    def _(self, event: RunPaused, key: str) -> list[tuple[str, str]]:
        return [("paused", "until somebody lets it go on")]

    @_told.register
    def _(self, event: RunContinued, key: str) -> list[tuple[str, str]]:
        return [("goes on", f"after {event.lasted:.1f} s")]

    @_told.register
    def _(self, event: FollowedUp, key: str) -> list[tuple[str, str]]:
        return [("told", event.text)]

    @_told.register
    def _(self, event: Declassified, key: str) -> list[tuple[str, str]]:
        return [("label", f"{event.label} from here on: {event.reason}")]

    @_told.register
    def _(self, event: RunFinished, key: str) -> list[tuple[str, str]]:
        spent = spending(event.usage, event.llm_calls, event.tool_calls)
        told = [
            ("answer", event.answer or ""),
            ("output", as_value(event.output) if event.output is not None else ""),
        ]
        told += [("error", _error(event.error))]
        return [
            *told,
            ("end", f"{event.status}: {event.stop_reason}"),
            ("usage", spent),
        ]

    @_told.register
    def _(self, event: ModelRequested, key: str) -> list[tuple[str, str]]:
        self._asked[key] = event
        return [
            ("told", message.content) for message in event.delivered if message.trusted
        ]  # a result stands above

    @_told.register
    def _(self, event: ModelReplied, key: str) -> list[tuple[str, str]]:
        reply = event.completion
        for number, call in enumerate(reply.calls):
            self._calls[call_key(key, number)] = call
        told = [
            (
                "model",
                f"{self._asking(key)}: {event.seconds:.1f} s{_tokens(reply.usage)}",
            )
        ]
        told += [("thinking", thought.text) for thought in reply.reasoning]
        said = (
            reply.thought if reply.calls else reply.thought or reply.text
        )  # the text of a call may be its protocol
        words = said if reply.answer is None else reply.answer
        told += [
            ("thought" if reply.calls or reply.problem else "reply", words),
            ("problem", reply.problem or ""),
        ]
        return told

    @_told.register
    def _(self, event: ModelFailed, key: str) -> list[tuple[str, str]]:
        return [
            (
                "model",
                f"{self._asking(key)}: failed after {event.seconds:.1f} s: {_error(event.error)}",
            )
        ]

    @_told.register
    def _(self, event: AttemptFailed, key: str) -> list[tuple[str, str]]:
        return [
            (
                "retry",
                f"attempt {event.attempt} failed, again in {event.delay:.1f} s: {_error(event.error)}",
            )
        ]

    @_told.register
    def _(self, event: LimitHit, key: str) -> list[tuple[str, str]]:
        return [("limit", f"{event.limit}: {event.detail}")]

    @_told.register
    def _(self, event: CallsProposed, key: str) -> list[tuple[str, str]]:
        self._calls.update(
            {call_key(key, number): call for number, call in enumerate(event.calls)}
        )
        return []

    @_told.register
    def _(self, event: GateDecided, key: str) -> list[tuple[str, str]]:
        call = self._calls.get(key)
        if call is None:  # an engine's own effect, a delegation
            label, what = "gate", event.tool
        else:
            arguments = call.arguments if event.arguments is None else event.arguments
            label, what = "call", as_call(event.tool, arguments)
        if event.reason and event.verdict != "ask":
            self._refused[key] = event.reason
        reason = f": {event.reason}" if event.reason else ""
        return [
            (label, f"{what}  [{VERDICTS.get(event.verdict, event.verdict)}{reason}]")
        ]

    @_told.register
    def _(self, event: ToolFinished, key: str) -> list[tuple[str, str]]:
        if self._refused.get(key) == event.content:
            return []  # the decision has said it
        status = "" if event.status == "ok" else f"{event.status}: "
        return [("result", f"{status}{event.content}" or "(nothing)")]

    @_told.register
    def _(self, event: RecoveryTriggered, key: str) -> list[tuple[str, str]]:
        pause = f" in {event.delay:.1f} s" if event.delay else ""
        return [
            (
                "recovery",
                f"{event.tool}: {event.status}: {event.error}; {event.strategy.replace('_', ' ')}{pause}",
            )
        ]

    @_told.register
    def _(self, event: UnknownOutcomeResolved, key: str) -> list[tuple[str, str]]:
        who = "it was looked up" if event.by == "lookup" else "somebody said"
        result = f": {event.result}" if event.result else ""
        return [
            ("doubt", f"{event.tool}: {who}: {event.verdict.replace('_', ' ')}{result}")
        ]

    @_told.register
    def _(self, event: CallDeadLettered, key: str) -> list[tuple[str, str]]:
        return [
            (
                "set aside",
                f"{as_call(event.tool, event.arguments)}  [{event.queue}]: {event.error}",
            )
        ]

    @_told.register
    def _(self, event: UndoBegun, key: str) -> list[tuple[str, str]]:
        count = len(event.calls)
        return [
            (
                "undo",
                f"{event.status}: {event.stop_reason}; {count} call{'s' * (count != 1)} to undo",
            )
        ]

    @_told.register
    def _(self, event: UndoFinished, key: str) -> list[tuple[str, str]]:
        return [
            (
                "undone" if event.status == "ok" else "undo",
                f"{event.tool}: {event.status}: {event.content}",
            )
        ]

    @_told.register
    def _(self, event: EffectFinished, key: str) -> list[tuple[str, str]]:
        return [
            ("effect", f"{event.name}: {_error(event.error) or as_value(event.value)}")
        ]

    @_told.register
    def _(self, event: ChildStarted, key: str) -> list[tuple[str, str]]:
        return [("child", f"{event.engine} starts")]

    @_told.register
    def _(self, event: ChildFinished, key: str) -> list[tuple[str, str]]:
        said = event.answer if event.answer is not None else _error(event.error)
        return [
            (
                "child",
                f"{event.engine} ended, {event.status}: {event.stop_reason}: {said}",
            )
        ]

    @_told.register
    def _(self, event: FactNoted, key: str) -> list[tuple[str, str]]:
        return [("fact", f"{event.name} {as_value(event.value)}")]

    @_told.register
    def _(self, event: BreakerChanged, key: str) -> list[tuple[str, str]]:
        reason = f": {event.reason}" if event.reason else ""
        return [("breaker", f"{event.name}: {event.before} → {event.after}{reason}")]

    @_told.register
    def _(self, event: DriftNoticed, key: str) -> list[tuple[str, str]]:
        return [("drift", f"{event.what}: {event.before} → {event.after}")]

    @_told.register
    def _(self, event: UnknownEvent, key: str) -> list[tuple[str, str]]:
        return [("newer", as_value(event.body))]

    def _asking(self, key: str) -> str:
        asked = self._asked.get(key)
        if asked is None:
            return "asked"
        model = (
            "/".join(part for part in (asked.provider, asked.model) if part) or "asked"
        )
        return (
            f"{model}, {asked.purpose}"
            if asked.purpose
            else f"{model}, turn {asked.iteration}"
        )


def spending(usage: Usage, llm_calls: int, tool_calls: int) -> str:
    """What a run took: `2 model calls, 1 tool call, 120 + 40 tokens, cost 0.0012`."""
    calls = f"{llm_calls} model call{'s' * (llm_calls != 1)}, {tool_calls} tool call{'s' * (tool_calls != 1)}"
    return calls + _tokens(usage)


def _tokens(usage: Usage) -> str:
    """Tokens sent and received, where the provider told or they were estimated, and what it cost."""
    told = ""
    if usage.input_tokens is not None or usage.output_tokens is not None:
        about = "about " if usage.estimated else ""
        told = f", {about}{usage.input_tokens or 0} + {usage.output_tokens or 0} tokens"
    return told if usage.cost is None else f"{told}, cost {usage.cost:.6g}"


def _error(error: ErrorRecord | None) -> str:
    return "" if error is None else f"{error.type}: {error.message}"


def _place(key: str) -> str:
    """The key without the word before it that notes and clock readings have."""
    return EffectKey.parse(key).place
