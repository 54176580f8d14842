"""Which texts beside the name of a secret are the secret, and which are types, code, placeholders or prose."""

import re
from typing import Literal, TypeAlias

# "password" takes nearly anything, "secret" (keys, access tokens …) wants more than a word, and a bare "token" is
# mostly a piece of text: only what looks random is one. "pwd" is a password, or the folder one is in.
SecretKind: TypeAlias = Literal["password", "pwd", "secret", "token"]

REDACTED = "[redacted]"
"""What stands where a secret was."""

# What names a secret. A match begins at its rarest letter, which keeps the search fast; the rest is looked back at.
_KEYS = (
    "api",
    "access",
    "account",
    "private",
    "signing",
    "encryption",
    "auth",
    "master",
    "secret",
)
_COMPOUND = "|".join(f"(?<={word}key)|(?<={word}[ _-]key)" for word in _KEYS)
NAMES = (
    rf"[kKwWpPcC](?ai:(?<=tok)en|ey(?:{_COMPOUND})|(?<=passw)(?:or)?d|(?<=pw)d|(?<=passp)hrase|(?<=[_-]p)ass"
    r"|(?<=sec)ret|redential"
    r")(?ai:[_-]?(?:[0-9]{1,2}|value|base64|b64|hex|plain|text))?(?![A-Za-z0-9_-])"
)
_WHOLE_NAME = re.compile(rf"{NAMES}\Z")
_CORE = re.compile(
    r"(?ai:pass(?:word|wd|phrase)?|pwd|secret|token|key|credential|auth)"
)

# Tokens that are no secrets: cursors that a model must be able to hand back, and pieces of text.
_OTHER_TOKENS = (
    *(
        "next",
        "page",
        "previous",
        "prev",
        "continuation",
        "cursor",
        "pagination",
        "resume",
        "sync",
    ),
    *(
        "eos",
        "bos",
        "pad",
        "unk",
        "sep",
        "cls",
        "mask",
        "stop",
        "start",
        "end",
        "special",
        "new",
        "begin",
    ),
    *(
        "max",
        "min",
        "num",
        "per",
        "first",
        "last",
        "input",
        "output",
        "prompt",
        "completion",
        "total",
        "cached",
    ),
)
MAX_NAME_LENGTH = 100  # characters
_LOOK_BACK = (
    24  # characters, enough for the longest word that changes what a name means
)

_TYPES = (
    "str string text int integer float number bool boolean bytes bytearray object array list dict map tuple set null "
    "none nil undefined any unknown unset void char varchar secretstr never optional required union literal"
)
_SAYINGS = (
    "true false yes no on off n/a na tbd default example sample missing invalid incorrect wrong expired empty hidden "
    "masked redacted removed changed unchanged enabled disabled valid denied granted accepted rejected failed ok "
    "bearer basic include forgotten reset protected encrypted is are not the a an and or if see has was must should "
    "for to in of with value input self this prompt env config settings args kwargs here below above"
)
_NO_SECRETS = frozenset(f"{_TYPES} {_SAYINGS}".split())
_TYPE = re.compile(
    rf"(?=[A-Za-z]{{3,12}}+\s*+[\[|?])(?ai:(?:{'|'.join(_TYPES.split())})(?:\[.*|\s*[|?].*))\Z",
    re.S,
)
_CODE = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+)*+[(\[]|[A-Za-z_]++(?:\.[A-Za-z_]++)++\Z|[a-z]++://"
)
_TEMPLATE = re.compile(
    r"\$[({]|\$[A-Z_][A-Z0-9_]*\Z|\{\{|\{[A-Za-z_][^{}]*\}\Z|<[^>]*>\Z|%\(\w+\)|%[A-Za-z_]+%\Z|.{0,40}%[srd]"
    r"|(?ai:your|my)[-_][A-Za-z_-]+\Z|.{0,8}(?:\.{3}|…|\*{3,})\Z|[xX]+\Z|[*_.=#~•-]*\Z|[^A-Za-z0-9]{0,3}\Z",
    re.S,
)
_PART = "(?:[A-Z]{2,}+|[A-Za-z]?+[a-z]*+)"  # of a word; no two ways to read one, which many parts would multiply
_WORD = re.compile(rf"{_PART}(?:[-_/']{_PART})*+|[a-z]++(?:[A-Z][a-z]++)++")
_LETTERS = re.compile(r"_*+[A-Za-z]{1,24}+(?:[-_/'][A-Za-z]{1,24}+)*+_*+")
_CLASS = re.compile(r"_*+[A-Za-z][a-z]++(?:[A-Z]++[a-z]++)++")
_KEY_CLASS = re.compile(
    "[A-Z][A-Za-z0-9]{0,16}PrivateKey"
)  # such as "Ed25519PrivateKey"
_FOLDER = re.compile(r"(?:~|[A-Za-z]:)?[/\\]")
_LETTER, _DIGIT = re.compile(r"[A-Za-z]"), re.compile(r"[0-9]")


def classify_match(text: str, at: int) -> SecretKind | None:
    """The kind of secret that a match of `NAMES` at `at` names; `None` if the words before say that it is none."""
    if text[at] in "wWpP":
        return "pwd" if text[at - 1] in "pP" and text[at] in "wW" else "password"
    if text[at + 1 : at + 3].lower() != "en":
        return "secret"
    before = text[max(0, at - 2 - _LOOK_BACK) : at - 2]  # `at` is the k of a token
    if before.rstrip("_-. ").lower().endswith(_OTHER_TOKENS):
        return None
    return "secret" if before[-1:].isalnum() or before[-1:] in {"_", "-"} else "token"


def classify_name(name: str) -> SecretKind | None:
    """The kind of secret that a name of a field, a header or a variable stands for."""
    found = _WHOLE_NAME.search(name) if len(name) <= MAX_NAME_LENGTH else None
    return classify_match(name, found.start()) if found else None


def is_random(text: str, least: int) -> bool:
    """Whether a text of at least so many characters has both letters and digits, as no word has."""
    return (
        len(text) >= least
        and _DIGIT.search(text) is not None
        and _LETTER.search(text) is not None
    )


def is_word(text: str) -> bool:
    """Whether a text is one ordinary word, or some that are joined as in names."""
    return _WORD.fullmatch(text) is not None


def is_code(text: str) -> bool:
    """Whether a text is a call, an item or an attribute of something, or an address."""
    return not text.isalnum() and _CODE.match(text) is not None


def is_placeholder(text: str) -> bool:
    """Whether a value is a type, a template, a placeholder, or redacted already."""
    if text.lower() in _NO_SECRETS:
        return True
    if (
        text.isalnum() and text.isascii()
    ):  # as most secrets are, and nothing below but "xxx"
        return not text.strip("xX")
    return (
        REDACTED in text
        or _TYPE.match(text) is not None
        or _TEMPLATE.match(text) is not None
    )


def is_quoted_secret(kind: SecretKind, value: str) -> bool:
    """Whether the string that is the value of such a name is a secret."""
    if is_placeholder(value.strip()) or (
        _CLASS.fullmatch(value) and _CORE.search(value)
    ):
        return False
    if kind == "pwd":
        return _FOLDER.match(value) is None
    if kind == "secret":
        return len(value) > 2 and not is_code(value)
    return kind == "password" or is_random(value, 8)


def is_bare_secret(kind: SecretKind, value: str, *, tight: bool, last: bool) -> bool:
    """Whether a word without quotes is one; `tight` if it follows `=` directly, `last` if it ends its line."""
    word = value.rstrip(".!?")
    if (
        not word
        or is_code(value)
        or is_placeholder(word)
        or (kind == "pwd" and _FOLDER.match(value))
    ):
        return False
    if not tight and value[0] in "*&!|>%@":  # YAML's own signs
        return False
    if kind == "secret" and _KEY_CLASS.fullmatch(word):
        return False
    password = kind in {"password", "pwd"}
    if _LETTERS.fullmatch(word):
        named = _CORE.search(word) is not None
        return (
            not named
            and kind != "token"
            and (tight or (password and last))
            and len(word) > 3
        )
    if _LETTER.search(word) is None and word.isascii():  # a number, a date, a range
        return password and len(word) >= (4 if word.isdigit() else 6)
    return (
        is_random(word, 8) if kind == "token" else len(word) >= (4 if password else 6)
    )
