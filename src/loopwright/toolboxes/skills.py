"""Skills: instructions in SKILL.md files, each with a tool that returns them to the model."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import cast

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..errors import ConfigError, ToolError
from ..parsing.yaml_text import read_yaml
from ..tools.base import Tool, tool
from .option_checks import check_counts
from .sandbox_root import SandboxRoot

FILE = "SKILL.md"
NAME = compile_late(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MAX_NAME, MAX_DESCRIPTION = 64, 1_024  # characters, by the specification
FRONT = compile_late(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)(.*)", re.DOTALL)


def skills(
    folder: str | os.PathLike[str],
    *,
    max_bytes: int = 50_000,
    max_skills: int = 50,
    max_files: int = 100,
) -> list[Tool]:
    """Return one tool for each `NAME/SKILL.md`, and `read_skill_file` if other files are beside them.

    The model sees each skill's description; the tool returns the instructions. Files have the open
    format (https://agentskills.io/specification): YAML between two lines `---` with `name`, which is
    the directory's, and `description`, then Markdown. The model reads `allowed-tools`, which grants
    nothing: the gate decides which tools may run.

    Everything is read once, now. Its text is trusted as the application's own: keep the directory out
    of reach of tools that write.

    Args:
        folder: the directory that contains the directories of the skills.
        max_bytes: largest file; a larger one beside a SKILL.md cannot be read.
        max_skills: largest number of skills.
        max_files: largest number of files of one skill.

    Raises:
        ConfigError: a file is invalid, which it names, a limit is exceeded, or PyYAML is missing.
    """
    check_counts(max_bytes=max_bytes, max_skills=max_skills, max_files=max_files)
    files = SandboxRoot(folder)
    _refuse_links(files)
    try:
        names = _list_skills(files, max_skills)
        loaded = {name: _load(files, name, max_bytes, max_files) for name in names}
    except ToolError as error:
        raise ConfigError(f"skills: in {files.root}: {error}") from None
    tools = [_build_tool(skill) for skill in loaded.values()]
    if any(skill.files for skill in loaded.values()):
        tools.append(_build_file_reader(loaded))
    return tools


def _refuse_links(files: SandboxRoot) -> None:
    for place in [*files.root.iterdir(), *files.root.glob(f"*/{FILE}")]:
        if place.is_symlink():
            raise ConfigError(
                f"skills: {place} is a link, and links are not followed; put the skill itself there"
            )


def _list_skills(files: SandboxRoot, max_skills: int) -> list[str]:
    found = [
        name.removesuffix(f"/{FILE}")
        for name in files.walk(".", f"*/{FILE}", visits=100 * max_skills)
    ]
    if not found:
        raise ConfigError(f"skills: no folder in {files.root} has a {FILE}")
    if len(found) > max_skills:
        raise ConfigError(
            f"skills: {files.root} has {len(found)} skills; max_skills is {max_skills}"
        )
    return found


@dataclasses.dataclass(frozen=True)
class _Skill:
    """A skill as it was read; a file that cannot be shown has its error."""

    name: str
    description: str
    allowed_tools: str
    body: str
    files: Mapping[str, str | ToolError]


def _load(files: SandboxRoot, name: str, max_bytes: int, max_files: int) -> _Skill:
    """Read a skill and all files beside it."""
    place = f"{name}/{FILE}"
    text = files.read_text(place, max_bytes)
    matter, body = _split(place, text.removeprefix("\ufeff").replace("\r\n", "\n"))
    _check_name(place, _read_field(place, matter, "name"), name)
    description = _read_field(place, matter, "description").strip()
    if not 0 < len(description) <= MAX_DESCRIPTION:
        raise ConfigError(
            f"{place}: description: 1 to {MAX_DESCRIPTION:,} characters, it has {len(description):,}"
        )
    if not body.strip():
        raise ConfigError(f"{place}: there are no instructions below the second '---'")
    return _Skill(
        name,
        description,
        _read_allowed_tools(place, matter),
        body.strip(),
        dict(_read_files(files, name, max_bytes, max_files)),
    )


def _check_name(place: str, name: str, folder: str) -> None:
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise ConfigError(
            f"{place}: name: lower-case letters, digits and single hyphens, at most 64, got {name!r}"
        )
    if name != folder:
        raise ConfigError(
            f"{place}: name: must be that of its folder, {folder!r}, got {name!r}"
        )


def _split(place: str, text: str) -> tuple[Mapping[str, object], str]:
    """Return the values of the front matter, and the text after it."""
    parts = FRONT.fullmatch(text)
    if parts is None:
        raise ConfigError(f"{place}: must begin with YAML between two lines '---'")
    try:
        matter = read_yaml(parts[1])
    except ConfigError as error:
        raise ConfigError(f"{place}: its front matter: {error!s:.300}") from None
    if not isinstance(matter, dict):
        raise ConfigError(
            f"{place}: its front matter must have 'name:' and 'description:'"
        )
    return cast("dict[str, object]", matter), parts[2]


def _read_field(place: str, matter: Mapping[str, object], field: str) -> str:
    value = matter.get(field)
    if not isinstance(value, str):
        raise ConfigError(
            f"{place}: {field}: must be a text, got {value!r}; put it in quotes if it is one"
        )
    return value


def _read_allowed_tools(place: str, matter: Mapping[str, object]) -> str:
    value = matter.get("allowed-tools", "")
    words = cast("list[object]", value) if isinstance(value, list) else [value]
    if not all(isinstance(word, str) for word in words):
        raise ConfigError(
            f"{place}: allowed-tools: must be a text or a list of texts, got {value!r}"
        )
    return " ".join(map(str, words))


def _read_files(
    files: SandboxRoot, skill: str, max_bytes: int, max_files: int
) -> Iterator[tuple[str, str | ToolError]]:
    """Return each file of a skill except SKILL.md, by its path, with its text or its error."""
    names = [
        path.removeprefix(f"{skill}/")
        for path in files.walk(skill, "**", visits=100 * max_files)
        if not path.endswith("/") and path != f"{skill}/{FILE}"
    ]
    if len(names) > max_files:
        raise ConfigError(
            f"{skill}: it has {len(names)} files beside {FILE}; max_files is {max_files}"
        )
    for name in names:
        try:
            yield name, files.read_text(f"{skill}/{name}", max_bytes)
        except ToolError as error:
            yield name, error


def _build_tool(skill: _Skill) -> Tool:
    head = [f"Instructions of the skill {skill.name}:"]
    if skill.files:
        head.append(f"Files that read_skill_file gives: {', '.join(skill.files)}")
    if skill.allowed_tools:
        head.append(
            f"It was written for these tools, as far as they are here: {skill.allowed_tools}"
        )
    text = "\n".join([*head, "", skill.body])

    def give() -> str:
        return text

    about = f"{skill.description}\n\nGives the instructions for it; call this first, then follow them."
    return tool(
        name=f"skill_{skill.name}", description=about, effect="read", trusted=True
    )(give)


def _build_file_reader(loaded: Mapping[str, _Skill]) -> Tool:
    @tool(effect="read", trusted=True)
    def read_skill_file(skill: str, path: str) -> str:
        """Read a file that a skill's instructions speak of.

        Args:
            skill: The skill's name.
            path: The file, as the skill names it, like "references/forms.md".
        """
        found = loaded.get(skill)
        if found is None:
            raise ToolError(
                f"There is no skill {skill[:MAX_NAME]!r}. There are: {', '.join(loaded)}."
            )
        text = found.files.get(path.removeprefix("./"))
        if text is None:
            raise ToolError(
                f"{skill} has no such file. It has: {', '.join(found.files) or 'none'}."
            )
        if isinstance(text, ToolError):
            raise ToolError(str(text))
        return text

    return read_skill_file
