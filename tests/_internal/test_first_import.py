"""What an application imports first brings only what a first run uses."""

import json
import subprocess
import sys

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
