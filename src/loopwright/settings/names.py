"""Names of settings: `engine.NAME.` or `agent.NAME.`, and which prompt, option or limit of it is meant."""

import re
from typing import Literal, TypeAlias, cast

from .._internal import dataclasses
from ..errors import ConfigError

Kind: TypeAlias = Literal["engine", "agent"]
Part: TypeAlias = Literal["option", "prompts", "limits", "enabled", "instructions"]
_NAME = re.compile(
    r"(engine|agent)\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.(?:(prompts|limits)\.)?([a-z_][a-z0-9_]{0,63})"
)
OF_CODE = "gates, approvers, hooks, effects of tools, URLs and keys of providers and redaction are code alone"


@dataclasses.dataclass(frozen=True)
class SettingName:
    """A name, taken apart: `engine.react.prompts.solve` is the field `solve` in the part `prompts` of the engine `react`."""

    kind: Kind
    owner: str
    part: Part
    field: str

    @classmethod
    def parse(cls, name: object) -> "SettingName":
        """Return a name taken apart; raise `ConfigError` for one that no setting has."""
        found = _NAME.fullmatch(name) if isinstance(name, str) else None
        if found is None:
            raise ConfigError(
                f"name: must be engine.NAME.OPTION, agent.NAME.OPTION, or .prompts.NAME, .limits.NAME, .enabled or "
                f"agent.NAME.instructions; {OF_CODE}; got {name!r:.80}"
            )
        kind, owner, group, field = found.groups()
        is_own = field == "enabled" or (kind == "agent" and field == "instructions")
        part = group or (field if is_own else "option")
        return cls(cast("Kind", kind), owner, cast("Part", part), field)
