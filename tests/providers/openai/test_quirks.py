"""What is known of each endpoint: what it is sent, what it is spared, and how it is named."""

import json
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

from loopwright import Attachment, ReActEngine, Runtime
from loopwright.errors import ConfigError, ProviderError
from loopwright.events import AttemptFailed
from loopwright.messages import Conversation, Message, Reasoning, ToolCall, ToolSpec
from loopwright.plugins import build_provider
from loopwright.providers import OpenAIProvider, OutputSchema, Quirks, Request
from loopwright.providers.openai.endpoints import build_ollama_url, ollama
from loopwright.providers.openai.quirks import (
    DEFAULT,
    LLAMACPP,
    LMSTUDIO,
    LOCAL,
    OLLAMA,
    OPENAI,
    OPENROUTER,
    VLLM,
)
from loopwright.testing import FakeClock

ALL = {
    "stranger": DEFAULT,
    "openai": OPENAI,
    "openrouter": OPENROUTER,
    "vllm": VLLM,
    "llamacpp": LLAMACPP,
    "ollama": OLLAMA,
    "lmstudio": LMSTUDIO,
}
PIXEL = b"\x89PNG\r\n\x1a\nnot really"
PIXEL_URL = "data:image/png;base64,iVBORw0KGgpub3QgcmVhbGx5"
PDF_URL = "data:application/pdf;base64,JVBERi0xLjcK"
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {}})
MADE_BY_NAME = ("OPENROUTER", "OLLAMA", "VLLM", "LLAMACPP", "LMSTUDIO")


@pytest.fixture(autouse=True)
def a_bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OLLAMA_HOST",
        "OLLAMA_CONTEXT_LENGTH",
        *(
            f"{name}_{what}"
            for name in MADE_BY_NAME
            for what in ("BASE_URL", "API_KEY")
        ),
    ):
        monkeypatch.delenv(name, raising=False)


async def sent(request: Request, quirks: Quirks) -> JsonValue:
    """The body that a request becomes."""
    bodies: list[JsonValue] = []

    def answer(asked: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(asked.content))
        return httpx.Response(
            200,
            json={"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]},
        )

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        await OpenAIProvider(
            "m", base_url="http://h/v1", api_key="", client=client, quirks=quirks
        ).complete(request)
    return bodies[0]


async def messages(conversation: Conversation, quirks: Quirks = OPENAI) -> JsonValue:
    body = await sent(Request(conversation), quirks)
    assert isinstance(body, dict)
    return body["messages"]


def looking_at(*attachments: Attachment, text: str = "What is it?") -> Conversation:
    return Conversation.of(text, attachments=attachments)


# Which endpoint it is


@pytest.mark.parametrize(
    ("base_url", "quirks"),
    [
        ("https://api.openai.com/v1", OPENAI),
        ("https://openrouter.ai/api/v1", OPENROUTER),
        ("http://localhost:11434/v1", OLLAMA),
        ("http://127.0.0.1:1234/v1", LMSTUDIO),
        ("http://[::1]:8080/v1", LLAMACPP),
        ("http://127.0.0.1:8000/v1", VLLM),
        ("http://127.0.0.1:9999/v1", LOCAL),
        ("http://localhost/v1", LOCAL),
        ("http://10.0.0.7:8000/v1", DEFAULT),
        ("https://api.openai.com.example/v1", DEFAULT),
        ("http://models:port/v1", DEFAULT),
    ],
)
def test_an_endpoint_is_known_by_its_host_or_by_its_port_on_this_machine(
    base_url: str, quirks: Quirks
) -> None:
    assert Quirks.guess(base_url) is quirks


def test_what_is_expected_of_each_endpoint() -> None:
    def where(field: str, value: object) -> set[str]:
        return {name for name, quirks in ALL.items() if getattr(quirks, field) == value}

    local = {"vllm", "llamacpp", "ollama", "lmstudio"}
    assert where("max_tokens_field", "max_completion_tokens") == {"openai"}
    assert where("json_schema", True) == {"openai", *local}
    assert where("stream_usage", False) == {"stranger"}
    assert where("one_system_message", True) == local
    assert where("parallel_tool_calls", True) == {"llamacpp"}
    assert where("tool_choice_none", False) == {"ollama"}
    assert where("fetches_images", False) == {"ollama", "lmstudio"}
    assert where("attachments", frozenset({"image", "document"})) == {
        "openai",
        "openrouter",
    }
    assert where("send_reasoning", "reasoning_details") == {"openrouter"}
    assert where("send_reasoning", None) == ALL.keys() - {"openrouter"}


# What is sent because of it


async def test_several_system_messages_are_joined_where_a_template_allows_one() -> None:
    conversation = Conversation(
        [Message("user", "Hi."), Message("system", "A."), Message("system", "B.")]
    )
    wire = [
        {"role": message.role, "content": message.content} for message in conversation
    ]

    assert await messages(conversation, OPENAI) == wire
    assert await messages(conversation, VLLM) == [
        {"role": "system", "content": "A.\n\nB."},
        wire[0],
    ]
    assert await messages(Conversation.of("Hi.", system="A."), VLLM) == [
        {"role": "system", "content": "A."},
        wire[0],
    ]


async def test_an_endpoint_that_does_not_keep_to_tool_choice_none_is_shown_no_tools_then() -> (
    None
):
    asked = Request(Conversation.of("x"), (ADD,), tool_choice="none")
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}

    assert await sent(asked, Quirks(tool_choice_none=False)) == body
    assert "tool_choice" in json.dumps(await sent(asked, DEFAULT))
    assert "add" in json.dumps(
        await sent(
            Request(Conversation.of("x"), (ADD,)), Quirks(tool_choice_none=False)
        )
    )


async def test_strict_mode_is_not_mentioned_where_it_is_unknown() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {}, "required": []}
    asked = Request(Conversation.of("x"), schema=OutputSchema("n", schema))
    body = await sent(asked, Quirks(json_schema=True, strict_schema=False))

    assert isinstance(body, dict)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": schema},
    }


# Reasoning that goes back


THOUGHTS = (
    Reasoning("plain", "reasoning"),
    Reasoning("a", "reasoning_content"),
    Reasoning("b", "reasoning_content"),
    Reasoning(
        "c",
        "reasoning_details",
        {"type": "reasoning.text", "text": "c", "signature": "s"},
    ),
    Reasoning("", "reasoning_details", {"type": "reasoning.encrypted", "data": "d"}),
    Reasoning("signed", "thinking", {"type": "thinking", "signature": "s"}),
    Reasoning("tagged", "think"),
)


@pytest.mark.parametrize(
    ("quirks", "field"),
    [
        (DEFAULT, {}),
        (Quirks(send_reasoning="reasoning_content"), {"reasoning_content": "ab"}),
        (
            OPENROUTER,
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "c", "signature": "s"},
                    {"type": "reasoning.encrypted", "data": "d"},
                ]
            },
        ),
    ],
)
async def test_only_reasoning_of_the_endpoint_s_own_form_goes_back(
    quirks: Quirks, field: dict[str, JsonValue]
) -> None:
    said = Message("assistant", "Yes.", reasoning=THOUGHTS)
    called = Message("assistant", "", (ToolCall("add", {}, "c1"),), reasoning=THOUGHTS)
    foreign = Message("assistant", "No.", reasoning=THOUGHTS[-2:])
    result = Message("tool", "3", call_id="c1")

    wire = await messages(Conversation([said, foreign, called, result]), quirks)

    assert isinstance(wire, list)
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "add", "arguments": "{}"},
    }
    assert wire[:3] == [
        {"role": "assistant", "content": "Yes.", **field},
        {"role": "assistant", "content": "No."},
        {"role": "assistant", "content": None, "tool_calls": [call], **field},
    ]


# Attachments


async def test_images_and_documents_come_before_the_text(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("\ufeffzwölf", encoding="utf-8")
    conversation = looking_at(
        Attachment.image(PIXEL),
        Attachment.image("https://example.org/a.png"),
        Attachment.document(b"%PDF-1.7\n", name="report.pdf"),
        Attachment.document(b"%PDF-1.7\n"),
        Attachment.document(notes),
        Attachment.document(b"{}", media_type="application/json"),
    )

    assert await messages(conversation) == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": PIXEL_URL}},
                {
                    "type": "image_url",
                    "image_url": {"url": "https://example.org/a.png"},
                },
                {
                    "type": "file",
                    "file": {"filename": "report.pdf", "file_data": PDF_URL},
                },
                {
                    "type": "file",
                    "file": {"filename": "document.pdf", "file_data": PDF_URL},
                },
                {"type": "text", "text": "notes.txt:\nzwölf"},
                {"type": "text", "text": "document:\n{}"},
                {"type": "text", "text": "What is it?"},
            ],
        }
    ]


async def test_attachment_needs_no_text_beside_it() -> None:
    wire = await messages(looking_at(Attachment.image(PIXEL), text=""))

    assert wire == [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": PIXEL_URL}}],
        }
    ]


PDF = Attachment.document(b"%PDF-1.7\n", name="report.pdf")


@pytest.mark.parametrize(
    ("attachment", "quirks", "words"),
    [
        (
            PDF,
            DEFAULT,
            "the document report.pdf: this endpoint takes no documents, as its quirks say",
        ),
        (
            Attachment.image(PIXEL),
            Quirks(attachments=frozenset()),
            "the image of type image/png: this endpoint takes no",
        ),
        (
            Attachment.document("https://x.org/a.pdf"),
            OPENAI,
            "the document https://x.org/a.pdf: .* takes none by URL",
        ),
        (
            Attachment.document("https://x.org/a.txt"),
            OPENAI,
            "the document https://x.org/a.txt: .* takes none by URL",
        ),
        (
            Attachment.image("https://x.org/a.png"),
            OLLAMA,
            "the image https://x.org/a.png: .* does not fetch images by URL",
        ),
        (
            Attachment.document(b"\xff\xfe", media_type="text/plain", name="n"),
            OPENAI,
            "the document n .* not UTF-8",
        ),
    ],
)
async def test_what_an_endpoint_does_not_take_is_refused_by_name(
    attachment: Attachment, quirks: Quirks, words: str
) -> None:
    with pytest.raises(ProviderError, match=words) as caught:
        await messages(looking_at(attachment), quirks)

    assert not caught.value.retryable


async def test_a_text_is_taken_by_every_endpoint() -> None:
    text = Attachment.document(b"12", media_type="text/csv", name="a.csv")

    for quirks in (*ALL.values(), Quirks(attachments=frozenset())):
        assert "a.csv:\\n12" in json.dumps(await messages(looking_at(text), quirks))


async def test_attachments_of_others_than_the_user_are_refused() -> None:
    with pytest.raises(
        ProviderError, match="attachments of the user only, not of the assistant"
    ):
        await messages(
            Conversation(
                [Message("assistant", "Look.", attachments=(Attachment.image(PIXEL),))]
            )
        )


async def test_media_are_written_once_for_all_turns_and_all_providers_of_one_kind() -> (
    None
):
    first = looking_at(Attachment.image(PIXEL))
    await messages(first)
    kept = dict(vars(first.messages[0])["_encoded"])

    await messages(first.assistant("A pixel.").user("Of what colour?"))

    assert dict(vars(first.messages[0])["_encoded"]) == kept
    assert sum(PIXEL_URL.encode() in encoded for encoded in kept.values()) == 1


# Endpoints by name


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        (
            "ollama:qwen3:8b",
            "OpenAIProvider('qwen3:8b', base_url='http://127.0.0.1:11434/v1')",
        ),
        (
            "vllm:Qwen/Qwen3-8B",
            "OpenAIProvider('Qwen/Qwen3-8B', base_url='http://localhost:8000/v1')",
        ),
        ("llamacpp:any", "OpenAIProvider('any', base_url='http://localhost:8080/v1')"),
        ("lmstudio:q", "OpenAIProvider('q', base_url='http://localhost:1234/v1')"),
    ],
)
def test_a_local_model_is_named_with_its_endpoint(spec: str, shown: str) -> None:
    assert repr(build_provider(spec)) == shown


async def test_a_runtime_takes_an_endpoint_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(
        "OLLAMA_BASE_URL", "http://127.0.0.1:1/v1"
    )  # nobody listens there
    async with Runtime("ollama:qwen3", clock=FakeClock()) as runtime:
        result = await ReActEngine(runtime).run("Hello.")
        entries = runtime.journal.read(result.run_id)

    assert (result.status, result.stop_reason) == ("suspended", "provider_unavailable")
    failures = [e.event.error for e in entries if isinstance(e.event, AttemptFailed)]
    assert "the connection to http://127.0.0.1:1/v1/chat/completions failed" in str(
        failures[0]
    )


@pytest.mark.parametrize(
    "name", ["ollama", "vllm", "llamacpp", "lmstudio", "openrouter"]
)
def test_an_endpoint_without_a_model_says_how_to_name_one(name: str) -> None:
    for spec in (name, f"{name}:", f"{name}: "):
        with pytest.raises(ConfigError, match=f'^model: missing; write "{name}:MODEL"'):
            build_provider(spec)


@pytest.mark.parametrize(
    "name",
    [
        "openai", "openrouter", "ollama", "vllm", "llamacpp", "lmstudio", "groq", "mistral", "deepseek", "xai",
        "together", "fireworks", "cerebras", "anthropic", "gemini",
    ],
)  # fmt: skip
def test_endpoint_without_a_model_takes_that_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(f"{name.upper()}_API_KEY", "not-a-real-key")
    monkeypatch.setenv(f"{name.upper()}_MODEL", "of-the-variable")

    assert build_provider(name).model == "of-the-variable"
    assert build_provider(f"{name}:named").model == "named"


def test_openrouter_wants_its_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    with pytest.raises(
        ConfigError, match=r"^api_key: openrouter requires one; set OPENROUTER_API_KEY"
    ):
        build_provider("openrouter:a/b")

    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-of-openrouter")

    assert (
        repr(build_provider("openrouter:a/b"))
        == "OpenAIProvider('a/b', base_url='https://openrouter.ai/api/v1')"
    )


@pytest.mark.parametrize("name", MADE_BY_NAME)
async def test_only_an_endpoint_s_own_key_is_sent_to_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:1/v7")
    for key in ("", "sk-of-its-own") if name != "OPENROUTER" else ("sk-of-its-own",):
        if key:
            monkeypatch.setenv(f"{name}_API_KEY", key)
        made = build_provider(f"{name.lower()}:m")

        assert repr(made) == "OpenAIProvider('m', base_url='http://127.0.0.1:1/v7')"
        assert isinstance(made, OpenAIProvider)
        headers = dict(made._transport._headers(b""))
        assert headers.get(b"authorization") == (
            f"Bearer {key}".encode() if key else None
        )


async def test_a_refused_key_is_named_by_the_variable_of_its_endpoint() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        return httpx.Response(401, text="no")

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        asked = OpenAIProvider(
            "m",
            base_url="https://openrouter.ai/api/v1",
            api_key="sk-123456",
            client=client,
        )
        with pytest.raises(ProviderError, match="check OPENROUTER_API_KEY or api_key"):
            await asked.complete(Request(Conversation.of("x")))


def test_the_quirks_of_an_endpoint_go_with_its_name() -> None:
    made = build_provider("ollama:qwen3")

    assert isinstance(made, OpenAIProvider)
    assert (made._quirks, made.capabilities.json_schema) == (OLLAMA, True)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000/v1"),
        (":9000", "http://127.0.0.1:9000/v1"),
        ("box", "http://box:11434/v1"),
        (' "box:80" ', "http://box:80/v1"),
        ("[::]:9000", "http://[::1]:9000/v1"),
        ("[fe80::1]", "http://[fe80::1]:11434/v1"),
        ("http://box", "http://box:80/v1"),
        ("https://box", "https://box:443/v1"),
        ("https://box:8443/ollama/", "https://box:8443/ollama/v1"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    assert build_ollama_url(host) == url


@pytest.mark.parametrize("host", ["box:port", "[::1", "box:99999"])
def test_an_ollama_host_that_is_none_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^OLLAMA_HOST: "):
        build_ollama_url(host)


def test_the_key_of_openai_is_not_sent_to_an_endpoint_that_has_a_key_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)

    asked = OpenAIProvider("m", base_url="https://openrouter.ai/api/v1")

    assert asked._key is None


@pytest.mark.parametrize(("given", "tokens"), [("", None), ("0", None), ("8192", 8192)])
def test_ollama_serves_as_much_context_as_its_variable_says(
    monkeypatch: pytest.MonkeyPatch, given: str, tokens: int | None
) -> None:
    monkeypatch.setenv("OLLAMA_CONTEXT_LENGTH", given)
    for model in ("gpt-oss:20b", "qwen3"):
        assert ollama(model).capabilities.context_tokens == tokens
    monkeypatch.setenv("OLLAMA_CONTEXT_LENGTH", "8k")
    with pytest.raises(ConfigError, match=r"^OLLAMA_CONTEXT_LENGTH: .* got '8k'"):
        ollama("qwen3")


@pytest.mark.parametrize(
    ("url", "tokens"),
    [
        ("http://localhost:11434/v1", None),
        ("http://127.0.0.1:8080/v1", None),
        ("http://localhost:1234/v1", None),
        ("http://localhost:8000/v1", 131_072),  # vLLM serves all, unless told so
        ("https://api.groq.com/openai/v1", 131_072),
    ],
)
def test_servers_that_cut_the_context_do_not_promise_that_of_the_model(
    url: str, tokens: int | None
) -> None:
    provider = OpenAIProvider("openai/gpt-oss-20b", base_url=url, api_key="k")
    assert provider.capabilities.context_tokens == tokens
    told = OpenAIProvider("gpt-oss-20b", base_url=url, api_key="k", quirks=Quirks(context_tokens=9))  # fmt: skip
    assert told.capabilities.context_tokens == 9
