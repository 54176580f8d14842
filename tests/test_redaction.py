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
    "Ünïcödé pässwörd: für alle; 密码：必填",
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
