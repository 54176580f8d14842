"""Types for arguments: what they let through, what they do not, and that a tool is never called with the rest."""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from loopwright import ConfigError, ReActEngine, Runtime, ToolRegistry, tool
from loopwright.messages import Json
from loopwright.testing import ScriptedProvider, call
from loopwright.tools import (
    Cidr,
    Duration,
    DurationBetween,
    Host,
    HostName,
    IpAddress,
    Matching,
    PlainWord,
    Port,
    SafeText,
    SandboxedPath,
    TextType,
    WebUrl,
)

TICKET = Annotated[str, Matching("[A-Z]{2}-[0-9]{4}")]
SHORT = Annotated[timedelta, DurationBetween("1s", "1h")]

GOOD: dict[str, tuple[Any, dict[Any, Any]]] = {
    "port": (Port, {1: 1, 80: 80, 65535: 65535}),
    "host name": (
        HostName,
        {
            "localhost": "localhost",
            "db1.example.org": "db1.example.org",
            "DB1.Example.ORG": "db1.example.org",
            "3com.example": "3com.example",
            "a-b.c--d.org": "a-b.c--d.org",
            "xn--bcher-kva.example": "xn--bcher-kva.example",  # bücher
            "xn--e1afmkfd.xn--p1ai": "xn--e1afmkfd.xn--p1ai",  # пример.рф
            "xn--wgv71a119e.jp": "xn--wgv71a119e.jp",  # 日本語
            "xn--p8j5cxcyh.jp": "xn--p8j5cxcyh.jp",
            "xn--iai-2lb.example": "xn--iai-2lb.example",  # iași, Romanian
            "xn--krakw-3ta.example": "xn--krakw-3ta.example",  # kraków, Polish
            "xn--ng-nai-92a8502d.example": "xn--ng-nai-92a8502d.example",  # đồng-nai, Vietnamese
            "xn--v-f1ab.example": "xn--v-f1ab.example",  # ɛvɛ, Ewe
            f"{'a' * 63}.org": f"{'a' * 63}.org",
        },
    ),
    "host": (
        Host,
        {
            "db1": "db1",
            "192.0.2.7": "192.0.2.7",
            "2001:DB8::7": "2001:db8::7",
            "::1": "::1",
        },
    ),
    "web url": (
        WebUrl,
        {
            "http://example.org": "http://example.org",
            "HTTPS://Example.ORG:8443/A/b?c=d&e=%C3%A9#f": "https://example.org:8443/A/b?c=d&e=%C3%A9#f",
            "https://en.wikipedia.org/wiki/Loop_(computing)": "https://en.wikipedia.org/wiki/Loop_(computing)",
            "http://192.0.2.7/": "http://192.0.2.7/",
            "http://[2001:DB8::7]:80/x": "http://[2001:db8::7]:80/x",
            "https://example.org?q=a@b": "https://example.org?q=a@b",
            "https://xn--bcher-kva.example/": "https://xn--bcher-kva.example/",
        },
    ),
    "ip address": (
        IpAddress,
        {
            text: ip_address(text)
            for text in ("192.0.2.7", "0.0.0.0", "2001:db8::7", "::ffff:192.0.2.7")
        },
    ),
    "cidr": (
        Cidr,
        {
            text: ip_network(text)
            for text in ("192.0.2.0/24", "10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32")
        },
    ),
    "duration": (
        Duration,
        {
            "90s": timedelta(seconds=90),
            "5m": timedelta(minutes=5),
            "1h30m": timedelta(hours=1.5),
            "2w3d": timedelta(days=17),
            "1.5s": timedelta(seconds=1.5),
            "250ms": timedelta(seconds=0.25),
            "0s": timedelta(0),
            "PT15M": timedelta(minutes=15),
            "P1DT2H": timedelta(hours=26),
            "PT0.5S": timedelta(seconds=0.5),
            "P2W": timedelta(weeks=2),
        },
    ),
    "short duration": (
        SHORT,
        {
            "1s": timedelta(seconds=1),
            "1h": timedelta(hours=1),
            "PT60M": timedelta(hours=1),
        },
    ),
    "ticket": (TICKET, {"AB-1234": "AB-1234"}),
    "word": (
        PlainWord,
        {
            "main": "main",
            "_x": "_x",
            "v1.2-rc_3": "v1.2-rc_3",
            "7": "7",
            "a..b": "a..b",
        },
    ),
    "text": (
        SafeText,
        {
            "Hello, world": "Hello, world",
            "Größe: 3 m": "Größe: 3 m",
            "5 % of a+b=c @home, a/b_c": None,
            "日本": "日本",
        },
    ),
}

BAD: dict[str, tuple[Any, list[Any]]] = {
    "port": (Port, [0, -1, 65536, 80.0, True, "80", "http", None, [80], 10**30, "80; ls"]),
    "host name": (
        HostName,
        [
            "", ".", "a..b", ".a", "a.", "-a.org", "a-.org", "a_b.org", "a b", "a\n", "a\x00", "a;b", "$(a)", "a/b",
            "a:80", "[::1]", "user@a", "127.1", "10.0.0.1", "2130706433", "0x7f000001", "a.0x", "1.2.3.4.5",
            f"{'a' * 64}.org", ".".join(["a" * 50] * 6), "bücher.example", "\u0430pple.com", "\uff47oogle.com",
            "xn--.com", "xn--abc-.com", "xn--a.com", "ab--c.com", "xn--pple-43d.com", "xn--80ak6aa92e.com",
            "xn--99999999999.com", "xn--ggle-0nda.com", "xn--gthub-n4a.com", "xn--paypa-9tb.com", "xn--ggle-q33aa.com",
            "xn--mirosoft-hw7c.com", "xn--oom-z6x.com", "xn--d19aa9ab.com", 5, None,
        ],
    ),
    "host": (
        Host,
        ["", "fe80::1%eth0", "::1%;reboot", "[::1]", "1.2.3", "01.2.3.4", "1.2.3.4/8", "-h", "a b", "a,b", "::g"],
    ),
    "web url": (
        WebUrl,
        [
            "", "example.org", "//example.org", "ftp://example.org", "file:///etc/passwd", "javascript:alert(1)",
            "http://", "http:///x", "http:example.org", "http:/\\example.org", "http://user@example.org",
            "http://user:pw@example.org/", "http://example.org\\@evil.example/", "http://a\tb.org", " http://a.org",
            "http://a.org ", "http://a.org\n", "http://a.org/\r\nHost: b", "http://a.org/\x00", "http://a.org/é",
            "http://a.org/a b", 'http://a.org/"', "http://a.org/%0d%0aX:1", "http://a.org/%00", "http://a.org/%zz",
            "http://a.org:0/", "http://a.org:65536/", "http://a.org:80:80/", "http://a.org:/", "http://0x7f.1/",
            "http://127.1/", "http://2130706433/", "http://[::1%25eth0]/", "http://[::1/", "http://exa%6dple.org/",
            "http://\u0430pple.com/", "http://xn--80ak6aa92e.com/", "http://a.org/[x]",
            f"http://a.org/{'x' * 3000}", None,
        ],
    ),
    "ip address": (
        IpAddress,
        ["", "192.0.2", "192.0.2.256", "192.0.02.7", "0x7f.0.0.1", "192.0.2.7/32", " 192.0.2.7", "192.0.2.7\n",
         "fe80::1%eth0", "::1%;reboot", "[::1]", "2001:db8:::1", "localhost", "1٢.0.0.1", 3221225991, None],
    ),
    "cidr": (
        Cidr,
        ["", "192.0.2.0", "192.0.2.1/24", "192.0.2.0/33", "192.0.2.0/-1", "192.0.2.0/255.255.255.0", "192.0.2.0/",
         "/24", "2001:db8::1/32", "2001:db8::/129", "10.0.0.0/8 ", "fe80::%eth0/64", "a/8", 8, None],
    ),
    "duration": (
        Duration,
        ["", "s", "90", "90 s", "-5m", "+5m", "5m\n", "1m1h", "1h1h", "5 minutes", "P", "PT", "P1Y", "P1M", "P1DT",
         "367d", "1e3s", "٣s", "9" * 30 + "s", "1.5h", "inf", 90, None],
    ),
    "short duration": (SHORT, ["0s", "999ms", "1h1s", "61m", "1d", "PT2H", "PT0S", "1w", "", "soon"]),
    "ticket": (
        TICKET,
        ["", "AB-123", "AB-12345", "ab-1234", " AB-1234", "AB-1234\n", "AB-1234;ls", "xAB-1234",
         "AB-\uff11\uff12\uff13\uff14", "A" * 300, 5],
    ),
    "word": (
        PlainWord,
        ["", "-rf", "--help", ".", "..", ".ssh", "a b", "a\n", "a\x00", "a;b", "a|b", "$a", "`a`", "a/b", "~", "é",
         "a=b", "*", "a" * 256, None],
    ),
    "text": (
        SafeText,
        ["", " a", "-rf", "\u2013x", "@file", "+x", "/etc", "a\nb", "a\rb", "a\x00b", "a\x1bb", "a\u202eb", "a\u2028b",
         "a;b", "a|b", "a&b", "a$b", "a`b`", "a>b", "a<b", "a(b)", "a{b}", "a[b]", "a*", "a?", "a!", "a~", "a#b",
         "a\\b", "it's", 'a"b', "a" * 1001, "a\ud800", None],
    ),
}  # fmt: skip


def cases(table: dict[str, tuple[Any, Any]]) -> list[Any]:
    return [
        pytest.param(kind, value, id=f"{name}: {value!r:.40}")
        for name, (kind, values) in table.items()
        for value in values
    ]


@pytest.mark.parametrize(("kind", "value"), cases(GOOD))
def test_what_is_meant_is_let_through(kind: Any, value: Any) -> None:
    expected = next(values for known, values in GOOD.values() if known is kind)[value]

    assert TypeAdapter(kind).validate_python(value) == (
        value if expected is None else expected
    )


@pytest.mark.parametrize(("kind", "value"), cases(BAD))
def test_what_is_not_is_refused_with_what_is_allowed(kind: Any, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)

    [error] = caught.value.errors()
    marks = [mark for mark in kind.__metadata__ if isinstance(mark, TextType)]
    assert all(error["msg"].startswith(f"must be {mark.allowed}") for mark in marks)


def test_there_are_ten_bad_values_of_each_and_more() -> None:
    assert {
        name: len(values) for name, (_, values) in BAD.items() if len(values) < 10
    } == {}
    assert BAD.keys() == GOOD.keys()


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (
            HostName,
            "\u0430pple.com",
            "in ASCII this is xn--pple-43d.com: write that, if it is meant",
        ),
        (
            HostName,
            "bücher.example",
            "in ASCII this is xn--bcher-kva.example: write that, if it is meant",
        ),
        (HostName, "ü..a", "only ASCII"),
        (
            HostName,
            "xn--pple-43d.com",
            "xn--pple-43d mixes scripts: cyrillic and latin",
        ),
        (
            HostName,
            "xn--80ak6aa92e.com",
            "xn--80ak6aa92e looks like apple, and is another name",
        ),
        (HostName, "xn--99999999999.com", "xn--99999999999 does not stand for a name"),
        (
            HostName,
            "127.1",
            "the last part is a number, so it could be read as an address",
        ),
        (
            WebUrl,
            "http://\u0430pple.com/",
            "in ASCII this is xn--pple-43d.com: write that, if it is meant",
        ),
        (
            WebUrl,
            "http://a.org/é",
            "write other characters as % and two hexadecimal digits",
        ),
        (WebUrl, "http://a.org:0/", "there is no port 0"),
        (IpAddress, "fe80::1%eth0", "without a zone"),
        (Cidr, "192.0.2.1/24", "the network is 192.0.2.0/24"),
        (Cidr, "192.0.2.0/33", "there is no prefix of 33 bits"),
        (SHORT, "1h1s", "this is 1h1s"),
        (SafeText, "a;b|c", "without ; |"),
        (PlainWord, "a" * 256, "at most 255 characters"),
    ],
)
def test_the_reason_is_told_where_there_is_more_to_say(
    kind: Any, value: str, reason: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(f" ({reason})")):
        TypeAdapter(kind).validate_python(value)


# --- paths ---


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, a link within and links out of it."""
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "a.txt").write_text("a", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "root2").mkdir()
    (root / "within").symlink_to("notes")
    (root / "out").symlink_to(tmp_path)
    (root / "up").symlink_to("../secret.txt")
    (root / "beside").symlink_to("../root2")
    (root / "round").symlink_to("round")
    return root


def test_a_path_below_the_root_arrives_whole_and_with_its_links_followed(
    folder: Path,
) -> None:
    kind = TypeAdapter[Path](Annotated[Path, SandboxedPath(folder)])

    assert {
        text: kind.validate_python(text)
        for text in ("notes/a.txt", "new/b.txt", "within/a.txt", "-x", "ä b", "...")
    } == {
        "notes/a.txt": folder / "notes" / "a.txt",
        "new/b.txt": folder / "new" / "b.txt",
        "within/a.txt": folder / "notes" / "a.txt",
        "-x": folder / "-x",
        "ä b": folder / "ä b",
        "...": folder / "...",
    }


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "/", "/etc/passwd", "../secret.txt", "notes/../../secret.txt", "notes/..", "./a", "notes//a",
        "a/", "~", "~root/x", "a\x00", "a\nb", "a\x1b", "a\u202e", "C:", "c:/x", "..\\secret", "\\\\host\\share",
        "a\ud800", "out/secret.txt", "up", "beside/x", "round/x", "out", "x" * 256, "x/" * 600 + "x", 5, None,
    ],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused(folder: Path, text: object) -> None:
    kind = SandboxedPath(folder)
    with pytest.raises(ValidationError, match=f"must be {re.escape(kind.allowed)}"):
        TypeAdapter[Path](Annotated[Path, kind]).validate_python(text)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["a", "..", ".", "/", "\\", "//", "~", "\x00", "C:", "..%2f", " "]
        ),
        max_size=8,
    ).map("".join)
)
def test_no_path_ever_leaves_the_root(text: str) -> None:
    kind = SandboxedPath("/usr")
    try:
        path = kind.read(text)
    except ValueError:
        return
    assert isinstance(path, Path)
    assert path.is_relative_to("/usr")
    assert path != Path("/usr")


# --- set-up ---


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: SandboxedPath("nowhere"), "root: 'nowhere' is not a directory"),
        (
            lambda: DurationBetween("soon"),
            "minimum: must be a duration such as '90s' or '1h30m', got 'soon'",
        ),
        (
            lambda: DurationBetween(maximum=5),
            "maximum: must be a duration such as '90s' or '1h30m', got 5",
        ),
        (
            lambda: DurationBetween("1h", "1m"),
            "minimum: must not be longer than the maximum, 1m, got 1h",
        ),
        (lambda: Matching("a", 0), "max_length: must be 1 or more, got 0"),
        (lambda: Matching("("), "pattern: '(' cannot be used: "),
        (lambda: Matching(r"(a)\1"), "pattern: '(a)\\\\1' cannot be used: "),
        (lambda: Matching("(?=a)"), "pattern: '(?=a)' cannot be used: "),
        (lambda: Matching("a)|(?:b"), "pattern: 'a)|(?:b' cannot be used: "),
        (lambda: Matching("(?x)a # b"), "pattern: '(?x)a # b' cannot be used: "),
    ],
)
def test_a_bad_option_is_named(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(problem)):
        make()


# --- what a model sees ---


def test_the_schema_says_what_is_allowed(tmp_path: Path) -> None:
    @tool(effect="read")
    def look(
        host: HostName,
        port: Port,
        ticket: TICKET,
        where: Annotated[Path, SandboxedPath(tmp_path)],
        until: Duration = timedelta(minutes=5),
        also: Optional[Cidr] = None,  # noqa: UP045 - the old way of writing it
    ) -> str:
        """Look.

        Args:
            port: where it listens.
        """
        return "looked"

    allowed = (
        "A host name such as db1.example.org: letters, digits and hyphens between dots"
    )
    network = "A network such as 192.0.2.0/24 or 2001:db8::/32, with no bits set behind the prefix"
    assert look.schema["properties"] == {
        "host": {
            "type": "string",
            "format": "hostname",
            "maxLength": 253,
            "description": allowed,
        },
        "port": {
            "type": "integer",
            "minimum": 1,
            "maximum": 65535,
            "description": "where it listens.",
        },
        "ticket": {
            "type": "string",
            "maxLength": 200,
            "pattern": "^(?:[A-Z]{2}-[0-9]{4})$",
            "description": "A text that matches the whole pattern [A-Z]{2}-[0-9]{4}",
        },
        "where": {
            "type": "string",
            "maxLength": 1000,
            "examples": ["notes/today.txt"],
            "description": f"A{SandboxedPath(tmp_path).allowed[1:]}",
        },
        "until": {
            "type": "string",
            "maxLength": 50,
            "default": "PT5M",
            "description": "A duration such as 90s, 5m, 1h30m or PT15M, from 0s to 366d",
        },
        "also": {
            "anyOf": [
                {"type": "string", "maxLength": 49, "description": network},
                {"type": "null"},
            ],
            "default": None,
        },
    }
    assert str(tmp_path) not in str(look.schema)


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+b", r"(a|a)*b", r"(?:a*)*b", r"a*a*a*a*a*b", r"([a-z]+\.)+x", r"(a?){50}b"],
)
def test_a_pattern_that_could_keep_an_engine_busy_is_shown_to_none_that_backtracks(
    pattern: str,
) -> None:
    @tool(effect="read")
    def look(what: Annotated[str, Matching(pattern)]) -> str:
        return what

    before = time.perf_counter()
    problems = [
        ToolRegistry([look]).find_problem("look", {"what": "a" * length + "!"})
        for length in (30, 199, 1_000_000)
    ]

    assert "pattern" not in str(look.schema["properties"]).replace("whole pattern", "")
    assert all(problems)
    assert (
        time.perf_counter() - before < 5
    )  # the first of these takes hours, where it is tried


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "a" * 201])
def test_what_is_no_text_for_a_program_matches_no_pattern(text: str) -> None:
    with pytest.raises(
        ValidationError,
        match=r"must be a text that matches the whole pattern \(\?s\)\.\*",
    ):
        TypeAdapter[str](Annotated[str, Matching("(?s).*")]).validate_python(text)


def test_the_worst_pattern_that_is_shown_takes_no_time_with_the_longest_text() -> None:
    @tool(effect="read")
    def look(what: Annotated[str, Matching("a*a*a*b")]) -> str:
        return what

    registry, before = ToolRegistry([look]), time.perf_counter()
    problems = [
        registry.find_problem("look", {"what": "a" * length})
        for length in (200, 5_000_000)
    ]

    assert "pattern" in look.schema["properties"]["what"]  # type: ignore[operator, index]
    assert all(problems)
    assert time.perf_counter() - before < 5


CALLED: list[object] = []


@tool(effect="read")
def reach(
    host: Host = "db",
    port: Port = 80,
    wait: Duration = timedelta(0),
    word: PlainWord = "a",
) -> str:
    """Reach a host."""
    CALLED.append((host, port, wait, word))
    return "reached"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            {"host": "a;reboot"},
            "host: must be a host name or an IP address, such as db1.example.org or 192.0.2.7, got 'a;reb",
        ),
        (
            {"host": "\u0430pple.com"},
            "(in ASCII this is xn--pple-43d.com: write that, if it is meant)",
        ),
        ({"port": 70_000}, "at port: 70000 is greater than the maximum of 65535"),
        (
            {"wait": "a while"},
            "wait: must be a duration such as 90s, 5m, 1h30m or PT15M, from 0s to 366d, got 'a while'",
        ),
        (
            {"word": "--exec=x"},
            "word: must be one word of ASCII letters, digits, '.', '_' and '-' that does not begin with",
        ),
    ],
)
async def test_a_tool_is_not_called_with_a_bad_value_and_the_model_is_told(
    arguments: dict[str, Json], told: str
) -> None:
    CALLED.clear()
    model = ScriptedProvider(
        [call("reach", **arguments), call("reach", host="DB", wait="90s"), "Done."]
    )
    result = await ReActEngine(Runtime(model, tools=[reach])).run("Reach it.")
    refused, reached = [
        message.content for message in result.conversation if message.role == "tool"
    ]

    assert told in refused
    assert (reached, CALLED) == ("reached", [("db", 80, timedelta(seconds=90), "a")])
