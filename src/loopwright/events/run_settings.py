"""The settings that a run read when it began."""

from .._internal import dataclasses
from ..messages import Json, JsonObject


@dataclasses.dataclass(frozen=True)
class RunSettings:
    """The settings of a run, which its children and the agents that it is handed off to have, too.

    Args:
        version: that of the settings as they were read.
        values: all settings by name.
    """

    version: int
    values: JsonObject = dataclasses.field(default_factory=dict[str, Json])
