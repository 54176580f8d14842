"""ProgressMonitor: notices a loop without progress, and escalates from a nudge to the end of the run."""

import collections
import hashlib
import operator
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from ..._internal import dataclasses
from ...attachments import Attachment
from ...events.effect_key import EffectKey
from ...events.run import StopReason
from ...limits import ProgressRules
from ...messages import Observation
from .similarity import is_alike, without_middle

NO_PROGRESS = (
    "Calling it again will not help: try something else, or answer with what you know."
)
SAME_CALL = (
    "This exact call was made several times with the same result; it is not made again."
)
IN_TURNS = (
    "You go back and forth between {}, with the same arguments and the same results. Neither is made again before "
    "you have done something else."
)
NO_TOOL = "The calls before named no tool either. Call one of the tools that there are, or answer with what you know."
EXACT_NAME = "Call one of the tools that there are, by its exact name, or answer with what you know."
SAME_ERROR = (
    "This call was not made: {0} keeps failing with nearly the same error, whatever its arguments. Do not call {0} "
    "again: use another tool, or answer with what you know."
)
EndReason: TypeAlias = StopReason | Literal[""]
_Identity: TypeAlias = tuple[str, str]
"""A call's tool and the hash of its arguments."""


@dataclasses.dataclass(frozen=True)
class BlockedCall:
    """A call that is not made: `reason` is for the model; "stuck" ends the run."""

    verdict: Literal["blocked", "stuck"]
    reason: str


@dataclasses.dataclass(slots=True)
class _Loop:
    """What repeats, how often it did, and the turns in which the monitor reacted."""

    of: str | bytes = ""
    times: int = 0
    nudged: str = ""
    tried: bool = False  # the chance that comes with the nudge
    blocked: str = ""

    def escalate(self, turn: str) -> Literal["blocked", "stuck"]:
        """Block, or end the run if an earlier turn was blocked."""
        if self.blocked in ("", turn):
            self.blocked = turn
            return "blocked"
        return "stuck"


_get_digest: Callable[[Attachment], str] = operator.attrgetter("digest")
_NO_LOOP = _Loop()
"""What is known of a call that was not made yet; it does not change."""


class ProgressMonitor:
    """Watches the calls of one scope, in call order; a resumed run rebuilds it from the same observations.

    | what comes back                  | forgotten after           | nudge after | blocked        | ends the run as |
    |----------------------------------|---------------------------|-------------|----------------|-----------------|
    | a call, with its result          | another result            | 3           | the 4th        | repeated_action |
    | A-B-A-B, with both results       | another call, or result   | 4 calls     | the third A    | repeated_action |
    | tools that do not exist, running | a call of one that exists | 3           | the 4th        | repeated_error  |
    | an error of a tool, nearly equal | success, or another error | 3           | after one more | repeated_error  |

    - The call after a blocked one ends the run if it continues the same loop.
    - A-B-A-B is nudged when each call was made twice: then the pattern shows, and the third A continues it.
      Each of the two calls also has its own count.
    - An error says nothing certain about a call with other arguments, and may pass. So after the nudge the tool has one
      more turn; only if it fails in the same way again, its next call is blocked, whatever the arguments.
    - A block ends nothing in the turn that it was made in: the model has not read it yet.
    - The threes are `ProgressRules.repeats`.
    - Denials have a count of their own, and rejections by an open breaker do not count as errors. A `repeatable` tool
      is not watched at all.
    """

    def __init__(self, rules: ProgressRules) -> None:
        self._rules = rules
        self._results: dict[_Identity, _Loop] = {}
        self._trail: collections.deque[tuple[_Identity, bytes]] = collections.deque(
            maxlen=4
        )
        self._pair = _Loop()  # of the two calls that alternate in the trail
        self._unknown = _Loop()
        self._errors: dict[str, _Loop] = {}
        self._denied: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self._blocked: dict[str, EndReason] = {}
        self.stop_reasons: Mapping[str, EndReason] = self._blocked
        """The stop reasons of calls that were blocked, by their keys; empty for those that did not end the run."""

    def check_call(
        self, key: str, tool: str, arguments_hash: str, unknown: str = ""
    ) -> BlockedCall | None:
        """Return why a call that is about to be gated is not made, if so.

        `unknown` is what the registry says if there is no such tool.
        """
        found = self._find_loop((tool, arguments_hash), unknown)
        if found is None:
            return None
        loop, reason, stop = found
        verdict = loop.escalate(_turn_of(key))
        self._blocked[key] = stop if verdict == "stuck" else ""
        return BlockedCall(verdict, reason)

    def restore(
        self, key: str, tool: str, arguments_hash: str, unknown: str, stop: EndReason
    ) -> None:
        """Restore that a call was blocked, or that it ended the run with a stop reason."""
        self.check_call(key, tool, arguments_hash, unknown)
        self._blocked[key] = stop

    def count_denial(self, tool: str, arguments_hash: str, reason: str) -> bool:
        """Count a denial; return whether the same call has now been denied too often for the same reason."""
        identity = tool, arguments_hash, reason
        self._denied[identity] += 1
        return self._denied[identity] >= self._rules.repeats

    def observe(
        self,
        key: str,
        observation: Observation,
        arguments_hash: str,
        *,
        refused: bool = False,
        unknown: bool = False,
        repeatable: bool = False,
    ) -> str | None:
        """Count the outcome of a call; return the nudge for the model, if one is due.

        `refused` says that the call was not permitted, `unknown` that there is no such tool.
        """
        if not unknown and self._unknown.times:
            self._unknown = _Loop()
        if key in self._blocked or observation.status == "denied":
            return None
        if repeatable:
            self._trail.clear()
            return None
        identity = observation.call.name, arguments_hash
        text = f"{observation.status}|{observation.text}"
        text += "".join(map(_get_digest, observation.attachments))
        result = hashlib.sha256(text.encode()).digest()
        nudges = (
            self._count_unknown(observation) if unknown else None,
            self._count_repeat(identity, result),
            self._count_alternation(identity, result),
            self._count_error(observation, refused, key),
        )
        return next(filter(None, nudges), None)

    def _find_loop(
        self, identity: _Identity, unknown: str
    ) -> tuple[_Loop, str, StopReason] | None:
        """Return the loop that a call would continue, the text for the model, and the stop reason."""
        if unknown and self._unknown.times >= self._rules.repeats:
            return self._unknown, f"{unknown} {NO_TOOL}", "repeated_error"
        repeat = self._results.get(identity, _NO_LOOP)
        if repeat.times >= self._rules.repeats:
            return repeat, SAME_CALL, "repeated_action"
        pair = self._alternating
        continues = pair[:1] if not self._pair.blocked else pair
        if identity in continues:
            return self._pair, IN_TURNS.format(_both(pair)), "repeated_action"
        errors = self._errors.get(identity[0], _NO_LOOP)
        if errors.tried:
            return errors, SAME_ERROR.format(identity[0]), "repeated_error"
        return None

    @property
    def _alternating(self) -> tuple[_Identity, ...]:
        """The two calls that alternated in the last four, with unchanged results; the next one first."""
        trail = tuple(self._trail)
        if len(trail) < 4 or trail[:2] != trail[2:]:
            return ()
        (first, _), (second, _) = trail[:2]
        return (first, second) if first != second else ()

    def _count_unknown(self, observation: Observation) -> str | None:
        self._unknown.times += 1
        if self._unknown.times != self._rules.repeats:
            return None
        return f"The last {self._rules.repeats} calls named tools that do not exist. {observation.text} {EXACT_NAME}"

    def _count_repeat(self, identity: _Identity, result: bytes) -> str | None:
        seen = self._results.get(identity, _NO_LOOP)
        if seen.of != result:
            self._results[identity] = _Loop(result, 1)
            return None
        seen.times += 1
        if seen.times != self._rules.repeats:
            return None
        return (
            f"You have called {identity[0]} with the same arguments {seen.times} times and got the same result each time. "
            f"{NO_PROGRESS}"
        )

    def _count_alternation(self, identity: _Identity, result: bytes) -> str | None:
        before = self._alternating
        self._trail.append((identity, result))
        if self._pair.blocked:
            self._pair = _Loop()
        pair = self._alternating
        if before or not pair:  # after four in turns, the next makes the same pair
            return None
        return (
            f"You go back and forth between {_both(pair)}, with the same arguments and the same results. "
            "Going on like that will not help: try something else, or answer with what you know."
        )

    def _count_error(
        self, observation: Observation, refused: bool, key: str
    ) -> str | None:
        tool, status = observation.call.name, observation.status
        if status == "ok":
            self._errors.pop(tool, None)
        if status not in ("error", "timed_out", "rejected"):
            return None
        if status == "rejected" and not refused:
            return None
        text, errors = without_middle(observation.text), self._errors.get(tool)
        if errors is None or not is_alike(str(errors.of), text, self._rules.similarity):
            self._errors[tool] = _Loop(text, 1)
            return None
        errors.of, errors.times = text, errors.times + 1
        if errors.nudged:
            errors.tried |= _turn_of(key) != errors.nudged
        elif errors.times >= self._rules.repeats:
            errors.nudged = _turn_of(key)
            return (
                f"The last {errors.times} calls of {tool} failed with nearly the same error. "
                "Do what the error asks for, use another tool, or answer with what you know."
            )
        return None


def _turn_of(key: str) -> str:
    """Return the key of the proposal that a call belongs to."""
    return EffectKey.parse(key).effect


def _both(pair: tuple[_Identity, ...]) -> str:
    (a, _), (b, _) = pair
    return f"two calls of {a}" if a == b else f"a call of {a} and one of {b}"
