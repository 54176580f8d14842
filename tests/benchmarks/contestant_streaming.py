"""Loopwright as in contestant.py, each run watched word by word: every model call streams."""

from contestants.loopwright_react import build  # pyright: ignore[reportMissingImports] - the name it has in the harness
from tools_common import QUESTION, SYSTEM  # pyright: ignore[reportMissingImports] - of the harness

from loopwright import Conversation

MODE, KIND = "native", "async"
VENV = "loopwright"
PACKAGES = ["loopwright"]
_engines: dict = {}


async def run_session(base_url, rounds):
    engine = _engines.get(base_url)
    if engine is None:
        engine = _engines[base_url] = build(10, base_url)
    async with engine.start(
        Conversation.of(QUESTION, system=SYSTEM), deltas=True
    ) as run:
        async for _ in run:
            pass
        result = await run.result()
    return result.raise_for_status().answer
