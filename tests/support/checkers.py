"""What two type checkers say of the cases in tests/typing and of the code in the pages: each reads the package once."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pages import ROOT, write_modules

CASES = ROOT / "tests" / "typing"


class Finding(NamedTuple):
    """What a checker does not like, and where."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


Checker: TypeAlias = Callable[[Path], list[Finding]]
"""What it finds in a folder: `CASES`, or `modules()`."""


@functools.cache
def modules() -> Path:
    """A folder with the code of every page, for as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="pages-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_modules(folder)
    return folder


def mypy(folder: Path) -> list[Finding]:
    """By the project's own settings: as strict as it can be, and some more."""
    return _of(folder, _mypy)


def basedpyright(folder: Path) -> list[Finding]:
    """As strict as pyright can be."""
    return _of(folder, _basedpyright)


def _of(
    folder: Path, checker: Callable[[], dict[Path, list[Finding]]]
) -> list[Finding]:
    found = _begun()[checker].result()
    return [
        finding
        for path, findings in found.items()
        if path.parent == folder.resolve()
        for finding in findings
    ]


@functools.cache
def _begun() -> dict[
    Callable[[], dict[Path, list[Finding]]], Future[dict[Path, list[Finding]]]
]:
    """Both at the same time: each is a process that waits for nobody."""
    modules()
    with ThreadPoolExecutor() as threads:
        return {checker: threads.submit(checker) for checker in (_mypy, _basedpyright)}


def _mypy() -> dict[Path, list[Finding]]:
    cache = f"--cache-dir={os.devnull}"  # which would know the folder of an earlier process by its name
    reports = [
        json.loads(line)
        for line in _run(
            "mypy", cache, "--output", "json", CASES, modules()
        ).splitlines()
    ]
    found = _none()
    for report in reports:
        if report["severity"] == "error":
            path = (ROOT / report["file"]).resolve()
            found[path].append(Finding(path.name, report["line"], report["message"]))
    return found


def _basedpyright() -> dict[Path, list[Finding]]:
    settings = (
        modules() / "pyrightconfig.json"
    )  # the project's own settings look at src and examples
    strict = {
        "include": [str(CASES), str(modules())],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
    }
    settings.write_text(json.dumps(strict), encoding="utf-8")
    output = _run(
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "--project",
        settings,
    )
    report, found = json.loads(output), _none()
    if report["summary"]["filesAnalyzed"] != len(found):
        raise AssertionError(
            f"{len(found)} files were to be checked: {report['summary']}"
        )
    for one in report["generalDiagnostics"]:
        if one["severity"] == "error":
            path = Path(one["file"]).resolve()
            found[path].append(
                Finding(path.name, one["range"]["start"]["line"] + 1, one["message"])
            )
    return found


def _none() -> dict[Path, list[Finding]]:
    return {
        path.resolve(): []
        for folder in (CASES, modules())
        for path in folder.glob("*.py")
    }


def _run(checker: str, *arguments: object) -> str:
    command = [sys.executable, "-m", checker, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    if done.returncode not in (0, 1):
        raise AssertionError(f"{checker} did not work: {done.stdout}{done.stderr}")
    return done.stdout
