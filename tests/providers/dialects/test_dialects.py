"""The dialects: how a model's text is parsed, and how a conversation is written as text."""

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import roles_and_contents
from loopwright.attachments import Attachment
from loopwright.errors import ConfigError
from loopwright.messages import Conversation, Message, ToolCall, ToolSpec
from loopwright.prompts import PromptSet
from loopwright.providers import OutputSchema, Request, Sampling
from loopwright.providers.dialects import (
    Dialect,
    JsonDialect,
    Parsed,
    ReActDialect,
    XmlDialect,
)
from loopwright.providers.dialects.json import (
    build_reply_schema,
    find_called_tools,
    format_parameters,
)
from loopwright.tools import tool
from recordings import FOLDER
from stopwatch import quickest


def spec(
    name: str, *parameters: str, required: bool = True, kind: str = "string"
) -> ToolSpec:
    properties: dict[str, Any] = {parameter: {"type": kind} for parameter in parameters}
    return ToolSpec(
        name,
        f"does {name}",
        {
            "type": "object",
            "properties": properties,
            "required": list(parameters) if required else [],
        },
    )


SEARCH, WRITE, NOW = (
    spec("search", "query"),
    spec("write_file", "path", "text"),
    spec("now"),
)
SQUARE, LIST = (
    spec("square", "number", kind="integer"),
    spec("list", "folder", required=False),
)
LONG_NAME = spec("Wikipedia Research Tool", "topic")
TOOLS = (SEARCH, WRITE, NOW, SQUARE, LIST, LONG_NAME)
REACT, JSON = ReActDialect(), JsonDialect()
BRACKET, NUMBERED = ReActDialect("bracket"), ReActDialect("numbered")
MUSING = ReActDialect("numbered", thoughts_alone=True)
DIALECTS: tuple[Dialect, ...] = (REACT, BRACKET, NUMBERED, JSON)


def called(
    name: str, arguments: dict[str, Any], thought: str = "", *flags: str
) -> Parsed:
    return Parsed(thought, (ToolCall(name, arguments),), None, None, flags)


def answered(answer: str, thought: str = "", *flags: str) -> Parsed:
    return Parsed(thought, (), answer, None, flags)


def rows(name: str) -> list[Any]:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(
            f"{path} is absent: set LOOPWRIGHT_FIXTURES to the folder of the recordings"
        )
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ---------------------------------------------------------------------------------------------------- ReAct, read


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        # the usual form
        ('Thought: t\nAction: search\nAction Input: {"query": "a"}', called("search", {"query": "a"}, "t")),
        ('Action: search\nAction Input: {"query": "a"}', called("search", {"query": "a"})),
        ('I look.\n\nAction: search\nAction Input: {"query": "a"}\n', called("search", {"query": "a"}, "I look.")),
        ("Thought: a\nThought: b\nAction: search\nAction Input: x", called("search", {"query": "x"}, "a\nb")),
        ("Thought: t\nFinal Answer: 42", answered("42", "t")),
        ("Thought: I know.\nFINAL_ANSWER: 42", answered("42", "I know.")),
        ("final answer : one\ntwo", answered("one\ntwo")),
        ("Final Answer:\n```py\nAction: x\n```\nso", answered("```py\nAction: x\n```\nso")),
        # markup, case and spacing
        ('**Action:** search\n**Action Input:** {"query": "a"}', called("search", {"query": "a"})),
        ('**Action: search**\n**Action Input: {"query": "a"}**', called("search", {"query": "a"})),
        ("**Thought**: t\n**Final Answer: 42**", answered("42", "t")),
        ("### Action:\n`Search`\n### Action Input:\na", called("search", {"query": "a"})),
        ("ACTION : [SEARCH]\nACTION_INPUT : a", called("search", {"query": "a"})),
        ("Action: Search.\r\nAction Input: a\r\n", called("search", {"query": "a"})),
        # what an input may be
        ("Action: search\nAction Input: a\nb", called("search", {"query": "a\nb"})),
        ('Action: search\nAction Input: "a b"', called("search", {"query": "a b"})),
        ('Action: search\nAction Input: "a" or "b"', called("search", {"query": '"a" or "b"'})),
        ("Action: search\nAction Input: 2024", called("search", {"query": "2024"})),
        ("Action: search\nAction Input: [a] b", called("search", {"query": "[a] b"})),
        ("Action: square\nAction Input: 12", called("square", {"number": 12})),
        ("Action: square\nAction Input: twelve", called("square", {"number": "twelve"})),
        ("Action: search\nAction Input: {'query': 'it\\'s'}", called("search", {"query": "it's"})),
        ('Action: search\nAction Input: {"q": 1}', called("search", {"q": 1})),
        ('Action: search\nAction Input:\n```json\n{"query": "a"}\n```', called("search", {"query": "a"})),
        ("Action: search\nAction Input: ```sql\nselect 1\n```", called("search", {"query": "select 1"})),
        ('Action: write_file\nAction Input: {"path": 1,\n"text": "}"}', called("write_file", {"path": 1, "text": "}"})),
        ("Action: wikipedia research tool\nAction Input: x", called("Wikipedia Research Tool", {"topic": "x"})),
        # no input
        ("Action: now", called("now", {})),
        ("Action: now\nAction Input: None", called("now", {})),
        ("Action: now[]", called("now", {})),
        ("Action: list\nThought: hm", called("list", {})),
        # a tool that is not there
        ("Action: fly\nAction Input: high", called("fly", {"input": "high"})),
        ('Action: fly\nAction Input: {"to": "x"}', called("fly", {"to": "x"})),
        ("Action: Fly[high]", called("Fly", {"input": "high"})),
        ("Action: fly", called("fly", {})),
        # the paper's form
        ("Thought 3: t\nAction 3: Search[a]", called("search", {"query": "a"}, "t")),
        ("Thought 3: t\nAction 3: \n\nSearch[a]", called("search", {"query": "a"}, "t")),
        ("Action: search[a [b] c]", called("search", {"query": "a [b] c"})),
        ("Action: search[Rio's]", called("search", {"query": "Rio's"})),
        ('Action: search["a"]', called("search", {"query": '"a"'})),
        ("Action: search [a\nb]", called("search", {"query": "a\nb"})),
        ("Action: **search[a]**", called("search", {"query": "a"})),
        ('Action: write_file[{"path": "]", "text": "x"} ]', called("write_file", {"path": "]", "text": "x"})),
        ("Action: square[3]", called("square", {"number": 3})),
        ("Action 2: Finish[yes]", answered("yes")),
        ("Action 2:\n\nFinish[NOT ENOUGH INFO]", answered("NOT ENOUGH INFO")),
        ("Action: finish\nAction Input: yes", answered("yes")),
        ('Action: Final Answer\nAction Input: {"answer": "yes"}', answered("yes")),
        ("Action: finish\nAction Input: }", answered("}")),
        ("Action: None\nFinal Answer: yes", answered("yes", "Action: None")),
        # what is dropped is flagged
        ("Action: search[a], search[b]", called("search", {"query": "a"}, "", "several_actions")),
        ("Action: search[a] and so on", called("search", {"query": "a"}, "", "trailing_text")),
        ("Action: search[a]\nAction: search[b]", called("search", {"query": "a"}, "", "several_actions")),
        ("Action: search[a]\nFinal Answer: b", called("search", {"query": "a"}, "", "several_actions")),
        ("Final Answer: a\nThought: t\nFinal Answer: b", answered("a", "", "several_actions")),
        ("Final Answer: a\nAction: search[b]", answered("a", "", "several_actions")),
        ("Action: search\nAction Input: a\nObservation:", called("search", {"query": "a"}, "", "invented_observation")),
        (
            "Action: search\nAction Input: a\nObservation: b\nFinal Answer: c",
            called("search", {"query": "a"}, "", "invented_observation"),
        ),
        ("Action: search[a]\n**Observation 1:** b", called("search", {"query": "a"}, "", "invented_observation")),
        ("Action: search\nAction Input: a\nObserv", called("search", {"query": "a"})),
        ('Action: now\nAction Input: {}\njunk', called("now", {}, "", "trailing_text")),
        # not an action
        (
            'Action: write_file\nAction Input: {"path": "p", "text": "\\nAction: now\\nAction Input: {}"}',
            called("write_file", {"path": "p", "text": "\nAction: now\nAction Input: {}"}),
        ),
        ("Thought: I could use Action: now\nFinal Answer: 1", answered("1", "I could use Action: now")),
        ("Thought:\n```\nAction: now\n```\nFinal Answer: 1", answered("1", "```\nAction: now\n```")),
        ("- Action: now\n> Action: now\nFinal Answer: 1", answered("1", "- Action: now\n> Action: now")),
        # the result of a step is an answer where there is no other
        ("Thought: t\nSTEP_RESULT: done", answered("done", "t")),
        ("**Step result:** one\ntwo", answered("one\ntwo")),
        ("Action: None\nStep Result: x\nObservation: y", answered("x", "Action: None", "invented_observation")),
        ("STEP_RESULT: a\nSTEP_RESULT: b", answered("a", "", "several_actions")),
        ("STEP_RESULT: a\nFinal Answer: b", answered("b", "STEP_RESULT: a")),
        ("Final Answer: b\nSTEP_RESULT: a", answered("b\nSTEP_RESULT: a")),
        ("Action: search[a]\nSTEP_RESULT: b", called("search", {"query": "a"}, "", "trailing_text")),
    ],
)  # fmt: skip
def test_react_reads(text: str, parsed: Parsed) -> None:
    assert REACT.parse(text, TOOLS) == parsed
    assert [
        BRACKET.parse(text, TOOLS),
        NUMBERED.parse(text, TOOLS),
        MUSING.parse(text, TOOLS),
    ] == [parsed] * 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "neither an action nor a final answer"),
        ("It is 42.", "one of these tools: search, write_file, now"),
        ("Thought: I should search", "neither an action nor a final answer"),
        ("The answer is Final Answer: 42", "neither an action nor a final answer"),
        ("```\nAction: now\n```", "outside code"),
        ("Thought: ```\nAction: now", "code fence is never closed"),
        ("Observation: 3\nFinal Answer: 3", "Never write `Observation:` yourself"),
        ("Action: None", "neither an action"),
        ("Action Input: a", "neither an action"),
        ("FINAL_ANSWER:   ", "final answer is empty"),
        ("Final Answer:\nThought: x", "final answer is empty"),
        ("Action:", "name of one tool alone"),
        ("Action: I will search for it", "name of one tool alone"),
        ("Action: fly(query)", "name of one tool alone"),
        ("Action: search(", "bracket of search\\( is never closed"),
        ("Action: write_file(a.txt", "bracket of write_file\\( is never closed"),
        ("Action: write_file[a.txt", "bracket of write_file\\[ is never closed"),
        (
            "Action: search\n",
            "call of search has no input. Write a JSON object .* search: query \\(string, required\\)",
        ),
        ('Action: search\n{"query": "a"}', "must stand behind `Action Input:`"),
        ("Action: search[", "bracket of search\\[ is never closed"),
        ("Action: search[a\nThought: b]", "bracket of search\\[ is never closed"),
        ('Action: write_file[{"path": "]"', "input of write_file cannot be read"),
        (
            'Action: write_file[{"path": "p"} more]',
            "bracket of write_file\\[ is never closed",
        ),
        (
            'Action: search\nAction Input: {"query": "a',
            "a brace or a quote is never closed",
        ),
        (
            'Action: search\nAction Input: {"query": {"a": 1}',
            "a brace or a quote is never closed",
        ),
        (
            'Action: search\nAction Input: {"query": "a"b"}',
            "input of search cannot be read",
        ),
        ('Action: fly\nAction Input: {"to": ', "input of fly cannot be read"),
        (
            'Action: search\nAction Input: ```json\n{"query": "a"}',
            "fence is never closed",
        ),
        (
            "Action: search\nAction Input: why ```\nObservation: x",
            "fence in the input of search is never closed",
        ),
        (
            "Action: write_file\nAction Input: a.txt",
            "parameters of write_file: path \\(string, required\\), text",
        ),
        (
            'Action: write_file\nAction Input: {"path": a}',
            "parameters of write_file: path \\(string, required\\), text",
        ),
        (
            'Action: write_file\nAction Input: {"path": 1, "path": 2}',
            "a key is given twice",
        ),
        ("Action: write_file[a.txt]", "input of write_file must be a JSON object"),
        ("Action: now\nAction Input: in Paris", "now takes no parameters: write {}"),
        ("STEP_RESULT:", "final answer is empty"),
        ("Observation: 3\nSTEP_RESULT: 3", "Never write `Observation:` yourself"),
        ("So STEP_RESULT: 3", "neither an action nor a final answer"),
        ("```\nSTEP_RESULT: 3", "code fence is never closed"),
    ],
)
def test_react_gives_a_problem_that_says_what_to_do(text: str, problem: str) -> None:
    parsed = REACT.parse(text, TOOLS)

    assert (parsed.calls, parsed.answer) == ((), None)
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(parsed.problem)


@pytest.mark.parametrize("form", [BRACKET, NUMBERED], ids=lambda form: form.name)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "Thought: I should search",
            "The reply has neither an action nor a final answer, each at the start of a line and outside code. "
            "Write `Action: tool[input]` with one of these tools: search, write_file, now, square, list, Wikipedia "
            "Research Tool; or, if you know the answer, write `Action: Finish[the answer]`.",
        ),
        (
            "Final Answer:",
            "The final answer is empty. Write `Action: Finish[the answer]`.",
        ),
        (
            'Action: search\n{"query": "a"}',
            "The input of search must stand in brackets right behind its name: search[input].",
        ),
        (
            "Action: I will look",
            "`Action:` must be followed by a call, `tool[input]`, of one of these tools: search, write_file, now, "
            "square, list, Wikipedia Research Tool.",
        ),
    ],
)
def test_each_form_explains_what_to_do_in_its_own_syntax(
    form: ReActDialect, text: str, problem: str
) -> None:
    assert form.parse(text, TOOLS).problem == problem


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("Thought: I should search.", Parsed("I should search.", (), None, None)),
        ("Thought 2: one\nThought: two", Parsed("one\ntwo", (), None, None)),
        ("Well.\nThought: two", Parsed("Well.\ntwo", (), None, None)),
        (
            "Action 2: think[I should search.]",
            Parsed("I should search.", (), None, None),
        ),
        ("Thought: a\nAction: Think[b [c]]", Parsed("a\nb [c]", (), None, None)),
        (
            "Action: think[a], search[b]",
            Parsed("a", (), None, None, ("several_actions",)),
        ),
        (" think[I should search.]\n", Parsed("I should search.", (), None, None)),
        ("Thought: a\nAction: search[b]", called("search", {"query": "b"}, "a")),
        ("Thought: a\nFinal Answer: b", answered("b", "a")),
        ("Thought: a\nSTEP_RESULT: b", answered("b", "a")),
    ],
)
def test_a_thought_alone_is_a_turn_where_that_is_allowed(
    text: str, parsed: Parsed
) -> None:
    assert MUSING.parse(text, TOOLS) == parsed
    if parsed.calls or parsed.answer:
        return
    strict = REACT.parse(text, TOOLS)
    assert strict.problem is not None or strict.calls[0].name.casefold() == "think"


@pytest.mark.parametrize(
    "text",
    [
        "", "I should search.", "Thought:", "Thought: a\nAction: None", "Thought: a\nAction Input: b",
        "Thought: a\nObservation: b", "Thought: a\n```", "think[]", "Action: think[]", "think[a", "think[a] so",
        "Action: search", "Finish[]",
    ],
)  # fmt: skip
def test_what_is_more_or_less_than_a_thought_is_still_a_problem(text: str) -> None:
    parsed = MUSING.parse(text, TOOLS)

    assert (parsed.calls, parsed.answer) == ((), None)
    assert parsed.problem is not None


def test_a_registered_tool_named_think_is_a_tool() -> None:
    assert MUSING.parse("Action: think[x]", (spec("think", "a"),)) == called(
        "think", {"a": "x"}
    )


def test_react_without_tools_asks_for_an_answer_only() -> None:
    parsed = REACT.parse("hm", ())

    assert parsed.problem is not None
    assert "tool" not in parsed.problem
    assert parsed.thought == "hm"


def test_names_that_differ_only_in_case_are_distinguished() -> None:
    pair = (spec("get", "a"), spec("GET", "b"))

    assert REACT.parse("Action: GET[x]", pair) == called("GET", {"b": "x"})
    assert REACT.parse("Action: Get[x]", pair) == called("Get", {"input": "x"})


def test_a_registered_tool_named_finish_is_a_tool() -> None:
    assert REACT.parse("Action: finish[x]", (spec("finish", "a"),)) == called(
        "finish", {"a": "x"}
    )


def test_a_tool_of_the_library_will_do_as_a_signature() -> None:
    @tool(effect="read")
    def double(number: int | None) -> int:
        """Twice the number."""
        return 2 * (number or 0)

    assert REACT.parse("Action: double[4]", [double]) == called("double", {"number": 4})
    assert JSON.parse('{"action": "double", "action_input": "4"}', [double]) == called(
        "double", {"number": 4}
    )


def test_a_conversation_that_begins_with_a_call_has_that_tool_called() -> None:
    asked = Message("assistant", "", (ToolCall("now", {}, "1"),))

    assert find_called_tools(
        Conversation([asked, Message("tool", "noon", call_id="1")])
    ) == {"now"}


@pytest.mark.parametrize("length", [129, 257, 100_000])
def test_a_word_that_is_too_long_for_a_name_is_none(length: int) -> None:
    word = "n" * length
    parsed = (
        REACT.parse(f"Action: {word}[x]", TOOLS),
        JSON.parse(f'{{"action": "{word}", "action_input": "x"}}', TOOLS),
    )

    assert [(reply.calls, reply.problem is None) for reply in parsed] == [
        ((), False)
    ] * 2


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            {
                "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
                "required": ["a"],
            },
            "a: string, b?: integer",
        ),
        (
            {"properties": {"a": {"enum": ["x", 1, None]}}, "required": ["a"]},
            "a: x|1|null",
        ),
        ({}, ""),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, None),
        ({"properties": {"a": {"type": "array"}}}, None),
        ({"properties": {"a": True}}, None),
        ({"properties": ["a"]}, None),
        ({"properties": {}, "required": "a"}, None),
    ],
)
def test_parameters_are_written_short_unless_that_loses_something(
    schema: dict[str, Any], told: str | None
) -> None:
    assert format_parameters(schema) == (json.dumps(schema) if told is None else told)


def test_a_call_is_complete_unless_more_text_could_have_changed_it() -> None:
    texts = {
        "Action: search[a]": True,
        'Action: search\nAction Input: {"query": "a"}': True,
        "Action: search\nAction Input: ```\na\n```": True,
        "Action: search\nAction Input: a\nThought: b": True,
        "Action: search\nAction Input: a\nObservation: b": True,
        "Action: search\nAction Input: a": False,
        "Action: now": False,
    }

    assert {text: REACT.parse(text, TOOLS).complete for text in texts} == texts


# ---------------------------------------------------------------------------------------------------- recordings


def tools_of(row: Any) -> tuple[ToolSpec, ...]:
    names = {
        (row["robust"]["action"] or "search").lower(),
        "search",
        "lookup",
        "click",
        "think",
    }
    return tuple(spec(name, "input") for name in sorted(names))


def is_read_rightly(row: Any) -> bool:
    action, final, given = (
        row["robust"][key] for key in ("action", "final", "action_input")
    )
    parsed = REACT.parse(
        (row.get("prompt_suffix") or "") + row["completion"], tools_of(row)
    )
    if action is None:
        return (
            not parsed.calls
            and parsed.answer == final
            and (parsed.problem is None) == (final is not None)
        )
    arguments = given if isinstance(given, dict) else {"input": given.strip()}
    return (
        parsed.calls == (ToolCall(action.lower(), arguments),)
        and parsed.answer is parsed.problem is None
    )


@pytest.mark.parametrize(
    ("name", "at_least"),
    [
        ("react_text_easy.jsonl", 1058),
        ("react_text_hard.jsonl", 29),
        ("react_text_issue_threads.jsonl", 5),
    ],
)
def test_recorded_replies_are_read_rightly(name: str, at_least: int) -> None:
    wrong = [row["id"] for row in rows(name) if not is_read_rightly(row)]

    assert len(rows(name)) - len(wrong) >= at_least, wrong


def test_no_part_of_a_recorded_reply_is_read_as_another_call() -> None:
    for row in [
        *rows("react_text_hard.jsonl"),
        *rows("react_text_issue_threads.jsonl"),
    ]:
        text = (row.get("prompt_suffix") or "") + row["completion"]
        whole = REACT.parse(text, tools_of(row))
        for end in range(0, len(text), 7):
            part = REACT.parse(text[:end], tools_of(row))
            assert not part.calls or part.calls == whole.calls or not part.complete, (
                row["id"],
                text[:end],
            )


# ---------------------------------------------------------------------------------------------------- any text

WORDS = st.sampled_from(
    [
        "Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "FINAL_ANSWER:", "Action 3:", "**",
        "search", "[", "]", "{", "}", '"', "'", ":", ",", "\\", "```", "\n", "\r", "\u2028", " ", "Finish", "now",
        "STEP_RESULT:", "think[", "None", "1",
        '{"query": "a"}', '"action"', '"action_input"', "final_answer", "write_file",
        '{"action": "now", "action_input": {}}',
    ]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=30).map("".join) | st.text()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@given(text=TEXTS)
def test_any_text_is_a_call_an_answer_or_a_problem(dialect: Dialect, text: str) -> None:
    parsed = dialect.parse(text, TOOLS)

    assert [
        bool(parsed.calls),
        parsed.answer is not None,
        parsed.problem is not None,
    ].count(True) == 1
    assert len(parsed.calls) <= 1
    assert parsed.answer is None or parsed.answer.strip()
    json.dumps(
        [dict(call.arguments) for call in parsed.calls], allow_nan=False
    ).encode()


@given(text=TEXTS)
def test_any_text_is_a_thought_at_most_where_thoughts_may_stand_alone(
    text: str,
) -> None:
    parsed, strict = MUSING.parse(text, TOOLS), NUMBERED.parse(text, TOOLS)
    thinks = not parsed.calls and parsed.answer is parsed.problem is None

    assert parsed == strict or (thinks and parsed.thought != "")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@given(result=TEXTS)
def test_no_tool_result_is_read_as_a_call_or_an_answer(
    dialect: Dialect, result: str
) -> None:
    asked = Message("assistant", "", (ToolCall("now", {}, "1"),))
    told = dialect.render(
        Request(
            Conversation(
                [Message("user", "q"), asked, Message("tool", result, call_id="1")]
            ),
            TOOLS,
        )
    )
    observation = told.conversation.messages[-1].content
    echoes = [
        observation,
        observation.removeprefix("Observation: "),
        *observation.splitlines(),
    ]

    assert [
        parsed
        for text in echoes
        for parsed in [dialect.parse(text, TOOLS)]
        if not parsed.problem
    ] == []


# ---------------------------------------------------------------------------------------------------- hostile text


def bench() -> Any:
    path = Path(__file__).parents[2] / "benchmarks" / "bench_parsers.py"
    loader = importlib.util.spec_from_file_location("bench_parsers", path)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    return module


BENCH = bench()


@pytest.mark.faults
@pytest.mark.parametrize("shape", BENCH.SHAPES)
@pytest.mark.parametrize(
    "dialect",
    [REACT, JSON, MUSING, XmlDialect()],
    ids=["react", "json", "thoughts alone", "xml"],
)
def test_hostile_text_of_256_kb_takes_less_than_50_ms(
    dialect: Dialect, shape: str
) -> None:
    text = BENCH.hostile(shape)

    assert quickest(lambda: dialect.parse(text, TOOLS), 0.050) < 0.050


@pytest.mark.parametrize(
    "unit",
    [
        "Step result:\n",
        "Thought: result\n",
        "**step_result\n",
        "think[",
        "think[]",
        "```\n",
    ],
)
def test_hostile_text_of_256_kb_without_an_action_takes_less_than_50_ms(
    unit: str,
) -> None:
    text = ("Step result" + unit * (262_144 // len(unit)))[:262_144]

    assert quickest(lambda: MUSING.parse(text, TOOLS), 0.050) < 0.050
    assert quickest(lambda: MUSING.parse(text[11:], TOOLS), 0.050) < 0.050


# ---------------------------------------------------------------------------------------------------- JSON, read


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ('{"action": "search", "action_input": {"query": "a"}}', called("search", {"query": "a"})),
        ('{"thought": "t", "action": "Search", "action_input": {"query": "a"}}', called("search", {"query": "a"}, "t")),
        ('{"action": "search", "action_input": "a"}', called("search", {"query": "a"})),
        ('{"action": "now"}', called("now", {})),
        ('{"action": "now", "action_input": null}', called("now", {})),
        ('{"action": "fly", "action_input": {"to": "x"}}', called("fly", {"to": "x"})),
        ('{"action": "final_answer", "action_input": "42"}', answered("42")),
        ('{"thought": null, "action": "Final_Answer", "answer": " 42 "}', answered("42")),
        ('```json\n{"action": "final_answer", "answer": "42"}\n```', answered("42")),
        ('I am done. {"action": "final_answer", "answer": "42"} Bye.', answered("42")),
        ("{'action': 'final_answer', 'answer': 'it is 42'}", answered("it is 42")),
        ('{"action": "search", "action_input": {"query": "{\\"action\\": \\"now\\"}"}}',
         called("search", {"query": '{"action": "now"}'})),
    ],
)  # fmt: skip
def test_json_reads(text: str, parsed: Parsed) -> None:
    assert JSON.parse(text, TOOLS) == parsed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a JSON object"),
        ("42", "not a JSON object"),
        ('"now"', "not a JSON object"),
        ('{"action": "now"', "never closed"),
        ('{"outer": {"action": "now"}', "never closed"),
        ('{"action": "now", "action": "search"}', "twice"),
        ('{"action": "square", "action_input": {"number": NaN}}', "NaN"),
        ('{"action": "now"} {"action": "now"}', "more than one"),
        ('Write `{"action": "now"}` to call.', "only an example"),
        ("{}", "`action` must be there"),
        ('{"action": 1}', "must be strings"),
        ('{"thought": ["t"], "action": "now"}', "must be strings"),
        ('{"observation": "x"}', "'observation'"),
        ('{"action": "now", "tool": "x"}', "'tool'"),
        ('{"action": "now", "answer": "x"}', "`action` must be the name"),
        ('{"action": "a sentence, really"}', "`action` must be the name"),
        ('{"action": "now", "action_input": [1]}', "must be a JSON object"),
        ('{"action": "search"}', "has no input"),
        (
            '{"action": "search", "action_input": "{\\"query\\": 1} x"}',
            "text behind the arguments",
        ),
        ('{"action": "write_file", "action_input": "a"}', "parameters of write_file"),
        ('{"action": "final_answer"}', "must be a string"),
        ('{"action": "final_answer", "action_input": ""}', "not empty"),
        ('{"action": "final_answer", "action_input": {"a": 1}}', "must be a string"),
        (
            '{"action": "final_answer", "action_input": "a", "answer": "b"}',
            "must be a string",
        ),
    ],
)
def test_json_gives_a_problem_that_says_what_to_do(text: str, problem: str) -> None:
    parsed = JSON.parse(text, TOOLS)

    assert (parsed.calls, parsed.answer) == ((), None)
    assert problem in (parsed.problem or "")
    assert "Reply with one JSON object" in (parsed.problem or "")


# ---------------------------------------------------------------------------------------------------- written as text

CALLS = (ToolCall("search", {"query": "ü"}, "1"), ToolCall("now", {}, "2"))
TALK = Conversation(
    [
        Message("system", "Be brief."),
        Message("user", "First?"),
        Message("assistant", "Done.", origin="model"),
        Message("user", "Second?"),
        Message("assistant", "I look.", CALLS, origin="model"),
        Message("tool", "noon", call_id="2", origin="tool"),
        Message("tool", "Action: now\nfound", call_id="1", origin="tool"),
        Message("user", "Go on.", origin="runtime"),
        Message("assistant", "hm", origin="model"),
        Message("user", "That cannot be read.", origin="runtime"),
    ]
)


def test_react_writes_calls_results_and_answers_as_turns() -> None:
    rendered = REACT.render(
        Request(TALK, TOOLS, sampling=Sampling(temperature=0.5, stop=("END",)))
    )

    assert roles_and_contents(rendered)[1:] == [
        ("user", "First?"),
        ("assistant", "Final Answer: Done."),
        ("user", "Second?"),
        ("assistant", 'Thought: I look.\nAction: search\nAction Input: {"query": "ü"}'),
        ("user", "Observation: > Action: now\nfound"),
        ("assistant", "Action: now\nAction Input: {}"),
        ("user", "Observation: noon\n\nGo on."),
        ("assistant", "hm"),
        ("user", "That cannot be read."),
    ]
    assert rendered.sampling == Sampling(
        temperature=0.5, stop=("END", "\nObservation:")
    )
    assert (rendered.tools, rendered.schema) == ((), None)
    role, system = roles_and_contents(rendered)[0]
    assert role == "system"
    assert system.startswith(
        "Be brief.\n\nYou can use these tools:\n- search: does search\n"
    )
    assert all(t.name in system and json.dumps(t.schema) in system for t in TOOLS)


def test_bracket_form_writes_calls_and_answers_as_the_paper_does() -> None:
    rendered = BRACKET.render(Request(TALK, TOOLS))

    assert roles_and_contents(rendered)[1:8] == [
        ("user", "First?"),
        ("assistant", "Action: Finish[Done.]"),
        ("user", "Second?"),
        ("assistant", "Thought: I look.\nAction: search[ü]"),
        ("user", "Observation: > Action: now\nfound"),
        ("assistant", "Action: now[]"),
        ("user", "Observation: noon\n\nGo on."),
    ]
    assert rendered.sampling.stop == ("\nObservation:",)


def test_the_numbered_form_counts_steps_and_stops_before_the_next_observation() -> None:
    rendered = NUMBERED.render(Request(TALK, TOOLS, sampling=Sampling(stop=("END",))))

    assert roles_and_contents(rendered)[1:] == [
        ("user", "First?"),
        ("assistant", "Action 1: Finish[Done.]"),
        ("user", "Second?"),
        ("assistant", "Thought 1: I look.\nAction 1: search[ü]"),
        ("user", "Observation 1: > Action: now\nfound"),
        ("assistant", "Action 2: now[]"),
        ("user", "Observation 2: noon\n\nGo on."),
        ("assistant", "hm"),
        ("user", "That cannot be read."),
    ]
    assert rendered.sampling.stop == ("END", "\nObservation 3:")
    asked_again = NUMBERED.render(
        Request(TALK.assistant("It is noon.").user("Third?"), TOOLS)
    )
    assert roles_and_contents(asked_again)[-2:] == [
        ("assistant", "Action 3: Finish[It is noon.]"),
        ("user", "Third?"),
    ]
    assert asked_again.sampling.stop == ("\nObservation 1:",)


def test_the_bracket_forms_tell_tools_with_what_stands_in_their_brackets() -> None:
    choice = ToolSpec(
        "turn",
        "Turns.",
        {"type": "object", "properties": {"to": {"enum": ["left", "right"]}}},
    )
    for form in (BRACKET, NUMBERED):
        system = roles_and_contents(
            form.render(Request(Conversation.of("q"), (*TOOLS[:4], choice)))
        )[0][1]

        assert system.startswith(
            "You can use these tools:\n"
            "- search[query]: does search\n"
            f"- write_file[JSON object, as JSON schema: {json.dumps(WRITE.schema)}]: does write_file\n"
            "- now[]: does now\n"
            "- square[number]: does square\n"
            f"- turn[to, as JSON schema: {json.dumps(choice.schema)}]: Turns.\n\n"
        )
        assert "Finish[the answer]" in system
        assert "Action Input" not in system


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (ToolCall("search", {"query": "a [b] c"}), "search[a [b] c]"),
        (ToolCall("search", {"query": '"a"'}), 'search["a"]'),
        (ToolCall("search", {"query": "2024"}), "search[2024]"),
        (ToolCall("square", {"number": 3}), "square[3]"),
        (ToolCall("now", {}), "now[]"),
        (ToolCall("list", {}), "list[]"),
        (ToolCall("search", {}), "search[{}]"),
        (ToolCall("list", {"folder": "none"}), 'list[{"folder": "none"}]'),
        (ToolCall("search", {"query": ""}), 'search[{"query": ""}]'),
        (ToolCall("search", {"query": "a ] b"}), 'search[{"query": "a ] b"}]'),
        (ToolCall("search", {"query": " a"}), 'search[{"query": " a"}]'),
        (ToolCall("search", {"query": "{a}"}), 'search[{"query": "{a}"}]'),
        (
            ToolCall("search", {"query": "a\nThought: b]"}),
            'search[{"query": "a\\nThought: b]"}]',
        ),
        (
            ToolCall("search", {"query": "a\u2028Thought: b"}),
            'search[{"query": "a\\u2028Thought: b"}]',
        ),
        (ToolCall("search", {"query": 7}), 'search[{"query": 7}]'),
        (ToolCall("square", {"number": "3"}), 'square[{"number": "3"}]'),
        (ToolCall("search", {"q": "a"}), 'search[{"q": "a"}]'),
        (
            ToolCall("write_file", {"path": "p", "text": "]"}),
            'write_file[{"path": "p", "text": "]"}]',
        ),
        (ToolCall("write_file", {"path": "p"}), 'write_file[{"path": "p"}]'),
        (ToolCall("fly", {"input": "high"}), "fly[high]"),
    ],
)
def test_the_bracket_forms_tell_an_input_so_that_it_is_read_back_as_the_same(
    call: ToolCall, told: str
) -> None:
    asked = Message("assistant", "", (dataclasses.replace(call, id="1"),))
    talk = Conversation(
        [Message("user", "q"), asked, Message("tool", "r", call_id="1")]
    )

    assert roles_and_contents(BRACKET.render(Request(talk, TOOLS)))[2] == (
        "assistant",
        f"Action: {told}",
    )
    assert BRACKET.parse(f"Action: {told}", TOOLS).calls == (call,)


TEXT_INPUTS = st.dictionaries(
    st.sampled_from(["query", "path", "text"]), TEXTS, max_size=2
)


@given(
    arguments=TEXT_INPUTS,
    name=st.sampled_from(["search", "write_file", "now", "list"]),
    answer=TEXTS,
)
def test_any_call_is_written_so_that_it_is_read_back_unchanged(
    arguments: dict[str, Any], name: str, answer: str
) -> None:
    call = ToolCall(name, arguments, "1")
    talk = Conversation(
        [
            Message("user", "q"),
            Message("assistant", "", (call,)),
            Message("tool", "r", call_id="1"),
        ]
    )
    for form in (REACT, BRACKET, NUMBERED):
        told = roles_and_contents(
            form.render(Request(talk.assistant(answer).user("And?"), TOOLS))
        )

        assert form.parse(told[2][1], TOOLS).calls == (ToolCall(name, arguments),)
        assert told[4][1] in (
            f"Final Answer: {answer}",
            f"Action: Finish[{answer}]",
            f"Action 2: Finish[{answer}]",
        )
        if told[4][1].startswith("Action"):
            assert form.parse(told[4][1], TOOLS).answer == answer


def test_answer_that_does_not_fit_in_brackets_follows_its_marker() -> None:
    talk = Conversation.of("q").assistant("a ] b", origin="model").user("And?")

    assert roles_and_contents(NUMBERED.render(Request(talk, TOOLS)))[2] == (
        "assistant",
        "Final Answer: a ] b",
    )


def test_thoughts_alone_are_written_as_thoughts() -> None:
    talk = TALK.add(
        Message("assistant", "I should\nsearch.", origin="model"),
        Message("user", "OK.", origin="runtime"),
        Message("assistant", "Action: search[", origin="model"),
        Message("user", "Never closed.", origin="runtime"),
    )
    told = [
        content
        for _, content in roles_and_contents(MUSING.render(Request(talk, TOOLS)))
    ]

    assert told[-4:] == [
        "Thought 3: I should\nsearch.",
        "OK.",
        "Action: search[",
        "Never closed.",
    ]
    assert "A reply may also be a thought alone" in told[0]
    assert (
        "thought alone"
        not in roles_and_contents(NUMBERED.render(Request(talk, TOOLS)))[0][1]
    )
    assert roles_and_contents(NUMBERED.render(Request(talk, TOOLS)))[-4] == (
        "assistant",
        "I should\nsearch.",
    )


def test_the_prompts_of_each_form_can_be_overridden_in_part() -> None:
    mine = PromptSet(answer_now="Antworte jetzt.", how_to_answer="`Ende[...]`")
    for form in ("input", "bracket", "numbered"):
        plain, dialect = ReActDialect(form), ReActDialect(form, mine)  # type: ignore[arg-type]
        again = ReActDialect(form, dialect.prompts)  # type: ignore[arg-type]

        assert dialect.prompts.texts == {**plain.prompts.texts, **mine.texts}
        assert again == dialect
        assert "`Ende[...]`" in (dialect.parse("hm", TOOLS).problem or "")
        assert (
            plain.name
            == dialect.name
            == ("react" if form == "input" else f"react-{form}")
        )
    with pytest.raises(ConfigError, match="there is no prompt 'instruction'"):
        ReActDialect("numbered", PromptSet(instruction="x"))
    with pytest.raises(
        ConfigError, match=r"prompt 'instructions': the placeholder {tools} is missing"
    ):
        ReActDialect("numbered", PromptSet(instructions="x"))
    with pytest.raises(
        ConfigError,
        match="form: there is no 'plain'; use 'input', 'bracket', 'numbered'",
    ):
        ReActDialect("plain")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [BRACKET, NUMBERED], ids=lambda form: form.name)
def test_the_bracket_forms_ask_for_the_answer_in_their_own_way(
    form: ReActDialect,
) -> None:
    schema = OutputSchema("x", {"type": "array"})

    now = roles_and_contents(form.render(Request(Conversation.of("q"), TOOLS, "none")))[
        -1
    ]
    assert now == (
        "user",
        "q\n\nNo tool can be used now. Write `Action: Finish[your answer]`.",
    )
    assert roles_and_contents(
        form.render(Request(Conversation.of("q"), TOOLS, schema=schema))
    )[0][1].endswith(
        "The answer must be JSON that fits the schema below. Write it behind `Final Answer:`, in place of "
        '`Action: Finish[...]`.\n{"type": "array"}'
    )


def test_json_writes_calls_results_and_answers_as_objects() -> None:
    rendered = JSON.render(Request(TALK, TOOLS))

    assert roles_and_contents(rendered)[2:8] == [
        ("assistant", '{"action": "final_answer", "action_input": "Done."}'),
        ("user", "Second?"),
        (
            "assistant",
            '{"thought": "I look.", "action": "search", "action_input": {"query": "ü"}}',
        ),
        ("user", '{"observation": "Action: now\\nfound"}'),
        ("assistant", '{"action": "now", "action_input": {}}'),
        ("user", '{"observation": "noon"}\n\nGo on.'),
    ]
    assert (rendered.tools, rendered.sampling) == ((), Sampling())


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_dialect_reads_back_what_it_writes(dialect: Dialect) -> None:
    turns = [
        text
        for role, text in roles_and_contents(dialect.render(Request(TALK, TOOLS)))
        if role == "assistant"
    ]

    assert dialect.parse(turns[0], TOOLS) == answered("Done.")
    assert dialect.parse(turns[1], TOOLS) == called("search", {"query": "ü"}, "I look.")
    assert dialect.parse(turns[2], TOOLS) == called("now", {})


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_request_without_tools_only_has_its_turns_written(dialect: Dialect) -> None:
    request = Request(
        TALK,
        (),
        sampling=Sampling(max_tokens=5),
        schema=OutputSchema("x", {"type": "string"}),
    )
    rendered = dialect.render(request)

    assert roles_and_contents(rendered)[0] == ("system", "Be brief.")
    assert dataclasses.replace(rendered, conversation=TALK) == request


@pytest.mark.parametrize(
    "dialect", [*DIALECTS, XmlDialect()], ids=lambda dialect: dialect.name
)
def test_images_stay_with_the_text_of_merged_user_turns(
    dialect: Dialect,
) -> None:
    one, two = (
        Attachment.image(f"https://example.org/{name}.png", media_type="image/png")
        for name in ("1", "2")
    )
    first, second = (
        Message("user", "One?", attachments=(one,)),
        Message("user", "Two?", attachments=(two,)),
    )
    told = dialect.render(
        Request(Conversation([first, second]), TOOLS)
    ).conversation.messages[-1]

    assert told == Message("user", "One?\n\nTwo?", attachments=(one, two))


def test_react_asks_for_the_answer_where_no_tool_may_be_called() -> None:
    rendered = REACT.render(Request(Conversation.of("q"), TOOLS, "none"))

    assert roles_and_contents(rendered)[-1] == (
        "user",
        "q\n\nNo tool can be used now. Write `Final Answer:` and your answer.",
    )


def test_react_describes_the_schema_of_the_answer() -> None:
    rendered = REACT.render(
        Request(
            Conversation.of("q"), TOOLS, schema=OutputSchema("x", {"type": "array"})
        )
    )

    assert roles_and_contents(rendered)[0][1].endswith(
        'must be JSON that fits this schema: {"type": "array"}'
    )
    assert rendered.schema is None


def test_json_holds_the_reply_to_one_branch_for_each_tool_and_one_for_the_answer() -> (
    None
):
    rendered = JSON.render(Request(Conversation.of("q"), (SEARCH,)))

    assert rendered.schema is not None
    assert rendered.schema.schema == {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "thought": {"type": "string"},
                    "action": {"const": "search"},
                    "action_input": {
                        "type": "object",
                        "properties": {"query": {"type": "string"}},
                        "required": ["query"],
                        "additionalProperties": False,
                    },
                },
                "required": ["action", "action_input"],
                "additionalProperties": False,
            },
            answer_branch(),
        ]
    }


def answer_branch() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "action": {"const": "final_answer"},
            "action_input": {"type": "string", "minLength": 1},
        },
        "required": ["action", "action_input"],
        "additionalProperties": False,
    }


def test_json_leaves_the_answer_alone_where_no_tool_may_be_called() -> None:
    rendered = JSON.render(Request(Conversation.of("q"), TOOLS, "none"))

    assert rendered.schema is not None
    assert rendered.schema.schema == answer_branch()


def test_json_without_repeats_takes_away_what_was_called_since_the_user_spoke() -> None:
    def branches(conversation: Conversation, dialect: JsonDialect) -> list[str]:
        rendered = dialect.render(Request(conversation, (SEARCH, NOW)))
        assert rendered.schema is not None
        schema: Any = rendered.schema.schema
        return [
            branch["properties"]["action"]["const"]
            for branch in schema.get("anyOf", [schema])
        ]

    once = Conversation(
        [
            Message("user", "q"),
            Message("assistant", "", CALLS[:1]),
            Message("tool", "r", call_id="1"),
        ]
    )
    both = once.add(
        Message("assistant", "", CALLS[1:]), Message("tool", "r", call_id="2")
    )
    nudged = both.user("Go on.", origin="runtime")
    asked_again = both.assistant("a").user("And now?", origin="caller")

    assert branches(once, JsonDialect()) == ["search", "now", "final_answer"]
    assert branches(once, JsonDialect(repeats=False)) == ["now", "final_answer"]
    assert branches(both, JsonDialect(repeats=False)) == ["final_answer"]
    assert branches(nudged, JsonDialect(repeats=False)) == ["final_answer"]
    assert branches(asked_again, JsonDialect(repeats=False)) == [
        "search",
        "now",
        "final_answer",
    ]


def test_json_moves_the_definitions_of_a_tools_schema_where_they_are_found() -> None:
    point = {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
    }
    schema = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Point"}},
        "required": ["at"],
        "$defs": {"Point": point},
    }
    draw, paint = ToolSpec("draw", "", schema), ToolSpec("paint it", "", schema)
    rendered = JSON.render(Request(Conversation.of("q"), (draw, paint)))
    assert rendered.schema is not None
    validator = jsonschema.Draft202012Validator(rendered.schema.schema)

    assert set(rendered.schema.schema["$defs"]) == {"draw.Point", "paint_it.Point"}  # type: ignore[arg-type]
    assert validator.is_valid({"action": "draw", "action_input": {"at": {"x": 1}}})
    assert validator.is_valid({"action": "final_answer", "action_input": "a"})
    assert not validator.is_valid(
        {"action": "paint it", "action_input": {"at": {"x": "1"}}}
    )
    assert not validator.is_valid(
        {"action": "draw", "action_input": {"at": {"x": 1}, "more": 1}}
    )


def test_prompts_can_be_overridden() -> None:
    mine = REACT.prompts.override(answer_now="Antworte jetzt.")

    assert roles_and_contents(
        ReActDialect(prompts=mine).render(Request(Conversation.of("q"), TOOLS, "none"))
    )[-1] == (
        "user",
        "q\n\nAntworte jetzt.",
    )
    brief = JSON.prompts.override(instructions="Tools: {tools}")
    assert roles_and_contents(
        JsonDialect(prompts=brief).render(Request(Conversation.of("q"), (NOW,)))
    )[0][1].startswith("Tools: - now")


def test_what_a_schema_refers_to_within_itself_is_found_in_the_schema_of_a_reply() -> (
    None
):
    place = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}  # fmt: skip
    at = {"at": {"$ref": "#/definitions/Place"}}
    old = {"type": "object", "properties": at, "definitions": {"Place": place}}
    tree = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}}  # fmt: skip
    tools = [ToolSpec("go", "Go.", old), ToolSpec("walk", "Walk.", tree)]
    is_valid = jsonschema.Draft202012Validator(build_reply_schema(tools)).is_valid

    assert is_valid({"action": "go", "action_input": {"at": {"name": "Oslo"}}})
    assert not is_valid({"action": "go", "action_input": {"at": {}}})
    assert is_valid({"action": "walk", "action_input": {"next": {"n": 1}}})
    assert not is_valid({"action": "walk", "action_input": {"next": {"n": "x"}}})
