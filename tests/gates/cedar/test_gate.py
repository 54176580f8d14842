"""CedarGate: what policies see, whom they ask, how they are loaded and replaced."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog

from loopwright import (
    Action,
    Allow,
    Ask,
    ConfigError,
    Deny,
    PolicyGate,
    PolicyState,
    ReActEngine,
    Runtime,
    Suspend,
    tool,
)
from loopwright.events import GateDecided
from loopwright.gates import RESPOND, CedarGate
from loopwright.plugins import build_gate
from loopwright.testing import GateContract, ScriptedProvider, call

STATE = PolicyState(
    "run-1", "3#0", "react", 2, 3, 4, "sensitive", True, 1_700_000_000.25
)
PERMIT = "permit(principal, action, resource);"


@tool(effect="read")
def search(
    query: str,
    limit: int = 10,
    tags: list[str] = [],  # noqa: B006
    where: Literal["web", "disk"] = "web",
) -> str:
    """Search."""
    return f"{query} {limit} {tags} {where}"


@tool(effect="destructive")
def erase(path: str) -> str:
    """Erase."""
    return f"{path} erased"


TOOLS = (search, erase)


def decided(policies: str, action: Action, state: PolicyState = STATE) -> object:
    return CedarGate(policies, tools=TOOLS).decide(action, state)


def holds(condition: str, action: Action, state: PolicyState = STATE) -> bool:
    """Whether a condition is true of an action."""
    return (
        decided(
            f'permit(principal, action == Action::"{action.tool}", resource) when {{ {condition} }};',
            action,
            state,
        )
        == Allow()
    )


# --- what policies see ---

SEARCH = Action(
    "search",
    {"query": "sky", "tags": ["a", "b"]},
    "c1",
    "read",
    frozenset({"untrusted"}),
)


@pytest.mark.parametrize(
    "condition",
    [
        'principal == Agent::"react"',
        'resource == Tool::"search"',
        'context.tool == "search" && context.tool like "sea*"',
        'context.effect == "read"',
        'context.run_id == "run-1"',
        "context.iteration == 2 && context.llm_calls == 3 && context.tool_calls == 4",
        "context.label == 2",
        'context.labels == ["sensitive", "untrusted"]',
        'context.at == datetime("2023-11-14T22:13:20.250Z")',
        'context.at.toTime() > duration("22h")',
        'context.arguments.query == "sky"',
        "context.arguments.limit == 10",
        'context.arguments.tags == ["b", "a"]',
        'context.arguments.where == "web"',
        "context.several.isEmpty()",
    ],
)
def test_a_condition_about_the_action_and_the_run_holds(condition: str) -> None:
    assert holds(condition, SEARCH)
    assert not holds(f"!({condition})", SEARCH)


@pytest.mark.parametrize(
    ("label", "number"), [("public", 0), ("normal", 1), ("sensitive", 2), ("secret", 3)]
)
def test_labels_are_numbers_in_order_so_that_they_can_be_compared(
    label: Any, number: int
) -> None:
    assert holds(
        f"context.label == {number}",
        SEARCH,
        PolicyState("r", "0", "react", 1, 1, 0, label),
    )
    by_action = Action("search", {"query": "x"}, labels=frozenset({label}))
    assert holds(
        f"context.label >= {number}",
        by_action,
        PolicyState("r", "0", "react", 1, 1, 0, "public"),
    )


@pytest.mark.parametrize(
    ("action", "scope"),
    [
        (Action("search", {"query": "x"}), 'action == Action::"search"'),
        (Action("search", {"query": "x"}), 'action in Action::"call"'),
        (Action("unknown", {"x": 1}), 'action == Action::"call"'),
        (Action("approve_plan", {"plan": []}), 'action == Action::"call"'),
        (
            Action("erase:undo", {"path": "/x"}),
            'action == Action::"undo", resource == Tool::"erase"',
        ),
        (
            Action("delegate", {"engine": "critic", "task": "x"}),
            'action == Action::"delegate"',
        ),
        (
            Action(
                RESPOND, {"answer": "x", "status": "completed", "stop_reason": None}
            ),
            'action == Action::"respond"',
        ),
    ],
)
def test_every_kind_of_action_has_its_name(action: Action, scope: str) -> None:
    rest = "" if "resource" in scope else ", resource"

    assert decided(f"permit(principal, {scope}{rest});", action) == Allow()
    assert isinstance(
        decided(f"{PERMIT} forbid(principal, {scope}{rest});", action), Deny
    )


def test_own_actions_have_typed_arguments_too() -> None:
    only_critic = 'permit(principal, action == Action::"delegate", resource) when { context.arguments.engine == "critic" };'

    assert (
        decided(only_critic, Action("delegate", {"engine": "critic", "task": "x"}))
        == Allow()
    )
    assert isinstance(
        decided(only_critic, Action("delegate", {"engine": "react", "task": "x"})), Deny
    )


@pytest.mark.parametrize(
    ("answer", "status"),
    [("The sky is blue.", "completed"), ("The password is x.", "failed")],
)
async def test_an_answer_is_let_out_by_policy_where_the_gate_wants_to_see_it(
    answer: str, status: str
) -> None:
    policies = """permit(principal, action == Action::"respond", resource)
    when { context.arguments has answer && !(context.arguments.answer like "*password*") };"""
    gate = CedarGate(policies, answers=True)

    result = await ReActEngine(Runtime(ScriptedProvider([answer]), gate=gate)).run(
        "Tell."
    )
    unasked = await ReActEngine(
        Runtime(ScriptedProvider([answer]), gate=CedarGate(policies))
    ).run("Tell.")

    assert (result.status, result.answer) == (
        status,
        answer if status == "completed" else None,
    )
    assert (unasked.status, unasked.answer) == ("completed", answer)


def test_one_policy_may_speak_of_the_arguments_of_all_tools_that_have_them() -> None:
    hidden = f"""{PERMIT}
    forbid(principal, action, resource) when {{
        context has arguments && context.arguments has path && context.arguments.path like "/etc/*"
    }};"""

    assert decided(hidden, Action("erase", {"path": "/tmp/x"})) == Allow()
    assert isinstance(decided(hidden, Action("erase", {"path": "/etc/x"})), Deny)
    assert decided(hidden, SEARCH) == Allow()


def test_the_schema_can_be_read_and_names_the_arguments() -> None:
    schema = CedarGate(PERMIT, tools=TOOLS).schema

    assert 'action "erase" in [Action::"call"] appliesTo' in schema
    assert "query: __cedar::String" in schema


# --- what it says ---

REASONS = """
permit(principal, action, resource);
@reason("what came from outside may not lead to a change")
forbid(principal, action, resource) when { context.labels.contains("untrusted") && context.effect != "read" };
@reason("nothing is erased")
forbid(principal, action == Action::"erase", resource);
forbid(principal, action == Action::"search", resource) when { context.tool_calls > 10 };
"""


@pytest.mark.parametrize(
    ("policies", "action", "state", "reason"),
    [
        (REASONS, Action("erase", {"path": "x"}), PolicyState("r", "0", "react", 1, 1, 0), "nothing is erased"),
        (REASONS, Action("mail", {}), STATE, "what came from outside may not lead to a change"),
        (
            REASONS, Action("erase", {"path": "x"}), STATE,
            "what came from outside may not lead to a change; nothing is erased",
        ),
        (REASONS, SEARCH, PolicyState("r", "0", "react", 1, 1, 11), "policy forbids search here"),
        ("", SEARCH, STATE, "policy does not permit search here"),
    ],
)  # fmt: skip
def test_a_denial_says_why_in_the_words_of_the_policy_or_in_plain_ones(
    policies: str, action: Action, state: PolicyState, reason: str
) -> None:
    assert decided(policies, action, state) == Deny(reason)


ASKS = """
permit(principal, action, resource) when { context.effect == "read" };
@ask("Erase it for good?")
permit(principal, action == Action::"erase", resource);
@ask("It has read a secret. Go on?")
forbid(principal, action, resource) when { context.label == 3 };
@reason("not that")
forbid(principal, action == Action::"erase", resource) when { context.arguments.path == "/" };
"""
CLEAN = PolicyState("r", "0", "react", 1, 1, 0)
SECRET = PolicyState("r", "0", "react", 1, 1, 0, "secret")


@pytest.mark.parametrize(
    ("action", "state", "expected"),
    [
        (SEARCH, CLEAN, Allow()),
        (Action("erase", {"path": "x"}, effect="destructive"), CLEAN, Ask("Erase it for good?")),
        (Action("erase", {"path": "x"}, effect="read"), CLEAN, Allow()),
        (SEARCH, SECRET, Ask("It has read a secret. Go on?")),
        (
            Action("erase", {"path": "x"}, effect="destructive"), SECRET,
            Ask("It has read a secret. Go on? Erase it for good?"),
        ),
        (Action("erase", {"path": "/"}, effect="destructive"), CLEAN, Deny("not that")),
        (Action("erase", {"path": "/"}, effect="destructive"), SECRET, Deny("not that")),
        (Action("mail", {}, effect="write"), SECRET, Deny("policy does not permit mail here")),
    ],
)  # fmt: skip
def test_a_person_is_asked_where_only_their_word_is_missing(
    action: Action, state: PolicyState, expected: object
) -> None:
    assert decided(ASKS, action, state) == expected


def test_reasons_come_in_the_order_of_the_policies() -> None:
    many = "".join(
        f'@reason("{number}") forbid(principal, action, resource);'
        for number in range(12)
    )

    assert decided(many, SEARCH) == Deny("0; 1; 2; 3; 4; 5; 6; 7; 8; 9; 10; 11")


@pytest.mark.parametrize("note", ["asks", "Ask", "aks", "reasons", "REASON"])
def test_an_annotation_that_is_nearly_one_of_the_gates_is_refused(note: str) -> None:
    with pytest.raises(
        ConfigError, match=f"policies: @{note} has no meaning here; write @(ask|reason)"
    ):
        CedarGate(f'@{note}("x") {PERMIT}')

    assert (
        decided(f'@id("x") @description("x") @owner("x") {PERMIT}', SEARCH) == Allow()
    )


def test_a_question_without_words_asks_about_the_tool() -> None:
    assert decided("@ask permit(principal, action, resource);", SEARCH) == Ask(
        "Let search run?"
    )


async def test_a_run_waits_for_the_person_whom_the_policy_wants_asked() -> None:
    gate = CedarGate(ASKS, tools=TOOLS)
    runtime = Runtime(
        ScriptedProvider([call("erase", path="x")]),
        tools=TOOLS,
        gate=gate,
        approver=Suspend(),
    )

    result = await ReActEngine(runtime).run("Erase x.")

    decisions = [
        e.event
        for e in runtime.journal.read(result.run_id)
        if isinstance(e.event, GateDecided)
    ]
    assert [question.text for question in result.pending] == ["Erase it for good?"]
    assert [(one.verdict, one.policy_version) for one in decisions] == [
        ("ask", gate.version)
    ]


class TestCedarGate(GateContract):
    """The contract of all gates; broken is one whose `forbid` fails each time it is evaluated."""

    def gate(self) -> PolicyGate:
        return CedarGate(ASKS, tools=TOOLS)

    def actions(self) -> Iterable[Action]:
        yield from super().actions()
        yield SEARCH

    def broken(self) -> Iterable[PolicyGate]:
        overflows = "context.llm_calls + 9223372036854775807 > 0"
        return [
            CedarGate(
                f"{PERMIT} forbid(principal, action, resource) when {{ {overflows} }};"
            )
        ]


# --- how policies are loaded ---


def test_policies_of_several_files_and_folders_decide_together(tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "shared.cedar").write_text(
        "// for all\npermit(principal, action, resource); // without a line's end"
    )
    (tmp_path / "desk" / "b.cedar").write_text(
        '@reason("the desk erases nothing")\nforbid(principal, action == Action::"erase", resource);'
    )
    (tmp_path / "desk" / "a.cedar").write_text("")
    (tmp_path / "notes.txt").write_text("no policy")
    shared = CedarGate.from_files(tmp_path, tools=TOOLS)
    desk = CedarGate.from_files(
        tmp_path / "shared.cedar", str(tmp_path / "desk"), tools=TOOLS
    )
    action = Action("erase", {"path": "x"})

    assert (shared.decide(action, STATE), desk.decide(action, STATE)) == (
        Allow(),
        Deny("the desk erases nothing"),
    )


def unreadable(path: Path) -> None:
    path.write_text(PERMIT)
    path.chmod(0)


BAD_FILES = {
    "no Cedar": (
        lambda path: path.write_text("permit(principal"),
        "is not a set of Cedar policies: ",
    ),
    "two files that are one policy": (
        lambda path: path.write_text("permit(principal,"),
        "is not a set of Cedar policies",
    ),
    "a misspelt attribute": (
        lambda path: path.write_text(
            "permit(principal, action, resource) when { context.lable == 1 };"
        ),
        "does not match the schema of the gate: .*lable",
    ),
    "a template": (
        lambda path: path.write_text(
            "permit(principal == ?principal, action, resource);"
        ),
        "contains a template, which decides nothing",
    ),
    "no text": (
        lambda path: path.write_bytes(b"\xff\xfe"),
        "cannot be read, and no policy is skipped: ",
    ),
    "a folder of that name": (
        lambda path: path.mkdir(),
        "cannot be read, and no policy is skipped: ",
    ),
    "a link to nothing": (
        lambda path: path.symlink_to("nowhere"),
        "cannot be read, and no policy is skipped: ",
    ),
    "a file without permission": (
        unreadable,
        "cannot be read, and no policy is skipped: ",
    ),
}


@pytest.mark.parametrize("bad", BAD_FILES)
def test_one_bad_file_refuses_the_gate_and_is_named(tmp_path: Path, bad: str) -> None:
    make, problem = BAD_FILES[bad]
    (tmp_path / "good.cedar").write_text(PERMIT)
    make(tmp_path / "more.cedar")
    if bad == "a file without permission" and os.access(
        tmp_path / "more.cedar", os.R_OK
    ):
        pytest.skip("root may read everything")

    with pytest.raises(ConfigError, match=rf"more\.cedar: {problem}"):
        CedarGate.from_files(tmp_path, tools=TOOLS)


@pytest.mark.parametrize("paths", [(), ("folder",), ("folder/nothing.cedar",)])
def test_no_policies_at_all_are_a_mistake(
    tmp_path: Path, paths: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(ConfigError, match=r"\*\.cedar|cannot be read"):
        CedarGate.from_files(*(tmp_path / path for path in paths))


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([print], "tools: .* is not a Tool; make one of a function with @tool"),
        ([search, search], "tools: 'search' is given twice"),
        (
            [tool(name="call")(search.function)],
            "tools: 'call' is an action of the gate itself",
        ),
    ],
)
def test_what_is_no_tool_or_has_a_name_that_is_taken_is_refused(
    tools: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        CedarGate(PERMIT, tools=tools)


def test_a_path_in_place_of_policies_is_refused_with_words_that_say_what_takes_one() -> (
    None
):
    with pytest.raises(
        ConfigError, match=r"policies: must be texts, got .*CedarGate\.from_files"
    ):
        CedarGate(Path("policies"))  # type: ignore[arg-type]


def test_a_gate_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.cedar").write_text(PERMIT)

    assert isinstance(build_gate(f"cedar:{tmp_path}"), CedarGate)


def test_without_cedarpy_the_error_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['cedarpy'] = None\n"
        "from loopwright.gates import CedarGate\n"
        "try: CedarGate('')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.strip() == (
        "ConfigError CedarGate needs cedarpy 4.12 or later: pip install 'loopwright[cedar]'"
    )


# --- how they are replaced ---

FORBID = f"{PERMIT} forbid(principal, action, resource);"


def test_the_version_is_that_of_policies_and_schema() -> None:
    same = CedarGate(PERMIT).version

    assert CedarGate(PERMIT).version == same
    assert same.startswith("cedar-")
    assert (
        len(
            {same, CedarGate(FORBID).version, CedarGate(PERMIT, tools=[search]).version}
        )
        == 3
    )


def test_files_that_changed_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a.cedar"
    file.write_text(PERMIT)
    gate = CedarGate.from_files(tmp_path)
    before = gate.version, gate.decide(SEARCH, STATE)

    file.write_text(FORBID)
    (tmp_path / "b.cedar").write_text(PERMIT)
    gate.reload()

    assert before[1] == Allow()
    assert gate.decide(SEARCH, STATE) == Deny("policy forbids search here")
    assert gate.version == CedarGate({"a": FORBID, "b": PERMIT}).version != before[0]


def test_a_bad_reload_keeps_the_old_policies_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.cedar"
    file.write_text(FORBID)
    gate = CedarGate.from_files(file)
    before = gate.version, gate.decide(SEARCH, STATE)

    for bad in ("permit(", "permit(principal, action, resource) when { context.no };"):
        file.write_text(bad)
        with (
            structlog.testing.capture_logs() as lines,
            pytest.raises(ConfigError, match=r"a\.cedar: ") as refused,
        ):
            gate.reload()
        assert lines == [
            {
                "event": "cedar_reload_refused", "log_level": "warning", "problem": str(refused.value),
                "version": before[0],
            }
        ]  # fmt: skip
    file.unlink()
    with (
        structlog.testing.capture_logs(),
        pytest.raises(ConfigError, match="cannot be read"),
    ):
        gate.reload()

    assert (gate.version, gate.decide(SEARCH, STATE)) == before


def test_a_gate_of_texts_is_given_new_ones() -> None:
    gate = CedarGate(PERMIT)

    with (
        structlog.testing.capture_logs(),
        pytest.raises(ConfigError, match="reload: this gate was not made from files"),
    ):
        gate.reload()
    gate.reload(FORBID)

    assert (gate.version, gate.decide(SEARCH, STATE)) == (
        CedarGate(FORBID).version,
        Deny("policy forbids search here"),
    )


def test_a_decision_during_a_reload_is_that_of_one_set_or_the_other() -> None:
    """Two sets that contradict each other; a mixture of them would allow what neither does."""
    sets = [
        f'{PERMIT} @reason("{name}") forbid(principal, action, resource);' * 3
        for name in ("one", "other")
    ]
    gate, over, seen = CedarGate(sets[0]), threading.Event(), set[object]()

    def ask() -> None:
        while not over.is_set():
            seen.add(gate.decide(SEARCH, STATE))

    asking = threading.Thread(target=ask)
    asking.start()
    for number in range(60):
        gate.reload(sets[number % 2])
    over.set()
    asking.join()

    assert seen <= {Deny("one"), Deny("other")}
