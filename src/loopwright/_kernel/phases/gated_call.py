"""A call to be decided about, and whether a recorded decision about it still counts."""

from ..._internal import dataclasses
from ...events.effects import GateDecided, ToolFinished, ToolStarted
from ...messages import Effect, ToolCall
from ...tools.base import Tool
from ..session.session import Session
from .secret_free import hides_secret, was_recorded


@dataclasses.dataclass(frozen=True)
class GatedCall:
    """A call to be decided about as it stands now, and the policy version that decides."""

    call: ToolCall
    arguments_hash: str
    key: str
    policy_version: str
    effect: Effect
    tool: Tool | None
    is_own: bool
    """Whether it is not a tool's call, but something that the engine or the runtime does itself."""
    is_changed: bool = False
    question: str = ""
    """What a person is asked besides what gates ask; empty for nothing."""
    reasons: tuple[str, ...] = ()
    """Why gates or people changed its arguments."""


def check_same_call(session: Session, gated: GatedCall, known: GateDecided) -> None:
    """Raise `ReplayDivergence` if a recorded decision is about another call."""
    hashes = ("", gated.arguments_hash)
    is_same = known.arguments is not None or known.arguments_hash in hashes
    if known.tool == gated.call.name and is_same:
        return
    raise session.signals.diverge(
        gated.key,
        f"a decision about {known.tool}",
        f"{gated.call.name} with other arguments",
    )


def find_own_call(
    gated: GatedCall, known: GateDecided, written: ToolCall
) -> GatedCall | None:
    """Return what an engine itself does as a decision about it has it, by its hash; `None` where that cannot be told.

    It is `written` with what became a secret since, which the decision may have in plain. What was taken out of a text
    before the engine got it cannot be told.
    """
    if known.arguments_hash in ("", gated.arguments_hash):
        return gated
    if was_recorded(known.arguments_hash, written.arguments, gated.call.arguments):
        return dataclasses.replace(gated, arguments_hash=known.arguments_hash)
    return None if hides_secret(written.arguments) else gated


def counts(session: Session, gated: GatedCall, known: GateDecided) -> bool:
    """Whether a recorded decision to let a call run counts now: it holds, or the call has begun."""
    return _has_begun(session, gated.key) or _holds(session, gated, known)


def _has_begun(session: Session, key: str) -> bool:
    effects = session.replay.effects
    is_started = isinstance(effects.intent(key), ToolStarted)
    return is_started or isinstance(effects.outcome(key), ToolFinished)


def _holds(session: Session, gated: GatedCall, known: GateDecided) -> bool:
    """Whether a decision holds for the policy and the tool of now, and its approval lasts."""
    has_tool = gated.is_own or gated.tool is not None
    if has_tool and known.effect not in ("", gated.effect):
        return False
    if known.policy_version != gated.policy_version:
        return False
    if session.secrets.is_lost(gated.key):
        return False
    if session.command_log.may_be_revoked(known.command):
        return False
    return not 0 < known.until <= session.services.clock.wall()
