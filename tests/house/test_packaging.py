"""The package as users get it: what wheel and sdist hold, and the wheel at work where only its own dependencies are."""

import ast
import functools
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from email.message import Message
from email.parser import Parser
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from density import parse
from loopwright._internal.version import __version__

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "loopwright"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "docs"}  # nothing in the package imports what these bring
CORE = {"pydantic", "httpx", "tenacity", "jsonschema", "structlog", "sniffio"}
WITHOUT: dict[
    str, str
] = {  # for each extra: what somebody writes who has not installed it
    "cli": "import loopwright.cli; loopwright.cli.main()",
    "local": "import sys; from loopwright.providers import LocalProvider; LocalProvider(sys.executable)",
    "otel": "from loopwright.observers import OpenTelemetryObserver; OpenTelemetryObserver()",
    "capabilities": "from loopwright.security.signed_permits import CapabilitySigner; CapabilitySigner(b'x' * 32)",
    "ag-ui": "import loopwright.console.ag_ui.service",
    "any-llm": "from loopwright.providers import AnyLLMProvider; AnyLLMProvider('cohere', 'm')",
    "bedrock": "from loopwright.providers import BedrockProvider; BedrockProvider('m', region='eu-west-1')",
    "cedar": "from loopwright.gates import CedarGate; CedarGate('permit(principal, action, resource);')",
    "console": "import loopwright.console.app",
    "keyring": "from loopwright.security import SecretStore; SecretStore({'a': 'keyring:s/u'}).get('a')",
    "mcp": "from loopwright.plugins import build_tools; build_tools('mcp:files=nothing')",
    "schedule": "from loopwright.schedules.cron import find_next; find_next('0 9 * * *', 'UTC', 0.0)",
    "encryption": "from loopwright.security import AESCodec; AESCodec({'k': b'x' * 32}, current='k')",
    "signatures": "from loopwright.security import Ed25519Signer; Ed25519Signer('k', b'x' * 32)",
    "toolboxes": "from loopwright.plugins import build_tools; build_tools('math')",
    "vectors": "from loopwright.knowledge.sqlite.vectors import load_numpy; load_numpy()",
    "yaml": "from loopwright.parsing.yaml_text import read_yaml; read_yaml('a: 1')",
}

pytestmark = pytest.mark.timeout(300)


def run(
    *command: str | Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program where nothing of this checkout is on the path."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON")
    }
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        timeout=240,
    )


def succeed(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program that must succeed; what it printed."""
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def build(project: Path, into: Path, target: str) -> Path:
    """Build a wheel or an sdist without a network and without isolation."""
    succeed(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        target,
        "-d",
        into,
        cwd=project,
    )
    (made,) = into.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, folder, "sdist")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


# --- what they hold ---


def metadata_of(wheel: Path) -> Message:
    (name,) = [name for name in contents(wheel) if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(contents(wheel)[name].decode())


def requirements(found: list[str] | None) -> Iterator[Requirement]:
    """Requirements that hold here without any extra."""
    for text in found or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def test_the_wheel_holds_the_package_its_types_and_its_license_and_nothing_else(
    wheel: Path,
) -> None:
    info = f"loopwright-{__version__}.dist-info/"
    held = set(contents(wheel))
    ours = {
        f"loopwright/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {name for name in held if not name.startswith(info)} == ours
    assert held - ours == {
        f"{info}{name}"
        for name in (
            "METADATA",
            "WHEEL",
            "RECORD",
            "entry_points.txt",
            "licenses/LICENSE",
        )
    }
    assert "loopwright/py.typed" in ours


def test_the_core_dependencies_are_exactly_six(wheel: Path) -> None:
    assert {
        requirement.name
        for requirement in requirements(metadata_of(wheel).get_all("Requires-Dist"))
    } == CORE


def test_the_metadata_tell_what_an_index_shows(wheel: Path) -> None:
    told = metadata_of(wheel)

    assert (told["Name"], told["Version"]) == ("loopwright", __version__)
    assert (told["License-Expression"], told["License-File"]) == (
        "Apache-2.0",
        "LICENSE",
    )
    assert told["Requires-Python"] == ">=3.11"
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert sorted(told.get_all("Provides-Extra") or []) == sorted(EXTRAS)


def test_the_sdist_holds_what_one_needs_to_work_on_it_and_no_rubbish(
    sdist: Path,
) -> None:
    held = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    wanted = {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Makefile",
        ".ci/install",
        ".importlinter",
    }

    assert wanted - held == set()
    for folder in ("src", "tests", "docs", "examples"):
        for path in (ROOT / folder).rglob("*.[pm][yd]"):
            assert str(path.relative_to(ROOT)) in held
    kept = {
        name
        for name in held
        if re.fullmatch(r"tests/journals/released/[^/]+\.db", name)
    }  # as releases wrote them
    rubbish = re.compile(r"__pycache__|\.(pyc|db|sqlite|egg-info|lock|inbox)\b")
    assert kept
    assert [name for name in held - kept if rubbish.search(name)] == []


def test_the_sdist_builds_the_same_wheel_again(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    again = build(sdist, tmp_path, "wheel")

    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


# --- extras ---


@functools.cache
def brought_by() -> dict[str, set[str]]:
    """The top-level modules of each installed distribution."""
    brought: defaultdict[str, set[str]] = defaultdict(set)
    for module, found in packages_distributions().items():
        for name in found:
            brought[canonicalize_name(name)].add(module)
    return brought


def modules_of(requirement: str) -> set[str]:
    """The top-level modules that a requirement brings."""
    name = canonicalize_name(Requirement(requirement).name)
    brought = brought_by().get(name, set())
    return {module for module in brought if not module.startswith("_")} or {
        name.replace("-", "_")
    }


@functools.cache
def imported_in() -> dict[str, set[str]]:
    """The files of the package that import a module, by import statement or by `import_module`."""
    files: defaultdict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(parse(path.read_text(encoding="utf-8"))):
            for module in _imported(node):
                files[module.partition(".")[0]].add(str(path.relative_to(PACKAGE)))
    return dict(files)


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [name.name for name in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case ast.Call(
            func=ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            return [module]
        case ast.Call(
            func=ast.Name(id="import_module"), args=[ast.Constant(value=str(module))]
        ):
            return [module]  # with a second argument it is one of our own
        case _:
            return []


def test_extras_are_named_in_lower_kebab_case() -> None:
    assert [
        name
        for name in EXTRAS
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name)
    ] == []


def test_what_an_extra_brings_is_used_in_exactly_one_file() -> None:
    files = imported_in()
    used = {
        (extra, requirement): sorted(
            {
                file
                for module in modules_of(requirement)
                for file in files.get(module, ())
            }
        )
        for extra, brought in EXTRAS.items()
        for requirement in brought
        if extra not in FOR_DEVELOPERS and Requirement(requirement).name != "loopwright"
    }

    assert used
    shared = {
        ("cli", "typer>=0.15")
    }  # `app` has the commands, `given` the options that several of them take
    assert {
        what: where
        for what, where in used.items()
        if len(where) != 1 and what not in shared
    } == {}


def test_nothing_is_imported_that_neither_the_core_nor_an_extra_brings() -> None:
    brought = [
        *PROJECT["dependencies"],
        *(r for extra in EXTRAS.keys() - FOR_DEVELOPERS for r in EXTRAS[extra]),
    ]
    declared = {module for requirement in brought for module in modules_of(requirement)}
    # pydantic's own reader and typing, and httpx's own wire: each comes with its front, which cannot do without it
    # mcp's own types and wire, and the cancellation that it is made of, come with it in the same way
    ours = {
        "loopwright",
        "pydantic_core",
        "typing_extensions",
        "httpcore",
        "h11",
        "mcp_types",
        "httpx2",
        "anyio",
    }

    assert imported_in().keys() - sys.stdlib_module_names - declared - ours == set()


def test_every_extra_is_tried_without(bare: Path) -> None:
    assert WITHOUT.keys() == EXTRAS.keys() - FOR_DEVELOPERS - {"all"}


@pytest.mark.parametrize("extra", sorted(WITHOUT.keys() & EXTRAS.keys()))
def test_what_is_used_without_its_extra_says_which_one_to_install(
    bare: Path, extra: str
) -> None:
    done = run(bare, "-c", WITHOUT[extra])

    assert done.returncode != 0
    assert f"pip install 'loopwright[{extra}]'" in done.stderr.splitlines()[-1]


# --- the wheel, where only its own dependencies are ---


def closure(names: Iterator[Requirement]) -> dict[str, Distribution]:
    """The installed distributions that these need, and what those need, extras left out."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name not in found:
            found[name] = distribution(name)
            waiting += requirements(found[name].requires)
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheel, its dependencies, and nothing else."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    site = Path(
        succeed(
            python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
        ).strip()
    )
    for needed in closure(
        requirements(metadata_of(wheel).get_all("Requires-Dist"))
    ).values():
        tops = {
            file.parts[0]
            for file in needed.files or []
            if file.parts[0] not in ("..", "__pycache__")
        }
        for top in tops:
            (site / top).symlink_to(Path(str(needed.locate_file(top))))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "--disable-pip-version-check",
    ]
    succeed(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
    return python


AGENT = """
import asyncio, json, sys, warnings
warnings.simplefilter("error")
import loopwright
from loopwright import Limits, ReActEngine, Runtime, available_engines, tool
from loopwright.journals import SQLiteJournal
from loopwright.providers import OpenAIProvider
from loopwright.testing import ScriptedProvider, call

@tool(effect="read")
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

journal = SQLiteJournal(sys.argv[1])
script = [call("add", a=1, b="two"), call("add", a=1, b=2), "3"]
runtime = Runtime(ScriptedProvider(script), tools=[add], journal=journal)
result = ReActEngine(runtime).run_sync("What is 1 + 2?", run_id="r")
unreachable = Runtime(OpenAIProvider("m", base_url="http://127.0.0.1:9/v1"), limits=Limits(max_provider_wait=0))
lost = ReActEngine(unreachable).run_sync("Go.")
print(json.dumps({
    "home": loopwright.__file__,
    "answer": result.answer,
    "verified": journal.verify("r", result.head_hash).ok,
    "again": runtime.resume_sync("r").answer,
    "engines": sorted(available_engines()),
    "lost": lost.status,
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


def test_the_wheel_works_with_nothing_but_its_own_dependencies(
    bare: Path, tmp_path: Path
) -> None:
    told = json.loads(succeed(bare, "-c", AGENT, tmp_path / "runs.db"))

    assert Path(told.pop("home")).is_relative_to(bare.parents[1])
    assert (
        set(told.pop("modules"))
        & {"typer", "rich", "opentelemetry", "xllamacpp", "pytest"}
        == set()
    )
    assert told == {
        "answer": "3",
        "verified": True,
        "again": "3",
        "engines": sorted(PROJECT["entry-points"]["loopwright.engines"]),
        "lost": "suspended",
    }  # fmt: skip


def test_its_dependencies_are_all_there_and_fit_together(bare: Path) -> None:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(bare),
        "--disable-pip-version-check",
    ]

    assert succeed(*pip, "check") == "No broken requirements found.\n"
    installed = {
        canonicalize_name(found["name"])
        for found in json.loads(succeed(*pip, "list", "--format", "json"))
    }
    assert (
        installed & {"typer", "rich", "xllamacpp", "opentelemetry-api", "pytest", "pip"}
        == set()
    )
    assert installed >= CORE | {"loopwright"}


def test_every_module_of_the_wheel_can_be_imported_or_names_its_extra(
    bare: Path, wheel: Path
) -> None:
    names = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in contents(wheel)
        if name.endswith(".py") and not name.endswith("__main__.py")
    )
    script = """
import importlib, json, sys
failed = {}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {error}"
print(json.dumps(failed))
"""
    failed = json.loads(succeed(bare, "-c", script, json.dumps(names)))
    optional = {
        "loopwright.cli",
        *(_module(file) for extra in WITHOUT for file in _files_of(extra)),
    }

    assert {
        n: e
        for n, e in failed.items()
        if "loopwright[" not in e and not n.startswith(tuple(optional))
    } == {}


def _files_of(extra: str) -> set[str]:
    return {
        file
        for brought in EXTRAS.get(extra, [])
        for m in modules_of(brought)
        for file in imported_in().get(m, ())
    }


def _module(file: str) -> str:
    return "loopwright." + file.removesuffix(".py").removesuffix("/__init__").replace(
        "/", "."
    )


# --- public names ---

PUBLIC = [
    "loopwright",
    *(
        f"loopwright.{name}"
        for name in ("journals", "observers", "providers", "testing")
    ),
]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_can_be_imported_and_says_what_it_is(module: str) -> None:
    if not (ROOT / "src" / module.replace(".", "/")).is_dir():
        pytest.skip(f"there is no {module}")
    package = importlib.import_module(module)
    values = {name: getattr(package, name) for name in package.__all__}

    in_order = sorted(
        set(package.__all__),
        key=lambda name: (not name.isupper(), name[0].islower(), name),
    )
    assert list(package.__all__) == in_order, "constants, classes, functions; each once"
    assert [
        name
        for name, value in values.items()
        if (inspect.isclass(value) or inspect.isroutine(value))
        and not inspect.getdoc(value)
    ] == []
    assert [
        f"{name}.{member}"
        for name, value in values.items()
        if inspect.isclass(value)
        for member, found in vars(value).items()
        if not member.startswith("_")
        and inspect.isroutine(found)
        and not inspect.getdoc(getattr(value, member))
    ] == []


# --- a user's project, checked against the installed wheel ---

Found = dict[str, str]  # "file:line" and what a checker says there


@pytest.fixture(scope="module")
def user_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project that is nowhere near this checkout."""
    return Path(
        shutil.copytree(
            ROOT / "tests" / "user_project",
            tmp_path_factory.mktemp("user") / "weather-desk",
        )
    )


def mypy(project: Path, python: Path) -> Found:
    mypy = [sys.executable, "-m", "mypy", "--output", "json", "--no-incremental"]
    done = run(*mypy, "--python-executable", python, ".", cwd=project)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        f"{r['file']}:{r['line']}": r["message"]
        for r in reports
        if r["severity"] == "error"
    }


def basedpyright(project: Path, python: Path) -> Found:
    done = run(
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        python,
        cwd=project,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    reports = json.loads(done.stdout)["generalDiagnostics"]
    return {
        f"{Path(r['file']).name}:{r['range']['start']['line'] + 1}": r["message"]
        for r in reports
    }


@pytest.fixture(scope="module")
def checked(user_project: Path, bare: Path) -> dict[str, Future[Found]]:
    """What each checker says, both asked at the same time."""
    with ThreadPoolExecutor() as threads:
        return {
            checker.__name__: threads.submit(checker, user_project, bare)
            for checker in (mypy, basedpyright)
        }


@pytest.mark.types
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_a_user_s_project_is_checked_by_the_types_of_the_wheel(
    checker: str, checked: dict[str, Future[Found]], user_project: Path
) -> None:
    found = checked[checker].result()
    lines = (user_project / "wrong.py").read_text(encoding="utf-8").splitlines()
    marked = {
        f"wrong.py:{number}"
        for number, line in enumerate(lines, start=1)
        if line.endswith("# error")
    }

    assert sorted(marked - found.keys()) == [], "let through"
    assert {at: found[at] for at in found.keys() - marked} == {}, "should be clean"


def test_a_user_s_project_runs_on_the_wheel(user_project: Path, bare: Path) -> None:
    script = """
from app import *
parts = Runtime(ScriptedProvider([call("temperature", city="Paris"), '{"city": "Paris", "celsius": 21.5}'] * 2),
                tools=[temperature], gate=gate)
deps = Deps("north", {"Paris": 21.5})
print(asyncio.run(ask(parts, deps)))
print(asyncio.run(watch(parts, deps)).tool_calls)
"""
    said = succeed(bare, "-c", script, cwd=user_project).splitlines()

    assert "city='Paris' celsius=21.5" in said
    assert said[-1] == "1"
