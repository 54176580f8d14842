"""The documentation as a site: built without a warning, with every page and an entry for every public name."""

import ast
import importlib
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from pages import PAGES, ROOT, blocks

PUBLIC = (
    "loopwright", "loopwright.engines", "loopwright.events", "loopwright.gates", "loopwright.journals",
    "loopwright.observers", "loopwright.providers", "loopwright.resilience", "loopwright.security",
    "loopwright.testing", "loopwright.toolboxes", "loopwright.tools",
)  # fmt: skip
pytestmark = pytest.mark.timeout(300)  # the first test builds the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the documentation: what `make docs` has built, or a build of its own."""
    if "LOOPWRIGHT_SITE" in os.environ:
        return Path(os.environ["LOOPWRIGHT_SITE"])
    folder = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "2"]
    search = os.pathsep.join(
        filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])
    )
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": search},
    )

    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_built_without_a_warning_and_has_every_page(site: Path) -> None:
    pages = [
        page.relative_to(ROOT / "docs").with_suffix(".html")
        for page in ROOT.glob("docs/**/*.md")
    ]

    assert [str(page) for page in pages if not (site / page).exists()] == []


def test_links_that_leave_the_folder_of_the_documentation_lead_to_pages_or_downloads(
    site: Path,
) -> None:
    strategies = (site / "strategies.html").read_text(encoding="utf-8")
    contributing = (site / "project" / "contributing.html").read_text(encoding="utf-8")

    assert (
        "By contributing you agree" in contributing
    )  # a page that is kept at the root of the repository
    assert re.search(
        r'href="\.\./decisions/index\.html"><span[^>]*>docs/decisions/', contributing
    )
    assert re.search(r'href="project/examples\.html"><span[^>]*>examples/', strategies)
    assert re.search(r'href="_downloads/\w+/react\.py"', strategies)


def entries_of(site: Path) -> set[str]:
    """The full names that the reference has an entry for."""
    listing = zlib.decompress(
        (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    ).decode()
    return {line.split(" ", 1)[0] for line in listing.splitlines()}


def test_every_public_name_has_an_entry_in_the_reference(site: Path) -> None:
    entries = entries_of(site)
    public = [
        (package, name)
        for package in PUBLIC
        for name in importlib.import_module(package).__all__
    ]
    missing = [
        f"{package}.{name}"
        for package, name in public  # the top of the package exports some of them too
        if not {f"{package}.{name}", f"loopwright.{name}"} & entries
    ]

    assert len(public) > 100
    assert missing == []


def test_every_name_that_a_page_imports_has_an_entry_in_the_reference(
    site: Path,
) -> None:
    imported = {
        (node.module, name.name)
        for page in PAGES
        for block in blocks(page)
        for node in ast.walk(ast.parse(block.code))
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith("loopwright")
        for name in node.names
    }
    entries = entries_of(site)
    missing = {
        (module, name)
        for module, name in imported
        if f"{module}.{name}" not in entries and f"loopwright.{name}" not in entries
    }

    assert len(imported) > 80
    assert missing == {
        ("loopwright.engines.chain_of_thought", "PROMPTS")
    }  # strategies.md is where prompts are told of
