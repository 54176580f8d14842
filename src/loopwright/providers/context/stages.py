"""Stages of a context policy: each makes a view smaller in its own way, and the next continues where it ends."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

from ..._internal import dataclasses
from ...messages import Message, estimate_size
from .base import ContextView, Span, View, index_turns
from .sliding_context import find_required

MAX_FAILURES = 3
"""How many of the newest failures are kept as they are."""
FAILURE_SHARE = 1 / 4
"""The part of the target that failures may have."""
RECENT_SHARE = 3 / 4
"""The part of the target that the newest results, or turns, may have."""
MIN_SHOWN = 400
"""Characters of a long result of the newest turn that are sent at least."""
MIN_TURNS = 12
"""How many turns should have room between two cuts, so that requests share most of their beginning."""
LONG_TURNS_SHARE = 3 / 4
"""The part of the target that a cut leaves where turns are so long that fewer have room."""
MEASURED_TURNS = 6
"""How many of the newest turns say how long turns are."""


class Stage(Protocol):
    """Makes a view smaller, which it returns as it is where it cannot."""

    async def cut(self, at: ContextView, view: View, target: int) -> View:
        """Return a view of about `target` tokens; it leaves out more than `view` does, and brings back nothing."""
        ...


@dataclasses.dataclass(frozen=True)
class Stages:
    """A policy that lets a conversation grow until it has no room, and then cuts it by its stages, to half of that.

    Where turns are so long that half is full again after fewer than twelve, it cuts to three eighths.
    What was cut stays cut, so that each request begins with what the one before sent, which providers keep in caches.

    Args:
        stages: what cuts, in order; a stage begins where those before it did not leave `target` tokens.
        clear_at_least: tokens that a cut takes away at least, or half of the room if that is less.
    """

    sends_what_fits: ClassVar[bool] = True
    stages: tuple[Stage, ...]
    clear_at_least: int = 1_000

    async def view(self, at: ContextView) -> View:
        """Return the view before with what is new, cut if that has no room."""
        previous = at.previous
        if previous is None or previous.replacement is not None:
            previous = View.whole(at.conversation)
        view = previous.extend(at.conversation)
        if at.count(view) <= at.room:
            return view
        cleared = min(self.clear_at_least, at.room // 2)
        wanted = _choose_target(at, view)
        target = max(min(wanted, at.count(view) - cleared), 1)
        for stage in self.stages:
            view = await stage.cut(at, view, target)
            if at.count(view) <= target:
                break
        return view if at.count(view) <= at.room else shorten_results(at, view)


def _choose_target(at: ContextView, view: View) -> int:
    """Return how many tokens a cut leaves: less where the newest turns are long."""
    turns = list_shown_turns(at, view)[-MEASURED_TURNS:]
    newest = at.count(list_sent(at, view, [index for turn in turns for index in turn]))
    needed = MIN_TURNS * newest / max(len(turns), 1)
    is_long = at.room - at.target < needed
    return int(at.target * LONG_TURNS_SHARE) if is_long else at.target


@dataclasses.dataclass(frozen=True)
class Masking:
    """Puts where to find it in the place of each old result, the oldest first.

    The newest failures and errors that are not repeated stay.

    Args:
        keep: how many of the newest results stay; fewer if they are long.
    """

    sends_what_fits: ClassVar[bool] = True
    keep: int = 6

    async def view(self, at: ContextView) -> View:
        """Return the view of a policy with this stage, and `Window` for what it leaves."""
        return await Stages((self, Window())).view(at)

    async def cut(self, at: ContextView, view: View, target: int) -> View:
        """Return the view with more results masked."""
        messages, turns = at.conversation.messages, list_shown_turns(at, view)
        results = [i for turn in turns for i in turn if messages[i].role == "tool"]
        newest = set(turns[-1]) if turns else set[int]()
        recent = fit_newest(at, [[i] for i in results][-self.keep :], target)
        staying = newest | recent | find_failures(at, view, target) | set(view.masked)
        masked, size, tokens = list(view.masked), view.size, at.count(view)
        for index in results:
            if index in staying:
                continue
            if tokens <= target:
                break
            result, mask = messages[index], at.mask(index)
            saved = estimate_size(result) - estimate_size(mask)
            if saved > 0:
                masked.append(index)
                size -= saved
                tokens -= at.count([result]) - at.count([mask])
        shortened = tuple(one for one in view.shortened if one[0] not in masked)
        return dataclasses.replace(
            view, masked=tuple(sorted(masked)), shortened=shortened, size=size
        )


@dataclasses.dataclass(frozen=True)
class Window:
    """Leaves out the oldest turns; system message, task, newest turns and newest failures stay.

    Args:
        recent: how many of the newest turns stay; fewer if they are long.
    """

    sends_what_fits: ClassVar[bool] = True
    recent: int = 6

    async def view(self, at: ContextView) -> View:
        """Return the view of a policy with this stage alone."""
        return await Stages((self,)).view(at)

    async def cut(self, at: ContextView, view: View, target: int) -> View:
        """Return the view without more of its oldest turns."""
        turns = list_shown_turns(at, view)
        required = list_required_indexes(at, turns)
        failures = find_failures(at, view, target)
        recent = fit_newest(at, [*map(list, turns)][-self.recent :], target, view)
        left_out: set[int] = set()
        size, tokens = view.size, at.count(view)
        for turn in turns:
            members = set(turn)
            if members & (required | failures | recent):
                continue
            if tokens <= target:
                break
            left_out |= members
            sent = list(list_sent(at, view, turn))
            size -= measure(sent)
            tokens -= at.count(sent)
        return drop_messages(at, view, left_out, size)


def drop_messages(at: ContextView, view: View, indexes: set[int], size: int) -> View:
    """Return a view without the messages at some indexes, with a note that says so."""
    if not indexes:
        return view
    messages, newest = at.conversation.messages, max(indexes)
    indexes = indexes | {i for i in view.indexes if messages[i].slot and i < newest}
    kept = [index for index in view.indexes if index not in indexes]
    masked = tuple(index for index in view.masked if index not in indexes)
    shortened = tuple(one for one in view.shortened if one[0] not in indexes)
    count = view.length - len(kept)
    notes = *(note for note in view.notes if note.origin == "memory"), _write_notice(at, count)  # fmt: skip
    return dataclasses.replace(
        view, spans=_join(kept), masked=masked, shortened=shortened, notes=notes, size=size
    )  # fmt: skip


def _write_notice(at: ContextView, count: int) -> Message:
    """Return the note in the place of messages that are left out."""
    hint = ': search them with recall("all", find="...")' if at.can_recall else ""
    noun = "message is" if count == 1 else "messages are"
    return Message("user", f"[{count} earlier {noun} left out{hint}]", origin="runtime")


def shorten_results(at: ContextView, view: View) -> View:
    """Return a view with less of the long results of its newest turn, which alone has no room."""
    messages = at.conversation.messages
    turns = list_shown_turns(at, view)
    results = [i for i in turns[-1] if messages[i].role == "tool"] if turns else []
    if not results:
        return view
    others = at.count(view) - at.count([messages[i] for i in results])
    share = max(at.room - others, 0) / len(results)
    shortened = dict(view.shortened)
    for index in results:
        result = messages[index]
        tokens = at.count([result])
        if tokens > share and index not in view.masked:
            shown = int(len(result.content) * share / tokens * 0.9)
            shortened[index] = min(max(shown, MIN_SHOWN), len(result.content))
    return dataclasses.replace(view, shortened=tuple(sorted(shortened.items())))


def measure(messages: Iterable[Message]) -> int:
    """Return about how many bytes messages have."""
    return sum(map(estimate_size, messages))


def list_shown_turns(at: ContextView, view: View) -> list[range]:
    """Return the turns of a view as rows of indexes; messages with a slot are of no turn."""
    messages = at.conversation.messages
    rows = (index_turns(messages[start:stop], start) for start, stop in view.spans)
    return [turn for row in rows for turn in row if not messages[turn.start].slot]


def list_sent(at: ContextView, view: View, indexes: Iterable[int]) -> Iterator[Message]:
    """Yield the messages of a view at some indexes, as they are sent."""
    masked = set(view.masked)
    for index in indexes:
        yield at.mask(index) if index in masked else at.conversation.messages[index]


def list_required_indexes(at: ContextView, turns: list[range]) -> set[int]:
    """Return the indexes of system messages, the task and the newest turn, among the turns of a view."""
    messages = at.conversation.messages
    shown = [[messages[index] for index in turn] for turn in turns]
    return {index for number in find_required(shown) for index in turns[number]}


def find_failures(at: ContextView, view: View, target: int) -> set[int]:
    """Return the indexes of the turns of failures that stay: the newest, and errors that do not come again."""
    messages, kept, seen = at.conversation.messages, set[int](), set[str]()
    room = target * FAILURE_SHARE
    masked = set(view.masked)
    for turn in reversed(list_shown_turns(at, view)):
        failed = [i for i in turn if i not in masked and at.is_failure(i)]
        texts = {messages[i].content for i in failed}
        is_new = len(seen) < MAX_FAILURES or not texts <= seen
        if failed and is_new:
            room -= at.count([messages[i] for i in turn])
            if room < 0:
                break
            kept |= set(turn)
            seen |= texts
    return kept


def fit_newest(
    at: ContextView, rows: list[list[int]], target: int, view: View | None = None
) -> set[int]:
    """Return the indexes of the newest rows that fit into a part of the target."""
    messages, fitting = at.conversation.messages, set[int]()
    room = target * RECENT_SHARE
    for row in reversed(rows):
        sent = [messages[i] for i in row] if view is None else list_sent(at, view, row)
        room -= at.count(sent)
        if room < 0:
            break
        fitting |= set(row)
    return fitting


def _join(indexes: list[int]) -> tuple[Span, ...]:
    """Return indexes as rows."""
    spans: list[Span] = []
    for index in indexes:
        if spans and spans[-1][1] == index:
            spans[-1] = spans[-1][0], index + 1
        else:
            spans.append((index, index + 1))
    return tuple(spans)
