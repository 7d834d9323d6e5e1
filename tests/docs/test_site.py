"""The site builds without a network, and a link or an anchor that leads nowhere fails it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.docs import dead_links
from tests.docs.pages import DOCS, README, ROOT


def _build(house: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=house,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of what the site is made of."""
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_the_site_builds_and_fetches_nothing(house: Path) -> None:
    done = _build(house)
    assert done.returncode == 0, done.stderr
    pages = sorted((house / "build" / "site").rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))
    fetched = re.compile(
        r'<(?:script|img|iframe)[^>]*\bsrc="?(https?:)|<link[^>]*rel="?stylesheet"?[^>]*href="?https?:'
    )
    assert [page.name for page in pages if fetched.search(page.read_text("utf-8"))] == []


@pytest.mark.parametrize("target", ["no-such-page.md", "format.md#no-such-heading", "images/no-such-picture.png"])
def test_a_link_that_leads_nowhere_fails_the_site(house: Path, target: str) -> None:
    for page in (house / "docs").rglob("*.md"):
        if page.name not in {"index.md", "format.md"}:
            page.unlink()
    (house / "docs" / "index.md").write_text(f"# Start\n\n[there]({target})\n")
    settings = (house / "mkdocs.yml").read_text().split("\nnav:")[0]
    (house / "mkdocs.yml").write_text(settings)
    (house / "docs" / "format.md").write_text("# Format\n")
    failed = _build(house)
    assert failed.returncode != 0 and target.split("#")[0] in failed.stderr


def test_links_of_the_readme_and_the_changes_lead_somewhere(tmp_path: Path) -> None:
    assert dead_links(README) + dead_links(ROOT / "CHANGELOG.md") == []
    page = tmp_path / "page.md"
    page.write_text("# A b\n\n[a](#a-b) [b](#nowhere) [c](missing.md) [d](https://example.com)\n")
    assert dead_links(page) == ["page.md: #nowhere", "page.md: missing.md"]
