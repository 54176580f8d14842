"""Ask once, without tools, for the best answer so far when a run ends early."""

from ...errors import (
    JournalError,
    LimitReached,
    LoopwrightError,
    Stuck,
    Suspended,
    Unreadable,
)
from ...messages import Conversation
from .cycle import Cycle
from .engine_output import clean_answer, wrap_error
from .inference import Question
from .reason import expect_output, settle

BEST_ANSWER = "There are no more steps left. Do not call any tool. Give your best final answer now, from what you know."
UNASKED_LIMITS = ("timeout", "max_cost")
"""The limits at which no best answer is asked for: there is no time or money for it."""


async def ask_best_answer(cycle: Cycle, conversation: Conversation) -> str:
    """Return the best answer; raise `Unreadable` if the reply is not one.

    The root's first call of this kind is made although the run is at a limit.
    """
    with cycle.scope.enter("best_answer", despite_signal=True):
        budget = cycle.session.budget
        reserved = cycle.scope.is_root and not budget.reserved_used
        budget.reserved_used |= reserved
        asked = conversation.user(BEST_ANSWER, origin="runtime")
        question = Question(
            "best_answer", asked, cycle.services.provider, reserved=reserved
        )
        expected = expect_output(cycle, question)
        completion = (await settle(cycle, expected)).completion
        if completion.answer is None or completion.is_cut:
            raise Unreadable(
                completion.problem
                or "the best answer was cut, or the model called a tool instead"
            )
        return completion.answer


def may_ask_best_answer(cycle: Cycle, ending: LoopwrightError | None) -> bool:
    """Whether a run that ends like this may still make the reserved call."""
    limits = cycle.services.limits
    if not limits.best_effort or limits.max_llm_calls == 1:
        return False
    if isinstance(ending, LimitReached):
        return ending.limit not in UNASKED_LIMITS
    return isinstance(ending, Stuck) and cycle.session.progress.then != "abort"


async def ask_at_the_end(
    cycle: Cycle, ending: LoopwrightError
) -> tuple[str | None, LoopwrightError]:
    """Ask for the best answer of a run that ends without one, if that is allowed."""
    if not may_ask_best_answer(cycle, ending):
        return None, ending
    try:
        answer = await ask_best_answer(cycle, cycle.latest)
        return clean_answer(cycle, answer), ending
    except Exception as raised:  # noqa: BLE001 - then there is no best answer; the ending stays
        failure = wrap_error(cycle, raised)
        if isinstance(failure, (JournalError, Suspended)):
            return None, failure
        ending.__cause__ = failure
        return None, ending
