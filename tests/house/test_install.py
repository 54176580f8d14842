"""What `.ci/install` asks for what it installs."""

import os
import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[2] / ".ci" / "install"
PYTHON = """\
#!/bin/sh
case "$*" in *"config list") cat "$(dirname "$0")/told" ;; *) echo "pip $*" >> "$(dirname "$0")/done" ;; esac
"""
UV = """\
#!/bin/sh
echo "uv $UV_DEFAULT_INDEX" >> "$(dirname "$0")/done"
exit {status}
"""


@pytest.mark.parametrize(
    ("told", "status", "done"),
    [
        ("global.extra-index-url='file:///more'", 0, ["uv "]),
        ("global.index-url='https://mirror/simple'", 0, ["uv https://mirror/simple"]),
        (":env:.index-url='https://a/s'\nglobal.index-url='https://b/s'", 0, ["uv https://a/s"]),
        ("global.no-index='true'", 0, ["pip"]),
        ("", 2, ["uv ", "pip"]),
    ],
)  # fmt: skip
def test_uv_asks_the_index_that_pip_is_told_of_and_pip_does_what_uv_cannot(
    tmp_path: Path, told: str, status: int, done: list[str]
) -> None:
    for name, text in (("python", PYTHON), ("uv", UV.format(status=status))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "told").write_text(f"{told}\n")
    environment = {k: v for k, v in os.environ.items() if k != "UV_DEFAULT_INDEX"}
    subprocess.run([INSTALL, tmp_path / "python", "it"], check=True, env=environment)
    lines = (tmp_path / "done").read_text().splitlines()

    assert [line.split(" -")[0] for line in lines] == done
    assert all(line.endswith(" it") for line in lines if line.startswith("pip"))
