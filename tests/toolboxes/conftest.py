"""Fixtures of the tests of toolboxes."""

from pathlib import Path

import pytest


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory for programs, beside one with a secret."""
    (tmp_path / "secret").write_text("swordfish")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    return folder
