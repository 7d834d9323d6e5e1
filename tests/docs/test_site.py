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


def test_links_that_lead_nowhere_fail_the_site(house: Path) -> None:
    shutil.rmtree(house / "docs")
    (house / "docs").mkdir()
    targets = ["no-such-page.md", "format.md#no-such-heading", "images/no-such-picture.png"]
    (house / "docs" / "index.md").write_text("# Start\n\n" + " ".join(f"[there]({target})" for target in targets))
    (house / "docs" / "format.md").write_text("# Format\n")
    (house / "mkdocs.yml").write_text((house / "mkdocs.yml").read_text().split("\nnav:")[0])
    failed = _build(house)
    assert failed.returncode != 0
    assert [target for target in targets if target not in failed.stderr] == []


def test_links_of_the_readme_and_the_changes_lead_somewhere(tmp_path: Path) -> None:
    assert dead_links(README) + dead_links(ROOT / "CHANGELOG.md") == []
    page = tmp_path / "page.md"
    page.write_text("# A b\n\n[a](#a-b) [b](#nowhere) [c](missing.md) [d](https://example.com)\n")
    assert dead_links(page) == ["page.md: #nowhere", "page.md: missing.md"]
