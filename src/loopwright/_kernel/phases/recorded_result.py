"""The result of a run that has ended, as its entries have it."""

import contextlib
from typing import Any

from ...errors import LoopwrightError
from ...events.effects import FactNoted
from ...events.entry import Entry
from ...events.lifecycle import read_start, restore_answer
from ...events.run import RunFinished
from ...journals.base import Journal
from ...journals.recorded_conversations import build_end
from ...result import Result
from ..durability.history import offer_conversation, open_conversation
from .output_type import OutputType


def read_result(
    journal: Journal, entries: list[Entry], output: OutputType[Any] | None
) -> Result | None:
    """Return the result of a run that has ended; `None` for another one."""
    last = entries[-1] if entries else None
    if last is None or not isinstance(last.event, RunFinished):
        return None
    restore_answer(entries)
    done = last.event
    start = open_conversation(journal, read_start(last.run_id, entries))
    conversation = build_end(start, entries)
    return Result(
        done.answer,
        done.status,
        done.stop_reason,
        done.usage,
        done.iterations,
        last.run_id,
        _restore_error(done),
        head_hash=last.hash,
        output=_restore_output(done, output),
        conversation=offer_conversation(journal, last, start, conversation),
        llm_calls=done.llm_calls,
        tool_calls=done.tool_calls,
        facts=tuple(
            entry.event for entry in entries if isinstance(entry.event, FactNoted)
        ),
        label=conversation.label,
        untrusted=conversation.untrusted,
        trimmed=done.trimmed,
    )


def _restore_error(done: RunFinished) -> LoopwrightError | None:
    return None if done.error is None else done.error.restore()


def _restore_output(done: RunFinished, output: OutputType[Any] | None) -> Any:
    """Return the recorded output as the type that was asked for, if that is given.

    Mostly the answer is the text that it was read from. Read from that again, a validator that changes what it is given
    does so once; from the record it would do so twice, or could not read its own result.
    """
    recorded = done.output
    if output is None or recorded is None:
        return recorded
    with contextlib.suppress(ValueError):
        value = output.read(done.answer or "")
        if output.dump(value) == recorded:
            return value
    return output.restore(recorded)
