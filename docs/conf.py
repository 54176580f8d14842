"""How Sphinx builds the documentation: `make docs`."""

import os.path
import re
from pathlib import Path

from sphinx.application import Sphinx

from loopwright._internal.version import __version__

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "Loopwright"
author = "the Loopwright contributors"
version = release = __version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["decisions/README.md"]

# Markdown
myst_enable_extensions = ["attrs_block", "deflist"]
myst_heading_anchors = 4

# The API reference. In docstrings a name in single backticks is a link where there is such a name, else code.
default_role = "py:obj"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"Loopwright {release}"
html_show_sphinx = False
html_copy_source = False
html_extra_path = ["llms.txt"]  # the site in short, for language models
copybutton_exclude = ".linenos, .gp, .go"

# --- links that leave this folder ---
# The pages are read on their own too, so they link to files of the repository (../README.md, ../examples/react.py).
# Some of those files are pages of the site; any other is offered as a download.

PAGES = {
    "project/changelog": ROOT / "CHANGELOG.md",
    "project/contributing": ROOT / "CONTRIBUTING.md",
    "project/examples": ROOT / "examples" / "README.md",
    "project/readme": ROOT / "README.md",
}
_HOMES = {path: DOCS / f"{page}.md" for page, path in PAGES.items()}
_FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def _read(_: Sphinx, docname: str, source: list[str]) -> None:
    """Put the repository's own pages into the site, and turn links to files outside of this folder."""
    original = PAGES.get(docname, DOCS / f"{docname}.md")
    if not original.exists():  # no Markdown
        return
    text = original.read_text(encoding="utf-8") if docname in PAGES else source[0]
    here = (DOCS / f"{docname}.md").parent

    def turned(link: re.Match[str]) -> str:
        label, target, anchor = link[1], link[2], link[3] or ""
        if "://" in target:
            return link[0]
        path = (original.parent / target).resolve()
        path = path / "README.md" if (path / "README.md").exists() else path
        path = _HOMES.get(path, path)
        relative = os.path.relpath(path, here)
        if path.is_dir():
            return label
        if DOCS in path.parents:
            return f"[{label}]({relative}{anchor})"
        return f"{{download}}`{label.replace('`', '')} <{relative}>`"

    parts = _FENCE.split(text)
    source[0] = "".join(
        part if part.startswith("```") else _LINK.sub(turned, part) for part in parts
    )


# --- signatures ---
# Options are pydantic dataclasses, whose signatures say more than a reader wants: that values are validated, and how.

_BOUNDS = re.compile(
    r"""~types\.Annotated\[ ((?:(?!Annotated\[).)*?) (?:,\ (?:~[\w.]+\([^()]*\) | '[^']*'))+ \]""",
    re.X,
)
# Fields of events declare beside their type where they may be shown.
_EXPOSURE = re.compile(
    r"~[\w.]+\.Annotated\[((?:[^\[\]]|\[[^\[\]]*\])*), ~loopwright\.events\.describe\.Exposure\([^()]*\)\]"
)


def _signature(
    _app: Sphinx,
    _what: str,
    _name: str,
    _object: object,
    _options: object,
    arguments: str | None,
    returns: str | None,
) -> tuple[str | None, str | None] | None:
    """A signature as one would write it."""
    if arguments is None:
        return None
    arguments = _EXPOSURE.sub(r"\1", arguments)
    arguments = _BOUNDS.sub(
        r"\1", arguments.replace("~typing.Annotated[", "~types.Annotated[")
    )
    positional = (
        "(*args: ~typing.Any, runtime: ~loopwright._kernel.session.services.Services"
    )
    arguments = arguments.replace(
        positional, "(runtime: ~loopwright.runtime.Runtime, *"
    )
    return arguments.replace("(*args: ~typing.Any", "(*").replace(", *)", ")"), returns


def setup(app: Sphinx) -> None:
    """Register what is above."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-signature", _signature)
