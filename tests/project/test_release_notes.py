"""Notes of a release are the section of its version in the changelog, and a wrong tag is refused."""

from __future__ import annotations

import pytest

from scripts.release_notes import extract_notes, main, project_version

CHANGELOG = """# Changes

## 0.2.0 (2026-12-24)

### Added

* A verb.

## 0.1.0

* The first version.

## 0.0.9
"""


def test_a_section_ends_where_the_next_version_begins() -> None:
    assert extract_notes(CHANGELOG, "0.2.0") == "### Added\n\n* A verb."
    assert extract_notes(CHANGELOG, "0.1.0") == "* The first version."


@pytest.mark.parametrize(
    ("version", "problem"), [("0.3.0", "no section 0.3.0"), ("0.0.9", "is empty"), ("0.1", "no section")]
)
def test_a_version_without_notes_is_refused(version: str, problem: str) -> None:
    with pytest.raises(SystemExit, match=problem):
        extract_notes(CHANGELOG, version)


def test_a_tag_that_is_not_the_version_of_the_package_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"pyproject\.toml has version"):
        main(["9.9.9"])
    with pytest.raises(SystemExit, match="usage"):
        main([])
    assert project_version().count(".") == 2
