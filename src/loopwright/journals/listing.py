"""What runs are listed by: their tags and their thread."""

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError

MAX_TAGS = 32
"""The maximum number of tags of a run."""
MAX_TAG_NAME = 64
"""The maximum number of characters in the name of a tag."""
MAX_TAG_VALUE = 256
"""The maximum number of characters in the value of a tag, and in the name of a thread."""


def check_tags(tags: Any) -> dict[str, str]:
    """Return the tags of a run; raise `ConfigError` if they are not a mapping of short printable texts."""
    if tags is None:
        return {}
    if not isinstance(tags, Mapping):
        raise ConfigError(
            f'tags: must be a mapping of texts, like {{"user": "42"}}, got {tags!r}'
        )
    given: dict[Any, Any] = {**tags}
    if len(given) > MAX_TAGS:
        raise ConfigError(f"tags: at most {MAX_TAGS}, got {len(given)}")
    for name, value in given.items():
        if not is_printable_name(name, MAX_TAG_NAME):
            raise ConfigError(
                f"tags: a name must be 1 to {MAX_TAG_NAME} printable characters, got {name!r}"
            )
        if not is_printable_name(value, MAX_TAG_VALUE):
            raise ConfigError(
                f"tags[{name!r}]: must be 1 to {MAX_TAG_VALUE} printable characters, got {value!r}"
            )
    return given


def check_thread(thread: Any) -> str:
    """Return the name of a thread, empty for none; raise `ConfigError` if it cannot be one."""
    if thread in ("", None) or is_printable_name(thread, MAX_TAG_VALUE):
        return thread or ""
    raise ConfigError(
        f"thread: must be at most {MAX_TAG_VALUE} printable characters, got {thread!r}"
    )


def is_printable_name(value: object, max_length: int) -> bool:
    """Whether a value is a text of 1 to `max_length` printable characters."""
    return (
        isinstance(value, str) and 0 < len(value) <= max_length and value.isprintable()
    )
