"""Whether an element of a page is hidden, by its attributes and its own style."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

Style: TypeAlias = Mapping[str, str]
"""Names and values of a style, in lower case and without blanks."""

MAX_VALUE = 500
"""Characters of a declaration; the expressions below may take the square of them."""
COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.S)  # one without an end extends to the end
ESCAPE = re.compile(
    r"\\(?:([0-9a-fA-F]{1,6})[ \t\r\n\f]?|([^\r\n\f]))"
)  # `\70 lay` is `play`, and `\p` is `p`
SIZE = re.compile(r"\+?([0-9]{0,9}\.?[0-9]{0,9})(px|pt|em|rem|%|vh|vw)?")
SCALE = re.compile(r"scale(?:x|y|3d)?\(([^()]*)\)")
MATRIX = re.compile(r"matrix\(([^()]*)\)")
NOUGHT = r"(?:0+(?:\.0*)?|\.0+)%?"
ZERO = re.compile(rf"[+-]?{NOUGHT}")
NO_OPACITY = re.compile(rf"opacity\({NOUGHT}\)")
NO_AREA = re.compile(r"rect\((?:[01](?:px)?,?){4}\)|circle\(0.*")
INSET = re.compile(r"inset\(([^()]*?)(?:round[^()]*)?\)")
# Of values without blanks between them: `0050%0` is `0 0 50% 0`, since no number begins with a 0.
INSET_VALUE = re.compile(
    r"0(?![.%a-z])|(?:0|[1-9][0-9]{0,5}|(?=\.))(?:\.[0-9]{1,6})?(?:%|[a-z]+)"
)
INSET_SIDES = {
    1: (0, 0, 0, 0),
    2: (0, 1, 0, 1),
    3: (0, 1, 2, 1),
    4: (0, 1, 2, 3),
}
"""The positions of top, right, bottom and left among that number of values."""
FAR_AWAY = re.compile(r"-[0-9]{3,}")
TRANSPARENT = re.compile(rf"transparent|(rgb|hsl)a\([^()]*[,/]{NOUGHT}\)")
WHITE = frozenset(("white", "#fff", "#ffffff", "rgb(255,255,255)"))
BLACK = frozenset(("black", "#000", "#000000", "rgb(0,0,0)"))

HIDING = frozenset(
    (
        ("display", "none"),
        ("content-visibility", "hidden"),
        ("visibility", "hidden"),
        ("visibility", "collapse"),
    )
)
"""Declarations that hide an element."""
CLIPPING = frozenset((("overflow", "hidden"), ("overflow", "clip")))


def read_style(attributes: Mapping[str, str]) -> Style:
    """Return the style of the element itself; style sheets are not read."""
    style: dict[str, str] = {}
    important: set[str] = set()
    for name, value in _split_declarations(attributes.get("style", "")):
        is_important = value.endswith("!important")
        if is_important:
            important.add(name)
        if is_important or name not in important:
            style[name] = value.removesuffix("!important")[:MAX_VALUE]
    return style


def _split_declarations(text: str) -> Iterator[tuple[str, str]]:
    for declaration in COMMENT.sub("", text).split(";"):
        name, colon, value = declaration.partition(":")
        if colon:
            yield _normalize(name), _normalize(value)


def _normalize(text: str) -> str:
    """Return a word of CSS without escapes and blanks, as a browser reads it."""
    return re.sub(r"\s+", "", ESCAPE.sub(_unescape, text)).lower()


def _unescape(found: re.Match[str]) -> str:
    if found[2]:
        return found[2]
    number = int(found[1], 16)
    is_character = 0 < number < 0xD800 or 0xDFFF < number < 0x110000
    return chr(number) if is_character else "\ufffd"


def is_hidden(
    tag: str, attributes: Mapping[str, str], style: Style, background: str
) -> bool:
    """Whether an element is hidden by an attribute or by its own style."""
    if _has_hiding_attribute(tag, attributes):
        return True
    if not style:
        return False
    is_hidden_by_style = any(hides(style) for hides in STYLE_TESTS)
    return is_hidden_by_style or _is_invisible(style.get("color", ""), background)


def _has_hiding_attribute(tag: str, attributes: Mapping[str, str]) -> bool:
    if "hidden" in attributes or "popover" in attributes:
        return True
    if tag == "dialog" and "open" not in attributes:
        return True
    return attributes.get("aria-hidden", "").strip().lower() == "true"


def _is_not_displayed(style: Style) -> bool:
    return not HIDING.isdisjoint(style.items())


def _is_moved_away(style: Style) -> bool:
    names = ("text-indent", "left", "top", "margin-left")
    return any(FAR_AWAY.match(style.get(name, "")) for name in names)


def _is_too_small(style: Style) -> bool:
    if _read_size(style, "font-size") <= 1 or _read_size(style, "opacity") == 0:
        return True
    if CLIPPING.isdisjoint(style.items()):
        return False
    names = ("height", "width", "max-height", "max-width")
    return any(_read_size(style, name) == 0 for name in names)


def _read_size(style: Style, name: str) -> float:
    """Return the number of a size; infinite if it is not one, or relative and not 0."""
    found = SIZE.fullmatch(style.get(name, ""))
    if found is None or found[1] in ("", "."):
        return float("inf")
    number = float(found[1])
    is_absolute = found[2] in ("px", "pt")
    return number if is_absolute or number == 0 else float("inf")


def _is_clipped_away(style: Style) -> bool:
    """Whether clipping leaves no area, as where two opposite sides of an `inset` meet."""
    if any(NO_AREA.match(style.get(name, "")) for name in ("clip", "clip-path")):
        return True
    found = INSET.fullmatch(style.get("clip-path", ""))
    return found is not None and _has_meeting_sides(found[1])


def _has_meeting_sides(inset: str) -> bool:
    values: list[str] = INSET_VALUE.findall(inset)
    if len(values) not in INSET_SIDES or "".join(values) != inset:
        return False
    parts = [float(value[:-1]) if value.endswith("%") else 0 for value in values]
    top, right, bottom, left = (parts[i] for i in INSET_SIDES[len(parts)])
    return top + bottom >= 100 or right + left >= 100


def _is_filtered_away(style: Style) -> bool:
    return NO_OPACITY.search(style.get("filter", "")) is not None


def _is_transformed_away(style: Style) -> bool:
    if ZERO.fullmatch(style.get("scale", "")):
        return True
    transform = style.get("transform", "")
    if any(_has_zero(found[1].split(",")[:2]) for found in SCALE.finditer(transform)):
        return True
    return any(_is_flat(found[1].split(",")) for found in MATRIX.finditer(transform))


def _has_zero(numbers: Sequence[str]) -> bool:
    return any(map(ZERO.fullmatch, numbers))


def _is_flat(numbers: Sequence[str]) -> bool:
    """Whether a matrix leaves no area: its determinant is 0, as that of a rotation is not."""
    try:
        a, b, c, d = map(float, numbers[:4])
    except ValueError:  # not a matrix, so that a browser does not apply it either
        return False
    return a * d == b * c


def _is_invisible(color: str, background: str) -> bool:
    """Whether a color is transparent, or the same as the background."""
    if not color:
        return False
    if color == background or TRANSPARENT.fullmatch(color):
        return True
    return {color, background} <= WHITE or {color, background} <= BLACK


STYLE_TESTS: Sequence[Callable[[Style], bool]] = (
    _is_not_displayed,
    _is_moved_away,
    _is_too_small,
    _is_clipped_away,
    _is_filtered_away,
    _is_transformed_away,
)
