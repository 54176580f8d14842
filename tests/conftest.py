"""What holds for the whole suite: no way out of this machine, no keys from outside, no clocks in property tests."""

import bisect
import gc
import ipaddress
import itertools
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

import fault_sizes
from sample_tools import RAN

# Nothing is timed, since a busy machine is no defect; several classes inherit one contract; CI repeats itself.
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.differing_executors,
    ],
    derandomize=bool(os.environ.get("CI")),
)
hypothesis.settings.load_profile("suite")

os.environ.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # else each process that a test starts compiles the package anew


for _variable in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
    # A proxy outside of this machine would be asked for what the servers of the tests are to answer.
    os.environ.pop(_variable, None)
    os.environ.pop(_variable.upper(), None)


TESTS = Path(__file__).parent
FAULTS = TESTS / "faults"
SLOW_FAULTS = (
    "simulation", "planted_faults", "kill_and_resume", "handoff_kills", "web_chat", "console_stream", "soak",
    "faketime", "third_party_contracts", "memory_kills", "secrets", "waiting_runs", "persons_day", "long_outage",
)  # fmt: skip
"""The files of fault tests that one process works on for 15 s to 6 minutes, the longest first."""


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each of several processes begin to collect at a place of its own, and end before it.

    On a fresh machine whoever is the first to import a file rewrites and compiles it, for 7 s of CPU in all; in one
    order all processes would come to each file at the same time, and each would do that.
    """
    report = yield
    process = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if collector.path == TESTS and report.result:
        found = sorted(report.result, key=lambda one: one.path)
        files = [len([*one.path.rglob("test_*.py")]) or 1 for one in found]
        share = sum(files) * int(process) // count
        first = bisect.bisect_left(list(itertools.accumulate(files)), share)
        report.result = found[first:] + found[:first]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fault tests, and have the slowest files begin first, so that no process is left alone with one.

    They are those of their folder, and the kills of each contract, which start processes for seconds. In the long size
    each test of a file that has such a size is one of them, also where it is short enough for `make test` otherwise.
    """
    for item in items:
        is_kill = "killed_at_any_barrier" in item.name
        is_long = fault_sizes.LONG and has_size(item)
        if is_kill or is_long or FAULTS in item.path.parents:
            item.add_marker(pytest.mark.faults)
    items.sort(key=lambda item: (find_place(item.path), item.path))


def has_size(item: pytest.Item) -> bool:
    """Return whether the file of a test says how much its tests do."""
    names = vars(item.module) if isinstance(item, pytest.Function) else {}
    return "sized" in names or "LONG" in names


def find_place(path: Path) -> int:
    """Return the place of a file of tests: that of a slow one, one behind all of them, or behind all fault tests."""
    if path.parent != FAULTS:
        return len(SLOW_FAULTS) + 1
    name = path.stem.removeprefix("test_")
    return SLOW_FAULTS.index(name) if name in SLOW_FAULTS else len(SLOW_FAULTS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile: what is collected stays, and passes over it while it grows are of no use."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays: without that each full collection goes through it, for a second of anybody's test.

    Young objects are looked through less often than by default, which took 8 % of the time of all tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)


def refuse_the_outside(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook that lets sockets connect to this machine only."""
    if event != "socket.connect":
        return
    address = arguments[1]
    if isinstance(address, tuple) and not is_this_machine(str(address[0])):
        raise RuntimeError(
            f"a test tried to connect to {address[0]}: use ScriptedProvider or a server on 127.0.0.1"
        )


def is_this_machine(host: str) -> bool:
    """Whether a host is the loopback interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


sys.addaudithook(refuse_the_outside)


@pytest.fixture(autouse=True)
def settings_of_this_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, addresses and switches of the shell that started the suite decide nothing."""
    for name in os.environ:
        if name.startswith("LOOPWRIGHT_") or name.endswith(
            ("_API_KEY", "_BASE_URL", "_PROXY", "_proxy")
        ):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_tool_ran() -> None:
    """The shared record of what ran starts empty."""
    RAN.clear()


@pytest.fixture(autouse=True)
def log_of_this_test_alone() -> Iterator[None]:
    """What a test captures of the log leaves structlog configured, and lines of later tests would go elsewhere."""
    yield
    structlog = sys.modules.get("structlog")
    if structlog is not None:
        structlog.reset_defaults()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests report about the code, such as where it is dense."""
    for outcome in ("passed", "failed", "xfailed", "xpassed"):
        for report in terminalreporter.getreports(outcome):
            for name, text in report.user_properties:
                if name == "report":
                    terminalreporter.write_line(str(text))
