"""Plug-ins: listed without being imported, named when they are broken, and unable to take a built-in's place."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopwright import ConfigError, ReActEngine, Runtime, available_engines, plugins
from loopwright.plugins import load_engine_class, plugin
from loopwright.testing import ScriptedProvider

Install = Callable[..., None]
BUILT_IN = {"react", "chain-of-thought"}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution that lasts for one test: its metadata, its entry points, its modules."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = set(sys.modules)

    def install(
        name: str,
        entry_points: str,
        *,
        version: str = "1.0",
        metadata: bool = True,
        **files: str,
    ) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        if metadata:
            (folder / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
        (folder / "entry_points.txt").write_text(entry_points)
        for module, text in files.items():
            (tmp_path / f"{module}.py").write_text(text)
        plugins._find_installed.cache_clear()

    yield install
    plugins._find_installed.cache_clear()
    for module in set(sys.modules) - modules:
        if getattr(sys.modules[module], "__file__", None) and str(tmp_path) in str(
            sys.modules[module].__file__
        ):
            del sys.modules[module]


ECHO = '''
from loopwright import LoopEngine, Run

class EchoEngine(LoopEngine):
    """Says the task."""

    name = "echo"
    times: int = 1

    async def solve(self, run: Run) -> str:
        """Say it."""
        return " ".join([run.task] * self.times)
'''
ECHO_ENTRY = "[loopwright.engines]\necho = echo_module:EchoEngine\n"


def refusal(group: str, name: str) -> str:
    with pytest.raises(ConfigError) as refused:
        plugin(group, name).load()
    return str(refused.value)


async def test_a_third_party_engine_is_found_and_runs_like_a_built_in(
    install: Install,
) -> None:
    install("echo-engine", ECHO_ENTRY, version="2.3", echo_module=ECHO)

    found = available_engines()["echo"]
    result = await Runtime(ScriptedProvider([])).engine("echo", times=2).run("Hello.")

    assert (found.distribution, found.version, found.target) == (
        "echo-engine",
        "2.3",
        "echo_module:EchoEngine",
    )
    assert (result.status, result.answer) == ("completed", "Hello. Hello.")


async def test_a_run_of_a_third_party_engine_is_resumed_by_name(
    install: Install,
) -> None:
    install("echo-engine", ECHO_ENTRY, echo_module=ECHO)
    runtime = Runtime(ScriptedProvider([]))
    first = await runtime.engine("echo", times=3).run("Ho.", run_id="r1")

    assert (await runtime.resume("r1")).answer == first.answer == "Ho. Ho. Ho."


def test_the_built_in_engines_are_found_by_the_same_entry_points() -> None:
    assert available_engines().keys() >= BUILT_IN
    assert {
        found.distribution
        for name, found in available_engines().items()
        if name in BUILT_IN
    } == {"loopwright"}
    assert load_engine_class("react") is ReActEngine


@pytest.mark.parametrize("group", ["engines", "providers", "gates", "journals"])
def test_every_entry_point_of_our_own_can_be_loaded(group: str) -> None:
    for name, claims in plugins.plugins(group).items():
        for claim in claims:
            if claim.distribution == "loopwright":
                assert claim.load() is not None, name


def test_listing_imports_no_plug_in(install: Install, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    install(
        "loud-engine",
        "[loopwright.engines]\nloud = loud_module:Engine\n[loopwright.journals]\nloud = loud_module:Journal\n",
        loud_module=f"open({str(mark)!r}, 'w').close()\n",
    )
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from loopwright import available_engines
from loopwright.plugins import GROUPS, plugins
print("loud" in available_engines(), "loud" in plugins("journals"), len(GROUPS))
print([m for m in ("loud_module", "loopwright.engines.react", "loopwright.providers.openai.provider",
                    "sqlite3", "httpx")
       if m in sys.modules])
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert said.stdout.splitlines() == ["True True 9", "[]"]
    assert not mark.exists()


@pytest.mark.parametrize(
    ("entry", "module", "words"),
    [
        (
            "broken = broken_module:Engine",
            "import nowhere_to_be_found",
            "ModuleNotFoundError: No module named 'nowhere",
        ),
        (
            "broken = broken_module:Engine",
            "1 / 0",
            "ZeroDivisionError: division by zero",
        ),
        ("broken = broken_module:Engine", "import sys; sys.exit(3)", "SystemExit: 3"),
        ("broken = broken_module:Engine", "def (", "SyntaxError: "),
        ("broken = broken_module:Engine", "", "AttributeError: "),
        (
            "broken = not a target at all",
            "",
            "cannot be loaded from 'not a target at all'",
        ),
    ],
)
async def test_a_broken_plug_in_is_named_and_affects_no_other(
    install: Install, entry: str, module: str, words: str
) -> None:
    install(
        "broken-engine",
        f"[loopwright.engines]\n{entry}\n",
        version="0.9",
        broken_module=module,
    )

    refused = refusal("engines", "broken")
    assert refused.startswith(
        "plug-in 'broken' of broken-engine 0.9 cannot be loaded from "
    )
    assert words in refused
    assert available_engines().keys() >= BUILT_IN | {"broken"}
    assert (
        await Runtime(ScriptedProvider(["fine"])).engine("react").run("Go.")
    ).answer == "fine"


@pytest.mark.parametrize(
    "entry_points",
    ["]]] no such form [[[\n= =\n", "[loopwright.engines\nx\n", "\x00\x01"],
)
def test_entry_points_that_cannot_be_read_affect_no_other(
    install: Install, entry_points: str
) -> None:
    install("rubbish", entry_points)

    assert available_engines().keys() >= BUILT_IN


def test_a_distribution_without_metadata_affects_no_other(install: Install) -> None:
    install(
        "nameless",
        "[loopwright.engines]\nnameless = nameless_module:Engine\n",
        metadata=False,
    )

    assert available_engines().keys() >= BUILT_IN
    assert "plug-in 'nameless' of a distribution without a name" in refusal(
        "engines", "nameless"
    )


def test_two_distributions_that_claim_one_name_are_both_named(install: Install) -> None:
    install("echo-engine", ECHO_ENTRY, version="1.0", echo_module=ECHO)
    install(
        "other-echo",
        "[loopwright.engines]\necho = other_module:Engine\n",
        version="7",
        other_module="",
    )

    with pytest.raises(ConfigError) as refused:
        load_engine_class("echo")

    words = str(refused.value)
    assert words.startswith("engines: 'echo' is claimed by ")
    assert "echo-engine 1.0" in words
    assert "other-echo 7" in words
    assert "echo" not in available_engines()
    assert load_engine_class("react") is ReActEngine


def test_one_of_two_claims_can_be_chosen(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("echo-engine", ECHO_ENTRY, echo_module=ECHO)
    install(
        "other-echo",
        "[loopwright.engines]\necho = other_module:Engine\n",
        other_module="",
    )
    monkeypatch.setenv("LOOPWRIGHT_PLUGINS", "something-else, echo-engine")

    assert load_engine_class("echo").__name__ == "EchoEngine"


def test_a_built_in_cannot_be_shadowed(install: Install) -> None:
    install(
        "cuckoo",
        "[loopwright.engines]\nreact = cuckoo_module:Engine\n",
        cuckoo_module="1 / 0",
    )

    assert available_engines()["react"].distribution == "loopwright"
    assert load_engine_class("react") is ReActEngine


def test_an_empty_switch_turns_all_third_party_plug_ins_off(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("echo-engine", ECHO_ENTRY, echo_module=ECHO)
    monkeypatch.setenv("LOOPWRIGHT_PLUGINS", "")

    assert "echo" not in available_engines()
    assert {found.distribution for found in available_engines().values()} == {
        "loopwright"
    }
    assert "there is no 'echo'" in refusal("engines", "echo")


def test_a_switch_lets_only_the_named_distributions_in(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("echo-engine", ECHO_ENTRY, echo_module=ECHO)
    install(
        "other-engine",
        "[loopwright.engines]\nother = other_module:Engine\n",
        other_module="",
    )
    monkeypatch.setenv("LOOPWRIGHT_PLUGINS", "echo-engine")

    assert {"echo", "react"} <= available_engines().keys()
    assert "other" not in available_engines()


def test_a_plug_in_that_is_not_an_engine_is_refused(install: Install) -> None:
    install(
        "liar",
        "[loopwright.engines]\nliar = liar_module:Engine\n",
        liar_module="class Engine: ...\n",
    )

    with pytest.raises(
        ConfigError,
        match="plug-in 'liar' of liar: liar_module:Engine is not a subclass of LoopEngine",
    ):
        load_engine_class("liar")


def test_an_engine_under_another_name_than_its_own_is_refused(install: Install) -> None:
    install(
        "renamed",
        "[loopwright.engines]\nparrot = echo_module:EchoEngine\n",
        echo_module=ECHO,
    )

    with pytest.raises(
        ConfigError, match="plug-in 'parrot' of renamed: its class calls itself 'echo'"
    ):
        load_engine_class("parrot")


def test_an_unknown_name_is_answered_with_near_ones(install: Install) -> None:
    install("echo-engine", ECHO_ENTRY, echo_module=ECHO)

    assert refusal("engines", "ecco").startswith(
        "engines: there is no 'ecco'; did you mean echo?"
    )
    listed = (
        "clock, filesystem, manifest, math, mcp, memory, search, shell, skills, web"
    )
    assert (
        refusal("toolboxes", "anything")
        == f"toolboxes: there is no 'anything'. Installed: {listed}"
    )


def test_groups_do_not_mix(install: Install) -> None:
    install("echo-engine", ECHO_ENTRY, echo_module=ECHO)
    install(
        "foreign",
        "[someone.engines]\nforeign = m:E\n[loopwright.unknown]\nstrange = m:E\n",
    )

    assert "echo" not in plugins.plugins("gates")
    assert not {"foreign", "strange"} & {
        name for group in plugins.GROUPS for name in plugins.plugins(group)
    }


def test_a_survey_tells_the_state_of_every_entry_point(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("echo-engine", ECHO_ENTRY, echo_module=ECHO)
    install(
        "broken-engine",
        "[loopwright.engines]\nbroken = broken_module:Engine\n",
        broken_module="1 / 0",
    )
    install(
        "cuckoo",
        "[loopwright.engines]\nreact = cuckoo_module:Engine\n",
        cuckoo_module="1 / 0",
    )
    install(
        "one", "[loopwright.gates]\ncontested = one_module:Gate\n", one_module="1 / 0"
    )
    install(
        "two", "[loopwright.gates]\ncontested = two_module:Gate\n", two_module="1 / 0"
    )
    install(
        "unwanted",
        "[loopwright.gates]\nunwanted = unwanted_module:Gate\n",
        unwanted_module="1 / 0",
    )
    monkeypatch.setenv(
        "LOOPWRIGHT_PLUGINS", "echo-engine, broken-engine, cuckoo, one, two"
    )

    def foreign(*, load: bool) -> dict[tuple[str, str], str]:
        found = plugins.list_states(load=load)
        return {
            (s.plugin.name, s.plugin.distribution): s.state
            for s in found
            if s.plugin.distribution != "loopwright"
        }

    assert (
        foreign(load=True).items()
        >= {
            ("echo", "echo-engine"): "ok",
            ("broken", "broken-engine"): "broken",
            ("react", "cuckoo"): "shadowing",
            ("contested", "one"): "conflict",
            ("contested", "two"): "conflict",
            ("unwanted", "unwanted"): "off",
        }.items()
    )
    assert foreign(load=False)["broken", "broken-engine"] == "unchecked"
    assert [
        s.state for s in plugins.list_states() if s.plugin.distribution == "loopwright"
    ].count("ok") >= 7


def test_a_distribution_that_cannot_be_read_affects_no_other(
    tmp_path: Path, install: Install
) -> None:
    install("fine", ECHO_ENTRY, echo_module=ECHO)
    install("garbled", "[loopwright.engines]\nno equals sign\n")
    latin = tmp_path / "latin-1.0.dist-info"
    latin.mkdir()
    (latin / "METADATA").write_bytes(
        b"Metadata-Version: 2.1\nName: latin\nVersion: 1.0\nSummary: caf\xe9\n"
    )
    (latin / "entry_points.txt").write_bytes(b"[loopwright.engines]\ncaf\xe9 = x:Y\n")

    assert "echo" in available_engines()


@pytest.mark.parametrize(
    "headers",
    [
        "Name: headed",
        "NAME:headed",
        "Summary: a\n Name: b\nName: headed",
    ],
)
def test_a_distribution_has_the_name_of_its_headers_alone(
    tmp_path: Path, install: Install, headers: str
) -> None:
    install("headed", ECHO_ENTRY, echo_module=ECHO)
    (tmp_path / "headed-1.0.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\n{headers}\nVersion: 1.0\n\nName: of the text\n"
    )
    plugins._find_installed.cache_clear()

    assert plugins.plugin("engines", "echo").distribution == "headed"


def test_of_two_copies_of_a_distribution_the_first_on_the_path_counts(
    tmp_path: Path, install: Install
) -> None:
    install("twice", ECHO_ENTRY, version="2.0", echo_module=ECHO)
    behind = tmp_path / "behind"
    (behind / "Twice-1.0.dist-info").mkdir(parents=True)
    (behind / "Twice-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Twice\nVersion: 1.0\n"
    )
    (behind / "Twice-1.0.dist-info" / "entry_points.txt").write_text(
        "[loopwright.engines]\ngone = echo_module:Old\n"
    )
    sys.path.append(str(behind))
    plugins._find_installed.cache_clear()
    try:
        assert {"gone", "echo"} & set(available_engines()) == {"echo"}
    finally:
        sys.path.remove(str(behind))


def test_names_of_distributions_are_compared_as_pip_does(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme_under", ECHO_ENTRY, echo_module=ECHO)
    monkeypatch.setenv("LOOPWRIGHT_PLUGINS", "Acme-Under")

    assert "echo" in available_engines()


def test_an_entry_point_may_name_extras(install: Install) -> None:
    install(
        "extra",
        "[loopwright.engines]\necho = echo_module:EchoEngine [fast]\n",
        echo_module=ECHO,
    )

    assert load_engine_class("echo").name == "echo"
