"""The questions of waiting runs, with the commands that answer them."""

import shlex
import time
from collections.abc import Iterable
from datetime import datetime

from ..clock import MAX_SECONDS
from ..events.run import Question
from .text import clean, exact_call, json_text, one_line


def format_questions(
    run_id: str, pending: Iterable[Question], journal: str | None
) -> list[str]:
    """Return each question of a waiting run, followed by the commands that answer it."""
    lines: list[str] = []
    for question in pending:
        lines += [one_line(question.text), *format_question(run_id, question, journal)]
    return lines


def format_question(run_id: str, question: Question, journal: str | None) -> list[str]:
    """Return the call that a question is about, its expiry, and the commands that answer it."""
    lines: list[str] = []
    if question.tool and (question.arguments or question.about == "approval"):
        lines.append(f"  {exact_call(question.tool, question.arguments)}")
    lines += describe_answer(question)
    if question.expires:
        until = datetime.fromtimestamp(min(question.expires, MAX_SECONDS)).astimezone()
        lines.append(f"  until {until:%Y-%m-%d %H:%M:%S %z}")
    missing = "answer" if question.about == "question" else "call"
    if 0 < question.expires <= time.time():
        return [
            *lines,
            f"  expired: the run continues without the {missing} when it is resumed",
        ]
    return [*lines, *_how_to_answer(run_id, question, journal)]


def describe_answer(question: Question) -> list[str]:
    """Return what may be answered, and why the last answer could not be used."""
    lines: list[str] = []
    if question.choices:
        lines.append(f"  one of: {one_line(', '.join(question.choices))}")
    if question.schema:
        lines.append(f"  as JSON that fits {one_line(json_text(question.schema))}")
    if question.problem:
        lines.append(f"  the last answer: {one_line(question.problem)}")
    return lines


def _how_to_answer(run_id: str, question: Question, journal: str | None) -> list[str]:
    """Return the commands that answer a question."""

    def command(name: str, *words: str) -> str:
        where = [] if journal is None else ["--journal", journal]
        return clean(shlex.join(["loopwright", name, run_id, *words, *where]))

    key = question.key
    if question.about == "approval":
        return [
            f"  approve it: {command('approve', question.id)}",
            f"  or deny it: {command('deny', question.id)} --reason TEXT",
        ]
    if question.about == "question":
        return [f"  answer it: {command('answer', '--question', key)} TEXT"]
    return [
        f"  resolve it: {command('resolve', key)} --done TEXT, or --not-done, or --unknown"
    ]
