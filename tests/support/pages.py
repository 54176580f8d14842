"""The pages of the documentation, and the code that stands in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """A fenced block of Python: where it begins in its page, what stands behind the word `python`, and the code."""

    line: int
    mark: str
    code: str


def named(page: Path) -> str:
    """A page as the tests call it."""
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    """All that a page says."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    """The Python in a page."""
    text = text_of(page)
    return [
        Block(text.count("\n", 0, found.start()) + 1, found[2], found[3])
        for found in FENCE.finditer(text)
        if found[1] == "python"
    ]


def as_module(page: Path) -> str:
    """The code of a page as one module, each line where the page has it."""
    lines: list[str] = []
    for block in blocks(page):
        if not block.mark:
            lines += [""] * (block.line - len(lines)) + block.code.splitlines()
    return "\n".join(lines) + "\n"


def write_modules(folder: Path) -> None:
    """Write the code of every page into a file of its own, as a user would type it."""
    for page in PAGES:
        if blocks(page):
            name = re.sub(r"\W", "_", named(page).removesuffix(".md"))
            (folder / f"{name}.py").write_text(as_module(page), encoding="utf-8")
