"""Cassettes: what was said once is said again without a network, and what was never said is loudly missed."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import (
    Attachment,
    Completion,
    ConfigError,
    Conversation,
    Delta,
    LoopEngine,
    Message,
    ProviderError,
    ReActEngine,
    Reasoning,
    Request,
    Run,
    Runtime,
    Sampling,
    ToolCall,
    Usage,
    available_engines,
    tool,
)
from loopwright.errors import ContextTooLong
from loopwright.providers import Capabilities, OutputSchema
from loopwright.testing import (
    Cassette,
    CassetteMiss,
    FakeClock,
    RecordingProvider,
    ReplayingProvider,
    ScriptedProvider,
    call,
    cassette,
)
from loopwright.testing.contracts.models import polite
from needed_options import NEEDED
from sample_tools import look


def ask(text: str, **more: Any) -> Request:
    return Request(Conversation.of(text), **more)


async def recorded(
    path: Path, *asked: Request, script: Any = None, **options: Any
) -> list[Any]:
    """What a model said to some requests while it was recorded: completions, and the texts of failures."""
    provider = RecordingProvider(
        ScriptedProvider(script or (lambda r: f"re {r.conversation.task}")),
        path,
        **options,
    )
    return [await outcome(provider, request) for request in asked]


async def outcome(provider: Any, request: Request) -> Any:
    try:
        return await provider.complete(request)
    except ProviderError as error:
        return type(error), str(error), error.status, error.retryable, error.retry_after


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def asked_in_turn(provider: Any, *asked: Request) -> None:
    for request in asked:
        await provider.complete(request)


async def streamed(provider: Any, request: Request) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


# --- the same again ---


async def test_the_same_request_is_answered_the_same_without_the_model(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new folder" / "c.json"
    said = await recorded(path, ask("a"), ask("b"))
    replaying = ReplayingProvider(path)

    assert [
        await replaying.complete(ask("b")),
        await replaying.complete(ask("a")),
    ] == said[::-1]
    assert (replaying.name, replaying.model, replaying.capabilities) == (
        "scripted", "script", Capabilities(
            json_schema=True, schema_with_tools=True, max_output_tokens=4_096, images=True, documents=True
        ),
    )  # fmt: skip
    assert replaying.left == 0


async def test_every_field_of_a_reply_comes_back(tmp_path: Path) -> None:
    whole = Completion(
        "text", (ToolCall("look", {"what": [1, None, {"ü": 1.5}]}, "c1"),), None, None, "tool_calls",
        Usage(9, 8, 7, 6, 5, 0.25, True), "a thought", "model-2", ("flag",),
        (Reasoning("hm", "thinking", {"signature": "s"}),),
    )  # fmt: skip
    unread = Completion("{", problem="no JSON", finish_reason="length")
    await recorded(tmp_path / "c", ask("a"), ask("b"), script=[whole, unread])
    replaying = ReplayingProvider(tmp_path / "c")

    assert [await replaying.complete(ask(text)) for text in "ab"] == [whole, unread]


async def test_a_repeated_request_gets_its_replies_in_order_and_then_none(
    tmp_path: Path,
) -> None:
    await recorded(tmp_path / "c", *[ask("a")] * 3, script=["1", "2", "3"])
    replaying = ReplayingProvider(tmp_path / "c")

    assert [(await replaying.complete(ask("a"))).answer for _ in range(3)] == [
        "1",
        "2",
        "3",
    ]
    with pytest.raises(
        CassetteMiss, match="has 3 replies to this request, which is asked once more"
    ):
        await replaying.complete(ask("a"))


async def test_replies_are_kept_in_the_order_of_their_requests_whoever_came_first(
    tmp_path: Path,
) -> None:
    class Slow(ScriptedProvider):
        async def complete(self, request: Request) -> Completion:
            number = len(self.requests)
            said = await super().complete(request)
            for _ in range(10 - 3 * number):  # the first takes longest
                await asyncio.sleep(0)
            return said

    provider = RecordingProvider(Slow(["1", "2", "3"]), tmp_path / "c")
    await asyncio.gather(*(provider.complete(ask("a")) for _ in range(3)))
    replaying = ReplayingProvider(tmp_path / "c")

    assert [(await replaying.complete(ask("a"))).answer for _ in range(3)] == [
        "1",
        "2",
        "3",
    ]


@pytest.mark.parametrize(
    "error",
    [
        ProviderError("busy", status=429, retryable=True, retry_after=2.5),
        ContextTooLong("too long", status=400),
    ],
)
async def test_failures_are_replayed_too(tmp_path: Path, error: ProviderError) -> None:
    said = await recorded(tmp_path / "c", ask("a"), ask("a"), script=[error, "fine"])
    replaying = ReplayingProvider(tmp_path / "c")

    assert [await outcome(replaying, ask("a")) for _ in range(2)] == said
    assert said[0] == (
        type(error),
        str(error),
        error.status,
        error.retryable,
        error.retry_after,
    )


async def test_a_call_that_was_cancelled_or_crashed_leaves_nothing(
    tmp_path: Path,
) -> None:
    provider = RecordingProvider(
        ScriptedProvider([asyncio.CancelledError(), RuntimeError("a bug"), "fine"]),
        tmp_path / "c",
    )
    for kind in (asyncio.CancelledError, RuntimeError):
        with pytest.raises(kind):
            await provider.complete(ask("a"))
    assert not (tmp_path / "c").exists()
    await provider.complete(ask("a"))

    assert (await ReplayingProvider(tmp_path / "c").complete(ask("a"))).answer == "fine"


async def test_a_stream_is_passed_on_and_kept_whole(tmp_path: Path) -> None:
    turn = Completion(
        "I look.",
        (call("look", what="sky"),),
        reasoning=(Reasoning("hm"),),
        finish_reason="tool_calls",
    )
    plain = ScriptedProvider([turn, turn])
    provider = RecordingProvider(ScriptedProvider([turn]), tmp_path / "c")
    passed = await streamed(provider, ask("a"))

    assert passed == await streamed(plain, ask("a"))
    assert await streamed(ReplayingProvider(tmp_path / "c"), ask("a")) == passed
    assert await ReplayingProvider(tmp_path / "c").complete(ask("a")) == turn


async def test_a_model_that_cannot_stream_is_recorded_in_one_piece(
    tmp_path: Path,
) -> None:
    class Plain:
        name, model, capabilities = "plain", "p", Capabilities()

        async def complete(self, request: Request) -> Completion:
            return Completion("blue", answer="blue")

    assert await streamed(RecordingProvider(Plain(), tmp_path / "c"), ask("a")) == [
        Delta(text="blue", completion=Completion("blue", answer="blue"))
    ]
    assert (await ReplayingProvider(tmp_path / "c").complete(ask("a"))).answer == "blue"


async def test_a_stream_that_fails_half_way_is_replayed_as_a_failure(
    tmp_path: Path,
) -> None:
    class Breaking(ScriptedProvider):
        async def stream(self, request: Request) -> Any:
            yield Delta(text="blu")
            raise ProviderError("cut off", retryable=True)

    with pytest.raises(ProviderError, match="cut off"):
        await streamed(RecordingProvider(Breaking([]), tmp_path / "c"), ask("a"))
    with pytest.raises(ProviderError, match="cut off"):
        await streamed(ReplayingProvider(tmp_path / "c"), ask("a"))


TEXTS = st.text(max_size=20)
ARGUMENTS = st.dictionaries(TEXTS, st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8,
), max_size=3)  # fmt: skip


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    arguments=ARGUMENTS,
    cost=st.none() | st.floats(0, 9),
)
@settings(max_examples=50)
def test_any_reply_comes_back_as_it_was(
    tmp_path_factory: Any, text: str, arguments: Any, cost: Any
) -> None:
    path = tmp_path_factory.mktemp("any") / "c"
    arguments = json.loads(json.dumps(arguments).encode("utf-8", "replace"))
    said = Completion(text, (ToolCall("f", arguments, "i"),), usage=Usage(cost=cost))

    async def both() -> Completion:
        await recorded(path, ask("a"), script=[said])
        return await ReplayingProvider(path).complete(ask("a"))

    assert asyncio.run(both()) == said


# --- what makes a request another one ---

LOOK = tool(effect="read", name="look")(lambda: None).spec
PAST = [
    Message("user", "a"),
    Message("assistant", "", (ToolCall("look", {}, "c1"),)),
    Message("tool", "x", (), "c1"),
]
OTHERS = {
    "text": ask("b"),
    "system": Request(Conversation.of("a", system="s")),
    "tools": ask("a", tools=(LOOK,)),
    "tool choice": ask("a", tool_choice="none"),
    "sampling": ask("a", sampling=Sampling(temperature=0.0)),
    "schema": ask("a", schema=OutputSchema("S", {"type": "object"})),
    "as text": ask("a", as_text=True),
    "history": Request(Conversation(PAST)),
    "image": Request(
        Conversation.of("a", attachments=[Attachment.image(b"\x89PNG\r\n1")])
    ),
    "another image": Request(
        Conversation.of("a", attachments=[Attachment.image(b"\x89PNG\r\n2")])
    ),
    "reasoning": Request(
        Conversation(
            [*PAST[:1], Message("assistant", "x", reasoning=(Reasoning("hm"),))]
        )
    ),
}


@pytest.mark.parametrize("changed", OTHERS)
async def test_a_change_of_anything_that_a_model_reads_is_a_miss(
    tmp_path: Path, changed: str
) -> None:
    others = [request for name, request in OTHERS.items() if name != changed]
    await recorded(tmp_path / "c", ask("a"), *others)

    with pytest.raises(CassetteMiss, match="LOOPWRIGHT_RECORD=always"):
        await ReplayingProvider(tmp_path / "c").complete(OTHERS[changed])


async def test_who_wrote_a_message_and_the_order_of_names_make_no_difference(
    tmp_path: Path,
) -> None:
    def asked(origin: Any, arguments: dict[str, Any]) -> Request:
        turn = Message(
            "assistant", "", (ToolCall("look", arguments, "c1"),), origin=origin
        )
        return Request(
            Conversation(
                [
                    Message("user", "a", origin=origin),
                    turn,
                    Message("tool", "x", (), "c1"),
                ]
            )
        )

    await recorded(tmp_path / "c", asked("caller", {"a": 1, "b": 2}))

    await ReplayingProvider(tmp_path / "c").complete(asked("engine", {"b": 2, "a": 1}))


async def test_images_are_kept_by_their_hash(tmp_path: Path) -> None:
    picture = Attachment.image(b"\x89PNG\r\n" + b"pixels" * 1000, name="sky.png")
    await recorded(tmp_path / "c", Request(Conversation.of("a", attachments=[picture])))

    assert picture.digest in (tmp_path / "c").read_text()
    assert picture.data[:40] not in (tmp_path / "c").read_text()


async def test_a_miss_shows_the_nearest_request_and_the_first_difference(
    tmp_path: Path,
) -> None:
    await recorded(
        tmp_path / "c.json",
        ask("What is the sea?"),
        ask("One\nWhat colour is the sky?\nThree"),
    )

    with pytest.raises(CassetteMiss) as missed:
        await ReplayingProvider(tmp_path / "c.json").complete(
            ask("One\nWhat colour was the sky?\nThree")
        )

    assert str(missed.value).splitlines() == [
        f"cassette {tmp_path / 'c.json'} has no reply to this request. The nearest that it knows (-) differs:",
        "--- recorded",
        "+++ asked",
        "@@ -2,7 +2,7 @@",
        '  "messages": [',
        "   {",
        '    "content": "One',
        "-What colour is the sky?",
        "+What colour was the sky?",
        ' Three",',
        '    "role": "user"',
        "   }",
        "If the change is meant, record it again: LOOPWRIGHT_RECORD=always, or delete the file.",
    ]


async def test_a_miss_in_a_huge_line_is_cut_to_where_it_differs(tmp_path: Path) -> None:
    await recorded(tmp_path / "c", ask("x" * 50_000 + "SKY" + "y" * 50_000))

    with pytest.raises(CassetteMiss) as missed:
        await ReplayingProvider(tmp_path / "c").complete(
            ask("x" * 50_000 + "SEA" + "y" * 50_000)
        )

    assert "SKY" in str(missed.value)
    assert "SEA" in str(missed.value)
    assert len(str(missed.value)) < 2000


# --- in a run ---


@tool(effect="idempotent")
async def put(what: str) -> str:
    """Put something somewhere."""
    return f"{what} is there"


def runtime(provider: Any) -> Runtime:
    return Runtime(provider, tools=[look, put], clock=FakeClock())


@pytest.mark.parametrize("name", available_engines())
async def test_a_run_of_every_engine_replays_from_its_cassette(
    tmp_path: Path, name: str
) -> None:
    model = ScriptedProvider(polite)
    first = (
        await runtime(RecordingProvider(model, tmp_path / "c"))
        .engine(name, **NEEDED.get(name, {}))
        .run("What colour?", run_id="r")
    )
    replaying = ReplayingProvider(tmp_path / "c")
    again = (
        await runtime(replaying)
        .engine(name, **NEEDED.get(name, {}))
        .run("What colour?", run_id="r")
    )

    assert first.status == "completed"
    assert (again.answer, again.usage, again.llm_calls) == (
        first.answer,
        first.usage,
        first.llm_calls,
    )
    assert (replaying.left, replaying.misses) == (0, [])


async def test_two_recordings_of_a_run_with_branches_are_the_same_bytes(
    tmp_path: Path,
) -> None:
    class Reordering(ScriptedProvider):
        """Takes another time for each reply in each of its lives."""

        pauses = 0

        async def complete(self, request: Request) -> Completion:
            Reordering.pauses = (Reordering.pauses * 7 + 3) % 11
            for _ in range(Reordering.pauses):
                await asyncio.sleep(0)
            return await super().complete(request)

    for name in ("a", "b", "c"):
        model = RecordingProvider(Reordering(polite), tmp_path / name)
        await runtime(model).engine("tree-of-thoughts").run("What colour?", run_id="r")

    assert (
        (tmp_path / "a").read_bytes()
        == (tmp_path / "b").read_bytes()
        == (tmp_path / "c").read_bytes()
    )


async def test_a_miss_ends_a_run_as_failed_without_another_try_and_says_why(
    tmp_path: Path,
) -> None:
    await recorded(tmp_path / "c", ask("another task"))
    replaying = ReplayingProvider(tmp_path / "c")
    result = await ReActEngine(runtime(replaying)).run("What colour?")

    assert (result.status, result.stop_reason) == ("failed", "provider_error")
    assert "CassetteMiss: cassette" in str(result.error)
    assert '+   "content": "What colour?",' in str(result.error)
    assert len(replaying.misses) == 1


async def test_several_models_share_a_cassette_and_are_distinguished(
    tmp_path: Path,
) -> None:
    shared = Cassette(tmp_path / "c")
    for name in ("big", "small"):
        await RecordingProvider(ScriptedProvider([name], model=name), shared).complete(
            ask("a")
        )

    for name in ("small", "big"):
        assert (
            await ReplayingProvider(tmp_path / "c", model=name).complete(ask("a"))
        ).answer == name
    with pytest.raises(
        ConfigError,
        match=r"model: .* holds the models 'big', 'small': say which .* got None",
    ):
        ReplayingProvider(tmp_path / "c")


def test_threads_record_into_one_cassette(tmp_path: Path) -> None:
    shared = Cassette(tmp_path / "c")

    def work(name: str) -> None:
        provider = RecordingProvider(
            ScriptedProvider(lambda r: r.conversation.task), shared
        )
        for number in range(20):
            asyncio.run(provider.complete(ask(f"{name}{number}")))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ReplayingProvider(tmp_path / "c").left == 80
    assert names(tmp_path) == ["c"]


# --- secrets ---


async def test_secrets_are_never_written_and_do_not_hinder_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "key-of-the-first-day")
    monkeypatch.setenv("SHORT_TOKEN", "blue")
    turn = Completion(
        'it is pa$$ "w', (call("look", what="key-of-the-first-day", **{'pa$$ "w': 1}),)
    )
    secrets = ['pa$$ "w']
    await recorded(
        tmp_path / "c", ask('pa$$ "w key-of-the-first-day blue'), ask("b"),
        script=[turn, ProviderError("bad key key-of-the-first-day")], secrets=secrets,
    )  # fmt: skip
    text = (tmp_path / "c").read_text()
    monkeypatch.setenv("SOME_API_KEY", "key-of-another-day")
    replaying = ReplayingProvider(tmp_path / "c", secrets=secrets)

    assert "first-day" not in text
    assert "pa$$" not in text
    assert "[redacted] [redacted] blue" in text
    assert (
        await replaying.complete(ask('pa$$ "w key-of-another-day blue'))
    ).text == "it is [redacted]"
    assert (await outcome(replaying, ask("b")))[1] == "bad key [redacted]"


NASTY = 'pa"ss\\wörd 1\nPEM'
WRITTEN = {
    "as it is": NASTY,
    "in JSON": json.dumps({"password": NASTY}),
    "in JSON that is not ASCII": json.dumps({"password": NASTY}, ensure_ascii=False),
    "in JSON in JSON": json.dumps({"body": json.dumps({"password": NASTY})}),
    "in an address": f"https://x.example/?k={quote(NASTY, safe='')}",
    "in a form": urlencode({"k": NASTY}),
}


@pytest.mark.parametrize("form", WRITTEN)
async def test_a_secret_is_found_in_whatever_form_a_text_has_it(
    tmp_path: Path, form: str
) -> None:
    text = WRITTEN[form]
    await recorded(tmp_path / "c", ask(text), script=[text], secrets=[NASTY])
    kept = json.loads((tmp_path / "c").read_text())["exchanges"][0]
    replaying = ReplayingProvider(tmp_path / "c", secrets=[NASTY])

    for found in (
        kept["request"]["messages"][0]["content"],
        kept["replies"][0]["completion"]["text"],
    ):
        assert "[redacted]" in found
        assert "PEM" not in found
    assert (await replaying.complete(ask(text))).text == kept["replies"][0][
        "completion"
    ]["text"]


async def test_a_number_that_is_a_secret_is_not_written_and_counts_of_tokens_stay(
    tmp_path: Path,
) -> None:
    turn = Completion(
        calls=(call("pay", card=4111_1111, sum=10, deep=[{"pin": 4111_1111}]),),
        usage=Usage(10, 5),
    )
    await recorded(tmp_path / "c", ask("a"), script=[turn], secrets=["41111111", "10"])
    said = await ReplayingProvider(tmp_path / "c").complete(ask("a"))

    assert "1111" not in (tmp_path / "c").read_text()
    assert said.calls[0].arguments == {
        "card": "[redacted]",
        "sum": "[redacted]",
        "deep": [{"pin": "[redacted]"}],
    }
    assert said.usage == Usage(10, 5)


async def test_the_names_of_model_and_provider_hold_no_secret(tmp_path: Path) -> None:
    class Named(ScriptedProvider):
        name = "proxy-hunter22.example"

    provider = RecordingProvider(
        Named(["blue"], model="ft:hunter22"), tmp_path / "c", secrets=["hunter22"]
    )
    await provider.complete(ask("a"))

    assert "hunter22" not in (tmp_path / "c").read_text()
    for model in (None, "ft:hunter22"):
        replaying = ReplayingProvider(tmp_path / "c", model=model, secrets=["hunter22"])
        assert (replaying.name, replaying.model) == (
            "proxy-[redacted].example",
            "ft:[redacted]",
        )
        assert (await replaying.complete(ask("a"))).answer == "blue"


async def test_a_miss_names_the_variable_whose_value_was_left_out_in_one_of_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SORT_KEY", "timestamp")
    monkeypatch.setenv("UNUSED_KEY", "never in a request")
    await recorded(tmp_path / "c", ask("sort by timestamp"), ask("then by customer"))
    monkeypatch.delenv("SORT_KEY")
    monkeypatch.setenv("GROUP_KEY", "customer")
    replaying = ReplayingProvider(tmp_path / "c")

    assert json.loads((tmp_path / "c").read_text())["redacted"] == ["SORT_KEY"]
    gone = (
        "What SORT_KEY held was left out when it was recorded, and is not known here."
    )
    new = "What GROUP_KEY holds here is left out, and was not when it was recorded."
    with pytest.raises(CassetteMiss) as missed:
        await replaying.complete(ask("sort by timestamp"))
    assert str(missed.value).splitlines()[-1] == gone
    with pytest.raises(CassetteMiss) as missed:
        await replaying.complete(ask("then by customer"))
    assert str(missed.value).splitlines()[-2:] == [gone, new]


@pytest.mark.parametrize("secrets", [[""], ["fine", ""], "a text"])
def test_a_secret_that_is_no_text_is_refused(tmp_path: Path, secrets: Any) -> None:
    with pytest.raises(ConfigError, match="secrets: must be a list of texts"):
        Cassette(tmp_path / "c", secrets=secrets)


# --- the one-liner ---


class Forbidden:
    def __call__(self) -> Any:
        raise AssertionError("nothing is to be recorded")


async def test_a_cassette_is_recorded_once_and_replayed_ever_after(
    tmp_path: Path,
) -> None:
    with cassette(tmp_path / "c", ScriptedProvider(["blue"])) as model:
        assert (await ReActEngine(Runtime(model)).run("Sky?")).answer == "blue"
    with cassette(tmp_path / "c", Forbidden()) as model:
        assert (await ReActEngine(Runtime(model)).run("Sky?")).answer == "blue"
    with cassette(tmp_path / "c") as model:
        assert (await ReActEngine(Runtime(model)).run("Sky?")).answer == "blue"


@pytest.mark.parametrize("record", ["once", "always"])
async def test_a_recording_whose_block_fails_is_not_replayed(
    tmp_path: Path, record: Any
) -> None:
    if record == "always":
        await recorded(tmp_path / "c", ask("a"), script=["old"])
    down = ScriptedProvider(["half", RuntimeError("the network is down")])
    with (
        pytest.raises(RuntimeError),
        cassette(tmp_path / "c", down, record=record) as model,
    ):
        await asked_in_turn(model, ask("a"), ask("b"))

    kept = {
        name: (await ReplayingProvider(tmp_path / name).complete(ask("a"))).answer
        for name in names(tmp_path)
    }
    assert kept == {"c.partial": "half", **({"c": "old"} if record == "always" else {})}

    with cassette(tmp_path / "c", ScriptedProvider(["whole"]), record=record) as model:
        assert (await model.complete(ask("a"))).answer == "whole"
    assert names(tmp_path) == ["c"]
    with cassette(tmp_path / "c") as model:
        assert (await model.complete(ask("a"))).answer == "whole"


async def test_a_block_that_asks_nothing_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "c.partial").write_text("what an earlier block left")
    with cassette(tmp_path / "c", ScriptedProvider([])):
        pass

    assert not (tmp_path / "c").exists()


async def test_each_reply_is_on_the_disk_before_the_block_ends(tmp_path: Path) -> None:
    with cassette(tmp_path / "c", ScriptedProvider(["1", "2"])) as model:
        for number in (1, 2):
            await model.complete(ask(str(number)))
            assert ReplayingProvider(tmp_path / "c.partial").left == number


async def test_a_miss_is_raised_at_the_end_of_the_block_however_the_engine_took_it(
    tmp_path: Path,
) -> None:
    class Swallows(LoopEngine):
        name = "swallows"

        async def solve(self, run: Run) -> str:
            try:
                return await run.ask(run.conversation)
            except ProviderError:
                return "I do not care"

    await recorded(tmp_path / "c", ask("a"))
    with (
        pytest.raises(CassetteMiss, match="What now"),
        cassette(tmp_path / "c") as model,
    ):
        assert (
            await Swallows(Runtime(model)).run("What now?")
        ).answer == "I do not care"


async def test_a_block_that_fails_because_of_a_miss_says_so(tmp_path: Path) -> None:
    await recorded(tmp_path / "c.json", ask("sky?"))

    with pytest.raises(CassetteMiss), cassette(tmp_path / "c.json") as model:
        (await ReActEngine(Runtime(model)).run("sea?")).raise_for_status()


async def test_the_environment_says_how_to_record_unless_the_test_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c"
    await recorded(path, ask("a"), script=["old"])
    monkeypatch.setenv("LOOPWRIGHT_RECORD", "always")
    with cassette(path, Forbidden(), record="once") as model:
        assert (await model.complete(ask("a"))).answer == "old"
    with cassette(path, lambda: ScriptedProvider(["new"])) as model:
        assert (await model.complete(ask("a"))).answer == "new"
    monkeypatch.setenv("LOOPWRIGHT_RECORD", "never")
    with (
        pytest.raises(ConfigError, match="there is no such file"),
        cassette(tmp_path / "other", Forbidden()),
    ):
        pass
    monkeypatch.setenv("LOOPWRIGHT_RECORD", "sometimes")
    told = "LOOPWRIGHT_RECORD: must be one of once, never, always, got 'sometimes'"
    with pytest.raises(ConfigError, match=told), cassette(path):
        pass


def test_a_cassette_without_file_and_provider_says_so(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="does not exist, and there is no provider"),
        cassette(tmp_path / "c"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="'nobody:x' does not begin with"),
        cassette(tmp_path / "c", "nobody:x"),
    ):
        pass


# --- the file ---


async def test_the_file_is_readable_and_tells_its_version(tmp_path: Path) -> None:
    await recorded(tmp_path / "c", ask("What colour is the sky?"), script=["Blue."])

    assert json.loads((tmp_path / "c").read_text()) == {
        "format": "loopwright-cassette",
        "version": 1,
        "models": [
            {
                "provider": "scripted",
                "model": "script",
                "capabilities": {
                    "native_tools": True,
                    "json_schema": True,
                    "stop": True,
                    "schema_with_tools": True,
                    "context_tokens": None,
                    "max_output_tokens": 4096,
                    "images": True,
                    "documents": True,
                    "max_samples": 1,
                    "provider_tools": [],
                },
            }
        ],
        "exchanges": [
            {
                "request": {
                    "model": "script",
                    "messages": [
                        {"role": "user", "content": "What colour is the sky?"}
                    ],
                    "tool_choice": "auto",
                },
                "replies": [
                    {
                        "completion": {
                            "text": "Blue.",
                            "answer": "Blue.",
                            "usage": {
                                "input_tokens": 10,
                                "output_tokens": 5,
                                "cached_tokens": None,
                                "cache_write_tokens": None,
                                "reasoning_tokens": None,
                                "cost": None,
                                "estimated": False,
                            },
                            "model": "script",
                        }
                    }
                ],
            }
        ],
    }


async def test_the_file_is_indented_like_any_json(tmp_path: Path) -> None:
    turn = Completion("I\nlook.", (call("look", what=["☃\u2028", {}]),))
    await recorded(
        tmp_path / "c",
        ask("a"),
        ask("a"),
        ask("b\nc", tools=(LOOK,)),
        script=[turn, "2", "3"],
    )
    text = (tmp_path / "c").read_text()

    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"


async def test_a_request_is_encoded_once_however_many_replies_follow(
    tmp_path: Path,
) -> None:
    class Counted(dict[str, Any]):
        """Arguments that count how often they are read."""

        reads = 0

        def items(self) -> Any:
            self.reads += 1
            return super().items()

    arguments, provider = (
        Counted(what="sky"),
        RecordingProvider(ScriptedProvider(str), tmp_path / "c"),
    )
    turn = Completion(calls=(ToolCall("look", arguments),))
    first = RecordingProvider(ScriptedProvider([turn]), provider.cassette)
    await first.complete(ask("first"))
    before = arguments.reads
    for number in range(5):
        await provider.complete(ask(f"{number}"))

    assert before > 0
    assert arguments.reads == before


async def test_writing_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    """However long a write takes, other tasks go on, and the one that asked waits for it."""
    provider = RecordingProvider(ScriptedProvider(["blue"]), tmp_path / "c")
    with provider.cassette._file_lock:  # as if another thread were at it
        asking = asyncio.ensure_future(provider.complete(ask("a")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not asking.done()
    assert (await asking).answer == "blue"


BAD: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another version": (lambda c: {**c, "version": 2}, "version: Input should be 1"),
    "another format": (lambda c: {**c, "format": "vcr"}, "format: Input should be 'loopwright-cassette'"),
    "no exchanges": (lambda c: {n: v for n, v in c.items() if n != "exchanges"}, "exchanges: required"),
    "a list": (lambda _: [], "is not what was recorded"),
    "a reply of nothing known": (
        lambda c: {**c, "exchanges": [{"request": {}, "replies": [{"complet": 1}]}]}, "exchanges.0.replies.0.complet"
    ),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
async def test_a_file_that_is_none_names_what_is_wrong(
    tmp_path: Path, bad: str
) -> None:
    await recorded(tmp_path / "c", ask("a"))
    change, words = BAD[bad]
    (tmp_path / "c").write_text(
        json.dumps(change(json.loads((tmp_path / "c").read_text())))
    )

    with pytest.raises(ConfigError) as refused:
        ReplayingProvider(tmp_path / "c")
    assert str(refused.value).startswith(f"cassette {tmp_path / 'c'}: ")
    assert words in str(refused.value)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("{ half")
    with pytest.raises(ConfigError, match="is not JSON"):
        ReplayingProvider(tmp_path / "c")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        ReplayingProvider(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written: "):
        asyncio.run(recorded(tmp_path / "c" / "below", ask("a")))
