"""What the model calls of a run sent, as the journal keeps it: what other entries hold by their codes, all else once."""

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json, to_jsonable_python

from ..._internal import dataclasses
from ..._internal.encoder import find_code
from ...events.effect_key import EffectKey
from ...events.request_records import (
    AidsRecord,
    ContentStored,
    RequestRecord,
    ViewRecord,
    add_aids,
    digest_behind,
    expand_places,
)
from ...events.run import compact_messages
from ...journals.turn_marks import TurnMark, format_handle
from ...messages import Conversation, Message, ToolSpec
from ...providers.base import Request
from ...providers.context.sliding_context import MASK
from ...security.redaction import Redactor
from ...security.redaction.messages import redact_messages
from ..durability.replay import Replay
from .journal_writer import JournalWriter
from .recent_views import Shown
from .secrets import Secrets

MAX_INLINE_CONTENT = 1024
"""Longer tools and schemas, in bytes, get an entry of their own, which a journal may keep once for many runs."""
NO_AIDS = AidsRecord(0, ())


class RequestLog:
    """Describes the requests of one run; each continues the one before in its scope.

    Args:
        writer: records what no entry holds.
        redactor: has cleaned whatever engines ask.
        secrets: knows, beside those of the redactor, the secrets that the run has learnt.
    """

    def __init__(
        self,
        writer: JournalWriter,
        redactor: Redactor,
        secrets: Secrets,
        replay: Replay,
    ) -> None:
        self._writer, self._redactor, self._secrets = writer, redactor, secrets
        self._run_id, self._recorded = writer.claim.run_id, replay.requests
        self._sent: dict[str, tuple[int, tuple[Message, ...]]] = {}
        """The number of the entry with the last request of each scope, and its messages."""
        self._codes: dict[bytes, str] = dict(replay.requests.codes)
        """The codes of contents, by the hash of these."""
        self._tool_codes: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], str]] = {}
        """The codes of lists of tools, by the identity of these, which are kept so that it stays theirs."""
        self._is_new = replay.started is None
        self._given: Conversation | None = None
        self._places: dict[int, int] = {}
        self._contents: list[Any] = []
        self._is_redacted = False
        self.noted: set[str] = set()
        """The keys of the calls whose intents this process recorded."""
        self.trimmed = set(replay.requests.trimmed)
        """The keys of the calls that did not send all of their conversation."""
        self._views = dict(replay.requests.views)
        self._aids = dict(replay.requests.aids)

    def begin(self, given: Conversation) -> None:
        """Know the conversation that the run began with."""
        self._given = given

    def describe(
        self, key: str, request: Request, shown: Shown, *, redacted: bool
    ) -> RequestRecord:
        """Return what a request is in the journal, for the entry that is recorded next.

        `shown` is what the context policy selected. A request is `redacted` if more was sent than it says.
        """
        self._is_redacted, self._contents = redacted, []
        messages, path = request.conversation.messages, EffectKey.parse(key).path
        base, before = self._sent.get(path, (0, ()))
        kept = _count_common(before, messages)
        ids = tuple(map(id, request.tools))
        tools_code = self._tool_codes.get(ids, ((), ""))[1]
        tools = None if tools_code else self._list_tools(request.tools)
        schema = request.schema and [request.schema.name, dict(request.schema.schema)]
        self._keep_apart("tools", tools)
        self._keep_apart("schema", schema)
        codes = [*map(self._name, messages[kept:])]
        view, cut = shown.view, None
        masked = len(view.masked) + len(view.shortened)
        if not view.is_whole:
            masked += sum(1 for one in messages if one.content == MASK)
            self.trimmed.add(key)
            cut = self._describe_view(path, shown) if view.is_cut else None
        record = RequestRecord(
            base, kept, _join_places(codes), (), tools_code or self._store(tools), self._store(schema),
            request.tool_choice == "auto", None, request.timeout,
            self._store(to_jsonable_python(request.provider_tools)), request.max_provider_calls,
            len(request.system), view.left_out, masked, view=cut,
            aids=self._describe_aids(path, shown),
        )  # fmt: skip
        self._tool_codes[ids] = request.tools, record.tools
        return dataclasses.replace(
            record, contents=tuple(self._contents), redacted=self._is_redacted
        )

    def _describe_view(self, path: str, shown: Shown) -> ViewRecord | None:
        """Return a view that is not the one before with what is new; `None` for that one.

        Where another conversation of the scope fits, the view of this one is still the last.
        """
        view, known = shown.view, self._views.get(path)
        notes = tuple(map(self._name, view.notes))
        record = ViewRecord(
            view.length, shown.asked.digest.hex(), view.spans, view.masked, view.shortened, notes,
            view.summary_key, view.summarized,
        )  # fmt: skip
        self._views[path] = record
        if known is not None and _cut_of(known) == _cut_of(record):
            return None
        behind = digest_behind(shown.asked.messages)
        return dataclasses.replace(record, behind=behind)

    def _describe_aids(self, path: str, shown: Shown) -> AidsRecord | None:
        """Return the aids of a request, unless the last one of its scope had the same at the same place."""
        codes = tuple(map(self._name, shown.aids))
        record = AidsRecord(shown.place, codes, shown.before)
        known = self._aids.get(path, ())
        if record == (NO_AIDS, *known)[-1]:
            return None
        self._aids[path] = add_aids(known, record)
        return record

    def list_aids(self, path: str, aids: Sequence[Message]) -> list[AidsRecord]:
        """Return where earlier requests of a scope had the same aids, the one behind the most messages first."""
        codes = tuple(map(self._find_name, aids))
        known = (one for one in self._aids.get(path, ()) if one.codes == codes)
        return sorted(known, key=lambda one: -one.place)

    def find_recorded(self, key: str, record: RequestRecord) -> int:
        """Return the number of the entry that holds this request of an earlier process; 0 if none does."""
        seq, known = self._recorded.last.get(key, (0, None))
        if known is None or self._expand(known) != self._expand(record):
            return 0
        return seq

    def note(self, key: str, seq: int, request: Request, record: RequestRecord) -> None:
        """Note which entry holds the last request of a scope."""
        self.noted.add(key)
        if self._recorded.last:  # requests of an earlier process are compared with it
            self._recorded.by_seq.setdefault(seq, record)
        self._sent[EffectKey.parse(key).path] = seq, request.conversation.messages

    def _expand(self, record: RequestRecord) -> RequestRecord:
        """Return a record that continues no other, and has a code for each message."""
        chain = [record]
        while chain[-1].base:
            chain.append(self._recorded.by_seq[chain[-1].base])
        codes: list[str] = []
        for one in reversed(chain):
            del codes[one.kept :]
            codes += expand_places(one.added)
        return dataclasses.replace(
            record, base=0, kept=0, added=tuple(codes), contents=(), view=None, aids=None
        )  # fmt: skip

    def get_given(self) -> Conversation:
        """Return the conversation that the run began with."""
        return self._given or Conversation()

    def find_code(self, message: Message) -> str:
        """Return the code of a message that the run began with, or that an entry holds; empty for another one."""
        own = find_code(message.entry, self._run_id)
        if own:
            return own
        if self._given is not None and not self._places:
            given = enumerate(self._given.messages)
            self._places = {id(one): place for place, one in given}
        place = self._places.get(id(message))
        return "" if place is None else f"@{place}"

    def find_handle(self, message: Message, mark: TurnMark) -> str:
        """Return the handle of a message, the same in every turn; `mark` is that of the conversation begun with.

        Empty for a message that the journal does not have.
        """
        return format_handle(message, self.find_code(message), mark)

    def _name(self, message: Message) -> str:
        """Return the code of a message."""
        return self.find_code(message) or self._store(self._clean(message))

    def _find_name(self, message: Message) -> str:
        """Return the code of a message; empty for one that has none yet."""
        digest = hashlib.sha256(to_json(self._clean(message))).digest()
        return self.find_code(message) or self._codes.get(digest, "")

    def _clean(self, message: Message) -> Any:
        """Return a message as plain data, without secrets."""
        if not self._is_new:  # what an earlier process recorded may be a secret now
            [message] = redact_messages(self._redactor, (message,))
        [plain] = compact_messages((message,))
        clean = to_jsonable_python(plain)
        if self._secrets.redactor is not self._redactor:
            clean = self._redact(clean)
        return clean

    def _list_tools(self, tools: tuple[ToolSpec, ...]) -> Any:
        """Return tools as plain data, without secrets."""
        listed = [[one.name, one.description, dict(one.schema)] for one in tools]
        return self._redact(to_jsonable_python(listed))

    def _redact(self, plain: Any) -> Any:
        clean = self._secrets.redactor.redact_value(plain)
        self._is_redacted |= clean is not plain
        return clean

    def _keep_apart(self, what: str, content: Any) -> None:
        """Record a long content in an entry of its own."""
        if not content:
            return
        encoded = to_json(content)
        digest = hashlib.sha256(encoded).digest()
        if len(encoded) > MAX_INLINE_CONTENT and digest not in self._codes:
            entry = self._writer.record("", ContentStored(what, content))
            self._codes[digest] = f"${entry.seq}"

    def _store(self, content: Any) -> str:
        """Return the code of a content; one that no entry holds is put into the next one."""
        if not content:
            return ""
        digest = hashlib.sha256(to_json(content)).digest()
        if digest not in self._codes:
            seq = self._writer.claim.head_seq + 1
            self._codes[digest] = f"${seq}.{len(self._contents)}"
            self._contents.append(content)
        return self._codes[digest]


def _cut_of(record: ViewRecord) -> tuple[object, ...]:
    """Return what stays of a view while it only grows."""
    *spans, (last, _) = record.spans or ((0, 0),)
    return spans, last, record.masked, record.shortened, record.notes


def _count_common(before: tuple[Message, ...], messages: tuple[Message, ...]) -> int:
    """Return how many messages two conversations begin with in common."""
    count = len(before)
    if messages[:count] == before:
        return count
    pairs = zip(before, messages, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _join_places(codes: Sequence[str]) -> tuple[str, ...]:
    """Return the codes, with one for each row of messages that the run began with."""
    if "@" not in "".join(codes):
        return tuple(codes)
    joined: list[str] = []
    for _, group in itertools.groupby(enumerate(codes), _find_row):
        members = [code for _, code in group]
        is_row = len(members) > 1
        joined.append(f"{members[0]}-{members[-1][1:]}" if is_row else members[0])
    return tuple(joined)


def _find_row(numbered: tuple[int, str]) -> tuple[bool, int]:
    """Return the row of a code: messages in a row have places that grow as their indexes do."""
    index, code = numbered
    if not code.startswith("@"):
        return False, index
    return True, int(code[1:]) - index
