"""Prompt templates and sets of them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import LoopEngine, MemoryJournal, ReplayDivergence, Run, Runtime
from loopwright.errors import ConfigError
from loopwright.events import RunStarted
from loopwright.prompts import PromptSet, Template
from loopwright.testing import ScriptedProvider, crashed

PROMPTS = PromptSet(
    plan="Plan for {task} with {tools}.",
    judge='Is {answer} right? Reply {{"score": 1}}.',
)


def test_placeholders_are_filled_and_doubled_braces_become_braces() -> None:
    assert PROMPTS.fill("judge", answer=42) == 'Is 42 right? Reply {"score": 1}.'
    assert PROMPTS["plan"].fill(task="x", tools="y") == "Plan for x with y."
    assert Template("no placeholders").fill() == "no placeholders"


def test_a_value_that_looks_like_a_placeholder_stays_text() -> None:
    assert (
        PROMPTS.fill("plan", task="{tools} {{", tools="{task}")
        == "Plan for {tools} {{ with {task}."
    )


@given(st.text(), st.text())
def test_filling_never_reads_a_value(task: str, tools: str) -> None:
    assert (
        PROMPTS.fill("plan", task=task, tools=tools) == f"Plan for {task} with {tools}."
    )


def test_a_missing_or_unknown_placeholder_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\{tools\} is missing"):
        PROMPTS.fill("plan", task="x")
    with pytest.raises(
        ConfigError, match=r"no placeholder \{extra\}; it has task, tools"
    ):
        PROMPTS.fill("plan", task="x", tools="y", extra="z")


@pytest.mark.parametrize(
    "text",
    ["{", "}", "{task", "{0}", "{}", "{a.b}", "{a!r}", "{a:>3}", "{a:f}", "{a b}"],
)
def test_a_brace_that_is_not_a_placeholder_is_refused_with_the_remedy(
    text: str,
) -> None:
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
    with pytest.raises(
        ConfigError, match=r"prompt 'plan': the placeholder \{tools\} is missing"
    ):
        PROMPTS.override(plan="{task}")
    with pytest.raises(
        ConfigError, match=r"prompt 'plan': there is no placeholder \{tasks\}"
    ):
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


def test_templates_of_the_same_text_are_the_same_and_show_it() -> None:
    assert {Template("Say {it}."), Template("Say {it}."), Template("Do {it}.")} == {
        Template("Say {it}."),
        Template("Do {it}."),
    }
    assert repr(Template("Say {it}.")) == "Template('Say {it}.')"


# --- as an option of an engine ---


class Asking(LoopEngine):
    """Asks two prompts."""

    name = "asking"
    prompts: PromptSet = PromptSet(first="First {task}.", second="Then {said}: {task}.")

    async def solve(self, run: Run) -> str:
        said = await run.ask(self.prompts.fill("first", task=run.task))
        return await run.ask(self.prompts.fill("second", said=said, task=run.task))


class Outer(LoopEngine):
    """Hands its task to another engine."""

    name = "outer"
    inner: LoopEngine
    prompts: PromptSet = PromptSet(task="Do {task}")

    async def solve(self, run: Run) -> str:
        return (
            await run.delegate(self.inner, self.prompts.fill("task", task=run.task))
        ).answer or ""


class Shelf(Runtime):
    """A runtime that knows the engines above by name, as if a distribution had brought them."""

    def engine(self, name: str, **options: Any) -> LoopEngine:
        return {"asking": Asking, "outer": Outer}[name](self, **options)


def runtime(journal: MemoryJournal | None = None) -> Runtime:
    return Shelf(
        ScriptedProvider(lambda request: f"<{request.conversation.task}>"),
        journal=journal,
    )


async def test_prompts_that_are_given_replace_those_and_leave_the_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "second.md").write_text("{said} | {task}\n")

    for mine in (
        PromptSet(second="{said} | {task}"),
        {"second": "{said} | {task}"},
        tmp_path,
        str(tmp_path),
    ):
        engine = Asking(runtime(), prompts=mine)  # type: ignore[arg-type] - what is not a set is made one
        result = await engine.run("x", run_id="r")
        started = engine.runtime.journal.read("r")[0].event
        assert result.answer == "<<First x.> | x>"
        assert engine.prompts.texts == {
            "first": "First {task}.",
            "second": "{said} | {task}",
        }
        assert isinstance(started, RunStarted)
        assert (started.options, started.opaque) == (
            {"prompts": {"second": "{said} | {task}"}},
            (),
        )


def test_a_whole_set_may_be_given_too() -> None:
    mine = Asking.prompts.override(first="{task}?")
    engine = Asking(runtime(), prompts=mine)

    assert engine.prompts == mine
    assert engine.recorded_options() == ({"prompts": {"first": "{task}?"}}, ())
    assert Asking(runtime()).prompts is Asking.prompts
    assert Asking(runtime(), prompts=Asking.prompts).recorded_options() == (
        {"prompts": {}},
        (),
    )
    assert Asking(runtime(), prompts=PromptSet()).prompts == Asking.prompts


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"third": "x"}, "there is no prompt 'third'; prompts: first, second"),
        ({"first": "no task"}, r"prompt 'first': the placeholder \{task\} is missing"),
        (
            PromptSet(first="{task} {more}"),
            r"prompt 'first': there is no placeholder \{more\}; it has task",
        ),
        ({"first": "{task"}, "a prompt has a single brace"),
        ({"first": 3}, "prompts: .*must be a PromptSet, texts by name, or a directory"),
        (3, "prompts: .*must be a PromptSet, texts by name, or a directory"),
        (None, "prompts: .*must be a PromptSet, texts by name, or a directory"),
        ("/no/such/folder", "prompts of '/no/such/folder' cannot be read"),
    ],
)
def test_prompts_that_do_not_fit_are_a_config_error_that_names_them(
    given: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Asking(runtime(), prompts=given)


async def test_a_run_is_resumed_with_the_prompts_that_it_was_started_with() -> None:
    first = runtime()
    whole = await Asking(first, prompts={"second": "{said} | {task}"}).run(
        "x", run_id="r"
    )  # type: ignore[arg-type]
    entries = first.journal.read("r")

    for keep in range(1, len(entries) + 1):
        result = await runtime(crashed(entries, keep)).resume("r")
        assert (result.answer, result.status) == (whole.answer, "completed")


async def test_prompts_of_a_nested_engine_are_recorded_and_rebuilt_too() -> None:
    first = runtime()
    inner = Asking(first, prompts=PromptSet(second="{said} | {task}"))
    whole = await Outer(
        first, inner=inner, prompts=PromptSet(task="Please {task}")
    ).run("x", run_id="r")
    entries = first.journal.read("r")
    started = entries[0].event
    result = await runtime(crashed(entries, 3)).resume("r")

    assert isinstance(started, RunStarted)
    assert started.options == {
        "inner": {
            "engine": "asking",
            "options": {"prompts": {"second": "{said} | {task}"}},
        },
        "prompts": {"task": "Please {task}"},
    }
    assert result.answer == whole.answer == "<<First Please x.> | Please x>"


async def test_another_prompt_than_the_run_was_started_with_is_divergence() -> None:
    first = runtime()
    await Asking(first).run("x", run_id="r")
    entries = first.journal.read("r")
    engine = Asking(
        runtime(crashed(entries, len(entries) - 1)),
        prompts=PromptSet(first="1. {task}"),
    )
    with pytest.raises(ReplayDivergence, match="prompts"):
        await engine.resume("r")


async def test_an_engine_s_own_check_comes_after_its_prompts_are_complete() -> None:
    class Checking(Asking):
        name = "checking"

        def __post_init__(self) -> None:
            super().__post_init__()
            if "task" not in self.prompts["second"].names:
                raise ConfigError("prompts: second")

    assert Checking(runtime(), prompts=PromptSet(first="{task}")).prompts[
        "second"
    ].names == {"said", "task"}


def test_a_placeholder_with_a_label_is_a_line_only_where_there_is_a_value() -> None:
    template = Template("{notes:Notes}{known:What is known}{plan:-}Do {task}.")

    assert template.names == {"notes", "known", "plan", "task"}
    assert template.fill(notes="a: b", known="none", plan="p", task="{x}") == "Notes: a: b\nDo {x}."  # fmt: skip
    assert template.fill(notes=" ", known="it", plan="", task="") == "What is known: it\nDo ."  # fmt: skip
    for wrong in ("{notes:>10}", "{notes: }", "{notes!r}", "{notes:a-b}"):
        with pytest.raises(ConfigError, match="a name with a label"):
            Template(wrong)
