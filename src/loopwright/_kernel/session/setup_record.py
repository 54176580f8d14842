"""What of a run's services its first entry names, and what of that differs when the run is resumed."""

import hashlib

from ...events.agents import InstructionsSet
from ...events.effects import DriftNoticed
from ...messages import Json, JsonObject, canonical_json
from ...prompts import Template
from ...providers.context.choice import DEFAULT_POLICY, name_policy
from .services import Services
from .session import Session

MAX_NAMES = 400
"""Characters of a list of names that is recorded as it stands; of a longer one, its length and hash are."""


def record_setup(services: Services) -> dict[str, Json]:
    """Return the names of the services of a run, as far as it has any beside the defaults."""
    found: dict[str, Json] = {
        "tools": _shorten([tool.name for tool in services.tools]),
        "context": _name_context(services),
        "knowledge": _name_knowledge(services),
        "instructions": _hash_instructions(services),
    }
    return {name: value for name, value in found.items() if value}


def note_setup_drift(session: Session) -> None:
    """Record what of the services is another one today than when the run began; early journals do not say."""
    started = session.replay.started
    if started is None or not started.setup:
        return
    today = record_setup(session.services)
    for name in sorted({*started.setup, *today}):
        before, after = started.setup.get(name), today.get(name)
        if before != after and not _is_compared_later(session, name):
            drift = DriftNoticed(name, _format(before), _format(after))
            session.writer.record_after_replay("", drift)


def _is_compared_later(session: Session, name: str) -> bool:
    """Whether the words of instructions are compared, which says more than that their hash differs."""
    is_text = isinstance(session.services.instructions, str)
    recorded = session.replay.effects.side("instructions:.0")
    return name == "instructions" and is_text and isinstance(recorded, InstructionsSet)


def _shorten(names: list[str]) -> Json:
    if len(", ".join(names)) <= MAX_NAMES:
        return [*names]
    return f"{len(names)} names, {_hash(names)}"


def _name_context(services: Services) -> str:
    return "" if services.context is DEFAULT_POLICY else name_policy(services.context)


def _name_knowledge(services: Services) -> str:
    bridge = services.knowledge
    return "" if bridge is None else type(bridge.store).__name__


def _hash_instructions(services: Services) -> str:
    """Return the hash of a text or a template without secrets; of a function, its name."""
    given = services.instructions
    if given is None or given == "":
        return ""
    if callable(given):
        return (
            f"{given.__module__}.{getattr(given, '__qualname__', type(given).__name__)}"
        )
    text = given.text if isinstance(given, Template) else given
    return _hash(services.redactor.redact_text(text))


def _hash(value: object) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()[:16]


def _format(value: Json | JsonObject) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)
