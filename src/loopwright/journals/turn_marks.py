"""Which run of those that continue each other first began with a message, so that its handle is the same in all of them."""

from .._internal import dataclasses
from ..messages import Message


@dataclasses.dataclass(frozen=True, eq=False)
class TurnMark:
    """Marks in a conversation the first message that no run before number `turn` began with.

    Args:
        place: the index of that message.
        turn: the number of the run that is the first to begin with it and those behind it.
        run_id: the run before, which ended with these; empty where no run did.
        before: the mark of the messages in front of it.
    """

    place: int
    turn: int
    run_id: str = ""
    before: "TurnMark | None" = dataclasses.field(default=None, repr=False)

    def begin(self, place: int, turn: int) -> "TurnMark":
        """Return the mark of a run that begins with messages of its own from a place on."""
        return TurnMark(place, turn, "", self)

    def end(self, run_id: str, kept: int, turn: int) -> "TurnMark":
        """Return the mark of what continues run number `turn`, which kept so many of the messages that it began with."""
        earlier: TurnMark | None = self
        while earlier is not None and earlier.place >= kept:
            earlier = earlier.before
        return TurnMark(kept, turn + 1, run_id, earlier)

    def find(self, place: int) -> "TurnMark":
        """Return the mark of the message at a place."""
        mark = self
        while mark.place > place and mark.before is not None:
            mark = mark.before
        return mark


FIRST_TURN = TurnMark(0, 1)
"""The mark of all messages of a run that continues no other."""


def format_handle(message: Message, code: str, mark: TurnMark) -> str:
    """Return the handle of a message that a run has by a code, the same in each run that continues it.

    `mark` is that of the conversation that the run began with. Empty without a code.
    """
    if not code.startswith("@"):
        return f"{mark.turn}/{code}" if code else ""
    begun = mark.find(int(code[1:]))
    run_id, own_code = message.entry or ("", "")
    if run_id and run_id == begun.run_id and begun.turn > 1:
        return f"{begun.turn - 1}/{own_code}"
    return f"{max(begun.turn, 1)}/{code}"
