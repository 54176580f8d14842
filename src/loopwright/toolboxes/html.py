"""HTML to plain text: the text of a page that a reader would see, with the targets of its links."""

import re
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urljoin

from ..errors import ConfigError, ToolError
from .css_visibility import is_hidden, read_style

MAX_SECONDS = 5.0
MAX_DEPTH = 2_000
"""Open elements; an end tag without a start tag is looked for among all of them."""
MAX_NESTED = 60
"""Nested blocks that are laid out; the text of deeper ones belongs to the innermost of these."""
MAX_LISTS = 8
MAX_BLOCKS = 50_000
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
# The elements that are laid out as blocks, and the block of each. Other elements are text of the
# element around them. Tables get separators, not columns: one wide cell would pad every row.
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
# Characters that an XML tree cannot contain.
UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def page_text(html: str, url: str) -> tuple[str, str]:
    """Return the title and the text of a page.

    Scripts, style sheets, comments, embedded objects and hidden elements are left out. Links become
    `[text](absolute address)`. The time is linear in the length of any page.

    Args:
        html: the page.
        url: the address of the page, to make links absolute.

    Raises:
        ToolError: the page is nested too deeply, or takes more than 5 seconds.
        ConfigError: inscriptis is not installed.
    """
    try:
        inscriptis: Any = import_module("inscriptis.html_engine")
        settings: Any = import_module("inscriptis.model.config")
        styles: Any = import_module("inscriptis.css_profiles")
        etree: Any = import_module("lxml.etree")  # inscriptis lays out its trees
    except ImportError as error:
        raise ConfigError(
            "the web toolbox needs inscriptis: pip install 'loopwright[toolboxes]'"
        ) from error
    builder = VisibleTree(etree.TreeBuilder(), url)
    parser: Any = etree.HTMLParser(target=builder, encoding="utf-8")
    raw = UNPRINTABLE.sub("", html).encode()
    for start in range(0, len(raw), CHUNK):
        builder.check_time()
        parser.feed(raw[start : start + CHUNK])
    if raw.strip():
        parser.close()
    tree = builder.close_tree()
    text = ""
    if tree is not None:
        config = settings.ParserConfig(css=styles.STRICT_CSS_PROFILE)
        text = str(inscriptis.Inscriptis(tree, config).get_text())
    title = " ".join("".join(builder.title).split())[:MAX_TITLE]
    stripped = re.sub(r"[ \t]+$", "", text, flags=re.M)
    return title, re.sub(r"\n{3,}", "\n\n", stripped).strip()


class VisibleTree:
    """Receives the events of a parser and builds a small tree of the visible blocks and text.

    Attributes are dropped: a margin of a billion lines would be laid out, too.
    """

    def __init__(self, tree: Any, url: str) -> None:
        self.title: list[str] = []
        self._tree, self._url = tree, url
        # The block, the background and the closing text of each visible element that is open.
        self._open: list[tuple[str, str, str]] = []
        self._hidden = 0  # open elements in a hidden one, itself included
        self._nested = self._lists = self._blocks = 0
        self._in_title = self._in_row = False
        self._deadline = time.monotonic() + MAX_SECONDS

    def check_time(self) -> None:
        """Raise `ToolError` if reading the page takes too long."""
        if time.monotonic() > self._deadline:
            raise ToolError(f"the page took more than {MAX_SECONDS:g} seconds to read")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Open an element."""
        if len(self._open) + self._hidden >= MAX_DEPTH:
            raise ToolError("the page is nested too deeply to be read")
        is_second_title = tag == "title" and bool(self.title)
        if self._hidden or is_second_title or tag in UNSEEN:
            self._hidden += 1
            return
        style = read_style(attributes)
        inherited = self._open[-1][1] if self._open else ""
        own = style.get("background", inherited)
        background = style.get("background-color", own)
        if is_hidden(tag, attributes, style, background):
            self._hidden += 1
            return
        self._in_title = tag == "title"
        closing = self._write_opening(tag, attributes)
        block = self._open_block(LAID_OUT.get(tag, ""))
        self._open.append((block, background, closing))

    def end(self, tag: str) -> None:
        """Close an element."""
        if self._hidden:
            self._hidden -= 1
            return
        self._in_title = False
        block, _, closing = self._open.pop()
        self.data(closing)
        if block:
            self._tree.end(block)
            self._nested -= 1
            self._lists -= block in LISTS

    def data(self, text: str) -> None:
        """Add text."""
        text = UNPRINTABLE.sub("", text)
        if self._in_title:
            self.title.append(text)
        elif text and self._nested and not self._hidden:
            self._tree.data(text)

    def comment(self, text: str) -> None:
        """Ignore a comment."""

    def pi(self, target: str, data: str | None = None) -> None:
        """Ignore a processing instruction."""

    def close(self) -> None:
        """Ignore the end of the page; `close_tree` returns the tree."""

    def close_tree(self) -> Any:
        """Return the tree; `None` if nothing is visible."""
        return self._tree.close() if self._blocks else None

    def _write_opening(self, tag: str, attributes: Mapping[str, str]) -> str:
        """Write the text before the content of an element, and return the text after it."""
        if tag == "tr":
            self._in_row = False
        elif tag in ("td", "th"):
            self.data(" | " if self._in_row else "")
            self._in_row = True
        elif tag == "a":
            link = absolute_url(self._url, attributes.get("href", ""))
            self.data("[" if link else "")
            return f"]({link})" if link else ""
        elif tag == "img" and attributes.get("alt", "").strip():
            self.data(f"[image: {attributes['alt'][:MAX_TITLE]}]")
        return ""

    def _open_block(self, block: str) -> str:
        """Open a block within the limits, and return the block that was opened."""
        if not block or self._nested >= MAX_NESTED or self._blocks >= MAX_BLOCKS:
            return ""
        if block in LISTS and self._lists >= 2 * MAX_LISTS:  # a list and its item
            block = "div"
        self._tree.start(block, {})
        self._nested += 1
        self._blocks += 1
        self._lists += block in LISTS
        return block


def absolute_url(url: str, link: str) -> str:
    """Return the address of a link, if it leads to another page; else an empty text."""
    link = link.strip()[: MAX_LINK + 1]
    if not link or link.startswith("#"):
        return ""
    try:
        target = urljoin(url, link)
    except ValueError:
        return ""
    if not target.startswith(("http://", "https://")) or len(target) > MAX_LINK:
        return ""
    return re.sub(r"[\s()]+", _percent_encode, target)


def _percent_encode(found: re.Match[str]) -> str:
    return "".join(f"%{ord(character):02X}" for character in found[0])
