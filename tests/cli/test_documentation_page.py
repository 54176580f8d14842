"""The page about the command line names commands and options that there are."""

import re
import shlex
from pathlib import Path

from .using import Invoke

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md").read_text(
    encoding="utf-8"
)
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE.replace("\\\n", " "), re.M | re.S)
LINES = [
    line
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith("loopwright ")
]


def commands(invoke: Invoke) -> list[str]:
    """Every command that there is."""
    return re.findall(
        r"^  ([a-z-]+)  ", invoke("--help").stdout.partition("Commands:")[2], re.M
    )


def test_every_option_of_every_example_is_in_the_help_of_its_command(
    invoke: Invoke,
) -> None:
    used = {
        (words[1], word)
        for words in map(shlex.split, LINES)
        for word in words[2:]
        if re.match(r"--?[a-z]", word)
    }
    helps = {
        command: invoke(command, "--help").stdout
        for command in {command for command, _ in used}
    }

    assert len(used) > 15
    assert [
        (c, option)
        for c, option in sorted(used)
        if not re.search(rf"(?<!\S){option}\b", helps[c])
    ] == []


def test_every_option_that_the_text_names_is_one_of_some_command(
    invoke: Invoke,
) -> None:
    groups = ("schedule", "settings")
    listed = [(command,) for command in commands(invoke)]
    listed += [
        (group, command)
        for group in groups
        for command in re.findall(
            r"^  ([a-z-]+)  ",
            invoke(group, "--help").stdout.partition("Commands:")[2],
            re.M,
        )
    ]
    helps = "".join(invoke(*words, "--help").stdout for words in [(), *listed])
    named = set(
        re.findall(
            r"`[^`\n]*?(--[a-z-]+)",
            re.sub(r"^```.*?^```$", "", PAGE, flags=re.M | re.S),
        )
    )

    assert len(named) > 15
    assert [option for option in sorted(named) if option not in helps] == []


def test_every_command_is_in_the_table(invoke: Invoke) -> None:
    listed = commands(invoke)

    assert len(listed) == 39
    tables = "\n".join(
        line for line in PAGE.splitlines() if line.startswith("| `loopwright ")
    )
    assert [
        command
        for command in listed
        if not re.search(rf"`loopwright {command}[ `]", tables)
    ] == []
