"""Plans in model text: what is a step, what it refers to, what its call means, and what is refused, and why."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.messages import ToolSpec
from loopwright.parsing.plans.calls import (
    find_call_end,
    read_call_arguments,
    split_values,
)
from loopwright.parsing.plans.checks import check_plan, is_subgoal
from loopwright.parsing.plans.decisions import read_join, read_result
from loopwright.parsing.plans.plan import Plan, PlanStep
from loopwright.parsing.plans.reader import MAX_PLAN_CHARS, read_plan
from loopwright.parsing.plans.references import find_references, insert_results
from stopwatch import quickest

TEXT = {"type": "string"}


def spec(name: str, *optional: str, **parameters: Any) -> ToolSpec:
    needed = [one for one in parameters if one not in optional]
    return ToolSpec(
        name, "", {"type": "object", "properties": parameters, "required": needed}
    )


SEARCH = spec("search", query=TEXT)
MATH = spec("math", "context", question=TEXT, context={"type": "array"})
ADD = spec("add", a={"type": "integer"}, b={"type": "integer"})
CLOCK = spec("clock")
TOOLS = [SEARCH, MATH, ADD, CLOCK]
NAMES = [tool.name for tool in TOOLS]


def steps(text: str, **options: Any) -> list[tuple[Any, ...]]:
    """What a plan says, as (id, tool, arguments or goal, depends_on)."""
    plan = read_plan(text, NAMES, **options)
    return [
        (s.id, s.tool, s.arguments if s.tool else s.goal, s.depends_on)
        for s in plan.steps
    ]


def refused(text: str, **options: Any) -> str:
    with pytest.raises(ValueError) as error:
        read_plan(text, NAMES, **options)
    return str(error.value)


def problem(text: str, *, max_steps: int = 10, done: tuple[PlanStep, ...] = ()) -> str:
    plan = read_plan(text, NAMES, first=len(done) + 1, done=[one.id for one in done])
    with pytest.raises(ValueError) as error:
        check_plan(plan, TOOLS, max_steps, done)
    return str(error.value)


# --- prose ---

A_THEN_B = [(1, None, "do a", ()), (2, None, "do b", (1,))]


@pytest.mark.parametrize(
    "text",
    [
        "1. do a\n2. do b",
        "1) do a\n2) do b",
        "1: do a\n2: do b",
        "1.do a\n2.do b",
        "  1. do a\n  2. do b",
        "Step 1: do a\nStep 2: do b",
        "STEP 1. do a\nstep 2) do b",
        "Step 1 - do a\nStep 2 \u2013 do b",
        "Task #1: do a\nTask #2: do b",
        "- do a\n- do b",
        "* do a\n* do b",
        "\u2022 do a\n\u2022 do b",
        "- [ ] do a\n- [ ] do b",
        "- 1. do a\n- 2. do b",
        "**1.** do a\n**2.** do b",
        "**1**. do a\n**2**. do b",
        "**1. do a**\n**2. do b**",
        "**Step 1:** do a\n**Step 2:** do b",
        "### Step 1: do a\n### Step 2: do b",
        "**Step 1:**\ndo a\n\n**Step 2:**\ndo b",
        "Here is your plan:\n1. do a\nSome filler text\n2. do b\n\nGood luck!",
        "```\n1. do a\n2. do b\n```",
        "Sure.\n```text\n- do a\n- do b\n```\nDone.",
        "1. do a\r\n2. do b\r\n",
        '{"steps": ["do a", "do b"]}',
        '{"steps": [{"goal": "do a"}, {"goal": "do b"}]}',
        '[{"description": "do a"}, {"task": "do b"}]',
    ],
)
def test_a_list_in_words_is_a_chain_in_which_each_step_sees_all_before_it(
    text: str,
) -> None:
    assert steps(text) == A_THEN_B


def test_sub_items_belong_to_the_step_above_and_a_year_is_no_step() -> None:
    assert steps(
        "1. a\n   1. sub\n2020. The year\n2. b\n- x\n2.1 y\na) z\nfiller\n- not of b"
    ) == [
        (1, None, "a\n   1. sub", ()),
        (2, None, "b\n- x\n2.1 y\na) z", (1,)),
    ]
    assert steps("- a\n  - sub\n- b") == [
        (1, None, "a\n  - sub", ()),
        (2, None, "b", (1,)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "I don't know.",
        "2020. The year\n3.14 is pi\n1:30 pm",
        "1.5 million",
        "Thought: hm",
        "```\nx = 1\n```",
    ],
)
def test_what_has_no_steps_is_refused(text: str) -> None:
    assert refused(text) == (
        "The reply has no steps. Write one step a line, numbered 1., 2., 3. and so on."
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "The reply is empty"),
        (" \n ", "The reply is empty"),
        ("1. a\n3. b", "1 is followed by 3"),
        ("1. a\n2. b\n1. a", "2 is followed by 1"),
        ("1. a\n1. b", "1 is followed by 1"),
        ("2. a\n3. b", "the first is 2"),
        ("0. a\n1. b", "the first is 0"),
        ("1. a\n" + "x" * MAX_PLAN_CHARS, "longer than 32,768 characters"),
    ],
)
def test_steps_that_might_be_missing_are_never_left_out_in_silence(
    text: str, reason: str
) -> None:
    assert reason in refused(text)


# --- calls ---


def test_the_plans_of_llmcompiler_are_read_with_thoughts_references_and_join() -> None:
    plan = read_plan(
        'Question: which?\n1. search("x (y")\nThought: next\n2. math(\'sum?\', ["$1"])\n3. join()\n<END_OF_PLAN>'
    )

    assert plan == Plan(
        (
            PlanStep(1, "search", '"x (y"'),
            PlanStep(
                2,
                "math",
                "'sum?', [\"$1\"]",
                depends_on=(1,),
                references=(1,),
                thought="next",
            ),
        ),
        join=PlanStep(3, "join", depends_on=(1, 2)),
    )
    assert [str(step) for step in plan.steps] == [
        '1. search("x (y")',
        "2. math('sum?', [\"$1\"])",
    ]


def test_calls_without_references_are_independent_and_a_goal_sees_them_all() -> None:
    assert steps('1. search("a")\n2. search("b")\n3. Compare them') == [
        (1, "search", '"a"', ()),
        (2, "search", '"b"', ()),
        (3, None, "Compare them", (1, 2)),
    ]
    assert steps('1. search("a")\n2. Read about b\n3. Compare $1 and ${2}')[1:] == [
        (2, None, "Read about b", ()),
        (3, None, "Compare $1 and ${2}", (1, 2)),
    ]


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("search(First for Women (magazine))", "First for Women (magazine)"),
        ("search('Arthur's Magazine')", "'Arthur's Magazine'"),
        ("search(Arthur's Magazine)", "Arthur's Magazine"),
        ('search("a :) b")', '"a :) b"'),
        ('search("say \\") x")', '"say \\") x"'),
        ('search(\n  "a"\n)', '"a"'),
        ("`search(a)`", "a"),
        ("**search**(a)", "a"),
        ("search (a)", "a"),
        ("search[a [b]]", "a [b]"),
        ("search(a).", "a"),
        ('search({"query": "a)"})', '{"query": "a)"}'),
    ],
)
def test_a_call_goes_to_its_own_closing_bracket(line: str, arguments: str) -> None:
    assert steps(f"1. {line}\n2. clock()") == [
        (1, "search", arguments, ()),
        (2, "clock", "", ()),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "f(x) is even: prove it",
        "list[0] is what",
        "Call Bob (the boss)",
        "Read(s) the file",
        "Use search(a) first",
    ],
)
def test_prose_that_looks_a_little_like_a_call_is_a_goal(line: str) -> None:
    assert steps(f"1. {line}") == [(1, None, line, ())]


def test_words_behind_a_known_call_are_kept_as_what_it_is_for() -> None:
    assert read_plan(
        '1. search("a") - to find a\n2. later(1)  # soon', NAMES
    ).steps == (
        PlanStep(1, "search", '"a"', "to find a"),
        PlanStep(2, "later", "1", "soon"),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '1. search("a")\n2. math("b", ["$1"]\n3. search("c")',
            "Step 2: the bracket of math( is never closed.",
        ),
        ('1. search("a', "Step 1: the bracket of search( is never closed."),
        ("1. serch(a", "Step 1: the bracket of serch( is never closed."),
        (
            "Plan: x\n#E1 = search[a\nPlan: y\n#E2 = search[b]",
            "#E1: the bracket of search[ is never closed.",
        ),
        (
            '1. search("a"), search("b")',
            "Step 1 calls search and search: write one call a step.",
        ),
        (
            "1. join()\n2. search(a)",
            "Step 1 is join(), which must be the last line, but more steps follow.",
        ),
        ("1. join()", "The reply has no steps"),
    ],
)
def test_half_a_call_two_calls_and_steps_behind_the_end_are_refused(
    text: str, reason: str
) -> None:
    assert reason in refused(text)


def test_rewoo_s_labels_are_read_with_their_plans_and_two_digits() -> None:
    lines = [f"Plan: look {n}\n#E{n} = search[thing {n}]" for n in range(1, 12)]
    plan = read_plan(
        "\n".join(
            [*lines, "Plan: think", "#E12 = LLM[Which? Given #E1, #E10 and #E11]"]
        ),
        NAMES,
    )

    assert plan.steps[9] == PlanStep(10, "search", "thing 10", "look 10")
    assert plan.steps[11] == PlanStep(
        12,
        "LLM",
        "Which? Given #E1, #E10 and #E11",
        "think",
        depends_on=(1, 10, 11),
        references=(1, 10, 11),
    )
    assert plan.join is None
    assert is_subgoal(plan.steps[11], TOOLS)
    assert not is_subgoal(plan.steps[11], [spec("LLM", text=TEXT)])


def test_rewoo_on_one_line_in_bold_with_round_brackets_or_in_words() -> None:
    assert steps(
        "Plan: a #E1 = search[x]\n- **#E2** = search(y)\n#E3 = Who is older, #E1 or #E2?"
    ) == [
        (1, "search", "x", ()),
        (2, "search", "y", ()),
        (3, None, "Who is older, #E1 or #E2?", (1, 2)),
    ]


# --- JSON ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"steps": [{"id": 2, "tool": "search", "arguments": {"query": "é"}, "depends_on": []}]}',
         [(2, "search", '{"query": "é"}', ())]),
        ('Here is my plan:\n\n{"steps": [{"step": 1, "skill": "web_fetch", "input_description": "u"}], "memory": ""}\n',
         [(1, "web_fetch", "u", ())]),
        ('{"steps": [{"step": 1, "skill": "search", "input_description": "x",},], "working_memory": "wm",}',
         [(1, "search", "x", ())]),
        ('[{"tool": "search", "query": "x",},]', [(1, "search", "x", ())]),
        ('```json\n{"plan": [{"tool_name": "search", "args": "x"}]}\n```', [(1, "search", "x", ())]),
        ('{"new_plan": [{"tool": "a", "query": "t"}, {"tool": "b", "input": "s", "depends_on": [1]}]}',
         [(1, "a", "t", ()), (2, "b", "s", (1,))]),
        ('{"steps": [{"id": "#E1", "tool": "a"}, {"id": "step_2", "goal": "g", "dependencies": ["$1"]}]}',
         [(1, "a", "", ()), (2, None, "g", (1,))]),
        ('{"steps": [{"step": "clock"}, {"step": "Say it", "tool": null}]}',
         [(1, "clock", "", ()), (2, None, "Say it", (1,))]),
        ('{"steps": [{"tool": "a"}, {"tool": "join"}]}', [(1, "a", "", ())]),
        ('{"steps": [{"action": "something"}]}', [(1, None, "", ())]),
    ],
)  # fmt: skip
def test_json_is_read_under_the_names_that_models_give(
    text: str, expected: list[Any]
) -> None:
    assert steps(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"steps": [{"tool": "a"}', "The JSON of the plan cannot be read"),
        ('{"steps": []}', "no steps"),
        ('{"steps": [7]}', "Step 1 must be an object"),
        ('{"steps": [{"id": "a", "tool": "x"}]}', "the id of step 1 is 'a'"),
        ('{"steps": [{"id": true, "tool": "x"}]}', "the id of step 1 is 'True'"),
        (
            '{"steps": [{"tool": "x", "depends_on": ["b"]}]}',
            "a dependency of step 1 is 'b'",
        ),
        ('{"answer": 42}', "no steps"),
    ],
)
def test_json_that_is_no_plan_is_refused(text: str, reason: str) -> None:
    assert reason in refused(text)


# --- references ---


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("'max($2, $4)'", (2, 4)),
        ("$1", (1,)),
        ("'$10', ['${2}', '#E3']", (10, 2, 3)),
        ("is $2 more than $1?", (2, 1)),
        ("$1, $1", (1,)),
        ("$1.", (1,)),
        ("f($1,2)", (1,)),
        ("min($1, $7)", (1, 7)),  # dangling: beside another reference
        ("'$7'", (7,)),  # dangling: a value of its own
        ("[$7]", (7,)),
        ("#E7 and ${8}", (7, 8)),  # never money
        ("hotels under $7", ()),  # money: no step 7
        ("costs $1.50, $1,000, $5M, US$5, $$1, \\$1, $3 million or $20000", ()),
        ("#E1x and #Ever", ()),
    ],
)
def test_a_call_refers_to_results_and_not_to_amounts_of_money(
    text: str, found: tuple[int, ...]
) -> None:
    assert find_references(text, 9, {1, 2, 3, 4, 5, 10}, prose=False) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Compare $1 with $2", (1, 2)),
        ("Keep those under $2", ()),
        ("Lunch for more than $1", ()),
        ("Think about $1", (1,)),
        ("Pay $4", ()),  # a later step
        ("Pay $3", ()),  # itself
        ("Use #E4 and ${9}", (4, 9)),  # never money: refused later
        ("Compare $1 with $7", (1, 7)),  # in doubt, beside a reference
        ("Compare $1 with those under $7", (1,)),
    ],
)
def test_prose_refers_to_earlier_results_only(
    text: str, found: tuple[int, ...]
) -> None:
    assert find_references(text, 3, {1, 2, 3, 4}, prose=True) == found


def test_money_in_prose_does_not_undo_the_chain() -> None:
    assert steps(
        "1. Find cafés\n2. Compare them\n3. Keep those under $2\n4. Pay $5.00"
    )[2:] == [
        (3, None, "Keep those under $2", (1, 2)),
        (4, None, "Pay $5.00", (1, 2, 3)),
    ]


def test_results_are_put_in_once_and_ten_is_not_one() -> None:
    assert (
        insert_results("$10 $1 ${1} #E1 #E10 $1.5 $2", {1: "$10", 10: "ten"})
        == "ten $10 $10 $10 ten $1.5 $2"
    )


# --- arguments ---


@pytest.mark.parametrize(
    ("tool", "text", "arguments"),
    [
        (SEARCH, '"a"', {"query": "a"}),
        (SEARCH, "'it's a'", {"query": "it's a"}),
        (SEARCH, "Paris, France", {"query": "Paris, France"}),
        (SEARCH, "1984", {"query": "1984"}),
        (SEARCH, "query='a, b'", {"query": "a, b"}),
        (SEARCH, "query=a b", {"query": "a b"}),
        (SEARCH, '{"query": "a"}', {"query": "a"}),
        (SEARCH, '```json\n{"query": "a"}\n```', {"query": "a"}),
        (SEARCH, "x=1 solves it", {"query": "x=1 solves it"}),
        (SEARCH, "$1", {"query": 'said "so", $3'}),
        (SEARCH, '"about $1"', {"query": 'about said "so", $3'}),
        (SEARCH, '{"query": "about $1"}', {"query": 'about said "so", $3'}),
        (SEARCH, "{'query': $1}", {"query": 'said "so", $3'}),
        (SEARCH, "#E2", {"query": "42"}),
        (MATH, "'sum?', ['$2', 'x']", {"question": "sum?", "context": ["42", "x"]}),
        (MATH, "'sum?', [$2, #E3]", {"question": "sum?", "context": ["42", "[1, 2]"]}),
        (MATH, "'sum?', $3", {"question": "sum?", "context": [1, 2]}),
        (
            MATH,
            "'sum?', context=[{'a': '$2'}]",
            {"question": "sum?", "context": [{"a": "42"}]},
        ),
        (MATH, "max(1, 2) + 3", {"question": "max(1, 2) + 3"}),
        (MATH, "'a, b'", {"question": "a, b"}),
        (ADD, "1, 2", {"a": 1, "b": 2}),
        (ADD, "b=1, a=$2", {"a": 42, "b": 1}),
        (ADD, '{"a": "$2", "b": 1}', {"a": 42, "b": 1}),
        (ADD, "-1, True", {"a": -1, "b": True}),
        (CLOCK, "", {}),
        (CLOCK, "None", {}),
    ],
)
def test_a_call_s_text_means_these_arguments(
    tool: ToolSpec, text: str, arguments: dict[str, Any]
) -> None:
    assert (
        read_call_arguments(text, tool, {1: 'said "so", $3', 2: "42", 3: "[1, 2]"})
        == arguments
    )


@pytest.mark.parametrize(
    ("tool", "text", "reason"),
    [
        (SEARCH, "", "The call of search has no input"),
        (SEARCH, '"a", "b"', "search takes 1 value(s)"),
        (ADD, "1", "add needs b"),
        (ADD, "1, 2, 3", "add takes 2 value(s)"),
        (ADD, "1, a=2", "add takes 2 value(s)"),
        (ADD, "one and two", "The input of add must be a JSON object"),
        (ADD, '{"a": 1', "The input of add cannot be read"),
        (ADD, '{"a": 1, "b": 2} and', "There is text behind the object of add"),
        (CLOCK, "'now'", "clock takes 0 value(s)"),
    ],
)
def test_a_call_that_means_nothing_clear_is_refused(
    tool: ToolSpec, text: str, reason: str
) -> None:
    with pytest.raises(ValueError) as error:
        read_call_arguments(text, tool, {})
    assert reason in str(error.value)


@given(st.text(), st.text())
def test_a_result_is_text_whatever_it_holds(result: str, other: str) -> None:
    assert read_call_arguments(
        '{"query": "<$1|$2>"}', SEARCH, {1: result, 2: other}
    ) == {"query": f"<{result}|{other}>"}


@given(
    st.lists(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text().filter(lambda t: "$" not in t and "#" not in t)
    )
)
def test_values_are_read_as_json_writes_them(values: list[Any]) -> None:
    tool = spec(
        "any",
        *(f"p{n}" for n in range(len(values))),
        **{
            f"p{n}": {"type": ["null", "string", "integer", "boolean"]}
            for n in range(len(values))
        },
    )
    text = ", ".join(json.dumps(value) for value in values)

    assert find_call_end(f"any({text})", 3) == len(text) + 4
    if values:
        assert split_values(text) == [json.dumps(value) for value in values]
    if len(values) > 1:
        assert read_call_arguments(text, tool, {}) == {
            f"p{n}": value for n, value in enumerate(values)
        }


# --- the check ---


def test_a_plan_that_can_run_passes() -> None:
    check_plan(
        read_plan(
            '1. SEARCH("a")\n2. LLM[so? #E1]\n3. add($1, 2)\n4. Say $3\n5. join()',
            NAMES,
        ),
        TOOLS,
        4,
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1. a\n2. b\n3. c\n4. d", "The plan has 4 steps; at most 3 are allowed."),
        (
            '1. serch("a")',
            "Step 1: there is no tool 'serch'. Did you mean search? Tools: search, math, add, clock.",
        ),
        (
            "1. clock()\n2. search($7)",
            "Step 2 refers to step 7, but there is no such step with a result.",
        ),
        (
            "1. clock()\n2. search($2)",
            "Steps wait for themselves or each other and can never start: 2.",
        ),
        ("1. search($2)\n2. search($1)\n3. clock()", "can never start: 1, 2."),
        ("#E1 = clock[]\n#E1 = search[a]", "Two steps have the number 1."),
        (
            "1. add(1)",
            "Step 1: add needs b. Its parameters: a (integer, required), b (integer, required).",
        ),
        ('{"steps": [{"action": "x"}]}', "Step 1 says nothing: name a tool or a goal."),
        ('{"steps": [{"goal": "x", "depends_on": [4]}]}', "Step 1 refers to step 4"),
        (
            '{"steps": [{"goal": "x", "depends_on": [2]}, {"goal": "y", "depends_on": [1]}]}',
            "can never start: 1, 2.",
        ),
    ],
)
def test_a_plan_that_cannot_run_is_refused_with_the_reason(
    text: str, reason: str
) -> None:
    assert reason in problem(text, max_steps=3)


def test_all_that_is_wrong_is_said_up_to_five_reasons() -> None:
    told = problem("\n".join(f"{n}. nope{n}()" for n in range(1, 9)), max_steps=3)

    assert told.count("there is no tool") == 4
    assert told.startswith("The plan has 8 steps; at most 3 are allowed. Step 1: ")


# --- a plan after a plan ---

DONE = (PlanStep(1, "search", '"a"'), PlanStep(2, "clock"))


def test_new_steps_count_on_and_refer_to_what_is_done() -> None:
    assert steps("3. search($1)\n4. Say $3 and $2", first=3, done=[1, 2]) == [
        (3, "search", "$1", (1,)),
        (4, None, "Say $3 and $2", (2, 3)),
    ]


def test_new_steps_without_references_are_numbered_on_and_see_what_is_done() -> None:
    assert steps("1. do a\n2. do b", first=4, done=[1, 2]) == [
        (4, None, "do a", (1, 2)),
        (5, None, "do b", (1, 2, 4)),
    ]
    assert steps("- do a", first=4, done=[]) == [(4, None, "do a", ())]


@pytest.mark.parametrize("text", ["1. search(a)\n2. search($1)", "#E2 = search[#E1]"])
def test_new_steps_whose_numbers_would_mean_two_things_are_refused(text: str) -> None:
    assert refused(text, first=3, done=[1, 2]) == (
        "Earlier steps have lower numbers already: number the new steps from 3 on."
    )


def test_a_call_that_is_done_is_not_made_again_and_one_that_failed_has_no_result() -> (
    None
):
    assert (
        problem('3. search("a")', done=DONE)
        == "Step 3 repeats step 1, which is done: refer to its result as $1."
    )
    for text in ("4. search(${3})", "4. search('no amount: $3')", "4. Tell about $3"):
        with pytest.raises(
            ValueError,
            match="Step 4 refers to step 3, but there is no such step with a result",
        ):
            check_plan(read_plan(text, NAMES, first=4, done=[1, 2]), TOOLS, 9, DONE)


# --- the join, and a step's answer ---


@pytest.mark.parametrize(
    ("text", "finish"),
    [
        ("Decision: FINISH", "finish"),
        ("**Decision:** finish\nAll is there.", "finish"),
        ("Decision: REPLAN because 2 is missing", "replan"),
        ("Thought: hm\nAction: Finish(x)", "finish"),
        ("Replan(the search failed)", "replan"),
        ("FINISH.", "finish"),
        ("Decision: do not replan", None),
        ("Decision: FINISH\nDecision: REPLAN", None),
        ("We could finish or replan.", None),
        ("Decision: finished", None),
        ("Decision: CONTINUE, the plan is right", "continue"),
        ("Decision:", None),
        ("", None),
    ],
)
def test_the_join_is_read_strictly(text: str, finish: str | None) -> None:
    assert read_join(text) == finish


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("STEP_RESULT: Paris", "Paris"),
        ("**Step result:** Paris\nand more ", "Paris\nand more"),
        ("**Step result: Paris**", "Paris"),
        (" Paris ", "Paris"),
        ("Final Answer: Paris", "Paris"),
        ("It is so.\nSTEP_RESULT: no", "It is so.\nSTEP_RESULT: no"),
        ("STEP_RESULT:", ""),
    ],
)
def test_a_step_s_answer_loses_its_label(text: str, result: str) -> None:
    assert read_result(text) == result


# --- hostile text ---

PIECES = st.sampled_from(
    ["1. ", "2. ", "\n", "search(", ")", "[", "]", "{", "}", '"', "'", "\\", "$1", "${2}", "#E1", " = ", "- ", "**",
     "```", "Thought:", "Plan:", "join()", "x", ",", ":", '"steps"', "  "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_a_checked_plan_or_a_reason(text: str) -> None:
    with contextlib.suppress(ValueError):
        plan = read_plan(text, NAMES)
        check_plan(plan, TOOLS, 5)
        ids = [step.id for step in plan.steps]

        assert 0 < len(ids) <= 5
        assert all(
            one in ids
            for step in plan.steps
            for one in (*step.depends_on, *step.references)
        )


@pytest.mark.faults
@pytest.mark.parametrize(
    "piece",
    ["1. ", "(", "1. search(", "['", '["\\"', "$1 ", "${", "#E1 = a[", "\\\"", "- ", "**", "```\n", '{"steps": [', "[[",
     "join(", "Plan: ", "f(x), ", "Thought: ", "1. a\n", " ", "\n", '"', "',", ',"a', "[$1,", "_", "`"],
)  # fmt: skip
@pytest.mark.parametrize(
    "head", ["", "1. search(", "#E1 = search[", '{"steps": [{"tool": "math", "args": "']
)
def test_hostile_text_is_refused_or_read_in_linear_time(head: str, piece: str) -> None:
    for size in (32_000, 262_144):
        text = head + piece * ((size - 100) // len(piece)) + ")"

        def read(text: str = text) -> None:
            with contextlib.suppress(ValueError):
                check_plan(read_plan(text, NAMES), TOOLS, 10)

        assert quickest(read, 0.5) < 0.5  # below 50 ms on an idle machine


# --- the same thing in other spellings ---

MAIL = spec("send_mail", to=TEXT, text=TEXT)
TOTAL = spec("total", values={"type": "array", "items": {"type": "number"}})


@pytest.mark.parametrize(
    "again",
    [
        'send_mail("bob", "hi")',
        'Send_Mail("bob", "hi")',
        "send_mail('bob', 'hi')",
        'send_mail( "bob" ,"hi" )',
        'send_mail(text="hi", to="bob")',
        '{"steps": [{"id": 3, "tool": "send_mail", "arguments": {"to": "bob", "text": "hi"}}]}',
    ],
)
def test_a_call_that_is_done_is_not_made_again_however_it_is_written(
    again: str,
) -> None:
    done = [PlanStep(1, "send_mail", '"bob", "hi"')]
    text = again if again.startswith("{") else f"3. {again}"
    with pytest.raises(ValueError) as error:
        check_plan(read_plan(text, ["send_mail"], first=3, done=[1]), [MAIL], 9, done)

    assert (
        str(error.value)
        == "Step 3 repeats step 1, which is done: refer to its result as $1."
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{step1}", "{step1}"),
        ("{{E1}}", "{E1}"),
        ("$step1", "$step1"),
        ("$E1", "$E1"),
        ("<result of step 1>", "result of step 1"),
        ("the output of task 1", "output of task 1"),
    ],
)
def test_what_is_meant_as_a_reference_and_is_none_never_reaches_a_tool(
    written: str, meant: str
) -> None:
    text = f'1. search("a")\n2. search("size of {written}")'

    assert (
        problem(text)
        == f"Step 2: {meant!r} is no reference; write `$k` for the result of step k."
    )


def test_rewoo_s_references_without_their_sign_are_read_where_its_labels_have_none() -> (
    None
):
    bare = read_plan(
        "Plan: s\nE1 = search[a]\nPlan: m\nE2 = search[size of E1 in E10]", NAMES
    )
    signed = read_plan(
        "Plan: s\n#E1 = search[a]\nPlan: m\n#E2 = search[size of E1]", NAMES
    )

    assert [(s.arguments, s.references) for s in bare.steps] == [
        ("a", ()),
        ("size of #E1 in #E10", (1, 10)),
    ]
    assert [(s.arguments, s.references) for s in signed.steps] == [
        ("a", ()),
        ("size of E1", ()),
    ]


def test_a_last_goal_that_refers_to_nothing_sums_up_all_that_is_before_it() -> None:
    calls = '1. search("a")\n2. search("b $1")\n'

    assert steps(f"{calls}3. Write a table of it.\njoin()")[2] == (
        3,
        None,
        "Write a table of it.",
        (1, 2),
    )
    assert steps(f"{calls}3. Think.\n4. Write about $2")[2:] == [
        (3, None, "Think.", ()),
        (4, None, "Write about $2", (2,)),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "(after step 1)",
        "(depends on step 1)",
        "- once step #1 is done",
        "# needs task 1",
    ],
)
def test_a_call_waits_for_the_steps_that_the_words_behind_it_name(words: str) -> None:
    assert [step[3] for step in steps(f'1. search("a")\n2. search("b") {words}')] == [
        (),
        (1,),
    ]


def test_a_goal_waits_for_the_steps_that_it_names_in_words() -> None:
    found = steps(
        "1. Find a\n2. Find b\n3. Add $1 and the result of step 2\n4. As in step 9"
    )

    assert [step[3] for step in found] == [(), (), (1, 2), (1, 2, 3)]


@pytest.mark.parametrize(
    "text", ["[$1, $2]", "values=[$1, $2]", '{"values": ["$1", "$2"]}']
)
def test_results_in_a_list_have_the_type_of_its_items(text: str) -> None:
    assert read_call_arguments(text, TOTAL, {1: "4", 2: "5.5"}) == {"values": [4, 5.5]}


def test_results_in_a_list_of_texts_stay_texts() -> None:
    tool = spec("join_up", parts={"type": "array", "items": TEXT})

    assert read_call_arguments('["$1", "and $2"]', tool, {1: "4", 2: "5"}) == {
        "parts": ["4", "and 5"]
    }


def test_a_result_that_is_empty_stays_so_where_a_number_is_wanted() -> None:
    assert read_call_arguments("$1, $2", ADD, {1: "", 2: "7"}) == {"a": "", "b": 7}


def test_results_are_put_into_every_string_of_a_nested_object() -> None:
    tool = spec("find", filter={"type": "object"})

    found = read_call_arguments(
        '{"filter": {"any of": ["$1", {"not": "<$1>"}, 3]}}', tool, {1: "7"}
    )

    assert found == {"filter": {"any of": ["7", {"not": "<7>"}, 3]}}


def test_a_call_below_the_heading_of_its_step_is_refused_and_not_lost() -> None:
    assert refused(
        '## Step 1: Find it\nsearch("a")\n\n## Step 2: Go on\nsearch("$1")\n'
    ) == ("Step 1: write the call of search right behind its number.")


@pytest.mark.parametrize(
    "step",
    [
        '{"id": 1, "function": "search", "args": {"query": "a"}}',
        '{"step": 1, "action": "search", "action_input": {"query": "a"}}',
        '{"id": 1, "tool": "search", "tool_input": {"query": "a"}}',
    ],
)
def test_json_names_its_tools_as_calls_do_elsewhere(step: str) -> None:
    assert steps(f'{{"steps": [{step}]}}') == [(1, "search", '{"query": "a"}', ())]


@pytest.mark.parametrize("text", ["join()", " **join()**\n", "Join"])
def test_a_lone_join_says_that_nothing_is_left_to_do_if_something_is_done(
    text: str,
) -> None:
    assert read_plan(text, NAMES, first=3, done=[1, 2]) == Plan((), PlanStep(3, "join"))
    assert "no steps" in refused(text)


@pytest.mark.parametrize("sign", ["-", "+", "*", "/"])
def test_strings_with_a_sign_between_them_are_an_expression_as_it_is_written(
    sign: str,
) -> None:
    tool = spec("calculator", expression=TEXT)

    assert read_call_arguments(f'"$1" {sign} "$2"', tool, {1: "4", 2: "5"}) == {
        "expression": f'"4" {sign} "5"'
    }
    assert read_call_arguments('"$1 - $2"', tool, {1: "4", 2: "5"}) == {
        "expression": "4 - 5"
    }
