"""Patterns of secrets: token prefixes, named values, headers, addresses with a password, private
keys.

Every pattern begins with a small set of rare characters and looks back from there, so that ordinary
text is skipped quickly. Quantifiers are bounded, and possessive (`{1,9}+`) where a retry could
repeat work: reading takes time linear in the text, whatever the text, and no match is longer than
`MAX_MATCH_LENGTH`.

A match of `opening` reaches the end of the text and says that more text could make a match of it.
Only patterns that continue over a space need one, since a stream holds its last word back anyway.
"""

import base64
import binascii
import functools
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ..._internal.regex import compile_late
from .findings import GAPS, Finding
from .heuristics import (
    NAMES,
    REDACTED,
    SecretKind,
    classify_match,
    is_bare_secret,
    is_code,
    is_placeholder,
    is_quoted_secret,
    is_random,
    is_word,
)

MAX_MATCH_LENGTH = 13_000  # characters; the patterns below are bounded accordingly

SecretLocator: TypeAlias = Callable[["re.Match[str]"], tuple[int, int] | None]


@dataclass(frozen=True)
class SecretPattern:
    """One kind of secret; its patterns are compiled when they are first needed, which takes some
    milliseconds.

    Args:
        source: regular expression of a candidate.
        locate: returns the span of the secret in a match, if it holds one.
        opening_source: regular expression, anchored at the end of the text, of what may become a
            candidate.
    """

    source: str
    locate: SecretLocator
    opening_source: str = ""

    @functools.cached_property
    def pattern(self) -> "re.Pattern[str]":
        """The compiled `source`."""
        return re.compile(self.source)

    @functools.cached_property
    def opening(self) -> "re.Pattern[str]":
        """The compiled `opening_source`."""
        return re.compile(self.opening_source)

    def find(self, text: str, at: int) -> list[Finding]:
        """Return all matches from `start` on, also those that hold no secret: the text of a match
        is not searched again.
        """
        found: list[Finding] = []
        locate = self.locate
        for match in self.pattern.finditer(text, at):
            begin, end = match.span()
            start, stop = locate(match) or (end, end)
            found.append(Finding(min(begin, start), end, start, stop))
        return found


# --- tokens that are recognised by their prefix ---

_URL64 = "[A-Za-z0-9_-]"
_TOKENS: tuple[
    tuple[str, str, int], ...
] = (  # prefixes; the alphabet of the rest, and its minimum length
    ("sk-", _URL64, 16),  # OpenAI, Anthropic, OpenRouter, DeepSeek, Langfuse …
    ("ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9]", 20),
    ("github_pat_", "[A-Za-z0-9_]", 20),
    ("glpat- gldt- glrt- glptt- glcbt- gloas-", "[A-Za-z0-9_.-]", 16),
    (
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxc- xoxd- xapp-",
        "[A-Za-z0-9.%-]",
        10,
    ),  # Slack
    ("sk_live_ rk_live_ sk_test_ rk_test_ whsec_", "[A-Za-z0-9+/=]", 10),  # Stripe
    ("npm_", "[A-Za-z0-9]", 30),
    ("pypi-", _URL64, 30),
    ("hf_ r8_ gsk_ ntn_", "[A-Za-z0-9]", 20),  # Hugging Face, Replicate, Groq, Notion
    ("dop_v1_ doo_v1_ dor_v1_", "[0-9a-f]", 32),  # DigitalOcean
    ("shpat_ shpca_ shppa_ shpss_", "[0-9a-fA-F]", 24),  # Shopify
    ("key-", "[0-9a-f]", 32),  # Mailgun
    ("sk_ sbp_ bkua_ squ_ sqp_ sqa_ pul- glptt-", "[0-9a-f]", 40),
    ("rubygems_ sntryu_", "[0-9a-f]", 40),
    ("napi_", "[0-9a-z]", 40),
    ("fw_ nfp_", "[A-Za-z0-9]", 20),
    ("csk-", "[0-9a-z]", 30),
    ("glc_ glft- glimt- glagent- glffct- glsoat-", "[A-Za-z0-9+/=_-]", 20),
    ("CCIPAT_ CCIPRJ_", "[A-Za-z0-9_]", 40),
    ("vercel_blob_rw_ sb_secret_ tfp_", "[A-Za-z0-9_-]", 25),
    ("tskey-", "[A-Za-z0-9-]", 20),
    ("pa-", _URL64, 40),  # Voyage
    (
        "nvapi- xkeysib- HRKU- figd_ pscale_pw_ pscale_tkn_ pscale_oauth_ dckr_oat_",
        _URL64,
        20,
    ),
    (
        "xai- pplx- tvly- pcsk_ glsa_ sntrys_ lin_api_ lsv2_pt_ dckr_pat_ GOCSPX- PMAK- NRAK-",
        _URL64,
        20,
    ),
)
_PREFIXES: defaultdict[str, list[str]] = defaultdict(
    list
)  # by their last three characters
for _prefix in sorted(
    " ".join(tokens for tokens, _, _ in _TOKENS).split(), key=len, reverse=True
):
    _PREFIXES[_prefix[-3:]].append(_prefix)
_DENSE = compile_late(
    r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{8}|[A-Za-z0-9]{20}"
)
_WITH_HYPHENS = frozenset(  # prefixes before an alphabet that can spell words
    [
        "sk-",
        "pypi-",
        "xai-",
        "pplx-",
        "tvly-",
        "pcsk_",
        "glsa_",
        "pa-",
        "tskey-",
        "csk-",
        "nvapi-",
        "fw_",
    ]
)


def _edge(prefix: str) -> str:
    """Return a pattern behind `prefix`: it begins a word, or stands behind an escape (`\\n`,
    `%20`); no rest of a secret.
    """
    behind = (
        rf"\\[nrtbf]{prefix}",
        rf"%[0-9A-Fa-f][0-9A-Fa-f]{prefix}",
        rf"\\u[0-9A-Fa-f]{{4}}{prefix}",
    )
    return rf"(?:(?<![A-Za-z0-9]{prefix})|{'|'.join(f'(?<={b})' for b in behind)})(?<!\[redacted\]{prefix})"


def _by_prefix(last: str) -> str:
    """Return a pattern that begins at `last` for those of `_TOKENS` whose prefix ends with it."""
    branches: defaultdict[str, list[str]] = defaultdict(list)
    for prefixes, alphabet, min_length in _TOKENS:
        for prefix in filter(lambda prefix: prefix.endswith(last), prefixes.split()):
            edge = (
                _edge(prefix) if len(prefix) < 5 and not prefix.startswith("gh") else ""
            )
            branches[prefix[-2:]].append(
                f"(?<={prefix}){edge}{alphabet}{{{min_length},4096}}+"
            )
    found = "|".join(
        f"(?<={end})(?:{'|'.join(rest)})" for end, rest in branches.items()
    )
    return f"{last}(?<=[A-Za-z0-9]{last})(?=[A-Za-z0-9_.%+/=-]{{9}})(?:{found})"


def _locate_prefixed(match: "re.Match[str]") -> tuple[int, int] | None:
    text, at, end = match.string, match.start() + 1, match.end()
    prefix = next(
        known for known in _PREFIXES[text[at - 3 : at]] if text.endswith(known, 0, at)
    )
    if prefix in _WITH_HYPHENS and _DENSE.search(text, at, end) is None:
        return None
    return at - len(prefix), end


def _from(back: int) -> SecretLocator:
    """Return a locator: all of a match is secret, and so many characters before it."""
    return lambda match: (match.start() - back, match.end())


def _group(name: str) -> SecretLocator:
    """Return a locator: one group of a match is secret, if it took part."""
    return lambda match: None if match[name] is None else match.span(name)


HYPHEN, UNDERSCORE = (
    SecretPattern(_by_prefix(last), _locate_prefixed) for last in "-_"
)
AWS_GOOGLE = SecretPattern(
    rf"A(?:[KS]IA{_edge('A[KS]IA')}[A-Z0-9]{{16,128}}+|Iza{_edge('AIza')}{_URL64}{{30,4096}}+)",
    _from(0),
)
TWILIO_SENDGRID = SecretPattern(
    rf"S(?:K{_edge('SK')}[0-9a-f]{{32,128}}+|G\.{_edge('SG.')}{_URL64}{{16,128}}+\.{_URL64}{{16,128}}+)",
    _from(0),
)
GOOGLE_ACCESS = SecretPattern(
    rf"9\.(?<=ya29\.){_edge('ya29.')}{_URL64}{{20,4096}}+", _from(3)
)
GOOGLE_REFRESH = SecretPattern(
    rf"//0(?<=1//0)(?<![/+=]1//0){_edge('1//0')}{_URL64}{{20,512}}+", _from(1)
)
DATABRICKS = SecretPattern(rf"pi(?<=dapi){_edge('dapi')}[0-9a-f]{{32,128}}+", _from(2))
SLACK_HOOK = SecretPattern(
    r"/[swt](?<=hooks\.slack\.com/.)(?:ervices|orkflows|riggers)/(?P<hook>[A-Za-z0-9/_+-]{8,512}+)",
    _group("hook"),
)
DISCORD_HOOK = SecretPattern(
    rf"/[0-9](?<=/api/webhooks/.)[0-9]{{7,24}}/(?P<hook>{_URL64}{{20,512}}+)",
    _group("hook"),
)
TELEGRAM = SecretPattern(
    rf":AA(?<=[0-9]{{8}}:AA)(?P<key>{_URL64}{{30,128}}+)", _from(-1)
)  # before it is the bot's public id


def _locate_jwt(match: "re.Match[str]") -> tuple[int, int] | None:
    return None if match["rest"] is None else (match.start() - 2, match.end())


JWT = SecretPattern(
    rf"J(?<=eyJ){_edge('eyJ')}{_URL64}{{8,2048}}+(?P<rest>\.{_URL64}{{4,7000}}+(?:\.{_URL64}{{0,1024}}+){{0,3}})?",
    _locate_jwt,
)


def _locate_bot(match: "re.Match[str]") -> tuple[int, int] | None:
    text, end = match.string, match.start()
    start = end
    while start > max(0, end - 28) and _is_token_letter(text[start - 1]):
        start -= 1
    is_token = text[start] in "MNO" and is_random(match["bot"], 27)
    return (start, match.end()) if is_token else None


def _is_token_letter(letter: str) -> bool:
    return letter.isalnum() or letter in "_-"


DISCORD_BOT = SecretPattern(
    rf"\.{_URL64}{{6}}\.(?<={_URL64}{{23}}\..{{6}}\.)(?P<bot>{_URL64}{{27,128}}+)",
    _locate_bot,
)


def _locate_bearer(match: "re.Match[str]") -> tuple[int, int] | None:
    is_basic = match.string[match.start() + 1] in "aA"
    is_credential = is_basic_credential if is_basic else _is_bearer_credential
    return match.span("word") if is_credential(match["word"]) else None


def _is_bearer_credential(word: str) -> bool:
    """Return whether a word behind `Bearer` is a credential, and not a part of a sentence."""
    return is_random(word, 16) and not is_placeholder(word)


def is_basic_credential(word: str) -> bool:
    """Return whether a word behind `Basic` is a user and a password in base64."""
    padded = word + "=" * (-len(word) % 4)
    try:
        user, _, password = base64.b64decode(padded, validate=True).partition(b":")
    except binascii.Error:
        return False
    return password != b"" and user.isascii()


BEARER = SecretPattern(
    r"[bB](?ai:earer|asic)[ \t]{1,4}(?P<word>[A-Za-z0-9._~+/=:-]{1,4096}+)(?!\[redacted\])",  # the rest of a redacted one
    _locate_bearer,
    r"[bB](?ai:earer|asic)[ \t]{1,4}\Z",
)


# --- values that are recognised by their name ---

_CLOSING = r"\\{0,7}+[\"'`]?+\]?+\*{0,2}+"
_SIGN = r"[ \t]{0,8}+(?:=>|:=|=(?![=~])|:(?!:))\*{0,2}+[ \t]{0,8}+\*{0,2}+"
_DOUBLE, _SINGLE, _BACK = (rf"{q}(?:[^{q}\\\r\n]|\\[^\r\n]){{0,4096}}+" for q in "\"'`")
_RUN = rf"[^{GAPS}]{{0,4200}}+"
_NEXT = r"[A-Za-z0-9_.%-]{1,40}+"


# A value in quotes, in escaped quotes, or as one word that is not the name of another value.
_VALUE = (
    rf"(?:(?:[bBuU](?=[\"']))?(?P<quoted>{_DOUBLE}|{_SINGLE}|{_BACK})[\"'`]?"
    r"|(?P<slashes>\\{1,7}+)(?P<quote>[\"'])(?P<escaped>[^\r\n]{0,4096}?)"
    r"(?:(?<!\\)(?P=slashes)(?P=quote)|(?=[\r\n])|\Z)"
    rf"|(?!{_NEXT}[:=](?:\*\*)?+(?:[{GAPS}\"'`]|\Z))"
    rf"(?P<bare>[^{GAPS}\"'`\\[({{<>|=:,;&~)\]}}]"
    rf"(?:[^{GAPS}\"'`\\,;&<]|[,;&](?![{GAPS}\"'`]|\Z|amp;|{_NEXT}[:=])|<(?![/A-Za-z!])|\\(?![nrt\"'`\\]))"
    r"{0,4096}+)(?P<last>[ \t]{0,8}(?=[\r\n]|\\[nr]|\Z))?)"
)

# What a value may be so far.
_VALUE_SO_FAR = (
    rf"(?:[bBuU]?(?:(?:{_DOUBLE}|{_SINGLE}|{_BACK})\\?"
    r"|(?P<slashes>\\{1,7}+)(?P<quote>[\"'])(?:(?!(?<!\\)(?P=slashes)(?P=quote))[^\r\n]){0,4096}+)"
    rf"|{_RUN}[ \t]{{0,8}})?\Z"
)
_NAMED = rf"{NAMES}(?P<closing>{_CLOSING})(?P<sign>{_SIGN}){_VALUE}"
_NAMED_SO_FAR = rf"{NAMES}{_CLOSING}(?:[ \t]{{0,8}}+\Z|{_SIGN}{_VALUE_SO_FAR})"

_FLAG = (
    r"-(?=[A-Za-z])(?<=--)(?ai:(?:[a-z0-9]{1,20}-){0,3}(?:(?P<password>password|passwd|passphrase|pwd|pass)|secret|token"
    r"|(?:api|access|secret|private|auth|account)-?key))[ \t]{1,4}+"
)


_LINK = compile_late(
    r"(?ai:https?://\S{0,300}?(?:reset|verif|confirm|invit|activat|unsubscribe|magic)\S{0,200})\Z"
)


def _is_in_link(text: str, end: int) -> bool:
    """Whether a text ends in a link that is sent to be opened once: to reset, verify, confirm."""
    start = max(0, end - 520)
    word = text[start:end].rpartition(" ")[2].rpartition("\n")[2]
    return "://" in word and _LINK.search(word) is not None


def _locate_named(match: "re.Match[str]") -> tuple[int, int] | None:
    kind = classify_match(match.string, match.start())
    if kind is None:
        return None
    if kind in ("token", "secret") and _is_in_link(match.string, match.start()):
        return None
    if match["bare"] is None:
        is_quoted_name = match.string[match.end("closing") - 1] in "\"'`]"
        return _locate_quoted(match, kind, is_quoted_name=is_quoted_name)
    tight, last = match["sign"].endswith("="), match["last"] is not None
    return _locate_bare(match, kind, tight=tight, last=last)


def _locate_flag(match: "re.Match[str]") -> tuple[int, int] | None:
    kind: SecretKind = "password" if match["password"] else "secret"
    if match["bare"] is None:
        return _locate_quoted(match, kind, is_quoted_name=True)
    return _locate_bare(match, kind, tight=False, last=False)


def _locate_bare(
    match: "re.Match[str]", kind: SecretKind, *, tight: bool, last: bool
) -> tuple[int, int] | None:
    start = match.start("bare")
    bare, placeholder, _ = match["bare"].partition(REDACTED)
    if not placeholder:  # the text before one may be the rest of a secret
        bare = bare.rstrip(")]}>*,;:")
    if not bare or not is_bare_secret(kind, bare, tight=tight, last=last):
        return None
    return start, start + len(bare)


def _locate_quoted(
    match: "re.Match[str]", kind: SecretKind, *, is_quoted_name: bool
) -> tuple[int, int] | None:
    start, stop = match.span("escaped")
    if match["quoted"] is not None:
        start, stop = match.start("quoted") + 1, match.end("quoted")
    value = match.string[start:stop]
    # a quote behind a name without one may be the end of a prompt: "Password: "
    ends_prompt = not value or value[0] in " \t,)+:;}]"
    if ends_prompt and not is_quoted_name:
        return None
    return (start, stop) if is_quoted_secret(kind, value) else None


# --- headers and queries ---

_QUOTE = r"(?:\\{0,7}[\"'`])?+"
_SCHEME = r"[A-Za-z][A-Za-z0-9-]{2,30}"
# A value in quotes begins with one of these, which do not stand behind a quote that ends a text: a Basic header may end
# in `=`, and then in JSON comes `"}` or `",`. Numbers behind backslashes are commas and the like in Python's cookies.
_INSIDE = r"[A-Za-z0-9%+/_~.*!#$(&-](?:[^\"\\\r\n]|\\(?=\\{0,7}+[0-7])){0,469}+"


def _line(space: str, depth: str) -> str:
    """Return the pattern of a header's value: letters, the spaces among them, and values in quotes
    behind `=`.
    """
    end = rf"(?P={depth})\""
    value = rf"(?<==)(?P<{depth}>\\{{0,7}}+)\"(?:{_INSIDE}{end}(?![A-Za-z0-9_])|{end}(?=[;,]))"
    return rf"(?:(?:[^{GAPS}\"'`\\]|{space}){{1,256}}+(?:{value})?+){{1,17}}+"


_LIST = _line("(?<=,)[ ](?=[A-Za-z_]{1,30}=)", "list_depth")
_JAR = "[A-Za-z0-9_.$!%*+~|^#-]{1,64}+(?==)" + _line(
    r"(?<=;)[ \t](?=[A-Za-z0-9_$])", "jar_depth"
)
_OPEN = rf"(?<==)\\{{0,7}}+(?:\"(?:{_INSIDE})?+\\{{0,7}}+\"?)?"  # a value in quotes that has not ended
_HEADERS = (
    rf"[zZkKgG](?:(?ai:(?<=authoriz)ation){_CLOSING}{_SIGN}{_QUOTE}"
    rf"(?:(?P<scheme>{_SCHEME})[ \t]{{1,4}}+)?(?P<list>{_LIST})"
    rf"|(?ai:(?<=cook)ie){_CLOSING}{_SIGN}{_QUOTE}(?P<jar>{_JAR})"
    rf"|(?ai:(?<=[?&;]k)ey|(?<=[?&;]sig)|(?<=sig)nature)=(?P<query>[A-Za-z0-9%+/=_.~-]{{8,2048}}+))"
)
_HEADERS_SO_FAR = (
    rf"[zZkK](?:(?ai:(?<=authoriz)ation){_CLOSING}(?:[ \t]{{0,8}}+\Z|{_SIGN}(?:{_RUN}(?:[ \t]{{1,4}}+{_RUN})?\Z"
    rf"|{_QUOTE}(?:{_SCHEME}[ \t]{{1,4}}+)?{_LIST}(?:(?<=,)[ ][A-Za-z_]{{0,30}}|{_OPEN})?\Z))"
    rf"|(?ai:(?<=cook)ie){_CLOSING}(?:[ \t]{{0,8}}+\Z|{_SIGN}(?:{_RUN}\Z|{_QUOTE}{_JAR}(?:[ \t]|{_OPEN})?\Z)))"
)
_SCHEMES = frozenset(
    [
        "basic",
        "bearer",
        "token",
        "apikey",
        "api-key",
        "key",
        "bot",
        "oauth",
        "sharedkey",
        "aws4-hmac-sha256",
    ]
)


def _locate_header(match: "re.Match[str]") -> tuple[int, int] | None:
    if match["jar"] is not None:
        return match.span("jar")
    if match["query"] is not None:
        return match.span("query") if _is_bearer_credential(match["query"]) else None
    value = match["list"].rstrip(")]}>*,;.")
    if not value or is_placeholder(match["list"].rstrip(".,;")) or is_word(value):
        return None
    is_known = (match["scheme"] or "").lower() in _SCHEMES
    looks_random = is_random(value, 8) and not is_code(value)
    start = match.start("list")
    return (start, start + len(value)) if is_known or looks_random else None


# --- addresses and private keys ---

_ADDRESS = (
    rf":(?://)[^{GAPS}/:\"'`<>\\]{{0,256}}+:(?P<secret>[^{GAPS}/\"'`<>\\]{{1,512}})@"
)
_PORT = compile_late(r"[0-9]{1,5}(?:[?#].*)?", re.S)


_EXAMPLES = frozenset(["password", "passwd", "pass", "pwd", "pw", "secret", "token"])


def _locate_address(match: "re.Match[str]") -> tuple[int, int] | None:
    password = match["secret"]
    if password.lower() in _EXAMPLES or is_placeholder(password):
        return None
    has_query = "?" in password or "#" in password
    is_port = has_query and _PORT.fullmatch(password)
    return None if is_port else match.span("secret")


_BEGIN = r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_BODY = r"(?:[^-]|-(?!----)){0,12000}+"
_LONG = compile_late("[A-Za-z0-9+/=]{16}")
_LINE_END = r"(?:\r?\n|(?:\\{1,4}r)?\\{1,4}n)[ \t]{0,8}"
_KEY = (
    rf"{_BEGIN}(?:{_BODY}-----END [A-Z0-9 ]{{0,60}}-----"
    rf"|(?:{_LINE_END}[A-Z][A-Za-z-]{{2,20}}: (?:[^\r\n\\-]|-(?!----)){{0,80}}){{0,4}}"
    rf"(?:{_LINE_END}){{1,2}}[A-Za-z0-9+/=]{{16,4096}}+"
    rf"(?:{_LINE_END}[A-Za-z0-9+/=]{{1,128}}+(?=[\r\n\\\"']|\Z)){{0,50}}+)"
)
_KEY_SO_FAR = rf"-----BEGIN[A-Z0-9 ]{{0,90}}-{{0,4}}\Z|{_BEGIN}{_BODY}(?:-----[A-Z0-9 ]{{0,70}}-{{0,4}})?\Z"


def _locate_key(match: "re.Match[str]") -> tuple[int, int] | None:
    body = match.string.find("KEY", match.start()) + 3
    return match.span() if _LONG.search(match.string, body, match.end()) else None


NAMED = SecretPattern(_NAMED, _locate_named, _NAMED_SO_FAR)
HEADER = SecretPattern(_HEADERS, _locate_header, _HEADERS_SO_FAR)
FLAG = SecretPattern(_FLAG + _VALUE, _locate_flag, _FLAG + _VALUE_SO_FAR)
ADDRESS = SecretPattern(_ADDRESS, _locate_address)
PRIVATE_KEY = SecretPattern(_KEY, _locate_key, _KEY_SO_FAR)
