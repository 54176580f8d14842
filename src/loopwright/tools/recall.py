"""The tool by which a model reads again what was left out of its conversation."""

from ..errors import ToolError
from .base import Tool


def _refuse_outside_run(
    handle: str, lines: str = "", find: str = "", offset: int = 0
) -> str:
    raise ToolError(
        "recall: only a run has what was left out; give the call to a Runtime"
    )


recall = Tool(
    "recall",
    "Read again an earlier result or message that was left out of this conversation to save space.",
    {
        "type": "object",
        "properties": {
            "handle": {
                "type": "string",
                "pattern": r"\S",
                "description": 'the handle that the conversation names, such as "1/12#0"; "all" to search all by `find`',
            },
            "lines": {
                "type": "string",
                "description": 'the lines to read, such as "10-40"',
            },
            "find": {
                "type": "string",
                "description": "a text to look for, upper or lower case; the places that have it are shown",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "the number of characters to skip, to read a long text on",
            },
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    _refuse_outside_run,
    "read",
    label="public",
    trusted=True,
    recalls=True,
)
"""Offered to a model once something of its conversation was left out, unless another tool has the name."""
