"""The changelog has a section for each version, short enough to be read, and its fragments have names that a release finds."""

from __future__ import annotations

import re
import tomllib

from scripts.release_notes import extract_notes
from tests.docs.pages import ROOT

FRAGMENTS = sorted(path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
MOST_WORDS = 1_400
"""A person reads this number in five minutes."""


def _settings() -> dict[str, object]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    settings: dict[str, object] = project["tool"]["towncrier"]
    return settings


def test_fragments_are_of_a_kind_that_a_release_takes() -> None:
    kinds = {kind["directory"] for kind in _settings()["type"]}  # type: ignore[attr-defined]
    readme = (ROOT / "changelog.d" / "README.md").read_text("utf-8")
    assert {kind for kind in kinds if f"`{kind}`" not in readme} == set()
    wrong = [path.name for path in FRAGMENTS if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(kinds)})\.md", path.name)]
    assert wrong == []


def test_a_fragment_is_one_or_two_sentences_without_a_bullet() -> None:
    texts = {path.name: path.read_text("utf-8").strip() for path in FRAGMENTS}
    assert [name for name, text in texts.items() if not text or text[0] in "*-#" or len(text) > 800] == []
    assert [name for name, text in texts.items() if max(map(len, text.splitlines())) > 120] == []


def test_a_version_has_one_section_that_is_read_in_five_minutes() -> None:
    assert str(_settings()["start_string"]) in CHANGELOG
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", CHANGELOG, re.MULTILINE)
    assert len(versions) == len(set(versions)) >= 1
    assert {version for version in versions if len(extract_notes(CHANGELOG, version).split()) > MOST_WORDS} == set()
