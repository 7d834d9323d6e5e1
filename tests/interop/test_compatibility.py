"""The page of kinds of tables says what the real engines say (docs/compatibility.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import compatibility
from tests.support.peers import JavaPaimon
from tests.support.samples import one_in

PAGE = compatibility.PAGE.read_text("utf-8")


@pytest.fixture(
    scope="module", params=["1.4.2", *(pytest.param(v, marks=pytest.mark.soak) for v in ("2.0.0", "2.1-SNAPSHOT"))]
)
def java(request: pytest.FixtureRequest, java_of: Callable[[str], JavaPaimon]) -> JavaPaimon:
    """The running JVM of one version."""
    return java_of(request.param)


@pytest.mark.paimon_java
@pytest.mark.parametrize("kind", one_in(8, list(compatibility.KINDS)), ids=lambda kind: kind.name)
def test_a_kind_is_served_as_the_page_says(
    kind: compatibility.Kind, java: JavaPaimon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREDGE_COMPACTION_INLINE", "never")
    results = compatibility.try_kind(kind, java, tmp_path)
    (row,) = [line for line in PAGE.splitlines() if line.startswith((f"| {kind.name} |", f"| {kind.name} (not in"))]
    if isinstance(results, str):
        assert "not in" in row
        return
    cells = [cell.strip() for cell in row.strip("|").split("|")[1:]]
    for step, cell in zip(compatibility.STEPS, cells, strict=True):
        assert results[step].split(":")[0] in cell, (step, results[step])
        assert not results[step].startswith("differs"), results[step]
