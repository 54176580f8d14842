"""Host names and IP addresses in texts of a model, refused where people or programs misread them."""

import ipaddress
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
MAX_HOST_NAME = 253  # characters, RFC 1035
# Scripts that are written together; any other mixture is refused.
TOGETHER = (
    {"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"},
    {"CJK", "HANGUL"},
    {"CJK", "BOPOMOFO"},
)
NAME_CATEGORIES = ("Ll", "Lo", "Lm", "Mn", "Mc")
"""The Unicode categories of the characters of a name."""
NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Characters that look like ASCII characters in most fonts, from the confusables of UTS 39.
LOOK_ALIKES = {
    **dict(zip("аасԁеһіјӏոорԛгѕսѵԝхүу", "aacdehijlnopqrsuvwxyy", strict=True)),  # noqa: RUF001
    **dict(zip("աեհցօքգզ", "wthgopqq", strict=True)),
    **dict(zip("αβγεηικνορτυχω", "abyenikvoptuxw", strict=True)),
    **dict(zip("ıɑɡɩʟɪʏʙĸſƅ", "iagiliybkfb", strict=True)),
}
# Latin characters of written languages; others are phonetic, and many of them look like ASCII.
LATIN = re.compile(
    "[a-z\u00df-\u01bc\u01c4-\u024f\u0253\u0254\u0256\u0257\u0259\u025b\u0263\u0268\u0269\u0272\u028a\u028b\u0292\u1e00-\u1eff]"
)


def host_name(text: str) -> str:
    """Return a host name (RFC 1123) in lower case; raises `ValueError`.

    A name in another script must be in its ASCII form, which a person who approves can tell apart. It
    is refused if it stands for a mix of scripts, or for characters that all look like ASCII (UTS 39).
    """
    if not text.isascii():
        raise ValueError(_suggest_ascii(text))
    name = text.lower()
    labels = name.split(".")
    if len(name) > MAX_HOST_NAME or not all(map(LABEL.fullmatch, labels)):
        raise ValueError
    if NUMERIC_LABEL.fullmatch(labels[-1]):
        raise ValueError("the last part is a number, so it could be read as an address")
    for label in labels:
        if label[2:4] == "--":
            _check_script(label)
    return name


def address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an IP address; raises `ValueError`.

    An address with a zone (`%eth0`) is refused, since a zone can be any text.
    """
    if "%" in text:
        raise ValueError("without a zone")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ValueError from None


def host(text: str) -> str:
    """Return a host name, or an IP address in its usual form; raises `ValueError`."""
    try:
        return str(address(text))
    except ValueError:
        return host_name(text)


def _suggest_ascii(text: str) -> str:
    try:
        name = text.encode("idna").decode() if len(text) <= MAX_HOST_NAME else ""
    except UnicodeError:
        name = ""
    if not name:
        return "only ASCII"
    return f"in ASCII this is {name}: write that, if it is meant"


def _check_script(label: str) -> None:
    """Raise `ValueError` unless a label in Punycode (RFC 3492) is unambiguous."""
    shown = _decode_punycode(label)
    characters = [character for character in shown if character not in "-0123456789"]
    _require(_is_name(shown, characters), f"{label} does not stand for a name")
    scripts = {
        unicodedata.name(character, "none").split(" ")[0] for character in characters
    }
    is_misleading = len(scripts) == 1 and _is_misleading(scripts, characters)
    _require(not is_misleading, f"{label} has letters that are taken for others")
    mixed = " and ".join(sorted(map(str.lower, scripts)))
    _require(_is_used_together(scripts), f"{label} mixes scripts: {mixed}")
    looks = "".join(LOOK_ALIKES.get(character, character) for character in shown)
    _require(not looks.isascii(), f"{label} looks like {looks}, and is another name")


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _is_used_together(scripts: set[str]) -> bool:
    return len(scripts) == 1 or any(scripts <= together for together in TOGETHER)


def _decode_punycode(label: str) -> str:
    """Return the text of a label; empty if it is not Punycode."""
    if not label.startswith("xn--"):
        return ""
    try:
        return label[4:].encode().decode("punycode")
    except UnicodeError:
        return ""


def _is_name(shown: str, characters: Sequence[str]) -> bool:
    """Whether a decoded label is in its normal form and has characters that need Punycode."""
    if unicodedata.normalize("NFC", shown) != shown:
        return False
    if any(
        unicodedata.category(character) not in NAME_CATEGORIES
        for character in characters
    ):
        return False
    return not all(character.isascii() for character in characters)


def _is_misleading(scripts: Collection[str], characters: Iterable[str]) -> bool:
    if "CHEROKEE" in scripts:
        return True
    return "LATIN" in scripts and not all(map(LATIN.fullmatch, characters))
