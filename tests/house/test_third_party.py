"""A third-party package of five plug-ins: installed by pip, found by name, and tested by its own tests."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loopwright import (
    AllowAll,
    ConfigError,
    MemoryJournal,
    Runtime,
    available_engines,
    plugins,
)
from loopwright.journals import SQLiteJournal
from loopwright.plugins import (
    build_gate,
    build_journal,
    build_provider,
    build_tools,
    plugin,
)
from loopwright.providers import LocalProvider
from loopwright.testing import (
    ScriptedProvider,
)
from third_party_package import install_third_party

ROOT = Path(__file__).parents[2]
BUILD: dict[str, Callable[[str], Any]] = {
    "engines": lambda name: Runtime(ScriptedProvider([])).engine(name),
    "providers": build_provider,
    "toolboxes": build_tools,
    "gates": build_gate,
    "journals": build_journal,
}
OWN = {
    "engines": "tiny",
    "providers": "acme:green",
    "toolboxes": "desk",
    "gates": "thrifty:2",
    "journals": "jsonl:x",
}


def named(group: str, name: str) -> str:
    """A spec that names a plug-in of a group: journals want a place."""
    return f"{name}:x" if group == "journals" else name


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The package is installed as far as this test sees."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(install_third_party()))
    plugins._find_installed.cache_clear()
    yield
    plugins._find_installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith("acme_loops")]:
        del sys.modules[name]


Install = Callable[..., None]


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acme: None
) -> Iterator[Install]:
    """Installs one more distribution with one entry point, for one test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = set(sys.modules)

    def install(name: str, group: str, entry: str, module: str = "") -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-0.9.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n"
        )
        (folder / "entry_points.txt").write_text(f"[loopwright.{group}]\n{entry}\n")
        (tmp_path / f"{name.replace('-', '_')}_module.py").write_text(module)
        plugins._find_installed.cache_clear()

    yield install
    for name in set(sys.modules) - modules:
        if name.endswith("_module"):
            del sys.modules[name]


# --- the package ---


@pytest.mark.usefixtures("acme")
def test_each_of_its_plug_ins_is_found_by_name_with_its_distribution() -> None:
    found = {
        group: plugin(group, spec.partition(":")[0]) for group, spec in OWN.items()
    }

    assert {(p.distribution, p.version) for p in found.values()} == {
        ("acme-loops", "1.2.3")
    }
    assert {
        group: type(BUILD[group](spec)).__name__ for group, spec in OWN.items()
    } == {
        "engines": "TinyEngine",
        "providers": "ParrotProvider",
        "toolboxes": "list",
        "gates": "ThriftyGate",
        "journals": "JSONLinesJournal",
    }
    assert [tool.name for tool in build_tools("desk")] == ["shout", "shred"]


@pytest.mark.usefixtures("acme")
async def test_a_run_made_of_its_parts_alone_is_kept_and_found_again_by_name(
    tmp_path: Path,
) -> None:
    def runtime() -> Runtime:
        journal, gate = (
            build_journal(f"jsonl:{tmp_path / 'runs'}"),
            build_gate("thrifty:1"),
        )
        return Runtime(
            "acme:grey", tools=build_tools("desk"), journal=journal, gate=gate
        )

    result = await runtime().engine("tiny", max_iterations=4).run("Hello", run_id="r")
    again = runtime()

    assert (result.answer, result.status, result.tool_calls) == (
        "HELLO!, krah!",
        "completed",
        1,
    )
    assert again.journal.verify("r", result.head_hash).ok
    assert (await again.resume("r")).answer == result.answer


@pytest.mark.usefixtures("acme")
def test_a_bad_argument_is_explained_by_the_plug_in_or_with_its_name() -> None:
    with pytest.raises(
        ConfigError, match="model: acme has the parrots grey, green, mute, got 'blue'"
    ):
        Runtime("acme:blue")
    with pytest.raises(
        ConfigError,
        match=r"plug-in 'thrifty' of acme-loops 1\.2\.3 failed: ValueError: ",
    ):
        build_gate("thrifty:many")
    with pytest.raises(
        ConfigError,
        match=r"plug-in 'jsonl' of acme-loops .* it may want an argument, \"jsonl:\.\.\.\"",
    ):
        build_journal("jsonl")


# --- broken, duplicate and shadowing plug-ins, of each group ---


@pytest.mark.parametrize("group", BUILD)
@pytest.mark.parametrize(
    ("entry", "module", "words"),
    [
        (
            "broken = broken_part_module:Part",
            "import nowhere",
            "ModuleNotFoundError: No module named 'nowhere'",
        ),
        (
            "broken = broken_part_module:Part",
            "1 / 0",
            "ZeroDivisionError: division by zero",
        ),
        ("broken = broken_part_module:Part", "", "AttributeError: "),
        ("broken = no target", "", "cannot be loaded from 'no target'"),
    ],
)
async def test_a_broken_plug_in_is_named_and_affects_no_other(
    install: Install, group: str, entry: str, module: str, words: str
) -> None:
    install("broken-part", group, entry, module)

    with pytest.raises(ConfigError) as refused:
        BUILD[group](named(group, "broken"))
    assert str(refused.value).startswith(
        "plug-in 'broken' of broken-part 0.9 cannot be loaded from "
    )
    assert words in str(refused.value)
    assert [bool(BUILD[other](spec)) for other, spec in OWN.items()] == [True] * 5
    assert "broken" in plugins.plugins(group)
    assert (
        await Runtime(ScriptedProvider(["fine"])).engine("react").run("Go.")
    ).answer == "fine"


@pytest.mark.parametrize("group", [group for group in BUILD if group != "engines"])
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            "def Part(*_): raise RuntimeError('no desk')",
            "broken-part 0.9 failed: RuntimeError: no desk",
        ),
        ("Part = 7", "broken_part_module:Part cannot be called"),
        ("def Part(*_): return 7", "gave 7, "),
    ],
)
def test_a_plug_in_that_makes_nothing_usable_is_named(
    install: Install, group: str, module: str, words: str
) -> None:
    install("broken-part", group, "broken = broken_part_module:Part", module)

    with pytest.raises(ConfigError, match="broken") as refused:
        BUILD[group](named(group, "broken"))
    assert words in str(refused.value)
    assert BUILD[group](OWN[group]) is not None


@pytest.mark.parametrize("group", BUILD)
def test_two_distributions_that_claim_one_name_are_both_named(
    install: Install, group: str
) -> None:
    name = OWN[group].partition(":")[0]
    install("rival", group, f"{name} = rival_module:Part", "1 / 0")

    with pytest.raises(ConfigError) as refused:
        BUILD[group](OWN[group])
    words = str(refused.value)
    assert words.startswith(f"{group}: {name!r} is claimed by ")
    assert "acme-loops 1.2.3" in words
    assert "rival 0.9" in words
    assert [
        BUILD[other](spec) is not None for other, spec in OWN.items() if other != group
    ] == [True] * 4


@pytest.mark.parametrize("group", BUILD)
def test_one_of_two_claims_can_be_chosen(
    install: Install, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        "rival", group, f"{OWN[group].partition(':')[0]} = rival_module:Part", "1 / 0"
    )
    monkeypatch.setenv("LOOPWRIGHT_PLUGINS", "acme-loops")

    assert BUILD[group](OWN[group]) is not None


@pytest.mark.parametrize(
    ("group", "spec", "built_in"),
    [
        ("providers", "local", LocalProvider),
        ("gates", "allow-all", AllowAll),
        ("journals", "memory", MemoryJournal),
        ("journals", "sqlite:runs.db", SQLiteJournal),
    ],
)
def test_a_built_in_cannot_be_shadowed(
    install: Install, group: str, spec: str, built_in: type
) -> None:
    name = spec.partition(":")[0]
    install("cuckoo", group, f"{name} = cuckoo_module:Part", "1 / 0")

    assert plugin(group, name).distribution == "loopwright"
    assert plugin(group, name).load() is built_in


@pytest.mark.parametrize("group", BUILD)
@pytest.mark.usefixtures("acme")
def test_an_empty_switch_turns_it_off(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPWRIGHT_PLUGINS", "")

    assert {
        claim.distribution
        for claims in plugins.plugins(group).values()
        for claim in claims
    } <= {"loopwright"}
    with pytest.raises(
        ConfigError, match=f"{group}: there is no '{OWN[group].partition(':')[0]}'"
    ):
        plugin(group, OWN[group].partition(":")[0])
    assert "tiny" not in available_engines()
