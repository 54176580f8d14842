"""The requests that a journal holds: what each model call sent to the runtime's provider."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from ..errors import ConfigError, JournalError
from ..events.effects import (
    AttemptFailed,
    ModelFailed,
    ModelReplied,
    ModelRequested,
)
from ..events.entry import Entry
from ..events.lifecycle import read_start
from ..events.request_records import (
    ContentStored,
    RequestChanged,
    RequestRecord,
    expand_places,
)
from ..messages import Conversation, Message, ToolSpec
from ..providers.base import OutputSchema, Request, Sampling, ToolChoice
from ..providers.context.sliding_context import MASK_SIGN, mask_result
from ..providers.provider_tools import ProviderTool
from .access import consult
from .arguments import check_run_id, check_text, check_whole
from .recorded_conversations import ReadableJournal, read_given
from .recorded_messages import RecordedMessages, delimiter_of

_OFFERS = TypeAdapter(tuple[ProviderTool, ...], config=ConfigDict(defer_build=True))
_ENDS = (ModelReplied, ModelFailed)
_OF_A_CALL = (ModelRequested, RequestChanged, AttemptFailed, *_ENDS)


@functools.cache
def adapt_message() -> TypeAdapter[Message]:
    """Return what reads a stored message; to build it takes milliseconds."""
    return TypeAdapter(Message)


class RequestReader(ReadableJournal):
    """A journal that gives back what its model calls sent; one of your own may inherit from it."""

    async def request(self, run_id: str, key: str, attempt: int = -1) -> Request:
        """Return what an attempt of a model call sent to the runtime's provider, before dialects and adapters.

        Args:
            run_id: the run. Raises `UnknownRun`, and `ConfigError` for one of an early version, which has no requests.
            key: the key of the model call. Raises `ConfigError` if there is none.
            attempt: which attempt, from 0; -1 is the last. Raises `ConfigError` if there was none.
        """
        check_run_id(run_id)
        check_text("key", key, "the key of a model call")
        check_whole("attempt", attempt)
        return await consult(_read, self, run_id, key, attempt)


def _read(journal: ReadableJournal, run_id: str, key: str, attempt: int) -> Request:
    entries = journal.read(run_id)
    attempts = list(_iterate_attempts(entries, key))
    try:
        intent, record = attempts[attempt]
    except IndexError:
        raise ConfigError(
            f"key: run {run_id!r} has {len(attempts)} attempts of a model call at {key!r}, got attempt {attempt}"
        ) from None
    if record is None:
        raise ConfigError(
            f"run_id: an early version wrote run {run_id!r}, and did not record what was sent"
        )
    return _Requests(journal, run_id, entries).build(intent, record)


def _iterate_attempts(
    entries: Sequence[Entry], key: str
) -> Iterator[tuple[ModelRequested, RequestRecord | None]]:
    """Yield the intent and the request of each attempt of a model call."""
    intent: ModelRequested | None = None
    record: RequestRecord | None = None
    is_open = False
    for entry in entries:
        event = entry.event
        if entry.key != key or not isinstance(event, _OF_A_CALL):
            continue
        if intent is not None and is_open and not isinstance(event, RequestChanged):
            yield intent, record
        if isinstance(event, ModelRequested):
            intent, record = event, event.request
        elif isinstance(event, RequestChanged):
            record = event.request
        is_open = not isinstance(event, _ENDS)
    if intent is not None and is_open:
        yield intent, record


class _Requests:
    """Builds the requests of one run."""

    def __init__(
        self, journal: ReadableJournal, run_id: str, entries: list[Entry]
    ) -> None:
        self._journal = journal
        self._started = read_start(run_id, entries)
        self._entries = {entry.seq: entry for entry in entries}
        delimiter = self._started.boundary or delimiter_of(run_id)
        self._recorded = RecordedMessages(entries, delimiter, self._read_given)
        self._given: Conversation | None = None

    def build(self, intent: ModelRequested, record: RequestRecord) -> Request:
        """Return the request of a record."""
        settings = intent.sampling if record.sampling is None else record.sampling
        messages = self._find_messages(record)
        choice: ToolChoice = "auto" if record.is_free else "none"
        schema = self._find_content(record.schema)
        output = None if schema is None else OutputSchema(*schema)
        tools = self._find_content(record.tools) or ()
        offers = self._find_content(record.provider_tools) or ()
        return Request(
            Conversation().add(*messages),
            tuple(ToolSpec(*spec) for spec in tools),
            choice,
            Sampling.from_options(settings),
            output,
            as_text=intent.verb == "ask",
            timeout=record.timeout,
            provider_tools=_OFFERS.validate_python(offers),
            max_provider_calls=record.max_provider_calls,
            system=messages[0].content[: record.instructed] if messages else "",
            redacted=record.redacted,
        )

    def _find_messages(self, record: RequestRecord) -> list[Message]:
        chain = [record]
        while record.base:
            record = self._find_record(record.base)
            chain.append(record)
        messages: list[Message] = []
        for one in reversed(chain):
            del messages[one.kept :]
            messages += map(self._find, expand_places(one.added))
        return messages

    def _find_record(self, seq: int) -> RequestRecord:
        event: Any = self._entry(seq).event
        record = getattr(event, "request", None)
        if not isinstance(record, RequestRecord):
            raise JournalError(f"entry {seq} holds no request")
        return record

    def _find(self, code: str) -> Message:
        """Return the message of a code."""
        if code.endswith(MASK_SIGN):
            return mask_result(self._find(code[:-1]))
        if code.startswith("@"):
            return self._find_given(int(code[1:]))
        if code.startswith("$"):
            return adapt_message().validate_python(self._find_content(code))
        return self._recorded.find(code)

    def _find_given(self, place: int) -> Message:
        return self._read_given().messages[place]

    def _read_given(self) -> Conversation:
        if self._given is None:
            self._given = read_given(self._journal, self._started)
        return self._given

    def _find_content(self, code: str) -> Any:
        if not code:
            return None
        seq, _, index = code[1:].partition(".")
        if index:
            return self._find_record(int(seq)).contents[int(index)]
        event = self._entry(int(seq)).event
        if not isinstance(event, ContentStored):
            raise JournalError(f"entry {seq} holds no content of a request")
        return event.content

    def _entry(self, seq: int) -> Entry:
        if seq not in self._entries:
            raise JournalError(f"entry {seq}, which a request refers to, is gone")
        return self._entries[seq]
