"""Tool profiles: which tools are shown, and in which order that is decided."""

import re
from collections.abc import Callable

import pytest

from loopwright import ConfigError, ReActEngine, Runtime, Tool, tool
from loopwright.providers import Request
from loopwright.testing import ScriptedProvider, call
from loopwright.tools import Fallback, ToolProfile


def made(name: str, *, verified: bool = False) -> Tool:
    return tool(name=name, effect="read", verified=verified)(lambda: "done")


NAMES = (
    "read_file",
    "write_file",
    "read_web",
    "Read_file",
    "delete",
    "read-mail",
    "read",
    "a.b",
    "a",
)
TOOLS = [
    made(name, verified=name in ("write_file", "read_web", "delete")) for name in NAMES
]


def shown(**options: object) -> list[str]:
    return [chosen.name for chosen in ToolProfile(**options).choose(TOOLS)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, list(NAMES)),
        ({"include": ["read*"]}, ["read_file", "read_web", "read-mail", "read"]),
        ({"include": ["read?*"]}, ["read_file", "read_web", "read-mail"]),
        ({"include": ["*_file"]}, ["read_file", "write_file", "Read_file"]),
        ({"include": ["read"]}, ["read"]),
        ({"include": ["ead", "rea", "READ", "r.ad", "[r]ead", "read|delete", "(read)"]}, []),
        ({"include": ["a.b", "a?b"]}, ["a.b"]),
        ({"include": ["?"]}, ["a"]),
        ({"include": ["delete", "read"]}, ["delete", "read"]),
        ({"exclude": ["*_*", "a*"]}, ["delete", "read-mail", "read"]),
        ({"exclude": ["*"]}, []),
        ({"include": ["read*"], "exclude": ["*web"]}, ["read_file", "read-mail", "read"]),
        ({"verified_only": True}, ["write_file", "read_web", "delete"]),
        ({"verified_only": True, "exclude": ["delete"], "include": ["*e*"]}, ["write_file", "read_web"]),
        ({"max_tools": 2}, ["read_file", "write_file"]),
        ({"max_tools": 99}, list(NAMES)),
        ({"max_tools": 1, "verified_only": True, "exclude": ["write*"]}, ["read_web"]),  # counted last of all
    ],
)  # fmt: skip
def test_tools_are_included_then_excluded_then_verified_then_counted(
    options: dict[str, object], names: list[str]
) -> None:
    assert shown(**options) == [name for name in NAMES if name in names]


def test_a_profile_is_a_value_that_can_be_shared() -> None:
    profile = ToolProfile(include=("read*",), max_tools=3)

    assert profile == ToolProfile(include=["read*"], max_tools=3)  # type: ignore[arg-type]
    assert len({profile, ToolProfile(include=("read*",), max_tools=3)}) == 1
    with pytest.raises(AttributeError):
        profile.max_tools = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: ToolProfile(include="read*"),
            "ToolProfile: include: Input should be a valid tuple, got 'read*'",
        ),
        (
            lambda: ToolProfile(exclude=[""]),
            "ToolProfile: exclude.0: String should have at least 1 character, got ''",
        ),
        (
            lambda: ToolProfile(exclude=[5]),
            "ToolProfile: exclude.0: Input should be a valid string, got 5",
        ),
        (
            lambda: ToolProfile(max_tools=0),
            "ToolProfile: max_tools: Input should be greater than or equal to 1, got 0",
        ),
        (
            lambda: ToolProfile(verified_only="maybe"),
            "ToolProfile: verified_only: Input should be a valid boolean",
        ),
        (
            lambda: ToolProfile(includes=["a"]),
            "ToolProfile: includes: ToolProfile has no such option (its own options: include, exclude, verified_only",
        ),
    ],
)
def test_a_bad_option_is_named(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(problem)):
        make()


# --- in a runtime ---


async def run(
    tools: list[Tool], *calls: str, **options: object
) -> tuple[list[str], list[str]]:
    """Which tools a model is offered, and what it reads of calls without arguments."""
    offered: list[str] = []

    def look(request: Request) -> str:
        offered.extend(spec.name for spec in request.tools)
        return "Done."

    model = ScriptedProvider([*map(call, calls), look])
    runtime = Runtime(model, tools=tools, **options)  # type: ignore[arg-type]
    result = await ReActEngine(runtime).run("Go.")
    return offered, [
        message.content for message in result.conversation if message.role == "tool"
    ]


async def test_a_hidden_tool_is_not_listed_and_cannot_be_called() -> None:
    called: list[str] = []

    @tool(effect="read")
    def read_file() -> None:
        called.append("read_file")

    @tool(effect="read")
    def read_mail() -> None:
        called.append("read_mail")

    tools = [read_file, read_mail]
    offered, read = await run(
        tools, "read_mail", "read_file", profile=ToolProfile(exclude=("*_mail",))
    )

    assert (offered, called) == (["read_file"], ["read_file"])
    assert read == [
        "There is no tool 'read_mail'. Did you mean read_file? Tools: read_file.",
        "done",
    ]


@pytest.mark.parametrize("wanted", ["read_mail", "read_mial", "reed_mail", "x"])
async def test_a_hidden_tool_is_spoken_of_as_one_that_there_is_not(wanted: str) -> None:
    shown, hidden = made("read_file"), made("read_mail")
    with_profile = await run(
        [shown, hidden], wanted, profile=ToolProfile(exclude=("read_mail",))
    )

    assert with_profile == await run([shown], wanted)


def test_a_fallback_to_a_hidden_tool_is_a_mistake() -> None:
    main = tool(name="main", effect="read", recovery=Fallback("spare"))(lambda: "done")
    Runtime(
        ScriptedProvider([]),
        tools=[main, made("spare")],
        profile=ToolProfile(include=("*a*",)),
    )
    with pytest.raises(
        ConfigError,
        match=r"tool 'main': recovery falls back to 'spare', .* there are main$",
    ):
        Runtime(
            ScriptedProvider([]),
            tools=[main, made("spare")],
            profile=ToolProfile(exclude=("spare",)),
        )


def test_a_profile_is_no_list_of_names() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^profile: needs an object with a method `choose`, got list$",
    ):
        Runtime(ScriptedProvider([]), profile=["a"])  # type: ignore[arg-type]
