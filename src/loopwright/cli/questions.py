"""What a waiting run asks about calls that are in doubt or failed, with the command to type for an answer."""

import shlex
from collections.abc import Iterable

from ..events import Question
from .text import clean, one_line


def answers(run_id: str, pending: Iterable[Question], journal: str | None) -> list[str]:
    """Two lines for each question that `loopwright resolve` answers; those about approval `loopwright resume` asks."""
    where = [] if journal is None else ["--journal", journal]
    lines: list[str] = []
    for question in pending:
        if question.about != "approval":
            command = clean(shlex.join(["loopwright", "resolve", run_id, question.key, *where]))
            lines += [one_line(question.text), f"  say it: {command} --done TEXT, or --not-done, or --unknown"]
    return lines
