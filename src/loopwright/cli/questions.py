"""What a run asks people, with the commands to type for an answer."""

import shlex
from collections.abc import Iterable

from ..events import Question
from .text import clean, one_line


def answers(run_id: str, pending: Iterable[Question], journal: str | None) -> list[str]:
    """Each question of a waiting run, and below it how to answer."""
    lines: list[str] = []
    for question in pending:
        lines += [one_line(question.text), *how_to_answer(run_id, question, journal)]
    return lines


def how_to_answer(run_id: str, question: Question, journal: str | None) -> list[str]:
    """The commands that answer a question."""

    def command(name: str, *words: str) -> str:
        where = [] if journal is None else ["--journal", journal]
        return clean(shlex.join(["loopwright", name, run_id, *words, *where]))

    key = question.key
    if question.about == "approval":
        return [f"  allow it: {command('approve', key)}", f"  or not: {command('deny', key)} --reason TEXT"]
    if question.about == "question":
        return [f"  answer it: {command('answer', '--question', key)} TEXT"]
    return [f"  say it: {command('resolve', key)} --done TEXT, or --not-done, or --unknown"]
