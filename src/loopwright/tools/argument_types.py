"""Types for the parameters of tools that accept only valid texts, and say what is valid.

    @tool
    def fetch(url: WebUrl, into: Annotated[Path, SandboxedPath("downloads")], wait: Duration) -> str: ...

For an invalid value the model reads what is allowed, before any gate is asked.
"""

import datetime
import ipaddress
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, SchemaError, SchemaValidator, core_schema

from .._internal import dataclasses
from ..errors import ConfigError
from ..messages import Json, JsonObject
from .host_names import MAX_HOST_NAME, address, host, host_name


@dataclasses.dataclass(frozen=True)
class TextType:
    """An annotation, `Annotated[type, TextType(...)]`: a text that is parsed to that type, or refused.

    Args:
        read: parses the text; raises `ValueError`, with the problem if `allowed` does not say it.
        allowed: what is allowed, as the continuation of "must be".
        max_length: longest text, in characters.
        form: keywords for the JSON schema, besides type, length and description.
    """

    read: Callable[[str], object]
    allowed: str
    max_length: int = 1000
    # Annotations are hashed, and a dictionary cannot be.
    form: JsonObject = dataclasses.field(default_factory=dict[str, Json], hash=False)

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
            "maxLength": self.max_length,
            "description": description,
            **self.form,
        }

    def _validated(self, value: object) -> object:
        if not isinstance(value, str):
            raise self._error("")
        if len(value) > self.max_length:
            raise self._error(f" (at most {self.max_length} characters)")
        try:
            return self.read(value)
        except ValueError as error:
            raise self._error(f" ({error})" if str(error) else "") from None

    def _error(self, problem: str) -> PydanticCustomError:
        return PydanticCustomError(
            "argument", "{text}", {"text": f"must be {self.allowed}{problem}"}
        )


# --- names and addresses ---


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a network with its prefix; raises `ValueError`."""
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
AFTER_HOST = re.compile(
    r"(?:[A-Za-z0-9._~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
)  # RFC 3986


def web_url(text: str) -> str:
    """Return a URL for http or https, its scheme and host in lower case; raises `ValueError`."""
    found = URL.fullmatch(text)
    if found is None:
        raise ValueError
    scheme, name, port, rest = found.groups()
    if port is not None and not 1 <= int(port) <= 65535:
        raise ValueError(f"there is no port {port}")
    if not AFTER_HOST.fullmatch(rest):
        raise ValueError("write other characters as % and two hexadecimal digits")
    if re.search(r"%(?:[01][0-9a-f]|7f)", rest, re.I):
        raise ValueError("no control characters, not even as % and two digits")
    shown = f"[{address(name[1:-1])}]" if name.startswith("[") else host(name)
    colon_port = "" if port is None else f":{port}"
    return f"{scheme.lower()}://{shown}{colon_port}{rest}"


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
"""An address for http or https; the tool decides which hosts it may reach."""


# --- files ---


# A home directory, a drive, or a separator of Windows.
NOT_RELATIVE = re.compile(r"\A(?:~|[A-Za-z]:)|\\")


def SandboxedPath(root: str | os.PathLike[str]) -> TextType:
    """A path in a directory: `Annotated[Path, SandboxedPath("downloads")]`.

    The tool gets the absolute path, with all links resolved. It is inside the root whenever it is
    checked: before the gate is asked, and again directly before the call. A process that can create
    links in the directory can still change it before the tool opens it. Raises `ConfigError` if the
    directory does not exist.
    """
    if not Path(root).is_dir():
        raise ConfigError(
            f"root: {os.fspath(root)!r} is not a directory; create it or pass another path"
        )
    top = Path(root).resolve()
    allowed = "a path below the folder of this tool, such as notes/today.txt: relative, with / and without .."
    return TextType(
        lambda text: _resolve_below(top, text),
        allowed,
        form={"examples": ["notes/today.txt"]},
    )


def _resolve_below(top: Path, text: str) -> Path:
    if not text.isprintable() or NOT_RELATIVE.search(text):
        raise ValueError
    parts = text.split("/")
    if not all(map(_is_file_name, parts)):
        raise ValueError
    path = _resolve(top.joinpath(*parts))
    if path is None:
        raise ValueError("it cannot be followed to its end")
    if not path.is_relative_to(top):
        raise ValueError("a link on it leads out of the folder")
    return path


def _resolve(path: Path) -> Path | None:
    """Return the path with all links resolved; `None` if they form a loop."""
    try:
        resolved = path.resolve()
        # Python 3.13 and later leave a loop of links in the path, without an error.
        has_link = any(each.is_symlink() for each in (resolved, *resolved.parents))
    except (OSError, RuntimeError):
        return None
    return None if has_link else resolved


def _is_file_name(part: str) -> bool:
    return part not in ("", ".", "..") and len(part.encode()) <= 255


# --- time ---

UNITS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds")
_NUMBER = r"[0-9]{1,7}"
SPOKEN = re.compile(
    rf"(?:({_NUMBER})w)?(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})m)?"
    rf"(?:({_NUMBER}(?:\.[0-9]{{1,6}})?)s)?(?:({_NUMBER})ms)?"
)
MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
ISO = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?"
    rf"(?:T(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER}(?:\.[0-9]{{1,6}})?)S)?)?(?<![PT])"
)


def duration(text: str) -> datetime.timedelta:
    """Return the length of `90s`, `5m`, `1h30m`, `250ms` or ISO 8601's `PT15M`.

    Raises `ValueError`, also for months and years.
    """
    found = SPOKEN.fullmatch(text) or ISO.fullmatch(text)
    if found is None or not text:
        raise ValueError
    numbers = (float(number or 0) for number in found.groups())
    return datetime.timedelta(**dict(zip(UNITS, numbers, strict=False)))


def format_duration(length: datetime.timedelta) -> str:
    """Return the shortest form of a duration: `1h30m`."""
    remaining = length // datetime.timedelta(milliseconds=1)
    text = ""
    for unit, size in MILLISECONDS.items():
        count, remaining = divmod(remaining, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def DurationBetween(
    minimum: datetime.timedelta | str = "0s", maximum: datetime.timedelta | str = "366d"
) -> TextType:
    """A length of time: `Annotated[timedelta, DurationBetween("1s", "1h")]`, bounds included.

    Raises `ConfigError` for bounds that are not durations, or in the wrong order.
    """
    low, high = _parse_bound("minimum", minimum), _parse_bound("maximum", maximum)
    lowest, highest = format_duration(low), format_duration(high)
    if low > high:
        raise ConfigError(
            f"minimum: must not be longer than the maximum, {highest}, got {lowest}"
        )

    def read(text: str) -> datetime.timedelta:
        length = duration(text)
        if not low <= length <= high:
            raise ValueError(f"this is {format_duration(length)}")
        return length

    allowed = f"a duration such as 90s, 5m, 1h30m or PT15M, from {lowest} to {highest}"
    return TextType(read, allowed, 50)


def _parse_bound(field: str, value: datetime.timedelta | str) -> datetime.timedelta:
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


def Matching(pattern: str, max_length: int = 200) -> TextType:
    """A text of at most `max_length` characters, without NUL, that a pattern matches as a whole.

    `Annotated[str, Matching("[A-Z]{2}-[0-9]{4}")]`. It is matched in linear time, by Rust's regex
    engine, which has no look-around and no back-references. Raises `ConfigError` for a pattern that
    this engine cannot compile.
    """
    if not max_length > 0:
        raise ConfigError(f"max_length: must be 1 or more, got {max_length!r}")
    try:
        _compile(pattern)  # alone, so that it cannot close the group around it below
        matches = _compile(rf"\A(?:{pattern})\z")
    except (SchemaError, TypeError) as error:
        raise ConfigError(
            f"pattern: {pattern!r} cannot be used: {str(error).strip()}"
        ) from None

    def read(text: str) -> str:
        if "\0" in text or not matches(text):
            raise ValueError
        return text

    form: dict[str, Json] = {}
    # The engine that checks schemas backtracks: it gets no pattern that could keep it busy.
    if _is_harmless(pattern, max_length):
        form["pattern"] = f"^(?:{pattern})$"
    allowed = f"a text that matches the whole pattern {pattern}"
    return TextType(read, allowed, max_length, form)


def _compile(pattern: str) -> Callable[[object], bool]:
    schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    matches: Callable[[object], bool] = SchemaValidator(schema).isinstance_python
    return matches


def _is_harmless(pattern: str, max_length: int) -> bool:
    """Whether a backtracking engine is certainly fast: no group is repeated, and little else.

    Three repetitions share a text of 200 characters in some 10^6 ways, which takes milliseconds.
    """
    try:
        re.compile(pattern)
    except re.error:
        return False
    bare = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern, flags=re.S)
    if re.search(r"\)[*+?{]|\(\?(?!:)", bare):
        return False
    repetitions = len(re.findall(r"[*+{]", bare))
    choices = len(re.findall(r"[|?]", bare.replace("(?:", "(")))
    ways: int = max_length**repetitions * 2**choices
    return ways <= 200**3


def _plain_word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise ValueError
    return text


SHELL_CHARACTERS = frozenset("`$&|;<>(){}[]*?!~#\\\"'")


def _safe_text(text: str) -> str:
    if not (text[:1].isalnum() and text.isprintable()):
        raise ValueError
    if found := sorted(SHELL_CHARACTERS & set(text)):
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
"""A word that no program reads as an option or a path, and no shell as syntax."""
SafeText: TypeAlias = Annotated[
    str,
    TextType(
        _safe_text,
        "one line of text that begins with a letter or a digit, without control characters and without any of "
        "` $ & | ; < > ( ) { } [ ] * ? ! ~ # \\ \" '",
    ),
]
"""A line of text without shell syntax, which no program reads as an option."""
