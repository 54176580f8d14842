"""Payloads: the XML elements that a reply hands to its engine, read strictly and from the reply's own words only."""

import dataclasses
import html
import re
from collections.abc import Iterator, Mapping
from typing import NoReturn
from xml.parsers import expat

from .fences import FenceCursor, find_fences

MAX_PAYLOADS = 32  # in one reply
MAX_TOKENS = 10_000
CURE = (
    "write `&lt;` and `&amp;` for `<` and `&` in a text, or put it into <![CDATA[...]]>"
)
ASIDES = ("think", "thinking")
"""Elements of a model's own thinking, in which nothing is meant."""

_TOKEN = re.compile(
    r"(?P<code>`+)|(?P<gap>\n[^\S\n]*\n)|(?P<comment><!--)"
    r"|<(?P<closing>/?)(?P<name>[A-Za-z_][\w.-]*)(?=[\s/>])"
)
_MISPLACED = "<{0}> stands in a sentence or an example; begin it on a line of its own, and quote a name as `<{0}>`"
_BEGINS_LINE = re.compile(r"(?:^|\n)[ \t]{0,3}\Z")
_NOTHING_MORE = re.compile(r"[^\S\n]*(?:\n|\Z|(?=<))")


class PayloadError(ValueError):
    """A reply whose payloads cannot be read, so that none of them counts.

    Args:
        code: what is wrong, in a word.
        message: what is wrong, and what to write instead.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Behind(Exception):
    """The element has ended, and what follows does not belong to it."""


@dataclasses.dataclass(frozen=True)
class PayloadForm:
    """What an element may hold.

    Args:
        required: attributes that it must have.
        optional: attributes that it may have.
        child: the name of the elements that it may hold; without one it holds text.
    """

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    child: str = ""


TEXT = PayloadForm()
"""The form of an element that holds text and has no attributes."""


@dataclasses.dataclass
class Payload:
    """One element: its name, its attributes, and its text or the elements in it."""

    tag: str
    attributes: Mapping[str, str]
    text: str = ""
    children: list["Payload"] = dataclasses.field(default_factory=list["Payload"])


def write_element(tag: str, attributes: Mapping[str, object], text: str = "") -> str:
    """Return an element as XML; what it is given is escaped, so that a text cannot end it."""
    values = "".join(
        f' {name}="{html.escape(str(value))}"' for name, value in attributes.items()
    )
    if not text:
        return f"<{tag}{values}/>"
    return f"<{tag}{values}>{html.escape(text, quote=False)}</{tag}>"


def read_payloads(text: str, forms: Mapping[str, PayloadForm]) -> tuple[Payload, ...]:
    """Return the payloads of a reply, in order; raise `PayloadError` if one of them cannot be read.

    A payload begins on a line of its own and nothing stands behind it but another one. What is quoted is none: code
    in fences and between backticks, comments, and a model's thinking.

    Args:
        text: the reply.
        forms: the payloads that there are, and the elements in them, by name.
    """
    return tuple(_PayloadScanner(text, forms))


class _PayloadScanner:
    """Finds the payloads of a reply, one after another."""

    def __init__(self, text: str, forms: Mapping[str, PayloadForm]) -> None:
        self._text, self._forms = text, forms
        children = {form.child for form in forms.values()}
        self._top = forms.keys() - children
        spans, self._unclosed = find_fences(text)
        self._fences = FenceCursor(spans)
        self._position = 0  # behind what was read
        self._end = -1  # of the last payload
        self._in_code = False  # between backticks in a paragraph

    def __iter__(self) -> Iterator[Payload]:
        found = 0
        for count, token in enumerate(self._tokens()):
            if count == MAX_TOKENS:
                raise PayloadError(
                    "too_long",
                    "the reply has too many tags and stretches of code; write less",
                )
            payload = self._read_token(token)
            if payload is None:
                continue
            found += 1
            if found > MAX_PAYLOADS:
                raise PayloadError(
                    "too_many",
                    f"a reply may hold {MAX_PAYLOADS} payloads; send the rest in the next",
                )
            yield payload

    def _tokens(self) -> Iterator[re.Match[str]]:
        """Yield the tags and backticks outside of code fences and of what was read."""
        while True:
            token = _TOKEN.search(self._text, self._position)
            if token is None:
                return
            self._position = token.end()
            if self._unclosed is not None and token.start() >= self._unclosed:
                self._check_unclosed(token)
            elif not self._fences.contains(token.start()):
                yield token

    def _check_unclosed(self, token: re.Match[str]) -> None:
        """Refuse a payload in a code fence that never ends, since it may be meant."""
        if token["name"] in self._top:
            raise PayloadError(
                "malformed",
                "a code fence is never closed, and there is a payload in it; close it",
            )

    def _read_token(self, token: re.Match[str]) -> Payload | None:
        """Return the payload that begins at a tag, if one does."""
        if token["code"] is not None:
            self._in_code = not self._in_code
        elif token["gap"] is not None:
            self._in_code = False
            self._position = token.end() - 1  # the next line may be empty, too
        elif token["comment"] is not None:
            self._skip_to("-->")
        elif not self._in_code:
            return self._read_tag(token, token["name"])
        return None

    def _read_tag(self, token: re.Match[str], name: str) -> Payload | None:
        if name.casefold() in ASIDES:
            if not token["closing"]:
                self._skip_to(f"</{name}>")
            return None
        if not self._begins_line(token.start()):
            if name in self._top:
                raise PayloadError("misplaced", _MISPLACED.format(name))
            return None
        if name not in self._top:
            known = ", ".join(f"<{one}>" for one in self._forms if one in self._top)
            raise PayloadError(
                "unknown_payload", f"there is no payload <{name}>; there are {known}"
            )
        if token["closing"]:
            raise PayloadError("malformed", f"</{name}> closes nothing; open it first")
        return self._read_payload(token.start())

    def _begins_line(self, start: int) -> bool:
        """Return whether nothing but three blanks, or another payload, stands before a tag on its line."""
        if self._end >= 0 and not self._text[self._end : start].strip():
            return True
        return _BEGINS_LINE.search(self._text[max(start - 4, 0) : start]) is not None

    def _skip_to(self, closing: str) -> None:
        """Continue behind an aside; one that never ends takes the rest of the reply."""
        end = self._text.find(closing, self._position)
        self._position = len(self._text) if end < 0 else end + len(closing)

    def _read_payload(self, start: int) -> Payload:
        """Return the payload that begins at `start`, and continue behind it."""
        payload, end = _ElementReader(self._text[start:], self._forms).read()
        self._position = self._end = start + end
        if self._fences.contains(self._end):
            raise PayloadError(
                "malformed",
                f"a code fence begins in <{payload.tag}> and ends behind it; close it there",
            )
        if _NOTHING_MORE.match(self._text, self._position) is None:
            raise PayloadError(
                "misplaced",
                f"words stand behind </{payload.tag}> on its line; a payload stands alone",
            )
        return payload


class _ElementReader:
    """Reads the element at the beginning of a text, and where it ends."""

    def __init__(self, text: str, forms: Mapping[str, PayloadForm]) -> None:
        self._data, self._forms = text.encode("utf-8", "replace"), forms
        self._root: Payload | None = None
        self._open: list[Payload] = []
        self._texts: list[str] = []
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.ordered_attributes = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._close
        parser.CharacterDataHandler = self._texts.append
        parser.CommentHandler = self._refuse_markup
        parser.ProcessingInstructionHandler = self._refuse_markup

    def read(self) -> tuple[Payload, int]:
        """Return the element and the number of characters up to its end."""
        end = len(self._data)
        try:
            self._parser.Parse(self._data, True)
        except expat.ExpatError as error:
            if not self._is_done:
                problem = expat.ErrorString(error.code)
                where = f"{problem} in line {error.lineno} of the payload"
                cure = f"close each element, and {CURE}"
                raise PayloadError("malformed", f"{where}; {cure}") from None
            end = self._parser.ErrorByteIndex
        except _Behind:
            end = self._parser.CurrentByteIndex
        if self._root is None:
            raise PayloadError("malformed", f"the payload has no element; {CURE}")
        return self._root, len(self._data[:end].rstrip().decode())

    @property
    def _is_done(self) -> bool:
        return self._root is not None and not self._open

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._open:
            around = self._open[-1]
            if self._forms[around.tag].child != tag:
                raise PayloadError(
                    "malformed", f"<{around.tag}> cannot hold <{tag}>; {CURE}"
                )
            self._check_blank(around)
        element = Payload(tag, attributes)
        _check_attributes(element, self._forms[tag])
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _close(self, tag: str) -> None:
        element = self._open.pop()
        if self._forms[tag].child:
            self._check_blank(element)
        element.text = "".join(self._texts).strip()
        self._texts.clear()

    def _check_blank(self, element: Payload) -> None:
        """Refuse words between the elements of a payload that holds elements."""
        words = "".join(self._texts).strip()
        self._texts.clear()
        if words:
            child = self._forms[element.tag].child
            raise PayloadError(
                "malformed",
                f"<{element.tag}> holds words beside <{child}>; put them into one",
            )

    def _refuse_markup(self, *_: str) -> NoReturn:
        """Refuse comments and instructions in a payload; behind it they are of the reply."""
        if self._is_done:
            raise _Behind
        raise PayloadError(
            "malformed", f"a comment or an instruction stands in a payload; {CURE}"
        )


def _check_attributes(element: Payload, form: PayloadForm) -> None:
    """Refuse attributes that an element does not have, and the lack of those that it must have."""
    given = element.attributes.keys()
    missing = sorted(form.required - given)
    if missing:
        raise PayloadError("bad_attribute", f'<{element.tag}> needs {missing[0]}="..."')
    unknown = sorted(given - form.required - form.optional)
    if unknown:
        allowed = ", ".join(sorted(form.required | form.optional)) or "none"
        raise PayloadError(
            "bad_attribute",
            f"<{element.tag}> has no attribute {unknown[0]}; it may have: {allowed}",
        )
