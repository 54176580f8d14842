"""Answer a model that reads again what was left out of its conversation, from the journal of the run."""

from ...errors import ConfigError, JournalError, ToolError
from ...events.effects import ToolFinished
from ...gates.base import Permit
from ...journals.access import consult
from ...journals.recalled_texts import Found, RecalledTexts
from ...journals.recorded_messages import render_excerpts
from ...labels import highest
from ...messages import Observation
from ...tools.base import Tool
from .tool_call import ToolOutcome
from .tool_invoker import RuntimeCalls

NO_MATCH = "Nothing that was left out has this text."


class RecallInvoker:
    """Invokes the tool that reads again; what is recorded is which part of which text, and not the text."""

    def __init__(self, calls: RuntimeCalls) -> None:
        self._calls, self._session = calls, calls.session

    async def invoke(self, permit: Permit, tool: Tool, /) -> Observation:
        """Return what the call asks for, or why there is no such text."""
        not_run = await self._calls.begin(permit, tool)
        if not_run is not None:
            return not_run
        texts = await consult(self._read_texts)
        recorded = self._session.replay.effects.outcome(permit.key)
        if isinstance(recorded, ToolFinished):
            whole = texts.messages.restore(recorded)
            return self._calls.replay(permit, whole)
        await self._session.replay_end.reach(permit.key)
        try:
            found = await consult(texts.select, permit.call.arguments)
        except (ToolError, JournalError, ConfigError) as error:
            return self._calls.end(permit, tool, "error", str(error))
        return self._calls.finish(permit, build_outcome(found))

    def _read_texts(self) -> RecalledTexts:
        session = self._session
        given, turn = session.requests.get_given(), session.turn
        return RecalledTexts(session.services.journal, session.run_id, given, turn)


def build_outcome(found: list[Found]) -> ToolOutcome:
    """Return the outcome of a call that found parts of texts, as sensitive as the texts are."""
    if not found:
        return ToolOutcome("ok", NO_MATCH)
    content = render_excerpts((one.excerpt, one.source.text) for one in found)
    label = highest(one.source.label for one in found)
    untrusted = any(one.source.untrusted for one in found)
    excerpts = tuple(one.excerpt for one in found)
    return ToolOutcome(
        "ok", content, label=label, untrusted=untrusted, recalled=excerpts
    )
