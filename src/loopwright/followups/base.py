"""FollowUp: the port of work that is due once a run has ended, and the run that it is about."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from pydantic_core import PydanticSerializationError, to_jsonable_python

from .._internal import dataclasses
from .._internal.options import Options
from ..events.entry import Entry
from ..events.followups import PlannedFollowUp
from ..events.lifecycle import read_start
from ..events.run import RunStarted, Status
from ..knowledge.base import Knowledge
from ..knowledge.bridge import scope_of
from ..labels import Label
from ..messages import Json
from ..result import Result
from ..run import Run
from ..security.redaction import Redactor
from ..tools.base import Tool


@dataclasses.dataclass(frozen=True)
class EndedRun:
    """A run that has ended, as its follow-ups see it.

    Args:
        result: its result, with its conversation.
        entries: the entries of its journal.
        knowledge: the store of the runtime, if it has one.
    """

    result: Result
    entries: Sequence[Entry]
    knowledge: Knowledge | None = None

    @property
    def started(self) -> RunStarted:
        """What the run began with."""
        return read_start(self.run_id, self.entries)

    @property
    def run_id(self) -> str:
        """The run's name in the journal."""
        return self.result.run_id

    @property
    def task(self) -> str:
        """What was asked: the last message that a person gave the run."""
        asked = [one.content for one in self.started.messages if one.role == "user"]
        return asked[-1] if asked else ""

    @property
    def scope(self) -> str:
        """Whose knowledge the run used; see `scope_of`."""
        return scope_of(self.started.tags, self.started.thread)

    @property
    def key(self) -> str:
        """A text that names the run in every journal, for keys under which something is stored once."""
        journal = self.started.journal_id
        return f"{journal}:{self.run_id}" if journal else self.run_id

    @property
    def label(self) -> Label:
        """How sensitive the run was as it ended."""
        return self.result.label

    @property
    def untrusted(self) -> bool:
        """Whether the run had read anything from outside as it ended."""
        return self.result.untrusted


class FollowUp(Options):
    """Work that is due once a run has ended. Subclasses are frozen, keyword-only dataclasses whose fields are their options.

    It is done at most once for each run, in a run of its own that any process may do, resume and list. Write `name` and
    `follow`; `statuses` are the endings after which it is due. One that `needs_knowledge` is refused where the runtime has
    no store.
    """

    name: ClassVar[str] = ""
    statuses: ClassVar[tuple[Status, ...]] = ("completed",)
    needs_knowledge: ClassVar[bool] = False

    @property
    def due_after(self) -> tuple[Status, ...]:
        """The endings after which it is due, `statuses` unless an option says otherwise."""
        return self.statuses

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools that the follow-up's own run has beside those of the runtime."""
        return ()

    @abstractmethod
    async def follow(self, run: Run, ended: EndedRun) -> str:
        """Do the work through `run`, which is the follow-up's own, and return a line that says what was done."""

    def plan(self, redactor: Redactor) -> PlannedFollowUp:
        """Return what a run records of it when it begins; an option that is code, or a secret, is only named."""
        options: dict[str, Json] = {}
        opaque: list[str] = []
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType] - a pydantic dataclass
            try:
                plain: Json = to_jsonable_python(getattr(self, field.name))
            except PydanticSerializationError:
                opaque.append(field.name)
                continue
            option: Json = {field.name: plain}
            if redactor.redact_value(option) is option:
                options[field.name] = plain
            else:  # what cannot be recorded cannot be rebuilt
                opaque.append(field.name)
        return PlannedFollowUp(self.name, options, self.due_after, tuple(opaque))
