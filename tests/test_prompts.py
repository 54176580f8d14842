"""Prompt templates and sets of them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import ConfigError
from loopwright.prompts import PromptSet, Template

PROMPTS = PromptSet(plan="Plan for {task} with {tools}.", judge='Is {answer} right? Reply {{"score": 1}}.')


def test_placeholders_are_filled_and_doubled_braces_become_braces() -> None:
    assert PROMPTS.fill("judge", answer=42) == 'Is 42 right? Reply {"score": 1}.'
    assert PROMPTS["plan"].fill(task="x", tools="y") == "Plan for x with y."
    assert Template("no placeholders").fill() == "no placeholders"


def test_a_value_that_looks_like_a_placeholder_stays_text() -> None:
    assert PROMPTS.fill("plan", task="{tools} {{", tools="{task}") == "Plan for {tools} {{ with {task}."


@given(st.text(), st.text())
def test_filling_never_reads_a_value(task: str, tools: str) -> None:
    assert PROMPTS.fill("plan", task=task, tools=tools) == f"Plan for {task} with {tools}."


def test_a_missing_or_unknown_placeholder_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\{tools\} is missing"):
        PROMPTS.fill("plan", task="x")
    with pytest.raises(ConfigError, match=r"no placeholder \{extra\}; it has task, tools"):
        PROMPTS.fill("plan", task="x", tools="y", extra="z")


@pytest.mark.parametrize("text", ["{", "}", "{task", "{0}", "{}", "{a.b}", "{a!r}", "{a:>3}", "{a b}"])
def test_a_brace_that_is_no_placeholder_is_refused_with_the_cure(text: str) -> None:
    with pytest.raises(ConfigError, match="brace"):
        Template(text)


def test_an_override_replaces_one_text_and_leaves_the_first_set_as_it_was() -> None:
    mine = PROMPTS.override(plan="{tools}: {task}")

    assert mine.texts == {"plan": "{tools}: {task}", "judge": PROMPTS.texts["judge"]}
    assert PROMPTS["plan"] == Template("Plan for {task} with {tools}.")
    assert mine != PROMPTS
    assert hash(mine) != hash(PROMPTS)
    assert PROMPTS.override() == PROMPTS


def test_an_override_with_an_unknown_name_or_other_placeholders_is_refused() -> None:
    with pytest.raises(ConfigError, match="no prompt 'plam'; prompts: judge, plan"):
        PROMPTS.override(plam="x")
    with pytest.raises(ConfigError, match=r"prompt 'plan': the placeholder \{tools\} is missing"):
        PROMPTS.override(plan="{task}")
    with pytest.raises(ConfigError, match=r"prompt 'plan': there is no placeholder \{tasks\}"):
        PROMPTS.override(plan="{task} {tools} {tasks}")


def test_prompts_are_read_from_the_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("Über {task}: {tools}\n", encoding="utf-8")
    (tmp_path / "notes.json").write_text("{}")

    assert PROMPTS.from_folder(tmp_path).texts["plan"] == "Über {task}: {tools}"


def test_a_folder_that_does_not_fit_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        PROMPTS.from_folder(tmp_path / "missing")
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(ConfigError, match="no prompt 'other'"):
        PROMPTS.from_folder(tmp_path)
    (tmp_path / "other.txt").unlink()
    (tmp_path / "plan.txt").write_bytes(b"\xff{task}{tools}")
    with pytest.raises(ConfigError, match="cannot be read"):
        PROMPTS.from_folder(tmp_path)


def test_a_set_is_a_mapping_of_templates() -> None:
    assert list(PROMPTS) == ["plan", "judge"]
    assert len(PROMPTS) == 2
    assert PROMPTS["plan"].names == {"task", "tools"}
    assert repr(PROMPTS) == "PromptSet(judge, plan)"
