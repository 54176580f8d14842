"""YAML with the values of JSON: no key twice, no anchors, no tags, and only `true` and `false` are booleans."""

import re
from typing import Any

from ..errors import ConfigError
from ..messages import Json

_INTEGER = re.compile("-?(?:0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(
    r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?(?:[eE][-+]?[0-9]{1,3})?"
)
_WORDS: dict[str, Json] = {
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "": None,
}
_PLAIN = "tag:yaml.org,2002:"
_TAGS = {
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
    """The value of a YAML document, scalars read as in the JSON schema of YAML 1.2.

    So `on`, `12:30`, `0x10` and `2026-01-01` are texts. Raises `ConfigError`, with the line.
    """
    try:
        import yaml  # noqa: PLC0415 - optional, and loaded at first use
    except ImportError:
        raise ConfigError("YAML needs PyYAML: pip install 'loopwright[yaml]'") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _value(node, set())
    except yaml.YAMLError as error:
        raise ConfigError(f"is no YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError("is nested too deeply") from None


def _value(node: Any, seen: set[int]) -> Json:
    if id(node) in seen:
        raise ConfigError(f"{_line(node)}: an alias: write it out")
    seen.add(id(node))
    if node.tag.removeprefix(_PLAIN) not in _TAGS:
        raise ConfigError(
            f"{_line(node)}: a tag {node.tag!r}: only plain values are read"
        )
    if node.id == "mapping":
        return _mapping(node, seen)
    if node.id == "sequence":
        return [_value(part, seen) for part in node.value]
    return _scalar(node)


def _mapping(node: Any, seen: set[int]) -> Json:
    read: dict[str, Json] = {}
    for key_node, value_node in node.value:
        key = _value(key_node, seen)
        name = key if isinstance(key, str) else getattr(key_node, "value", "")
        if not isinstance(name, str):
            raise ConfigError(f"{_line(key_node)}: a key that is no text")
        if name in read:
            raise ConfigError(f"{_line(key_node)}: the key {name!r} is given twice")
        read[name] = _value(value_node, seen)
    return read


def _scalar(node: Any) -> Json:
    text: str = node.value
    if node.style is not None:  # quoted, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text


def _line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}"
