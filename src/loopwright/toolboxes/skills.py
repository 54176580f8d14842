"""Skills: instructions in SKILL.md files, each a tool that gives them to the model when it needs them."""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from typing import cast

from ..errors import ConfigError, ToolError
from ..parsing.yaml_text import read_yaml
from ..tools.base import Tool, tool
from .sandbox_root import SandboxRoot

FILE = "SKILL.md"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MAX_NAME, MAX_DESCRIPTION = 64, 1_024  # characters, as the format says
FRONT = re.compile(r"---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)(.*)", re.DOTALL)


def skills(
    folder: str | os.PathLike[str],
    *,
    max_bytes: int = 50_000,
    max_skills: int = 50,
    max_files: int = 100,
) -> list[Tool]:
    """One tool for each `NAME/SKILL.md` in a folder, and `read_skill_file` if there are files beside them.

    The model sees each skill's description; it gets the instructions when it calls the tool. Files are as in the open
    format (https://agentskills.io/specification): YAML between two lines `---` with `name`, which is the folder's, and
    `description`, then Markdown. `allowed-tools` is told the model and grants nothing: what may run is for the gate.

    Everything is read here, once, and never again. So it is what stood there when the application began, and it is
    trusted as its own text: keep the folder out of reach of tools that write.

    Args:
        folder: the folder that has the skills' folders in it.
        max_bytes: largest file; a larger one beside a SKILL.md cannot be read.
        max_skills: most skills.
        max_files: most files of one skill.

    Raises:
        ConfigError: naming the file, if it is broken, or a limit is exceeded; or PyYAML is not installed.
    """
    for field, value in (
        ("max_bytes", max_bytes),
        ("max_skills", max_skills),
        ("max_files", max_files),
    ):
        if value < 1:
            raise ConfigError(f"{field}: must be 1 or more, got {value}")
    files = SandboxRoot(folder)
    for place in [*files.root.iterdir(), *files.root.glob(f"*/{FILE}")]:
        if place.is_symlink():
            raise ConfigError(
                f"skills: {place} is a link, and links are not followed: put the skill itself there"
            )
    try:
        found = [
            name.removesuffix(f"/{FILE}")
            for name in files.walk(".", f"*/{FILE}", visits=100 * max_skills)
        ]
        if not found:
            raise ConfigError(f"skills: no folder in {files.root} has a {FILE}")
        if len(found) > max_skills:
            raise ConfigError(
                f"skills: {files.root} has {len(found)} skills: max_skills is {max_skills}"
            )
        loaded = {name: _loaded(files, name, max_bytes, max_files) for name in found}
    except ToolError as error:
        raise ConfigError(f"skills: in {files.root}: {error}") from None
    made = [_tool(skill) for skill in loaded.values()]
    return (
        [*made, _file_reader(loaded)]
        if any(skill.files for skill in loaded.values())
        else made
    )


@dataclasses.dataclass(frozen=True)
class _Skill:
    """A skill as it was when it was read; of a file that cannot be shown the text says why."""

    name: str
    description: str
    allowed_tools: str
    body: str
    files: Mapping[str, str | ToolError]


def _loaded(files: SandboxRoot, name: str, max_bytes: int, max_files: int) -> _Skill:
    """Read a skill and all that is beside it."""
    place = f"{name}/{FILE}"
    matter, body = _split(
        place,
        files.read_text(place, max_bytes).removeprefix("\ufeff").replace("\r\n", "\n"),
    )
    said = _text_of(place, matter, "name")
    if not NAME.fullmatch(said) or len(said) > MAX_NAME:
        raise ConfigError(
            f"{place}: name: lower-case letters, digits and single hyphens, at most 64, got {said!r}"
        )
    if said != name:
        raise ConfigError(
            f"{place}: name: must be that of its folder, {name!r}, got {said!r}"
        )
    description = _text_of(place, matter, "description").strip()
    if not 0 < len(description) <= MAX_DESCRIPTION:
        raise ConfigError(
            f"{place}: description: 1 to {MAX_DESCRIPTION:,} characters, it has {len(description):,}"
        )
    if not body.strip():
        raise ConfigError(f"{place}: there are no instructions below the second '---'")
    return _Skill(
        name,
        description,
        _allowed(place, matter),
        body.strip(),
        dict(_beside(files, name, max_bytes, max_files)),
    )


def _split(place: str, text: str) -> tuple[Mapping[str, object], str]:
    """The front matter's values, and what comes after it."""
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


def _text_of(place: str, matter: Mapping[str, object], field: str) -> str:
    value = matter.get(field)
    if not isinstance(value, str):
        raise ConfigError(
            f"{place}: {field}: must be a text, got {value!r}; put it in quotes if it is one"
        )
    return value


def _allowed(place: str, matter: Mapping[str, object]) -> str:
    value = matter.get("allowed-tools", "")
    words = (
        [value]
        if isinstance(value, str)
        else cast("list[object]", value if isinstance(value, list) else [None])
    )
    if not all(isinstance(word, str) for word in words):
        raise ConfigError(
            f"{place}: allowed-tools: must be a text or a list of texts, got {value!r}"
        )
    return " ".join(map(str, words))


def _beside(
    files: SandboxRoot, skill: str, max_bytes: int, max_files: int
) -> Iterator[tuple[str, str | ToolError]]:
    """Each file of a skill but SKILL.md, by its path in the skill's folder, with its text or why it has none."""
    paths = [
        path
        for path in files.walk(skill, "**", visits=100 * max_files)
        if not path.endswith("/")
    ]
    names = [
        path.removeprefix(f"{skill}/") for path in paths if path != f"{skill}/{FILE}"
    ]
    if len(names) > max_files:
        raise ConfigError(
            f"{skill}: it has {len(names)} files beside {FILE}: max_files is {max_files}"
        )
    for name in names:
        try:
            yield name, files.read_text(f"{skill}/{name}", max_bytes)
        except ToolError as error:
            yield name, error


def _tool(skill: _Skill) -> Tool:
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


def _file_reader(loaded: Mapping[str, _Skill]) -> Tool:
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
