"""Send a command to the inbox of a run, and list the decisions that runs wait for."""

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
from .command_keys import open_command_signer
from .config import open_journal
from .exit_status import FAILED, report_error
from .questions import format_question
from .run import run_and_close
from .text import clean, json_text, one_line

Send: TypeAlias = Callable[[RunControl], Awaitable[None]]


def send_command(run_id: str, journal: str | None, send: Send) -> int:
    """Send a command to a run; return the exit status."""
    opened = open_journal(journal)
    control = RunControl(opened, Redactor(), run_id, signer=open_command_signer())
    statuses = {info.run_id: info.status for info in opened.runs(unfinished=True)}
    is_running = statuses.get(run_id, "running") == "running"

    async def work() -> None:
        await send(control)

    asyncio.run(run_and_close(opened, work))
    when = "before the next step" if is_running else "when the run is resumed"
    sys.stderr.write(f"queued; takes effect {when}\n")
    return 0


def change_run(run_id: str, journal: str | None, change: Send, done: str) -> int:
    """Change a run that no process works on, and say what was `done`; return the exit status."""
    opened = open_journal(journal)
    control = RunControl(opened, Redactor(), run_id)

    async def work() -> None:
        await change(control)

    asyncio.run(run_and_close(opened, work))
    sys.stderr.write(f"{done}\n")
    return 0


def list_questions(journal: str | None, *, as_json: bool) -> int:
    """List the open questions of a journal, the newest run first; return 1 if a run cannot be read."""
    opened = open_journal(journal)
    count, status = 0, 0
    for info in opened.runs(unfinished=True):
        try:
            asked = open_questions(opened.read(info.run_id))
        except JournalError as error:  # the other runs are listed all the same
            report_error(error, debug=False)
            status = FAILED
            continue
        count += len(asked)
        for question in asked:
            lines = _format_question(info.run_id, question, journal)
            if as_json:
                lines = [_question_as_json(info.run_id, question)]
            sys.stdout.writelines(f"{line}\n" for line in lines)
    if not count and not status:
        sys.stderr.write("no run waits for a decision\n")
    return status


def _question_as_json(run_id: str, question: Question) -> str:
    return json_text(
        {"run_id": run_id, "id": question.id, "question": question.to_json()}
    )


def _format_question(run_id: str, question: Question, journal: str | None) -> list[str]:
    """Return a question with the call that it is about and the commands that answer it."""
    return [
        f"{clean(run_id)}  {clean(question.key)}  {one_line(question.text)}",
        *format_question(run_id, question, journal),
    ]


def parse_json_object(option: str, text: str) -> JsonObject:
    """Return the JSON object that an option holds."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{option}: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{option}: must be a JSON object, got {text:.80}")
    return cast("JsonObject", value)
