"""Control a run while it works or waits, from its own process or another one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from ...clock import MAX_SECONDS, Clock, SystemClock
from ...errors import ConfigError, JournalError
from ...events.entry import Entry
from ...events.lifecycle import read_start
from ...events.run import Question, RunFinished
from ...journals.access import read_run, send_command
from ...journals.base import Command, Journal
from ...labels import Label, LabelledText, check_label, check_unlabelled
from ...messages import Json, JsonObject, hash_arguments, hash_each
from ...principals import Sender, sign_body
from ...security.redaction import Redactor
from ...security.signed_commands import CommandSigner
from ...tools.answers import read_answer
from ...tools.resolution import (
    CallCompleted,
    CallNotExecuted,
    OutcomeUnknown,
    Resolution,
)
from ..durability.approvals import find_last_received
from ..durability.replay import Replay, last_event
from ..durability.transitions import close, retry
from .commands import (
    ABORT,
    ADD_CONTEXT,
    ANSWER,
    APPROVE,
    DECLASSIFY,
    DENY,
    ENDORSE,
    FOLLOW_UP,
    OVERRIDE,
    PAUSE,
    RESOLVE,
    STEER,
    STOP,
    UNPAUSE,
    find_problem,
    is_filled_text,
)
from .questions import build_resolve_body, choose_question, open_questions


class Control(ABC):
    """The commands that a person may send to a run.

    Each goes into the run's inbox and takes effect between two steps, in the process where the run is at work; a run
    that is resumed later receives it then. Secrets are taken out of texts. Raises `ConfigError` for a run that has
    ended, or a question that it does not ask, and `JournalError` if the run cannot receive it because its inbox was
    lost. `by` says who sends it: a name for the journal, or a `Principal` that the application has authenticated.
    """

    @property
    @abstractmethod
    def run_id(self) -> str:
        """The run's name in the journal."""

    @property
    @abstractmethod
    def _journal(self) -> Journal: ...

    @property
    @abstractmethod
    def _redactor(self) -> Redactor: ...

    @property
    @abstractmethod
    def _clock(self) -> Clock: ...

    @property
    def _signer(self) -> CommandSigner | None:
        """Return what signs commands; `None` sends them unsigned."""
        return None

    async def _send(self, kind: str, body: Mapping[str, Json]) -> int:
        """Put a command into the run's inbox, and return its number; raise for one that the run would refuse."""
        problem = find_problem(Command(0, self.run_id, 0.0, kind, dict(body)))
        if problem:
            raise ConfigError(f"{kind}: {problem}")
        entries = await self._entries()
        if isinstance(last_event(entries), RunFinished):
            raise ConfigError(
                f"run {self.run_id!r} has ended: it receives no more commands"
            )
        if self._signer is not None:
            body = self._signer.sign(self.run_id, kind, dict(body))
        number = await send_command(self._journal, self.run_id, kind, body)
        received = find_last_received(entries)
        if number <= received:
            raise JournalError(
                f"{kind}: run {self.run_id!r} has received {received} commands and takes this one, number {number}, for an "
                "earlier one: the journal's inbox was lost; copy it together with the journal"
            )
        return number

    async def _entries(self) -> list[Entry]:
        return await read_run(self._journal, self.run_id)

    async def pause(self, *, by: Sender = "") -> None:
        """Pause the run before its next step; its clock is paused too."""
        await self._send(PAUSE, sign_body({}, by))

    async def unpause(self, *, by: Sender = "") -> None:
        """Continue the run after `pause`."""
        await self._send(UNPAUSE, sign_body({}, by))

    async def stop(self, *, by: Sender = "") -> None:
        """End the run as `aborted` once the step that is under way is done."""
        await self._send(STOP, sign_body({}, by))

    async def steer(self, text: str, *, by: Sender = "") -> None:
        """Give the model an instruction, with the next model call of every branch."""
        await self._send(
            STEER, sign_body({"text": self._text("steer", text, guides=True)}, by)
        )

    async def message(self, text: str, *, by: Sender = "") -> int:
        """Give the model what a person says meanwhile, as `steer` does, and return the number of the command.

        If the run is a turn of a thread and ends before a model has answered that, it begins the next turn.
        """
        body: dict[str, Json] = {
            "text": self._text("message", text, guides=True),
            "message": True,
        }
        return await self._send(STEER, sign_body(body, by))

    async def add_context(self, text: str, *, by: Sender = "") -> None:
        """Give the model a fact that it does not know, with the next model call of every branch."""
        body: dict[str, Json] = {"text": self._text("add_context", text, guides=True)}
        await self._send(ADD_CONTEXT, sign_body(body, by))

    async def follow_up(self, text: str, *, by: Sender = "") -> None:
        """Continue once the engine has answered: its answer and this text are the next messages."""
        await self._send(
            FOLLOW_UP,
            sign_body({"text": self._text("follow_up", text, guides=True)}, by),
        )

    async def override(
        self, tool: str, arguments: JsonObject, *, by: Sender = ""
    ) -> None:
        """Have a tool called before the next model call, gated like any call; the model reads its result."""
        given = _read_arguments("override", arguments, self._redactor)
        await self._send(OVERRIDE, sign_body({"tool": tool, "arguments": given}, by))

    async def answer(
        self, text: str, *, question: str | None = None, by: Sender = ""
    ) -> None:
        """Answer what the run asks its user; `question` is the key of one of several.

        A text that is not one of its choices, or does not fit the type that it asks for, is a `ConfigError` here.
        An answer that is `Untrusted`, or labelled, makes the run so.
        """
        entries, given = await self._entries(), self._text("text", text)
        replay = Replay(entries)
        known = _about("question", entries, replay)
        asked = choose_question(known, question, self.run_id)
        if 0 < asked.expires <= self._clock.wall():
            raise ConfigError(
                f"question: run {self.run_id!r} waited for an answer at {asked.key!r} until its time was over"
            )
        try:
            read_answer(asked, given)
        except ValueError as error:
            raise ConfigError(
                f"text: does not answer {asked.text[:80]!r}: {error}"
            ) from None
        body: dict[str, Json] = {
            "key": asked.key,
            "question": replay.approvals.question_entries[asked.key],
            "text": given,
        }
        if isinstance(text, LabelledText):
            body |= {"label": text.label, "untrusted": text.untrusted}
        await self._send(ANSWER, sign_body(body, by))

    async def approve(
        self,
        question: str,
        *,
        arguments: JsonObject | None = None,
        seconds: float | None = None,
        scope: Literal["run", "thread"] = "run",
        by: Sender | None = "",
    ) -> None:
        """Approve a waiting call: it runs once, with exactly the arguments that it has.

        Args:
            question: the id of the question in `result.pending`. Its key works too, for any call at that key.
            arguments: others to run it with; they are validated and gated again.
            seconds: let calls of that tool to the same destinations run for so long, in this run and under this version
                of the policy. For a tool that does not declare them, that is all of its arguments. Where another engine
                of the run has a tool of that name, they are the same as both tools declare them.
            scope: where they may: in this run, or with "thread" in the later turns of its thread too (`Thread.approvals`).
            by: who approves: a name for the journal, or a `Principal`, which an `ApprovalRule` needs.
        """
        if scope == "run":
            await self._approve(question, arguments, seconds, by, {})
            return
        if not read_start(self.run_id, await self._entries()).thread:
            raise ConfigError(
                f"scope: run {self.run_id!r} is of no thread; approve with scope='run'"
            )
        if seconds is None:
            raise ConfigError(
                "seconds: an approval for a whole thread ends; say in how many seconds"
            )
        await self._approve(question, arguments, seconds, by, {"scope": scope})

    async def _approve(
        self,
        question: str,
        arguments: JsonObject | None,
        seconds: float | None,
        by: Sender | None,
        more: Mapping[str, Json],
    ) -> None:
        """Approve a waiting call, with `more` in the command."""
        if seconds is not None and not 0 < seconds <= MAX_SECONDS:
            raise ConfigError(
                f"seconds: must be a number above 0, and at most {MAX_SECONDS:g}, got {seconds!r:.40}"
            )
        asked = await self._asked_approval(question)
        body = sign_body({**asked, "by": "", **more}, by)
        if arguments is not None:
            body["arguments"] = _read_arguments("approve", arguments, self._redactor)
        if seconds is not None:
            shown = _find_asked(await self._entries(), asked["key"])
            approved = shown.arguments if arguments is None else arguments
            body |= {"same": dict(hash_each(approved, approved)), "seconds": seconds}
            destinations = shown.list_destinations(approved)
            if destinations is not None:
                body["destinations"] = [*destinations]
        await self._send(APPROVE, body)

    async def deny(
        self, question: str, reason: str = "", *, by: Sender | None = ""
    ) -> None:
        """Deny a waiting call, by the id or the key of its question; the model reads the reason.

        This also revokes an approval, as long as the call has not begun.
        """
        asked = await self._asked_approval(question, allowed=True)
        redacted = self._redactor.redact_text(reason)
        await self._send(DENY, sign_body({**asked, "reason": redacted, "by": ""}, by))

    async def declassify(
        self, label: Label, reason: str, *, trusted: bool = False, by: Sender = ""
    ) -> None:
        """Lower the sensitivity of the run to `label` from here on, whatever it has read; it is recorded.

        With `trusted`, what it has read from outside counts as trusted, too. Its messages keep what they are.
        """
        check_label(label)
        body: dict[str, Json] = {"label": label, "reason": self._text("reason", reason)}
        if trusted:
            body["trusted"] = True
        await self._send(DECLASSIFY, sign_body(body, by))

    async def endorse(self, value: str, reason: str, *, by: Sender = "") -> None:
        """Declare that a value is to be trusted as a whole from here on, wherever it came from; it is recorded.

        A gate then sees it as typed by the caller: an address that a person has checked, say.
        """
        text = self._text("endorse", value)
        body: dict[str, Json] = {"text": text, "reason": self._text("reason", reason)}
        await self._send(ENDORSE, sign_body(body, by))

    async def resolve(
        self, question: str, resolution: Resolution, *, by: Sender = ""
    ) -> None:
        """Answer a call whose outcome is unknown: `CallCompleted(result)`, `CallNotExecuted()` or `OutcomeUnknown()`."""
        if not isinstance(resolution, (CallCompleted, CallNotExecuted, OutcomeUnknown)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"resolution: must be CallCompleted(result), CallNotExecuted() or OutcomeUnknown(), got {resolution!r}"
            )
        if isinstance(resolution, CallCompleted):
            resolution = CallCompleted(self._redactor.redact_text(resolution.result))
        body = build_resolve_body(
            self.run_id, await self._entries(), question, resolution
        )
        await self._send(RESOLVE, sign_body(body, by))

    async def questions(self) -> tuple[Question, ...]:
        """Return what the run wants decided."""
        return open_questions(await self._entries())

    async def _asked_approval(
        self, question: str, *, allowed: bool = False
    ) -> dict[str, Json]:
        """Return what binds a decision to its call: one that waits or, with `allowed`, was approved."""
        key, _, shown_hash = question.partition("@")
        entries = await self._entries()
        replay = Replay(entries)
        known = replay.approvals.unused_approval(key) if allowed else None
        if known is None:
            waiting = _about("approval", entries, replay)
            asked = choose_question(waiting, key, self.run_id)
            known = replay.approvals.open_approvals()[asked.key]
        # The call of an approval with other arguments was not shown, but to deny it is safe.
        is_shown = known.arguments_hash.startswith(shown_hash)
        if not is_shown and known.verdict != "modify":
            raise ConfigError(
                f"question: run {self.run_id!r} asks about another call at {key!r} by now: look at it again"
            )
        if not allowed and 0 < known.until <= self._clock.wall():
            raise ConfigError(
                f"question: run {self.run_id!r} waited for approval at {key!r} until its time was over"
            )
        return {
            "key": key,
            "question": replay.approvals.approval_entries.get(key, 0),
            "tool": known.tool,
            "arguments_hash": known.arguments_hash,
            "policy_version": known.policy_version,
        }

    def _text(self, field: str, text: object, *, guides: bool = False) -> str:
        """Return a text of a command; raise `ConfigError` for none, and for one to trust that is labelled otherwise."""
        if not is_filled_text(text):
            raise ConfigError(f"{field}: needs a text, got {text!r}")
        if guides:
            check_unlabelled(field, text, "a command to a run")
        return self._redactor.redact_text(text.encode("utf-8", "replace").decode())


def _read_arguments(field: str, arguments: object, redactor: Redactor) -> Json:
    """Return the arguments of a call; raise `ConfigError` for none, and for those with a secret."""
    if not isinstance(arguments, Mapping) or not hash_arguments(
        cast("JsonObject", arguments)
    ):
        raise ConfigError(
            f"{field}: arguments must be a JSON object, got {arguments!r}"
        )
    given = cast("Json", dict(cast("JsonObject", arguments)))
    if redactor.redact_value(given) is not given:
        raise ConfigError(
            f"{field}: the arguments hold a secret, which no inbox keeps: put it into deps"
        )
    return given


def _find_asked(entries: Sequence[Entry], key: Json) -> Question:
    """Return the question about the call at a key; an empty one if it is not asked about."""
    asked = (known for known in _about("approval", entries) if known.key == key)
    return next(asked, Question("", ""))


def _about(
    about: str, entries: Sequence[Entry], replay: Replay | None = None
) -> list[Question]:
    asked = open_questions(entries, replay)
    return [known for known in asked if known.about == about]


class RunControl(Control):
    """Control of any run of a journal, in whichever process it is at work: `runtime.control(run_id)`."""

    def __init__(
        self,
        journal: Journal,
        redactor: Redactor,
        run_id: str,
        clock: Clock | None = None,
        signer: CommandSigner | None = None,
    ) -> None:
        self._own_signer = signer
        self._run_id, self._run_journal = run_id, journal
        self._run_redactor, self._run_clock = redactor, clock or SystemClock()

    @property
    def run_id(self) -> str:
        """The run's name in the journal."""
        return self._run_id

    @property
    def _journal(self) -> Journal:
        return self._run_journal

    @property
    def _redactor(self) -> Redactor:
        return self._run_redactor

    @property
    def _clock(self) -> Clock:
        return self._run_clock

    @property
    def _signer(self) -> CommandSigner | None:
        return self._own_signer

    async def abort(self, *, by: Sender = "") -> None:
        """Stop the run at once: what is in flight is cancelled, and it ends as `aborted`."""
        await self._send(ABORT, sign_body({}, by))

    async def retry(self, reason: str = "", *, by: Sender = "") -> None:
        """Let a run that is parked, or that a provider's failure or a dead letter ended, continue: the next worker takes it.

        Raises `ConfigError` for any other run, for a turn that the next one of its thread continues, and for dead letters
        that may have taken effect.
        """
        redacted = self._redactor.redact_text(reason)
        await retry(self._journal, self._clock, self.run_id, redacted, str(by))

    async def close(
        self, reason: str, *, by: Sender = "", take_over: bool = False
    ) -> None:
        """End a run as `aborted` whose code is gone; nothing is undone, and a saga's error names the calls.

        `abort` ends a run whose code is there, and undoes its saga. Raises `RunBusy` for a run at work, and
        `ConfigError` for one that has ended. With `take_over` it fences off an owner that may be at work, such as that of
        a copy of the journal which was made on another machine.
        """
        redacted = self._text("reason", reason)
        signed = f"{redacted} (by {by})" if by else redacted
        await close(
            self._journal, self._clock, self.run_id, signed, take_over=take_over
        )
