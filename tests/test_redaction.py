"""Redaction: what is a secret goes, what only looks like one stays, and a stream shows no part of one."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loopwright.errors import ConfigError
from loopwright.messages import Json
from loopwright.redaction import MARK, Redactor

PLAIN = Redactor()

# Made up, and put together from pieces here so that no scanner takes them for real ones.
RANDOM = "Zx8Kq2mVt5Rw9Yp3Lb7Nc4Jd6Hf1Gs0Ta8Ue2Wi5Xo9Bq3Mr7Dk4Pv6"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
B64 = "TWFkZVVwRm9yVGVzdHNPbmx5MTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3A="
PASSWORD = "hunter2!Q"
BODY = "\n".join([RANDOM[:56] + "AbCdEf12"] * 5)


def pem(kind: str) -> str:
    """A private key of this kind, made up."""
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{BODY}\nMIIE==\n-----END {kind}PRIVATE KEY-----"


PGP = f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n{BODY}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----"
JWT = ".".join(("ey" + "JhbGciOiJIUzI1NiJ9", "ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0", RANDOM[:43]))

# What a text holds → what stays of it. `@` in the second is the mark.
PLANTED: dict[str, tuple[str, str]] = {
    # tokens
    "OpenAI": ("use sk-" + RANDOM[:48] + " here", "use @ here"),
    "OpenAI project": ("sk-proj-" + RANDOM[:40] + "_a-b" + RANDOM, "@"),
    "Anthropic": ('key="sk-ant-api03-' + RANDOM + '-AA"', 'key="@"'),
    "OpenRouter": ("sk-or-v1-" + HEX, "@"),
    "Google API": ("AIza" + "SyA" + RANDOM[:32], "@"),
    "AWS access key id": ("AKIA" + "Q3EGTIL5XWZKD7PO", "@"),
    "AWS temporary key id": ("ASIA" + "Q3EGTIL5XWZKD7PO", "@"),
    "AWS secret": ("aws_secret_access_key = wJalr/UtnFEMI+K7MDENGbPxRfiCYzEXAMPLEK", "aws_secret_access_key = @"),
    "AWS secret in prose": ("AWS secret access key: wJalr/UtnFEMI+K7MDENGbPxRfiCYz", "AWS secret access key: @"),
    "GitHub": ("ghp_" + RANDOM[:36], "@"),
    "GitHub OAuth": ("gho_" + RANDOM[:36], "@"),
    "GitHub server": ("ghs_" + RANDOM[:36], "@"),
    "GitHub refresh": ("ghr_" + RANDOM[:36], "@"),
    "GitHub fine-grained": ("github_" + "pat_" + RANDOM[:22] + "_" + RANDOM, "@"),
    "GitLab": ("glpat-" + RANDOM[:20], "@"),
    "Slack bot": ("xoxb-" + "123456789012-1234567890123-" + RANDOM[:24], "@"),
    "Slack user": ("xoxp-" + "123456789012-1234567890123-" + RANDOM[:24], "@"),
    "Slack app": ("xapp-" + "1-A012345-1234567890-" + HEX, "@"),
    "Slack webhook": (
        "https://hooks.slack.com/" + "services/T00000000/B00000000/" + RANDOM[:24],
        "https://hooks.slack.com/services/@",
    ),
    "Stripe": ("sk_" + "live_" + RANDOM[:24], "@"),
    "Stripe restricted": ("rk_" + "live_" + RANDOM[:24], "@"),
    "Stripe webhook": ("whsec_" + RANDOM[:32], "@"),
    "Twilio": ("SK" + HEX[:32], "@"),
    "SendGrid": ("SG." + RANDOM[:22] + "." + RANDOM[:43], "@"),
    "npm": ("npm_" + RANDOM[:36], "@"),
    "npmrc": ("//registry.npmjs.org/:_authToken=npm_" + RANDOM[:36], "//registry.npmjs.org/:_authToken=@"),
    "PyPI": ("pypi-" + "AgEIcHlwaS5vcmc" + RANDOM, "@"),
    "Hugging Face": ("hf_" + RANDOM[:34], "@"),
    "Telegram": ("123456789:" + "AA" + RANDOM[:33], "123456789:@"),
    "Discord": ("M" + "TIzNDU2Nzg5MDEyMzQ1Njc4" + "." + "GaBcDe." + RANDOM[:38], "@"),
    "Discord webhook": (
        "https://discord.com/api/webhooks/123456789012345678/" + RANDOM,
        "https://discord.com/api/webhooks/123456789012345678/@",
    ),
    "Azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + B64 + ";EndpointSuffix=core.windows.net",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=@;EndpointSuffix=core.windows.net",
    ),
    "Google OAuth": ("ya29." + RANDOM, "@"),
    "Google refresh": ("1//0g" + RANDOM[:40], "@"),
    "Groq": ("gsk_" + RANDOM[:52], "@"),
    "DigitalOcean": ("dop_v1_" + HEX, "@"),
    "Databricks": ("dapi" + HEX[:32], "@"),
    "Shopify": ("shpat_" + HEX[:32], "@"),
    "Mailgun": ("key-" + HEX[:32], "@"),
    "JWT": ("id " + JWT + " ok", "id @ ok"),
    "token behind an escaped line end": ('{"out": "a\\nsk-' + RANDOM + '"}', '{"out": "a\\n@"}'),
    "token behind a percent escape": ("next=%20sk-" + RANDOM[:40], "next=%20@"),
    # headers
    "Bearer header": ("Authorization: Bearer abc.def-123", "Authorization: Bearer @"),
    "Basic header": ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic @"),
    "Token header": ("'Authorization': 'Token abc123def456'", "'Authorization': 'Token @'"),
    "header in JSON": ('{"Authorization": "Bearer ' + RANDOM + '", "a": 1}', '{"Authorization": "Bearer @", "a": 1}'),
    "AWS signature": (
        "Authorization: AWS4-HMAC-SHA256 Credential=A/b/c, SignedHeaders=host, Signature=" + HEX,
        "Authorization: AWS4-HMAC-SHA256 @",
    ),
    "bare Bearer": ("send Bearer " + RANDOM[:30] + ".", "send Bearer @"),
    "bare Basic": ("send Basic dXNlcjpwYXNzd29yZA== now", "send Basic @ now"),
    "X-API-Key": ("curl -H 'X-API-Key: abcd1234efgh' https://a.b", "curl -H 'X-API-Key: @' https://a.b"),
    "Cookie": ("Cookie: sid=31d4d96e407aad42; theme=dark\nHost: a", "Cookie: @\nHost: a"),
    "Set-Cookie": ("Set-Cookie: sid=31d4d96e; Path=/; HttpOnly\r\nHost: a", "Set-Cookie: @\r\nHost: a"),
    # addresses
    "address": ("https://ada:" + PASSWORD + "@example.com/x", "https://ada:@@example.com/x"),
    "Postgres": ("postgres://ada:p4ss@w0rd@db:5432/x", "postgres://ada:@@db:5432/x"),
    "Redis": ("redis://:s3cr3tpw@cache:6379/0", "redis://:@@cache:6379/0"),
    "ssh": ("ssh://ada:p4ssw0rd@host:22", "ssh://ada:@@host:22"),
    "api_key in a query": ("https://a.b/c?api_key=abcd1234&x=1", "https://a.b/c?api_key=@&x=1"),
    "token in a query": ("https://a.b/c?x=1&token=abcd1234efgh#top", "https://a.b/c?x=1&token=@"),
    "key in a query": ("https://a.b/c?key=" + RANDOM[:20] + "&x=1", "https://a.b/c?key=@&x=1"),
    "X-Amz-Signature": (
        "https://a.b/c?X-Amz-Date=2026&X-Amz-Signature=" + HEX,
        "https://a.b/c?X-Amz-Date=2026&X-Amz-Signature=@",
    ),
    "Azure SAS": ("https://a.b/c?sv=2026&sig=" + RANDOM[:40] + "%3D", "https://a.b/c?sv=2026&sig=@"),
    # private keys
    "RSA": ("here:\n" + pem("RSA ") + "\nthat is it", "here:\n@\nthat is it"),
    "EC": (pem("EC "), "@"),
    "OpenSSH": (pem("OPENSSH "), "@"),
    "PKCS 8": (pem(""), "@"),
    "PGP": (PGP, "@"),
    "key in JSON": (json.dumps({"k": pem("")}), '{"k": "@"}'),
    "key cut off": (pem("RSA ")[:200] + "\n", "@\n"),
    # values by name
    "env": ("DB_PASSWORD=swordfish\nDB_HOST=db", "DB_PASSWORD=@\nDB_HOST=db"),
    "export": ("export API_KEY=abcd1234; make", "export API_KEY=@; make"),
    "ini": ("password = swordfish\nuser = ada", "password = @\nuser = ada"),
    "YAML": ("db:\n  password: hunter2\n  user: ada", "db:\n  password: @\n  user: ada"),
    "YAML in quotes": ("client_secret: 'correct horse battery'", "client_secret: '@'"),
    "JSON": ('{"password": "correct horse", "user": "ada"}', '{"password": "@", "user": "ada"}'),
    "JSON without spaces": ('{"access_token":"abc","user":"ada"}', '{"access_token":"@","user":"ada"}'),
    "JSON with escapes": (r'{"secret": "a\"b\\", "user": "ada"}', '{"secret": "@", "user": "ada"}'),
    "Python": ("{'api_key': 'abcd', 'user': 'ada'}", "{'api_key': '@', 'user': 'ada'}"),
    "Python call": ("connect(user='ada', password='pw1', port=1)", "connect(user='ada', password='@', port=1)"),
    "Python item": ('os.environ["API_KEY"] = "abcd"', 'os.environ["API_KEY"] = "@"'),
    "Python bytes": ('secret = b"abcd"', 'secret = b"@"'),
    "camel case": ('clientSecret: "abcd", x', 'clientSecret: "@", x'),
    "JSON in JSON": (
        r'{"body": "{\"api_key\": \"abcd efgh\", \"a\": 1}"}',
        r'{"body": "{\"api_key\": \"@\", \"a\": 1}"}',
    ),
    "JSON in JSON in JSON": (
        json.dumps({"b": json.dumps({"b": json.dumps({"pwd": "ab cd", "a": 1})})}),
        json.dumps({"b": json.dumps({"b": json.dumps({"pwd": "@", "a": 1})})}),
    ),
    "connection string": ("Server=db;Pwd=hunter2;Port=1", "Server=db;Pwd=@;Port=1"),
    "prose": ("The password: hunter2, and the user: ada.", "The password: @, and the user: ada."),
    "Markdown": ("**Password:** `hunter2`", "**Password:** `@`"),
    "API key in prose": ("Your API key: abcd1234efgh", "Your API key: @"),
    "token in prose": ("token: 8f3k2jd9s0", "token: @"),
    "flag": ("login --user ada --password hunter2 --port 1", "login --user ada --password @ --port 1"),
    "flag with =": ("login --api-key=abcd1234", "login --api-key=@"),
    "passphrase": ('passphrase => "open sesame"', 'passphrase => "@"'),
    "cut off": ('{"password": "correct hor', '{"password": "@'),
}

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
    f"password: {MARK}, Authorization: Bearer {MARK}, https://a:{MARK}@b",
)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_secret_goes_and_what_is_around_it_stays(name: str) -> None:
    text, kept = PLANTED[name]

    assert PLAIN.text(text) == marked(kept)


def marked(kept: str) -> str:
    """`@` is the mark; where an address has a real one behind it, that stays."""
    return kept.replace("@@", "\0").replace("@", MARK).replace("\0", MARK + "@")


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert PLAIN.text(text) == text
    assert PLAIN.text(text) is text


def test_the_lists_are_as_long_as_they_are_said_to_be() -> None:
    assert len(PLANTED) >= 80
    assert len(HARMLESS) >= 100


@pytest.mark.parametrize("name", PLANTED)
def test_redacting_twice_changes_nothing(name: str) -> None:
    once = PLAIN.text(PLANTED[name][0])

    assert PLAIN.text(once) is once


def test_a_token_that_follows_a_mark_directly_stays_as_it_was_left() -> None:
    redactor = Redactor(["abcdef"])
    once = redactor.text("abcdefsk-" + RANDOM)

    assert redactor.text(once) is once


def test_overlapping_secrets_leave_one_mark_and_neighbours_one_each() -> None:
    redactor = Redactor(["first-half", "half-second"], shapes=False)

    assert redactor.text("a first-half-second b") == f"a {MARK} b"
    assert redactor.text("a first-halfhalf-second b") == f"a {MARK}{MARK} b"


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
    ],
)
def test_a_registered_value_goes_in_every_spelling(spelling: str) -> None:
    assert Redactor([REGISTERED], shapes=False).text(f"a {spelling} b") == f"a {MARK} b"


def test_the_longest_registered_value_goes_as_a_whole() -> None:
    assert Redactor(["abcdef", "abcdef-ghijkl"]).text("abcdef-ghijkl abcdef") == f"{MARK} {MARK}"


def test_also_adds_values_and_leaves_the_first_redactor_as_it_was() -> None:
    first = Redactor(["abcdef"], shapes=False)
    second = first.also("ghijkl", "mnopqr")

    assert first.text("abcdef ghijkl password=x1y2") == f"{MARK} ghijkl password=x1y2"
    assert second.text("abcdef ghijkl mnopqr password=x1y2") == f"{MARK} {MARK} {MARK} password=x1y2"


def test_without_values_and_shapes_nothing_changes() -> None:
    nothing = Redactor(shapes=False)
    value: Json = {"password": "hunter2", "a": [PLANTED["JWT"][0]]}

    assert nothing.value(value) is value
    assert all(nothing.text(text) is text for text, _ in PLANTED.values())


@pytest.mark.parametrize(
    ("secrets", "problem"), [(["longer", "short"], "secrets[1]: give a text of 6"), ([MARK], "secrets[0]: [redacted]")]
)
def test_a_value_that_cannot_be_one_is_refused_and_not_repeated(secrets: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Redactor(secrets)

    assert str(caught.value).startswith(problem)
    assert "short" not in str(caught.value).replace("shorter", "")


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="give a list of texts"):
        Redactor("abcdef")


def test_a_redactor_does_not_show_its_values() -> None:
    assert repr(Redactor(["abcdef"])) == "Redactor(<1 secrets>, shapes=True)"


# --- JSON values ---


def test_a_field_that_is_named_like_a_secret_loses_its_value() -> None:
    value: Json = {
        "user": "ada",
        "password": "correct horse",
        "login": {"apiKey": "abcd", "Authorization": "Bearer abcd.1234", "cookie": "a=b", "pin": 1, "max_tokens": 100},
        "db_password": 12345,
        "secrets": ["a"],
        "client_secret": ["abcd", None, {"text": "stays"}],
        "nested": [{"access_token": "abc"}, "password=hunter2"],
    }

    assert PLAIN.value(value) == {
        "user": "ada",
        "password": MARK,
        "login": {"apiKey": MARK, "Authorization": f"Bearer {MARK}", "cookie": MARK, "pin": 1, "max_tokens": 100},
        "db_password": MARK,
        "secrets": ["a"],
        "client_secret": [MARK, None, {"text": "stays"}],
        "nested": [{"access_token": MARK}, f"password={MARK}"],
    }


def test_what_holds_no_secret_is_the_same_object() -> None:
    clean: Json = {"a": [1, 2.5, None, True, "text"], "b": {"password": {"type": "string"}, "token": " Paris"}}
    value: Json = {"clean": clean, "password": "hunter2"}
    redacted = PLAIN.value(value)

    assert PLAIN.value(clean) is clean
    assert isinstance(redacted, dict)
    assert redacted["clean"] is clean
    assert PLAIN.value(redacted) is redacted


def test_a_registered_value_goes_from_names_of_fields_and_from_numbers() -> None:
    redactor = Redactor(["123456", "abcdef"], shapes=False)

    assert redactor.value({"x abcdef": 123456, "y": [123456, 1234567, True]}) == {
        f"x {MARK}": MARK,
        "y": [MARK, 1234567, True],
    }


def test_a_value_too_deep_to_follow_becomes_the_mark() -> None:
    deep: Json = "text"
    for _ in range(100_000):
        deep = [deep]

    assert PLAIN.value(deep) == MARK


# --- streams ---

PIECES = (
    *("password", "token: ", "api key", "Authorization: ", "Bearer ", "Cookie: a=b; ", '"secret": "', "-----BEGIN "),
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
        MARK,
        "[",
    ),
    *("x1", "open sesame", "open ", "of a", "of a secret life", "secret life", "MIIE", "-----", "PRIVATE KEY-----"),
    pem("RSA ")[:150],
)
TELLING = st.sampled_from([*(text for text, _ in PLANTED.values()), *HARMLESS, *PIECES])
TEXTS = st.lists(TELLING | st.text(max_size=8), max_size=9).map("".join)
STREAMED = Redactor(["open sesame", "secret life of a", "aXbXaX", "\nline\n"])


def streamed(redactor: Redactor, text: str, cuts: list[int]) -> str:
    stream, told, at = redactor.stream(), "", 0
    for cut in sorted({c % (len(text) + 1) for c in cuts} | {len(text)}):
        told += stream.feed(text[at:cut])
        at = cut
    return told + stream.end()


@settings(max_examples=int(os.environ.get("LOOPWRIGHT_REDACTION_EXAMPLES", "200")), deadline=None)
@given(TEXTS, st.lists(st.integers(0, 10_000), max_size=30))
@example("password: swordfish \nx", [19, 20])
@example("Authorization: AWS4-HMAC-SHA256 a=b, Signature=abc", [34, 37])
@example("the secret life of a secret life of b", list(range(40)))
def test_a_stream_tells_what_the_whole_text_tells_wherever_it_is_cut(text: str, cuts: list[int]) -> None:
    assert streamed(STREAMED, text, cuts) == STREAMED.text(text)


@settings(max_examples=int(os.environ.get("LOOPWRIGHT_REDACTION_EXAMPLES", "200")), deadline=None)
@given(TEXTS)
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    once = STREAMED.text(text)

    assert STREAMED.text(once) == once


@pytest.mark.parametrize("name", PLANTED)
def test_letter_by_letter_nothing_of_a_secret_is_told_too_early(name: str) -> None:
    text, kept = PLANTED[name]
    stream, told = PLAIN.stream(), ""
    whole = marked(kept)
    for letter in text:
        told += stream.feed(letter)
        assert whole.startswith(told)

    assert told + stream.end() == whole


def test_a_stream_holds_back_a_word_and_a_name_that_waits_for_its_value_and_no_more() -> None:
    stream = PLAIN.stream()
    told = [
        stream.feed(piece)
        for piece in ("Look: the ", "pass", "word ", "is he", "re, password: ", "hun", "ter2", " and", " so on")
    ]

    assert told == ["Look: the ", "", "", "password is ", "here, ", "", "", f"password: {MARK} ", "and so "]
    assert stream.end() == "on"


def test_text_without_spaces_is_told_letter_by_letter_where_it_is_written_so() -> None:
    stream = PLAIN.stream()

    assert [stream.feed(piece) for piece in ("密码", "是必", "填的。")] == ["密码", "是必", "填的。"]


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
    stream, told, most, fed = PLAIN.stream(), "", 0, 0
    marks = 0
    for at in range(0, len(text), 500):
        fed += len(text[at : at + 500])
        out = stream.feed(text[at : at + 500])
        told += out
        marks += out.count(MARK)
        if not marks:
            most = max(most, fed - len(told))

    assert told + stream.end() == PLAIN.text(text)
    assert most < 50_000


def test_values_that_overlap_without_end_do_not_fill_the_memory() -> None:
    redactor = Redactor(["ab cd ef", "ef gh ab"], shapes=False)
    stream, told = redactor.stream(), ""
    for _ in range(20_000):
        told += stream.feed("ab cd ef gh ")

    assert redactor.text("ab cd ef gh " * 20_000) == f"{MARK} gh "
    assert set((told + stream.end()).replace(MARK, "").split()) <= {"gh"}
    assert 1 < told.count(MARK) < 10


def test_a_stream_can_be_used_again() -> None:
    stream = PLAIN.stream()

    assert stream.feed("password: ") + stream.end() + stream.feed("hunter2 ") + stream.end() == "password: hunter2 "


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
    "Cookie": "Cookie: a=b; " * 7_500,
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
    "slashes": "/" * 100_000,
    "1//0": "1//0" * 25_000,
    "digits and colons": "12345678:AA" * 9_000,
    "wide": "密" * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear_in_hostile_text(name: str) -> None:
    text = HOSTILE[name]
    begun = time.process_time()
    PLAIN.text(text)
    assert time.process_time() - begun < 1

    begun = time.process_time()
    stream = PLAIN.stream()
    for at in range(0, len(text), 400):
        stream.feed(text[at : at + 400])
    stream.end()
    assert time.process_time() - begun < 5


def test_importing_compiles_nothing() -> None:
    code = "import loopwright.redaction.shapes as s; print(s.shapes.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("0\n", "")


# --- what people keep in this repository ---


@pytest.mark.parametrize("folder", ["src", "docs", "examples"])
def test_the_texts_of_this_repository_stay(folder: str) -> None:
    files = [path for path in (Path(__file__).parents[1] / folder).rglob("*.[pm][yd]") if path.stem != "secrets"]

    assert [
        str(path) for path in files if PLAIN.text(path.read_text(encoding="utf-8")) != path.read_text(encoding="utf-8")
    ] == []
