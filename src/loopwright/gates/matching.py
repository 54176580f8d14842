"""Matching of hostile texts, whole and in linear time: globs and regular expressions."""

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from pydantic_core import SchemaError, SchemaValidator, core_schema

from ..errors import ConfigError
from .expression_size import measure_expression

MAX_PATTERN = 1000  # characters
MAX_WORK = 750_000
"""The weight of an expression times the bytes of a text; beyond it, nothing is decided about the text."""
Matcher: TypeAlias = Callable[[str], bool]
TextMatcher: TypeAlias = Callable[[str], bool | None]
"""Whether a text matches; `None` if it matches only where a wildcard may be a line break."""


def compile_globs(patterns: Iterable[str]) -> Matcher:
    """Return a matcher of names: `*` is any text, `?` one character, anything else is literal."""
    return _match_any(patterns, ".")


def compile_text_globs(patterns: Iterable[str]) -> TextMatcher:
    """Return the same for texts, which is undecided where a `*` or `?` would be a line break.

    Raises `ConfigError` for a glob of more than `MAX_PATTERN` characters.
    """
    patterns = tuple(patterns)
    for pattern in patterns:
        _check_length("glob", pattern)
    return _match_lines(_match_any(patterns, "."), _match_any(patterns, r"[^\r\n]"))


def compile_expression(pattern: str) -> TextMatcher:
    """Return a matcher of whole texts by a regular expression. Raises `ConfigError`.

    The syntax is that of Rust's `regex` crate, without look-around and back-references. That engine
    (the one that pydantic uses) is linear in the text for every pattern, which Python's is not, and
    a text may be written to make a rule hang. What it takes also grows with the size of the pattern:
    a counted repeat inside another one is refused, and a text that is too long for the wildcards and
    counts of the pattern (`MAX_WORK`) is undecided, as one that is not valid Unicode.
    """
    _check_length("expression", pattern)
    if not _is_valid_unicode(pattern):
        raise ConfigError(
            f"{pattern!r} contains half a surrogate pair, which is not a character"
        )
    _compile(pattern)  # alone, so that it cannot close the group around it below
    matches = _match_lines(
        _compile(rf"\A(?s:{pattern})\z"), _compile(rf"\A(?R:{pattern})\z")
    )
    max_bytes = MAX_WORK // max(measure_expression(pattern), 1)
    return lambda text: matches(text) if _has_size(text, max_bytes) else None


def _check_length(what: str, pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise ConfigError(
            f"the {what} has {len(pattern)} characters; use at most {MAX_PATTERN}"
        )


def _has_size(text: str, max_bytes: int) -> bool:
    """Whether a text is valid Unicode of so many bytes at most."""
    try:
        return len(text.encode()) <= max_bytes
    except UnicodeEncodeError:
        return False


def _match_lines(loose: Matcher, strict: Matcher) -> TextMatcher:
    """Combine a matcher whose wildcards match line breaks with one whose wildcards do not.

    So a line break neither evades `deny ".*secret.*"` nor is admitted by `allow "git .*"`.
    """

    def match(text: str) -> bool | None:
        if not loose(text):
            return False
        has_line_break = "\n" in text or "\r" in text
        return None if has_line_break and not strict(text) else True

    return match


def _match_any(patterns: Iterable[str], wildcard: str) -> Matcher:
    sources = (_translate_glob(pattern, wildcard) for pattern in patterns)
    expression = re.compile("|".join(sources), re.DOTALL)
    return lambda text: expression.fullmatch(text) is not None


def _translate_glob(pattern: str, wildcard: str) -> str:
    """Translate a glob to an expression without backtracking.

    The first place where the text between two stars matches is as good as any other one, so an
    atomic group is enough.
    """
    first, *rest = (_translate_part(part, wildcard) for part in pattern.split("*"))
    if not rest:
        return first
    middle = "".join(f"(?>{wildcard}*?{part})" for part in rest[:-1])
    return f"{first}{middle}{wildcard}*{rest[-1]}"


def _translate_part(part: str, wildcard: str) -> str:
    return wildcard.join(map(re.escape, part.split("?")))


def _is_valid_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _compile(pattern: str) -> Matcher:
    schema = core_schema.str_schema(
        pattern=pattern, regex_engine="rust-regex", strict=True
    )
    try:
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        reason = str(error).strip().splitlines()[-1].removeprefix("error: ").strip()
        raise ConfigError(
            f"{pattern!r} is not a regular expression that can be used here: {reason}"
        ) from None
