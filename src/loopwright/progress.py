"""The progress monitor: notices a loop that does the same again, and climbs from a nudge to an end."""

import dataclasses
import hashlib
from typing import Literal, TypeAlias

from .messages import Observation, ToolCall

Step: TypeAlias = Literal["go", "blocked", "stuck"]
REPEATS = 3  # the same call with the same result this often is a loop; so is the same denial


@dataclasses.dataclass
class _Seen:
    result: bytes
    times: int
    blocked: bool = False


@dataclasses.dataclass
class ProgressMonitor:
    """Watches the calls of one scope, in call order.

    A call is the same if tool, arguments and result are: a poll whose result changes is progress. After the third
    time a nudge is due, then the call is blocked, then the run ends as `stuck`.
    """

    _seen: dict[tuple[str, str], _Seen] = dataclasses.field(default_factory=dict[tuple[str, str], _Seen])
    _denied: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict[tuple[str, str], int])

    def step(self, tool: str, arguments_hash: str) -> Step:
        """What to do with a call that is about to be gated."""
        seen = self._seen.get((tool, arguments_hash))
        if seen is None or seen.times < REPEATS:
            return "go"
        if seen.blocked:
            return "stuck"
        seen.blocked = True
        return "blocked"

    def denied(self, call: ToolCall, reason: str) -> bool:
        """Count a denial; whether the same one has now come too often."""
        times = self._denied[call.name, reason] = self._denied.get((call.name, reason), 0) + 1
        return times >= REPEATS

    def observe(self, observation: Observation, arguments_hash: str) -> str | None:
        """Count what came of a call; the nudge to give the model, if one is due."""
        call = observation.call
        result = hashlib.sha256(f"{observation.status}|{observation.content}".encode()).digest()
        identity = call.name, arguments_hash
        seen = self._seen.get(identity)
        if seen is not None and seen.blocked:
            return None
        if seen is None or seen.result != result:
            self._seen[identity] = _Seen(result, 1)
            return None
        seen.times += 1
        if seen.times != REPEATS:
            return None
        return (
            f"You have called {call.name} with the same arguments {REPEATS} times and got the same result each time. "
            "Calling it again will not help: try something else, or answer with what you know."
        )
