"""Tell a model how a call ended: what did not work has a code, whether to try again, and what to do next."""

from collections.abc import Collection

from .._internal import dataclasses
from ..messages import Observation


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a call ended that brought no result: a code, whether the same call may work later, and what to do next."""

    code: str
    retryable: bool
    advice: str


UNKNOWN_TOOL = Ending("UNKNOWN_TOOL", False, "call one of the tools that there are")
ENDINGS = {
    "denied": Ending("POLICY_DENIED", False, "do not repeat it; find another way, or say what is not allowed"),
    "rejected": Ending("INVALID_CALL", False, "correct the call, or do without it"),
    "error": Ending("TOOL_ERROR", True, "change the arguments, try once more, or use another tool"),
    "timed_out": Ending("TIMED_OUT", True, "it may have taken effect: look before you repeat it"),
    "cancelled": Ending("CANCELLED", True, "it may have taken effect: look before you repeat it"),
    "unknown": Ending("UNKNOWN_OUTCOME", False, "it may have taken effect: look, and do not repeat it blindly"),
    "open": Ending("UNAVAILABLE", True, "the tool does not work at the moment: use another one"),
}  # fmt: skip


def structure_result(observation: Observation, tools: Collection[str]) -> Observation:
    """Return an observation as the model reads it; one that is not ok gets a head with its facts, and advice.

    Args:
        observation: the observation of a call.
        tools: the names of the tools there are.
    """
    if observation.ok:
        return observation
    ending = find_ending(observation, tools)
    head = (
        f"[tool_result tool={observation.call.name} status={observation.status} code={ending.code} "
        f"retryable={_yes(ending.retryable)} seconds={observation.seconds:.3g} truncated={_yes(observation.cut > 0)}]"
    )
    content = f"{head}\n{observation.content}\n[next: {ending.advice}]"
    return dataclasses.replace(observation, content=content)


def find_ending(observation: Observation, tools: Collection[str]) -> Ending:
    """Return the code of a call that did not work, and what follows from it."""
    if observation.failure == "open":
        return ENDINGS["open"]
    if observation.status == "rejected" and observation.call.name not in tools:
        return UNKNOWN_TOOL
    return ENDINGS[observation.status]


def _yes(value: bool) -> str:
    return "yes" if value else "no"
