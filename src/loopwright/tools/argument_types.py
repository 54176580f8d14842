"""Types for the parameters of tools that narrow a text down to what it is meant to be, and say what is allowed.

    @tool
    def fetch(url: WebUrl, into: Annotated[Path, SandboxedPath("downloads")], wait: Duration) -> str: ...

A value that does not fit goes back to the model with what is allowed, before any gate is asked.
"""

import dataclasses
import datetime
import ipaddress
import os
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, SchemaError, SchemaValidator, core_schema

from ..errors import ConfigError
from ..messages import Json, JsonObject


@dataclasses.dataclass(frozen=True)
class TextType:
    """An annotation, `Annotated[type, TextType(...)]`: a text that is read as a value of that type, or refused.

    Args:
        read: makes the value of a text; raises ValueError, with what is wrong, if there is more to say than `allowed`.
        allowed: what is allowed, as it goes on after "must be".
        most: longest text, in characters.
        form: what the JSON schema says beside the type, the length and the description.
    """

    read: Callable[[str], object]
    allowed: str
    most: int = 1000
    form: JsonObject = dataclasses.field(
        default_factory=dict[str, Json], hash=False
    )  # annotations are hashed

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validated)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Json]:
        description = self.allowed[0].upper() + self.allowed[1:]
        return {
            "type": "string",
            "maxLength": self.most,
            "description": description,
            **self.form,
        }

    def _validated(self, value: object) -> object:
        problem = ""
        if isinstance(value, str):
            try:
                if len(value) > self.most:
                    raise ValueError(f"at most {self.most} characters")
                return self.read(value)
            except ValueError as error:
                problem = f" ({error})" if str(error) else ""
        raise PydanticCustomError(
            "argument", "{text}", {"text": f"must be {self.allowed}{problem}"}
        )


# --- names and addresses ---

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
MAX_HOST_NAME = 253  # characters, RFC 1035
# Scripts that are written together; those of any other name in Unicode are not.
TOGETHER = (
    {"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"},
    {"CJK", "HANGUL"},
    {"CJK", "BOPOMOFO"},
)
# What looks like an ASCII letter in the fonts of most screens, from the confusables of UTS 39.
LOOK_ALIKES = {
    **dict(zip("аасԁеһіјӏոорԛгѕսѵԝхүу", "aacdehijlnopqrsuvwxyy", strict=True)),  # noqa: RUF001
    **dict(zip("աեհցօքգզ", "wthgopqq", strict=True)),
    **dict(zip("αβγεηικνορτυχω", "abyenikvoptuxw", strict=True)),
    **dict(zip("ıɑɡɩʟɪʏʙĸſƅ", "iagiliybkfb", strict=True)),
}
# Latin letters that languages are written with; others are for phonetics, and many of them look like ASCII.
LATIN = re.compile(
    "[a-z\u00df-\u01bc\u01c4-\u024f\u0253\u0254\u0256\u0257\u0259\u025b\u0263\u0268\u0269\u0272\u028a\u028b\u0292\u1e00-\u1eff]"
)


def host_name(text: str) -> str:
    """A host name (RFC 1123) in lower case; raises ValueError.

    Names in other scripts are taken in their ASCII form only, which is what a person who approves can tell apart, and
    not even then if that stands for a mix of scripts, or for letters that all look like ASCII ones (UTS 39).
    """
    if not text.isascii():
        raise ValueError(_ascii_form(text))
    name = text.lower()
    labels = name.split(".")
    if len(name) > MAX_HOST_NAME or not all(LABEL.fullmatch(label) for label in labels):
        raise ValueError
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1]):
        raise ValueError("the last part is a number, so it could be read as an address")
    for label in labels:
        if label[2:4] == "--":
            _check_script(label)
    return name


def address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IP address; raises ValueError, for one with a zone (`%eth0`) too, which can be any text."""
    if "%" in text:
        raise ValueError("without a zone")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ValueError from None


def host(text: str) -> str:
    """A host name, or an IP address in its usual form; raises ValueError."""
    try:
        return str(address(text))
    except ValueError:
        return host_name(text)


def _ascii_form(text: str) -> str:
    try:
        name = text.encode("idna").decode() if len(text) <= MAX_HOST_NAME else ""
    except UnicodeError:
        name = ""
    return (
        f"in ASCII this is {name}: write that, if it is meant" if name else "only ASCII"
    )


def _check_script(label: str) -> None:
    """Raise ValueError unless a label in Punycode (RFC 3492) is honest."""
    try:
        shown = (
            label[4:].encode().decode("punycode") if label.startswith("xn--") else ""
        )
    except UnicodeError:
        shown = ""
    letters = [letter for letter in shown if letter not in "-0123456789"]
    if (
        all(letter.isascii() for letter in letters)
        or any(
            unicodedata.category(letter) not in ("Ll", "Lo", "Lm", "Mn", "Mc")
            for letter in letters
        )
        or unicodedata.normalize("NFC", shown) != shown
    ):
        raise ValueError(f"{label} stands for no name")
    scripts = {unicodedata.name(letter, "none").split(" ")[0] for letter in letters}
    odd = "CHEROKEE" in scripts or (
        "LATIN" in scripts and not all(map(LATIN.fullmatch, letters))
    )
    if odd and len(scripts) == 1:
        raise ValueError(f"{label} has letters that are taken for others")
    if len(scripts) > 1 and not any(scripts <= together for together in TOGETHER):
        raise ValueError(
            f"{label} mixes scripts: {' and '.join(sorted(s.lower() for s in scripts))}"
        )
    if all(letter.isascii() or letter in LOOK_ALIKES for letter in letters):
        looks = "".join(LOOK_ALIKES.get(letter, letter) for letter in shown)
        raise ValueError(f"{label} looks like {looks}, and is another name")


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """A network with its prefix; raises ValueError."""
    found = re.fullmatch(r"([0-9A-Fa-f:.]+)/([0-9]{1,3})", text)
    if found is None:
        raise ValueError
    own = address(found[1])
    try:
        wide = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"there is no prefix of {found[2]} bits") from None
    if wide.network_address != own:
        raise ValueError(f"the network is {wide}")
    return wide


URL = re.compile(
    r"(https?)://(\[[0-9a-f:.]+\]|[^/?#:@\[\]\\]+)(?::([0-9]{1,5}))?((?:[/?#].*)?)",
    re.I | re.S,
)
BEHIND_THE_HOST = re.compile(
    r"(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
)  # RFC 3986


def web_url(text: str) -> str:
    """A URL for http or https, its scheme and host in lower case; raises ValueError."""
    found = URL.fullmatch(text)
    if found is None:
        raise ValueError
    scheme, name, port, rest = found.groups()
    if port is not None and not 1 <= int(port) <= 65535:
        raise ValueError(f"there is no port {port}")
    if not BEHIND_THE_HOST.fullmatch(rest):
        raise ValueError("write other characters as % and two hexadecimal digits")
    if re.search(r"%(?:[01][0-9a-f]|7f)", rest, re.I):
        raise ValueError("no control characters, not even as % and two digits")
    shown = f"[{address(name[1:-1])}]" if name.startswith("[") else host(name)
    return f"{scheme.lower()}://{shown}{'' if port is None else ':' + port}{rest}"


Port: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=65535)]
"""A port of TCP or UDP, 1 to 65535."""
HostName: TypeAlias = Annotated[
    str,
    TextType(
        host_name,
        "a host name such as db1.example.org: letters, digits and hyphens between dots",
        MAX_HOST_NAME,
        {"format": "hostname"},
    ),
]
"""The name of a host, in lower case."""
Host: TypeAlias = Annotated[
    str,
    TextType(
        host,
        "a host name or an IP address, such as db1.example.org or 192.0.2.7",
        MAX_HOST_NAME,
    ),
]
"""The name of a host, or an IP address."""
IpAddress: TypeAlias = Annotated[
    ipaddress.IPv4Address | ipaddress.IPv6Address,
    TextType(address, "an IP address such as 192.0.2.7 or 2001:db8::7", 45),
]
"""An IP address, without a zone."""
Cidr: TypeAlias = Annotated[
    ipaddress.IPv4Network | ipaddress.IPv6Network,
    TextType(
        network,
        "a network such as 192.0.2.0/24 or 2001:db8::/32, with no bits set behind the prefix",
        49,
    ),
]
"""A network: an IP address and the bits of its prefix."""
WebUrl: TypeAlias = Annotated[
    str,
    TextType(
        web_url,
        "a web address that begins with http:// or https:// and a host: no user name, no blanks, only ASCII",
        2048,
        {"format": "uri"},
    ),
]
"""An address for http or https; where it may lead is for the tool to decide."""


# --- files ---


def SandboxedPath(root: str | os.PathLike[str]) -> TextType:
    """A path below a folder: `Annotated[Path, SandboxedPath("downloads")]`.

    The tool gets the whole path, with all links followed. It is below the root whenever it is checked: before the gate
    is asked, and again right before the call. Who can make links in the folder can still be quicker than the tool.
    Raises `ConfigError` if there is no such folder.
    """
    if not Path(root).is_dir():
        raise ConfigError(f"root: there is no folder {os.fspath(root)!r}")
    top = Path(root).resolve()

    def read(text: str) -> Path:
        parts = text.split("/")
        if not text.isprintable() or "\\" in text or re.match("~|[A-Za-z]:", text):
            raise ValueError
        if any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts):
            raise ValueError
        try:
            path = top.joinpath(*parts).resolve()
        except (OSError, RuntimeError):
            raise ValueError("it cannot be followed to its end") from None
        if not path.is_relative_to(top):
            raise ValueError("a link on it leads out of the folder")
        return path

    allowed = "a path below the folder of this tool, such as notes/today.txt: relative, with / and without .."
    return TextType(read, allowed, form={"examples": ["notes/today.txt"]})


# --- time ---

UNITS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds")
_NUMBER = r"[0-9]{1,7}"
SPOKEN = re.compile(
    rf"(?:({_NUMBER})w)?(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})m)?"
    rf"(?:({_NUMBER}(?:\.[0-9]{{1,6}})?)s)?(?:({_NUMBER})ms)?"
)
ISO = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?"
    rf"(?:T(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER}(?:\.[0-9]{{1,6}})?)S)?)?(?<![PT])"
)


def duration(text: str) -> datetime.timedelta:
    """What `90s`, `5m`, `1h30m`, `250ms` or ISO 8601's `PT15M` says; raises ValueError, for months and years too."""
    found = SPOKEN.fullmatch(text) or ISO.fullmatch(text)
    if found is None or not text:
        raise ValueError
    return datetime.timedelta(
        **{unit: float(n) for unit, n in zip(UNITS, found.groups(), strict=False) if n}
    )


def spoken(length: datetime.timedelta) -> str:
    """The shortest way of writing a duration: `1h30m`."""
    seconds = length // datetime.timedelta(seconds=1)
    said = ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        said += f"{seconds // size}{unit}" if seconds >= size else ""
        seconds %= size
    rest = length // datetime.timedelta(milliseconds=1) % 1000
    return said + (f"{rest}ms" if rest else "") or "0s"


def DurationBetween(
    least: datetime.timedelta | str = "0s", most: datetime.timedelta | str = "366d"
) -> TextType:
    """A length of time: `Annotated[timedelta, DurationBetween("1s", "1h")]`, bounds included.

    Raises `ConfigError` for bounds that are no durations, or the wrong way round.
    """
    low, high = _bound("least", least), _bound("most", most)
    if low > high:
        raise ConfigError(
            f"least: must not be longer than most, which is {spoken(high)}, got {spoken(low)}"
        )

    def read(text: str) -> datetime.timedelta:
        length = duration(text)
        if not low <= length <= high:
            raise ValueError(f"this is {spoken(length)}")
        return length

    allowed = f"a duration such as 90s, 5m, 1h30m or PT15M, from {spoken(low)} to {spoken(high)}"
    return TextType(read, allowed, 50)


def _bound(field: str, value: datetime.timedelta | str) -> datetime.timedelta:
    if isinstance(value, datetime.timedelta):
        return value
    try:
        return duration(value)
    except (ValueError, TypeError):
        raise ConfigError(
            f"{field}: must be a duration such as '90s' or '1h30m', got {value!r}"
        ) from None


Duration: TypeAlias = Annotated[datetime.timedelta, DurationBetween()]
"""A length of time, up to 366 days: `90s`, `5m`, `1h30m`, ISO 8601's `PT15M`."""


# --- texts ---


def Matching(pattern: str, most: int = 200) -> TextType:
    """A text of at most `most` characters, and no NUL, that a pattern matches from its beginning to its end.

    `Annotated[str, Matching("[A-Z]{2}-[0-9]{4}")]`. It is matched in linear time, by Rust's regex engine, which does
    not look around and has no back references. Raises `ConfigError` for a pattern that it does not know.
    """
    if not most > 0:
        raise ConfigError(f"most: must be 1 or more, got {most!r}")
    try:  # alone first, so that no pattern closes the group that it is put in
        SchemaValidator(
            core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        )
        whole = core_schema.str_schema(
            pattern=rf"\A(?:{pattern})\z", regex_engine="rust-regex"
        )
        engine = SchemaValidator(whole)
    except (SchemaError, TypeError) as error:
        raise ConfigError(
            f"pattern: {pattern!r} cannot be used: {str(error).strip()}"
        ) from None

    def read(text: str) -> str:
        if "\0" in text or not engine.isinstance_python(text):
            raise ValueError
        return text

    # Schemas are checked with an engine that backtracks: it sees only what cannot keep it busy.
    form: JsonObject = (
        {"pattern": f"^(?:{pattern})$"} if _is_harmless(pattern, most) else {}
    )
    return TextType(
        read, f"a text that matches the whole pattern {pattern}", most, form
    )


def _is_harmless(pattern: str, most: int) -> bool:
    """Whether an engine that backtracks is surely quick: no group is repeated, and little else.

    Three repeats share a text of 200 characters in some 10^6 ways, which is milliseconds.
    """
    try:
        re.compile(pattern)
    except re.error:
        return False
    bare = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern, flags=re.S)
    ways = most ** len(re.findall(r"[*+{]", bare)) * 2 ** len(
        re.findall(r"[|?]", bare.replace("(?:", "("))
    )
    return not re.search(r"\)[*+?{]|\(\?(?!:)", bare) and ways <= 200**3


def _plain_word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise ValueError
    return text


REFUSED = frozenset("`$&|;<>(){}[]*?!~#\\\"'")


def _safe_text(text: str) -> str:
    if not (text[:1].isalnum() and text.isprintable()):
        raise ValueError
    if found := sorted(REFUSED & set(text)):
        raise ValueError(f"without {' '.join(found)}")
    return text


PlainWord: TypeAlias = Annotated[
    str,
    TextType(
        _plain_word,
        "one word of ASCII letters, digits, '.', '_' and '-' that does not begin with '.' or '-'",
        255,
    ),
]
"""A word that is nothing but a word to any program: no option, no path, nothing that a shell reads otherwise."""
SafeText: TypeAlias = Annotated[
    str,
    TextType(
        _safe_text,
        "one line of text that begins with a letter or a digit, without control characters and without any of "
        "` $ & | ; < > ( ) { } [ ] * ? ! ~ # \\ \" '",
    ),
]
"""A line of text that a shell would leave alone, and that no program takes for an option."""
