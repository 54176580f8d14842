"""Statements in words: passwords, e-mail addresses, births, findings about patients, and that a
text is confidential.

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

MAX_CELLS = 64  # of a table's row that are looked at
MAX_ROW = 4_000  # characters of a table's row
BEFORE, BEHIND = 60, 200  # characters around a word that are looked at


def _has_near(
    text: str, lowered: str, words: tuple[str, ...], pattern: "re.Pattern[str]"
) -> bool:
    """Return whether a pattern matches near one of its words; searches all at once where they stand
    everywhere.
    """
    stretches = list(_around(lowered, words))
    if sum(end - begin for begin, end in stretches) > len(text):
        return pattern.search(text) is not None
    return any(pattern.search(text, begin, end) is not None for begin, end in stretches)


def _around(lowered: str, words: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Iterate over the stretches of a text around each of some words; those of one word do not
    overlap.
    """
    for word in words:
        place = lowered.find(word)
        while place >= 0:
            begin, end = max(place - BEFORE, 0), place + BEHIND
            # further ones nearby make the stretch longer
            while (last := lowered.rfind(word, place + 1, end)) > place:
                place, end = last, last + BEHIND
            yield begin, end
            place = lowered.find(word, place + 1)


# --- secrets ---

_PASSWORDS = (
    "password", "passcode", "passwort", "kennwort", "mot de passe", "contrase\u00f1a", "senha", "wachtwoord",
    "parola", "has\u0142o", "\u043f\u0430\u0440\u043e\u043b\u044c", "l\u00f6senord", "adgangskode", "salasana",
    "wi-fi key", "wifi key", "\u30d1\u30b9\u30ef\u30fc\u30c9", "\u5bc6\u7801", "\u5bc6\u78bc",
    "\ube44\ubc00\ubc88\ud638", "pass",
)  # fmt: skip
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


def states_secret(text: str, lowered: str) -> bool:
    """Return whether a text states a password, a PIN, a phrase, codes or a key that no pattern of
    the redactor has.
    """
    if any(_states_password(text, lowered, word) for word in _PASSWORDS):
        return True
    if "PIN" in text and _PIN.search(text) is not None:
        return True
    if _has_near(text, lowered, _OTHER_WORDS, _OTHER_SECRETS):
        return True
    if "$" in text and _SHADOW.search(text) is not None:
        return True
    may_name_secret = any(word in lowered for word in ("pass", "secret", "key"))
    return may_name_secret and _has_secret_column(text)


def _states_password(text: str, lowered: str, word: str) -> bool:
    position = lowered.find(word)
    while position >= 0:
        found = _IS.match(text, position + len(word))
        if found is not None and _is_password(found["value"].strip(".,;)")):
            return True
        position = lowered.find(word, position + 1)
    return False


def _is_password(value: str) -> bool:
    if value.isalpha():
        return False
    return is_bare_secret("password", value, tight=False, last=False)


def _has_secret_column(text: str) -> bool:
    """Return whether a table (Markdown, commas, semicolons or tabs) has a column of secrets, named
    so.
    """
    lines = text.split("\n")
    return any(
        _is_head_of_secrets(line, lines[number : number + 3])
        for number, line in enumerate(lines, 1)
    )


def _is_head_of_secrets(head: str, below: list[str]) -> bool:
    """Return whether a line names columns, and one that is named like a secret holds some in the
    rows below.
    """
    separator = next((one for one in "|\t;," if one in head), None)
    if separator is None or _HEAD.fullmatch(head) is None:
        return False
    names = _split_cells(head, separator)
    kinds: list[SecretKind | None] = [classify_name(name) for name in names]
    for row in below:
        cells = _split_cells(row, separator) if len(row) <= MAX_ROW else []
        if len(cells) == len(kinds) and any(map(_is_cell_secret, kinds, cells)):
            return True
    return False


def _is_cell_secret(kind: SecretKind | None, cell: str) -> bool:
    if kind is None or cell.isalpha() or " " in cell:
        return False
    return is_quoted_secret(kind, cell)


def _split_cells(line: str, separator: str) -> list[str]:
    cells = line.strip().split(separator, MAX_CELLS)
    return [cell.strip(" \t\r\"'`*") for cell in cells]


# --- e-mail addresses ---

_AT = re.compile(
    r"@(?=(?P<domain>(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![\w-]|:[^\s]))"
)
_LOCAL = re.compile(r"(?<![\w.+%/-])[A-Za-z0-9_][\w.+%'-]{0,63}\Z", re.ASCII)
_IMPERSONAL = re.compile(  # addresses that belong to no person
    r"(?:support|info|no-?reply|do-?not-?reply|contact|kontakt|hello|help|helpdesk|admin|administrator|root|webmaster"
    r"|postmaster|hostmaster|abuse|security|sales|billing|service|office|team|press|jobs|careers|news|newsletter|git"
    r"|notifications?|mailer-daemon|daemon|www|ftp|privacy|legal|feedback|orders?|user|users?name|you|me|name|someone)"
    r"(?:\+.*)?",
    re.IGNORECASE,
)
_FILE_ENDINGS = {
    "png", "jpg", "jpeg", "gif", "webp", "svg", "ico", "css", "js", "ts", "mjs", "json", "html", "py", "rb", "go",
    "rs", "zip", "gz", "tar", "md", "txt", "pdf", "service",
}  # fmt: skip


def has_email_address(text: str) -> bool:
    """Return whether a text has an e-mail address that may belong to a person."""
    if "@" not in text:
        return False
    for found in _AT.finditer(text):
        before = text[max(found.start() - 65, 0) : found.start()]
        if "://" in before:
            continue  # the user of a URL, not an address
        local = _LOCAL.search(before)
        ending = found["domain"].rpartition(".")[2].lower()
        if local is None or ending in _FILE_ENDINGS:
            continue
        if _IMPERSONAL.fullmatch(local[0]) is None:
            return True
    return False


# --- births, patients, papers ---

_DATE = (
    r"(?:[0-3]?[0-9][./ -]{1,2}(?:[01]?[0-9]|[^\W\d_]{3,9}\.?)[./, -]{1,2}(?:19|20)[0-9]{2}"
    r"|(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9])"
)
_BIRTH_WORDS = (
    "dob", "d.o.b", "of birth", "of_birth", "birthd", "birth_d", "birth d", "birth-d", "geburtsdatum", "geb.",
    "geboren am", "nacimiento", "nascimento", "naissance", "n\u00e9e le", "n\u00e9 le", "nascita",
    "\u751f\u5e74\u6708\u65e5", "\u51fa\u751f\u65e5\u671f",
)  # fmt: skip
_BIRTH = re.compile(
    r"(?:\bdob\b|\bd\.o\.b\.|date[ _-]?of[ _-]?birth|birth[ _-]?(?:date|day)|geburtsdatum|\bgeb\.|geboren am"
    r"|de nascimento|de nacimiento|de naissance|\bn\u00e9e? le|di nascita"
    rf"|\u751f\u5e74\u6708\u65e5|\u51fa\u751f\u65e5\u671f)[^0-9]{{0,80}}?{_DATE}",
    re.IGNORECASE,
)
_PATIENT_WORDS = (
    "patient", "mrn", "medical ", "hiv", "blood ", "allergic to", "insurance ", "health plan", "diagnos",
    "befund:", "prescribed ",
)  # fmt: skip
_PATIENT = re.compile(
    r"\bpatient(?:in)?(?:'s)?(?: name| id| no| number)?(?::|[ #]{1,2}[0-9]{4})|\bmrn[ :#]{1,3}[0-9]{4}"
    r"|\bmedical (?:record|history|file)s?(?: (?:of|for|no)\b|:)|\bhiv[ -](?:status|test|positive|negative)"
    r"|\bblood (?:type|group):? (?:A|B|AB|O|0)[+-]|\ballergic to\b|\bdiagnos[a-z\u00f3]{1,6}:? ?[A-TV-Z][0-9]{2}\.[0-9]"
    r"|\b(?:insurance|health plan) (?:member |policy )?(?:id|no|number)\W|\bbefund:|\bpatientin seit|\bpatient born\b"
    r"|\bprescribed [a-z]{4,20} [0-9]{1,4} ?mg\b",
    re.IGNORECASE,
)
_PAPER_WORDS = (
    "pesel", "aadhaar", "steuer", "bsn", "personnummer", "nhs ", "ni n", "insurance n", "passport", "reisepass",
    "driver", "licen", "tax id", "national id",
)  # fmt: skip
_PAPER = re.compile(  # numbers whose form says little without their name
    r"\b(?:pesel|aadhaar|steuer-?id\w{0,20}|bsn|personnummer|nhs (?:no|number)"
    r"|n(?:ational )?i(?:nsurance)? (?:no|number)|passport (?:no|number|nr)|reisepass(?:nr|nummer)?"
    r"|driver'?s licen[cs]e|licen[cs]e no|tax id|national id\w{0,20})\b"
    r"\W{0,4}(?=[A-Z0-9 -]{0,12}[0-9])[A-Z0-9](?:[A-Z0-9]|[ -](?=[A-Z0-9])){6,20}",
    re.IGNORECASE,
)


def is_personal(text: str, lowered: str) -> bool:
    """Return whether a text states a date of birth, a medical finding, or the number of a personal
    document.
    """
    statements = (
        (_BIRTH_WORDS, _BIRTH),
        (_PATIENT_WORDS, _PATIENT),
        (_PAPER_WORDS, _PAPER),
    )
    return any(_has_near(text, lowered, words, form) for words, form in statements)


# --- texts that call themselves confidential ---

_CAPITALS = (
    "CONFIDENTIAL", "VERTRAULICH", "CONFIDENTIEL", "CONFIDENCIAL", "RISERVATO", "POUFNE", "INTERNAL USE ONLY",
    "PRIVILEGED",
)  # fmt: skip
_BANNER = re.compile(  # a heading in capitals
    rf"^[^\w\n]{{0,40}}(?:[A-Z]{{2,12}}[ -]){{0,4}}(?:{'|'.join(_CAPITALS)})\b(?![ \t]*[=({{\w])",
    re.MULTILINE,
)
_STATEMENT_WORDS = (
    "confidential", "attorney", "classification", "sensitivity", "tlp:", "vertraulich", "einstufung", "restricted",
)  # fmt: skip
_STATEMENT = re.compile(
    r"(?:strictly|privileged (?:and|&)) confidential\b|\battorney[- ]client (?:privilege|communication)"
    r"|\battorney work product|\bis (?:strictly )?confidential and (?:may|is|intended|contains)"
    r"|\btlp: ?(?:red|amber)\b|streng vertraulich"
    r"|\b(?:classification|label|sensitivity|einstufung)\W{1,4}(?:strictly )?"
    r"(?:confidential|restricted|internal|vertraulich)\b",
    re.IGNORECASE,
)
_IN_OTHER_SCRIPTS = (
    "\u793e\u5916\u79d8", "\u673a\u5bc6", "\u6a5f\u5bc6", "\u041a\u041e\u041d\u0424\u0418\u0414\u0415\u041d",
)  # fmt: skip


def is_confidential(text: str, lowered: str) -> bool:
    """Return whether a text says that it is confidential."""
    if any(word in text for word in _CAPITALS) and _BANNER.search(text) is not None:
        return True
    if not text.isascii() and any(word in text for word in _IN_OTHER_SCRIPTS):
        return True
    return _has_near(text, lowered, _STATEMENT_WORDS, _STATEMENT)
