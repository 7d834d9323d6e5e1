"""Small tables for Spark tests, and the comparison of the rows of two readers."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_core import Catalog, Schema, Table
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO, LocalOutputFile

FIELDS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("ts", pa.timestamp("ms")),
        ("amount", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("n", pa.int32()),
    ]
)


def make_table(
    root: Path,
    name: str = "db.t",
    *,
    fields: pa.Schema = FIELDS,
    primary_keys: Sequence[str] = ("k",),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> Table:
    """Create a table in the warehouse ``root``; by default, a primary-key table has three buckets."""
    catalog = Catalog(str(root))
    catalog.create_database(name.split(".")[0], ignore_if_exists=True)
    chosen = {"bucket": "3", **(options or {})} if primary_keys else dict(options or {})
    schema = Schema(
        fields=fields,
        primary_keys=list(primary_keys),
        partition_keys=list(partition_keys),
        options=chosen,
        comment=None,
    )
    catalog.create_table(name, schema)
    return catalog.table(name)


class DyingIO(LocalFileIO):
    """FileIO that kills the Spark worker that creates or deletes a file whose path contains ``place``.

    The worker dies after it created the file, or before it deletes the file. The driver process is not killed.
    """

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.here = place, os.getpid()

    def open_output(self, path: str) -> LocalOutputFile:
        """See FileIO."""
        made = super().open_output(path)
        if self.place in path:
            Path(path).touch()
            self._die()
        return made

    def delete(self, path: str) -> bool:
        """See FileIO."""
        if self.place in path:
            self._die()
        return super().delete(path)

    def _die(self) -> None:
        if os.getpid() != self.here:
            os.kill(os.getpid(), signal.SIGKILL)


def dying(table: Table, place: str) -> Table:
    """Return the same table with a `DyingIO` for files whose path contains ``place``."""
    store = table.store
    return Table(TableStore.open(DyingIO(place), store.root, store.name, store.clock, store.dynamic_options))


def saved(frame: Any, table: Table, mode: str = "append") -> None:
    """Write ``frame`` into ``table`` through the data source; an overwrite replaces the partitions of its rows."""
    warehouse = str(Path(table.store.root).parents[1])
    writer = frame.write.format("dredge").option("warehouse", warehouse).option("table", table.name).mode(mode)
    if mode == "overwrite":
        writer = writer.option("partitionOverwriteMode", "dynamic")
    writer.save()


def rows(keys: Sequence[int], tag: str = "a") -> pa.Table:
    """Return rows of `FIELDS` for these keys, including nulls, NaN and -0.0."""
    numbers = np.asarray(keys, dtype=np.int64)
    n = len(numbers)
    doubles = numbers.astype(np.float64) / 4
    doubles[numbers % 11 == 3] = np.nan
    doubles[numbers % 11 == 4] = -0.0
    start = dt.datetime(2024, 1, 1)
    return pa.table(
        [
            pa.array(numbers),
            pa.array([None if k % 7 == 0 else f"{tag}-{k}" for k in keys], pa.string()),
            pa.array(doubles),
            pa.array([start + dt.timedelta(milliseconds=int(k) * 1001) for k in keys], pa.timestamp("ms")),
            pa.array([decimal.Decimal(int(k)) / 4 for k in keys]).cast(pa.decimal128(12, 2)),
            pa.array([dt.date(2024, 1, 1 + int(k) % 28) for k in keys], pa.date32()),
            pa.array([None if k % 5 == 0 else bool(k % 2) for k in keys], pa.bool_()),
            pa.array(np.arange(n) + len(tag), pa.int32()),
        ],
        schema=FIELDS,
    )


def canonical(data: pa.Table) -> list[str]:
    """Return rows as sorted texts, so that NaN equals itself and -0.0 differs from 0.0."""
    return sorted(repr(tuple(_plain(v) for v in row.values())) for row in data.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return value


def same(left: pa.Table, right: pa.Table) -> bool:
    """Return whether two tables have the same rows in any order; rows are equal if `canonical` gives the same text."""
    right = right.select(left.column_names)
    if left.schema.types == right.schema.types and not any(pa.types.is_nested(kind) for kind in left.schema.types):
        return bool(_in_order(left).equals(_in_order(right)))
    return canonical(left) == canonical(right)


def _in_order(data: pa.Table) -> pa.Table:
    """Return rows sorted by all columns; doubles become bits, so that NaN equals NaN and -0.0 differs from 0.0."""
    columns = [_bits(column) if pa.types.is_float64(column.type) else column for column in data.columns]
    plain = pa.table(columns, names=data.column_names)
    return plain.sort_by([(name, "ascending") for name in plain.column_names]).combine_chunks()


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    nan = pa.scalar(float("nan"), column.type)
    one_nan = pc.if_else(pc.is_nan(column), nan, column)
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in one_nan.chunks], pa.int64())


def data_files(root: Path) -> set[Path]:
    """Return the paths of all data files below a folder."""
    return {path for path in root.rglob("data-*") if path.is_file()}


def live_paths(table: Table, level_at_least: int = 0) -> list[Path]:
    """Return the paths of the latest snapshot's files, from level ``level_at_least``."""
    from lsm_core.format.manifest import table_to_entries
    from lsm_core.metadata import manifests, snapshots

    store = table.store
    snapshot = snapshots.latest(store)
    assert snapshot is not None
    entries = table_to_entries(manifests.live_entries(store, snapshot))
    return [Path(store.data_path(e.partition, e.bucket, e.file)) for e in entries if e.file.level >= level_at_least]


def rewrite(path: Path, change: Any) -> None:
    """Damage a Parquet file: replace its rows by the result of ``change``."""
    changed = change(pq.read_table(path, partitioning=None))
    pq.write_table(changed, path)
