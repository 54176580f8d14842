"""Prompt templates: named placeholders filled in one pass, and sets of templates that a caller may override."""

import string
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, cast

from pydantic import GetCoreSchemaHandler
from pydantic_core.core_schema import CoreSchema, no_info_plain_validator_function

from .errors import ConfigError

SUFFIXES = (".md", ".txt")


class Template:
    """A text with placeholders such as `{task}`; `{{` and `}}` stand for braces.

    Filling is one pass: braces inside a value stay text. Raises `ConfigError` for a brace that stands alone and for
    anything but a plain name inside braces.
    """

    __slots__ = ("_parts", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(_parts(text))
        self.names = frozenset(name for _, name in self._parts if name)

    def fill(self, /, **values: str | int | float) -> str:
        """The text with each placeholder replaced; raises `ConfigError` naming one that is missing or unknown."""
        _check_names(self.names, values.keys(), f"prompt {_short(self.text)!r}")
        return "".join(
            literal + (str(values[name]) if name else "")
            for literal, name in self._parts
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of literal text and the placeholder behind it, which is empty at the end."""
    try:
        for literal, name, form, conversion in string.Formatter().parse(text):
            if name is not None and (not name.isidentifier() or form or conversion):
                raise ConfigError(
                    f"placeholder {{{name}}}: only a plain name can stand in braces; write {{{{ for a brace"
                )
            yield literal, name or ""
    except ValueError as error:
        raise ConfigError(
            f"a prompt has a brace on its own ({error}): write {{{{ or }}}} for a brace"
        ) from None


def _check_names(wanted: Set[str], given: Set[str], owner: str) -> None:
    for name in sorted(wanted - given):
        raise ConfigError(f"{owner}: the placeholder {{{name}}} is missing")
    for name in sorted(given - wanted):
        raise ConfigError(
            f"{owner}: there is no placeholder {{{name}}}; it has {', '.join(sorted(wanted)) or 'none'}"
        )


class PromptSet(Mapping[str, Template]):
    """The prompts of an engine by name: `PromptSet(plan="… {task} …", solve="…")`; a value, so it can be shared."""

    def __init__(self, /, **texts: str) -> None:
        self._templates = {name: Template(text) for name, text in texts.items()}

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """As an engine's option: a set, texts by name, or a folder of files; it overrides the engine's own."""
        return no_info_plain_validator_function(_as_prompts)

    def changes(self, default: "PromptSet") -> dict[str, str]:
        """The texts that differ from those of `default`."""
        return {
            name: text
            for name, text in self.texts.items()
            if default.texts.get(name) != text
        }

    @property
    def texts(self) -> dict[str, str]:
        """The prompts as plain text by name."""
        return {name: template.text for name, template in self._templates.items()}

    def fill(self, name: str, /, **values: str | int | float) -> str:
        """The prompt called `name` with its placeholders filled; `ConfigError` for an unknown prompt or placeholder."""
        self._check(name)
        return self._templates[name].fill(**values)

    def override(self, /, **texts: str) -> "PromptSet":
        """The set with other texts for some prompts, each with the placeholders of the text that it replaces."""
        for name, text in texts.items():
            self._check(name)
            _check_names(
                self._templates[name].names, Template(text).names, f"prompt {name!r}"
            )
        return PromptSet(**{**self.texts, **texts})

    def from_folder(self, path: str | Path) -> "PromptSet":
        """The set with the texts of a folder's files, `NAME.md` or `NAME.txt` (UTF-8); the others stay as they are."""
        return self.override(**_read_folder(path))

    def _check(self, name: str) -> None:
        if name not in self._templates:
            raise ConfigError(
                f"there is no prompt {name!r}; prompts: {', '.join(sorted(self._templates)) or 'none'}"
            )

    def __getitem__(self, name: str) -> Template:
        return self._templates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates)

    def __len__(self) -> int:
        return len(self._templates)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.texts.items())))

    def __repr__(self) -> str:
        return f"PromptSet({', '.join(sorted(self._templates))})"


def _read_folder(path: str | Path) -> dict[str, str]:
    folder = Path(path)
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
        return {
            file.stem: file.read_text(encoding="utf-8").removesuffix("\n")
            for file in files
        }
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"prompts of {str(folder)!r} cannot be read: {error}"
        ) from None


def _as_prompts(given: object) -> PromptSet:
    if isinstance(given, PromptSet):
        return given
    if isinstance(given, (str, Path)):
        return PromptSet(**_read_folder(given))
    if isinstance(given, Mapping):
        texts = cast("Mapping[object, object]", given)
        if all(
            isinstance(name, str) and isinstance(text, str)
            for name, text in texts.items()
        ):
            return PromptSet(**cast("Mapping[str, str]", texts))
    raise ValueError("must be a PromptSet, texts by name, or a folder of NAME.md files")
