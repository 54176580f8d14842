"""The schema that Cedar policies are checked against, and the request made from a call."""

import datetime
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, cast, runtime_checkable

from ..._internal import dataclasses
from ...errors import ConfigError
from ...labels import LABELS
from ...messages import Json, JsonObject
from ..base import RESPOND, Action, PolicyState
from ..provenance import TRUSTED
from .roster import NO_ROSTER, Roster
from .values import (
    Cedar,
    CedarType,
    Field,
    Flag,
    JsonText,
    Record,
    SetOf,
    Text,
    UnencodableValue,
    Whole,
    check_defaults,
    record_of,
)

CALL, UNDO, DELEGATE, ANSWER = "call", "undo", "delegate", "respond"
OWN = (CALL, UNDO, DELEGATE, ANSWER)
UNDOES = ":undo"
MOMENT: dict[str, Json] = {"type": "Extension", "name": "datetime"}
FACTS: Mapping[str, CedarType] = {
    "tool": Text(),
    "effect": Text(),
    "run_id": Text(),
    "iteration": Whole(),
    "llm_calls": Whole(),
    "tool_calls": Whole(),
    "label": Whole(),
    "labels": SetOf(Text()),
    "several": SetOf(Text()),
    "outbound": Flag(),
    "planned": Flag(),
    "in_plan": Flag(),
    "copied": SetOf(Text()),
    "author": Text(),
    "source": Text(),
    "trusted": SetOf(Text()),
    "typed": SetOf(Text()),
    "stray": SetOf(Text()),
    "untyped": SetOf(Text()),
    "untrusted": SetOf(Text()),
    "provenance": SetOf(Text()),
}
TYPED: Mapping[str, Record] = {
    DELEGATE: Record(
        {"engine": Field(Text(), required=True), "task": Field(Text(), required=True)}
    ),
    ANSWER: Record(
        {
            "answer": Field(Text(), required=False),
            "status": Field(Text(), required=False),
            "stop_reason": Field(Text(), required=False),
            "output": Field(JsonText(), required=False),
        }
    ),
}


@runtime_checkable
class Described(Protocol):
    """The properties of a tool that policies may use, as `Tool` and `ToolSpec` have them."""

    @property
    def name(self) -> str:
        """Return the name that calls use."""
        ...

    @property
    def schema(self) -> JsonObject:
        """Return the JSON schema of its arguments."""
        ...


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The actions that policies can name, with the type of their arguments where it is known."""

    typed: Mapping[str, Record]
    roster: Roster = NO_ROSTER

    @classmethod
    def of(cls, tools: Iterable[Described], roster: Roster = NO_ROSTER) -> "Vocabulary":
        """Return the actions of the gate itself, and one for each tool.

        Raises `ConfigError` for a value that is not a tool, a name that is taken, and a default that
        Cedar cannot represent.
        """
        typed = dict(TYPED)
        for tool in tools:
            if not isinstance(tool, Described):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(
                    f"tools: {tool!r} is not a Tool; make one of a function with @tool"
                )
            _check_name(tool.name, typed.keys())
            typed[tool.name] = _record_of(tool)
        return cls(typed, roster)

    def schema(self) -> str:
        """Return the Cedar schema, in its JSON format."""
        known = self.roster.attributes
        actions: dict[str, Json] = {CALL: _action(known, [])}
        for name in (UNDO, DELEGATE, ANSWER):
            actions[name] = _action({**known, **self._arguments(name)}, [])
        for name in self.typed.keys() - set(OWN):
            arguments = {**known, **self._arguments(name)}
            actions[name] = _action(arguments, [{"id": CALL}])
        entities: dict[str, Json] = {
            "Agent": {}, "Tool": {}, **self.roster.entity_types,
        }  # fmt: skip
        return json.dumps(
            {"": {"entityTypes": entities, "actions": actions}}, sort_keys=True
        )

    def request(self, action: Action, state: PolicyState) -> dict[str, object]:
        """Return the request about an action.

        Raises `UnencodableValue` if an argument has no counterpart in Cedar.
        """
        name, tool = self._resolve(action.tool)
        several: set[str] = set()
        context = _facts(tool, action, state)
        context |= self.roster.describe(action.principal)
        if name in self.typed:
            context["arguments"] = self.typed[name].encode(
                dict(action.arguments), "", several
            )
        context["several"] = cast("list[Cedar]", sorted(several))
        return {
            "principal": {"type": "Agent", "id": state.engine},
            "action": {"type": "Action", "id": name},
            "resource": {"type": "Tool", "id": tool},
            "context": json.dumps(context),
        }

    def _arguments(self, name: str) -> dict[str, Json]:
        return {"arguments": self.typed[name].declared} if name in self.typed else {}

    def _resolve(self, tool: str) -> tuple[str, str]:
        """Return the name of the action, and the tool that it is about."""
        if tool == RESPOND:
            return ANSWER, ANSWER
        if tool in self.typed and tool != ANSWER:
            return tool, tool
        if tool.endswith(UNDOES):
            return UNDO, tool.removesuffix(UNDOES)
        return CALL, tool


def _check_name(name: str, taken: Collection[str]) -> None:
    if name in OWN:
        raise ConfigError(
            f"tools: {name!r} is an action of the gate itself; "
            "leave it out, or give it another name"
        )
    if name in taken:
        raise ConfigError(
            f"tools: {name!r} is given twice; remove one, or give it another name"
        )


def _record_of(tool: Described) -> Record:
    record = record_of(tool.schema)
    try:
        check_defaults(record)
    except UnencodableValue as error:
        raise ConfigError(
            f"tools: Cedar cannot represent a default of {tool.name!r}, so each call would have "
            f"to give it: {error}; give it another default, or none, or leave the tool out if no "
            "policy reads its arguments"
        ) from None
    return record


def _action(arguments: Mapping[str, Json], groups: list[Json]) -> Json:
    facts: dict[str, Json] = {name: kind.declared for name, kind in FACTS.items()}
    context: Json = {
        "type": "Record",
        "attributes": {**facts, "at": MOMENT, **arguments},
    }
    return {
        "memberOf": groups,
        "appliesTo": {
            "principalTypes": ["Agent"],
            "resourceTypes": ["Tool"],
            "context": context,
        },
    }


def _facts(tool: str, action: Action, state: PolicyState) -> dict[str, Cedar]:
    known = {*action.labels, state.label, *(["untrusted"] if state.untrusted else [])}
    return {
        "tool": tool,
        "effect": action.effect,
        "run_id": state.run_id,
        "iteration": state.iteration,
        "llm_calls": state.llm_calls,
        "tool_calls": state.tool_calls,
        "label": max(LABELS.index(label) for label in LABELS if label in known),
        "labels": cast("list[Cedar]", sorted(known)),
        **_describe_flow(action, state),
        "at": {"__extn": {"fn": "datetime", "arg": _moment(state.at)}},
    }


def _describe_flow(action: Action, state: PolicyState) -> dict[str, Cedar]:
    """Return who wrote a call, whether it was planned, and the names of arguments by where they come from.

    A call without an argument that says something has one that was not typed, with an empty name.
    """
    provenance = action.provenance
    kinds = {name: provenance.kind_of(name) for name in provenance}
    trusted = {name for name, kind in kinds.items() if kind in TRUSTED}
    typed = {name for name, kind in kinds.items() if kind == "caller"}
    untyped = kinds.keys() - typed if provenance.says_something else {""}
    untrusted = kinds.keys() - trusted if provenance.says_something else {""}
    named = {f"{name}: {kind}" for name, kind in kinds.items()}
    groups = {
        "trusted": trusted,
        "typed": typed,
        "stray": {*action.destinations} - trusted,
        "untyped": untyped,
        "untrusted": untrusted,
        "provenance": named,
    }
    return {
        "outbound": action.outbound,
        "planned": state.is_planned(action.tool),
        "in_plan": state.is_in_plan(action.tool),
        "copied": cast("list[Cedar]", sorted(action.copied)),
        "author": state.author,
        "source": action.source,
        **{name: cast("list[Cedar]", sorted(group)) for name, group in groups.items()},
    }


def _moment(at: float) -> str:
    """Return seconds since the Unix epoch as Cedar writes a time, in UTC."""
    try:
        moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise UnencodableValue("the time of the request is out of range") from None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
