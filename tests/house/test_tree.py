"""The tree shows the architecture: few packages, few loose modules, and a noun for each."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright import testing

PACKAGE = Path(__file__).parents[2] / "src" / "loopwright"
PACKAGES = {
    "_internal",
    "_kernel",
    "agents",
    "cli",
    "compose",
    "console",
    "engines",
    "events",
    "followups",
    "gates",
    "hooks",
    "journals",
    "knowledge",
    "observers",
    "parsing",
    "providers",
    "resilience",
    "schedules",
    "security",
    "settings",
    "storage",
    "testing",
    "toolboxes",
    "tools",
}
MODULES = {
    "__init__",
    "__main__",
    "attachments",
    "clock",
    "engine",
    "errors",
    "handle",
    "labels",
    "limits",
    "messages",
    "plugins",
    "principals",
    "prompts",
    "result",
    "run",
    "runtime",
    "worker",
}
LARGEST = 24  # packages of the design, those named there for later included, and loose modules
NOUNS = {
    "listing": "what a server lists",
    "matching": "of patterns",
    "parsing": "of model text",
    "scripted": "the double of a provider, by the adjective of its class",
    "spotlighting": "the name of the technique",
    "streaming": "of replies",
    "testing": "of applications",
    "thinking": "the models' name for what they write before an answer",
}
"""Words that end like a participle and are nouns of the field, each with what it names."""


def test_the_top_of_the_package_has_the_packages_and_modules_of_the_design() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")}

    assert packages - PACKAGES == set(), "a new package needs a place in the design"
    assert modules - MODULES == set(), "a new module belongs into one of the packages"
    assert max(len(packages), len(modules)) <= LARGEST


def test_every_module_is_named_by_a_noun() -> None:
    stems = {path.stem for path in PACKAGE.rglob("*.py")}
    folders = {path.name for path in PACKAGE.rglob("*") if path.is_dir()}
    participles = {
        name for name in stems | folders if re.search(r"(ing|ed)$", name)
    } - set(NOUNS)

    assert participles == set()


def test_tests_stand_where_what_they_test_stands() -> None:
    tests = PACKAGE.parents[1] / "tests"
    ours = {"benchmarks", "faults", "house", "site", "support", "third_party", "typing"}
    folders = {
        path.parent.relative_to(tests)
        for path in tests.rglob("test_*.py")
        if path.parent.relative_to(tests).parts
    }

    assert [
        str(folder)
        for folder in sorted(folders)
        if folder.parts[0] not in ours and not (PACKAGE / folder).is_dir()
    ] == []


def test_make_faults_runs_each_file_of_which_make_test_leaves_out_a_test() -> None:
    root = PACKAGE.parents[1]
    elsewhere = {"benchmarks", "faults", "support", "third_party"}
    killed = {
        name
        for name in testing.__all__
        if any("killed_at_any_barrier" in one for one in dir(getattr(testing, name)))
    }
    mark = re.compile(
        rf"\bmark\.faults\b|\({'|'.join(killed)}\):|import .*\b(sized|LONG)\b"
    )
    leaving_out = {
        path.relative_to(root).as_posix()
        for path in (root / "tests").rglob("test_*.py")
        if path.relative_to(root).parts[1] not in elsewhere
        and mark.search(path.read_text(encoding="utf-8"))
    }
    show = ["make", "-s", "--eval", "show-faults:;@echo $(FAULTS)", "show-faults"]
    shown = subprocess.run(show, cwd=root, capture_output=True, text=True, check=True)

    assert {"EngineContract", "DurableJournalContract"} <= killed
    assert leaving_out - set(shown.stdout.split()) == set()


@pytest.mark.faults
def test_the_long_size_selects_tests_without_the_mark_that_have_such_a_size() -> None:
    root = PACKAGE.parents[1]
    collect = [
        sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", "faults",
        "tests/gates/rules/test_differential.py", "tests/security/test_spotlighting.py",
    ]  # fmt: skip
    environment = os.environ | {"LOOPWRIGHT_FAULTS": "long"}
    found = subprocess.run(
        collect, cwd=root, env=environment, capture_output=True, text=True, check=True
    )

    assert "test_random_policies_are_decided_as_the_documentation_says" in found.stdout
    assert "test_no_reader_finds_a_call_or_a_marked_answer" in found.stdout
