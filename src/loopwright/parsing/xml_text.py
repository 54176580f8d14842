"""The parts of a reply with calls in tags: thoughts, what stands in `<tool_call>`, and results the model made up."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ..messages import Json
from .fences import read_fence
from .json_text import read_object

MAX_CALLS = 32  # in one reply; each costs a look at what is left of the text
MAX_PARAMETERS = 64  # of a call that is not JSON
MAX_TOKENS = 10_000
MAX_TAG = 200  # letters; what begins like a tag and is longer is not looked at while a reply comes
WORDS = ("tool_call", "tool_response", "tool_result", "function=")
FENCES = ("```", "~~~")
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

# The three words are also read in capitals, with blanks beside them and with attributes; a tag that the text ends in is
# one, so that half a tag is not taken for prose.
_TAG = (
    r"<\s*+(?P<closing>/)?+\s*+(?:(?P<kind>tool_call|tool_response|tool_result)(?:[\s/][^<>]*+)?+"
    r"|(?P<function>function=[^<>]*+))(?:>|\Z)"
)
_ANY_TAG = re.compile(_TAG, re.IGNORECASE)
# What begins a stretch that is not said to anybody, or ends it: thinking, comments, and code in HTML, which begins at
# the end of a line, since in a line its tags may be words about HTML.
_ASIDE = (
    r"(?P<begins><(?:(?:think|thinking)>|!--|(?:pre|code)(?:\s[^<>]*+)?+>(?=[^\S\n]*+\n)))"
    r"|(?P<ends></(?:think|thinking|pre|code)\s*+>|-->)"
)
_TOKEN = re.compile(
    rf"`++|~{{3,}}+|(?P<gap>\n[^\S\n]*+(?=\n))|{_TAG}|{_ASIDE}", re.IGNORECASE
)
_NAME = re.compile(r"\w++|--")
_NOTHING_MORE = re.compile(
    rf"[^\S\n]*+(?:[.,;][^\S\n]*+)*+(?:\n|\Z|(?={_TAG}))", re.IGNORECASE
)
_INDENT = re.compile(r"[ \t]*+")
_CLOSING = re.compile(r"<\s*+/\s*+tool_call\s*+>", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s,;]*+")
_BLANK_REST = re.compile(r"[^\S\n]*+(?:\n|\Z)")
_FUNCTION = re.compile(r"<\s*+function=([^<>]{1,256}+)>\s*+", re.IGNORECASE)
_PARAMETER = re.compile(r"\s*+<\s*+parameter=([^<>]{1,256}+)>", re.IGNORECASE)
_END_OF_PARAMETER = re.compile(r"</parameter\s*+>", re.IGNORECASE)
_END_OF_FUNCTION = re.compile(r"\s*+</function\s*+>", re.IGNORECASE)


class TaggedCall(NamedTuple):
    """A call whose name and parameters are tags themselves: `<function=name><parameter=x>…</parameter></function>`."""

    name: str
    values: Mapping[str, str]


Written: TypeAlias = dict[str, Json] | TaggedCall


@dataclasses.dataclass(frozen=True)
class TaggedReply:
    """What a reply says outside of code.

    Args:
        calls: what stands between its tags, in order.
        thought: the text before the last call.
        rest: the text behind it, or all of it where there is none.
        invented: whether it goes on with a tool's result that the model wrote itself; that is cut off.
        only_code: whether it is one stretch of code, with a call in it.
    """

    calls: tuple[Written, ...] = ()
    thought: str = ""
    rest: str = ""
    invented: bool = False
    only_code: bool = False


def has_tag(text: str) -> bool:
    """Whether there is a whole tag in a text, in code or not."""
    return any(tag[0].endswith(">") for tag in _ANY_TAG.finditer(text))


def may_become_tag(text: str) -> bool:
    """Whether a text that starts with `<` is a tag so far."""
    word = text[1:].lstrip().removeprefix("/").lstrip().casefold()
    return any(full.startswith(word) or word.startswith(full) for full in WORDS)


def read_thought_before_call(text: str) -> str | None:
    """What stands before the first tag of a text that goes on; `None` where more text may show the tag to be code."""
    try:
        start = next((tag.start() for tag in _Tags(text)), None)
    except ValueError:
        return None
    if (
        start is None
        or "`" in text[text.rfind("\n\n", 0, start) + 1 : start]
        or _begins_as_value(text)
    ):
        return None
    return text[:start].strip()


def read_tagged_reply(text: str) -> TaggedReply:
    """What a reply says; ValueError with a cure for a tag that is never closed, out of place, or holds no call.

    A tag means something only outside of code: fences, and stretches between backticks that end in the same paragraph.
    One that is quoted is out of place: behind a quote, `(` or `>` on its line, in an indented example, in thinking or a
    comment, with more words behind it on its line, or in a string of a reply that is one JSON value.
    """
    if _ANY_TAG.search(text) is None:
        return TaggedReply(rest=text)
    if _is_value(text):
        raise ValueError(QUOTED)
    calls: list[Written] = []
    thoughts: list[str] = []
    position = 0
    tags = _Tags(text)
    for tag in tags:
        if tag["kind"] is not None and tag["kind"].casefold() != "tool_call":
            return _reply(calls, thoughts, text[position : tag.start()], invented=True)
        if tag["closing"] or tag["function"] is not None:
            raise ValueError(f"`{tag[0][:80]}` stands outside of `<tool_call>`.")
        thoughts.append(text[position : tag.start()].strip())
        inside, position = _read_block(text, tag.end())
        if _NOTHING_MORE.match(text, position) is None:
            raise ValueError(QUOTED)
        calls += inside
        if len(calls) > MAX_CALLS:
            raise ValueError(TOO_MANY)
        tags.go_on_at(position)
    return _reply(
        calls, thoughts, text[position:], only_code=not calls and tags.only_code
    )


def _reply(
    calls: list[Written],
    thoughts: list[str],
    rest: str,
    *,
    invented: bool = False,
    only_code: bool = False,
) -> TaggedReply:
    return TaggedReply(
        tuple(calls), "\n".join(filter(None, thoughts)), rest, invented, only_code
    )


def _begins_as_value(text: str) -> bool:
    return text.lstrip().startswith(("{", "[", '"', "'"))


def _is_value(text: str) -> bool:
    """Whether a text is one JSON value or Python literal, in which tags can stand in strings alone.

    White space counts as blanks: some models break lines inside a string.
    """
    if not _begins_as_value(text):
        return False
    wrapped = '{"reply": ' + re.sub(r"\s", " ", text) + "}"
    try:
        return read_object(wrapped)[1] == len(wrapped)
    except ValueError:
        return False


def _is_tag(token: re.Match[str]) -> bool:
    return token["kind"] is not None or token["function"] is not None


class _Tags:
    """Finds the tags outside of code, one after another; what a block was read from is passed over.

    Raises ValueError for a call whose place shows that it is only quoted.
    """

    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0
        self._tokens: Sequence[re.Match[str]] = list(
            itertools.islice(_TOKEN.finditer(text), MAX_TOKENS)
        )
        self._line_end = -1
        self._aside = ""  # the name of the tag that began a stretch of thinking, a comment or code
        self._quoting: list[
            tuple[int, int]
        ] = []  # where there is code that holds a tag

    @property
    def only_code(self) -> bool:
        """Whether the text is one stretch of code that holds a tag."""
        if len(self._quoting) != 1:
            return False
        start, end = self._quoting[0]
        return not self._text[:start].strip() and not self._text[end:].strip()

    def go_on_at(self, position: int) -> None:
        """Pass over what stands before `position`."""
        self._position = position

    def __iter__(self) -> Iterator[re.Match[str]]:
        index = 0
        while index < len(self._tokens):
            token = self._tokens[index]
            index += 1
            if token.start() < self._position or token["gap"] is not None:
                continue
            if _is_tag(token):
                self._check_place(token)
                yield token
            elif token["begins"] or token["ends"]:
                self._take_aside(token)
            else:
                index = self._behind_code(index - 1)
        if len(self._tokens) == MAX_TOKENS:
            behind = self._tokens[-1].end()
            if _ANY_TAG.search(self._text, max(behind, self._position)) is not None:
                raise ValueError(
                    "The reply has too many paragraphs and stretches of code before a tag."
                )

    def _take_aside(self, token: re.Match[str]) -> None:
        found = _NAME.search(token[0])
        name = found[0].casefold() if found else ""
        if token["begins"]:
            self._aside = self._aside or name
        elif name == self._aside:
            self._aside = ""

    def _check_place(self, token: re.Match[str]) -> None:
        """Raise ValueError for a call that is quoted, as far as what stands before it shows."""
        if token["closing"] or (token["kind"] or "").casefold() != "tool_call":
            return
        line = max(self._text.rfind("\n", 0, token.start()) + 1, self._position)
        before = self._text[line : token.start()].rstrip()
        if (
            self._aside
            or before.endswith(tuple(QUOTES))
            or self._is_indented_code(line)
        ):
            raise ValueError(QUOTED)

    def _is_indented_code(self, line: int) -> bool:
        """Whether the line that starts here is indented, as are all those between it and an empty line."""
        while line > self._position and self._indent(line) >= CODE_INDENT:
            above = self._text.rfind("\n", 0, line - 1) + 1
            if not self._text[above:line].strip():
                return True
            line = above
        return False

    def _indent(self, line: int) -> int:
        found = _INDENT.match(self._text, line)
        return len(found[0].expandtabs(CODE_INDENT)) if found else 0

    def _behind_code(self, opening: int) -> int:
        """The token behind the code that opens here; the next one if it is no code after all."""
        run = self._tokens[opening][0]
        closing = (
            self._end_of_fence(opening) if len(run) > 2 else self._end_of_span(opening)
        )
        if closing is not None:
            if any(map(_is_tag, self._tokens[opening:closing])):
                self._quoting.append(
                    (self._tokens[opening].start(), self._tokens[closing].end())
                )
            return closing + 1
        if len(run) > 2 and any(map(_is_tag, self._tokens[opening:])):
            raise ValueError("A code fence is never closed, and there is a tag in it.")
        return len(self._tokens) if len(run) > 2 else opening + 1

    def _end_of_fence(self, opening: int) -> int | None:
        start, run = self._tokens[opening].start(), self._tokens[opening][0]
        if self._line_end < start:
            end = self._text.find("\n", start)
            self._line_end = len(self._text) if end < 0 else end
        for index in range(opening + 1, len(self._tokens)):
            token = self._tokens[index]
            same_line = token.start() < self._line_end
            if token[0].startswith(run) and (
                same_line or _BLANK_REST.match(self._text, token.end())
            ):
                return index
        return None

    def _end_of_span(self, opening: int) -> int | None:
        run = self._tokens[opening][0]
        for index in range(opening + 1, len(self._tokens)):
            if self._tokens[index]["gap"] is not None:
                return None
            if self._tokens[index][0] == run:
                return index
        return None


def read_calls(text: str) -> list[Written]:
    """The calls in JSON that a text without tags consists of, in a code fence or not; none if there is more in it.

    Raises ValueError for a call that cannot be read.
    """
    body = text.strip()
    if body.startswith(FENCES):
        body, end = _inside_fence(body, 0)
        if text.strip()[end:].strip():
            return []
    return _only_calls(body)


def _only_calls(text: str) -> list[Written]:
    items = _Items(text, 0)
    items.read()
    return items.calls if items.position == len(text) else []


def _inside_fence(text: str, start: int) -> tuple[str, int]:
    try:
        return read_fence(text, start)
    except ValueError as error:
        raise ValueError(f"A call cannot be read: {error}.") from None


def _read_block(text: str, start: int) -> tuple[list[Written], int]:
    """The calls between an opening tag that ends at `start` and its closing tag, and where that ends."""
    items = _Items(text, start)
    items.read()
    while text.startswith(FENCES, items.position):
        contents, items.position = _inside_fence(text, items.position)
        inside = _only_calls(contents)
        if not inside:
            raise ValueError(NO_CALL)
        items.calls += inside
        items.read()
    closing = _CLOSING.match(text, items.position)
    if closing is None:
        never_closed = (
            items.position == len(text)
            or _ANY_TAG.match(text, items.position) is not None
        )
        raise ValueError("`<tool_call>` is never closed." if never_closed else NO_CALL)
    if not items.calls:
        raise ValueError(NO_CALL)
    return items.calls, closing.end()


class _Items:
    """Reads calls one after another: objects, in a list or not, and calls in tags of their own."""

    def __init__(self, text: str, start: int) -> None:
        self._text, self.position = text, start
        self.calls: list[Written] = []
        self._in_list, self._before_list = False, 0

    def read(self) -> None:
        """Read on to what is no call; ValueError for one that cannot be read, or for too many."""
        while True:
            between = _BETWEEN.match(self._text, self.position)
            self.position = between.end() if between else self.position
            if len(self.calls) > MAX_CALLS:
                raise ValueError(TOO_MANY)
            if not self._take():
                break
        if self._in_list:
            raise ValueError("The `[` before a call is never closed.")

    def _take(self) -> bool:
        """Whether there was one more."""
        ahead = self._text[self.position : self.position + 1]
        if ahead == "{":
            self._take_object()
            return True
        if ahead == "[" and not self._in_list:
            self._in_list, self._before_list = True, len(self.calls)
            self.position += 1
            return True
        if ahead == "]" and self._in_list:
            if len(self.calls) == self._before_list:
                raise ValueError(NO_CALL)
            self._in_list = False
            self.position += 1
            return True
        opening = _FUNCTION.match(self._text, self.position)
        if opening is not None:
            self._take_function(opening)
        return opening is not None

    def _take_object(self) -> None:
        try:
            found, self.position = read_object(self._text, self.position)
        except ValueError as error:
            raise ValueError(f"The JSON of a call cannot be read: {error}.") from None
        self.calls.append(found)

    def _take_function(self, opening: re.Match[str]) -> None:
        values: dict[str, str] = {}
        position, function = opening.end(), opening[1].strip()
        while (parameter := _PARAMETER.match(self._text, position)) is not None:
            name = parameter[1].strip()
            end = _END_OF_PARAMETER.search(self._text, parameter.end())
            if end is None:
                raise ValueError(f"The parameter {name} of {function} is never closed.")
            if name in values or len(values) == MAX_PARAMETERS:
                fault = "is given twice" if name in values else "is one too many"
                raise ValueError(f"The parameter {name} of {function} {fault}.")
            values[name] = (
                self._text[parameter.end() : end.start()]
                .removeprefix("\n")
                .removesuffix("\n")
            )
            position = end.end()
        closing = _END_OF_FUNCTION.match(self._text, position)
        if closing is None:
            raise ValueError(f"`<function={function}>` is never closed.")
        self.calls.append(TaggedCall(function, values))
        self.position = closing.end()
