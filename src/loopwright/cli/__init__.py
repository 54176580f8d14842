"""The `loopwright` command: run, watch, list, show, resume, fork and verify runs from a shell."""

import gc
import sys
from importlib import import_module
from typing import Never

REQUIRED = ("typer", "rich")
INSTALL_COMMAND = "pip install 'loopwright[cli]'"


def main() -> Never:
    """Run the command line and exit with its status; without the extra `cli`, say how to install it."""
    # What is imported stays until the process ends. So the garbage collector has nothing to find in it, neither now nor
    # at the end, when Python has it walk through everything several times.
    gc.disable()
    try:
        app = import_module(".app", __package__)  # it needs the extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in REQUIRED:
            raise
        sys.stderr.write(
            f"error: the loopwright command needs {missing}, which is not installed: {INSTALL_COMMAND}\n"
        )
        sys.exit(2)
    gc.freeze()
    gc.enable()
    sys.exit(app.main(sys.argv[1:]))
