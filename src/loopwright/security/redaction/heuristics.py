"""Heuristics: which names stand for secrets, and which texts beside them are types, code,
placeholders or prose.
"""

import re
from typing import Literal, TypeAlias

from ..._internal.regex import compile_late

# A "password" may be nearly anything, a "secret" (keys, access tokens …) is more than a word, and a bare "token" is
# mostly a piece of text: only one that looks random is a secret. "pwd" is a password, or the directory one is in.
SecretKind: TypeAlias = Literal["password", "pwd", "secret", "token"]

REDACTED = "[redacted]"
"""The placeholder that stands where a secret was."""

# The names of secrets. A match begins at its rarest letter, which keeps the search fast, and looks back at the rest.
_KEYS = [
    "api",
    "access",
    "account",
    "private",
    "signing",
    "encryption",
    "auth",
    "master",
    "secret",
]
_COMPOUND = "|".join(f"(?<={word}key)|(?<={word}[ _-]key)" for word in _KEYS)
NAMES = (
    rf"[kKwWpPcC](?ai:(?<=tok)en|ey(?:{_COMPOUND})|(?<=passw)(?:or)?d|(?<=pw)d|(?<=passp)hrase|(?<=[_-]p)ass"
    r"|(?<=sec)ret|redential"
    r")(?ai:[_-]?(?:[0-9]{1,2}|value|base64|b64|hex|plain|text))?(?![A-Za-z0-9_-])"
)
_WHOLE_NAME = compile_late(rf"{NAMES}\Z")
_CORE = compile_late(
    r"(?ai:pass(?:word|wd|phrase)?|pwd|secret|token|key|credential|auth)"
)

# Tokens that are not secrets: cursors that a model must be able to hand back, and pieces of text.
_CURSORS = "next page previous prev continuation cursor pagination resume sync"
_TEXT_TOKENS = (
    "eos bos pad unk sep cls mask stop start end special new begin "
    "max min num per first last input output prompt completion total cached"
)
_OTHER_TOKENS = tuple(f"{_CURSORS} {_TEXT_TOKENS}".split())
MAX_NAME_LENGTH = 100  # characters
_LOOK_BACK = (
    24  # characters, enough for the longest word that changes what a name means
)

_TYPES = (
    "str string text int integer float number bool boolean bytes bytearray object array list dict map tuple set null "
    "none nil undefined any unknown unset void char varchar secretstr never optional required union literal"
)
_ORDINARY_VALUES = (
    "true false yes no on off n/a na tbd default example sample missing invalid incorrect wrong expired empty hidden "
    "masked redacted removed changed unchanged enabled disabled valid denied granted accepted rejected failed ok "
    "bearer basic include forgotten reset protected encrypted is are not the a an and or if see has was must should "
    "for to in of with value input self this prompt env config settings args kwargs here below above"
)
_NOT_SECRET = frozenset(f"{_TYPES} {_ORDINARY_VALUES}".split())
_TYPE = compile_late(
    rf"(?=[A-Za-z]{{3,12}}+\s*+[\[|?])(?ai:(?:{'|'.join(_TYPES.split())})(?:\[.*|\s*[|?].*))\Z",
    re.S,
)
_CODE = compile_late(
    r"[A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+)*+[(\[]|[A-Za-z_]++(?:\.[A-Za-z_]++)++\Z|[a-z]++://"
)
_TEMPLATE = compile_late(
    r"\$[({]|\$[A-Z_][A-Z0-9_]*\Z|env:[A-Z_][A-Z0-9_]*\Z|\{\{|\{[A-Za-z_][^{}]*\}\Z|<[^>]*>\Z|%\(\w+\)|%[A-Za-z_]+%\Z|.{0,40}%[srd]"
    r"|(?ai:your|my)[-_][A-Za-z_-]+\Z|.{0,8}(?:\.{3}|…|\*{3,})\Z|[xX]+\Z|[*_.=#~•-]*\Z|[^A-Za-z0-9]{0,3}\Z",
    re.S,
)
_WORD_PART = "(?:[A-Z]{2,}+|[A-Za-z]?+[a-z]*+)"  # of a word; no two ways to read one, which many parts would multiply
_WORD = compile_late(rf"{_WORD_PART}(?:[-_/']{_WORD_PART})*+|[a-z]++(?:[A-Z][a-z]++)++")
_LETTERS_ONLY = compile_late(r"_*+[A-Za-z]{1,24}+(?:[-_/'][A-Za-z]{1,24}+)*+_*+")
_CLASS = compile_late(r"_*+[A-Za-z][a-z]++(?:[A-Z]++[a-z]++)++")
_KEY_CLASS = compile_late(  # such as "Ed25519PrivateKey"
    "[A-Z][A-Za-z0-9]{0,16}PrivateKey"
)
_DIRECTORY = compile_late(r"(?:~|[A-Za-z]:)?[/\\]")
_LETTER, _DIGIT = compile_late(r"[A-Za-z]"), compile_late(r"[0-9]")
_YAML_SIGNS = "*&!|>%@"
_MIN_RANDOM = 8  # characters of a token that looks random
_MIN_WORD, _MIN_PASSWORD = 6, 4  # characters of a value without quotes


def classify_match(text: str, position: int) -> SecretKind | None:
    """Return the kind of secret that a match of `NAMES` names; `None` if the words before say that
    it is none.
    """
    first = text[position]
    if first in "wW" and text[position - 1] in "pP":
        return "pwd"
    if first in "wWpP":
        return "password"
    if text[position + 1 : position + 3].lower() != "en":
        return "secret"
    begin = position - 2  # the match begins at the k of "token"
    before = text[max(0, begin - _LOOK_BACK) : begin]
    if before.rstrip("_-. ").lower().endswith(_OTHER_TOKENS):
        return None
    is_qualified = before[-1:].isalnum() or before[-1:] in {"_", "-"}
    return "secret" if is_qualified else "token"


def classify_name(name: str) -> SecretKind | None:
    """Return the kind of secret that the name of a field, a header or a variable stands for."""
    if len(name) > MAX_NAME_LENGTH:
        return None
    found = _WHOLE_NAME.search(name)
    return classify_match(name, found.start()) if found else None


def is_random(text: str, min_length: int) -> bool:
    """Return whether a text of at least so many characters has both letters and digits, as no word
    has.
    """
    if len(text) < min_length:
        return False
    return _DIGIT.search(text) is not None and _LETTER.search(text) is not None


def is_word(text: str) -> bool:
    """Return whether a text is one ordinary word, or some that are joined as in names."""
    return _WORD.fullmatch(text) is not None


def is_code(text: str) -> bool:
    """Return whether a text is a call, an item or an attribute of something, or an address."""
    return not text.isalnum() and _CODE.match(text) is not None


def is_placeholder(text: str) -> bool:
    """Return whether a value is a type, a template, a placeholder, or redacted already."""
    if text.lower() in _NOT_SECRET:
        return True
    if text.isalnum() and text.isascii():
        # as most secrets are, and no placeholder below but "xxx"
        return not text.strip("xX")
    if REDACTED in text:
        return True
    return _TYPE.match(text) is not None or _TEMPLATE.match(text) is not None


def is_quoted_secret(kind: SecretKind, value: str) -> bool:
    """Return whether the string that is the value of such a name is a secret."""
    if is_placeholder(value.strip()) or _is_class_name(value):
        return False
    if kind == "pwd":
        return _DIRECTORY.match(value) is None
    if kind == "secret":
        return len(value) > 2 and not is_code(value)
    return kind == "password" or is_random(value, _MIN_RANDOM)


def _is_class_name(text: str) -> bool:
    """Return whether a text is the name of a class such as `PasswordHasher`."""
    return _CLASS.fullmatch(text) is not None and _CORE.search(text) is not None


def is_bare_secret(kind: SecretKind, value: str, *, tight: bool, last: bool) -> bool:
    """Return whether a word without quotes is a secret.

    Args:
        kind: the kind of secret that the name before it stands for.
        value: the word.
        tight: whether it follows `=` directly.
        last: whether it ends its line.
    """
    word = value.rstrip(".!?")
    if not word or _is_harmless(kind, value, word):
        return False
    if not tight and value[0] in _YAML_SIGNS:
        return False
    is_password = kind in {"password", "pwd"}
    if _LETTERS_ONLY.fullmatch(word):
        if kind == "token" or _CORE.search(word) is not None:
            return False
        is_value = tight or (is_password and last)
        return is_value and len(word) >= _MIN_PASSWORD
    if kind == "token":
        return is_random(word, _MIN_RANDOM)
    is_number = _LETTER.search(word) is None and word.isascii()
    if is_number and not is_password:  # a number, a date, a range
        return False
    may_be_short = is_password and (word.isdigit() or not is_number)
    return len(word) >= (_MIN_PASSWORD if may_be_short else _MIN_WORD)


def _is_harmless(kind: SecretKind, value: str, word: str) -> bool:
    """Return whether a word is code, a placeholder, a directory or the class of a key."""
    if is_code(value) or is_placeholder(word):
        return True
    if kind == "pwd":
        return _DIRECTORY.match(value) is not None
    return kind == "secret" and _KEY_CLASS.fullmatch(word) is not None
