"""A run and the people around it: what it asks its user, what they say once it has answered, who sees the answer."""

import dataclasses

from pydantic import TypeAdapter

from ...errors import Denied, Suspended
from ...events.control import FollowedUp
from ...events.effect_key import call_key
from ...events.effects import EffectFinished
from ...events.run import Question as PendingQuestion
from ...gates.base import RESPOND, Denial, Permit
from ...messages import Effect, Json, Observation, ToolCall
from ...result import RunOutcome, build_outcome
from ...tools.base import Tool
from ..control.commands import FOLLOW_UP
from .ask_user import answer_of
from .cycle import Phases, plain
from .gate import Clearance
from .side_effects import failed, recorded_effect

ANSWERED = "respond:"
"""The key of what gates decide about a run's answer."""


class Attended(Phases):
    """The phases, and what goes between a run and people beside them."""

    async def ask_user(self, question: str) -> str:
        """Ask the person who uses the run: the callback of `Runtime(user=...)`, or, without one, whoever answers.

        The run waits for that answer (`handle.answer`, `loopwright answer`), also after its process has ended. Gates
        see it as a read named "ask_user".
        """
        with self._scope.enter("ask_user"):
            key = self._scope.next_key()
            recorded = recorded_effect(self._scope, key, "ask_user", TypeAdapter(str))
            if recorded is not None:
                return recorded[0]
            await self._session.intake.wait_while_paused()
            question = self._services.redactor.redact_text(question)
            await self._permitted_own("ask_user", {"question": question}, "read", key)
            try:
                answer = await answer_of(self._session, key, question)
            except Suspended as waiting:
                raise self._scope.halt(waiting) from None
            self._session.sensitivity.observe(
                label := self._session.sensitivity.classify(answer), untrusted=False
            )
            waited = self._session.active.take_waited()
            self._session.writer.record(
                key, EffectFinished("ask_user", answer, waited=waited, label=label)
            )
            return answer

    def followed_up(self, answer: str) -> bool:
        """Whether a person has more to say now that the engine has answered; the conversation goes on with that.

        Where the journal shows that nobody had, it stays so: what was said since counts the next time that this is
        asked, unless the answer was let out by then. For the runtime, not for engines.
        """
        session, key = self._session, self._scope.side_key("follow")
        recorded = session.replay.effects.side(key)
        if not isinstance(recorded, FollowedUp):
            unused = session.command_log.unused(
                FOLLOW_UP, session.replay.approvals.used
            )
            command = unused[0] if unused else None
            shown = session.replay.approvals.decision(ANSWERED)
            gone_on = self._scope.replaying() or (
                shown is not None and shown.verdict != "ask"
            )
            if command is None or gone_on or self._scope.signal is not None:
                return False
            session.replay.approvals.used.add(command.number)
            text = str(command.body.get("text", ""))
            recorded = FollowedUp(
                command.number, text, session.sensitivity.classify(text)
            )
            session.sensitivity.observe(recorded.label, untrusted=False)
            session.writer.record(key, recorded)
        said = self.latest.assistant(answer, origin="model").user(
            recorded.text, origin="operator"
        )
        self.conversation = said
        self.keep(said)
        return True

    @property
    def answers_are_gated(self) -> bool:
        """Whether a gate wants to see the run's answer. For the runtime, not for engines."""
        return self._clearance.judges_answers

    async def permit_answer(self, outcome: RunOutcome, output: Json) -> RunOutcome:
        """How the run ends once gates that want to see answers have. For the runtime, not for engines."""
        if outcome.answer is None or outcome.status == "waiting":
            return outcome
        told: dict[str, Json] = {"answer": outcome.answer, "status": outcome.status}
        told |= {"stop_reason": outcome.stop_reason} | (
            {} if output is None else {"output": output}
        )
        decided = await self._clearance.decide_answer(
            ToolCall(RESPOND, told, RESPOND), self._state(ANSWERED)
        )
        if isinstance(decided, PendingQuestion):
            return build_outcome(await self._park([decided]))
        if isinstance(decided, Denial):
            error = Denied(f"the answer was withheld: {decided.reason}")
            return dataclasses.replace(
                build_outcome(error) if outcome.status == "completed" else outcome,
                answer=None,
            )
        return (
            outcome if decided is None else dataclasses.replace(outcome, answer=decided)
        )

    async def _settle_call(self, decision: Permit | Denial) -> Observation:
        """A call of the tool that asks the user is answered by them."""
        tool = self._services.tools.get(decision.call.name)
        if isinstance(decision, Permit) and tool is not None and tool.asks_user:
            return await self._ask_by_tool(decision, tool)
        return await super()._settle_call(decision)

    async def _ask_by_tool(self, permit: Permit, tool: Tool) -> Observation:
        """A call of the tool that asks the user; when the run is resumed the answer is looked for again."""
        not_run = await self._executor.begin(permit, tool)
        if not_run is not None:
            return not_run
        if self._session.replay.effects.outcome(permit.key) is not None:
            return self._executor.end(permit, tool, "ok", "")
        question = str(permit.call.arguments.get("question", ""))
        try:
            answer = await answer_of(
                self._session, permit.key, question, tool.name, permit.call.id
            )
        except Suspended as waiting:
            raise self._scope.halt(waiting) from None
        return self._executor.end(permit, tool, "ok", answer)

    async def _permitted(
        self,
        name: str,
        arguments: dict[str, Json],
        effect: Effect,
        key: str,
        clearance: Clearance,
    ) -> None:
        call = ToolCall(name, arguments, f"{name}_{plain(key)}")
        question = await clearance.decide_own(
            call, effect, self._state(call_key(key, 0))
        )
        if question is not None:
            raise await self._park([question])

    async def _permitted_own(
        self, name: str, arguments: dict[str, Json], effect: Effect, key: str
    ) -> None:
        try:
            await self._permitted(name, arguments, effect, key, self._clearance)
        except Denied as denied:
            raise failed(self._session, key, name, denied) from None
