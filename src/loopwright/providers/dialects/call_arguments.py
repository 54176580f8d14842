"""The arguments of a call inside a JSON object, as an object or as text."""

from ...messages import Json, JsonObject
from ...parsing.arguments import Signature, read_arguments


def read_call_arguments(
    value: Json, field: str, name: str, tool: Signature | None
) -> JsonObject:
    """Return the arguments of a call of `name`; a text is read as the tool's parameters allow.

    Raises:
        ValueError: the value of `field` is not an object or readable text; the text tells the model why.
    """
    if isinstance(value, dict):
        return value
    if value is not None and not isinstance(value, str):
        raise ValueError(f"The `{field}` of {name} must be a JSON object.")
    arguments, rest = read_arguments(value or "", name, tool)
    if rest.strip():
        raise ValueError(f"There is text behind the arguments of {name}.")
    return arguments
