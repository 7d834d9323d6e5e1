"""A compaction broken at every single I/O step: the table reads as before, a retry compacts it, nothing wrong is left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.table import Catalog, Table
from tests.maintenance.tables import NOW, content, keyed, rows, strays, with_io

_CHANGES = {"write_exclusive", "overwrite", "delete", "mkdirs", "rename", "create", "write", "close"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("template")
    table = keyed(place)
    for i in range(3):
        table.write(rows(range(i, i + 8), v=10 * i))
    return place


def test_a_compaction_broken_at_every_step(template: Path, tmp_path: Path) -> None:
    def fresh(name: str) -> Table:
        shutil.copytree(template, tmp_path / name)
        return Catalog(tmp_path / name / "wh", clock=f"fixed:{NOW}").table("db.t")

    before = content(fresh("probe"))
    counting = FaultyFileIO(LocalFileIO())
    with_io(fresh("count"), counting).compact(full=True)
    assert counting.steps > 30
    unknown = 0
    for step, (name, path) in enumerate(counting.log, 1):
        for mode in ("before", "after") if name in _CHANGES else ("before",):
            table = fresh(f"{step}-{mode}")
            failed: Exception | None = None
            try:
                with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)).compact(full=True)
            except (OSError, DredgeError) as error:
                failed = error
            at = f"step {step} {mode}: {name} {path}"
            assert content(table) == before, at
            if failed is not None and mode == "before" and not isinstance(failed, CommitUnknown):
                left = {stray for stray in strays(table) if stray.startswith("data-")}
                assert not left or name == "delete", at
            unknown += isinstance(failed, CommitUnknown)
            table.compact(full=True)
            assert content(table) == before, at
            assert {h.sorted_runs for h in table.health()} == {1}, at
            shutil.rmtree(table.store.root)
    assert unknown <= 2
