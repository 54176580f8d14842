"""Redaction: what is a secret goes, what only looks like one stays, and a stream shows no part of one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loopwright import LoopEngine, ReActEngine, Run, Runtime, tool
from loopwright.errors import ConfigError
from loopwright.messages import Json
from loopwright.security.redaction import REDACTED, Redactor, patterns
from loopwright.security.redaction.encodings import encode_variants
from loopwright.security.redaction.prefilter import (
    select_open_patterns,
    select_patterns,
)
from loopwright.testing import ScriptedProvider, call
from planted_secrets import B64, HEX, PLANTED, RANDOM, marked, pem
from stopwatch import quickest

PLAIN = Redactor()
SHAPES = [
    shape
    for shape in vars(patterns).values()
    if isinstance(shape, patterns.SecretPattern)
]

# Nothing of this is a secret.
HARMLESS = (
    "The password is required.",
    "password: str",
    "password: required",
    "password: Optional[str] = None",
    "password: str | None = None",
    "Password: ",
    "Password:\nUser:",
    "password=",
    'password=""',
    "password = get_password()",
    "password = self.password",
    "password=password, token=token",
    "password=os.environ['DB_PASSWORD']",
    "password=${DB_PASSWORD}",
    "password: {{ vault.db_password }}",
    "password: <your password>",
    "password: ********",
    'getpass("Password: ")',
    'print("password: " + name)',
    'if password == "": raise ValueError',
    "password != other",
    "Forgot your password? Reset it.",
    "password_hash: 12 rounds",
    "password_policy: strong1",
    "Password: 8-20 characters",
    '{"password": {"type": "string"}}',
    '{"password": "string"}',
    '{"required": ["user", "password"], "a": "b"}',
    ":param password: The password to use",
    "token: string",
    "token = tokens[i]",
    "token = next(tokens)",
    "token = lexer.token()",
    "token: Token",
    "tokens used: 1500",
    "max_tokens: 100",
    "max_tokens=4096",
    '"max_tokens": 4096, "token_count": 17',
    '{"token": " Paris", "logprob": -0.1}',
    "eos_token: </s>, pad_token: [PAD]",
    '"next_page_token": "CAUQAA1234567890"',
    "nextPageToken=CAUQAA1234567890",
    "tokenizer: o200k_base",
    "A token is about four characters.",
    "token_type: bearer",
    "input_tokens: 12, output_tokens: 34",
    "Authorization required",
    "Authorization: required",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "Bearer authentication is used.",
    "basic understanding of things, basic configuration/installation",
    "bearer of bad news",
    "secret santa",
    "secret: santa comes at night",
    "The secret of life: 42",
    "Secrets belong in deps.",
    "top-secret: the plan",
    "api_key: Optional[str]",
    "api_key = settings.api_key",
    "private_key: Ed25519PrivateKey | Ed448PrivateKey",
    "def sign(private_key: X25519PrivateKey, public_key: X25519PublicKey) -> bytes:",
    "api_key=YOUR_API_KEY",
    "api_key=key, base_url=url",
    "The API key is missing.",
    "primary key: id1234567, foreign key: user_id2345678",
    "keyboard: qwerty123, monkey: business99",
    "public_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5",
    "key = value1, keys: a1b2c3d4",
    "550e8400-e29b-41d4-a716-446655440000",
    "commit 6296c47f0f5be0b3fb9e7f2a6d0cc4a1ec1e7f9d",
    "sha256:" + HEX,
    "data:image/png;base64," + B64 * 40,
    "call_abc123 toolu_01A09q90qw90lq917835lq9",
    "run-0123456789abcdef, resumed from run-fedcba9876543210",
    "chatcmpl-9abcdefghijklmnop1234567",
    "idempotency_key: run-0123456789abcdef/0#3",
    "Idempotency-Key: 6fa459ea-ee8a-3ca4-894e-db77e160355e",
    "sk-learn is scikit-learn; sk-loading-spinner-container",
    "task-management-and-desk-organisation-software",
    "the risk-adjusted-return-of-the-portfolio-2024",
    "https://example.com/a?page=2&sort=key#password",
    "https://example.com:8080/a@b",
    "https://user@example.com/x",
    "http://localhost:11434?mail=a@b.c",
    "postgres://user:password@localhost/db",
    "postgres://${USER}:${PASSWORD}@localhost/db",
    "mailto:ada@example.com",
    "12:30:45 and 10:45",
    "-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----",
    "The header is -----BEGIN PRIVATE KEY----- and then the body follows.",
    "-----BEGIN PUBLIC KEY-----\n" + B64 + "\n-----END PUBLIC KEY-----",
    "Cookie: chocolate chip",
    "cookie = make_cookie(name)",
    "use --password to log in, --token is required",
    "def login(user: str, password: str) -> None:",
    "class Password(BaseModel): value: SecretStr",
    '<input type="password" name="password"><label>Password:</label>',
    "pwd: /home/ada",
    "auth: none, credentials: include",
    "credentials: 'include'",
    "signature: (a: int, b: str) -> bool",
    "signature=inspect.signature(function)",
    "Ünïcödé pässwörd: für alle; 密码: 必填",
    "{'password': None, 'token': True}",
    "See loopwright.providers.openai_compatible_endpoints.models.SomeVeryLongClassNameForTestingIt",
    "ghp_ is how they begin, and so are AKIA, xoxb- and eyJ.",
    f"password: {REDACTED}, Authorization: Bearer {REDACTED}, https://a:{REDACTED}@b",
    f"password=%20{REDACTED} --password %20{REDACTED}), password: x1{REDACTED};",
)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_secret_goes_and_what_is_around_it_stays(name: str) -> None:
    text, kept = PLANTED[name]

    assert PLAIN.redact_text(text) == marked(kept)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert PLAIN.redact_text(text) == text
    assert PLAIN.redact_text(text) is text


def test_the_lists_are_as_long_as_they_are_said_to_be() -> None:
    assert len(PLANTED) >= 80
    assert len(HARMLESS) >= 100


@pytest.mark.parametrize("name", PLANTED)
def test_redacting_twice_changes_nothing(name: str) -> None:
    once = PLAIN.redact_text(PLANTED[name][0])

    assert PLAIN.redact_text(once) is once


def test_a_token_that_follows_a_mark_directly_stays_as_it_was_left() -> None:
    redactor = Redactor(["abcdef"])
    once = redactor.redact_text("abcdefsk-" + RANDOM)

    assert redactor.redact_text(once) is once


@pytest.mark.parametrize(
    "value",
    [
        "Basic dXNlcjpwYXNz=",
        "Basic dXNlcjpwYXNzdw==",
        "OAuth a=",
        "sid=",
        'sid="b1"; c=',
    ],
)
@pytest.mark.parametrize("name", ["Authorization", "Cookie"])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_json_around_a_header_that_ends_in_an_equals_sign_stays_json(
    name: str, value: str, separators: tuple[str, str]
) -> None:
    text = told = json.dumps(
        {name: value, "a=": "b", "c": [f"{name}: {value}", "d"]}, separators=separators
    )
    for _ in range(3):
        told = PLAIN.redact_text(text)
        read = json.loads(told)
        while "in" in read:
            assert (list(read), read["a="]) == (["in", "a="], "b")
            read = json.loads(read["in"])

        assert (list(read), read["a="], read["c"][1:]) == (
            [name, "a=", "c"],
            "b",
            ["d"],
        )
        text = json.dumps({"in": text, "a=": "b"}, separators=separators)


def test_the_longest_header_is_found_as_a_whole_and_is_no_longer_than_it_may_be() -> (
    None
):
    quote = "\\" * 7 + '"'
    value = f"={quote}{'c' * 470}{quote}"
    text = (
        f"Cookie: {'a' * 64}={'b' * 254}{value}" + f"; {'b' * 253}{value}" * 30 + " end"
    )
    found = PLAIN.find(text, 0)
    stream = PLAIN.open_stream()
    told = [stream.feed(text[at : at + 99]) for at in range(0, len(text), 99)]

    assert 12_000 < found[0].end < patterns.MAX_MATCH_LENGTH
    assert "".join(told) + stream.end() == PLAIN.redact_text(text)


def test_fields_that_are_headers_lose_values_in_quotes_too() -> None:
    fields: Json = {
        "Set-Cookie": 'sid="31d4"; Path=/',
        "Authorization": 'Digest a="b", response="6629fae4"',
        "Via": 'a="b"',
    }

    assert PLAIN.redact_value(fields) == {
        "Set-Cookie": REDACTED,
        "Authorization": f"Digest {REDACTED}",
        "Via": 'a="b"',
    }


def test_overlapping_secrets_leave_one_mark_and_neighbours_one_each() -> None:
    redactor = Redactor(["first-half", "half-second"], patterns=False)

    assert redactor.redact_text("a first-half-second b") == f"a {REDACTED} b"
    assert (
        redactor.redact_text("a first-halfhalf-second b") == f"a {REDACTED}{REDACTED} b"
    )


# --- registered values ---

REGISTERED = 'p@ss/wörd "1" <&\'\n+=?'


@pytest.mark.parametrize(
    "spelling",
    [
        REGISTERED,
        json.dumps(REGISTERED)[1:-1],
        json.dumps(REGISTERED, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(REGISTERED))[3:-3],
        "p%40ss%2Fw%C3%B6rd%20%221%22%20%3C%26%27%0A%2B%3D%3F",
        "p%40ss/w%C3%B6rd%20%221%22%20%3C%26%27%0A%2B%3D%3F",
        "p%40ss%2Fw%C3%B6rd+%221%22+%3C%26%27%0A%2B%3D%3F",
        "cEBzcy93w7ZyZCAiMSIgPCYnCis9Pw==",
        "cEBzcy93w7ZyZCAiMSIgPCYnCis9Pw",
        "p@ss/wörd &quot;1&quot; &lt;&amp;&#x27;\n+=?",
        "p@ss/wörd &quot;1&quot; &lt;&amp;&#39;\n+=?",
        'p@ss/wörd "1" &lt;&amp;\'\n+=?',
        repr(REGISTERED)[1:-1],
        ascii(REGISTERED)[1:-1],
        repr(REGISTERED.encode())[2:-1],
        r"p@ss\/w\u00f6rd \"1\" <&'\n+=?",  # PHP
        r"p@ss\/wörd \"1\" <&'\n+=?",
        r"p@ss/wörd \"1\" \u003c\u0026'\n+=?",  # Go
        r"p@ss/wörd \"1\" \u003c\u0026\u0027\n+\u003d?",  # Java
        r"p@ss/w\u00F6rd \"1\" <&'\n+=?",
        r"p@ss/w\u00F6rd \u00221\u0022 \u003C\u0026\u0027\n\u002B=?",  # .NET
        json.dumps(r"p@ss/wörd \"1\" \u003c\u0026'\n+=?")[1:-1],
        "p%40ss%2fw%c3%b6rd%20%221%22%20%3c%26%27%0a%2b%3d%3f",
        "p%40ss%2Fw%C3%B6rd%20%221%22%20%3C%26'%0A%2B%3D%3F",  # JavaScript
        "p@ss/w&#246;rd &quot;1&quot; &lt;&amp;&#x27;\n+=?",
        "p@ss/w&#246;rd &#34;1&#34; &lt;&amp;&#39;\n+=?",
        "p@ss/wörd &quot;1&quot; &lt;&amp;&#039;\n+=?",
    ],
)
def test_a_registered_value_goes_in_every_spelling(spelling: str) -> None:
    assert (
        Redactor([REGISTERED], patterns=False).redact_text(f"a {spelling} b")
        == f"a {REDACTED} b"
    )


def test_letters_and_digits_are_looked_for_as_they_are_and_in_base64() -> None:
    assert encode_variants("Tr0ub4dor") == {"Tr0ub4dor", "VHIwdWI0ZG9y"}
    assert encode_variants("Tr0ub4dor1") == {
        "Tr0ub4dor1",
        "VHIwdWI0ZG9yMQ==",
        "VHIwdWI0ZG9yMQ",
    }


@pytest.mark.parametrize("told", ["no user 'bob' with {}", 'no user "bob" with {}'])
async def test_an_error_of_a_tool_shows_no_registered_value_in_any_quotes(
    told: str,
) -> None:
    secret = "it's-Tr0ub4dor"

    @tool(effect="read")
    def login() -> str:
        """Log in."""
        raise KeyError(told.format(secret))

    runtime = Runtime(
        ScriptedProvider([call("login"), "done"]),
        tools=[login],
        redactor=Redactor([secret]),
    )
    result = await ReActEngine(runtime).run("Go.")

    answers = [
        message.content
        for message in result.conversation.messages
        if message.role == "tool"
    ]
    assert answers == [f"KeyError: {KeyError(told.format(REDACTED))}"]


def test_the_longest_registered_value_goes_as_a_whole() -> None:
    assert (
        Redactor(["abcdef", "abcdef-ghijkl"]).redact_text("abcdef-ghijkl abcdef")
        == f"{REDACTED} {REDACTED}"
    )


def test_also_adds_values_and_leaves_the_first_redactor_as_it_was() -> None:
    first = Redactor(["abcdef"], patterns=False)
    second = first.with_secrets("ghijkl", "mnopqr")

    assert (
        first.redact_text("abcdef ghijkl password=x1y2")
        == f"{REDACTED} ghijkl password=x1y2"
    )
    assert (
        second.redact_text("abcdef ghijkl mnopqr password=x1y2")
        == f"{REDACTED} {REDACTED} {REDACTED} password=x1y2"
    )


def test_without_values_and_shapes_nothing_changes() -> None:
    nothing = Redactor(patterns=False)
    value: Json = {"password": "hunter2", "a": [PLANTED["JWT"][0]]}

    assert nothing.redact_value(value) is value
    assert all(nothing.redact_text(text) is text for text, _ in PLANTED.values())


@pytest.mark.parametrize(
    ("secrets", "problem"),
    [
        (["longer", "short"], "secrets[1]: give a text of 6"),
        ([REDACTED], "secrets[0]: [redacted]"),
    ],
)
def test_a_value_that_cannot_be_one_is_refused_and_not_repeated(
    secrets: list[str], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Redactor(secrets)

    assert str(caught.value).startswith(problem)
    assert "short" not in str(caught.value).replace("shorter", "")


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="give a list of texts"):
        Redactor("abcdef")


def test_a_redactor_does_not_show_its_values() -> None:
    assert repr(Redactor(["abcdef"])) == "Redactor(<1 secrets>, patterns=True)"


# --- JSON values ---


def test_a_field_that_is_named_like_a_secret_loses_its_value() -> None:
    value: Json = {
        "user": "ada",
        "password": "correct horse",
        "login": {
            "apiKey": "abcd",
            "Authorization": "Bearer abcd.1234",
            "cookie": "a=b",
            "pin": 1,
            "max_tokens": 100,
        },
        "db_password": 12345,
        "secrets": ["a"],
        "client_secret": ["abcd", None, {"text": "stays"}],
        "nested": [{"access_token": "abc"}, "password=hunter2"],
    }

    assert PLAIN.redact_value(value) == {
        "user": "ada",
        "password": REDACTED,
        "login": {
            "apiKey": REDACTED,
            "Authorization": f"Bearer {REDACTED}",
            "cookie": REDACTED,
            "pin": 1,
            "max_tokens": 100,
        },
        "db_password": REDACTED,
        "secrets": ["a"],
        "client_secret": [REDACTED, None, {"text": "stays"}],
        "nested": [{"access_token": REDACTED}, f"password={REDACTED}"],
    }


def test_what_holds_no_secret_is_the_same_object() -> None:
    clean: Json = {
        "a": [1, 2.5, None, True, "text"],
        "b": {"password": {"type": "string"}, "token": " Paris"},
    }
    value: Json = {"clean": clean, "password": "hunter2"}
    redacted = PLAIN.redact_value(value)

    assert PLAIN.redact_value(clean) is clean
    assert isinstance(redacted, dict)
    assert redacted["clean"] is clean
    assert PLAIN.redact_value(redacted) is redacted


def test_a_registered_value_goes_from_names_of_fields_and_from_numbers() -> None:
    redactor = Redactor(["123456", "abcdef"], patterns=False)

    assert redactor.redact_value(
        {"x abcdef": 123456, "y": [123456, 1234567, True]}
    ) == {
        f"x {REDACTED}": REDACTED,
        "y": [REDACTED, 1234567, True],
    }


def test_a_value_too_deep_to_follow_becomes_the_mark() -> None:
    deep: Json = "text"
    for _ in range(100_000):
        deep = [deep]

    assert PLAIN.redact_value(deep) == REDACTED


def test_a_number_too_long_to_write_becomes_the_mark_and_what_is_around_it_stays() -> (
    None
):
    value: Json = {"a": 10**5000, "b": [1, -(10**5000), "text"], "password": 10**5000}

    assert PLAIN.redact_value(value) == {
        "a": REDACTED,
        "b": [1, REDACTED, "text"],
        "password": REDACTED,
    }
    assert PLAIN.find_secrets(value) == ()
    assert PLAIN.with_secrets_found_in(value).redact_text("text") == "text"


class CountingEngine(LoopEngine):
    """Notes and counts more than can be written."""

    async def solve(self, run: Run) -> str:
        """Note, count."""

        async def count() -> list[int | str]:
            return [10**5000, 2]

        run.note({"many": 10**5000, "few": 1})
        return json.dumps(await run.effect("count", count, into=list[int | str]))


async def test_a_run_notes_and_does_what_has_a_number_too_long_to_write() -> None:
    result = await CountingEngine(Runtime(ScriptedProvider([]))).run("Count.")

    assert result.answer == json.dumps([REDACTED, 2])
    assert [fact.value for fact in result.facts] == [{"many": REDACTED, "few": 1}]


# --- streams ---

PIECES = (
    *(
        "password",
        "token: ",
        "api key",
        "Authorization: ",
        "Bearer ",
        "Cookie: a=b; ",
        '"secret": "',
        "-----BEGIN ",
    ),
    *(
        "--password ",
        "://",
        "@",
        "eyJ",
        "sk-",
        "ghp_",
        '"',
        "'",
        "\\",
        "\\n",
        ":",
        "=",
        " ",
        "\n",
        "\t",
        "、",
        REDACTED,
        "[",
        'Cookie: a="',
        '"; b="',
        'Digest a="b", c=',
    ),
    *(
        "x1",
        "open sesame",
        "open ",
        "of a",
        "of a secret life",
        "secret life",
        "MIIE",
        "-----",
        "PRIVATE KEY-----",
    ),
    pem("RSA ")[:150],
)
TELLING = st.sampled_from([*(text for text, _ in PLANTED.values()), *HARMLESS, *PIECES])
TEXTS = st.lists(TELLING | st.text(max_size=8), max_size=9).map("".join)
STREAMED = Redactor(["open sesame", "secret life of a", "aXbXaX", "\nline\n"])


def streamed(redactor: Redactor, text: str, cuts: list[int]) -> str:
    stream, told, at = redactor.open_stream(), "", 0
    for cut in sorted({c % (len(text) + 1) for c in cuts} | {len(text)}):
        told += stream.feed(text[at:cut])
        at = cut
    return told + stream.end()


@settings(
    max_examples=int(os.environ.get("LOOPWRIGHT_REDACTION_EXAMPLES", "200")),
    deadline=None,
)
@given(TEXTS, st.lists(st.integers(0, 10_000), max_size=30))
@example("password: swordfish \nx", [19, 20])
@example("Authorization: AWS4-HMAC-SHA256 a=b, Signature=abc", [34, 37])
@example(
    "-----BEGIN PRIVATE KEY-----\nA-Note: of -----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n",
    list(range(80)),
)
@example("the secret life of a secret life of b", list(range(40)))
def test_a_stream_tells_what_the_whole_text_tells_wherever_it_is_cut(
    text: str, cuts: list[int]
) -> None:
    assert streamed(STREAMED, text, cuts) == STREAMED.redact_text(text)


@settings(
    max_examples=int(os.environ.get("LOOPWRIGHT_REDACTION_EXAMPLES", "200")),
    deadline=None,
)
@given(TEXTS)
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    once = STREAMED.redact_text(text)

    assert STREAMED.redact_text(once) == once


@pytest.mark.parametrize("name", PLANTED)
def test_letter_by_letter_nothing_of_a_secret_is_told_too_early(name: str) -> None:
    text, kept = PLANTED[name]
    stream, told = PLAIN.open_stream(), ""
    whole = marked(kept)
    for letter in text:
        told += stream.feed(letter)
        assert whole.startswith(told)

    assert told + stream.end() == whole


def test_a_stream_holds_back_a_word_and_a_name_that_waits_for_its_value_and_no_more() -> (
    None
):
    stream = PLAIN.open_stream()
    told = [
        stream.feed(piece)
        for piece in (
            "Look: the ",
            "pass",
            "word ",
            "is he",
            "re, password: ",
            "hun",
            "ter2",
            " and",
            " so on",
        )
    ]

    assert told == [
        "Look: the ",
        "",
        "",
        "password is ",
        "here, ",
        "",
        "",
        f"password: {REDACTED} ",
        "and so ",
    ]
    assert stream.end() == "on"


def test_text_without_spaces_is_told_letter_by_letter_where_it_is_written_so() -> None:
    stream = PLAIN.open_stream()

    assert [stream.feed(piece) for piece in ("密码", "是必", "填的。")] == [
        "密码",
        "是必",
        "填的。",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 100_000,
        "eyJ" * 30_000,
        "sk-" * 30_000,
        "password=" * 11_000,
        "data:image/png;base64," + B64 * 2_000,
        '{"password": "' + "open " * 20_000,
        "-----BEGIN PRIVATE KEY-----\n" + "TWFkZVVw\n" * 11_000,
        "Cookie: " + "a=b; " * 20_000,
        "https://a:" + "b" * 100_000 + "@c",
        "token: " * 14_000,
    ],
    ids=lambda text: str(text)[:20],
)
def test_a_stream_holds_some_kilobytes_at_most_and_tells_the_same(text: str) -> None:
    stream, told, most, fed = PLAIN.open_stream(), "", 0, 0
    marks = 0
    for at in range(0, len(text), 500):
        fed += len(text[at : at + 500])
        out = stream.feed(text[at : at + 500])
        told += out
        marks += out.count(REDACTED)
        if not marks:
            most = max(most, fed - len(told))

    assert told + stream.end() == PLAIN.redact_text(text)
    assert most < 50_000


def test_values_that_overlap_without_end_do_not_fill_the_memory() -> None:
    redactor = Redactor(["ab cd ef", "ef gh ab"], patterns=False)
    stream, told = redactor.open_stream(), ""
    for _ in range(20_000):
        told += stream.feed("ab cd ef gh ")

    assert redactor.redact_text("ab cd ef gh " * 20_000) == f"{REDACTED} gh "
    assert set((told + stream.end()).replace(REDACTED, "").split()) <= {"gh"}
    assert 1 < told.count(REDACTED) < 10


def test_a_stream_can_be_used_again() -> None:
    stream = PLAIN.open_stream()

    assert (
        stream.feed("password: ")
        + stream.end()
        + stream.feed("hunter2 ")
        + stream.end()
        == "password: hunter2 "
    )


# --- costs ---

HOSTILE = {
    "one letter": "a" * 100_000,
    "one digit": "1" * 100_000,
    "spaces": " " * 100_000,
    "line ends": "\n" * 100_000,
    "sk-": "sk-" * 33_000,
    "task-": "task-" * 20_000,
    "a-": "a-" * 50_000,
    "hyphens": "-" * 100_000,
    "underscores": "_" * 100_000,
    "eyJ": "eyJ" * 33_000,
    "-eyJ": "-eyJ" * 25_000,
    "dots": "a." * 50_000,
    "password=": "password=" * 11_000,
    "password= ": "password= " * 10_000,
    "password ": "password " * 11_000,
    "password=,": "password=a," * 9_000,
    'password="': 'password="' * 10_000,
    "password=\\": "password=\\" * 10_000,
    'password: \\"': 'password: \\"a' * 8_000,
    "token ": "token: " * 14_000,
    "Authorization: ": "Authorization: " * 6_600,
    "Authorization: a,": "Authorization: " + "a, a=" * 20_000,
    "Authorization: a-": "Authorization: " + "a-" * 2_000 + "!",
    "Authorization: A-": ("Authorization: " + "A-" * 2_000 + "! ") * 20,
    "Cookie": "Cookie: a=b; " * 7_500,
    "cookies in quotes": "Cookie: " + 'a="b"; ' * 14_000,
    'Cookie: a="': 'Cookie: a="' * 9_000,
    'Cookie: a="b"': 'Cookie: a="b"; a="b"; ' * 4_500,
    'Cookie: a=\\"': 'Cookie: a=\\"b Cookie: a="b Cookie: a=\\\\\\"b ' * 2_000,
    "cookies without spaces": ("cookie=a=b;" * 1_200 + '=" x ') * 8,
    "cookies that wait for quotes": ('Cookie: a="' + "b cookie: a= " * 40) * 190,
    "Authorization: a=": 'Authorization: Digest a="b c", ' * 3_200,
    "Authorization without spaces": ("authorization=a," * 800 + '=" x ') * 8,
    "-----BEGIN ": "-----BEGIN " * 9_000,
    "private keys": "-----BEGIN PRIVATE KEY-----" * 3_700,
    "private keys and lines": "-----BEGIN PRIVATE KEY-----\nMIIE" * 3_000,
    "quotes": '"' * 100_000,
    "apostrophes": "'" * 100_000,
    "backslashes": "\\" * 100_000,
    "://": "://" * 33_000,
    "://a:": "://a:" * 20_000,
    ":// and @": "://" + "a:@" * 33_000,
    "@": "@" * 100_000,
    "colons": ":" * 100_000,
    "equals": "=" * 100_000,
    "ampersands": "password=a" + "&a" * 50_000,
    "Bearer ": "Bearer " * 14_000,
    "AKIA": "AKIA" * 25_000,
    "SG.": "SG." * 33_000,
    "--": "--password-" * 9_000,
    "--a-": "--aaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbbbbbb-cccccccccccccccccccc-" * 1_500,
    "slashes": "/" * 100_000,
    "1//0": "1//0" * 25_000,
    "digits and colons": "12345678:AA" * 9_000,
    "wide": "密" * 100_000,
}


@pytest.mark.faults
@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear_in_hostile_text(name: str) -> None:
    text = HOSTILE[name]

    def streamed() -> None:
        stream = PLAIN.open_stream()
        for at in range(0, len(text), 400):
            stream.feed(text[at : at + 400])
        stream.end()

    assert quickest(lambda: PLAIN.redact_text(text), 1) < 1
    assert quickest(streamed, 5) < 5


COMPILED = """
import sys
from loopwright.security.redaction import Redactor, patterns
def compiled():
    known = [(name, shape) for name, shape in vars(patterns).items() if isinstance(shape, patterns.SecretPattern)]
    return sorted(name for name, shape in known if vars(shape).keys() & {"pattern", "opening"})
before = compiled()
for text in sys.argv[1:]:
    Redactor().redact_text(text)
print(before, compiled())
"""


@pytest.mark.parametrize(
    ("text", "compiled"),
    [
        ("The sky is blue over Paris: 21 degrees, says the user", []),
        ("see src/main.py, and the token there", []),
        ("password: hunter2", ["NAMED"]),
        ("a well-known place", ["HYPHEN"]),
    ],
)
def test_a_shape_is_compiled_when_a_text_hints_at_it_and_not_before(
    text: str, compiled: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILED, text],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.stdout, done.stderr) == (f"[] {compiled}\n", "")


@settings(
    max_examples=int(os.environ.get("LOOPWRIGHT_REDACTION_EXAMPLES", "200")),
    deadline=None,
)
@given(TEXTS)
def test_every_shape_that_matches_is_hinted_at(text: str) -> None:
    tried = {id(shape) for shape in select_patterns(text)}
    missed = [
        s
        for s in SHAPES
        if id(s) not in tried and any(m.is_secret for m in s.find(text, 0))
    ]

    assert missed == []


@settings(
    max_examples=int(os.environ.get("LOOPWRIGHT_REDACTION_EXAMPLES", "200")),
    deadline=None,
)
@given(TEXTS)
def test_every_shape_that_may_have_begun_is_hinted_at(text: str) -> None:
    tried = {id(shape) for shape in select_open_patterns(text)}
    missed = [
        s
        for s in SHAPES
        if s.opening_source and id(s) not in tried and s.opening.search(text)
    ]

    assert missed == []


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("spelled", [str.upper, str.lower, str.swapcase])
def test_hints_do_not_depend_on_capitals_where_shapes_do_not(
    name: str, spelled: Callable[[str], str]
) -> None:
    text = spelled(PLANTED[name][0])
    tried = {id(shape) for shape in select_patterns(text)}

    assert [
        s
        for s in SHAPES
        if id(s) not in tried and any(m.is_secret for m in s.find(text, 0))
    ] == []


# --- what people keep in this repository ---


@pytest.mark.parametrize("folder", ["src", "docs", "examples"])
def test_the_texts_of_this_repository_stay(folder: str) -> None:
    files = [
        path
        for path in (Path(__file__).parents[3] / folder).rglob("*.[pm][yd]")
        if path.stem != "secrets"
    ]

    assert [
        str(path)
        for path in files
        if PLAIN.redact_text(path.read_text(encoding="utf-8"))
        != path.read_text(encoding="utf-8")
    ] == []


def test_what_a_named_value_or_a_header_holds_is_known_elsewhere_too() -> None:
    key = "kD93-kdkwQ2"
    learned = Redactor().with_secrets_found_in(
        {"Authorization": f"Bearer {key}", "password": "hunter2", "X-Team": "planning"}
    )

    assert Redactor().find_secrets({"Authorization": f"Bearer {key}"}) == (key,)
    assert (
        learned.redact_text(f"planning: {key}, hunter2!")
        == f"planning: {REDACTED}, {REDACTED}!"
    )


def test_what_is_learned_does_not_depend_on_how_much_is_registered() -> None:
    registered = Redactor([f"registered-{number}" for number in range(200)])

    learned = registered.with_secrets_found_in(
        *({"password": f"pass-word-{number}"} for number in range(150))
    )

    known = [
        number
        for number in range(150)
        if learned.redact_text(f"it is pass-word-{number}.") == f"it is {REDACTED}."
    ]
    assert known == list(range(100)), (
        "a bounded number, since each has to be looked for"
    )
    assert (
        learned.with_secrets_found_in({"password": "one-more-word"}).redact_text(
            "one-more-word"
        )
        == "one-more-word"
    )
    assert (
        learned.with_secrets("one-more-word").redact_text("one-more-word") == REDACTED
    )


def test_a_secret_goes_also_where_a_mark_or_the_name_of_a_class_stands_behind_it() -> (
    None
):
    assert (
        PLAIN.redact_text("password=s3cr3t-val_ue.9[redacted]")
        == f"password={REDACTED}{REDACTED}"
    )
    assert (
        PLAIN.redact_text("secret: a8F3kd92LsQpz7PrivateKey") == f"secret: {REDACTED}"
    )
    assert (
        PLAIN.redact_text("secret: dXNlcjpwYXNzd29yZA==PrivateKey")
        == f"secret: {REDACTED}"
    )
