"""I/O steps of a write into dynamic buckets, and of one whose keys move, fail: rows and index are those before or after, and no file stays."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.metadata import manifests
from lsm_core.storage import FaultyFileIO, LocalFileIO
from lsm_core.storage.faults import Mode
from tests.faults.outcomes import Copies, outcome_of
from tests.faults.strides import strides
from tests.support.samples import one_in

FIELDS = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
OPTIONS = {"dynamic-bucket.target-row-num": "8", "commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}


def rows(first: int, value: int) -> pa.Table:
    keys = list(range(first, first + 20))
    return pa.table(
        [pa.array("ab"[(k + value) % 2] for k in keys), pa.array(keys), pa.array([value] * 20)], schema=FIELDS
    )


def live(table: Table, file_io: Any, overwrite: bool) -> None:
    table.store.file_io = file_io
    table.write(rows(12, 1), overwrite=overwrite)


def state(table: Table) -> Any:
    """The rows, and the names of the index files."""
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    indexes = len(manifests.index_entries(table.store, snapshot))
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist()), indexes


def left(table: Table) -> set[str]:
    """Data and index files that no snapshot names."""
    named: set[str] = set()
    for snapshot in table.snapshots():
        named |= set(manifests.delta_entries(table.store, snapshot).column("file_name").to_pylist())
        named |= {entry.file_name for entry in manifests.index_entries(table.store, snapshot)}
    found = {path.name for kind in ("data-*", "index-*") for path in Path(table.store.root).rglob(kind)}
    return {name for name in found if not name.startswith("index-manifest")} - named


@strides(29)
@pytest.mark.parametrize(
    ("keys", "overwrite", "mode"),
    one_in(
        2,
        [
            pytest.param(keys, overwrite, mode, id=f"{name}-{mode}")
            for name, keys, overwrite, modes in (
                ("dynamic", ["p", "k"], False, ("before", "after")),
                ("cross-partition", ["k"], False, ("after", "before")),
                ("cross-partition overwrite", ["k"], True, ("before", "after")),
            )
            for mode in modes
        ],
    ),
)
def test_a_failing_step_leaves_the_table_as_before_or_after(
    tmp_path: Path, keys: list[str], overwrite: bool, mode: Mode, stride: int
) -> None:
    catalog = Catalog(str(tmp_path / "built"))
    catalog.create_database("db")
    built = catalog.create_table("db.t", Schema(FIELDS, keys, ["p"], OPTIONS))
    built.write(rows(0, 0))
    if overwrite:  # a partition that two keys leave
        built.write(pa.table([["c"] * 4, list(range(30, 34)), [0] * 4], schema=FIELDS))
    shutil.copytree(tmp_path / "built", tmp_path / "count")
    counted = FaultyFileIO(LocalFileIO())
    table = Catalog(str(tmp_path / "count")).table("db.t")
    states = [state(table)]
    live(table, counted, overwrite)
    states.append(state(Catalog(str(tmp_path / "count")).table("db.t")))
    outcomes, copies = set(), Copies(tmp_path / "built", tmp_path)
    for step in range(1, counted.steps, stride):
        warehouse = copies.fresh()
        faulty = FaultyFileIO(LocalFileIO(), step, mode)
        outcome = outcome_of(partial(live, Catalog(str(warehouse)).table("db.t"), faulty, overwrite))
        outcomes.add(outcome)
        if not copies.is_new(outcome):
            continue
        where = (mode, step, faulty.log[min(step, len(faulty.log)) - 1], outcome)
        table = Catalog(str(warehouse)).table("db.t")
        now = state(table)
        assert now in states, where
        assert outcome != "succeeded" or now == states[1], where
        assert outcome != "failed" or now == states[0], where
        assert outcome == "unknown" or not left(table), where
        table.write(rows(12, 1), overwrite=overwrite)
        assert state(table) == states[1], where
    assert "failed" in outcomes
