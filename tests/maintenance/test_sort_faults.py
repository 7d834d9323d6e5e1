"""A sort compaction broken at every single I/O step: the same rows, a retry sorts them, nothing wrong is left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.maintenance.tables import NOW, catalog, content, strays, with_io

_CHANGES = {"write_exclusive", "overwrite", "delete", "mkdirs", "rename", "create", "write", "close"}
_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_a_sort_broken_at_every_step(tmp_path: Path) -> None:
    made = catalog(tmp_path / "template").create_table("db.t", Schema(_SCHEMA, options={"bucket": "-1"}))
    for start in range(2):
        made.write(pa.table({"a": range(start, 40, 2), "b": [str(i % 7) for i in range(20)]}, schema=_SCHEMA))
    before = content(made)

    def fresh(name: str) -> Table:
        shutil.copytree(tmp_path / "template", tmp_path / name)
        return Catalog(tmp_path / name / "wh", clock=f"fixed:{NOW}").table("db.t")

    def sort(table: Table) -> None:
        table.compact(order_by=["b", "a"], strategy="zorder")

    counting = FaultyFileIO(LocalFileIO())
    sort(with_io(fresh("count"), counting))
    assert counting.steps > 25
    unknown = 0
    for step, (name, path) in enumerate(counting.log, 1):
        for mode in ("before", "after") if name in _CHANGES else ("before",):
            table = fresh(f"{step}-{mode}")
            failed: Exception | None = None
            try:
                sort(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
            except (OSError, DredgeError) as error:
                failed = error
            at = f"step {step} {mode}: {name} {path}"
            assert content(table) == before, at
            if failed is not None and mode == "before" and not isinstance(failed, CommitUnknown):
                left = {stray for stray in strays(table) if stray.startswith("data-")}
                assert not left or name == "delete", at
            unknown += isinstance(failed, CommitUnknown)
            sort(table)
            assert content(table) == before, at
            assert len(table.plan_scan()[0].files) == 1, at
            shutil.rmtree(table.store.root)
    assert unknown <= 2
