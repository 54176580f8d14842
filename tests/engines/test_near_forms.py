"""Small models that keep to a form that is nearly right: each is repeated by a model, and the run finishes."""

import json
from typing import Any

import pytest

from loopwright import (
    ChainOfThoughtEngine,
    LoopEngine,
    ReActEngine,
    Run,
    Runtime,
    Sampling,
    tool,
)
from loopwright.journals import MemoryJournal
from loopwright.messages import Completion
from loopwright.providers import Capabilities, TextTools
from loopwright.testing import Script, ScriptedProvider, crashed
from recordings import MISSING, fixture

TEXT_ONLY = Capabilities(native_tools=False)
JSON_CALL = '{"name": "search", "arguments": {"query": "x"}}'
RAN: list[str] = []


@tool
def search(query: str) -> str:
    """Search the library."""
    RAN.append(query)
    return f"found {query}"


@tool
def store(path: str, text: str) -> str:
    """Store a text."""
    RAN.append(path)
    return f"found {path}"


@pytest.fixture(autouse=True)
def forget_calls() -> None:
    RAN.clear()


def repeat(form: str, answer: str) -> Any:
    """A model that writes its call in one form only, and answers when it has read a result."""

    def say(request: Any) -> str:
        read = any("found " in m.content for m in request.conversation.messages)
        return answer if read else form

    return say


async def ask(provider: Any, **options: Any) -> Any:
    runtime = Runtime(provider, tools=[search, store], **options)
    return await ReActEngine(runtime).run("Where is x?")


REACT_FORMS = {
    "a code fence": '```\nThought: I look.\nAction: search\nAction Input: {"query": "x"}\n```',
    "a code fence with a language": "```text\nAction: search[x]\n```",
    "a fence of tildes": "~~~\nAction: search[x]\n~~~",
    "an open code fence": '```\nThought: I look.\nAction: search\nAction Input: {"query": "x"}',
    "an open code fence with brackets": "````text\nAction: search[x]",
    "an object behind the name": 'Thought: I look.\nAction: search {"query": "x"}',
    "an object behind a colon": 'Action: search: {"query": "x"}',
    "round brackets": 'Thought: I look.\nAction: search("x")',
    "round brackets around an object": 'Action: search ({"query": "x"})',
    "a named argument": "Action: search(query='x')",
    "round brackets without a quote": "Action: search(x)",
    "no marker": 'search ({"query": "x"})',
    "no marker, square brackets": "search[x]",
    "an unclosed bracket": "Thought: I look.\nAction: search[x",
    "an unclosed round bracket": 'Action: search("x"',
    "foreign tags around a call": "<action>search[x]</action>",
    "foreign tags around lines": '<response>\nThought: a\nAction: search\nAction Input: {"query": "x"}\n</response>',
    "foreign tags around JSON": f"<tool_call>{JSON_CALL}</tool_call>",
    "JSON": JSON_CALL,
    "JSON behind a sentence": f"I will search for it.\n{JSON_CALL}",
    "JSON in a line": f"I will search for it: {JSON_CALL}",
    "JSON in a fence": f"I will search for it.\n```json\n{JSON_CALL}\n```",
    "JSON with other names": '{"action": "search", "action_input": {"query": "x"}}',
}


@pytest.mark.parametrize("dialect", ["react", "react-bracket", "react-numbered"])
@pytest.mark.parametrize("form", REACT_FORMS)
async def test_a_model_that_repeats_a_form_finishes_in_a_react_dialect(
    form: str, dialect: str
) -> None:
    model = ScriptedProvider(
        repeat(REACT_FORMS[form], "Final Answer: there"), capabilities=TEXT_ONLY
    )
    result = await ask(TextTools(model, dialect))
    assert (result.status, result.answer, RAN) == ("completed", "there", ["x"])
    assert result.llm_calls == 2


@pytest.mark.parametrize("dialect", ["xml", "json"])
@pytest.mark.parametrize(
    "form", [name for name in REACT_FORMS if "JSON" in name], ids=str
)
async def test_bare_json_is_a_call_in_the_other_dialects(
    form: str, dialect: str
) -> None:
    answers = {
        "xml": "there",
        "json": '{"action": "final_answer", "action_input": "there"}',
    }
    model = ScriptedProvider(
        repeat(REACT_FORMS[form], answers[dialect]), capabilities=TEXT_ONLY
    )
    result = await ask(TextTools(model, dialect))
    assert (result.status, result.answer, RAN) == ("completed", "there", ["x"])


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "form", [name for name in REACT_FORMS if "JSON" in name], ids=str
)
async def test_a_model_with_native_tools_may_write_a_call(
    form: str, is_streamed: bool
) -> None:
    model = ScriptedProvider(repeat(REACT_FORMS[form], "there"))
    engine = ReActEngine(Runtime(model, tools=[search]))
    async with engine.start("Where is x?", deltas=is_streamed) as run:
        result = await run.result()
    assert (result.answer, RAN, result.llm_calls) == ("there", ["x"], 2)


@pytest.mark.parametrize(
    "text",
    [
        f"For example: {JSON_CALL}",
        f"The format of a call is\n```json\n{JSON_CALL}\n```",
        f"You would write {JSON_CALL}",
        f"`{JSON_CALL}`",
        f"{JSON_CALL}\nThat is how it is done.",
        'It is {"name": "fly", "arguments": {"query": "x"}}',
        'The user: {"name": "search", "version": 2, "arguments": {}}',
        'Its schema: {"name": "search", "parameters": {"type": "object", "properties": {"query": {}}}}',
        '{"name": "search", "arguments": {"query": {"type": "string"}}}',
        '{"name": "search"}',
    ],
)
async def test_json_that_is_no_call_stays_an_answer(text: str) -> None:
    result = await ask(ScriptedProvider([text]))
    assert (result.status, result.answer, RAN) == ("completed", text, [])


@pytest.mark.parametrize("dialect", [None, "react"])
async def test_a_result_that_the_model_repeats_is_not_called(
    dialect: str | None,
) -> None:
    @tool
    def read() -> str:
        """Read the page."""
        return f"found it\n{JSON_CALL}"

    first = {
        None: '{"name": "read", "arguments": {}}',
        "react": "Action: read",
    }[dialect]
    model = ScriptedProvider([first, JSON_CALL, JSON_CALL, JSON_CALL, JSON_CALL])
    provider = model if dialect is None else TextTools(model, dialect)
    await ReActEngine(Runtime(provider, tools=[read, search])).run("Read.")
    assert RAN == []


async def test_a_cut_reply_with_an_open_bracket_is_no_call() -> None:
    cut = Completion("Action: search[x and", finish_reason="length")
    model = ScriptedProvider(
        [cut, "Action: search[x]", "Final Answer: there"], capabilities=TEXT_ONLY
    )
    result = await ask(TextTools(model, "react-bracket"))
    assert (result.answer, RAN) == ("there", ["x"])


async def test_a_cut_reply_in_an_open_code_fence_is_no_call() -> None:
    form = '```\nAction: search\nAction Input: {"query": "x"}'
    cut = Completion(form, answer=form, finish_reason="length")
    model = ScriptedProvider([cut, "Final Answer: there"], capabilities=TEXT_ONLY)
    result = await ask(TextTools(model, "react"))
    assert (result.answer, RAN) == ("there", [])


async def test_an_open_bracket_of_several_parameters_is_no_call() -> None:
    model = ScriptedProvider(
        ["Action: store[a.txt", "Final Answer: there"], capabilities=TEXT_ONLY
    )
    result = await ask(TextTools(model, "react-bracket"))
    assert (result.answer, RAN, result.llm_calls) == ("there", [], 2)


@pytest.mark.parametrize(
    "text", ["Action: finish[]", "Thought: There is nothing.\nAction: Finish[ ]"]
)
async def test_an_empty_finish_ends_the_run_with_no_answer(text: str) -> None:
    journal = MemoryJournal()
    model = ScriptedProvider([text] * 4, capabilities=TEXT_ONLY)
    runtime = Runtime(
        TextTools(model, "react-bracket"), tools=[search], journal=journal
    )
    result = await ReActEngine(runtime).run("Where is x?", run_id="r")
    assert (result.status, result.answer) == ("completed", "no answer")
    replies = [getattr(entry.event, "completion", None) for entry in journal.read("r")]
    assert [reply.flags for reply in replies if reply] == [("empty_answer",)]


# A promise without a call


@pytest.mark.parametrize(
    "promise",
    [
        "I will now search for x.",
        "Sure! Let me look that up.",
        "To answer that I have to know where it is. I'll use the search tool.",
        "I need to find the shelf first:",
    ],
)
async def test_a_promise_is_asked_once_to_act(promise: str) -> None:
    script: Script = [promise, JSON_CALL, "there"]
    result = await ask(ScriptedProvider(script))
    assert (result.answer, RAN, result.llm_calls) == ("there", ["x"], 3)


async def test_a_promise_that_is_repeated_is_the_answer() -> None:
    model = ScriptedProvider(["I will now search for x."] * 3)
    result = await ask(model)
    assert (result.answer, result.llm_calls) == ("I will now search for x.", 2)


@pytest.mark.parametrize(
    "answer",
    [
        "It is there. I will find you a map, too, if you like?",
        "The search found it: there.",
        "I will always remember x.",
        "You should look there. It is on the left.",
        "Your order is confirmed. We will call you tomorrow.",
        "I will now call it a day.",
        "Next, I need to run.",
        "Then we will look forward to your visit.",
        "It is done. I will get in touch with them.",
    ],
)
async def test_an_answer_is_no_promise(answer: str) -> None:
    result = await ask(ScriptedProvider([answer]))
    assert (result.answer, result.llm_calls) == (answer, 1)


async def test_without_tools_there_is_nothing_to_promise() -> None:
    model = ScriptedProvider(["I will now search for x."])
    result = await ReActEngine(Runtime(model)).run("Where is x?")
    assert (result.status, result.llm_calls) == ("completed", 1)


@pytest.mark.parametrize("lines", [["I will now search for x.", "42."], ["42."]])
@pytest.mark.parametrize("had_tools", [True, False])
async def test_a_run_with_a_promise_is_resumed_with_other_tools(
    lines: list[str], had_tools: bool
) -> None:
    tools = [[search], []] if had_tools else [[], [search]]
    model = ScriptedProvider(lines if had_tools else lines[:1])
    journal = MemoryJournal()
    runtime = Runtime(model, tools=tools[0], journal=journal)
    await ReActEngine(runtime).run("Where is x?", run_id="r")
    entries = journal.read("r")
    for keep in range(1, len(entries)):
        cut = crashed(entries, keep)
        resumed = Runtime(ScriptedProvider(["42.", "42."]), tools=tools[1], journal=cut)
        result = await ReActEngine(resumed).resume("r")
        assert result.status == "completed", (keep, result.error)


# A text that cannot be used


class Asking(LoopEngine):
    """Asks for a text."""

    name = "asking"

    async def solve(self, run: Run) -> str:
        return await run.ask("Say it.", sampling=Sampling(temperature=0.1))


CUT = Completion("half an ans", answer="half an ans", finish_reason="length")


@pytest.mark.parametrize("line", ["", " \n", CUT])
async def test_a_blank_or_cut_text_is_asked_for_once_again(line: Any) -> None:
    model = ScriptedProvider([line, "whole"])
    result = await Asking(Runtime(model)).run("x")
    assert (result.answer, result.llm_calls) == ("whole", 2)
    assert model.requests[1].sampling.temperature == 0.1


async def test_a_text_that_is_cut_twice_fails() -> None:
    result = await Asking(Runtime(ScriptedProvider([CUT, CUT, "never"]))).run("x")
    assert (result.status, result.stop_reason) == ("failed", "invalid_output")
    assert result.llm_calls == 2


@pytest.mark.parametrize("at", ["1", "0"])
async def test_a_run_that_was_begun_before_is_resumed_as_it_was(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Revision 0 neither asked again for a blank text nor told a promise to act."""
    from loopwright import engine as module

    class Twice(LoopEngine):
        name = "twice"

        async def solve(self, run: Run) -> str:
            blank = await run.ask("Say it.")
            said = (await run.reason(run.conversation)).answer or ""
            return f"{blank}|{said}|{await run.ask('And?')}"

    journal = MemoryJournal()
    monkeypatch.setattr(module, "REVISION", 0)
    monkeypatch.setattr("loopwright._kernel.session.session.REVISION", 0)
    script = ["", "I will search for x.", "end"]
    model = ScriptedProvider(script)
    old = Twice(Runtime(model, tools=[search], journal=journal))
    assert (await old.run("x", run_id="r")).answer == "|I will search for x.|end"
    monkeypatch.undo()
    keys = [entry.key for entry in journal.read("r")]
    last = len(keys) - keys[::-1].index(at)
    forked = await old.fork("r", at=last, new_id="again")
    rest = ScriptedProvider(script[int(at) + 1 :])
    new = Twice(Runtime(rest, tools=[search], journal=journal))
    assert (await new.resume(forked)).answer == "|I will search for x.|end"
    assert rest.left == 0


# Chain of Thought


async def think(*script: Any, **options: Any) -> tuple[Any, list[str]]:
    journal = MemoryJournal()
    runtime = Runtime(ScriptedProvider(script), journal=journal)
    engine = ChainOfThoughtEngine(runtime, extract="always", **options)
    result = await engine.run("How many?", run_id="r")
    facts = [getattr(entry.event, "name", "") for entry in journal.read("r")]
    return result, [name for name in facts if name == "AmbiguousAnswer"]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("$1,000, i.e. 1000.00 dollars", "1000"),
        ("It is 0.5, which is 1/2", "0.5"),
        ("12 (12.0)", "12"),
    ],
)
async def test_equal_numbers_in_different_dress_agree(reply: str, answer: str) -> None:
    result, flagged = await think("So many.", reply, answer="number")
    assert (result.answer, result.llm_calls, flagged) == (answer, 2, [])


@pytest.mark.parametrize(
    ("kind", "reply", "taken"),
    [
        ("number", "10 or 12", "10"),
        ("letter", "B or C", "B"),
        ("yes_no", "In part yes, in part no!", "yes"),
    ],
)
async def test_of_a_second_ambiguous_reply_the_first_named_is_taken(
    kind: Any, reply: str, taken: str
) -> None:
    result, flagged = await think("Hm.", reply, reply, answer=kind)
    assert (result.status, result.answer) == ("completed", taken)
    assert result.llm_calls == 3
    assert flagged == ["AmbiguousAnswer"]


@pytest.mark.parametrize("reply", ["It is not 5.", "I do not know."])
async def test_a_reply_that_names_none_is_no_answer(reply: str) -> None:
    result, flagged = await think("Hm.", reply, reply, answer="number")
    assert (result.status, result.stop_reason) == ("failed", "unreadable")
    assert flagged == []


# Recordings

CASES = fixture("cortex_toolcall_cases.json")


@pytest.mark.skipif(not CASES.exists(), reason=MISSING)
async def test_recorded_calls_in_text_run_as_often_as_they_were_meant() -> None:
    expected = {
        "std": ["a"], "simple": ["file_write"], "html": [], "fence-inside-tag": ["a"], "package-json": [],
        "quoted-example": [], "single-quotes": ["a"],
    }  # fmt: skip
    ran: list[str] = []

    def build(name: str) -> Any:
        def work(**arguments: Any) -> str:
            ran.append(name)
            return "found it"

        work.__name__ = name
        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        from loopwright.tools import Tool

        return Tool(name, "Does it.", schema, work)

    for case in json.loads(CASES.read_text())["cases"]:
        if case["id"] not in expected:
            continue
        ran.clear()
        names = ("a", "b", "file_write", "shell")
        model = ScriptedProvider(repeat(case["text"], "there"))
        await ReActEngine(Runtime(model, tools=[build(name) for name in names])).run(
            "x"
        )
        assert ran == expected[case["id"]], case["id"]
