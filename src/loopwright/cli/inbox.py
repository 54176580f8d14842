"""What a person says to a run from a shell: one word into its inbox, and a list of what runs ask."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

from .._kernel.control.questions import open_questions
from .._kernel.control.run_control import RunControl
from ..errors import ConfigError, JournalError
from ..events.run import Question
from ..messages import JsonObject
from ..security.redaction import Redactor
from .config import open_journal
from .exit_status import FAILED, report_error
from .questions import format_question
from .run import run_and_close
from .text import clean, json_text, one_line

Send: TypeAlias = Callable[[RunControl], Awaitable[None]]


def send_command(run_id: str, journal: str | None, word: Send) -> int:
    """Say a word to a run; gives the exit status."""
    opened = open_journal(journal)
    control = RunControl(opened, Redactor(), run_id)
    status = next(
        (info.status for info in opened.runs(unfinished=True) if info.run_id == run_id),
        "running",
    )

    async def work() -> None:
        await word(control)

    asyncio.run(run_and_close(opened, work))
    at_work = "queued; takes effect before the next step\n"
    sys.stderr.write(
        at_work
        if status == "running"
        else "queued; takes effect when the run is resumed\n"
    )
    return 0


def list_questions(journal: str | None, *, as_json: bool) -> int:
    """List what the runs of a journal want decided, the newest run first; 1 if a run cannot be read."""
    opened = open_journal(journal)
    count, status = 0, 0
    for info in opened.runs(unfinished=True):
        try:
            asked = open_questions(opened.read(info.run_id))
        except JournalError as error:  # the others are asked about all the same
            report_error(error, debug=False)
            status = FAILED
            continue
        count += len(asked)
        for question in asked:
            if as_json:
                sys.stdout.write(
                    json_text(
                        {"run_id": info.run_id, "id": question.id, "question": question}
                    )
                    + "\n"
                )
            else:
                sys.stdout.writelines(
                    f"{line}\n" for line in _lines(info.run_id, question, journal)
                )
    if not count and not status:
        sys.stderr.write("no run waits for a decision\n")
    return status


def _lines(run_id: str, question: Question, journal: str | None) -> list[str]:
    """A question with the call that it is about, word for word, and the commands that answer it."""
    return [
        f"{clean(run_id)}  {clean(question.key)}  {one_line(question.text)}",
        *format_question(run_id, question, journal),
    ]


def parse_json_object(option: str, text: str) -> JsonObject:
    """An option that is a JSON object."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{option}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{option}: must be a JSON object, got {text:.80}")
    return cast("JsonObject", value)
