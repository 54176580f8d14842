"""Loopwright with everything on: SQLite journal, default gate, breakers, monitor; one engine shared by all sessions."""

import tempfile

from tools_common import QUESTION, SYSTEM, make_tools  # pyright: ignore[reportMissingImports] - of the harness

from loopwright import Conversation, Limits, ReActEngine, Runtime
from loopwright.journals import SQLiteJournal
from loopwright.providers import OpenAIProvider

MODE, KIND = "native", "async"
VENV = "loopwright"
PACKAGES = ["loopwright"]
_folder = tempfile.TemporaryDirectory(prefix="loopwright-bench-")
_engines: dict = {}
UNLIMITED = Limits(
    max_iterations=None,
    max_llm_calls=None,
    max_tool_calls=None,
    max_tokens=None,
    timeout=None,
    context_tokens=None,
)


def build(n_tools, base_url="http://127.0.0.1:1/v1"):
    journal = SQLiteJournal(f"{_folder.name}/runs-{len(_engines)}.db")
    provider = OpenAIProvider("fake-model", base_url=base_url, api_key="x")
    return ReActEngine(
        Runtime(provider, tools=make_tools(n_tools), journal=journal, limits=UNLIMITED)
    )


async def run_session(base_url, rounds):
    engine = _engines.get(base_url)
    if engine is None:
        engine = _engines[base_url] = build(10, base_url)
    result = await engine.run(Conversation.of(QUESTION, system=SYSTEM))
    return result.raise_for_status().answer
