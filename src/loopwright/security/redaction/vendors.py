"""Patterns of secrets in the forms of single vendors, file formats and command lines, each with the texts that hint at it.

They are in the vendors' own documentation, and in those of the formats: netrc(5), crypt(5), curl(1), BIP 39.
The rules of `patterns` hold: bounded quantifiers, and an `opening` for what continues over a space.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from .heuristics import (
    NAMES,
    REDACTED,
    classify_name,
    is_placeholder,
    is_quoted_secret,
    is_random,
    is_word,
)
from .patterns import SecretPattern, is_basic_credential

_URL64 = "[A-Za-z0-9_-]"
_START = r"(?<![A-Za-z0-9])"
_MIN_PROSE = 60
"""Characters before a flag in which the name of its program is looked for."""


@dataclass(frozen=True)
class VendorPattern(SecretPattern):
    """A pattern that a text may match only if it has one of the hints, in lower case where `ignores_case`."""

    hints: tuple[str, ...] = ()
    ignores_case: bool = False


def _whole(source: str, *hints: str) -> VendorPattern:
    """Return a pattern whose matches are secret as a whole."""
    return VendorPattern(source, lambda match: match.span(), hints=hints)


def _part(
    source: str,
    *hints: str,
    accept: Callable[["re.Match[str]"], bool] = bool,
    opening: str = "",
) -> VendorPattern:
    """Return a pattern of which the group `secret` is one, if a match is accepted and no placeholder."""

    def locate(match: "re.Match[str]") -> tuple[int, int] | None:
        is_secret = not _is_redacted(match["secret"]) and accept(match)
        return match.span("secret") if is_secret else None

    return VendorPattern(
        source, locate, opening, hints=hints, ignores_case=source.startswith("(?i)")
    )


def _is_redacted(value: str) -> bool:
    return REDACTED in value or is_placeholder(value)


# --- tokens ---

_TOKENS = (
    _whole(rf"hv[sbr]\.{_URL64}{{20,400}}+", "hvs.", "hvb.", "hvr."),  # Vault
    _whole(
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}",
        "dp.",
    ),  # Doppler
    _whole(
        r"st\.[0-9a-f]{8}(?:-[0-9a-f]{4,12}){4}\.[0-9a-f]{32}\.[0-9a-f]{32}", "st."
    ),  # Infisical
    _whole(
        rf"{_START}[A-Za-z0-9]{{14}}\.atlasv1\.{_URL64}{{60,80}}", ".atlasv1."
    ),  # Terraform Cloud
    _whole(rf"{_START}[A-Za-z0-9]{{76}}AZDO[A-Za-z0-9]{{4}}", "AZDO"),
    _whole(  # Azure AD
        r"(?<![A-Za-z0-9_.~-])[A-Za-z0-9_.~-]{3}[0-9]Q~[A-Za-z0-9_.~-]{31,34}", "Q~"
    ),
    _whole(rf"{_START}AGE-SECRET-KEY-1[A-Z0-9]{{50,70}}", "AGE-SECRET-KEY-1"),
    _whole(
        rf"{_START}A3-[A-Z0-9]{{6}}-(?:[A-Z0-9]{{11}}|[A-Z0-9]{{6}}-[A-Z0-9]{{5}})(?:-[A-Z0-9]{{5}}){{3}}",
        "A3-",
    ),  # 1Password
    _whole(rf"{_START}ops_eyJ[A-Za-z0-9+/=_-]{{100,4096}}+", "ops_eyJ"),
    _whole(
        rf"{_START}(?:ABSK[A-Za-z0-9+/]{{80,200}}+={{0,2}}|AKID[A-Za-z0-9]{{32}}|AQVN{_URL64}{{35,48}}|ATBB[A-Za-z0-9]{{24,40}}"
        rf"|ATATT3[A-Za-z0-9_=-]{{60,400}}+)",
        "ABSK",
        "AKID",
        "AQVN",
        "ATBB",
        "ATATT3",
    ),
    _whole(
        rf"{_START}(?:GOOG1[A-Z0-9]{{30,70}}|LTAI[A-Za-z0-9]{{16,24}}|EAAA{_URL64}{{60}}|EAA[A-Za-z0-9]{{100,500}}+)",
        "GOOG1",
        "LTAI",
        "EAA",
    ),
    VendorPattern(  # crates.io, NuGet
        rf"{_START}(?:cio[A-Za-z0-9]{{32}}|oy2[a-z0-9]{{43}})(?![A-Za-z0-9])",
        lambda match: match.span() if is_random(match[0], 30) else None,
        hints=("cio", "oy2"),
    ),
    _whole(rf"{_START}fm[12][ar]?_[A-Za-z0-9+/=]{{60,4096}}+", "fm2_", "fm1"),
    _whole(r"amzn\.mws\.[0-9a-f]{8}(?:-[0-9a-f]{4,12}){4}", "amzn.mws."),
    _whole(
        r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}",
        "access_token$",
    ),
    _whole(r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}", "v1.0-"),  # Cloudflare
    _whole(
        rf"{_START}[0-9a-f]{{32}}-us[0-9]{{1,2}}(?![A-Za-z0-9])", "-us"
    ),  # Mailchimp
    _whole(rf"{_START}pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}", "pat"),  # Airtable
    _whole(
        rf"{_START}[0-2]/1?[0-9]{{13,20}}(?:/[0-9]{{13,20}})?:[0-9a-f]{{32}}",
        "2/",
        "1/",
        "0/",
    ),
)

# --- parts of addresses, files and statements ---

_ADDRESSES = (
    _part(
        r"azurewebsites\.net/[^\s?\"']{0,200}\?(?:[^\s\"'#]{1,200}?&)?code=(?P<secret>[A-Za-z0-9_%=-]{40,100})",
        "azurewebsites.net",
    ),
    _part(
        r"(?:webhookb2|office\.com/webhook)/(?P<secret>[0-9a-f@-]{36,80}/[A-Za-z]{5,40}/[0-9a-f]{32}[^\s\"']{0,200})",
        "webhook",
    ),
    _part(
        r"(?i)aeg-sas-(?:key|token)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<secret>[A-Za-z0-9+/=%&._-]{20,400})",
        "aeg-sas-",
        opening=r"(?i)aeg-sas-(?:key|token)[\"']?\s{0,4}(?:[:=]\s{0,4}[\"']?[A-Za-z0-9+/=%&._-]{0,400})?\Z",
    ),
    _part(  # Docker, npm
        r"[\"'](?:auth|_auth)[\"']\s{0,8}:\s{0,8}[\"'](?P<secret>[A-Za-z0-9+/=]{8,2048})[\"']",
        'auth"', "auth'",
        accept=lambda match: is_basic_credential(match["secret"]),
        opening=r"[\"'](?:auth|_auth)[\"']\s{0,8}(?::\s{0,8}(?:[\"'][A-Za-z0-9+/=]{0,2048})?)?\Z",
    ),
)  # fmt: skip
_CRYPT = _whole(  # crypt(5), and PHC strings
    r"\$(?:apr1|1|2[abxy]|5|6|7|y|gy|argon2(?:id|i|d)|scrypt|pbkdf2[a-z0-9-]{0,16})\$[A-Za-z0-9./$,=+-]{20,300}+",
    "$apr1$", "$1$", "$2", "$5$", "$6$", "$7$", "$y$", "$gy$", "$argon2", "$scrypt$", "$pbkdf2",
)  # fmt: skip
_PGPASS = _part(
    r"(?<=[A-Za-z*]):(?:[0-9]{4,5}|\*):[A-Za-z0-9_*-]{1,64}:[A-Za-z0-9_*.-]{1,64}:(?P<secret>[^\s:]{6,128})",
    ":5432:", ":*:",
    accept=lambda match: is_random(match["secret"], 6),
)  # fmt: skip


def _is_named(name: str) -> Callable[["re.Match[str]"], bool]:
    """Return a function that says whether the value of a match is a secret, by the name in a group."""

    def accept(match: "re.Match[str]") -> bool:
        kind = classify_name(match[name])
        return kind is not None and is_quoted_secret(kind, match["secret"])

    return accept


_XML = _part(
    r"<(?P<tag>[A-Za-z_][A-Za-z0-9_.:-]{1,60})(?:\s[^<>]{0,200})?>(?P<secret>[^<>\r\n]{3,4096})</",
    "</",
    accept=_is_named("tag"),
    opening=r"<[A-Za-z_][A-Za-z0-9_.:-]{1,60}(?:\s[^<>]{0,200})?(?:>[^<>\r\n]{0,4096})?\Z",
)
_PAIR = r"[\"']?(?:[nN]ame|[kK]ey|[vV]ariable)[\"']?\s{0,4}[:=]\s{0,4}"
_VALUE = r"[\"']?[vV]alue[\"']?\s{0,4}[:=]\s{0,4}"
_NAME_VALUE = _part(
    rf"{_PAIR}(?P<quote>[\"']?)(?P<named>[A-Za-z0-9_.-]{{0,60}}{NAMES})(?P=quote)\s{{0,4}}[,;]?\s{{0,24}}{_VALUE}"
    r"(?P<open>[\"']?)(?P<secret>(?(open)[^\"'\r\n]{3,4096}|[^\s\"',;]{3,4096}))",
    "alue",
    accept=_is_named("named"),
    opening=rf"{_PAIR}[\"']?[A-Za-z0-9_.-]{{0,80}}[\"']?\s{{0,4}}[,;]?\s{{0,24}}"
    rf"(?:{_VALUE}[\"']?[^\"'\r\n]{{0,4096}}|[\"']?[a-zA-Z]{{0,5}}[\"']?\s{{0,4}}[:=]?\s{{0,4}})?\Z",
)
_SQL = _part(
    r"(?i)(?:identified(?:\s{1,4}with\s{1,4}\S{1,40})?\s{1,4}(?:by|as)|with(?:\s{1,4}encrypted)?\s{1,4}password|alter\s{1,4}user\s{1,4}\S{1,64}\s{1,4}password)"
    r"\s{1,4}'(?P<secret>[^'\r\n]{3,256})'",
    "identified", "password '",
    opening=r"(?i)(?:identified|with|alter)\s[^';\r\n]{0,120}(?:'[^'\r\n]{0,256})?\Z",
)  # fmt: skip
_SEED = _part(
    r"(?i)(?:mnemonic|(?:seed|recovery|backup)[ _-]?phrase)(?:\s{1,2}(?:is|was))?[\"']?\s{0,4}[:=]?\s{0,4}[\"']?"
    r"(?P<secret>(?-i:[a-z]{3,8}[ ,]{1,2}){11,23}(?-i:[a-z]{3,8}))",
    "mnemonic", "phrase",
    opening=r"(?i)(?:mnemonic|(?:seed|recovery|backup)[ _-]?phrase)[^\r\n]{0,260}\Z",
)  # fmt: skip

# --- command lines ---


def _is_password_argument(match: "re.Match[str]") -> bool:
    """Whether what follows a flag is a password: behind a program's name anything, else what looks random."""
    start = max(0, match.start() - _MIN_PROSE)
    if "curl" in match.string[start : match.start()]:
        return True
    return is_random(match["secret"], 6)


_CURL = _part(
    r"(?<![A-Za-z0-9-])(?:-u|-U|--user|--proxy-user)[ \t=]{1,4}[\"']?[A-Za-z0-9._@+%-]{1,128}:(?P<secret>[^\s\"'`:]{3,512})",
    "-u", "-U", "--user", "--proxy-user",
    accept=_is_password_argument,
    opening=r"(?:-u|-U|--user|--proxy-user)[ \t=]{1,4}[^\s]{0,640}\Z",
)  # fmt: skip
_NETRC = _part(
    r"(?i)login[ \t\r\n]{1,8}(?P<user>[^\s]{1,128})[ \t\r\n]{1,8}password[ \t\r\n]{1,8}(?P<secret>[^\s]{3,256})",
    "login",
    accept=lambda match: not is_word(match["secret"].rstrip(".,;!?")),
    opening=r"(?i)login\s{1,8}[^\s]{0,128}(?:\s{1,8}[a-z]{0,8}(?:(?<=password)\s{1,8}[^\s]{0,256})?)?\Z",
)
_CLIENTS = _part(
    r"(?:sshpass[ \t]{1,4}-p[ \t]{0,4}|(?:mysql|mysqldump|mysqladmin|mariadb)[ \t][^\r\n|;&]{0,120}?(?<=[ \t])-p(?=[^ \t\-])"
    r"|redis-cli[ \t][^\r\n|;&]{0,120}?(?<=[ \t])(?:-a|--pass)[ \t]{1,4})[\"']?(?P<secret>[^\s\"'`]{3,256})",
    "sshpass", "mysql", "mariadb", "redis-cli",
    opening=r"(?:sshpass|mysql(?:dump|admin)?|mariadb|redis-cli)[ \t][^\r\n|;&]{0,140}\Z",
)  # fmt: skip

VENDORS: tuple[VendorPattern, ...] = (
    *_TOKENS, *_ADDRESSES, _CRYPT, _PGPASS, _XML, _NAME_VALUE, _SQL, _SEED, _CURL, _NETRC, _CLIENTS,
)  # fmt: skip
OPEN_VENDORS = tuple(pattern for pattern in VENDORS if pattern.opening_source)
"""Those that continue over a space."""

HINTS: dict[str, list[int]] = {}
"""The places of the patterns of each hint that is looked for in a text as it is."""
LOWER_HINTS: dict[str, list[int]] = {}
"""And of each that is looked for in a text in lower case."""
for _place, _pattern in enumerate(VENDORS):
    for _hint in _pattern.hints:
        _hints = LOWER_HINTS if _pattern.ignores_case else HINTS
        _hints.setdefault(_hint, []).append(_place)
