"""Compactions that give postponed rows their buckets, cut off at I/O steps: readers see none of the rows that waited or all, and each counts once."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import InjectedFault, LocalFileIO
from lsm_core.storage.faults import FaultyFileIO
from tests.faults.outcomes import Copies
from tests.support.samples import one_in

SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])
STEPS = 13
"""Of the I/O steps one in so many is cut off, a different one in each way to fail."""


def content(table: Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("mode", one_in(2, ["before", "after"], 1))
def test_a_compaction_that_ends_anywhere_counts_each_waiting_row_once(tmp_path: Path, mode: str) -> None:
    options = {"bucket": "-2", "postpone.default-bucket-num": "2", "merge-engine": "aggregation"}
    options |= {"fields.v.aggregate-function": "sum", "dredge.verification": "sampled", "commit.max-retries": "1"}
    catalog = Catalog(str(tmp_path / "w"))
    catalog.create_database("db")
    begun = catalog.create_table("db.t", Schema(SCHEMA, ["k"], options=options))
    for step in range(3):
        begun.write(pa.table({"k": range(step * 10, step * 10 + 20), "v": [10**step] * 20}, schema=SCHEMA))
        begun.compact() if step == 0 else None
    before = content(begun)

    def compacted(warehouse: Path, fail_at: int | None) -> FaultyFileIO:
        files = FaultyFileIO(LocalFileIO(), fail_at, mode, fail_after=True)  # type: ignore[arg-type]
        table = Catalog(str(warehouse)).table("db.t")
        table.store.file_io = files
        table.compact(full=True)
        return files

    shutil.copytree(tmp_path / "w", tmp_path / "whole")
    steps = compacted(tmp_path / "whole", None).steps
    after = content(Catalog(str(tmp_path / "whole")).table("db.t"))
    assert (sum(before.values()), sum(after.values())) == (20, 20 * 111)
    seen, copies = set(), Copies(tmp_path / "w", tmp_path)
    for step in range(1 + (len(mode) % STEPS), steps + 1, STEPS):
        place = copies.fresh()
        with suppress(DredgeError, InjectedFault, CommitUnknown):
            compacted(place, step)
        if not copies.is_new(""):
            continue
        again = Catalog(str(place)).table("db.t")
        assert content(again) in (before, after), f"step {step} of {steps}"
        seen.add(content(again) == after)
        again.compact(full=True)
        assert content(again) == after, f"step {step} of {steps}"
    assert seen == {False, True}
