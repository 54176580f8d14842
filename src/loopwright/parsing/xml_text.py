"""Replies with calls in tags: their thoughts, the calls in `<tool_call>`, and results that the
model made up.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .._internal import dataclasses
from .._internal.regex import compile_late
from ..messages import Json
from .fences import FENCE_STARTS, read_fence
from .json_text import read_object

MAX_CALLS = 32  # in one reply; each costs a search of the rest of the text
MAX_PARAMETERS = 64  # of a call that is not in JSON
MAX_TOKENS = 10_000
MAX_TAG = (
    200  # characters; a longer text that begins like a tag is not held back in a stream
)
TAG_NAMES = ("tool_call", "tool_response", "tool_result", "function=")
NO_CALL = "There is something else than a call in JSON where one must stand."
TOO_MANY = f"There are more than {MAX_CALLS} calls in the reply."
QUOTED = (
    "A `<tool_call>` that is quoted, in an example, in thinking or in the middle of a sentence is no call: a call "
    "stands on lines of its own, with nothing behind it."
)
CODE_INDENT = (
    4  # blanks before a line that make it code, behind an empty line (CommonMark)
)
QUOTES = "\"'\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb\u2039\u203a(>"  # also a parenthesis, and what ends in `>`

# The names are also read in capitals, with blanks beside them and with attributes; a tag that is cut by the end of the
# text counts, so that half a tag is not taken for prose.
_TAG = (
    r"<\s*+(?P<closing>/)?+\s*+(?:(?P<kind>tool_call|tool_response|tool_result)(?:[\s/][^<>]*+)?+"
    r"|(?P<function>function=[^<>]*+))(?:>|\Z)"
)
_ANY_TAG = compile_late(_TAG, re.IGNORECASE)
# What begins or ends an aside, in which no call is meant: thinking, comments, and code in HTML, which begins at the end
# of a line, since in a line its tags may be words about HTML.
_ASIDE = (
    r"(?P<begins><(?:(?:think|thinking)>|!--|(?:pre|code)(?:\s[^<>]*+)?+>(?=[^\S\n]*+\n)))"
    r"|(?P<ends></(?:think|thinking|pre|code)\s*+>|-->)"
)
_TOKEN = compile_late(
    rf"`++|~{{3,}}+|(?P<gap>\n[^\S\n]*+(?=\n))|{_TAG}|{_ASIDE}", re.IGNORECASE
)
_NAME = compile_late(r"\w++|--")
_NOTHING_MORE = compile_late(
    rf"[^\S\n]*+(?:[.,;][^\S\n]*+)*+(?:\n|\Z|(?={_TAG}))", re.IGNORECASE
)
_INDENT = compile_late(r"[ \t]*+")
_CLOSING = compile_late(r"<\s*+/\s*+tool_call\s*+>", re.IGNORECASE)
_BETWEEN = compile_late(r"[\s,;]*+")
_BLANK_REST = compile_late(r"[^\S\n]*+(?:\n|\Z)")
_FUNCTION = compile_late(r"<\s*+function=([^<>]{1,256}+)>\s*+", re.IGNORECASE)
_PARAMETER = compile_late(r"\s*+<\s*+parameter=([^<>]{1,256}+)>", re.IGNORECASE)
_END_OF_PARAMETER = compile_late(r"</parameter\s*+>", re.IGNORECASE)
_END_OF_FUNCTION = compile_late(r"\s*+</function\s*+>", re.IGNORECASE)


class TaggedCall(NamedTuple):
    """A call whose name and parameters are tags themselves:
    `<function=name><parameter=x>…</parameter></function>`.
    """

    name: str
    values: Mapping[str, str]


WrittenCall: TypeAlias = dict[str, Json] | TaggedCall


@dataclasses.dataclass(frozen=True)
class TaggedReply:
    """What a reply says outside of code.

    Args:
        calls: the calls between its tags, in order.
        thought: the text before the last call.
        rest: the text behind it, or the whole text without a call.
        invented: whether it continues with a tool's result that the model wrote itself, which is
            cut off.
        only_code: whether it is one stretch of code, with a call in it.
    """

    calls: tuple[WrittenCall, ...] = ()
    thought: str = ""
    rest: str = ""
    invented: bool = False
    only_code: bool = False


def has_tag(text: str) -> bool:
    """Return whether there is a whole tag in a text, in code or not."""
    return any(tag[0].endswith(">") for tag in _ANY_TAG.finditer(text))


def may_become_tag(text: str) -> bool:
    """Return whether a text that starts with `<` may be the beginning of a tag."""
    name = text[1:].lstrip().removeprefix("/").lstrip().casefold()
    return any(known.startswith(name) or name.startswith(known) for known in TAG_NAMES)


def read_thought_before_call(text: str) -> str | None:
    """Return the text before the first tag of an unfinished reply; `None` if more text may show the
    tag to be code.
    """
    try:
        tag = next(iter(_TagScanner(text)), None)
    except ValueError:
        return None
    if tag is None or _begins_as_value(text):
        return None
    thought = text[: tag.start()]
    paragraph = thought[thought.rfind("\n\n") + 1 :]
    return None if "`" in paragraph else thought.strip()


def read_tagged_reply(text: str) -> TaggedReply:
    """Return what a reply says.

    A tag means something only outside of code: fences, and stretches between backticks that end in
    the same paragraph. One that is quoted is out of place: behind a quote, `(` or `>` on its line,
    in an indented example, in thinking or a comment, with more words behind it on its line, or in a
    string of a reply that is one JSON value.

    Raises ValueError with a cure for a tag that is never closed, out of place, or holds no call.
    """
    if _ANY_TAG.search(text) is None:
        return TaggedReply(rest=text)
    if _is_value(text):
        raise ValueError(QUOTED)
    calls: list[WrittenCall] = []
    thoughts: list[str] = []
    position = 0
    tags = _TagScanner(text)
    for tag in tags:
        before = text[position : tag.start()]
        if _is_result(tag):
            return TaggedReply(tuple(calls), _join(thoughts), before, invented=True)
        if not _opens_call(tag):
            raise ValueError(f"`{tag[0][:80]}` stands outside of `<tool_call>`.")
        thoughts.append(before.strip())
        inside, position = _read_block(text, tag.end())
        if _NOTHING_MORE.match(text, position) is None:
            raise ValueError(QUOTED)
        calls += inside
        if len(calls) > MAX_CALLS:
            raise ValueError(TOO_MANY)
        tags.continue_at(position)
    only_code = not calls and tags.only_code
    return TaggedReply(
        tuple(calls), _join(thoughts), text[position:], only_code=only_code
    )


def _join(thoughts: Sequence[str]) -> str:
    return "\n".join(filter(None, thoughts))


def _begins_as_value(text: str) -> bool:
    return text.lstrip().startswith(("{", "[", '"', "'"))


def _is_value(text: str) -> bool:
    """Return whether a text is one JSON value or Python literal, in which tags can stand in strings
    alone.

    White space counts as blanks: some models break lines inside a string.
    """
    if not _begins_as_value(text):
        return False
    wrapped = '{"reply": ' + re.sub(r"\s", " ", text) + "}"
    try:
        _, end = read_object(wrapped)
    except ValueError:
        return False
    return end == len(wrapped)


def _is_tag(token: re.Match[str]) -> bool:
    return token["kind"] is not None or token["function"] is not None


def _is_call_tag(tag: re.Match[str]) -> bool:
    return tag["kind"] is not None and tag["kind"].casefold() == "tool_call"


def _is_result(tag: re.Match[str]) -> bool:
    """Return whether a tag begins or ends a tool's result."""
    return tag["kind"] is not None and not _is_call_tag(tag)


def _opens_call(tag: re.Match[str]) -> bool:
    return _is_call_tag(tag) and not tag["closing"]


class _TagScanner:
    """Finds the tags outside of code, one after another; the text that a block was read from is
    skipped.

    Raises ValueError for a call whose context shows that it is only quoted.
    """

    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0
        found = itertools.islice(_TOKEN.finditer(text), MAX_TOKENS)
        self._tokens: Sequence[re.Match[str]] = list(found)
        self._line_end = -1
        self._aside = ""  # the name of the tag that began thinking, a comment or code
        self._code_with_tag: list[tuple[int, int]] = []

    @property
    def only_code(self) -> bool:
        """Whether the text is one stretch of code that holds a tag."""
        if len(self._code_with_tag) != 1:
            return False
        start, end = self._code_with_tag[0]
        outside = self._text[:start] + self._text[end:]
        return not outside.strip()

    def continue_at(self, position: int) -> None:
        """Skip the text before `position`."""
        self._position = position

    def __iter__(self) -> Iterator[re.Match[str]]:
        index = 0
        while index < len(self._tokens):
            token = self._tokens[index]
            index += 1
            if token.start() < self._position or token["gap"] is not None:
                continue
            if _is_tag(token):
                self._check_context(token)
                yield token
            elif token["begins"] or token["ends"]:
                self._read_aside(token)
            else:
                index = self._skip_code(index - 1)
        self._check_unread()

    def _check_unread(self) -> None:
        """Raise ValueError if there is a tag behind the tokens that were read."""
        if len(self._tokens) < MAX_TOKENS:
            return
        start = max(self._tokens[-1].end(), self._position)
        if _ANY_TAG.search(self._text, start) is not None:
            raise ValueError(
                "The reply has too many paragraphs and stretches of code before a tag."
            )

    def _read_aside(self, token: re.Match[str]) -> None:
        """Note where an aside begins and ends."""
        found = _NAME.search(token[0])
        name = found[0].casefold() if found else ""
        if token["begins"]:
            self._aside = self._aside or name
        elif name == self._aside:
            self._aside = ""

    def _check_context(self, tag: re.Match[str]) -> None:
        """Raise ValueError for a call that is quoted, as far as the text before it shows."""
        if not _opens_call(tag):
            return
        line = max(self._text.rfind("\n", 0, tag.start()) + 1, self._position)
        before = self._text[line : tag.start()].rstrip()
        is_quoted = before.endswith(tuple(QUOTES))
        if self._aside or is_quoted or self._is_indented_code(line):
            raise ValueError(QUOTED)

    def _is_indented_code(self, line: int) -> bool:
        """Return whether the line that starts here is indented, as are all those between it and an
        empty line.
        """
        while line > self._position and self._measure_indent(line) >= CODE_INDENT:
            above = self._text.rfind("\n", 0, line - 1) + 1
            if not self._text[above:line].strip():
                return True
            line = above
        return False

    def _measure_indent(self, line: int) -> int:
        found = _INDENT.match(self._text, line)
        return len(found[0].expandtabs(CODE_INDENT)) if found else 0

    def _skip_code(self, opening: int) -> int:
        """Return the index behind the code that opens here, or of the next token if it is not code
        after all.
        """
        is_fence = len(self._tokens[opening][0]) > 2
        closing = (
            self._find_fence_end(opening) if is_fence else self._find_span_end(opening)
        )
        if closing is not None:
            if any(map(_is_tag, self._tokens[opening:closing])):
                start, end = self._tokens[opening].start(), self._tokens[closing].end()
                self._code_with_tag.append((start, end))
            return closing + 1
        if not is_fence:
            return opening + 1
        if any(map(_is_tag, self._tokens[opening:])):
            raise ValueError("A code fence is never closed, and there is a tag in it.")
        return len(self._tokens)

    def _find_fence_end(self, opening: int) -> int | None:
        start, delimiter = self._tokens[opening].start(), self._tokens[opening][0]
        if self._line_end < start:
            end = self._text.find("\n", start)
            self._line_end = len(self._text) if end < 0 else end
        for index in range(opening + 1, len(self._tokens)):
            token = self._tokens[index]
            if token[0].startswith(delimiter) and self._can_close(token):
                return index
        return None

    def _can_close(self, token: re.Match[str]) -> bool:
        """Return whether a run stands on the line of the opening fence, or at the end of its line."""
        if token.start() < self._line_end:
            return True
        return _BLANK_REST.match(self._text, token.end()) is not None

    def _find_span_end(self, opening: int) -> int | None:
        delimiter = self._tokens[opening][0]
        for index in range(opening + 1, len(self._tokens)):
            token = self._tokens[index]
            if token["gap"] is not None:
                return None
            if token[0] == delimiter:
                return index
        return None


def read_calls(text: str) -> list[WrittenCall]:
    """Return the calls in JSON that a text without tags consists of, in a code fence or not; none
    for other text.

    Raises ValueError for a call that cannot be read.
    """
    body = text.strip()
    if not body.startswith(FENCE_STARTS):
        return _read_only_calls(body)
    contents, end = _read_fenced_calls(body, 0)
    return [] if body[end:].strip() else _read_only_calls(contents)


def _read_only_calls(text: str) -> list[WrittenCall]:
    """Return the calls that a text consists of; none if it holds anything else."""
    reader = _CallReader(text, 0)
    reader.read()
    return reader.calls if reader.position == len(text) else []


def _read_fenced_calls(text: str, start: int) -> tuple[str, int]:
    """Return the contents of the code fence at `start`, and where it ends."""
    try:
        return read_fence(text, start)
    except ValueError as error:
        raise ValueError(f"A call cannot be read: {error}.") from None


def _read_block(text: str, start: int) -> tuple[list[WrittenCall], int]:
    """Return the calls between an opening tag that ends at `start` and its closing tag, and where
    that ends.
    """
    reader = _CallReader(text, start)
    reader.read()
    while text.startswith(FENCE_STARTS, reader.position):
        contents, reader.position = _read_fenced_calls(text, reader.position)
        inside = _read_only_calls(contents)
        if not inside:
            raise ValueError(NO_CALL)
        reader.calls += inside
        reader.read()
    closing = _CLOSING.match(text, reader.position)
    if closing is None:
        is_at_end = reader.position == len(text)
        is_cut = is_at_end or _ANY_TAG.match(text, reader.position) is not None
        raise ValueError("`<tool_call>` is never closed." if is_cut else NO_CALL)
    if not reader.calls:
        raise ValueError(NO_CALL)
    return reader.calls, closing.end()


class _CallReader:
    """Reads calls one after another: objects, in a list or not, and calls whose name is a tag
    itself.
    """

    def __init__(self, text: str, start: int) -> None:
        self._text, self.position = text, start
        self.calls: list[WrittenCall] = []
        self._in_list = False
        self._before_list = 0  # number of calls before the list

    def read(self) -> None:
        """Read until the next text is not a call; raise ValueError for one that cannot be read, or
        for too many.
        """
        while True:
            self._skip_separators()
            if len(self.calls) > MAX_CALLS:
                raise ValueError(TOO_MANY)
            if not self._read_next():
                break
        if self._in_list:
            raise ValueError("The `[` before a call is never closed.")

    def _skip_separators(self) -> None:
        between = _BETWEEN.match(self._text, self.position)
        if between is not None:
            self.position = between.end()

    def _read_next(self) -> bool:
        """Read one call, or a bracket of a list; return whether there was one."""
        match self._text[self.position : self.position + 1]:
            case "{":
                self._read_object()
            case "[" if not self._in_list:
                self._open_list()
            case "]" if self._in_list:
                self._close_list()
            case _:
                return self._read_function()
        return True

    def _open_list(self) -> None:
        self._in_list, self._before_list = True, len(self.calls)
        self.position += 1

    def _close_list(self) -> None:
        if len(self.calls) == self._before_list:
            raise ValueError(NO_CALL)
        self._in_list = False
        self.position += 1

    def _read_object(self) -> None:
        try:
            found, self.position = read_object(self._text, self.position)
        except ValueError as error:
            raise ValueError(f"The JSON of a call cannot be read: {error}.") from None
        self.calls.append(found)

    def _read_function(self) -> bool:
        """Read `<function=name>` with its parameters; return whether there is one."""
        opening = _FUNCTION.match(self._text, self.position)
        if opening is None:
            return False
        function, position = opening[1].strip(), opening.end()
        values: dict[str, str] = {}
        while (parameter := _PARAMETER.match(self._text, position)) is not None:
            name = parameter[1].strip()
            end = _END_OF_PARAMETER.search(self._text, parameter.end())
            if end is None:
                raise ValueError(f"The parameter {name} of {function} is never closed.")
            if name in values:
                raise ValueError(f"The parameter {name} of {function} is given twice.")
            if len(values) == MAX_PARAMETERS:
                raise ValueError(f"The parameter {name} of {function} is one too many.")
            value = self._text[parameter.end() : end.start()]
            values[name] = value.removeprefix("\n").removesuffix("\n")
            position = end.end()
        closing = _END_OF_FUNCTION.match(self._text, position)
        if closing is None:
            raise ValueError(f"`<function={function}>` is never closed.")
        self.calls.append(TaggedCall(function, values))
        self.position = closing.end()
        return True
