"""Prompt templates: named placeholders filled in one pass, and sets of templates that a caller may
override.
"""

import dataclasses
import hashlib
import string
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, cast

from pydantic import GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core.core_schema import CoreSchema, no_info_plain_validator_function

from .errors import ConfigError

SUFFIXES = (".md", ".txt")
LEFT_OUT = "-"


class Template:
    """A text with placeholders such as `{task}`; `{{` and `}}` stand for braces.

    `{notes:Notes}` is the line "Notes: ..." where there are notes, and nothing for an empty value or
    "none"; `{notes:-}` leaves the value out. Filling is one pass: braces inside a value stay text.
    Raises `ConfigError` for a single brace and for anything else inside braces.
    """

    __slots__ = ("_segments", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._segments = tuple(_split_segments(text))
        self.names = frozenset(name for _, name, _ in self._segments if name)

    def fill(self, /, **values: str | int | float) -> str:
        """Return the text with each placeholder replaced; raise `ConfigError` naming one that is
        missing or unknown.
        """
        _check_names(self.names, values.keys(), f"prompt {_abbreviate(self.text)!r}")
        filled: list[str] = []
        for literal, name, label in self._segments:
            filled.append(literal)
            if name:
                filled.append(_write_value(str(values[name]), label))
        return "".join(filled)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


def _abbreviate(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _write_value(value: str, label: str) -> str:
    """Return a value as its placeholder wants it: alone, as a line with a label, or not at all."""
    if not label:
        return value
    is_empty = value.strip() in ("", "none")
    return "" if label == LEFT_OUT or is_empty else f"{label}: {value}\n"


def _is_label(form: str) -> bool:
    """Return whether a label may stand there: none, the sign to leave the value out, or words.

    A single ASCII letter is a format of Python's, such as `{price:f}`, which templates have not.
    """
    if form in ("", LEFT_OUT):
        return True
    is_format = len(form) == 1 and form.isascii()
    return not is_format and all(word.isalpha() for word in form.split(" "))


def _split_segments(text: str) -> Iterator[tuple[str, str, str]]:
    """Iterate over literal text with the placeholder behind it, which is empty at the end, and its label."""
    try:
        for literal, name, form, conversion in string.Formatter().parse(text):
            is_plain = name is None or name.isidentifier()
            label = form or ""
            if not is_plain or conversion or not _is_label(label):
                raise ConfigError(
                    f"placeholder {{{name}}}: braces may hold only a name, or a name with a label; "
                    "write {{ for a literal brace"
                )
            yield literal, name or "", label
    except ValueError as error:
        raise ConfigError(
            f"a prompt has a single brace ({error}): write {{{{ or }}}} for a literal brace"
        ) from None


def _check_names(wanted: Set[str], given: Set[str], owner: str) -> None:
    for name in sorted(wanted - given):
        raise ConfigError(f"{owner}: the placeholder {{{name}}} is missing")
    for name in sorted(given - wanted):
        raise ConfigError(
            f"{owner}: there is no placeholder {{{name}}}; it has {', '.join(sorted(wanted)) or 'none'}"
        )


class PromptSet(Mapping[str, Template]):
    """The prompts of an engine by name: `PromptSet(plan="… {task} …", solve="…")`; immutable, so it
    can be shared.
    """

    def __init__(self, /, **texts: str) -> None:
        self._templates = {name: Template(text) for name, text in texts.items()}

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Accept a set, texts by name, or a directory of files as an engine's option, which
        overrides its own prompts.
        """
        return no_info_plain_validator_function(_read_prompts)

    def changes(self, default: "PromptSet") -> dict[str, str]:
        """Return the texts that differ from those of `default`."""
        known = default.texts
        return {
            name: text for name, text in self.texts.items() if known.get(name) != text
        }

    @property
    def texts(self) -> dict[str, str]:
        """The prompts as plain text by name."""
        return {name: template.text for name, template in self._templates.items()}

    def fill(self, name: str, /, **values: str | int | float) -> str:
        """Return the prompt `name` with its placeholders filled; `ConfigError` for an unknown
        prompt or placeholder.
        """
        self._check(name)
        return self._templates[name].fill(**values)

    def override(self, /, **texts: str) -> "PromptSet":
        """Return the set with other texts for some prompts, each with the placeholders of the text
        that it replaces.
        """
        for name, text in texts.items():
            self._check(name)
            _check_names(
                self._templates[name].names, Template(text).names, f"prompt {name!r}"
            )
        return PromptSet(**{**self.texts, **texts})

    def from_folder(self, path: str | Path) -> "PromptSet":
        """Return the set with the texts of a directory's files, `NAME.md` or `NAME.txt` (UTF-8), in
        place of its own.
        """
        return self.override(**_read_directory(path))

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


def _read_directory(path: str | Path) -> dict[str, str]:
    directory = Path(path)
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix in SUFFIXES)
        return {file.stem: _read_file(file) for file in files}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"prompts of {str(directory)!r} cannot be read: {error}"
        ) from None


def _read_file(file: Path) -> str:
    return file.read_text(encoding="utf-8").removesuffix("\n")


def _read_prompts(given: object) -> PromptSet:
    if isinstance(given, PromptSet):
        return given
    if isinstance(given, (str, Path)):
        return PromptSet(**_read_directory(given))
    if isinstance(given, Mapping):
        texts = cast("Mapping[object, object]", given)
        if all(map(_is_text, (*texts.keys(), *texts.values()))):
            return PromptSet(**cast("Mapping[str, str]", texts))
    raise ValueError(
        "must be a PromptSet, texts by name, or a directory of NAME.md files"
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def own_prompts(field: dataclasses.Field[Any]) -> PromptSet | None:
    """Return the prompts that an option has by itself, also as `Field(default=...)`."""
    default = field.default
    if isinstance(default, FieldInfo):
        default = default.default
    return default if isinstance(default, PromptSet) else None


def find_changes(field: dataclasses.Field[Any], value: object) -> object:
    """Return what is recorded of an option: of prompts what differs from the option's own."""
    own = own_prompts(field)
    if isinstance(value, PromptSet) and own is not None:
        return value.changes(own)
    return value


def identify_text(given: object, redact: Callable[[str], str]) -> str:
    """Return the hash of a text or a template without secrets; of a function that writes one, its name."""
    if given is None or given == "":
        return ""
    text = given.text if isinstance(given, Template) else given
    if isinstance(text, str):
        clean = redact(text).encode("utf-8", "replace")
        return hashlib.sha256(clean).hexdigest()[:16]
    name = getattr(given, "__qualname__", type(given).__name__)
    return f"{getattr(given, '__module__', '')}.{name}"
