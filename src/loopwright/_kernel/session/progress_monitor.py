"""The progress monitor: notices a loop that goes nowhere, and climbs from a nudge to an end."""

import collections
import dataclasses
import hashlib
from typing import Literal, TypeAlias

from ...events.effect_key import EffectKey
from ...events.run import StopReason
from ...messages import Observation, ToolCall

REPEATS = 3  # the same this often is a loop: a call with its result, a denial, an unknown tool, an error
ALIKE = 0.85  # errors of this similarity are one error (Symbiont's progress tracker has the same threshold)
COMPARED = (
    300  # characters of an error's text that are compared: the first and the last 150
)

_Identity: TypeAlias = tuple[
    str, str
]  # of a call: its tool and the hash of its arguments


def similarity(a: str, b: str) -> float:
    """How alike two texts are, from 0 to 1: 1 - Levenshtein distance / length of the longer text, in characters."""
    longer = max(len(a), len(b))
    return 1 - _distance(a, b) / longer if longer else 1.0


def alike(a: str, b: str) -> bool:
    """Whether two error texts say the same, as far as they are compared; takes less than a millisecond."""
    a, b = _ends(a), _ends(b)
    longer = max(len(a), len(b))
    if a == b:
        return True
    if (
        1 - abs(len(a) - len(b)) / longer < ALIKE
    ):  # so much would have to be added that the rest does not matter
        return False
    return similarity(a, b) >= ALIKE


def _ends(text: str) -> str:
    """A long text without its middle: errors begin with what failed and often end with why."""
    half = COMPARED // 2
    return text if len(text) <= COMPARED else text[:half] + text[-half:]


def _distance(a: str, b: str) -> int:
    """The Levenshtein distance: each column of the table is the bits of two numbers (Myers 1999, in Hyyrö's form)."""
    if not a or not b:
        return len(a) + len(b)
    places: dict[str, int] = {}
    for i, character in enumerate(a):
        places[character] = places.get(character, 0) | 1 << i
    every, last, distance = (1 << len(a)) - 1, 1 << (len(a) - 1), len(a)
    more, less = (
        every,
        0,
    )  # where a cell is one more than the cell above it, and one less
    for character in b:
        same = places.get(character, 0)
        diagonal = (((same & more) + more) ^ more) | same | less
        right_more, right_less = less | ~(diagonal | more), more & diagonal
        distance += bool(right_more & last) - bool(right_less & last)
        right_more, right_less = right_more << 1 | 1, right_less << 1
        more, less = (
            (right_less | ~(diagonal | right_more)) & every,
            right_more & diagonal & every,
        )
    return distance


@dataclasses.dataclass(frozen=True)
class Stop:
    """A call that is not made: `reason` is what the model is told; "stuck" ends the run."""

    verdict: Literal["blocked", "stuck"]
    reason: str


@dataclasses.dataclass(slots=True)
class _Loop:
    """What keeps coming back, how often it did, and in which turns it was answered."""

    of: str | bytes = ""
    times: int = 0
    nudged: str = ""
    tried: bool = False  # the chance that comes with the nudge
    blocked: str = ""

    def climb(self, turn: str) -> Literal["blocked", "stuck"]:
        """Block, and end the run only when that was said in an earlier turn."""
        if self.blocked in ("", turn):
            self.blocked = turn
            return "blocked"
        return "stuck"


@dataclasses.dataclass
class ProgressMonitor:
    """Watches the calls of one scope, in call order; a resumed run rebuilds it from the same observations.

    | what comes back                  | forgotten after           | nudge after | blocked        | ends the run as |
    |----------------------------------|---------------------------|-------------|----------------|-----------------|
    | a call, with its result          | another result            | 3           | the 4th        | repeated_action |
    | A-B-A-B, with both results       | another call, or result   | 4 calls     | the third A    | repeated_action |
    | tools that do not exist, running | a call of one that exists | 3           | the 4th        | repeated_error  |
    | an error of a tool, nearly equal | success, or another error | 3           | after one more | repeated_error  |

    - The call after a blocked one ends the run if it goes on with the same loop.
    - A-B-A-B is nudged when each call was made twice: then the pattern shows, and the third A is what goes on with it.
      Each of the two calls also has its own count.
    - An error says nothing certain about a call with other arguments, and may pass. So after the nudge the tool has one
      more turn; only if it fails in the same way again, its next call is blocked, whatever the arguments.
    - A block ends nothing in the turn that it was made in: the model has not read it yet.
    - Denials have a count of their own, and rejections by an open breaker are no errors. A `repeatable` tool is not
      watched at all.
    """

    _results: dict[_Identity, _Loop] = dataclasses.field(
        default_factory=dict[_Identity, _Loop]
    )
    _trail: collections.deque[tuple[_Identity, bytes]] = dataclasses.field(
        default_factory=lambda: collections.deque[tuple[_Identity, bytes]](maxlen=4)
    )
    _pair: _Loop = dataclasses.field(
        default_factory=_Loop
    )  # of the two calls that the trail shows in turns
    _unknown: _Loop = dataclasses.field(default_factory=_Loop)
    _errors: dict[str, _Loop] = dataclasses.field(default_factory=dict[str, _Loop])
    _denied: dict[_Identity, int] = dataclasses.field(
        default_factory=dict[_Identity, int]
    )
    _stopped: dict[str, StopReason | Literal[""]] = dataclasses.field(
        default_factory=dict[str, StopReason | Literal[""]]
    )

    def step(
        self, key: str, tool: str, arguments_hash: str, unknown: str = ""
    ) -> Stop | None:
        """Why a call that is about to be gated is not made; `None` for go.

        `key` is the call's key. `unknown` is what the registry says if there is no such tool.
        """
        found = self._found((tool, arguments_hash), unknown)
        if found is None:
            return None
        loop, reason, stop = found
        verdict = loop.climb(_turn(key))
        self._stopped[key] = stop if verdict == "stuck" else ""
        return Stop(verdict, reason)

    def recall(
        self,
        key: str,
        tool: str,
        arguments_hash: str,
        unknown: str,
        stop: StopReason | Literal[""],
    ) -> None:
        """Take over from the journal that a call was blocked, or that it ended the run with a stop reason."""
        self.step(key, tool, arguments_hash, unknown)
        self._stopped[key] = stop

    def stop_of(self, key: str) -> StopReason | Literal[""]:
        """The stop reason of a call that ends the run; empty for any other."""
        return self._stopped.get(key, "")

    def denied(self, call: ToolCall, reason: str) -> bool:
        """Count a denial; whether the same one has now come too often."""
        times = self._denied[call.name, reason] = (
            self._denied.get((call.name, reason), 0) + 1
        )
        return times >= REPEATS

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
        """Count what came of a call; the nudge to give the model, if one is due.

        `refused` says that the call was not let through, `unknown` that this was since there is no such tool.
        """
        if not unknown and self._unknown.times:
            self._unknown = _Loop()
        if key in self._stopped or observation.status == "denied":
            return None
        if repeatable:
            self._trail.clear()
            return None
        identity = observation.call.name, arguments_hash
        result = hashlib.sha256(
            f"{observation.status}|{observation.text}".encode()
        ).digest()
        named = self._name_no_tool(observation) if unknown else None
        again = self._repeat(identity, result)
        in_turns = self._take_turns(identity, result)
        failed = self._fail(observation, refused, key)
        return named or again or in_turns or failed

    def _found(
        self, identity: _Identity, unknown: str
    ) -> tuple[_Loop, str, StopReason] | None:
        """The loop that a call would go on with, what the model is told of it, and the stop reason of its end."""
        if unknown and self._unknown.times >= REPEATS:
            return self._unknown, f"{unknown} {NO_TOOL}", "repeated_error"
        again = self._results.get(identity)
        if again is not None and again.times >= REPEATS:
            return again, SAME_CALL, "repeated_action"
        two = self._two
        if (
            two is not None
            and identity in two
            and (identity == two[0] or self._pair.blocked)
        ):
            return self._pair, IN_TURNS.format(_both(two)), "repeated_action"
        errors = self._errors.get(identity[0])
        if errors is not None and errors.tried:
            return errors, SAME_ERROR.format(identity[0]), "repeated_error"
        return None

    @property
    def _two(self) -> tuple[_Identity, _Identity] | None:
        """The two calls that the last four were in turns, with unchanged results; the first would be next."""
        if len(self._trail) < 4:
            return None
        a, b, c, d = self._trail
        return (a[0], b[0]) if a == c and b == d and a[0] != b[0] else None

    def _name_no_tool(self, observation: Observation) -> str | None:
        self._unknown.times += 1
        if self._unknown.times != REPEATS:
            return None
        return f"The last {REPEATS} calls named tools that do not exist. {observation.text} {EXACTLY}"

    def _repeat(self, identity: _Identity, result: bytes) -> str | None:
        seen = self._results.get(identity)
        if seen is None or seen.of != result:
            self._results[identity] = _Loop(result, 1)
            return None
        seen.times += 1
        if seen.times != REPEATS:
            return None
        return (
            f"You have called {identity[0]} with the same arguments {REPEATS} times and got the same result each time. "
            "Calling it again will not help: try something else, or answer with what you know."
        )

    def _take_turns(self, identity: _Identity, result: bytes) -> str | None:
        before = self._two
        self._trail.append((identity, result))
        if self._pair.blocked:
            self._pair = _Loop()
        two = self._two
        if (
            two is None or before is not None
        ):  # what comes after four in turns is the same two
            return None
        return (
            f"You go back and forth between {_both(two)}, with the same arguments and the same results. "
            "Going on like that will not help: try something else, or answer with what you know."
        )

    def _fail(self, observation: Observation, refused: bool, key: str) -> str | None:
        tool, status = observation.call.name, observation.status
        if status == "ok":
            self._errors.pop(tool, None)
        if status not in ("error", "timed_out") and not (
            refused and status == "rejected"
        ):
            return None
        text, errors = _ends(observation.text), self._errors.get(tool)
        if errors is None or not alike(str(errors.of), text):
            self._errors[tool] = _Loop(text, 1)
            return None
        errors.of, errors.times = text, errors.times + 1
        if errors.nudged:
            errors.tried = errors.tried or _turn(key) != errors.nudged
        elif errors.times >= REPEATS:
            errors.nudged = _turn(key)
            return (
                f"The last {errors.times} calls of {tool} failed with nearly the same error. "
                "Do what the error asks for, use another tool, or answer with what you know."
            )
        return None


SAME_CALL = (
    "This exact call was made several times with the same result; it is not made again."
)
IN_TURNS = (
    "You go back and forth between {}, with the same arguments and the same results. Neither is made again before "
    "you have done something else."
)
NO_TOOL = "The calls before named no tool either. Call one of the tools that there are, or answer with what you know."
EXACTLY = "Call one of the tools that there are, by its exact name, or answer with what you know."
SAME_ERROR = (
    "This call was not made: {0} keeps failing with nearly the same error, whatever its arguments. Do not call {0} "
    "again: use another tool, or answer with what you know."
)


def _turn(key: str) -> str:
    """The proposal that a call belongs to."""
    return EffectKey.parse(key).effect


def _both(two: tuple[_Identity, _Identity]) -> str:
    (a, _), (b, _) = two
    return f"two calls of {a}" if a == b else f"a call of {a} and one of {b}"
