"""Tool calls for models without native ones: what the wrapped provider is asked, and what comes back."""

import dataclasses
import json
from collections.abc import Sequence

import pytest

from conversations import roles_and_contents
from loopwright.errors import ConfigError, ProviderError
from loopwright.messages import (
    Completion,
    Conversation,
    Message,
    Reasoning,
    ToolCall,
    ToolSpec,
    Usage,
)
from loopwright.providers import (
    Capabilities,
    OutputSchema,
    Provider,
    Request,
    Sampling,
    TextTools,
)
from loopwright.providers.dialects import (
    JsonDialect,
    Parsed,
    ReActDialect,
    Signature,
    XmlDialect,
)
from loopwright.providers.openai.response import WireReply
from loopwright.testing import ScriptedProvider

SEARCH = ToolSpec(
    "search",
    "Finds.",
    {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    },
)
CALL = ToolCall("search", {"query": "a"}, "1")
ASKED = Request(Conversation.of("q", system="Be brief."), (SEARCH,))
AFTER_A_CALL = Conversation(
    [
        Message("user", "q"),
        Message("assistant", "t", (CALL,)),
        Message("tool", "r", call_id="1"),
    ]
)


class Model:
    """A text model that replies from a list and keeps what it was asked."""

    name, model = "tiny", "tiny-1"

    def __init__(self, *replies: str | Completion, json_schema: bool = False) -> None:
        self.capabilities = Capabilities(
            native_tools=False, json_schema=json_schema, stop=True
        )
        self.asked: list[Request] = []
        self._replies = [
            Completion(text=r, answer=r) if isinstance(r, str) else r for r in replies
        ]

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        if not self._replies:
            raise ProviderError("no reply left")
        return self._replies.pop(0)


async def test_closing_it_closes_the_wrapped_provider_if_that_can_be_closed() -> None:
    closed: list[str] = []

    class Closing(Model):
        async def aclose(self) -> None:
            closed.append(self.model)

    await TextTools(Model()).aclose()
    await TextTools(TextTools(Closing(), "react"), "xml").aclose()

    assert closed == ["tiny-1"]


async def test_a_call_in_the_text_becomes_a_call_and_the_rest_of_the_reply_is_kept() -> (
    None
):
    text = "Thought: t\nAction: Search\nAction Input: a\nObservation: b"
    usage = Usage(input_tokens=3, output_tokens=4)
    model = Model(
        Completion(
            text=text, answer=text, usage=usage, model="tiny-1b", flags=("cached",)
        )
    )

    completion = await TextTools(model).complete(ASKED)

    assert completion == Completion(
        text=text,
        calls=(ToolCall("search", {"query": "a"}),),
        thought="t",
        usage=usage,
        model="tiny-1b",
        flags=("cached", "invented_observation"),
    )
    assert model.asked == [ReActDialect().render(ASKED)]


async def test_an_answer_and_a_problem_come_through() -> None:
    tools = TextTools(
        Model("Final Answer: 42", "It is 42.", Completion(problem="empty reply"))
    )

    assert (await tools.complete(ASKED)).answer == "42"
    unreadable = await tools.complete(ASKED)
    assert (unreadable.calls, unreadable.answer, unreadable.text) == (
        (),
        None,
        "It is 42.",
    )
    assert "neither an action nor a final answer" in (unreadable.problem or "")
    assert await tools.complete(ASKED) == Completion(problem="empty reply")


async def test_the_wrapper_is_the_wrapped_provider_with_tool_calls() -> None:
    wrapped: Provider = TextTools(Model(json_schema=True))

    assert (wrapped.name, wrapped.model) == ("tiny", "tiny-1")
    assert wrapped.capabilities == Capabilities(
        native_tools=True, json_schema=True, stop=True, schema_with_tools=True
    )
    with pytest.raises(ProviderError, match="no reply left"):
        await wrapped.complete(ASKED)


def test_auto_takes_json_where_the_model_can_be_held_to_a_schema() -> None:
    mine = JsonDialect(repeats=False)

    assert TextTools(Model()).dialect == ReActDialect()
    assert TextTools(Model(json_schema=True)).dialect == JsonDialect()
    assert TextTools(Model(json_schema=True), "react").dialect == ReActDialect()
    assert TextTools(Model(), "json").dialect == JsonDialect()
    assert TextTools(Model(), mine).dialect is mine
    assert TextTools(Model(), "xml").dialect == XmlDialect()
    with pytest.raises(
        ConfigError,
        match="there is no 'yaml'; use 'auto', 'json', 'react', 'xml' or your own",
    ):
        TextTools(Model(), "yaml")


async def test_a_dialect_of_ones_own_is_used() -> None:
    class Shout:
        name = "shout"

        def render(self, request: Request) -> Request:
            return dataclasses.replace(
                request, tools=(), sampling=Sampling(stop=("!",))
            )

        def parse(self, text: str, tools: Sequence[Signature]) -> Parsed:
            return Parsed("", (ToolCall(tools[0].name, {"query": text}),), None, None)

    model = Model("HEY")

    assert (await TextTools(model, Shout()).complete(ASKED)).calls == (
        ToolCall("search", {"query": "HEY"}),
    )
    assert model.asked[0].sampling.stop == ("!",)


async def test_without_tools_the_request_and_the_reply_pass_untouched() -> None:
    reply = Completion(text="Action: search[a]", answer="Action: search[a]")
    model = Model(reply, reply)
    tools = TextTools(model, examples=[AFTER_A_CALL.assistant("done")])
    plain = Request(Conversation.of("q"), schema=OutputSchema("x", {"type": "string"}))

    assert await tools.complete(plain) is reply
    assert model.asked == [plain]


async def test_without_tools_calls_are_written_as_text_and_the_reply_is_plain() -> None:
    model = Model("Action: search[a]")

    completion = await TextTools(model).complete(
        Request(AFTER_A_CALL, sampling=Sampling(stop=("x",)))
    )

    assert completion.answer == "Action: search[a]"
    assert roles_and_contents(model.asked[0]) == [
        ("user", "q"),
        ("assistant", 'Thought: t\nAction: search\nAction Input: {"query": "a"}'),
        ("user", "Observation: r"),
    ]
    assert model.asked[0].sampling == Sampling(stop=("x",))


@pytest.mark.parametrize("conversation", [Conversation.of("q"), AFTER_A_CALL])
async def test_an_answer_with_a_schema_of_its_own_keeps_that_schema(
    conversation: Conversation,
) -> None:
    schema = OutputSchema("verdict", {"type": "object"})
    model = Model('{"good": true}', json_schema=True)

    completion = await TextTools(model).complete(
        Request(conversation, (SEARCH,), "none", schema=schema)
    )

    assert completion.answer == '{"good": true}'
    assert (model.asked[0].schema, model.asked[0].tools) == (schema, ())
    assert not any(message.calls for message in model.asked[0].conversation.messages)


async def test_where_tools_are_forbidden_a_call_is_a_problem_and_text_the_answer() -> (
    None
):
    tools = TextTools(
        Model("Action: search[a]", "It is 42.", "Final Answer: 42", "Thought: hm", "  ")
    )
    request = dataclasses.replace(ASKED, tool_choice="none")

    call, plain, marked, thought, empty = [
        await tools.complete(request) for _ in range(5)
    ]

    assert (call.calls, call.answer) == ((), None)
    assert "No tool can be used now" in (call.problem or "")
    assert (plain.answer, plain.problem, plain.thought) == ("It is 42.", None, "")
    assert marked.answer == "42"
    assert (thought.answer, thought.thought) == (None, "hm")
    assert empty.answer is None
    assert empty.problem is not None


@pytest.mark.parametrize(
    "text",
    [
        "Action: search\nAction Input: what is the spe",
        'Action: search\nAction Input: {"query": "what is the spe',
        'Action: search\nAction Input: {"query": {"a": 1}',
        "Action: search[what is the spe",
        "Action: sea",
    ],
)
async def test_a_call_that_was_cut_short_is_a_problem(text: str) -> None:
    completion = await TextTools(
        Model(Completion(text=text, finish_reason="length"))
    ).complete(ASKED)

    assert (completion.calls, completion.answer, completion.finish_reason) == (
        (),
        None,
        "length",
    )
    assert "again" in (completion.problem or "") or "JSON object" in (
        completion.problem or ""
    )


async def test_an_answer_that_was_cut_short_is_a_problem() -> None:
    model = Model(
        Completion(text="Final Answer: Paris is the capital of", finish_reason="length")
    )
    completion = await TextTools(model).complete(ASKED)

    assert completion.answer is None
    assert "fewer words" in (completion.problem or "")


async def test_a_call_that_closed_before_the_reply_was_cut_short_is_a_call() -> None:
    for text in (
        "Action: search[a]\nThought: and th",
        "Action: search\nAction Input: a\nObservation: so",
    ):
        completion = await TextTools(
            Model(Completion(text=text, finish_reason="length"))
        ).complete(ASKED)

        assert completion.calls == (ToolCall("search", {"query": "a"}),)


async def test_examples_become_turns_behind_the_system_message() -> None:
    model = Model("Final Answer: 42")
    example = Conversation(
        [
            Message("user", "capital of France?"),
            Message(
                "assistant", "I look.", (ToolCall("search", {"query": "France"}, "1"),)
            ),
            Message("tool", "Paris", call_id="1"),
            Message("assistant", "Paris."),
        ]
    )

    await TextTools(model, examples=[example, example]).complete(ASKED)

    told = [
        ("user", "capital of France?"),
        (
            "assistant",
            'Thought: I look.\nAction: search\nAction Input: {"query": "France"}',
        ),
        ("user", "Observation: Paris"),
        ("assistant", "Final Answer: Paris."),
    ]
    assert roles_and_contents(model.asked[0])[1:] == [*told, *told, ("user", "q")]
    assert roles_and_contents(model.asked[0])[0][1].startswith(
        "Be brief.\n\nYou can use these tools:"
    )


async def test_typed_examples_stand_before_a_question_for_a_reply_of_their_form() -> (
    None
):
    shown = Conversation.of("4 or 9?").assistant('{"value": 9}')
    model = ScriptedProvider(['{"value": 7}'] * 3)
    tools = TextTools(model, "json", typed_examples={"number": [shown]})
    asked = Conversation.of("7 or 2?").with_system("Be brief.")
    form = {"type": "object"}
    await tools.complete(Request(asked, schema=OutputSchema("number", form)))
    await tools.complete(Request(asked, schema=OutputSchema("word", form)))
    await tools.complete(Request(asked))
    texts = [
        [one.content for one in request.conversation] for request in model.requests
    ]

    assert texts == [
        ["Be brief.", "4 or 9?", '{"value": 9}', "7 or 2?"],
        ["Be brief.", "7 or 2?"],
        ["Be brief.", "7 or 2?"],
    ]


async def test_examples_do_not_count_as_calls_of_this_conversation() -> None:
    model = Model(
        '{"action": "search", "action_input": {"query": "a"}}', json_schema=True
    )
    tools = TextTools(
        model, JsonDialect(repeats=False), examples=[AFTER_A_CALL.assistant("done")]
    )

    assert (await tools.complete(ASKED)).calls == (ToolCall("search", {"query": "a"}),)
    assert model.asked[0].schema is not None
    assert "anyOf" in model.asked[0].schema.schema


# --- thinking in front of a reply ---

THINKING = "I could\nAction: search\nAction Input: all\nbut I know it."


@pytest.mark.parametrize(
    "thinking", [f"<think>\n{THINKING}\n</think>\n\n", f"{THINKING}\n</think>\n"]
)
async def test_what_a_model_thinks_in_front_of_its_reply_is_neither_a_call_nor_an_answer(
    thinking: str,
) -> None:
    tools = TextTools(
        Model(
            f"{thinking}Final Answer: 42", f"{thinking}Action: search\nAction Input: a"
        ),
        "react",
    )

    assert await tools.complete(ASKED) == Completion(
        text="Final Answer: 42", answer="42"
    )
    assert (await tools.complete(ASKED)).calls == (ToolCall("search", {"query": "a"}),)


async def test_thinking_that_never_ends_is_a_reply_that_says_nothing_and_goes_back() -> (
    None
):
    completion = await TextTools(Model("<think>\nFinal Answer: 41"), "react").complete(
        ASKED
    )

    assert (completion.text, completion.calls, completion.answer) == ("", (), None)
    assert "neither an action nor a final answer" in (completion.problem or "")


@pytest.mark.parametrize(
    ("content", "thinking", "expected"),
    [
        (
            "<think>\nFinal Answer: 41\n</think>\n\nIt is 42.",
            "Final Answer: 41",
            Completion("It is 42.", answer="It is 42."),
        ),
        (
            "Perhaps 41.</think>It is 42.",
            "Perhaps 41.",
            Completion("It is 42.", answer="It is 42."),
        ),
        (
            [
                {"type": "text", "text": "<think>41"},
                {"type": "text", "text": "</think>42"},
            ],
            "41",
            Completion("42", answer="42"),
        ),
        (
            "<think>\nFinal Answer: 41",
            "Final Answer: 41",
            Completion("", problem="The reply is empty. Answer, or call a tool."),
        ),
    ],
)
def test_a_reply_of_the_wire_is_read_without_its_thinking(
    content: object, thinking: str, expected: Completion
) -> None:
    body = json.dumps(
        {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    ).encode()
    reply = WireReply.read(body)

    assert reply is not None
    assert reply.completion(body) == dataclasses.replace(
        expected, reasoning=(Reasoning(thinking, "think"),)
    )


# --- replies that an engine reads by itself ---


@pytest.mark.parametrize(
    "text",
    ["So it is 42.", "No.\nFinal Answer: 42", "Action: the height\nRevised answer: 42"],
)
async def test_a_reply_that_an_engine_parses_itself_stays_unchanged_beside_calls(
    text: str,
) -> None:
    model = Model(text)
    asked = Request(
        AFTER_A_CALL.user("And now?"), (SEARCH,), tool_choice="none", as_text=True
    )

    completion = await TextTools(model, "react").complete(asked)

    assert completion == Completion(text=text, answer=text)
    assert (model.asked[0].tools, model.asked[0].sampling) == ((), Sampling())
    assert roles_and_contents(model.asked[0])[-1] == (
        "user",
        "Observation: r\n\nAnd now?",
    )
    assert not any(message.calls for message in model.asked[0].conversation)


@pytest.mark.parametrize("dialect", ["xml", "react", "json"])
async def test_a_call_between_tags_that_say_it_is_one_is_read(dialect: str) -> None:
    call = '<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>'
    request = Request(Conversation.of("q"), tools=[SEARCH])

    async def read(text: str) -> Completion:
        model = ScriptedProvider([text], capabilities=Capabilities(native_tools=False))
        return await TextTools(model, dialect).complete(request)

    for tag in ("function_calls", "Response", "tool_calls"):
        completion = await read(f"<{tag}>{call}</{tag}>")
        assert completion.calls[0].arguments == {"query": "a"}
    whole = f"<response>{call}</response>"
    for quoted in (f"<example>{call}</example>", f"<page>{call}</page>", f"{whole} and more"):  # fmt: skip
        assert dialect != "xml" or not (await read(quoted)).calls
