"""Keep the arguments that are withheld from the journal, and the redactor that knows them."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from ..._internal import dataclasses
from ...events.effect_key import EffectKey, call_key
from ...events.run import Question
from ...messages import Conversation, JsonObject, Message, ToolCall
from ...security.redaction import Redactor
from ...security.redaction.messages import is_opaque_clean
from ...security.secret_store import SecretStore, WatchedSecrets
from ..durability.replay import Replay

SECRET_LOST = "It was not made, and it cannot be now: its arguments held a secret, which is not kept. Propose it again."


class Secrets:
    """The calls of a run whose arguments hold secrets, whole, for gates and tools of this process.

    `redactor` knows, beside the secrets of the runtime's redactor, those of the run's
    calls and of its child engines, and those that its tools asked for. It is for what is recorded as it arrives: replies,
    results, errors, reasons. What an engine produces by itself is produced again when
    the run is resumed, when those secrets are not known, and must be the same then.
    """

    def __init__(self, redactor: Redactor, replay: Replay) -> None:
        self.redactor = self._registered = redactor
        self._joined: dict[Redactor, Redactor] = {redactor: redactor}
        self._lock = threading.Lock()  # tools ask for secrets in threads
        self.calls: dict[str, ToolCall] = {}
        """The calls with arguments that are withheld, by their keys."""
        self.opaque: dict[str, ToolCall] = {}
        """The calls with opaque data that no entry holds, by the id of the call."""
        self.withheld = replay.effects.withheld
        """The keys of calls with arguments that no entry holds."""
        self.get: Callable[[str], ToolCall | None] = self.calls.get
        """Return the call at a key with its withheld arguments."""

    def keep(self, key: str, call: ToolCall) -> None:
        """Keep a call whole. The redactor learns its secrets, since the tool may repeat them."""
        self.calls[key] = call
        with self._lock:
            self.redactor = self.redactor.with_secrets_found_in(call.arguments)

    def keep_all(self, key: str, calls: Mapping[int, ToolCall]) -> None:
        """Keep the calls of a proposal, by their index in it."""
        for index, call in calls.items():
            self.keep(call_key(key, index), call)

    def discard(self, key: str) -> None:
        """Forget the call at a key."""
        self.calls.pop(key, None)

    def note_ids(self, key: str, calls: Iterable[ToolCall]) -> None:
        """Note the ids of a proposal's calls: their opaque data is sent back, and not recorded.

        It was made of the withheld arguments, so it may hold them in a form that nothing here can read.
        """
        for index, call in enumerate(calls):
            whole = self.calls.get(call_key(key, index))
            if whole is not None and is_opaque_clean(self.redactor, whole.block):
                self.opaque[call.id] = whole

    def restore_opaque_data(self, conversation: Conversation) -> Conversation:
        """Return a conversation as the provider gets it, with the opaque data of calls with withheld arguments."""
        messages = tuple(map(self._restore, conversation.messages))
        return (
            conversation
            if messages == conversation.messages
            else Conversation(messages)
        )

    def _restore(self, message: Message) -> Message:
        calls = tuple(map(self._restore_call, message.calls))
        return (
            message
            if calls == message.calls
            else dataclasses.replace(message, calls=calls)
        )

    def _restore_call(self, call: ToolCall) -> ToolCall:
        whole = self.opaque.get(call.id)
        if whole is None or call.form or whole.name != call.name:
            return call
        return dataclasses.replace(
            call, form=whole.form, block=whole.block, source=whole.source
        )

    def clean_question(self, question: Question) -> Question:
        """Return a question without what has become a secret since its call was recorded; its hash stays."""
        redactor = self.redactor
        arguments = redactor.redact_value(question.arguments)
        return dataclasses.replace(
            question,
            text=redactor.redact_text(question.text),
            arguments=cast("JsonObject", arguments),
        )

    def merge(self, redactor: Redactor) -> None:
        """Take out the secrets that another redactor knows, too."""
        with self._lock:
            self.redactor = self.redactor.merge(redactor)

    def join_registered(self, redactor: Redactor) -> Redactor:
        """Return what knows the registered secrets of the run's runtime and of an engine's: the same one each time."""
        joined = self._joined.get(redactor)
        if joined is None:
            joined = self._joined[redactor] = self._registered.merge(redactor)
        return joined

    def watch(self, store: SecretStore) -> SecretStore:
        """Return a store for a tool: the redactor learns each value before the tool gets it, also one that was rotated."""
        return WatchedSecrets(store, self._learn)

    def _learn(self, value: str) -> None:
        with self._lock:
            self.redactor = self.redactor.with_new_secrets([value])

    def is_lost(self, key: str) -> bool:
        """Return whether only a process that has ended knew the arguments of a call."""
        if not self.withheld or key in self.calls:
            return False
        return not self.withheld.isdisjoint((key, EffectKey.parse(key).original))
