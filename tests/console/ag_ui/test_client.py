"""The real client of AG-UI drives runs; `make browser` installs it and runs this."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from ag_ui_front_end import TOKEN, build_console, build_runtime
from console_server import serving
from loopwright.testing import call

CLIENT = os.environ.get("LOOPWRIGHT_AG_UI_CLIENT", "")
PROGRAM = Path(__file__).parents[2] / "support" / "ag_ui_client.mjs"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CLIENT, reason="needs node and npm: `make browser`"),
]


def test_the_real_client_starts_streams_interrupts_resumes_and_comes_back(
    tmp_path: Path,
) -> None:
    runtime = build_runtime(
        tmp_path,
        call("weather", city="Rome"),
        "21 in Rome.",
        call("delete", name="a"),
        "It is gone.",
        call("draw_chart", kind="bar"),
        "It is drawn.",
    )
    with serving(build_console(runtime).app) as address:
        ran = subprocess.run(
            ["node", str(PROGRAM), CLIENT, address, TOKEN],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)

    assert seen["tools"]["last"]["content"] == "21 in Rome."
    assert {"TOOL_CALL_RESULT", "TEXT_MESSAGE_CONTENT", "STATE_SNAPSHOT"} <= set(
        seen["tools"]["types"]
    )
    assert seen["approval"]["interrupts"] == ["approval"]
    assert seen["resumed"]["interrupts"] == []
    assert seen["resumed"]["last"]["content"] == "It is gone."
    assert seen["chart"]["last"]["toolCalls"][0]["function"]["name"] == "draw_chart"
    assert seen["drawn"]["result"] == "It is drawn."
    assert seen["back"]["status"] == "completed"
    assert "MESSAGES_SNAPSHOT" in seen["back"]["types"]
    assert seen["after"] == seen["before"], "who comes back has what was said"
