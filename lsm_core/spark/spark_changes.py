"""Statements that change rows which are there, as Spark jobs: upsert, delete and update by a filter, delete by keys; one commit each.

A change by a filter is one task a bucket: it reads the rows that match and writes what becomes of them, so that no row crosses a shuffle. The
commit fails with CommitConflict when another one touched the same buckets meanwhile, as in `lsm_core.write.row_changes`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from lsm_core.errors import ColumnNotFound, UnsupportedFeature
from lsm_core.metadata import snapshots
from lsm_core.metadata.support import require_writable
from lsm_core.read import Scan, Split, read_split
from lsm_core.spark.spark_columns import names_in_table
from lsm_core.spark.spark_read import read_table
from lsm_core.spark.spark_tasks import run_tasks, store_of
from lsm_core.spark.spark_write import ROW_KIND, WriteJob, tasks_of, write_frame, write_table
from lsm_core.table.writing import committed
from lsm_core.write import RoutedRows, row_changes
from lsm_core.write.row_changes import KeyedChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lsm_core.table import Catalog


def upsert(df: DataFrame, table: Any, *, merge_schema: Catalog | None = None) -> int | None:
    """Insert the rows of ``df``, each in place of the one with its primary key; returns the snapshot id, None without rows.

    Columns may be left out of partial-update and aggregation tables only. ``merge_schema``: as in `write_table`. Raises
    UnsupportedFeature (a table without primary key, one that keeps its first rows), and what `write_table` raises.
    """
    store = store_of(table)
    row_changes.require_upsert(store, names_in_table(df.columns, store.schema))
    return write_table(df, store, merge_schema=merge_schema)


def delete_where(spark: SparkSession, table: Any, filter: object) -> int | None:  # noqa: A002  (the public name)
    """Delete the rows for which ``filter`` (as in `Table.to_arrow`) is true; returns the snapshot id, None when there were none.

    Keyed tables by a task a bucket; append tables by the process of the driver, with deletion vectors where the table has them. A filter over
    partition columns alone drops partitions. Raises InvalidFilter (also for no filter), UnsupportedFeature, RetractNotSupported,
    CommitConflict, SparkFailed.
    """
    store = store_of(table)
    return committed(store, row_changes.delete_rows(store, filter, partial(_by_bucket, spark)))


def update_where(
    spark: SparkSession,
    table: Any,
    filter: object,  # noqa: A002  (the public name)
    values: Mapping[str, Any],
) -> int | None:
    """Set ``values`` (column: literal, or Arrow expression over the old row) where ``filter`` is true; returns as :func:`delete_where`.

    Keys, partition and bucket columns cannot be set. Raises as :func:`delete_where`, and InvalidData, ColumnNotFound.
    """
    store = store_of(table)
    return committed(store, row_changes.update_rows(store, filter, values, partial(_by_bucket, spark)))


def delete_keys(keys: DataFrame, table: Any) -> int | None:
    """Delete the rows whose primary key is in ``keys`` (its columns, in any order); returns the snapshot id, None when there were none.

    The table is read once for them, so that readers of its changes see whole rows. Raises ColumnNotFound, UnsupportedFeature,
    CommitConflict, SparkFailed.
    """
    from pyspark.sql import functions

    store, spark = store_of(table), keys.sparkSession
    require_writable(store)
    names = store.schema.primary_keys
    if not names:
        raise UnsupportedFeature(
            "deleting by keys from a table without primary key; delete_where takes a filter", store.name
        )
    row_changes.require_delete(store)
    keys = keys.toDF(*names_in_table(keys.columns, store.schema))
    for name in keys.columns:
        if name not in names:
            raise ColumnNotFound(store.name, name, names)
    for name in names:
        if name not in keys.columns:
            raise ColumnNotFound("of keys", name, keys.columns)
    newest = snapshots.latest_id(store)
    if newest is None:
        return None
    found = read_table(spark, store, snapshot_id=newest).join(keys.distinct(), on=list(names), how="left_semi")
    free = (name for number in count() if not store.schema.has_field(name := ROW_KIND + "_" * number))
    column = store.options.rowkind_field or next(free)
    frame = found.withColumn(column, functions.lit("-D"))
    job = replace(WriteJob.plan(store, overwrite=False, parallelism=tasks_of(spark)), made_from=newest, deletes=True)
    return committed(store, write_frame(frame, job, None if store.schema.has_field(column) else column))


def _by_bucket(spark: SparkSession, change: KeyedChange, scan: Scan) -> int | None:
    """Carry out a change of a keyed table, a task a bucket."""
    store = change.store
    if scan.snapshot is None or not scan.splits:
        return None
    job = replace(WriteJob.plan(store, overwrite=False), made_from=scan.snapshot.id)
    places: dict[tuple[bytes, int], list[str]] = {}
    for split in scan.splits:
        places.setdefault((split.partition, split.bucket), []).append(base64.b64encode(split.to_bytes()).decode())
    payloads = [json.dumps([number, splits]).encode() for number, splits in enumerate(places.values())]
    work = partial(_changed, job, change, replace(scan, splits=()))
    try:
        outcomes = run_tasks(spark, f"changing rows of table {store.name}", payloads, work)
    except BaseException:
        job.end(failed=True)
        raise
    return job.publish([one for one in outcomes if one.error is not None or one.answer])


def _changed(job: WriteJob, change: KeyedChange, scan: Scan, payload: bytes) -> bytes:
    """The commit message of one bucket, as bytes; b"" where no row matched."""
    number, splits = json.loads(payload)

    def groups() -> Iterator[RoutedRows]:
        with change.writer(planned=job.history) as checker:
            for split in (Split.from_bytes(base64.b64decode(text)) for text in splits):
                with closing(read_split(scan.store, split, scan.columns, scan.filter)) as batches:
                    for rows, kinds in change.rows(batches):
                        yield RoutedRows(split.partition, split.bucket, *checker.checked(rows, kinds))

    messages = job.write(groups(), number)
    return messages[0] if messages else b""


__all__ = ["delete_keys", "delete_where", "update_where", "upsert"]
