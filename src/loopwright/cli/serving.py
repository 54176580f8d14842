"""`worker` and `resolve`: runs that nobody works on are taken up, and told what they wait for."""

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from ..doubt import Done, NotDone, Resolution, Unknown
from ..doubts import RESOLVE, resolve_body
from ..errors import ConfigError, JournalError
from ..events import Entry, RunFinished, RunResumed, RunStarted, RunSuspended, ToolFinished, ToolStarted
from ..journal import MemoryJournal
from ..redaction import Redactor
from ..result import Model, Result
from ..runtime import Runtime
from ..worker import Worker
from .choices import Chosen, journal_name, open_journal, output_model
from .questions import answers
from .running import Manner, closing, engine_again, facts_of, make_runtime
from .text import clean, json_text, one_line

Said: TypeAlias = Literal["not-done", "unknown"]


class Serving(Runtime):
    """Goes on with each run under the limits and options that it was started with, as `loopwright resume` does."""

    def __init__(self, chosen: Chosen, parts: Callable[[RunStarted | None], Runtime]) -> None:
        vars(self).update(vars(parts(None)))
        object.__setattr__(self, "_chosen", chosen)
        object.__setattr__(self, "_parts", parts)
