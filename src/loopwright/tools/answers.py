"""The texts by which people answer a question, and the values that they stand for."""

import functools
import uuid
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from .._internal.options import explain
from ..errors import ConfigError
from ..events.run import Question
from ..messages import Json, JsonObject
from ..parsing import read_json
from .schema import ArgumentSchema, shorten, wrap_schema

T = TypeVar("T")
TRUTH_WORDS: dict[str, Json] = {"yes": True, "y": True, "no": False, "n": False}
MAX_CHOICES_SHOWN = 20
FORMATS: dict[str, type[Any]] = {
    "date": date,
    "date-time": datetime,
    "time": time,
    "duration": timedelta,
    "uuid": uuid.UUID,
}
"""The types of texts whose form JSON schema only names."""


class _AnswerSchema(ArgumentSchema):
    """The schema of an object that holds an answer, of which a person reads what is wrong."""

    def describe_problem(self, error: Any) -> str:
        """Return what is wrong, and where in the answer."""
        path = "/".join(map(str, list(error.absolute_path)[1:]))
        return f"{f'{path}: ' if path else ''}{shorten(error.message)}"


def read_answer(question: Question, text: str) -> tuple[Json, ...]:
    """Return the values that a text may stand for, at least one; raise ValueError saying why it is not an answer."""
    if question.choices:
        return (find_choice(question.choices, text),)
    if not question.schema:
        return (text,)
    schema = _AnswerSchema(
        "the answer", wrap_schema(question.schema), is_generated=True, third_party=False
    )
    values = list(_read_values(text))
    problems = [schema.find_problem({"value": value}) for value in values]
    checked = zip(values, problems, strict=True)
    fitting = tuple(value for value, problem in checked if problem is None)
    if not fitting:
        raise ValueError(problems[0])
    _check_format(question.schema.get("format"), fitting)
    return fitting


def _check_format(name: Json, values: tuple[Json, ...]) -> None:
    """Raise ValueError for a text that does not have the form of its type."""
    kind = FORMATS.get(name) if isinstance(name, str) else None
    for value in values:
        if kind is not None:
            TypeAdapter(kind).validate_python(value)


def find_choice(choices: tuple[str, ...], text: str) -> str:
    """Return the choice that a text names, in whichever case; raise ValueError if it names none."""
    for choice in choices:
        if choice == text:
            return choice
    folded = text.strip().casefold()
    for choice in choices:
        if choice.strip().casefold() == folded:
            return choice
    shown = ", ".join(map(repr, choices[:MAX_CHOICES_SHOWN]))
    raise ValueError(f"must be one of {shown}, got {shorten(text, 80)!r}")


def format_choice(value: Json) -> str:
    """Return a value as a person writes it."""
    return value if isinstance(value, str) else to_json(value).decode()


def find_enumerated(schema: JsonObject) -> list[Json]:
    """Return the values of a schema that names each of them, such as that of a `Literal`."""
    listed = schema.get("enum")
    if isinstance(listed, list):
        return listed
    return [schema["const"]] if "const" in schema else []


def _read_values(text: str) -> Iterator[Json]:
    """Yield what a text may mean: JSON, a word for true or false, the text itself."""
    plain = text.strip()
    try:
        value, end = read_json(plain)
        if end == len(plain):
            yield value
    except ValueError:
        pass
    if plain.casefold() in TRUTH_WORDS:
        yield TRUTH_WORDS[plain.casefold()]
    yield plain


class AnswerType(Generic[T]):
    """What an answer of the user is read as.

    Args:
        into: a text, or any type that pydantic reads.
        name: the name of that type, for errors.
        schema: its JSON schema, without which any text is an answer.
        choices: the values that it may have; of a `Literal` or an enum they are known.

    Raises:
        ConfigError: the choices are not values of that type, or not different ones.
    """

    def __init__(
        self, into: type[T], name: str, schema: JsonObject, choices: Iterable[T] = ()
    ) -> None:
        self.name, self._into = name, into
        values = [self._check_choice(one) for one in _list_choices(choices)]
        values = values or find_enumerated(schema)
        self._values = {format_choice(value): value for value in values}
        folded = {text.strip().casefold() for text in self._values}
        if len(folded) < len(values) or "" in folded:
            raise ConfigError(
                f"choices: must be different texts that are not blank, got {list(self._values)!r:.200}"
            )
        self.schema: JsonObject = {} if values else schema

    @functools.cached_property
    def adapter(self) -> TypeAdapter[T]:
        """Return what reads the type; to build it takes milliseconds."""
        return TypeAdapter[T](self._into)

    def _check_choice(self, choice: T) -> Json:
        try:
            held = self.adapter.validate_python(choice)
        except ValidationError as error:
            raise ConfigError(
                f"choices: {explain(error, self.name)}; give values of the type `into`"
            ) from None
        return cast("Json", self.adapter.dump_python(held, mode="json"))

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the choices as a person writes them."""
        return tuple(self._values)

    def read(self, question: Question, text: str) -> Json:
        """Return the value of an answer as the journal holds it; raise ValueError saying what is wrong."""
        if self._values:
            return self._values[find_choice(self.choices, text)]
        problem = ""
        for value in read_answer(question, text):
            try:
                held = self.adapter.validate_python(value)
            except ValidationError as error:
                problem = explain(error, self.name)
            else:
                return cast("Json", self.adapter.dump_python(held, mode="json"))
        raise ValueError(problem)


def _list_choices(choices: Iterable[Any]) -> list[Any]:
    if isinstance(choices, str) or not isinstance(choices, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"choices: must be a sequence of values, got {choices!r:.80}; give ('yes', 'no'), say"
        )
    return list(choices)


TEXT = AnswerType(str, "str", {})
"""An answer that is any text."""
