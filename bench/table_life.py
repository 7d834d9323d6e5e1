"""The table of the benchmarks, empty and after its ten commits."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench.data import SCHEMA, commits
from lsm_core import Catalog, Schema, Table

ROWS, COMMITS, BUCKETS, CORES = 2_000_000, 10, 4, 2


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder and delete it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="dredge-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_table(warehouse: Path) -> Table:
    """Create an empty table with the schema of the benchmarks."""
    catalog = Catalog(str(warehouse))
    catalog.create_database("bench", ignore_if_exists=True)
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    catalog.create_table("bench.t", Schema(SCHEMA, primary_keys=["id"], options=options))
    return catalog.table("bench.t")


def filled(warehouse: Path, rows: int) -> Table:
    """Create the table and write its ten commits."""
    table = new_table(warehouse)
    for data in commits(rows, COMMITS):
        table.write(data)
    return table


def with_system_columns(rows: pa.Table) -> pa.Table:
    """Return the rows in the form of a key-value file, with key, sequence number and kind in front."""
    count = rows.num_rows
    sequence = pa.array(range(count), pa.int64())
    kind = pc.multiply(pc.bit_wise_and(sequence, 0), 0).cast(pa.int8())
    names = ["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", *rows.column_names]
    return pa.table([rows["id"], sequence, kind, *rows.columns], names=names)
