"""The engines and pipelines of a file: tables `{engine = name, option = value}`, which may be nested."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

from .._kernel.session.services import Services
from ..engine import LoopEngine
from ..errors import ConfigError
from ..plugins import available_engines, load_engine_class
from .factories import take_name
from .file import FileTables, Values, suggest
from .services import at

MAX_DEPTH = 20


class EngineTables:
    """The engines and pipelines of a file by name, from which engines are built on services of their user."""

    def __init__(self, tables: FileTables) -> None:
        self._tables: dict[str, tuple[str, Values]] = {}
        for group in ("engines", "pipelines"):
            named: Mapping[str, Values] = getattr(tables, group)
            for name, table in named.items():
                self._add(f"{group}.{name}", name, table)

    def _add(self, place: str, name: str, table: Values) -> None:
        if name in self._tables:
            raise ConfigError(f"{place}: {self._tables[name][0]} has the name already; take another")  # fmt: skip
        if name in available_engines():
            raise ConfigError(f"{place}: {name!r} is the name of an installed engine; take another")  # fmt: skip
        self._tables[name] = place, table

    def __iter__(self) -> Any:
        return iter(self._tables)

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def build(
        self, services: Services, given: str | Values, place: str, depth: int = 0
    ) -> LoopEngine:
        """Return the engine that a name or a table stands for; raise `ConfigError` with the path of what is wrong."""
        if depth > MAX_DEPTH:
            raise ConfigError(
                f"{place}: engines are nested more than {MAX_DEPTH} deep; one may be a part of itself"
            )
        table: Values = {"engine": given} if isinstance(given, str) else given
        name, options = take_name(table, "engine", place)
        if name in self._tables:
            where, known = self._tables[name]
            if options:
                raise ConfigError(
                    f"{place}: {where} has the options of {name!r}; write {', '.join(options)} there"
                )
            return self.build(services, known, where, depth + 1)
        return self._build_installed(services, name, options, place, depth)

    def _build_installed(
        self, services: Services, name: str, options: Values, place: str, depth: int
    ) -> LoopEngine:
        installed = available_engines()
        if name not in installed:
            known = [*self._tables, *installed]
            raise ConfigError(f"{place}.engine: there is no engine {name!r}; {suggest(name, known)}")  # fmt: skip
        with at(place):
            kind = load_engine_class(name)
        fields = [field.name for field in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType] - pydantic's
        fields.remove("runtime")
        for option in options:
            if option not in fields:
                raise ConfigError(f"{place}.{option}: {name} has no such option; {suggest(option, fields)}")  # fmt: skip
        built = {
            option: self._build_value(services, value, f"{place}.{option}", depth + 1)
            for option, value in options.items()
        }
        with at(place):
            return kind(services, **built)

    def _build_value(
        self, services: Services, value: Any, place: str, depth: int
    ) -> Any:
        """Return an option, with engines in the place of their tables."""
        if isinstance(value, list):
            items = cast("Sequence[Any]", value)
            return [
                self._build_value(services, one, f"{place}.{number}", depth)
                for number, one in enumerate(items)
            ]
        if not isinstance(value, dict):
            return value
        table = cast("Values", value)
        if "engine" in table:
            return self.build(services, table, place, depth)
        return table
