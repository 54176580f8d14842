"""Patterns for hostile texts, matched as a whole and in linear time: globs, and regular expressions."""

import re
from collections.abc import Callable, Iterable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from ..errors import ConfigError

MAX_PATTERN = 1000  # characters


def globs(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name is as one of some globs says: `*` is any text, `?` any one character, all else is itself."""
    return _any(patterns, ".")


def text_globs(patterns: Iterable[str]) -> Callable[[str], bool | None]:
    """The same of a text; `None` where it is so only if a `*` or `?` may be a line break."""
    patterns = tuple(patterns)
    return _on_lines(_any(patterns, "."), _any(patterns, r"[^\r\n]"))


def expression(pattern: str) -> Callable[[str], bool | None]:
    """Whether a whole text fits a regular expression, in the syntax of Rust's `regex` crate. Raises `ConfigError`.

    That engine is linear in the text whatever the pattern is (the one that pydantic uses), which Python's is not: the
    text may be written to make a rule hang. It has no look-around and no back-references. `None` where the text fits
    only if a dot may be a line break, and of a text that has half a character in it.
    """
    if len(pattern) > MAX_PATTERN:
        raise ConfigError(
            f"the expression has {len(pattern)} characters: at most {MAX_PATTERN}"
        )
    if not _is_whole(pattern):
        raise ConfigError(f"{pattern!r} has half a character in it")
    _compiled(pattern)  # alone, so that it cannot close the group that it is put in
    fits = _on_lines(
        _compiled(rf"\A(?s:{pattern})\z"), _compiled(rf"\A(?R:{pattern})\z")
    )
    return lambda text: fits(text) if _is_whole(text) else None


def _on_lines(
    loose: Callable[[str], bool], tight: Callable[[str], bool]
) -> Callable[[str], bool | None]:
    """What both tell: a line break neither gets round `deny ".*secret.*"` nor gets in by `allow "git .*"`."""

    def tell(text: str) -> bool | None:
        fits = loose(text)
        return (
            None
            if fits and ("\n" in text or "\r" in text) and not tight(text)
            else fits
        )

    return tell


def _any(patterns: Iterable[str], sign: str) -> Callable[[str], bool]:
    one = re.compile("|".join(_glob(pattern, sign) for pattern in patterns), re.DOTALL)
    return lambda text: one.fullmatch(text) is not None


def _glob(pattern: str, sign: str) -> str:
    """The first place where what stands between two stars fits is as good as any other, so nothing is tried twice."""
    first, *rest = (
        "".join(sign if c == "?" else re.escape(c) for c in piece)
        for piece in pattern.split("*")
    )
    if not rest:
        return first
    return (
        first
        + "".join(f"(?>{sign}*?{piece})" for piece in rest[:-1])
        + f"{sign}*"
        + rest[-1]
    )


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _compiled(pattern: str) -> Callable[[str], bool]:
    try:
        schema = core_schema.str_schema(
            pattern=pattern, regex_engine="rust-regex", strict=True
        )
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        why = str(error).strip().splitlines()[-1].removeprefix("error: ").strip()
        raise ConfigError(
            f"{pattern!r} is no regular expression that can be used here: {why}"
        ) from None
