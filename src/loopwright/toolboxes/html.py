"""HTML to plain text: what a reader would see of a page, and where its links lead."""

import re
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urljoin

from ..errors import ConfigError, ToolError

MAX_SECONDS = 5.0
MAX_DEPTH = (
    2_000  # open elements: an end tag that fits none of them is looked for in all
)
MAX_NESTED = 60  # blocks within each other that are laid out; the text of what is deeper belongs to the innermost
MAX_LISTS = 8
MAX_BLOCKS = 50_000
MAX_VALUE = 500  # of a declaration in a style; expressions that look for what hides may take the square of it
MAX_LINK = 500
MAX_TITLE = 300
CHUNK = 16_384


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


UNSEEN = frozenset(
    _words("""applet area audio base canvas datalist embed frame frameset iframe link math meta noembed noframes
    noscript object param rp script source style svg template track video""")
)
LISTS = frozenset(("ul", "ol", "li"))
# What is laid out, and as what. All else is text of the element around it. Tables get separators in place of columns:
# one wide cell would pad every row.
LAID_OUT = {
    **{
        tag: tag
        for tag in _words("""address article aside blockquote body br div figcaption figure footer h1 h2 h3 h4 h5 h6
        header hgroup html li main nav ol p pre ul""")
    },
    **dict.fromkeys(
        _words(
            "caption center dd details dl dt fieldset form hr legend option section summary"
        ),
        "div",
    ),
    **dict.fromkeys(("table", "thead", "tbody", "tfoot", "tr"), "div"),
    **dict.fromkeys(("listing", "plaintext", "xmp"), "pre"),
    "menu": "ul",
}
SIZE = re.compile(r"\+?([0-9]{0,9}\.?[0-9]{0,9})(px|pt|em|rem|%|vh|vw)?")
UNPRINTABLE = re.compile(
    r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)  # what no tree may hold
COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.S)  # one without an end goes on to the end
ESCAPE = re.compile(
    r"\\(?:([0-9a-fA-F]{1,6})[ \t\r\n\f]?|([^\r\n\f]))"
)  # `\70 lay` is `play`, and `\p` is `p`
SCALE = re.compile(r"scale(?:x|y|3d)?\(([^()]*)\)")
MATRIX = re.compile(r"matrix\(([^()]*)\)")
NOUGHT = r"(?:0+(?:\.0*)?|\.0+)%?"
ZERO = re.compile(rf"[+-]?{NOUGHT}")
NO_AREA = re.compile(r"rect\((?:[01](?:px)?,?){4}\)|circle\(0.*")
INSET = re.compile(r"inset\(([^()]*?)(?:round[^()]*)?\)")
# Of values without blanks between them: `0050%0` is `0 0 50% 0`, since nobody writes a number with a 0 in front.
INSET_VALUE = re.compile(
    r"0(?![.%a-z])|(?:0|[1-9][0-9]{0,5}|(?=\.))(?:\.[0-9]{1,6})?(?:%|[a-z]+)"
)
SIDES = {
    1: (0, 0, 0, 0),
    2: (0, 1, 0, 1),
    3: (0, 1, 2, 1),
    4: (0, 1, 2, 3),
}  # top, right, bottom, left of so many
FAR_AWAY = re.compile(r"-[0-9]{3,}")
WHITE = frozenset(("white", "#fff", "#ffffff", "rgb(255,255,255)"))
BLACK = frozenset(("black", "#000", "#000000", "rgb(0,0,0)"))


def page_text(html: str, url: str) -> tuple[str, str]:
    """The title and the text of a page.

    Scripts, style sheets, comments, embedded things and what is hidden are left out. Links become
    `[text](absolute address)`. The time is linear in the length, whatever the page is made of.

    Args:
        html: the page.
        url: where it was found, to make links absolute.

    Raises:
        ToolError: the page is nested too deeply, or takes more than 5 seconds.
        ConfigError: inscriptis is not installed.
    """
    try:
        inscriptis: Any = import_module("inscriptis.html_engine")
        settings: Any = import_module("inscriptis.model.config")
        styles: Any = import_module("inscriptis.css_profiles")
        etree: Any = import_module("lxml.etree")  # whose trees inscriptis lays out
    except ImportError as error:
        raise ConfigError(
            "the web toolbox needs inscriptis: pip install 'loopwright[toolboxes]'"
        ) from error
    seen = Seen(etree.TreeBuilder(), url)
    parser: Any = etree.HTMLParser(target=seen, encoding="utf-8")
    raw = UNPRINTABLE.sub("", html).encode()
    for start in range(0, len(raw), CHUNK):
        seen.check_time()
        parser.feed(raw[start : start + CHUNK])
    if raw.strip():
        parser.close()
    tree = seen.tree()
    text = ""
    if tree is not None:
        config = settings.ParserConfig(css=styles.STRICT_CSS_PROFILE)
        text = str(inscriptis.Inscriptis(tree, config).get_text())
    title = " ".join("".join(seen.title).split())[:MAX_TITLE]
    return title, re.sub(
        r"\n{3,}", "\n\n", re.sub(r"[ \t]+$", "", text, flags=re.M)
    ).strip()


class Seen:
    """Takes the events of a parser and builds a small tree of what is seen, with nothing in it but blocks and text.

    No attribute gets that far: a margin of a billion lines would be laid out, too.
    """

    def __init__(self, tree: Any, url: str) -> None:
        self.title: list[str] = []
        self._tree, self._url = tree, url
        self._open: list[
            tuple[str, str]
        ] = []  # of each element that is seen, what it is laid out as and its background
        self._after: list[str] = []  # of each, what is written at its end
        self._unseen = 0  # elements that are open within one that is not seen
        self._nested = self._lists = self._blocks = 0
        self._in_title = self._in_row = False
        self._until = time.monotonic() + MAX_SECONDS

    def check_time(self) -> None:
        """Raise `ToolError` if reading the page takes too long."""
        if time.monotonic() > self._until:
            raise ToolError(f"the page took more than {MAX_SECONDS:g} seconds to read")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        if len(self._open) + self._unseen >= MAX_DEPTH:
            raise ToolError("the page is nested too deeply to be read")
        background = self._open[-1][1] if self._open else ""
        style = style_of(attributes)
        background = style.get("background-color", style.get("background", background))
        if (
            self._unseen
            or tag in UNSEEN
            or is_hidden(tag, attributes, style, background)
        ):
            self._unseen += 1
            return
        self._in_title = tag == "title" and not self.title
        self._after.append(self._begin(tag, attributes))
        self._open.append((self._lay_out(LAID_OUT.get(tag, "")), background))

    def end(self, tag: str) -> None:
        """An element ends."""
        if self._unseen:
            self._unseen -= 1
            return
        self._in_title = False
        self.data(self._after.pop())
        block, _ = self._open.pop()
        if block:
            self._tree.end(block)
            self._nested -= 1
            self._lists -= block in LISTS

    def data(self, text: str) -> None:
        """Text comes."""
        text = UNPRINTABLE.sub("", text)
        if self._in_title:
            self.title.append(text)
        elif self._nested and not self._unseen and text:
            self._tree.data(text)

    def comment(self, text: str) -> None:
        """Comments are not seen."""

    def pi(self, target: str, data: str | None = None) -> None:
        """Instructions are not seen."""

    def close(self) -> None:
        """The parser is done, or has failed."""

    def tree(self) -> Any:
        """What was seen; `None` if nothing was."""
        return self._tree.close() if self._blocks else None

    def _begin(self, tag: str, attributes: Mapping[str, str]) -> str:
        """Write what stands before an element's text, and tell what stands behind it."""
        if tag == "tr":
            self._in_row = False
        elif tag in ("td", "th"):
            self.data(" | " if self._in_row else "")
            self._in_row = True
        elif tag == "a":
            link = absolute(self._url, attributes.get("href", ""))
            self.data("[" if link else "")
            return f"]({link})" if link else ""
        elif tag == "img" and attributes.get("alt", "").strip():
            self.data(f"[image: {attributes['alt'][:MAX_TITLE]}]")
        return ""

    def _lay_out(self, block: str) -> str:
        """Open a block, if there is to be one and it is not one too many; what it is laid out as."""
        if not block or self._nested >= MAX_NESTED or self._blocks >= MAX_BLOCKS:
            return ""
        if block in LISTS and self._lists >= 2 * MAX_LISTS:  # a list and its item
            block = "div"
        self._tree.start(block, {})
        self._nested += 1
        self._blocks += 1
        self._lists += block in LISTS
        return block


def absolute(url: str, link: str) -> str:
    """Where a link leads, if that is another page; else nothing."""
    link = link.strip()[: MAX_LINK + 1]
    try:
        target = urljoin(url, link)
    except ValueError:
        return ""
    usable = (
        link
        and not link.startswith("#")
        and target.startswith(("http://", "https://"))
        and len(target) <= MAX_LINK
    )
    return (
        re.sub(
            r"[\s()]+",
            lambda found: "".join(f"%{ord(each):02X}" for each in found[0]),
            target,
        )
        if usable
        else ""
    )


def style_of(attributes: Mapping[str, str]) -> dict[str, str]:
    """The style of an element's own, names and values in lower case and without blanks."""
    text = COMMENT.sub("", attributes.get("style", ""))
    style: dict[str, str] = {}
    important: set[str] = set()
    for name, colon, value in (part.partition(":") for part in text.split(";")):
        plain, name = _plain(value), _plain(name)
        if not colon or (name in important and not plain.endswith("!important")):
            continue
        important |= {name} if plain.endswith("!important") else set()
        style[name] = plain.removesuffix("!important")[:MAX_VALUE]
    return style


def _plain(text: str) -> str:
    """A word of CSS with its escapes undone, as a browser reads it."""
    return re.sub(r"\s+", "", ESCAPE.sub(_unescaped, text)).lower()


def _unescaped(found: re.Match[str]) -> str:
    number = int(found[1] or "0", 16)
    return found[2] or (
        chr(number) if 0 < number < 0xD800 or 0xDFFF < number < 0x110000 else "\ufffd"
    )


def is_hidden(
    tag: str, attributes: Mapping[str, str], style: Mapping[str, str], background: str
) -> bool:
    """Whether an element is hidden by an attribute or by its own style; style sheets are not read."""
    if (
        "hidden" in attributes
        or "popover" in attributes
        or attributes.get("aria-hidden", "").strip().lower() == "true"
    ):
        return True
    if tag == "dialog" and "open" not in attributes:
        return True
    return bool(style) and (
        _is_left_out(style)
        or _is_too_small(style)
        or _is_shrunk(style)
        or _is_invisible(style, background)
    )


def _is_left_out(style: Mapping[str, str]) -> bool:
    if (
        style.get("display") == "none"
        or style.get("content-visibility") == "hidden"
        or style.get("visibility") in ("hidden", "collapse")
    ):
        return True
    return any(
        FAR_AWAY.match(style.get(name, ""))
        for name in ("text-indent", "left", "top", "margin-left")
    )


def _is_too_small(style: Mapping[str, str]) -> bool:
    if _size(style.get("font-size", "")) <= 1 or _size(style.get("opacity", "")) == 0:
        return True
    clipped = style.get("overflow", "") in ("hidden", "clip")
    return clipped and any(
        _size(style.get(name, "")) == 0
        for name in ("height", "width", "max-height", "max-width")
    )


def _is_shrunk(style: Mapping[str, str]) -> bool:
    """Whether nothing is left of an element once it is transformed, clipped or filtered."""
    if any(
        NO_AREA.match(style.get(name, "")) for name in ("clip", "clip-path")
    ) or _is_cut_away(style):
        return True
    if ZERO.fullmatch(style.get("scale", "")) or re.search(
        rf"opacity\({NOUGHT}\)", style.get("filter", "")
    ):
        return True
    transform = style.get("transform", "")
    if any(
        ZERO.fullmatch(number)
        for found in SCALE.finditer(transform)
        for number in found[1].split(",")[:2]
    ):
        return True
    return any(_is_flat(found[1].split(",")) for found in MATRIX.finditer(transform))


def _is_flat(numbers: Sequence[str]) -> bool:
    """Whether a matrix leaves no area: its determinant is 0, as that of a rotation is not."""
    try:
        a, b, c, d = map(float, numbers[:4])
    except ValueError:  # no matrix, so that a browser does not apply it either
        return False
    return a * d == b * c


def _is_cut_away(style: Mapping[str, str]) -> bool:
    """Whether two opposite sides of an `inset` meet."""
    found = INSET.fullmatch(style.get("clip-path", ""))
    values: list[str] = INSET_VALUE.findall(found[1]) if found else []
    if found is None or len(values) not in SIDES or "".join(values) != found[1]:
        return False
    parts = [float(value[:-1]) if value.endswith("%") else 0 for value in values]
    top, right, bottom, left = (parts[place] for place in SIDES[len(parts)])
    return top + bottom >= 100 or right + left >= 100


def _size(text: str) -> float:
    """The number of a size in CSS; infinite if it is none, or relative and not 0."""
    found = SIZE.fullmatch(text)
    number = float(found[1]) if found and found[1] not in ("", ".") else float("inf")
    return (
        number if number == 0 or (found and found[2] in ("px", "pt")) else float("inf")
    )


def _is_invisible(style: Mapping[str, str], background: str) -> bool:
    color = style.get("color", "")
    if color == "transparent" or re.fullmatch(
        rf"(rgb|hsl)a\([^()]*[,/]{NOUGHT}\)", color
    ):
        return True
    return bool(color) and (
        color == background
        or any({color, background} <= same for same in (WHITE, BLACK))
    )
