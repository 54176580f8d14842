"""`engines` and `plugins`: what is installed, from whom, and whether it works."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loopwright import plugins

from .using import Invoke

Install = Callable[..., None]


@pytest.fixture
def install(folder: Path) -> Install:
    """Installs another distribution for one test."""

    def install(name: str, entry_points: str, **files: str) -> None:
        place = folder.parent / "installed"
        metadata = place / f"{name.replace('-', '_')}-2.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n"
        )
        (metadata / "entry_points.txt").write_text(entry_points)
        for module, text in files.items():
            (place / f"{module}.py").write_text(text)
        plugins._find_installed.cache_clear()

    return install


def rows(output: str) -> dict[tuple[str, str, str], str]:
    """State by group, name and distribution."""
    heading, *lines = output.splitlines()
    places = [
        heading.index(word)
        for word in ("group", "name", "distribution", "version", "target", "state")
    ]
    cells = [
        [line[a:b].strip() for a, b in zip(places, [*places[1:], None], strict=True)]
        for line in lines
    ]
    return {(row[0], row[1], row[2]): row[5] for row in cells}


@pytest.fixture
def zoo(install: Install) -> None:
    """One of each kind of trouble."""
    install(
        "broken",
        "[loopwright.engines]\nbroken = broken_module:Engine\n",
        broken_module="1 / 0",
    )
    install(
        "first",
        "[loopwright.gates]\ncontested = first_module:Gate\n",
        first_module="class Gate: ...",
    )
    install(
        "second",
        "[loopwright.gates]\ncontested = second_module:Gate\n",
        second_module="1 / 0",
    )
    install(
        "cuckoo",
        "[loopwright.engines]\nreact = cuckoo_module:Engine\n",
        cuckoo_module="1 / 0",
    )
    install(
        "liar",
        "[loopwright.engines]\nliar = liar_module:Engine\n",
        liar_module="class Engine: ...",
    )


@pytest.mark.usefixtures("zoo")
def test_every_entry_point_is_listed_with_its_state(invoke: Invoke) -> None:
    done = invoke("plugins")

    assert done.exit_code == 0
    foreign = {
        key: state for key, state in rows(done.stdout).items() if key[2] != "loopwright"
    }
    assert foreign == {
        ("engines", "broken", "broken"): (
            "broken: plug-in 'broken' of broken 2.0 cannot be loaded from 'broken_module:Engine': "
            "ZeroDivisionError: division by zero"
        ),
        ("engines", "liar", "liar"): (
            "broken: plug-in 'liar' of liar: liar_module:Engine is not a subclass of LoopEngine"
        ),
        (
            "engines",
            "react",
            "cuckoo",
        ): "shadowing: loopwright has a built-in of that name; this one is ignored",
        ("providers", "scripted", "scripted-cli"): "ok",
        ("toolboxes", "box", "scripted-cli"): "ok",
        ("gates", "contested", "first"): "conflict: also claimed by second",
        ("gates", "contested", "second"): "conflict: also claimed by first",
    }
    ours = {
        key[1]: state
        for key, state in rows(done.stdout).items()
        if key[2] == "loopwright"
    }
    assert (
        ours.items()
        >= {
            "react": "ok",
            "tree-of-thoughts": "ok",
            "sqlite": "ok",
            "deny-all": "ok",
        }.items()
    )


def test_no_load_imports_nothing(
    invoke: Invoke, install: Install, tmp_path: Path
) -> None:
    mark = tmp_path / "imported"
    install(
        "loud",
        "[loopwright.engines]\nloud = loud_module:E\n",
        loud_module=f"open({str(mark)!r}, 'w').close()",
    )

    done = invoke("plugins", "--no-load")
    assert rows(done.stdout)["engines", "loud", "loud"] == "unchecked"
    assert not mark.exists()

    assert rows(invoke("plugins").stdout)["engines", "loud", "loud"].startswith(
        "broken: "
    )
    assert mark.exists()


def test_what_the_switch_turns_off_is_listed_as_such_and_not_imported(
    invoke: Invoke, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        "broken",
        "[loopwright.engines]\nbroken = broken_module:Engine\n",
        broken_module="1 / 0",
    )
    monkeypatch.setenv("LOOPWRIGHT_PLUGINS", "scripted-cli")

    listed = rows(invoke("plugins").stdout)

    assert (
        listed["engines", "broken", "broken"]
        == "off: LOOPWRIGHT_PLUGINS does not name broken"
    )
    assert listed["providers", "scripted", "scripted-cli"] == "ok"


@pytest.mark.usefixtures("zoo")
def test_a_broken_engine_does_not_stop_the_list(invoke: Invoke) -> None:
    done = invoke("engines")

    about = {
        line.split()[0]: line
        for line in done.stdout.splitlines()
        if "cuckoo" not in line
    }
    assert done.exit_code == 0
    assert about["react"].endswith(
        "Alternate thought, action and observation until the model answers."
    )
    assert "ZeroDivisionError: division by zero" in about["broken"]
    assert {
        "chain-of-thought",
        "critic",
        "plan-execute",
        "reflexion",
        "self-ask",
        "tree-of-thoughts",
    } <= about.keys()


def test_the_options_of_an_engine_are_shown_with_types_bounds_defaults_and_meanings(
    invoke: Invoke,
) -> None:
    told = invoke("engines", "tree-of-thoughts").stdout

    assert told.startswith("tree-of-thoughts\n\nPropose thoughts,")
    assert '\n  generate: "sample" | "propose", by default "sample"\n      ' in told
    assert "\n  beam_width: int, >= 1, by default 2\n      " in told
    assert (
        "\n  max_concurrency: int | None, >= 1, by default null\n" not in told
    )  # it is 8
    assert "\n  labels: Mapping[str, float] | None, by default null\n" in told
    assert "\n  prompts: PromptSet, by default its own texts: " in told
    assert "runtime" not in told


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("recat", "error: engines: there is no 'recat'; did you mean react?"),
        ("broken", "error: plug-in 'broken' of"),
    ],
)
def test_an_engine_that_cannot_be_had_is_2(
    invoke: Invoke, name: str, words: str
) -> None:
    done = invoke("engines", name)

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(words)
