"""Secrets that are none: one of each shape, in the place where it is found, and what is left of that."""

import json

from loopwright.security import REDACTED

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
JWT = ".".join(
    ("ey" + "JhbGciOiJIUzI1NiJ9", "ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0", RANDOM[:43])
)

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
    "AWS secret": (
        "aws_secret_access_key = wJalr/UtnFEMI+K7MDENGbPxRfiCYzEXAMPLEK",
        "aws_secret_access_key = @",
    ),
    "AWS secret in prose": (
        "AWS secret access key: wJalr/UtnFEMI+K7MDENGbPxRfiCYz",
        "AWS secret access key: @",
    ),
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
    "npmrc": (
        "//registry.npmjs.org/:_authToken=npm_" + RANDOM[:36],
        "//registry.npmjs.org/:_authToken=@",
    ),
    "PyPI": ("pypi-" + "AgEIcHlwaS5vcmc" + RANDOM, "@"),
    "Hugging Face": ("hf_" + RANDOM[:34], "@"),
    "Telegram": ("123456789:" + "AA" + RANDOM[:33], "123456789:@"),
    "Discord": ("M" + "TIzNDU2Nzg5MDEyMzQ1Njc4" + "." + "GaBcDe." + RANDOM[:38], "@"),
    "Discord webhook": (
        "https://discord.com/api/webhooks/123456789012345678/" + RANDOM,
        "https://discord.com/api/webhooks/123456789012345678/@",
    ),
    "Azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey="
        + B64
        + ";EndpointSuffix=core.windows.net",
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
    "token behind an escaped line end": (
        '{"out": "a\\nsk-' + RANDOM + '"}',
        '{"out": "a\\n@"}',
    ),
    "token behind a percent escape": ("next=%20sk-" + RANDOM[:40], "next=%20@"),
    # headers
    "Bearer header": ("Authorization: Bearer abc.def-123", "Authorization: Bearer @"),
    "Basic header": ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic @"),
    "Token header": (
        "'Authorization': 'Token abc123def456'",
        "'Authorization': 'Token @'",
    ),
    "header in JSON": (
        '{"Authorization": "Bearer ' + RANDOM + '", "a": 1}',
        '{"Authorization": "Bearer @", "a": 1}',
    ),
    "AWS signature": (
        "Authorization: AWS4-HMAC-SHA256 Credential=A/b/c, SignedHeaders=host, Signature="
        + HEX,
        "Authorization: AWS4-HMAC-SHA256 @",
    ),
    "bare Bearer": ("send Bearer " + RANDOM[:30] + ".", "send Bearer @"),
    "bare Basic": ("send Basic dXNlcjpwYXNzd29yZA== now", "send Basic @ now"),
    "X-API-Key": (
        "curl -H 'X-API-Key: abcd1234efgh' https://a.b",
        "curl -H 'X-API-Key: @' https://a.b",
    ),
    "Cookie": (
        "Cookie: sid=31d4d96e407aad42; theme=dark\nHost: a",
        "Cookie: @\nHost: a",
    ),
    "Set-Cookie": (
        "Set-Cookie: sid=31d4d96e; Path=/; HttpOnly\r\nHost: a",
        "Set-Cookie: @\r\nHost: a",
    ),
    "cookies in quotes": (
        'Cookie: sid="31d4d96e407aad42"; x=""; b="c d"; theme=dark\nHost: a',
        "Cookie: @\nHost: a",
    ),
    "Set-Cookie in quotes": (
        'Set-Cookie: sid="31d4d96e"; Path=/; HttpOnly\r\nHost: a',
        "Set-Cookie: @\r\nHost: a",
    ),
    "cookie in quotes with a comma": (
        r'Set-Cookie: a="31d4d96e\054407aad42"; Path=/',
        "Set-Cookie: @",
    ),
    "cookies in quotes in JSON": (
        json.dumps({"out": 'Cookie: sid="31d4d96e407aad42"; b="c d"', "a": "b="}),
        json.dumps({"out": "Cookie: @", "a": "b="}),
    ),
    "cookie in quotes in JSON in JSON": (
        json.dumps(
            {"t": json.dumps({"set-cookie": 'sid="31d4d96e407aad42"; Path=/', "a": 1})}
        ),
        json.dumps({"t": json.dumps({"set-cookie": "@", "a": 1})}),
    ),
    "cookies in quotes in a shell": (
        "curl -H 'Cookie: sid=\"31d4d96e407aad42\"; a=b' -H 'x: \"y\"'",
        "curl -H 'Cookie: @' -H 'x: \"y\"'",
    ),
    "Digest header": (
        'Authorization: Digest username="ada", realm="all of it", qop=auth, response="'
        + HEX[:32]
        + '"\r\nHost: a',
        "Authorization: Digest @\r\nHost: a",
    ),
    "OAuth header": (
        'Authorization: OAuth oauth_consumer_key="xvz1evFS4w", oauth_signature="'
        + RANDOM[:27]
        + '%3D"',
        "Authorization: OAuth @",
    ),
    "Token header with a name": (
        'Authorization: Token token="' + HEX[:20] + '", nonce="def"',
        "Authorization: Token @",
    ),
    # addresses
    "address": (
        "https://ada:" + PASSWORD + "@example.com/x",
        "https://ada:@@example.com/x",
    ),
    "Postgres": ("postgres://ada:p4ss@w0rd@db:5432/x", "postgres://ada:@@db:5432/x"),
    "Redis": ("redis://:s3cr3tpw@cache:6379/0", "redis://:@@cache:6379/0"),
    "ssh": ("ssh://ada:p4ssw0rd@host:22", "ssh://ada:@@host:22"),
    "api_key in a query": (
        "https://a.b/c?api_key=abcd1234&x=1",
        "https://a.b/c?api_key=@&x=1",
    ),
    "token in a query": (
        "https://a.b/c?x=1&token=abcd1234efgh#top",
        "https://a.b/c?x=1&token=@",
    ),
    "key in a query": (
        "https://a.b/c?key=" + RANDOM[:20] + "&x=1",
        "https://a.b/c?key=@&x=1",
    ),
    "X-Amz-Signature": (
        "https://a.b/c?X-Amz-Date=2026&X-Amz-Signature=" + HEX,
        "https://a.b/c?X-Amz-Date=2026&X-Amz-Signature=@",
    ),
    "Azure SAS": (
        "https://a.b/c?sv=2026&sig=" + RANDOM[:40] + "%3D",
        "https://a.b/c?sv=2026&sig=@",
    ),
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
    "YAML": (
        "db:\n  password: hunter2\n  user: ada",
        "db:\n  password: @\n  user: ada",
    ),
    "YAML in quotes": ("client_secret: 'correct horse battery'", "client_secret: '@'"),
    "JSON": (
        '{"password": "correct horse", "user": "ada"}',
        '{"password": "@", "user": "ada"}',
    ),
    "JSON without spaces": (
        '{"access_token":"abc","user":"ada"}',
        '{"access_token":"@","user":"ada"}',
    ),
    "JSON with escapes": (
        r'{"secret": "a\"b\\", "user": "ada"}',
        '{"secret": "@", "user": "ada"}',
    ),
    "Python": ("{'api_key': 'abcd', 'user': 'ada'}", "{'api_key': '@', 'user': 'ada'}"),
    "Python call": (
        "connect(user='ada', password='pw1', port=1)",
        "connect(user='ada', password='@', port=1)",
    ),
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
    "prose": (
        "The password: hunter2, and the user: ada.",
        "The password: @, and the user: ada.",
    ),
    "Markdown": ("**Password:** `hunter2`", "**Password:** `@`"),
    "Markdown behind a name": (
        "password: **Password:** `hunter2`",
        "password: **Password:** `@`",
    ),
    "API key in prose": ("Your API key: abcd1234efgh", "Your API key: @"),
    "token in prose": ("token: 8f3k2jd9s0", "token: @"),
    "flag": (
        "login --user ada --password hunter2 --port 1",
        "login --user ada --password @ --port 1",
    ),
    "flag of two words": (
        "login --user ada --api-key abcd1234 --port 1",
        "login --user ada --api-key @ --port 1",
    ),
    "flag of many words": (
        "run --my-app-access-key abcd1234 -v",
        "run --my-app-access-key @ -v",
    ),
    "flag with =": ("login --api-key=abcd1234", "login --api-key=@"),
    "passphrase": ('passphrase => "open sesame"', 'passphrase => "@"'),
    "cut off": ('{"password": "correct hor', '{"password": "@'),
}


def marked(kept: str) -> str:
    """`@` is the mark; where an address has a real one behind it, that stays."""
    return kept.replace("@@", "\0").replace("@", REDACTED).replace("\0", REDACTED + "@")
