"""The public names load late, and yet a name that does not exist is found before the program runs."""

import loopwright
from loopwright import ReactEngine as ReactEngine  # error
from loopwright.journals import SqliteJournal as SqliteJournal  # error
from loopwright.providers import OpenAiProvider as OpenAiProvider  # error


def limits() -> object:
    return loopwright.Limit  # error
