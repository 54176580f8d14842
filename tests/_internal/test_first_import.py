"""What an application imports first brings only what a first run uses."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from loopwright import Limits, ReActEngine, Runtime, tool
from loopwright.journals import SQLiteJournal
from loopwright.providers import OpenAIProvider
built = [kind.__name__ for kind in (Limits, ReActEngine) if kind.__pydantic_complete__]
print(json.dumps([built, sorted(name for name in sys.modules if name.startswith("loopwright."))]))
"""
LATER = (
    "loopwright.followups.memories",
    "loopwright.parsing.plans",
    "loopwright.parsing.react_text",
    "loopwright.parsing.xml_text",
    "loopwright.providers.dialects.react",
    "loopwright.providers.dialects.xml",
    "loopwright.toolboxes.skills",
)


def test_a_first_import_loads_no_dialect_no_memories_and_builds_no_validator() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    built, loaded = json.loads(done.stdout)

    assert built == []
    assert "loopwright.providers.openai.provider" in loaded
    assert sorted(set(LATER) & set(loaded)) == []


FIRST_RUN = """
import asyncio, sys
from loopwright import ReActEngine, Runtime, tool
from loopwright.testing import ScriptedProvider, call
@tool(effect="read")
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
script = [call("add", a=1, b=2), *(call("add", **wrong) for wrong in WRONG), "3"]
result = asyncio.run(ReActEngine(Runtime(ScriptedProvider(script), tools=[add])).run("1 + 2?"))
print(result.answer, "jsonschema" in sys.modules)
"""


@pytest.mark.parametrize(
    ("wrong", "shown"), [([], "3 False"), ([{"a": "one", "b": 2}], "3 True")]
)
def test_a_first_run_loads_jsonschema_for_arguments_that_do_not_fit_plainly(
    wrong: list[object], shown: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"WRONG = {wrong!r}\n{FIRST_RUN}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == shown


AGENTS_AS_TOOLS = """
import asyncio, sys
from loopwright import ReActEngine, Runtime, ask_user
from loopwright.agents import AgentsToolbox
from loopwright.testing import ScriptedProvider, call
inner = ReActEngine(Runtime(ScriptedProvider(["blue"]))).as_tool(name="ask")
looks = call("delegate", agent="explore", task="Look.")
runtime = Runtime(ScriptedProvider([call("ask", task="Which colour?"), looks, "seen", "a blue one"]))
tools = [inner, ask_user, AgentsToolbox(runtime, presets=["explore"])]
result = asyncio.run(runtime.agent("boss", tools=tools).run("Which colour?"))
print(result.answer, "jsonschema" in sys.modules)
"""


def test_engines_as_tools_load_no_jsonschema() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AGENTS_AS_TOOLS], capture_output=True, text=True, check=True
    )  # fmt: skip

    assert done.stdout.strip() == "a blue one False"


THIRD_PARTY = """
import sys
from loopwright import Tool
from loopwright.tools.registry import ToolRegistry
schema = {"type": "object", "properties": {"a": {"type": "string"}}}
def it(a): return a
ToolRegistry([Tool("it", "It.", schema, it, effect="read", third_party=IS_THIRD_PARTY)])
print("jsonschema" in sys.modules)
"""


@pytest.mark.parametrize("is_third_party", [True, False])
def test_a_plain_tool_of_a_server_loads_jsonschema_before_a_run(
    is_third_party: bool,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"IS_THIRD_PARTY = {is_third_party}\n{THIRD_PARTY}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == str(is_third_party)
