"""Every place that states the version of the package states the same one, and the changelog has its section."""

from __future__ import annotations

import re

import dredge
import lsm_core
from scripts.release_notes import extract_notes, project_version
from tests.docs.pages import ROOT

PLACES = {
    "lsm_core/__init__.py": r'^__version__ = "(.+)"$',
    "lsm_core/maintenance/action.py": r'^CODE_VERSION: Final = "dredge-(.+)/plan-\d+"$',
    "CITATION.cff": r"^version: (.+)$",
    "deploy/helm-values.yaml": r"^ +tag: (\d+\.\d+\.\d+)$",
    "docs/index.md": r"dredge-(\d+\.\d+\.\d+)-py3-none-any\.whl",
    "docs/spark.md": r"dredge-(\d+\.\d+\.\d+)-py3-none-any\.whl",
}


def test_every_place_states_the_version_of_the_package() -> None:
    version = project_version()
    for place, pattern in PLACES.items():
        versions = re.findall(pattern, (ROOT / place).read_text("utf-8"), re.MULTILINE)
        assert versions, place
        assert set(versions) == {version}, place
    assert lsm_core.__version__ == dredge.__version__ == version


def test_the_recipe_of_a_release_names_every_place() -> None:
    recipe = (ROOT / "docs" / "contributing.md").read_text("utf-8").partition("## Release a version")[2]
    assert [place for place in [*PLACES, "pyproject.toml"] if f"`{place}`" not in recipe] == []


def test_the_changelog_has_a_section_of_this_version() -> None:
    assert extract_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), project_version())
