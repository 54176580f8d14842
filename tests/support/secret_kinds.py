"""120 kinds of secrets in the forms of their vendors' documentation, made up: the text, and the secret in it.

They are put together from pieces so that no scanner takes them for real ones.
"""

import base64
import random
import string

_SOURCE = random.Random(20_261_126)
_MIXED = string.ascii_letters + string.digits


def mixed(length: int, extra: str = "") -> str:
    """Return letters and digits of that length; a digit, a capital and a small letter at least."""
    rest = "".join(_SOURCE.choice(_MIXED + extra) for _ in range(length - 3))
    return f"q{rest[: len(rest) // 2]}7{rest[len(rest) // 2 :]}Z"


def lower(length: int) -> str:
    return (
        "".join(
            _SOURCE.choice(string.ascii_lowercase + string.digits)
            for _ in range(length - 2)
        )
        + "4x"
    )


def upper(length: int) -> str:
    return "".join(
        _SOURCE.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(length)
    )


def hexes(length: int) -> str:
    return "".join(_SOURCE.choice("0123456789abcdef") for _ in range(length - 2)) + "c4"


def digits(length: int) -> str:
    return "".join(_SOURCE.choice("0123456789") for _ in range(length))


def uuid() -> str:
    text = hexes(32)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def b64(length: int) -> str:
    return base64.b64encode(_SOURCE.randbytes(length)).decode()


def pem(kind: str) -> str:
    body = "\n".join(b64(48) for _ in range(6))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


def jwt() -> str:
    return f"eyJ{mixed(30)}.eyJ{mixed(60)}.{mixed(43, '_-')}"


def _shown(template: str, secret: str) -> tuple[str, str]:
    return template.replace("@@", secret), secret


KINDS: dict[str, tuple[str, str]] = {
    # models
    "OpenAI": _shown("my key is @@", "sk-" + mixed(48)),
    "OpenAI project": _shown("@@", "sk-proj-" + mixed(60, "_-")),
    "OpenAI admin": _shown("use @@ for it", "sk-admin-" + mixed(60, "_-")),
    "Anthropic": _shown("@@", "sk-ant-api03-" + mixed(93, "_-") + "AA"),
    "OpenRouter": _shown("@@", "sk-or-v1-" + hexes(64)),
    "Groq": _shown("@@", "gsk_" + mixed(52)),
    "xAI": _shown("@@", "xai-" + mixed(80)),
    "Perplexity": _shown("@@", "pplx-" + mixed(48)),
    "Hugging Face": _shown("login with @@", "hf_" + mixed(34)),
    "Replicate": _shown("@@", "r8_" + mixed(37)),
    "Fireworks": _shown("@@", "fw_" + mixed(24)),
    "NVIDIA NIM": _shown("@@", "nvapi-" + mixed(64, "_-")),
    "Cerebras": _shown("@@", "csk-" + lower(48)),
    "LangSmith": _shown("@@", "lsv2_pt_" + hexes(32) + "_" + hexes(10)),
    "Pinecone": _shown("@@", "pcsk_" + mixed(70, "_")),
    "Tavily": _shown("@@", "tvly-" + mixed(32)),
    "Weights & Biases": _shown("WANDB_API_KEY=@@", hexes(40)),
    "Voyage": _shown("@@", "pa-" + mixed(43, "_-")),
    "ElevenLabs": _shown("@@", "sk_" + hexes(48)),
    "Google AI": _shown("@@", "AIza" + mixed(35, "_-")),
    # clouds
    "AWS access key": _shown("@@", "AKIA" + upper(16)),
    "AWS temporary key": _shown("@@", "ASIA" + upper(16)),
    "AWS secret key": _shown("aws_secret_access_key = @@", mixed(40, "/+")),
    "AWS session token": _shown("AWS_SESSION_TOKEN=@@", "IQoJb3JpZ2luX2Vj" + mixed(200, "/+")),
    "AWS Bedrock key": _shown("@@", "ABSK" + b64(90)),
    "AWS MWS": _shown("@@", "amzn.mws." + uuid()),
    "Azure storage": _shown("AccountName=a;AccountKey=@@;EndpointSuffix=x", b64(64)),
    "Azure AD client secret": _shown("the secret is @@ and expires soon", mixed(3) + "8Q~" + mixed(31, "_.~-")),
    "Azure SAS": _shown("https://a.blob.core.windows.net/b?sv=2022&sig=@@&se=2030", mixed(43) + "%3D"),
    "Azure service bus": _shown("Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey=@@", b64(32)),
    "Azure DevOps": _shown("@@", mixed(76) + "AZDO" + mixed(4)),
    "Azure functions": _shown("https://x.azurewebsites.net/api/f?code=@@", mixed(52, "_-") + "=="),
    "Azure event grid": _shown("aeg-sas-key: @@", b64(32)),
    "Google OAuth": _shown("@@", "ya29." + mixed(120, "_-")),
    "Google refresh": _shown("@@", "1//0" + mixed(60, "_-")),
    "Google client secret": _shown("@@", "GOCSPX-" + mixed(28, "_-")),
    "Google service account": _shown('{"private_key": "@@"}', pem("").replace("\n", "\\n")),
    "Google HMAC": _shown("@@", "GOOG1E" + upper(55)),
    "DigitalOcean": _shown("@@", "dop_v1_" + hexes(64)),
    "Alibaba": _shown("@@", "LTAI5t" + mixed(18)),
    "Tencent": _shown("SecretId: @@", "AKID" + mixed(32)),
    "Yandex": _shown("@@", "AQVN" + mixed(36, "_-")),
    "IBM Cloud": _shown('"apikey": "@@"', mixed(44, "_-")),
    "Heroku": _shown("@@", "HRKU-AA" + mixed(58, "_-")),
    "Fly.io": _shown("@@", "FlyV1 fm2_" + b64(100)),
    "Vercel blob": _shown("@@", "vercel_blob_rw_" + mixed(16) + "_" + mixed(30)),
    "Netlify": _shown("@@", "nfp_" + mixed(36)),
    "Cloudflare API": _shown("CLOUDFLARE_API_TOKEN=@@", mixed(40, "_-")),
    "Cloudflare origin": _shown("@@", "v1.0-" + hexes(24) + "-" + hexes(146)),
    "Supabase": _shown("@@", "sbp_" + hexes(40)),
    "Supabase secret": _shown("@@", "sb_secret_" + mixed(22, "_-") + "_" + mixed(8)),
    "PlanetScale password": _shown("@@", "pscale_pw_" + mixed(43, "_-")),
    "Neon": _shown("@@", "napi_" + lower(64)),
    "Databricks": _shown("@@", "dapi" + hexes(32)),
    "Scaleway": _shown("SCW_SECRET_KEY=@@", uuid()),
    "Linode": _shown("LINODE_TOKEN=@@", hexes(64)),
    # secrets and networks
    "Vault": _shown("export VAULT @@", "hvs." + mixed(90, "_-")),
    "Vault batch": _shown("@@", "hvb." + mixed(130, "_-")),
    "Vault before 1.10": _shown("VAULT_TOKEN=@@", "s." + mixed(24)),
    "Terraform Cloud": _shown("@@", mixed(14) + ".atlasv1." + mixed(67, "_-")),
    "Terraform variable": _shown('db_password = "@@"', mixed(16)),
    "age": _shown("@@", "AGE-SECRET-KEY-1" + upper(58)),
    "1Password": _shown("@@", "ops_eyJ" + mixed(250)),
    "1Password key": _shown("@@", "-".join(["A3", upper(6), upper(6), *(upper(5) for _ in range(4))])),
    "Doppler": _shown("@@", "dp.pt." + mixed(43)),
    "Infisical": _shown("@@", "st." + uuid() + "." + hexes(32) + "." + hexes(32)),
    "Tailscale": _shown("tailscale up --authkey @@", "tskey-auth-" + mixed(16) + "-" + mixed(32)),
    "Tailscale API": _shown("@@", "tskey-api-" + mixed(16) + "-" + mixed(32)),
    "WireGuard": _shown("PrivateKey = @@", b64(32)),
    "ngrok": _shown("ngrok authtoken: @@", "2" + mixed(26) + "_" + mixed(21)),
    "Pulumi": _shown("@@", "pul-" + hexes(40)),
    "CircleCI": _shown("@@", "CCIPAT_" + mixed(22) + "_" + hexes(40)),
    "Buildkite": _shown("@@", "bkua_" + hexes(40)),
    # code
    "GitHub": _shown("@@", "ghp_" + mixed(36)),
    "GitHub fine-grained": _shown("@@", "github" + "_pat_" + mixed(22) + "_" + mixed(59)),
    "GitHub app": _shown("@@", "ghs_" + mixed(36)),
    "GitLab": _shown("@@", "glpat-" + mixed(20, "_-")),
    "GitLab trigger": _shown("@@", "glptt-" + hexes(40)),
    "GitLab feed": _shown("@@", "glft-" + mixed(20, "_-")),
    "Bitbucket app password": _shown("@@", "ATBB" + mixed(32)),
    "Atlassian": _shown("@@", "ATATT3xFfGF0" + mixed(180, "_-") + "=" + upper(8)),
    "npm": _shown("//registry.npmjs.org/:_authToken=@@", "npm_" + mixed(36)),
    "PyPI": _shown("@@", "pypi-AgEIcHlwaS5vcmc" + mixed(150, "_-")),
    "RubyGems": _shown("@@", "rubygems_" + hexes(48)),
    "crates.io": _shown("@@", "cio" + mixed(32)),
    "NuGet": _shown("@@", "oy2" + lower(43)),
    "Docker Hub": _shown("@@", "dckr_pat_" + mixed(27, "_-")),
    "SonarQube": _shown("@@", "squ_" + hexes(40)),
    "Sentry": _shown("@@", "sntryu_" + hexes(64)),
    "Grafana": _shown("@@", "glc_" + b64(60)),
    "Grafana service": _shown("@@", "glsa_" + mixed(32) + "_" + hexes(8)),
    "Datadog": _shown("DD-API-KEY: @@", hexes(32)),
    "New Relic": _shown("@@", "NRAK-" + upper(27)),
    "Postman": _shown("@@", "PMAK-" + hexes(24) + "-" + hexes(34)),
    "Linear": _shown("@@", "lin_api_" + mixed(40)),
    "Notion": _shown("@@", "ntn_" + mixed(46)),
    "Airtable": _shown("@@", "pat" + mixed(14) + "." + hexes(64)),
    "Figma": _shown("@@", "figd_" + mixed(40, "_-")),
    "Asana": _shown("@@", "2/" + digits(16) + "/" + digits(16) + ":" + hexes(32)),
    "Typeform": _shown("@@", "tfp_" + mixed(44, "_-") + "_" + mixed(14)),
    # messages and payments
    "Slack bot": _shown("@@", "xoxb-" + digits(12) + "-" + digits(13) + "-" + mixed(24)),
    "Slack hook": _shown("https://hooks.slack.com/services/@@", "T" + upper(8) + "/B" + upper(8) + "/" + mixed(24)),
    "Discord bot": _shown("@@", "M" + mixed(23) + "." + mixed(6) + "." + mixed(38, "_-")),
    "Discord hook": _shown("https://discord.com/api/webhooks/123456789012345678/@@", mixed(68, "_-")),
    "Telegram": _shown("123456789:@@", "AA" + mixed(33, "_-")),
    "Teams hook": _shown(
        "https://x.webhook.office.com/webhookb2/@@",
        f"{uuid()}@{uuid()}/IncomingWebhook/{hexes(32)}/{uuid()}",
    ),
    "Twilio": _shown("@@", "SK" + hexes(32)),
    "SendGrid": _shown("@@", "SG." + mixed(22, "_-") + "." + mixed(43, "_-")),
    "Mailgun": _shown("@@", "key-" + hexes(32)),
    "Mailchimp": _shown("@@", hexes(32) + "-us21"),
    "Brevo": _shown("@@", "xkeysib-" + hexes(64) + "-" + mixed(16)),
    "Stripe": _shown("@@", "sk" + "_live_" + mixed(99)),
    "Square": _shown("@@", "EAAA" + mixed(60, "_-")),
    "PayPal": _shown("access_token$production$@@", lower(16) + "$" + hexes(32)),
    "Shopify": _shown("@@", "shpat_" + hexes(32)),
    "Meta": _shown("@@", "EAACEdEose0cBA" + mixed(150)),
    # files, headers, commands
    ".netrc": _shown("machine api.example.com login ada password @@", mixed(14)),
    "curl -u": _shown("curl -u ada:@@ https://api.example.com", mixed(14)),
    "XML password": _shown("<server><username>ada</username><password>@@</password></server>", mixed(14)),
    "name and value": _shown('{"name": "DB_PASSWORD", "value": "@@"}', mixed(16)),
    "database URL": _shown("postgres://ada:@@@db.example.com/x", mixed(14)),
    "Basic header": _shown("Authorization: Basic @@", base64.b64encode(b"ada:hunter2-Q9x").decode()),
    "Bearer header": _shown("Authorization: Bearer @@", mixed(40)),
    "JWT": _shown("@@", jwt()),
    "session cookie": _shown("Cookie: @@", "sessionid=" + mixed(32)),
    "OpenSSH key": _shown("@@", pem("OPENSSH ")),
    "PGP key": _shown("@@", pem("RSA ").replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")),
    "htpasswd": _shown("ada:@@", "$apr1$" + mixed(8) + "$" + mixed(22, "./")),
    "shadow": _shown("ada:@@:19000:0:99999:7:::", "$6$" + mixed(16) + "$" + mixed(86, "./")),
    "docker config": _shown(
        '{"auths": {"ghcr.io": {"auth": "@@"}}}', base64.b64encode(b"ada:" + mixed(20).encode()).decode()
    ),
    "Kubernetes secret": _shown("kind: Secret\ndata:\n  password: @@", b64(18)),
    "one-time code": _shown("otpauth://totp/x?secret=@@&issuer=y", upper(32)),
    "seed phrase": _shown("mnemonic: @@", "abandon ability able about above absent absorb abstract absurd abuse access zoo"),
    "Ethereum key": _shown("private key: @@", "0x" + hexes(64)),
    "mysql -p": _shown("mysql -u root -p@@ shop", mixed(14)),
    "sshpass": _shown("sshpass -p @@ ssh ada@example.com", mixed(14)),
    "PGPASSWORD": _shown("PGPASSWORD=@@ psql", mixed(14)),
    "pgpass": _shown("db.example.com:5432:shop:ada:@@", mixed(16)),
    "Redis": _shown("redis-cli -a @@ ping", mixed(16)),
    "SQL user": _shown("CREATE USER ada IDENTIFIED BY '@@'", mixed(14)),
    "signed URL": _shown("https://s3.amazonaws.com/b?X-Amz-Signature=@@", hexes(64)),
}  # fmt: skip
