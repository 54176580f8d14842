"""The texts of a run by the handles that stand for them in its conversation, for a model that reads them again."""

from collections.abc import Iterator

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..errors import ToolError
from ..events.lifecycle import read_start
from ..events.request_records import Excerpt
from ..messages import Conversation, JsonObject
from ..parsing.excerpts import ALL, MAX_CHARACTERS, MAX_MATCHES, select_excerpts
from .recorded_conversations import ReadableJournal, count_kept
from .recorded_messages import RecordedMessages, RecordedText, delimiter_of

_HANDLE = compile_late(
    r"([0-9]{1,9})/(@[0-9]{1,9}|(?=\S)[^@=!+\s]*(?:[=!]|\+[0-9]{1,9})?)"
)
"""The number of a run, and a place or the code of a message; a model may write any text."""


@dataclasses.dataclass(frozen=True)
class Found:
    """A part of an earlier text, with the whole."""

    excerpt: Excerpt
    source: RecordedText


class RecalledTexts:
    """The texts of a run, and of the runs that it continues; it reads the journal, so it belongs into a thread.

    Args:
        journal: holds the run.
        run_id: the run.
        given: the conversation that it began with.
        turn: its number among the runs that continue each other.
    """

    def __init__(
        self, journal: ReadableJournal, run_id: str, given: Conversation, turn: int
    ) -> None:
        self._journal, self._turn = journal, turn
        entries = journal.read(run_id)
        started = read_start(run_id, entries)
        self._follows = started.follows
        delimiter = started.boundary or delimiter_of(run_id)
        self.messages = RecordedMessages(entries, delimiter, lambda: given)

    def select(self, arguments: JsonObject) -> list[Found]:
        """Return the parts that a call asks for; raise `ToolError` or `JournalError`."""
        handle, find = str(arguments["handle"]).strip(), str(arguments.get("find", ""))
        if handle == ALL:
            if not find:
                raise ToolError('find: is needed with the handle "all"; say what to look for')  # fmt: skip
            return self._search(find)
        code = self._resolve(handle)
        source = self.messages.find_text(code)
        offset = arguments.get("offset", 0)
        parts = select_excerpts(
            source.text, str(arguments.get("lines", "")), find,
            int(offset) if isinstance(offset, (int, float)) else 0,
        )  # fmt: skip
        if find and not parts:
            raise ToolError(f"find: {handle} does not have {find!r:.80}")
        return [
            Found(Excerpt(handle, code, start, stop), source) for start, stop in parts
        ]

    def _search(self, find: str) -> list[Found]:
        """Return the first places of all texts that have what is looked for."""
        found: list[Found] = []
        size = 0
        for code, source in self.messages.list_texts():
            handle = f"{self._turn}/{code}"
            for start, stop in select_excerpts(source.text, find=find):
                size += stop - start
                if len(found) == MAX_MATCHES or size > MAX_CHARACTERS:
                    return found
                found.append(Found(Excerpt(handle, code, start, stop), source))
        return found

    def _resolve(self, handle: str) -> str:
        """Return the code by which this run knows what a handle stands for."""
        found = _HANDLE.fullmatch(handle)
        if found is None:
            raise ToolError(
                f'handle: must be one such as "1/12#0", or "all", got {handle!r:.80}'
            )
        turn, code = int(found[1]), found[2]
        if turn == self._turn:
            return code
        later: list[_EarlierRun] = []
        for run in self._iterate_earlier():
            if run.number == turn:
                place = run.find_place(code)
                if place is None or any(one.has_dropped(place) for one in later):
                    raise ToolError(f"handle: {handle!r:.80} is not part of the conversation any more")  # fmt: skip
                return f"@{place}"
            later.append(run)
        raise ToolError(f"handle: {handle!r:.80} is of another conversation, or of a run that was deleted")  # fmt: skip

    def _iterate_earlier(self) -> Iterator["_EarlierRun"]:
        """Yield the runs that this one continues, the last one first."""
        follows, number = self._follows, self._turn
        while follows is not None:
            number -= 1
            entries = self._journal.read(follows.run_id)[: follows.seq]
            started = read_start(follows.run_id, entries)
            follows = started.follows
            begun = len(started.messages) + (follows.messages if follows else 0)
            yield _EarlierRun(number, begun, count_kept(entries), entries[-1].event)


@dataclasses.dataclass(frozen=True)
class _EarlierRun:
    """A run that is continued: its number, how many messages it began with, and how many of them it kept."""

    number: int
    begun: int
    kept: int
    ended: object

    def has_dropped(self, place: int) -> bool:
        """Whether something else stood at a place when the run began than when it ended."""
        return self.kept <= place < self.begun

    def find_place(self, code: str) -> int | None:
        """Return the place of a message in the conversation that the run ended with; `None` if it is not in there."""
        if code.startswith("@"):
            place = int(code[1:])
            return place if place < min(self.kept, self.begun) else None
        added = getattr(self.ended, "added", None) or ()
        return self.kept + added.index(code) if code in added else None
