"""The pages of the project: where they lie, and the headings that may be cited or linked to."""

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
    """The text without its fenced blocks."""
    return _FENCE.sub("", text)


def headings(page: Path) -> list[str]:
    """Headings of a page, in order, without the number signs."""
    return _HEADING.findall(without_code(page.read_text("utf-8")))


def sections(page: Path) -> set[str]:
    """Numbers of the page's numbered headings ("4.3"), and of its table rows that start with one ("19.7")."""
    numbers = {found[1] for title in headings(page) if (found := _NUMBER.match(title))}
    return numbers | set(re.findall(r"^\| (\d+b?\.\d+b?) \|", page.read_text("utf-8"), re.MULTILINE))


def tracked() -> list[Path]:
    """Every file that git tracks; the test is skipped outside a checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout, so nothing is tracked")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
