"""Call hooks at a stage of an engine, and give it what they remark."""

from ...errors import ConfigError
from ...hooks.base import ENGINE_STAGES, About, EngineStage
from ...hooks.changes import MAX_MESSAGES, TextReader
from ...messages import Message, Proposal
from .cycle import Cycle
from .hooked_question import build_message
from .hooked_texts import has_used


async def call_stage(
    cycle: Cycle, name: EngineStage, text: str, proposal: Proposal | None
) -> tuple[Message, ...]:
    """Return the remarks of hooks at a stage, as a model reads them; of a recorded stage, as they were made."""
    if name not in ENGINE_STAGES:
        raise ConfigError(
            f"name: must be one of {', '.join(ENGINE_STAGES)}, got {name!r}"
        )
    # A handoff by the calls of a proposal is recorded behind them, and is not yet known at a stage before them.
    is_recorded = proposal is not None and has_used(cycle, proposal.key)
    with cycle.scope.enter("stage", recorded=is_recorded):
        # Between a proposal and its calls a key of its own would come after the calls.
        key = cycle.scope.next_key() if proposal is None else proposal.key
        hooks = cycle.hooks
        selected = hooks.select(name)
        if not selected:
            return ()
        if has_used(cycle, key):
            records = hooks.recorded(key, name)
            hooks.replay(records, None)
            remarks = [one.text for one in records if one.text is not None]
            return _build_messages(cycle, remarks)
        await hooks.reach(key)
        about = About(text=text, task=cycle.conversation.task)
        take = TextReader(hooks.clean, _check)
        found = [
            str(await hooks.run([hook], name, key, name, take, about))
            for hook in selected
        ]
        return _build_messages(cycle, [remark for remark in found if remark != name])


def _check(text: str) -> None:
    if not text.strip():
        raise ValueError("a remark must not be blank; return None")


def _build_messages(cycle: Cycle, remarks: list[str]) -> tuple[Message, ...]:
    """Return remarks fenced as data, as sensitive and untrusted as the run is; all of them are not too long."""
    session, room = cycle.session, MAX_MESSAGES
    messages: list[Message] = []
    for remark in remarks:
        shown = remark.encode()[:room].decode(errors="ignore")
        room -= len(shown.encode())
        if shown:
            messages.append(build_message(session, shown))
    return tuple(messages)
