"""Pages of the documentation, and their headings, which links and citations may refer to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
_NUMBER = re.compile(r"^(\d+b?(?:\.\d+)?)\.? ")


def without_code(text: str) -> str:
    """Return a text without its fenced code blocks."""
    return _FENCE.sub("", text)


def headings(page: Path) -> list[str]:
    """Return the headings of a page, in order, without the number signs."""
    return _HEADING.findall(without_code(page.read_text("utf-8")))


def sections(page: Path) -> set[str]:
    """Return the numbers of a page's headings ("4.3"), and of its table rows that begin with a number ("19.7")."""
    numbers = {found[1] for title in headings(page) if (found := _NUMBER.match(title))}
    return numbers | set(re.findall(r"^\| (\d+b?\.\d+b?) \|", page.read_text("utf-8"), re.MULTILINE))


def tracked() -> list[Path]:
    """Return every file that git tracks; skip the test outside of a checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout, so nothing is tracked")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
