"""YAML with the values of JSON: no key twice, no anchors, no tags, and only `true` and `false` are
booleans.
"""

from typing import Any

from .._internal.regex import compile_late
from ..errors import ConfigError
from ..messages import Json

_INTEGER = compile_late("-?(?:0|[1-9][0-9]{0,18})")
_NUMBER = compile_late(
    r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?(?:[eE][-+]?[0-9]{1,3})?"
)
_CONSTANTS: dict[str, Json] = {
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "": None,
}
_TAG_PREFIX = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    "null",
    "bool",
    "int",
    "float",
    "str",
    "seq",
    "map",
    "timestamp",
    "merge",
    "value",
}


def read_yaml(text: str) -> Json:
    """Return the value of a YAML document, scalars read as in the JSON schema of YAML 1.2.

    So `on`, `12:30`, `0x10` and `2026-01-01` are texts. Raises `ConfigError`, with the line.
    """
    try:
        import yaml  # noqa: PLC0415 - optional, and loaded at first use
    except ImportError:
        raise ConfigError("YAML needs PyYAML: pip install 'loopwright[yaml]'") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _Reader().read(node)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"is not YAML: {reason}") from None
    except RecursionError:
        raise ConfigError("is nested too deeply") from None


class _Reader:
    """Reads the nodes of one document; a node that it meets again is an alias."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def read(self, node: Any) -> Json:
        """Return the value of a node."""
        if id(node) in self._seen:
            raise ConfigError(f"{_get_line(node)}: an alias: write it out")
        self._seen.add(id(node))
        if node.tag.removeprefix(_TAG_PREFIX) not in _PLAIN_TAGS:
            raise ConfigError(
                f"{_get_line(node)}: a tag {node.tag!r}: only plain values are read"
            )
        if node.id == "mapping":
            return self._read_mapping(node)
        if node.id == "sequence":
            return [self.read(item) for item in node.value]
        return _read_scalar(node)

    def _read_mapping(self, node: Any) -> Json:
        read: dict[str, Json] = {}
        for key_node, value_node in node.value:
            name = self._read_key(key_node)
            if name in read:
                raise ConfigError(
                    f"{_get_line(key_node)}: the key {name!r} is given twice"
                )
            read[name] = self.read(value_node)
        return read

    def _read_key(self, node: Any) -> str:
        """Return a key; one that looks like a number or a boolean is the text that was written."""
        key = self.read(node)
        name = key if isinstance(key, str) else getattr(node, "value", "")
        if not isinstance(name, str):
            raise ConfigError(f"{_get_line(node)}: a key that is not a text")
        return name


def _read_scalar(node: Any) -> Json:
    text: str = node.value
    if node.style is not None:  # quoted, or a block
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _get_line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}"
