"""What a text says in words: passwords, e-mail addresses, births, findings about patients, and that it is confidential.

Words are looked for first, and patterns only around the places where there are some.
"""

import re
from collections.abc import Iterator

from ..redaction.heuristics import (
    SecretKind,
    classify_name,
    is_bare_secret,
    is_quoted_secret,
)

MAX_CELLS = 64  # of a row of a table that are looked at
MAX_ROW = 4_000  # characters of one
BEFORE, BEHIND = 60, 200  # characters around a word that are looked at


def _has(
    text: str, lowered: str, words: tuple[str, ...], pattern: "re.Pattern[str]"
) -> bool:
    """Whether a pattern is found near one of its words; in the whole text at once where they stand everywhere."""
    stretches = list(_around(lowered, words))
    if sum(end - begin for begin, end in stretches) > len(text):
        return pattern.search(text) is not None
    return any(pattern.search(text, begin, end) is not None for begin, end in stretches)


def _around(lowered: str, words: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The stretches of a text around each of some words; those of one word do not overlap."""
    for word in words:
        place = lowered.find(word)
        while place >= 0:
            begin, end = max(place - BEFORE, 0), place + BEHIND
            while (
                last := lowered.rfind(word, place + 1, end)
            ) > place:  # the next are near: one longer stretch
                place, end = last, last + BEHIND
            yield begin, end
            place = lowered.find(word, place + 1)


# --- secrets ---

_PASSWORDS = (
    *(
        "password",
        "passcode",
        "passwort",
        "kennwort",
        "mot de passe",
        "contrase\u00f1a",
        "senha",
        "wachtwoord",
        "parola",
    ),
    *(
        "has\u0142o",
        "\u043f\u0430\u0440\u043e\u043b\u044c",
        "l\u00f6senord",
        "adgangskode",
        "salasana",
        "wi-fi key",
    ),
    *(
        "wifi key",
        "\u30d1\u30b9\u30ef\u30fc\u30c9",
        "\u5bc6\u7801",
        "\u5bc6\u78bc",
        "\ube44\ubc00\ubc88\ud638",
        "pass",
    ),
)
_IS = re.compile(
    r"(?:\s{0,3}[:\uff1a=]|\s(?:is|was|ist|lautet|est|es|\u00e9|\u00e8|jest)\s)\s{0,3}[\"'`\u201c]?"
    r"(?P<value>[^\s\"'`\u201d]{4,128})",
    re.IGNORECASE,
)
_PIN = re.compile(r"\bPIN(?: code| is)?[:= ]{1,3}[0-9]{4}\b(?![.,]?[0-9])")
_OTHER_SECRETS = re.compile(
    r"(?:seed|recovery|mnemonic|backup) (?:phrase|words)\W{1,4}(?:[a-z]{3,8}\W{1,3}){11,23}[a-z]{3,8}\b"
    r"|(?:recovery|backup) codes?\W{1,4}(?=[a-z]{0,12}[0-9])[0-9a-z]{3,12}[-\s,;]"
    r"|\b(?:totp|2fa|otp)[ _-](?:secret|seed|key)\W{1,4}[a-z2-7]{16,64}\b"
    r"|(?:private|secret|master|signing|encryption) key\W{1,4}(?:0x)?[0-9a-f]{32,128}\b",
    re.IGNORECASE,
)
_OTHER_WORDS = (
    "seed ",
    "recovery ",
    "mnemonic ",
    "backup ",
    "totp",
    "2fa",
    "otp ",
    "otp_",
    "otp-",
    " key",
)
_QUOTES = r"[\"'`* ]{0,4}+"
_NAME = rf"{_QUOTES}\w[\w -]{{0,40}}+{_QUOTES}"
_HEAD = re.compile(
    rf"[|\t ]{{0,4}}+{_NAME}(?:[|\t;,]{_NAME}){{0,{MAX_CELLS}}}+[|\t\r ]{{0,4}}+"
)  # short names
_SHADOW = re.compile(
    r"\$(?:1|2[aby]|5|6|y|apr1|argon2id?)\$[./0-9A-Za-z$=,+]{16,256}"
)  # crypt(5)


def tells_secret(text: str, lowered: str) -> bool:
    """Whether a text tells a password, a PIN, a phrase, codes or a key that no shape of the redactor has."""
    if any(_tells_password(text, lowered, word) for word in _PASSWORDS):
        return True
    if "PIN" in text and _PIN.search(text) is not None:
        return True
    if _has(text, lowered, _OTHER_WORDS, _OTHER_SECRETS) or (
        "$" in text and _SHADOW.search(text) is not None
    ):
        return True
    return (
        "pass" in lowered or "secret" in lowered or "key" in lowered
    ) and _has_secret_column(text)


def _tells_password(text: str, lowered: str, word: str) -> bool:
    place = lowered.find(word)
    while place >= 0:
        found = _IS.match(text, place + len(word))
        if found is not None:
            value = found["value"].strip(".,;)")
            if not value.isalpha() and is_bare_secret(
                "password", value, tight=False, last=False
            ):
                return True
        place = lowered.find(word, place + 1)
    return False


def _has_secret_column(text: str) -> bool:
    """Whether a table (Markdown, commas, semicolons or tabs) has a column named like a secret, with secrets in it."""
    lines = text.split("\n")
    return any(
        _heads_secrets(line, lines[number : number + 3])
        for number, line in enumerate(lines, 1)
    )


def _heads_secrets(head: str, below: list[str]) -> bool:
    """Whether names of columns, parted by a mark, stand above rows of as many cells, with a word below a secret's."""
    mark = next((mark for mark in "|\t;," if mark in head), None)
    if mark is None or _HEAD.fullmatch(head) is None:
        return False
    names = _cells(head, mark)
    rows = [
        cells
        for row in below
        if len(row) <= MAX_ROW and len(cells := _cells(row, mark)) == len(names)
    ]
    kinds: list[tuple[int, SecretKind]] = [
        (place, kind)
        for place, name in enumerate(names)
        if (kind := classify_name(name)) is not None
    ]
    return any(
        _is_cell_secret(kind, row[place]) for place, kind in kinds for row in rows
    )


def _is_cell_secret(kind: SecretKind, cell: str) -> bool:
    return not cell.isalpha() and " " not in cell and is_quoted_secret(kind, cell)


def _cells(line: str, mark: str) -> list[str]:
    return [cell.strip(" \t\r\"'`*") for cell in line.strip().split(mark, MAX_CELLS)]


# --- e-mail addresses ---

_AT = re.compile(
    r"@(?=(?P<domain>(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w-]|:[^\s]))"
)
_LOCAL = re.compile(r"(?<![\w.+%/-])[A-Za-z0-9_][\w.+%'-]{0,63}\Z", re.ASCII)
_NOBODY = re.compile(  # addresses that are no person's
    r"(?:support|info|no-?reply|do-?not-?reply|contact|kontakt|hello|help|helpdesk|admin|administrator|root|webmaster"
    r"|postmaster|hostmaster|abuse|security|sales|billing|service|office|team|press|jobs|careers|news|newsletter|git"
    r"|notifications?|mailer-daemon|daemon|www|ftp|privacy|legal|feedback|orders?|user|users?name|you|me|name|someone)"
    r"(?:\+.*)?",
    re.IGNORECASE,
)
_FILES = {
    *(
        "png",
        "jpg",
        "jpeg",
        "gif",
        "webp",
        "svg",
        "ico",
        "css",
        "js",
        "ts",
        "mjs",
        "json",
        "html",
        "py",
        "rb",
        "go",
    ),
    *("rs", "zip", "gz", "tar", "md", "txt", "pdf", "service"),
}


def has_address(text: str) -> bool:
    """Whether a text has an e-mail address that is a person's, as far as it shows."""
    if "@" not in text:
        return False
    for found in _AT.finditer(text):
        before = text[max(found.start() - 65, 0) : found.start()]
        local = (
            None if "://" in before else _LOCAL.search(before)
        )  # who logs in is no address
        ending = found["domain"].rpartition(".")[2].lower()
        if (
            local is not None
            and ending not in _FILES
            and _NOBODY.fullmatch(local[0]) is None
        ):
            return True
    return False


# --- births, patients, papers ---

_DATE = (
    r"(?:[0-3]?[0-9][./ -]{1,2}(?:[01]?[0-9]|[^\W\d_]{3,9}\.?)[./, -]{1,2}(?:19|20)[0-9]{2}"
    r"|(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9])"
)
_BIRTH_WORDS = (
    *(
        "dob",
        "d.o.b",
        "of birth",
        "of_birth",
        "birthd",
        "birth_d",
        "birth d",
        "birth-d",
        "geburtsdatum",
        "geb.",
    ),
    *(
        "geboren am",
        "nacimiento",
        "nascimento",
        "naissance",
        "n\u00e9e le",
        "n\u00e9 le",
        "nascita",
    ),
    *("\u751f\u5e74\u6708\u65e5", "\u51fa\u751f\u65e5\u671f"),
)
_BIRTH = re.compile(
    r"(?:\bdob\b|\bd\.o\.b\.|date[ _-]?of[ _-]?birth|birth[ _-]?(?:date|day)|geburtsdatum|\bgeb\.|geboren am"
    r"|de nascimento|de nacimiento|de naissance|\bn\u00e9e? le|di nascita"
    rf"|\u751f\u5e74\u6708\u65e5|\u51fa\u751f\u65e5\u671f)[^0-9]{{0,80}}?{_DATE}",
    re.IGNORECASE,
)
_PATIENT_WORDS = (
    *(
        "patient",
        "mrn",
        "medical ",
        "hiv",
        "blood ",
        "allergic to",
        "insurance ",
        "health plan",
        "diagnos",
        "befund:",
    ),
    "prescribed ",
)
_PATIENT = re.compile(
    r"\bpatient(?:in)?(?:'s)?(?: name| id| no| number)?(?::|[ #]{1,2}[0-9]{4})|\bmrn[ :#]{1,3}[0-9]{4}"
    r"|\bmedical (?:record|history|file)s?(?: (?:of|for|no)\b|:)|\bhiv[ -](?:status|test|positive|negative)"
    r"|\bblood (?:type|group):? (?:A|B|AB|O|0)[+-]|\ballergic to\b|\bdiagnos[a-z\u00f3]{1,6}:? ?[A-TV-Z][0-9]{2}\.[0-9]"
    r"|\b(?:insurance|health plan) (?:member |policy )?(?:id|no|number)\W|\bbefund:|\bpatientin seit|\bpatient born\b"
    r"|\bprescribed [a-z]{4,20} [0-9]{1,4} ?mg\b",
    re.IGNORECASE,
)
_PAPER_WORDS = (
    *(
        "pesel",
        "aadhaar",
        "steuer",
        "bsn",
        "personnummer",
        "nhs ",
        "ni n",
        "insurance n",
        "passport",
        "reisepass",
    ),
    *("driver", "licen", "tax id", "national id"),
)
_PAPER = re.compile(  # numbers whose form says little without their name
    r"\b(?:pesel|aadhaar|steuer-?id\w{0,20}|bsn|personnummer|nhs (?:no|number)"
    r"|n(?:ational )?i(?:nsurance)? (?:no|number)|passport (?:no|number|nr)|reisepass(?:nr|nummer)?"
    r"|driver'?s licen[cs]e|licen[cs]e no|tax id|national id\w{0,20})\b"
    r"\W{0,4}(?=[A-Z0-9 -]{0,12}[0-9])[A-Z0-9](?:[A-Z0-9]|[ -](?=[A-Z0-9])){6,20}",
    re.IGNORECASE,
)


def is_personal(text: str, lowered: str) -> bool:
    """Whether a text tells when somebody was born, what ails them, or the number of their papers."""
    return (
        _has(text, lowered, _BIRTH_WORDS, _BIRTH)
        or _has(text, lowered, _PATIENT_WORDS, _PATIENT)
        or _has(text, lowered, _PAPER_WORDS, _PAPER)
    )


# --- what calls itself confidential ---

_CAPITALS = (
    *(
        "CONFIDENTIAL",
        "VERTRAULICH",
        "CONFIDENTIEL",
        "CONFIDENCIAL",
        "RISERVATO",
        "POUFNE",
        "INTERNAL USE ONLY",
    ),
    "PRIVILEGED",
)
_BANNER = re.compile(  # a heading in capitals
    rf"^[^\w\n]{{0,40}}(?:[A-Z]{{2,12}}[ -]){{0,4}}(?:{'|'.join(_CAPITALS)})\b(?![ \t]*[=({{\w])",
    re.MULTILINE,
)
_SAYS_WORDS = (
    *(
        "confidential",
        "attorney",
        "classification",
        "sensitivity",
        "tlp:",
        "vertraulich",
        "einstufung",
    ),
    *("restricted",),
)
_SAYS = re.compile(
    r"(?:strictly|privileged (?:and|&)) confidential\b|\battorney[- ]client (?:privilege|communication)"
    r"|\battorney work product|\bis (?:strictly )?confidential and (?:may|is|intended|contains)"
    r"|\btlp: ?(?:red|amber)\b|streng vertraulich"
    r"|\b(?:classification|label|sensitivity|einstufung)\W{1,4}(?:strictly )?"
    r"(?:confidential|restricted|internal|vertraulich)\b",
    re.IGNORECASE,
)
_IN_OTHER_SCRIPTS = (
    *("\u793e\u5916\u79d8", "\u673a\u5bc6", "\u6a5f\u5bc6"),
    "\u041a\u041e\u041d\u0424\u0418\u0414\u0415\u041d",
)


def is_confidential(text: str, lowered: str) -> bool:
    """Whether a text says of itself that it is not for everybody."""
    if any(word in text for word in _CAPITALS) and _BANNER.search(text) is not None:
        return True
    if not text.isascii() and any(word in text for word in _IN_OTHER_SCRIPTS):
        return True
    return _has(text, lowered, _SAYS_WORDS, _SAYS)
