"""Compactions that tell changes, cut off at every I/O step: whoever compacts next tells each change once, and the changes make the table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import InjectedFault, LocalFileIO
from lsm_core.storage.faults import FaultyFileIO
from tests.faults.outcomes import Copies
from tests.support.samples import sample

SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int64())])
STEPS = 11
"""Of the I/O steps one in so many is cut off, a different one in each kind of table and way to fail."""


def begun(warehouse: Path, producer: str, engine: str) -> Table:
    """A table with rows above level 0 whose changes were told, and newer ones in level 0 whose were not."""
    options = {"bucket": "1", "changelog-producer": producer, "merge-engine": engine, "dredge.verification": "sampled"}
    if engine == "aggregation":
        options["fields.v.aggregate-function"] = "sum"
    catalog = Catalog(str(warehouse))
    catalog.create_database("db")
    catalog.create_table("db.t", Schema(SCHEMA, ["k"], options=options))
    table = catalog.table("db.t")
    table.write(pa.table({"k": list(range(40)), "v": [1] * 40}, schema=SCHEMA))
    table.compact(full=True)
    table.write(pa.table({"k": list(range(20, 60)), "v": [2] * 40}, schema=SCHEMA))
    if engine == "deduplicate":
        table.write(pa.table({"k": [3, 25, 99], "v": [0] * 3}, schema=SCHEMA), pa.array(["-D"] * 3))
    return table


def changes(table: Table) -> list[tuple[str, int, int]]:
    """All changes since the first snapshot, in order."""
    stream = table.new_stream_scan(from_snapshot=1)
    found = []
    while (batch := stream.next()) is not None:
        found += [tuple(row.values()) for row in batch.to_arrow().to_pylist()]
    return found


def replayed(told: list[tuple[str, int, int]]) -> dict[int, int]:
    """What the changes make of nothing; what is taken back must be there."""
    held: dict[int, int] = {}
    for kind, key, value in told:
        if kind in ("-U", "-D"):
            assert held.pop(key) == value
        else:
            assert key not in held
            held[key] = value
    return held


@pytest.mark.parametrize(
    ("producer", "engine", "mode"),
    sample(
        [
            (*kind, mode)
            for kind in (("lookup", "deduplicate"), ("lookup", "aggregation"), ("full-compaction", "deduplicate"))
            for mode in ("before", "after")
        ],
        lambda case: case in (("lookup", "aggregation", "before"), ("full-compaction", "deduplicate", "after")),
    ),
)
def test_a_compaction_that_ends_anywhere_doubles_and_loses_no_change(
    tmp_path: Path, producer: str, engine: str, mode: str
) -> None:
    begun(tmp_path / "w", producer, engine)
    full = producer == "full-compaction"

    def compacted(warehouse: Path, fail_at: int | None) -> FaultyFileIO:
        files = FaultyFileIO(LocalFileIO(), fail_at, mode, fail_after=True)  # type: ignore[arg-type]
        table = Catalog(str(warehouse)).table("db.t")
        table.store.file_io = files
        table.compact(full=full)
        return files

    shutil.copytree(tmp_path / "w", tmp_path / "whole")
    steps = compacted(tmp_path / "whole", None).steps
    whole = Catalog(str(tmp_path / "whole")).table("db.t")
    expected = changes(whole)
    rows = dict(zip(*whole.to_arrow().to_pydict().values(), strict=True))
    assert replayed(expected) == rows
    assert len(expected) > 60
    first = 1 + (len(producer) + len(engine) + len(mode)) % STEPS
    cut, copies = 0, Copies(tmp_path / "w", tmp_path)
    for step in range(first, steps + 1, STEPS):
        place = copies.fresh()
        try:
            compacted(place, step)
        except (DredgeError, InjectedFault, CommitUnknown):
            cut += 1
        if not copies.is_new(""):
            continue
        again = Catalog(str(place)).table("db.t")
        assert dict(zip(*again.to_arrow().to_pydict().values(), strict=True)) == rows
        again.compact(full=full)
        assert changes(again) == expected, f"step {step} of {steps}"
    assert cut > 3
