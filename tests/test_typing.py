"""What the types promise: both checkers report exactly the lines marked `# error` in tests/typing, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "typing"
Found = dict[str, str]  # "file:line" and what the checker says there


def marked() -> set[str]:
    return {
        f"{path.name}:{number}"
        for path in CASES.glob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if line.endswith("# error")
    }


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), f"{command[0]} did not work: {done.stdout}{done.stderr}"
    return done.stdout


def mypy(_: Path) -> Found:
    reports = [json.loads(line) for line in run("mypy", "--output", "json", str(CASES)).splitlines()]
    errors = [report for report in reports if report["severity"] == "error"]
    return {f"{Path(report['file']).name}:{report['line']}": report["message"] for report in errors}


def basedpyright(scratch: Path) -> Found:
    settings = scratch / "pyrightconfig.json"  # the project's own settings look at src and examples
    strict = {"include": [str(CASES)], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict"}
    settings.write_text(json.dumps(strict), encoding="utf-8")
    output = run("basedpyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(settings))
    errors = [report for report in json.loads(output)["generalDiagnostics"] if report["severity"] == "error"]
    return {
        f"{Path(report['file']).name}:{report['range']['start']['line'] + 1}": report["message"] for report in errors
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("checker", [mypy, basedpyright], ids=lambda checker: checker.__name__)
def test_a_checker_reports_exactly_the_marked_lines(checker, tmp_path):
    found = checker(tmp_path)

    assert "\n".join(sorted(marked() - set(found))) == "", "let through"
    assert "\n".join(f"{at}: {found[at]}" for at in sorted(set(found) - marked())) == "", "should be clean"


def test_each_promise_about_the_door_has_its_case():
    promised = {at.partition(":")[0] for at in marked()}

    assert promised == {path.name for path in CASES.glob("*.py")} - {"engine_is_clean.py"}
