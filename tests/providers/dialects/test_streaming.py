"""Streaming through text dialects: the watcher sees the answer and the thoughts, never a word of the protocol."""

import dataclasses
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Completion,
    Delta,
    MemoryJournal,
    ReActEngine,
    Request,
    Runtime,
)
from loopwright.messages import Conversation, ToolCall, ToolSpec, Usage
from loopwright.providers import Capabilities, OutputSchema, TextTools, stream_deltas
from loopwright.providers.base import ToolChoice
from loopwright.providers.dialects import (
    Dialect,
    JsonDialect,
    Parsed,
    ReActDialect,
    Signature,
    StreamingDialect,
    XmlDialect,
)
from loopwright.testing import FakeClock, ScriptedProvider
from sample_tools import add
from stopwatch import quickest

SEARCH = ToolSpec(
    "search",
    "Finds.",
    {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    },
)
NOW = ToolSpec("now", "Tells the time.", {"type": "object", "properties": {}})
TOOLS = (SEARCH, NOW)
ASKED = Request(Conversation.of("q"), TOOLS)
ANSWER_NOW = Request(Conversation.of("q"), TOOLS, "none")
NO_TOOLS = Request(Conversation.of("q"))


class Pieces:
    """A text model that sends one reply in the given chunks."""

    name, model = "tiny", "tiny-1"
    capabilities = Capabilities(native_tools=False)

    def __init__(self, *pieces: str, **ending: Any) -> None:
        text = "".join(pieces)
        self.reply = Completion(text, answer=text, usage=Usage(1, 1), **ending)
        self.pieces = pieces
        self.closed = False

    async def complete(self, request: Request) -> Completion:
        return self.reply

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        try:
            for piece in self.pieces:
                yield Delta(text=piece)
            yield Delta(completion=self.reply)
        finally:
            self.closed = True


async def told(
    dialect: str | Dialect, *pieces: str, request: Request = ASKED
) -> list[Delta]:
    return [
        delta async for delta in TextTools(Pieces(*pieces), dialect).stream(request)
    ]


def parts(deltas: Sequence[Delta]) -> list[tuple[str, str]]:
    """The content of each delta that is not empty."""
    return [
        (delta.text, delta.reasoning)
        for delta in deltas
        if delta.text or delta.reasoning
    ]


def text_of(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


# ---------------------------------------------------------------------------------------------------- what is shown


async def test_react_stream_shows_the_thought_then_the_answer_as_it_arrives() -> None:
    deltas = await told(
        "react",
        "Thought: I",
        " know",
        " it.\nFinal An",
        "swer: It",
        " is",
        " 42",
        ".\nYes",
        ".",
    )

    assert parts(deltas) == [
        ("", "I"), ("", " know"), ("", " it."),
        ("It", ""), (" is", ""), (" 42", ""), (".", ""), ("\nYes", ""), (".", ""),
    ]  # fmt: skip
    assert deltas[-1].completion is not None
    assert deltas[-1].completion.answer == "It is 42.\nYes."


async def test_a_step_result_behind_the_final_answer_is_part_of_it() -> None:
    deltas = await told("react", "Final Answer: a\n", "STEP_RESULT: b\n", "c", " d")

    assert parts(deltas) == [
        ("a", ""),
        ("\nSTEP_RESULT: b", ""),
        ("\nc", ""),
        (" d", ""),
    ]


async def test_react_stream_hides_a_call_and_invented_text_behind_it() -> None:
    deltas = await told(
        "react",
        "I look.\nAction",
        ": search\nAction Input: ",
        '{"query": "a"}',
        "\nObservation: b\nFinal Answer: c",
    )

    assert parts(deltas) == [("", "I look.")]
    assert deltas[-1].completion is not None
    assert deltas[-1].completion.calls == (ToolCall("search", {"query": "a"}),)


async def test_json_stream_shows_the_thought_and_the_string_of_the_answer() -> None:
    deltas = await told(
        "json",
        '{"thought": "I kn',
        'ow.", "action": "final',
        '_answer", "action_input": " It\\',
        "u0027s\\n4",
        '2 "}',
    )

    assert parts(deltas) == [
        ("", "I kn"),
        ("", "ow."),
        ("It", ""),
        ("'s\n4", ""),
        ("2", ""),
    ]
    assert deltas[-1].completion is not None
    assert deltas[-1].completion.answer == "It's\n42"


async def test_json_stream_shows_the_thought_before_a_call_and_not_the_call() -> None:
    text = (
        '{"thought": "I look.", "action": "search", "action_input": {"query": "Final"}}'
    )

    assert parts(await told("json", *text)) == [("", letter) for letter in "I look."]


async def test_xml_stream_shows_a_thought_at_its_call_and_an_answer_at_its_end() -> (
    None
):
    called = await told(
        "xml",
        "I ",
        "look.\n<tool",
        "_call>",
        '{"name": "now", "arguments": {}}',
        "</tool_call>",
    )
    answer = await told("xml", *"It is `<tool_call>`.")

    assert [parts(called[:1]), parts(called[1:])] == [[("", "I look.")], []]
    assert parts(answer) == [("It is `<tool_call>`.", "")]


async def test_xml_stream_shows_an_answer_as_it_arrives_if_no_tool_is_allowed() -> None:
    assert parts(await told("xml", " It ", "is <", "b>42", "</b>", ".", request=ANSWER_NOW)) == [
        ("It", ""), (" is", ""), (" <b>42", ""), ("</b>", ""), (".", ""),
    ]  # fmt: skip


async def test_a_reply_without_tools_streams_and_a_marked_answer_loses_its_marker() -> (
    None
):
    schema = Request(
        Conversation.of("q"),
        TOOLS,
        "none",
        schema=OutputSchema("x", {"type": "object"}),
    )

    assert parts(await told("xml", " It", " is", request=NO_TOOLS)) == [
        (" It", ""),
        (" is", ""),
    ]
    assert parts(await told("react", "Final Answer: 4", "2", request=NO_TOOLS)) == [
        ("4", ""),
        ("2", ""),
    ]
    assert parts(await told("react", "It", " is", request=NO_TOOLS)) == [("It is", "")]
    assert parts(await told("json", '{"a"', ": 1}", request=schema)) == [
        ('{"a"', ""),
        (": 1}", ""),
    ]


async def test_thinking_in_front_of_a_reply_is_reasoning() -> None:
    assert parts(await told("react", "<thi", "nk>Hm", "m</think>", "\n\nFinal Answer: 42", ".")) == [
        ("", "Hm"), ("", "m"), ("42", ""), (".", ""),
    ]  # fmt: skip


class Shout:
    """A third-party dialect: the answer is the text in capitals."""

    name = "shout"

    def render(self, request: Request) -> Request:
        return Request(request.conversation)

    def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
        return Parsed("It was loud.", (), text.upper(), None)


async def test_a_dialect_that_cannot_be_watched_is_held_back_whole() -> None:
    deltas = await told(Shout(), "hey", " you")

    assert parts(deltas) == [("HEY YOU", "It was loud.")]
    assert [delta.completion is not None for delta in deltas] == [True]


async def test_provider_without_stream_yields_the_answer_as_one_delta() -> None:
    class Mute(Pieces):
        stream: Any = None

    tools = TextTools(Mute("Thought: t\nFinal Answer: 42"), "react")
    deltas = [delta async for delta in tools.stream(ASKED)]

    assert deltas == [
        Delta(text="42", reasoning="t", completion=await tools.complete(ASKED))
    ]


async def test_thinking_of_the_wrapped_provider_is_shown_once() -> None:
    class Mute(Pieces):
        stream: Any = None

    model = Mute("Final Answer: 42", thought="Hm.")
    deltas = [delta async for delta in TextTools(model, "react").stream(ASKED)]

    assert parts(deltas) == [("", "Hm."), ("42", "")]


async def test_provider_without_stream_shows_the_answer_without_protocol() -> None:
    class Mute(Pieces):
        stream: Any = None

    call = Mute(
        "Thought: I look.\nAction: now", thought="I look.", calls=(ToolCall("now", {}),)
    )
    call.reply = dataclasses.replace(call.reply, answer=None)
    answer = Mute("Thought: I know.\nFinal Answer: 5", thought="I know.")
    answer.reply = dataclasses.replace(answer.reply, answer="5")

    assert [
        [delta async for delta in stream_deltas(model, ASKED)]
        for model in (call, answer)
    ] == [
        [Delta(reasoning="I look.", completion=call.reply)],
        [Delta(text="5", reasoning="I know.", completion=answer.reply)],
    ]


async def test_closing_the_stream_closes_the_one_inside() -> None:
    model = Pieces("Final Answer: a", "b", "c")
    stream = TextTools(model, "react").stream(ASKED)

    assert (await anext(stream)).text == "a"
    await stream.aclose()
    assert model.closed


# ---------------------------------------------------------------------------------------------------- in a run


SCRIPTS: dict[str, list[str]] = {
    "react": [
        'Thought: I add.\nAction: add\nAction Input: {"a": 1, "b": 2}',
        "Thought: I know.\nFinal Answer: It is 3.",
    ],
    "xml": [
        'I add.\n<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>',
        "It is 3.",
    ],
    "json": [
        '{"thought": "I add.", "action": "add", "action_input": {"a": 1, "b": 2}}',
        '{"action": "final_answer", "action_input": "It is 3."}',
    ],
}


def engine(dialect: str) -> ReActEngine:
    script = [Completion(text, usage=Usage(1, 1)) for text in SCRIPTS[dialect]]
    model = ScriptedProvider(script, capabilities=Capabilities(native_tools=False))
    return ReActEngine(
        Runtime(
            TextTools(model, dialect),
            tools=[add],
            journal=MemoryJournal(),
            clock=FakeClock(),
        )
    )


@pytest.mark.parametrize("dialect", SCRIPTS)
async def test_who_watches_a_run_sees_thoughts_and_the_answer_and_the_run_is_the_same(
    dialect: str,
) -> None:
    async with engine(dialect).start("1 + 2?", deltas=True) as run:
        seen = [item async for item in run]
        result = await run.result()
    deltas = [item for item in seen if isinstance(item, Delta)]

    assert (
        result.answer
        == (await engine(dialect).run("1 + 2?")).answer
        == text_of(deltas)
        == "It is 3."
    )
    assert "".join(delta.reasoning for delta in deltas).startswith("I add.")
    assert [
        call.arguments for message in result.conversation for call in message.calls
    ] == [{"a": 1, "b": 2}]


# ---------------------------------------------------------------------------------------------------- any text

WORDS = st.sampled_from(
    [
        "Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:", "FINAL_ANSWER: ", "**Final Answer: ",
        "\nThought 2: ", "\nFinal Answer: ", "\nAction: None\n", "\n```\n", "\nObserv\n", "### Final Answer:",
        "**", "search", "now", "[", "]", "{", "}", '"', "'", ":", "\uff1a", ",", "\\", "```", "~~~", "`", "\n", "\n\n",
        "\r", "\u2028", "\x0b", "\xa0", " ", "Finish[", "STEP_RESULT:", "None", "1", "Observ", "observation", "a",
        "word ", "\u017f", "\\n", "\\u00e4", "\\ud83d", "\\ude00", "\U0001f600", '{"answer": "', "final_answer",
        '{"thought": "', '", "action": "', '{"action": "final_answer", "action_input": "', '", "action_input": "', '"}',
        "<tool_call>", "</tool_call>", "<tool_", "call>", "<tool_response>", "</", "<", ">", "<b>", "<function=now>",
        '{"name": "now", "arguments": {}}', '<tool_call>{"name": "now"}</tool_call>', "\n\n    ", "(", "<think>",
    ]
)  # fmt: skip
BEGINNINGS = st.sampled_from(
    [
        "",
        "Final Answer: ",
        "Thought: x\nFinal Answer:",
        '{"action": "final_answer", "action_input": "',
        '{"thought": "',
    ]
)
ANSWERS = st.builds(
    lambda thought, answer: json.dumps(
        {"thought": thought, "action": "final_answer", "action_input": answer}
    ),
    st.text(),
    st.text(),
)
TEXTS = (
    st.tuples(BEGINNINGS, st.lists(WORDS, max_size=20).map("".join)).map("".join)
    | ANSWERS
)
SPLITS = st.lists(st.integers(0, 200), max_size=12)
DIALECTS: tuple[Dialect, ...] = (
    ReActDialect(),
    ReActDialect("numbered", thoughts_alone=True),
    JsonDialect(),
    XmlDialect(),
)


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def drained(tools: TextTools, request: Request) -> list[Delta]:
    """The deltas of a stream that never waits."""

    async def collect() -> list[Delta]:
        return [delta async for delta in tools.stream(request)]

    work = collect()
    try:
        work.send(None)
    except StopIteration as done:
        found: list[Delta] = done.value
        return found
    raise AssertionError("it waited")


def completed(tools: TextTools, request: Request) -> Completion:
    work = tools.complete(request)
    try:
        work.send(None)
    except StopIteration as done:
        found: Completion = done.value
        return found
    raise AssertionError("it waited")


def check(dialect: Dialect, choice: ToolChoice, pieces: Sequence[str]) -> None:
    """The shown text is the whole answer, and the last delta has what `complete` returns."""
    request = Request(Conversation.of("q"), TOOLS, choice)
    tools = TextTools(Pieces(*pieces), dialect)
    deltas = drained(tools, request)
    plain = completed(tools, request)

    assert [delta.completion for delta in deltas] == [None] * (len(deltas) - 1) + [
        plain
    ]
    if plain.answer is not None:
        assert text_of(deltas) == plain.answer
    elif dialect.name.startswith("react") or choice == "auto":
        assert (
            text_of(deltas) == "" or dialect.name == "json"
        )  # an object may turn out to be none at its last letter
    assert not any(plain.calls and delta.text for delta in deltas)


@pytest.mark.parametrize("choice", ["auto", "none"])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@given(text=TEXTS, places=SPLITS)
def test_streamed_text_of_any_reply_is_a_prefix_of_its_answer(
    dialect: Dialect, choice: ToolChoice, text: str, places: list[int]
) -> None:
    check(dialect, choice, cut(text, places))


@pytest.mark.parametrize(
    "text",
    [
        "Observation: b\nFinal Answer: c",
        "Final Answer: a\nObserv\n",
        "Final Answer: a\nObserv\n \nb",
        "Final Answer: ```\nObserv",
        "Observ\nFinal Answer: a",
        "**Final Answer:**42",
        "**Final Answer: 42**",
        "### Final Answer: 42",
        "Final Answer: a\nSTEP_RESULT: b\nc",
        "STEP_RESULT: b\nFinal Answer: a",
        "Final Answer: a\nAction: None\nb",
        "Action: None\nFinal Answer: a",
        "Action: None \x0bnow\nFinal Answer: a",
        "**Action: None**\nx\nFinal Answer: a",
        "```\nFinal Answer: a\n```\nAction: now",
        "```\n``` x\nFinal Answer: a",
        "``` ```\nFinal Answer: ~~~\nThought: b\n~~~\nc\nThought: d",
        "\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0Final Answer: a",
        "Final Answer: a\n\u017ftep result: b",
        "Final Answer: a\nThought \uff1a b",
        "Final Answer: a\n\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0\xa0Thought: b",
        '{"action_input": "a", "action": "search"}',
        '{"action": "search", "action_input": "a"}',
        '{"action": "final_answer", "action_input": "a \\ud83d\\ude00 \\u00e4 \\n "}',
        '{"thought": "", "action": " Final_Answer ", "answer": "a"}',
    ],
)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_streamed_text_of_a_hostile_reply_is_a_prefix_of_its_answer(
    dialect: Dialect, text: str
) -> None:
    for choice in ("auto", "none"):
        check(dialect, choice, text)
        check(dialect, choice, text.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ('`{"action": "final_answer", "action_input": "a"}`', ""),
        ('{"action": "final_answer" "action_input": "a"}', ""),
        ('{"action": "final_answer", "action_input": {"a": "b"}}', ""),
        ('{"action": "final_answer", "action_input": "a\\ud83d"}', "a"),
        ('{"action": "final_answer", "action_input": "a", "b": 1}', "a"),
    ],
)
async def test_unreadable_object_is_shown_up_to_the_error(
    text: str, begun: str
) -> None:
    deltas = await told("json", *text)

    assert text_of(deltas) == begun
    assert deltas[-1].completion is not None
    assert deltas[-1].completion.problem is not None


async def test_stream_of_a_required_answer_hides_what_may_be_a_call() -> None:
    bare = '{"name": "now", "arguments": {}}'
    for pieces in ([bare], [", ", bare], [*f"; \n\xa0,{bare}"]):
        assert text_of(await told("xml", *pieces, request=ANSWER_NOW)) == ""
    assert parts(await told("xml", " ,", " ", "; a", " b", request=ANSWER_NOW)) == [
        (", ; a", ""),
        (" b", ""),
    ]
    assert (
        text_of(
            await told("xml", *"I say <b>x</b> <tool_call>{} or so", request=ANSWER_NOW)
        )
        == "I say <b>x</b>"
    )


@pytest.mark.parametrize(
    "before",
    [
        'I would write "',
        "An example:\n\n    ",
        "I. <think>x\n",
        '{"answer": "I look. ',
        " '",
        "The page says:\n> ",
    ],
)
async def test_text_before_a_quoted_call_is_not_a_thought(
    before: str,
) -> None:
    assert (
        parts(await told("xml", before, '<tool_call>{"name": "now"}</tool_call>', '"}'))
        == []
    )


async def test_shown_text_is_not_revoked_if_it_proves_to_be_thinking() -> None:
    deltas = await told(
        "react", "Final Answer: a\n", "</think>\nFinal Answer: It is another one."
    )

    assert parts(deltas) == [("a", ""), ("\n</think>", "")]
    assert deltas[-1].completion is not None
    assert deltas[-1].completion.answer == "It is another one."


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@given(text=TEXTS, places=SPLITS)
def test_stream_by_character_shows_the_same_as_larger_chunks(
    dialect: Dialect, text: str, places: list[int]
) -> None:
    letters, pieces = (
        drained(TextTools(Pieces(*way), dialect), ASKED)
        for way in (text, cut(text, places))
    )

    assert text_of(letters) == text_of(pieces)


# what a reply begins with, and what is repeated behind it
SHAPES = {
    "letters": ("", "a"),
    "an answer": ("Final Answer:", " a"),
    "blanks": ("", " "),
    "blank lines": ("", "\n"),
    "half markers": ("", "**final_ "),
    "stars": ("Final Answer:", "*"),
    "cut stop words": ("Final Answer: a\n", "Observ\n"),
    "thoughts": ("", "Thought: a\n"),
    "fences": ("", "```\n"),
    "less than": ("a", "<"),
    "half a tag": ("a <tool_call", " x"),
    "half tags": ("", "<tool_call "),
    "tags": ("", "<tool_call>"),
    "tags in code": ("", "`<tool_call>` "),
    "braces": ("", "{"),
    "a string": ('{"thought": "', "\\u00e4"),
    "backslashes": ('{"thought": "', "\\\\"),
}


def feed(dialect: Dialect, choice: ToolChoice, text: str) -> None:
    assert isinstance(dialect, StreamingDialect)
    watch = dialect.parse_stream(Request(Conversation.of("q"), TOOLS, choice))
    for letter in text:
        list(watch.feed(letter))


@pytest.mark.faults
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("dialect", "choice"),
    [
        (ReActDialect(), "auto"),
        (JsonDialect(), "auto"),
        (XmlDialect(), "auto"),
        (XmlDialect(), "none"),
    ],
    ids=["react", "json", "xml", "xml answer"],
)
def test_parsing_by_character_takes_linear_time(
    dialect: Dialect, choice: ToolChoice, shape: str
) -> None:
    start, unit = SHAPES[shape]
    short, long = ((start + unit * size)[:size] for size in (10_000, 40_000))

    bound = 9 * quickest(lambda: feed(dialect, choice, short), bound=0, tries=2) + 0.02
    assert quickest(lambda: feed(dialect, choice, long), bound) < bound
