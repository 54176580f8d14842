"""Warm-up of an interpreter that forks: what is imported or cached at first use is there for all of its forks.

Forks that did it again each would take three times as long.
"""

import asyncio
import contextlib
import gc
import importlib
import sys
import tempfile
from collections.abc import Iterable

from ..engines.react import ReActEngine
from ..journals.base import Journal
from ..messages import ToolCall
from ..plugins import build_journal
from ..runtime import Runtime
from ..tools.base import tool
from .scripted import ScriptedProvider

_RUN = "warm-up"
_SHARED = frozenset(
    (*sys.stdlib_module_names, "jsonschema", "loopwright", "pydantic", "pydantic_core")
)


@tool(effect="read")
async def _look(what: str) -> str:
    """Look something up."""
    return what


def warm_up() -> None:
    """Run a small engine once on a journal of its own, and keep what is loaded now."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(build_journal(f"sqlite:{folder}/runs.db")))
    with contextlib.suppress(ImportError):
        importlib.import_module("jsonschema")
    keep_loaded()


async def _run(journal: Journal) -> None:
    provider = ScriptedProvider([ToolCall("_look", {"what": "sky"}), "blue"])
    async with Runtime(provider, tools=[_look], journal=journal) as runtime:
        await ReActEngine(runtime).run("What is blue?", run_id=_RUN)
        journal.verify(_RUN)
    await journal.close()


def import_shared(modules: Iterable[str]) -> None:
    """Import what a fork imported of Python and of this library, for the forks that follow."""
    missing = [name for name in modules if name.partition(".")[0] in _SHARED]
    missing = [name for name in missing if name not in sys.modules]
    for name in missing:
        with contextlib.suppress(Exception):  # a fork that needs it raises it again
            importlib.import_module(name)
    if missing:
        keep_loaded()


def keep_loaded() -> None:
    """Keep all objects out of garbage collection, which would copy their memory in each fork."""
    gc.collect()
    gc.freeze()
