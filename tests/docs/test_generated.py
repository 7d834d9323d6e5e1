"""What docs/ says about commands, options and imports is what the code says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.options.table_options import REGISTRY
from scripts.generated import GENERATED, stale
from tests.docs.pages import DOCS, ROOT


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_generated_file_is_current(path: Path) -> None:
    assert path.read_text("utf-8") == GENERATED[path](), (
        f"stale: run `.venv/bin/python scripts/docs.py --write` for {path.name}"
    )


def test_stale_files_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    monkeypatch.setattr("scripts.generated.GENERATED", {page: lambda: "new"})
    assert stale() == [page]
    page.write_text("old")
    assert stale() == [page]
    page.write_text("new")
    assert stale() == []


def test_every_option_is_on_the_page() -> None:
    text = (DOCS / "options.md").read_text("utf-8")
    assert [name for name in REGISTRY if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("verb", ["status", "health", "plan", "apply", "compact", "expire", "trash", "restore", "demo"])
def test_every_verb_is_on_the_page(verb: str) -> None:
    assert f"\n## {verb}\n" in (DOCS / "cli.md").read_text("utf-8")
