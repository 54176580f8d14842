"""The third-party package of the tests, installed by pip from its own pyproject into a folder of this process."""

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "third_party"


@functools.cache
def install_third_party() -> Path:
    """The folder that the package was installed into: nothing is downloaded, and it goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="third-party-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(folder), str(SOURCE)], check=True
    )
    return folder
