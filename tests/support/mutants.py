"""Try the changes that mutmut makes in gate, breakers and replay, each in a fork of one collected test session.

mutmut runs pytest anew for each change, which takes seconds. Here the tests are collected once, run once to see which
of them reach which function, and a fork of that process runs those tests with one change until one of them fails.
"""

import argparse
import contextlib
import gc
import io
import json
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import mutmut.__main__ as mutmut
import pytest
from mutmut.configuration import config
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.format_utils import mangled_name_from_mutant_name

SEED = 20261126
MISSED = ("survived", "no tests")
SECONDS = 120.0
"""What a change may take beyond ten times its tests: one that makes a test wait for ever is noticed, too."""


def make_mutants(chosen: Iterable[str]) -> dict[str, list[str]]:
    """Write the changed sources and the tests into `mutants`, and return the names of the changes by file."""
    Path("mutants").mkdir(exist_ok=True)
    set_mutant_under_test("mutant_generation")
    with contextlib.redirect_stdout(io.StringIO()):  # each file is named there
        mutmut.copy_src_dir()
        mutmut.copy_also_copy_files()
        mutmut.create_mutants(1)
    _, files = mutmut.collect_source_file_mutation_data(mutant_names=())
    words = list(chosen)
    return {
        path: sorted(data.exit_code_by_key)
        for path, data in files.items()
        if not words or any(word in path for word in words)
    }


@dataclass
class Mutants:
    """A pytest plugin that runs every test once, and then those that reach a changed function, for each change.

    Args:
        files: the names of the changes by file.
        size: how many of each file are tried; `None` for all.
        budget: CPU seconds of the tests of one change; the tests that noticed others come first, then the quick ones.
        report: where a line is written for each change.
    """

    files: dict[str, list[str]]
    size: int | None
    budget: float
    report: TextIO
    failure: str = ""
    missed: list[str] = field(default_factory=list)
    sound: set[str] = field(default_factory=set)
    outcomes: dict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    items: dict[str, pytest.Item] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    reached: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    noticed: dict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the test that failed."""
        if report.failed:
            self.failure = report.nodeid

    def pytest_report_teststatus(self) -> tuple[str, str, str]:
        """Print nothing for a test: most of them fail, as they should."""
        return "", "", ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests as they are, and then with each change."""
        self.items = {item.nodeid: item for item in session.items}
        set_mutant_under_test("stats")
        for name in self.items:
            self.measure(name)
        gc.collect()
        gc.freeze()  # a fork shares what is not written to
        for path, names in self.files.items():
            for name in self.choose(path, names):
                self.try_change(path, name)
        return True

    def measure(self, name: str) -> None:
        """Note how long a test takes and which functions it reaches; one that fails is not used."""
        begun = time.process_time()
        self.run([name])
        self.seconds[name] = time.process_time() - begun
        for function in state()._stats:
            self.reached[function].add(name)
        state()._stats.clear()
        if self.failure:
            print(f"fails without a change: {self.failure}")
            del self.seconds[name]

    def run(self, names: list[str]) -> bool:
        """Run tests until one fails, and return whether one did."""
        self.failure = ""
        items = [self.items[name] for name in names]
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failure:
                return True
        return False

    def choose(self, path: str, names: list[str]) -> list[str]:
        """Return the changes of a file that are tried: all, or a sample that is the same each time."""
        if self.size is None or len(names) <= self.size:
            return names
        return random.Random(f"{SEED}{path}").sample(names, self.size)

    def try_change(self, path: str, name: str) -> None:
        """Try one change, and note what came of it."""
        function = mangled_name_from_mutant_name(name)
        tests = self.select(path, function)
        status, by = self.fork(name, tests) if tests else ("no tests", "")
        if by and not self.is_sound(by, tests):
            del self.seconds[by]
            self.try_change(path, name)
            return
        if by:
            self.noticed[function][by] += 1
            self.noticed[path][by] += 1
        elif status in MISSED:
            self.missed.append(name)
        self.outcomes[path][status] += 1
        row = {"change": name, "status": status, "by": by, "tests": len(tests)}
        self.report.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.report.flush()

    def is_sound(self, by: str, tests: list[str]) -> bool:
        """Whether a test that failed passes without the change, a second time in this process and behind these tests."""
        if by not in self.sound:
            status, _ = self.fork("", tests[: tests.index(by) + 1])
            if status != "survived":
                return False
            self.sound.add(by)
        return True

    def select(self, path: str, function: str) -> list[str]:
        """Return the tests that reach a function, the most promising first, as far as the budget goes."""
        here, near = self.noticed[function], self.noticed[path]
        known = [name for name in self.reached[function] if name in self.seconds]
        known.sort(
            key=lambda name: (-here[name], -near[name], self.seconds[name], name)
        )
        chosen, total = list[str](), 0.0
        for name in known:
            total += self.seconds[name]
            if chosen and total > self.budget:
                break
            chosen.append(name)
        return chosen

    def fork(self, name: str, tests: list[str]) -> tuple[str, str]:
        """Run tests with one change in a fork; return the outcome, and the test that failed."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            set_mutant_under_test(name)
            failed = self.run(tests)
            os.write(writer, self.failure.encode())
            os._exit(int(failed))
        os.close(writer)
        until = time.monotonic() + SECONDS + 10 * sum(map(self.seconds.get, tests))
        status = self.wait(child, until)
        with os.fdopen(reader) as pipe:
            return status, pipe.read()

    def wait(self, child: int, until: float) -> str:
        """Wait for a fork, and end it with the processes that it started once its time is over."""
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return {0: "survived", 1: "noticed"}.get(code, "ended the process")
            time.sleep(0.005)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "never ends"


def print_table(outcomes: dict[str, Counter[str]]) -> None:
    """Print for each file how many changes were tried, and how many a test noticed."""
    total = Counter[str]()
    for path, counts in outcomes.items():
        print_row(path, counts)
        total += counts
    print_row("all", total)


def print_row(name: str, counts: Counter[str]) -> None:
    """Print the numbers of one file, and what came of the changes that no test noticed."""
    tried = counts.total()
    missed = sum(counts[status] for status in MISSED)
    rest = {status: n for status, n in counts.items() if status != "noticed"}
    print(
        f"{tried - missed:5} of {tried:5} noticed, {1 - missed / tried:6.1%}  {name}  {rest or ''}"
    )


def main() -> int:
    """Try the changes of the files that were asked for, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "file",
        nargs="*",
        help="a part of the path of a file to change; without one, all of them",
    )
    parser.add_argument(
        "--sample",
        type=int,
        help="how many changes of each file are tried; by default all",
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        help="the files of tests; by default those of [tool.mutmut]",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=30.0,
        help="CPU seconds of the tests of one change",
    )
    asked = parser.parse_args()
    files = make_mutants(asked.file)
    settings = config()
    selection = asked.tests or settings.pytest_add_cli_args_test_selection
    os.chdir("mutants")
    sys.path[:0] = [os.path.abspath("src"), os.path.abspath("tests/support")]
    with Path("outcomes.jsonl").open("w") as report:
        plugin = Mutants(files, asked.sample, asked.budget, report)
        options = ["-q", "-s", "--tb=no", "--rootdir=.", *settings.pytest_add_cli_args]
        status = pytest.main([*options, *selection], plugins=[plugin])
    print(
        "\nNo test noticed these (`.venv/bin/mutmut show NAME` shows one):",
        *plugin.missed,
        sep="\n",
    )
    print_table(plugin.outcomes)
    return 0 if plugin.outcomes else int(status)


if __name__ == "__main__":
    sys.exit(main())
