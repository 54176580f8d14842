"""The XML dialect: calls in `<tool_call>` tags, what is not a call, and how a conversation is written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import roles_and_contents
from loopwright.messages import Conversation, Message, ToolCall, ToolSpec
from loopwright.prompts import PromptSet
from loopwright.providers import OutputSchema, Request, Sampling
from loopwright.providers.dialects import Parsed, XmlDialect
from recordings import MISSING, fixture


def spec(name: str, kind: str = "string", *parameters: str) -> ToolSpec:
    properties: dict[str, Any] = {parameter: {"type": kind} for parameter in parameters}
    return ToolSpec(
        name,
        f"does {name}",
        {"type": "object", "properties": properties, "required": list(parameters)},
    )


SEARCH, WRITE = (
    spec("search", "string", "query"),
    spec("write_file", "string", "path", "text"),
)
SQUARE, NOW = spec("square", "integer", "number"), spec("now")
TOOLS = (SEARCH, WRITE, SQUARE, NOW)
XML = XmlDialect()
SEARCH_A = ToolCall("search", {"query": "a"})
BLOCK = '<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>'


def called(*calls: ToolCall, thought: str = "", flags: tuple[str, ...] = ()) -> Parsed:
    return Parsed(thought, calls, None, None, flags)


def answered(answer: str) -> Parsed:
    return Parsed("", (), answer, None)


# ---------------------------------------------------------------------------------------------------- read


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (BLOCK, called(SEARCH_A)),
        (f"I look.\n\n{BLOCK}\n", called(SEARCH_A, thought="I look.")),
        (f"{BLOCK}\n{BLOCK}", called(SEARCH_A, SEARCH_A)),
        (f"One.\n{BLOCK}\nTwo.\n{BLOCK}", called(SEARCH_A, SEARCH_A, thought="One.\nTwo.")),
        # keys in other words, and calls that are wrapped
        ('<tool_call>{"tool": "search", "args": {"query": "a"}}</tool_call>', called(SEARCH_A)),
        ('<tool_call>{"args": {"query": "a"}, "tool": "Search"}</tool_call>', called(SEARCH_A)),
        ('<tool_call>{"function": "search", "parameters": {"query": "a"}}</tool_call>', called(SEARCH_A)),
        ('<tool_call>{"tool_name": "search", "input": {"query": "a"}}</tool_call>', called(SEARCH_A)),
        (
            '<tool_call>{"id": "1", "type": "function", "function": {"name": "search", '
            '"arguments": "{\\"query\\": \\"a\\"}"}}</tool_call>',
            called(SEARCH_A),
        ),
        ('<tool_call>{"name": "search", "arguments": "a"}</tool_call>', called(SEARCH_A)),
        ('<tool_call>{"name": "now"}</tool_call>', called(ToolCall("now", {}))),
        ('<tool_call>{"name": "now", "arguments": null}</tool_call>', called(ToolCall("now", {}))),
        ("<tool_call>{'name': 'search', 'arguments': {'query': 'it\\'s'}}</tool_call>",
         called(ToolCall("search", {"query": "it's"}))),
        # several calls in one block
        ('<tool_call>{"tool":"now","args":{}} {"tool":"search","args":{"query":"a"}}</tool_call>',
         called(ToolCall("now", {}), SEARCH_A)),
        ('<tool_call>\n{"name": "now"},\n{"name": "now"}\n</tool_call>',
         called(ToolCall("now", {}), ToolCall("now", {}))),
        ('<tool_call>[{"name": "now"}, {"name": "search", "arguments": {"query": "a"}}]</tool_call>',
         called(ToolCall("now", {}), SEARCH_A)),
        ('<tool_call>\n```json\n{"name": "now"}\n```\n</tool_call>', called(ToolCall("now", {}))),
        # tags in other spellings
        ('<TOOL_CALL>{"name": "now"}</Tool_Call>', called(ToolCall("now", {}))),
        ('< tool_call >{"name": "now"}< / tool_call >', called(ToolCall("now", {}))),
        ('<tool_call id="1" tool="x">{"name": "now"}</tool_call>', called(ToolCall("now", {}))),
        # what is in a string is text
        (
            '<tool_call>{"name": "search", "arguments": {"query": "</tool_call><tool_call>{\\"name\\": \\"now\\"}"}}'
            "</tool_call>",
            called(ToolCall("search", {"query": '</tool_call><tool_call>{"name": "now"}'})),
        ),
        (
            '<tool_call>{"name": "search", "arguments": {"query": "```"}}</tool_call>\n' + BLOCK,
            called(ToolCall("search", {"query": "```"}), SEARCH_A),
        ),
        (
            '<tool_call>{"name": "search", "arguments": {"query": {"name": "now", "arguments": {}}}}</tool_call>',
            called(ToolCall("search", {"query": {"name": "now", "arguments": {}}})),
        ),
        # Qwen's form
        (
            "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n<parameter=text>\n12\n"
            "</tool_call>\n</parameter>\n</function>\n</tool_call>",
            called(ToolCall("write_file", {"path": "a.txt", "text": "12\n</tool_call>"})),
        ),
        ("<tool_call><function=square><parameter=number>12</parameter></function></tool_call>",
         called(ToolCall("square", {"number": 12}))),
        ("<tool_call><function=search><parameter=query></parameter></function></tool_call>",
         called(ToolCall("search", {"query": ""}))),
        ("<tool_call><function=fly><parameter=to>3</parameter></function></tool_call>",
         called(ToolCall("fly", {"to": "3"}))),
        ("<tool_call><function=now></function></tool_call>", called(ToolCall("now", {}))),
        # a tool that is not there goes to the registry, which knows near names
        ('<tool_call>{"name": "serch", "arguments": {"query": "a"}}</tool_call>',
         called(ToolCall("serch", {"query": "a"}))),
        # what is dropped is flagged
        (f"{BLOCK}\nAnd so on.", called(SEARCH_A, flags=("trailing_text",))),
        (f"{BLOCK}\n```\n<think>", called(SEARCH_A, flags=("trailing_text",))),
        # calls stand side by side, or behind words
        (f"I look. {BLOCK}", called(SEARCH_A, thought="I look.")),
        (f"I look: {BLOCK}, {BLOCK};<tool_response>", called(SEARCH_A, SEARCH_A, thought="I look:\n,",
                                                           flags=("invented_observation",))),
        (f"I look.\n\n  {BLOCK}\n    {BLOCK}", called(SEARCH_A, SEARCH_A, thought="I look.")),
        (f"    {BLOCK}", called(SEARCH_A)),
        (f"- I look:\n    {BLOCK}", called(SEARCH_A, thought="- I look:")),
        (f"a <b>\n{BLOCK}", called(SEARCH_A, thought="a <b>")),
        (f"A <pre> and a --> and\n{BLOCK}", called(SEARCH_A, thought="A <pre> and a --> and")),
        (f"One.\n<think>Hm.</think>\n{BLOCK}", called(SEARCH_A, thought="One.\n<think>Hm.</think>")),
        (f"```\n<think>\n```\n{BLOCK}", called(SEARCH_A, thought="```\n<think>\n```")),
        ('<tool_call>\n\n    {"name": "now"}\n    </tool_call>\n    <tool_call>{"name": "now"}</tool_call>',
         called(ToolCall("now", {}), ToolCall("now", {}))),
        ('<tool_call>\n\n    <function=now>\n    </function>\n    </tool_call>\n    ' + BLOCK,
         called(ToolCall("now", {}), SEARCH_A)),
        (f"`<think>`\n{BLOCK}", called(SEARCH_A, thought="`<think>`")),
        ('<tool_call>{"name": "search", "arguments": {"query": "<think>\\n\\n    (\\""}}</tool_call>\n' + BLOCK,
         called(ToolCall("search", {"query": '<think>\n\n    ("'}), SEARCH_A)),
        (f"{BLOCK}.\n", called(SEARCH_A)),
        (f"{BLOCK}\n<tool_response>b</tool_response>\nIt is b.", called(SEARCH_A, flags=("invented_observation",))),
        (f"{BLOCK}\n<TOOL_RESULT tool='search' status='ok'>b\n{BLOCK}",
         called(SEARCH_A, flags=("invented_observation",))),
        (f"{BLOCK}\n</tool_response>", called(SEARCH_A, flags=("invented_observation",))),
        (f"{BLOCK}\nSo:\n<tool_response>", called(SEARCH_A, flags=("trailing_text", "invented_observation"))),
        # code before a call is part of the thought
        (f"I use `search`:\n{BLOCK}", called(SEARCH_A, thought="I use `search`:")),
        (f"```\nx = 1\n```\n{BLOCK}", called(SEARCH_A, thought="```\nx = 1\n```")),
        (f"```a``` and ```b``` and\n{BLOCK}", called(SEARCH_A, thought="```a``` and ```b``` and")),
        (f"Not `<tool_call>`, but\n{BLOCK}", called(SEARCH_A, thought="Not `<tool_call>`, but")),
        (f"A lone ` here.\n\n{BLOCK}\n\nA lone ` there.",
         called(SEARCH_A, thought="A lone ` here.", flags=("trailing_text",))),
    ],
)  # fmt: skip
def test_calls_are_read(text: str, parsed: Parsed) -> None:
    assert XML.parse(text, TOOLS) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "It is 42.",
        "<html><body><p>Hi</p></body></html>",
        "a < b and c > d",
        'Here is package.json:\n```json\n{"name":"my-app","version":"1"}\n```',
        f"To call, write `{BLOCK}`",
        f"To call, write ``{BLOCK}`` once.",
        f"To call, write `<tool_call>\n{BLOCK[11:]}` over several lines.",
        f"For example:\n\n```xml\n{BLOCK}\n```",
        f"~~~\n{BLOCK}\n~~~\nis an example.",
        f"~~~\n```\n{BLOCK}\n```\n~~~\nis an example.",
        f"To call, write `{BLOCK}`{' `a`' * 6_000}",  # no tag behind all that code
        f"In ```{BLOCK}``` and ```{BLOCK}``` it is code.",
        "The `<tool_response>` tag holds a result.",
        "`<think>`",
        "```\n<think>a</think>\n```",
        "```\n<!-- a -->",
        # bare JSON that is no call of a registered tool
        '{"name": "Alice", "age": 3}',
        '{"name": "my-app", "arguments": {}}',
        '{"name": "now"}',
        "[1, 2]",
        "{}",
        '{"answer": {"name": "search", "arguments": {"query": "a"}}}',
        '[{"name": "search", "arguments": {"query": "a"}}, {"name": "Alice", "arguments": {}}]',
        '{"name": "Alice", "arguments": {',
        # bare JSON that is not the whole reply
        'I look: {"name": "search", "arguments": {"query": "a"}}',
        '{"name": "search", "arguments": {"query": "a"}}\nThat is how.',
        '```json\n{"name": "search", "arguments": {"query": "a"}}\n```\nThat is how.',
        'I would write:\n```json\n{"name": "search", "arguments": {"query": "a"}}\n```',
        "<function>now</function>",
        "<tool_calls>",
    ],
)
def test_anything_else_is_the_answer(text: str) -> None:
    assert XML.parse(f"\n{text} ", TOOLS) == answered(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "search", "arguments": {"query": "a"}}',
        ' {"tool": "Search", "args": {"query": "a"}}\n',
        "{'name': 'search', 'arguments': {'query': 'a'}}",
        '```json\n{"name": "search", "arguments": {"query": "a"}}\n```',
        '```\n{"function": {"name": "search", "arguments": {"query": "a"}}, "type": "function"}\n```',
        '[{"name": "search", "arguments": {"query": "a"}}]',
        '{"tool": "search", "input": "a"}',
    ],
)
def test_a_reply_of_nothing_but_the_json_of_a_tool_call_is_that_call(
    text: str,
) -> None:
    assert XML.parse(text, TOOLS) == called(SEARCH_A)
    assert not XML.parse(text, TOOLS).complete
    assert XML.parse(text, (NOW,)) == answered(text.strip())


def test_a_tool_without_arguments_may_be_named_alone_under_its_key() -> None:
    assert XML.parse('{"tool": "now"}', TOOLS) == called(ToolCall("now", {}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "The reply is empty."),
        (" \n", "The reply is empty."),
        ("<tool_call>", "`<tool_call>` is never closed."),
        ("I look.\n<tool_call", "`<tool_call>` is never closed."),
        ('<tool_call>{"name": "now"}', "`<tool_call>` is never closed."),
        (f'<tool_call>{{"name": "now"}}\n{BLOCK}', "`<tool_call>` is never closed."),
        ('<tool_call>{"name": "search", "arguments": {"query": "a', "a brace or a quote is never closed"),
        ('<tool_call>{"name": "search", "arguments": {"query": "a"}</tool_call>', "The JSON of a call cannot be read"),
        (f"{BLOCK}\n<tool_call>", "`<tool_call>` is never closed."),
        (f"<tool_call>{BLOCK}</tool_call>", "`<tool_call>` is never closed."),
        (f"{BLOCK}</tool_call>", "`</tool_call>` stands outside of `<tool_call>`."),
        ('{"name": "now", "arguments": {}}</tool_call>', "`</tool_call>` stands outside of `<tool_call>`."),
        ("<function=now></function>", "`<function=now>` stands outside of `<tool_call>`."),
        ("<tool_call></tool_call>", "something else than a call in JSON"),
        ("<tool_call>now</tool_call>", "something else than a call in JSON"),
        ("<tool_call>[]</tool_call>", "something else than a call in JSON"),
        ('<tool_call>[{"name": "now"}</tool_call>', "The `[` before a call is never closed."),
        ('<tool_call>{"name": "now"} and so on</tool_call>', "something else than a call in JSON"),
        ('<tool_call>```json\n{"name": "now"}</tool_call>', "a code fence is never closed"),
        ('<tool_call>{"name": "now", "name": "search"}</tool_call>', "a key is given twice"),
        ('<tool_call>{"name": "now", "tool": "search"}</tool_call>', "must have one `name` and one `arguments`"),
        ('<tool_call>{"name": "now", "args": {}, "arguments": {}}</tool_call>',
         "must have one `name` and one `arguments`"),
        ('<tool_call>{"arguments": {}}</tool_call>', "must have one `name` and one `arguments`"),
        ('<tool_call>{"name": 3}</tool_call>', "must be the name of one tool"),
        ('<tool_call>{"name": ""}</tool_call>', "must be the name of one tool"),
        ('<tool_call>{"name": "now", "version": "1"}</tool_call>', "a key that means nothing here: 'version'"),
        ('<tool_call>{"function": {"name": "now"}, "args": {}}</tool_call>', "a key that means nothing here: 'args'"),
        ('<tool_call>{"name": "square", "arguments": [1]}</tool_call>', "`arguments` of square must be a JSON object"),
        ('<tool_call>{"name": "square", "arguments": {"number": NaN}}</tool_call>', "NaN is not JSON"),
        ('<tool_call>{"name": "search"}</tool_call>', "The call of search has no input. Write a JSON object"),
        ('<tool_call>{"name": "search", "arguments": "{\\"query\\": 1} x"}</tool_call>', "text behind the arguments"),
        ('<tool_call>{"name": "write_file", "arguments": "a"}</tool_call>', "parameters of write_file: path"),
        ("<tool_call><function=now></tool_call>", "`<function=now>` is never closed."),
        ("<tool_call><function=search><parameter=query>a</function></tool_call>",
         "The parameter query of search is never"),
        (
            "<tool_call><function=search><parameter=query>a</parameter><parameter=query>b</parameter></function>"
            "</tool_call>",
            "The parameter query of search is given twice.",
        ),
        ("<tool_response>3</tool_response>\nIt is 3.", "Never write `<tool_response>` yourself"),
        (f"It is 3.\n<tool_result>\n{BLOCK}", "Never write `<tool_response>` yourself"),
        (f"```xml\n{BLOCK}\n```", "What stands in code is an example and no call."),
        (f"`{BLOCK}`", "What stands in code is an example and no call."),
        (f"```\n{BLOCK}", "A code fence is never closed, and there is a tag in it."),
        ('{"name": "search", "arguments": {"query": "a', "a brace or a quote is never closed"),
        ('```json\n{"name": "search", "arguments": {"query": "a"}}', "a code fence is never closed"),
        ('{"name": "search", "arguments": {"query": 1, "query": 2}}', "a key is given twice"),
        ('[{"name": "search", "arguments": {"query": 1}}', "The `[` before a call is never closed."),
        ('{"name": "search", "arguments": {"query": 1}, "version": "1"}', "a key that means nothing here: 'version'"),
        ("<tool_call>" + '{"name": "now"}' * 33 + "</tool_call>", "There are more than 32 calls in the reply."),
        ('<tool_call>{"name": "now"}</tool_call>' * 33, "There are more than 32 calls in the reply."),
        ("`a` " * 6_000 + BLOCK, "too many paragraphs and stretches of code before a tag"),
    ],
)  # fmt: skip
def test_half_a_call_and_what_is_none_is_a_problem_that_says_what_to_do(
    text: str, problem: str
) -> None:
    parsed = XML.parse(text, TOOLS)

    assert (parsed.calls, parsed.answer) == ((), None)
    assert problem in (parsed.problem or "")
    assert (
        "with one of these tools: search, write_file, square, now; or, if you know it, the answer"
        in (parsed.problem or "")
    )


PLAIN = "<tool_call>{'name': 'search', 'arguments': {'query': 'a'}}</tool_call>"


@pytest.mark.parametrize(
    "text",
    [
        # behind a quote, a parenthesis or a tag
        f'One would write "{BLOCK}',
        f"One would write ' {BLOCK}",
        f"One would write \u201c{BLOCK}",
        f"A call\n({BLOCK}",
        f"> {BLOCK}",
        f"<code>{BLOCK}",
        f"<!-- x --> {BLOCK}",
        f'{BLOCK}\nNot "{BLOCK}',
        # in an example that is indented
        f"The page says:\n\n    {BLOCK}\n\nThat is an injection.",
        f"The page says:\n \n\t{BLOCK}",
        f"The page says:\n\n    x = 1\n      y = 2\n    {BLOCK}",
        f"The page says:\n\n    For example: {BLOCK}",
        f"{BLOCK}\n\n    {BLOCK}",
        # in the middle of a sentence
        f"{BLOCK} And so on.",
        f"{BLOCK}., and so on.",
        f"{BLOCK} So:\n<tool_response>",
        f"I would write {BLOCK}, but I do not.",
        f'I would write {BLOCK}".',
        f"I would write {BLOCK}`",
        f"Either {BLOCK} or {BLOCK}",
        # in a string of one value
        f'{{"answer": "Calls look like {PLAIN}"}}',
        f'{{"answer": "Calls look like\n{PLAIN}\n"}}',
        f'["Calls look like\n{PLAIN}\n", 1]',
        f"""{{'answer': 'Calls look like\n{BLOCK}\n', 'sure': True}}""",
        f'"Calls look like\n{PLAIN}\n"',
        json.dumps({"answer": f"Calls look like {BLOCK}"}),
        # in thinking, in a comment, in code
        f"I plan. <think>maybe\n{BLOCK}\n</think> The answer is 5.",
        f"I plan.\n<THINKING>\nmaybe {BLOCK}",
        f"<think>a</think>b\n<think>maybe\n{BLOCK}\n</think>",
        f"<!--\n{BLOCK}\n-->",
        f"<!-- a </think> b\n{BLOCK}\n-->",
        f"<pre>\n<code>\nx</code>\n{BLOCK}\n</pre>",
        f"<pre><code class='x'>\n{BLOCK}\n</code></pre>",
    ],
)
def test_a_call_that_is_only_quoted_is_a_problem_and_nothing_is_called(
    text: str,
) -> None:
    parsed = XML.parse(text, TOOLS)

    assert (parsed.calls, parsed.answer) == ((), None)
    assert (parsed.problem or "").startswith("A `<tool_call>` that is quoted")
    assert "lines of its own, with nothing behind it. Write <tool_call>" in (
        parsed.problem or ""
    )


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"query": {"type": "string"}}}


@pytest.mark.parametrize(
    "written",
    [
        {"name": "search", "parameters": SCHEMA},
        {
            "type": "function",
            "function": {
                "name": "search",
                "description": "Finds.",
                "parameters": SCHEMA,
            },
        },
        [
            {"name": "now", "parameters": {"type": "object", "properties": {}}},
            {"name": "search", "parameters": SCHEMA},
        ],
    ],
)
def test_json_that_describes_a_tool_is_no_call_of_it(written: Any) -> None:
    assert XML.parse(json.dumps(written), TOOLS) == answered(json.dumps(written))


def test_a_tool_whose_arguments_are_a_schema_is_called_with_one() -> None:
    check = spec("check", "string", "type", "properties")

    assert XML.parse(
        json.dumps({"name": "check", "parameters": SCHEMA}), (check,)
    ) == Parsed("", (ToolCall("check", SCHEMA),), None, None, complete=False)
    for plain in ({"type": "object"}, {"type": "house", "properties": {"rooms": 3}}):
        assert XML.parse(
            json.dumps({"name": "now", "parameters": plain}), TOOLS
        ).calls == (ToolCall("now", plain),)


def test_without_tools_the_cure_names_none() -> None:
    assert "tools" not in (XML.parse("<tool_call>", ()).problem or "tools")


def test_what_is_cut_short_is_never_half_a_call() -> None:
    text = f'I look `up`.\n{BLOCK}\n<tool_call>[{{"name": "now", "arguments": {{}}}}]</tool_call>'
    whole = XML.parse(text, TOOLS).calls
    seen = [XML.parse(text[:end], TOOLS).calls for end in range(len(text) + 1)]

    assert [calls for calls in seen if calls not in ((), whole[:1], whole)] == []
    assert len(whole) == 2


# ---------------------------------------------------------------------------------------------------- recordings


@pytest.mark.skipif(not fixture("cortex_toolcall_cases.json").exists(), reason=MISSING)
def test_recorded_cases_are_read_as_observed_or_better() -> None:
    cases = {
        case["id"]: case
        for case in json.loads(fixture("cortex_toolcall_cases.json").read_text())[
            "cases"
        ]
    }
    tools = (
        spec("a"),
        spec("b"),
        spec("file_write", "string", "path", "content"),
        spec("shell", "string", "command"),
    )
    read = {name: XML.parse(case["text"], tools) for name, case in cases.items()}
    calls = {
        name: [{"tool": c.name, "args": c.arguments} for c in parsed.calls]
        for name, parsed in read.items()
    }

    agreed = {
        name: case["observed"]
        for name, case in cases.items()
        if case["kind"] == "conformance"
    }
    assert {name: calls[name] for name in agreed} == agreed
    assert {name: found for name, found in calls.items() if name not in agreed} == {
        "fence-inside-tag": [{"tool": "a", "args": {"x": 1}}],
        "package-json": [],
        "two-in-one-block": [{"tool": "a", "args": {}}, {"tool": "b", "args": {}}],
        "quoted-example": [],
        "single-quotes": [{"tool": "a", "args": {}}],
    }
    assert [name for name, parsed in read.items() if parsed.problem] == []


# ---------------------------------------------------------------------------------------------------- any text

WORDS = st.sampled_from(
    [
        "<tool_call>", "</tool_call>", "<tool_call", "<TOOL_CALL x='1'>", "<tool_response>", "</tool_response>",
        "<function=now>", "<parameter=x>", "</parameter>", "</function>", "`", "``", "```", "~~~", "\n", "\n\n", " ",
        "{", "}", "[", "]", ",", '"', "'", "\\", "now", "search", '{"name": "now", "arguments": {}}', '{"name": "',
        '", "arguments": {', "a", "<", ">", BLOCK, "\n\n    ", "(", "<think>", "</think>", "<!--", "-->", "<pre>\n",
    ]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=20).map("".join) | st.text()


@given(text=TEXTS)
def test_any_text_is_calls_an_answer_or_a_problem(text: str) -> None:
    parsed = XML.parse(text, TOOLS)

    assert [
        bool(parsed.calls),
        parsed.answer is not None,
        parsed.problem is not None,
    ].count(True) == 1
    assert parsed.answer is None or parsed.answer == text.strip() != ""
    json.dumps(
        [dict(call.arguments) for call in parsed.calls], allow_nan=False
    ).encode()


def exchange(result: str, *calls: ToolCall) -> list[Message]:
    told = XML.render(
        Request(
            Conversation(
                [
                    Message("user", "q"),
                    Message("assistant", "I look.", calls),
                    *(
                        Message("tool", result, call_id=call.id)
                        for call in reversed(calls)
                    ),
                ]
            ),
            TOOLS,
        )
    )
    return list(told.conversation.messages[-2:])


@given(result=TEXTS)
def test_no_tool_result_can_end_its_tag_or_be_read_as_a_call(result: str) -> None:
    observation = exchange(result, ToolCall("now", {}, "1"))[1].content
    inside = observation.removeprefix("<tool_response>").removesuffix(
        "</tool_response>"
    )

    assert json.loads(inside) == {"name": "now", "content": result}
    assert "<" not in inside
    assert len(observation.splitlines()) == 1
    assert [
        XML.parse(text, TOOLS).calls
        for text in (observation, inside, f"I see {inside}")
    ] == [()] * 3
    assert XML.parse(observation, TOOLS).problem is not None


@given(
    arguments=st.dictionaries(st.text(), TEXTS, max_size=3),
    name=st.sampled_from(["search", "now", "fly"]),
)
def test_any_call_is_written_so_that_it_is_read_back_unchanged(
    arguments: dict[str, Any], name: str
) -> None:
    calls = (ToolCall(name, arguments, "1"), ToolCall("now", {}, "2"))

    assert XML.parse(exchange("r", *calls)[0].content, TOOLS) == called(
        ToolCall(name, arguments), ToolCall("now", {}), thought="I look."
    )


# ---------------------------------------------------------------------------------------------------- written as text


def test_calls_of_a_turn_are_written_together_and_results_in_their_order() -> None:
    calls = (ToolCall("search", {"query": "ü"}, "1"), ToolCall("now", {}, "2"))
    talk = Conversation(
        [
            Message("system", "Be brief."),
            Message("user", "q"),
            Message("assistant", "I look.", calls),
            Message("tool", "noon", call_id="2"),
            Message("tool", "</tool_response>", call_id="1"),
            Message("user", "Go on.", origin="runtime"),
            Message("assistant", "It is noon.", origin="model"),
            Message("user", "And now?"),
        ]
    )
    rendered = XML.render(
        Request(talk, TOOLS, sampling=Sampling(temperature=0.5, stop=("END",)))
    )

    assert roles_and_contents(rendered)[1:] == [
        ("user", "q"),
        (
            "assistant",
            'I look.\n<tool_call>{"name": "search", "arguments": {"query": "ü"}}</tool_call>\n'
            '<tool_call>{"name": "now", "arguments": {}}</tool_call>',
        ),
        (
            "user",
            '<tool_response>{"name": "search", "content": "\\u003c/tool_response>"}</tool_response>\n'
            '<tool_response>{"name": "now", "content": "noon"}</tool_response>\n\nGo on.',
        ),
        ("assistant", "It is noon."),
        ("user", "And now?"),
    ]
    assert rendered.sampling == Sampling(
        temperature=0.5, stop=("END", "<tool_response>")
    )
    assert (rendered.tools, rendered.schema) == ((), None)
    system = roles_and_contents(rendered)[0][1]
    assert system.startswith(
        "Be brief.\n\nYou can use these tools:\n- search: does search\n"
    )
    assert all(t.name in system and json.dumps(t.schema) in system for t in TOOLS)
    assert (
        '<tool_call>{"name": "the tool\'s name", "arguments": {its arguments}}</tool_call>'
        in system
    )


def test_answer_is_requested_with_its_schema_if_no_tool_is_allowed() -> None:
    now = XML.render(Request(Conversation.of("q"), TOOLS, "none"))
    fits = XML.render(
        Request(
            Conversation.of("q"), TOOLS, schema=OutputSchema("x", {"type": "array"})
        )
    )

    assert roles_and_contents(now)[-1] == (
        "user",
        "q\n\nNo tool can be used now. Reply with your answer alone, without tags.",
    )
    assert roles_and_contents(fits)[0][1].endswith(
        'The answer must be JSON that fits this schema: {"type": "array"}'
    )


def test_request_without_tools_only_has_its_turns_written() -> None:
    talk = Conversation(
        [Message("user", "q"), *exchange("r", ToolCall("now", {}, "1"))]
    )
    request = Request(
        talk,
        (),
        sampling=Sampling(max_tokens=5),
        schema=OutputSchema("x", {"type": "string"}),
    )

    assert XML.render(request) == request


def test_its_prompts_can_be_overridden() -> None:
    mine = XmlDialect(
        PromptSet(**{**XML.prompts.texts, "how_to_answer": "deine Antwort"})
    )

    assert "deine Antwort" in (mine.parse("", TOOLS).problem or "")


def test_several_examples_in_code_are_text_of_an_answer() -> None:
    text = f"```\n{BLOCK}\n```\nor\n```\n{BLOCK}\n```"

    assert XML.parse(text, TOOLS) == answered(text)


@pytest.mark.parametrize("inside", ["", "nothing of the kind", "{}", '["search"]'])
def test_a_fence_in_a_call_must_hold_one(inside: str) -> None:
    parsed = XML.parse(f"<tool_call>\n```json\n{inside}\n```\n</tool_call>", TOOLS)

    assert (parsed.calls, parsed.answer) == ((), None)
    assert parsed.problem is not None
