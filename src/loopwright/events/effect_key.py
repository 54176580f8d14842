"""The key of a journal entry: the place of its effect in the program of a run."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from .._internal import dataclasses
from ..errors import JournalError

# These two are asked for each call of each step, so they do not cost a Python frame.
call_key: Callable[[str, int], str] = "{}#{}".format
"""Return the key of a call of a proposal, by its index."""
is_substitute: Callable[[str], Any] = re.compile(r"#\d+~").search
"""Return a true value for the key of a substitute call."""
is_context: Callable[[str], Any] = re.compile(r"~[ch]\d").search
"""Return a true value for the key of a model call of the context policy, or of a hook."""


@dataclasses.dataclass(frozen=True, slots=True)
class EffectKey:
    """A parsed key; `text` is the key as the journal holds it.

    - `2.0.1` is effect 1 of the scope `2.0`, which is branch 0 of effect 2 of the root scope.
    - `2.0.1#3` is call 3 of the proposal `2.0.1`.
    - `2.0.1#3~1` is its substitute: the call that recovery step 1 makes.
    - `2.0.1#3~1m0` is model call 0 of that recovery step.
    - `2.0.1~s0` is reply 0 of the several that effect 1 asks for, and `2.0.1~s0#3` is call 3 of it.
    - `2.0.1~h1__0` is model call 0 of a hook after effect 1, a model call; `2.0.1~h2_3_0` of one after its call 3.
    - `2.0.1~c0` is model call 0 of the context policy, about what effect 1, a model call, is to send.
    - `2.0.1~p0#0` is the decision whether effect 1, a model call, may offer the provider-side tool 0.
    - `note:2.0.1` is note 1 of the scope `2.0`: it has a counter of its own and is not an effect.
    - `open:2` says that the branches of effect 2 are given as they end, `done:2.0` which of them was the first, and
      `closed:2` that the others were left.
    - `begun:2.0` says that the named branch 0 of effect 2 began, `ended:2.0` that it ended.
    - `asked:2` is when effect 2 asked a question that expires.
    - `timeout:2` is the time that the branch `2.0` of effect 2 has, `fired:2` says that it was over.

    The empty key is that of an entry about the run as a whole.
    """

    text: str
    kind: str
    """The word before the colon of a key that is not an effect: `note`, `undo`; else empty."""
    path: str
    """The path of the scope, empty for the root."""
    number: int
    """The number in the scope."""
    call: int | None = None
    step: int | None = None
    question: int | None = None

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def parse(cls, text: str) -> "EffectKey":
        """Return the parts of a key; raise `JournalError` for a text that is not a key."""
        kind, _, place = text.rpartition(":")
        effect, _, rest = place.partition("#")
        path, _, number = effect.rpartition(".")
        number = number.partition("~")[0]
        call, _, rest = rest.partition("~")
        step, _, question = rest.partition("m")
        if text and not kind and not number.isdecimal():
            raise JournalError(f"key: must be a place such as '2.0.1#3', got {text!r}")
        numbers = map(_number, (call, step, question))
        return cls(text, kind, path, _number(number) or 0, *numbers)

    @property
    def is_effect(self) -> bool:
        """Whether it is counted among the effects of its scope; notes and the like are not."""
        return bool(self.text) and not self.kind

    @property
    def is_call(self) -> bool:
        """Whether it is a call of a proposal, or was made in place of one."""
        return self.call is not None

    @property
    def is_offer(self) -> bool:
        """Whether it is a decision about a provider-side tool, which has no outcome of its own."""
        return "~p" in self.text

    @property
    def place(self) -> str:
        """The key without the word before the colon."""
        return self.text.rpartition(":")[2].lstrip(".")

    @property
    def effect(self) -> str:
        """The key of the effect that holds it: of a call, its proposal."""
        return self.text.partition("#")[0]

    @property
    def original(self) -> str:
        """The key of the call itself: of a substitute call, the one that failed."""
        head, mark, call = self.text.partition("#")
        return f"{head}{mark}{call.partition('~')[0]}"

    @property
    def parent(self) -> "EffectKey | None":
        """What holds it: the failed call, the proposal, or the place of its scope."""
        if self.step is not None:
            return self.parse(self.original)
        if self.is_call:
            return self.parse(self.effect)
        return self.parse(self.path) if self.path else None

    @property
    def around(self) -> "Iterator[EffectKey]":
        """The places of the scopes around the effect, from the inside out."""
        path = self.path
        while path:
            place = self.parse(path)
            yield place
            path = place.path

    @property
    def child_path(self) -> str:
        """The path of the scope of an engine that answers the call."""
        return self.text.replace("#", ".")

    def is_inside(self, path: str) -> bool:
        """Whether its scope is the one with that path, or inside of it."""
        return is_inside(self.path, path)

    def is_at_or_after(self, other: "EffectKey") -> bool:
        """Whether the key is `other`, a later effect of the same scope, or inside one of these."""
        depth = len(_position(other.path))
        return (
            self.is_inside(other.path) and _position(self.effect)[depth] >= other.number
        )


def is_inside(path: str, outer: str) -> bool:
    """Whether a scope is another one, or inside of it."""
    return not outer or path == outer or path.startswith(f"{outer}.")


def substitute_key(call: str, step: int) -> str:
    """Return the key of the substitute call that a recovery step makes."""
    return f"{call}~{step}"


def recovery_question_key(call: str, step: int, question: int) -> str:
    """Return the key of a model call of a recovery step."""
    return f"{call}~{step}m{question}"


def sample_key(effect: str, number: int) -> str:
    """Return the key of one of the replies that an effect asks for."""
    return f"{effect}~s{number}"


def hook_key(place: str, stage: int, number: int) -> str:
    """Return the key of a model call of a hook, about an effect or a call at one of its stages."""
    effect, _, call = place.partition("#")
    return f"{effect}~h{stage}_{call.replace('~', '_')}_{number}"


def context_key(effect: str, number: int) -> str:
    """Return the key of a model call of the context policy, about what a model call is to send."""
    return f"{effect}~c{number}"


def offer_key(effect: str, number: int) -> str:
    """Return the key at which policy decides about a provider-side tool that a model call offers."""
    return f"{effect.partition('~')[0]}~p{number}"


def side_key(kind: str, path: str, number: int) -> str:
    """Return the key of a note, a clock reading or the like."""
    return f"{kind}:{path}.{number}"


def patch_key(path: str, name: str) -> str:
    """Return the key of a scope's decision about a patch."""
    return f"patch:{path}:{name}"


def asked_key(effect: str) -> str:
    """Return the key at which it is recorded when a question that expires was asked."""
    return f"asked:{effect}"


def branch_key(effect: str, index: int, *, ended: bool = False) -> str:
    """Return the key at which it is recorded that a named branch began, or `ended`."""
    return f"{'ended' if ended else 'begun'}:{effect}.{index}"


def timeout_key(effect: str) -> str:
    """Return the key at which the time of a branch is recorded."""
    return f"timeout:{effect}"


def fired_key(effect: str) -> str:
    """Return the key at which it is recorded that the time of a branch was over."""
    return f"fired:{effect}"


def opened_key(effect: str) -> str:
    """Return the key at which it is recorded that branches began which are given as they end."""
    return f"open:{effect}"


def done_key(effect: str, number: int) -> str:
    """Return the key of the delivery of that number: which of the branches ended."""
    return f"done:{effect}.{number}"


def closed_key(effect: str) -> str:
    """Return the key at which it is recorded that branches were left before all had ended."""
    return f"closed:{effect}"


def undo_key(call: str) -> str:
    """Return the key under which a call of a saga is undone."""
    return f"undo:{call}"


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _position(path: str) -> list[int]:
    numbers = path.split(".") if path else []
    return [int(number.partition("~")[0]) for number in numbers]
