"""Changes of existing rows as Spark jobs: upsert, delete and update by a filter, delete by keys; one commit each.

A change by a filter uses a task for each bucket, or in append tables a task for several files. The task reads the
matching rows and writes their replacements, so no row crosses a shuffle. The commit and its conflicts are those of
`lsm_core.write.row_changes`.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm_core.commit import CommitMessage, abort, discard_on_failure
from lsm_core.errors import ColumnNotFound, UnsupportedFeature
from lsm_core.json_text import parse_json
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import BucketMode
from lsm_core.metadata.support import require_writable
from lsm_core.read import Scan, Split, read_split
from lsm_core.spark.compaction_job import pack_units
from lsm_core.spark.spark_columns import names_in_table, quoted, with_keys
from lsm_core.spark.spark_read import read_table
from lsm_core.spark.spark_tasks import TaskOutcome, raise_first, run_tasks, slots_of, store_of
from lsm_core.spark.spark_write import (
    ROW_KIND,
    SEQUENCES_PER_TASK,
    WriteJob,
    active_session,
    runner_of,
    spark_frame,
    tasks_of,
    write_frame,
    write_table,
)
from lsm_core.spark.sql_values import new_values
from lsm_core.spark.write_folder import WriteFolder, new_family
from lsm_core.table.writing import maintain_after_commit
from lsm_core.write import RoutedRows, row_changes
from lsm_core.write.incoming_rows import Rows, as_rows
from lsm_core.write.row_changes import AppendChange, KeyedChange, PartOfChange, keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lsm_core.table import Catalog
    from lsm_core.write.row_changes.append_parts import Additions, AppendRun
    from lsm_core.write.row_changes.statements import KeyedMerge

_LOG: Final = logging.getLogger(__name__)
_TASKS_PER_SLOT: Final = 4
"""Tasks per slot: few, so that starting tasks costs little, but enough that all slots finish at about the same time."""


def upsert(df: DataFrame | Rows, table: Any, *, merge_schema: Catalog | None = None) -> int | None:
    """Insert rows; each new row replaces the existing row with the same primary key.

    Omitted columns take their default or null, as in `save()`; in partial-update and aggregation tables, omitted
    columns keep their values.

    Args:
        df: The rows: a DataFrame of Spark or of pandas on Spark, a pandas or Polars frame, or Arrow data.
        table: A `Table`, or the name of a table ("db.t").
        merge_schema: The table's catalog, to add columns that only ``df`` has and to widen types; None to change no
            schema.

    Returns:
        The snapshot id, or None without rows.

    Raises:
        UnsupportedFeature: The table has no primary key, or keeps the first row of each key. Other errors are those of
            `write_table`.
    """
    frame = spark_frame(df)
    store = store_of(table, active_session() if frame is None else frame.sparkSession)
    row_changes.require_upsert(store)
    return write_table(df if frame is None else frame, store, merge_schema=merge_schema)


def delete_where(spark: SparkSession, table: Any, filter: object) -> int | None:  # noqa: A002  (the public name)
    """Delete the rows for which a filter is true.

    Keyed tables use a task for each bucket, append tables a task for several files. If an append table keeps deletion
    vectors, tasks find the rows and the driver writes the index files. A filter over partition columns alone drops
    partitions.

    Args:
        spark: The session that deletes.
        table: A `Table`, or the name of a table ("db.t").
        filter: Condition on the rows: an Arrow expression, a list of tuples, or SQL text.

    Returns:
        The snapshot id, or None if no row matched.

    Raises:
        InvalidFilter: The filter is missing or cannot be evaluated on this table.
        UnsupportedFeature: The table does not support deletes.
        RetractNotSupported: The merge engine cannot remove rows.
        CommitConflict: Another commit changed the same files.
        SparkFailed: The Spark job failed.
    """
    store = store_of(table, spark)
    return maintain_after_commit(
        store,
        row_changes.delete_rows(store, filter, partial(_by_bucket, spark), partial(_by_files, spark)),
        runner_of(spark),
    )


def update_where(
    spark: SparkSession,
    table: Any,
    filter: object,  # noqa: A002  (the public name)
    values: Mapping[str, Any],
) -> int | None:
    """Set columns of the rows for which a filter is true.

    Args:
        spark: The session that updates.
        table: A `Table`, or the name of a table ("db.t").
        filter: Condition on the rows: an Arrow expression, a list of tuples, or SQL text.
        values: New value of each column: a literal, or an expression over the old row. Expressions are a Column
            (`F.expr("v + 1")`), an Arrow expression, or SQL text ("v + 1") for a column that is not of a text or binary
            type. Key, partition and bucket columns cannot be set.

    Returns:
        The snapshot id, or None if no row matched.

    Raises:
        InvalidData: A new value does not fit its column.
        ColumnNotFound: The table does not have a column.
        UnsupportedFeature: An expression has a part that Dredge cannot compute as Spark does. Other errors are those of
            `delete_where`.
    """
    store = store_of(table, spark)
    values = new_values(spark, store, values) if isinstance(values, Mapping) else values
    return maintain_after_commit(
        store,
        row_changes.update_rows(store, filter, values, partial(_by_bucket, spark), partial(_by_files, spark)),
        runner_of(spark),
    )


@dataclass(frozen=True)
class SkippedKeys:
    """Counts of the keys that `delete_keys` deleted or skipped.

    Attributes:
        keys: Distinct keys in the input.
        deleted: Keys whose row was deleted.
        nulls: Keys with a null in a column, which no row has; 0 in a table with nullable primary key.
    """

    keys: int
    deleted: int
    nulls: int

    @property
    def absent(self) -> int:
        """Number of keys without a null that the table did not have."""
        return self.keys - self.deleted - self.nulls


def delete_keys(
    keys: DataFrame | Rows, table: Any, *, on_skipped: Callable[[SkippedKeys], None] | None = None
) -> int | None:
    """Delete the rows whose primary key is among ``keys``.

    The table is read once to find the rows, so that readers of its changes see whole rows. Keys that the table does not
    have are skipped, and the number of skipped keys is logged as a warning. A null is a key like any other in a table
    with `primary-key.nullable`.

    Args:
        keys: The primary key columns in any order, as rows for `write_table`.
        table: A `Table`, or the name of a table ("db.t").
        on_skipped: Function that is called with the counts of deleted and skipped keys; None for no call.

    Returns:
        The snapshot id, or None if no row matched.

    Raises:
        ColumnNotFound: ``keys`` has a column that is not a key column, or lacks one.
        UnsupportedFeature: The table has no primary key or does not support deletes, or ``keys`` is not a DataFrame and
            there is no Spark session.
        CommitConflict: Another commit changed the same files.
        SparkFailed: The Spark job failed.
    """
    from pyspark.sql import functions

    frame = spark_frame(keys)
    spark = active_session() if frame is None else frame.sparkSession
    store = store_of(table, spark)
    require_writable(store)
    names = store.schema.primary_keys
    if not names:
        raise UnsupportedFeature(
            "deleting by keys from a table without primary key; delete_where takes a filter", store.name
        )
    row_changes.require_delete(store)
    if frame is None:
        if spark is None:
            raise UnsupportedFeature(
                "delete_keys of a frame that is not Spark's, without a session of Spark", store.name
            )
        rows = as_rows(keys, store.name)
        frame = spark.createDataFrame(rows if isinstance(rows, pa.Table) else rows.read_all())
    frame = frame.toDF(*names_in_table(frame.columns, store.schema))
    for name in frame.columns:
        if name not in names:
            raise ColumnNotFound(store.name, name, names)
    for name in names:
        if name not in frame.columns:
            raise ColumnNotFound("of keys", name, frame.columns)
    distinct_keys = frame.distinct()
    newest = snapshots.latest_id(store)
    snapshot_id = None
    deleted = 0
    if newest is not None:
        matching = with_keys(read_table(spark, store, snapshot_id=newest), distinct_keys, names)
        free = (name for number in count() if not store.schema.has_field(name := ROW_KIND + "_" * number))
        column = store.options.rowkind_field or next(free)
        changes = matching.withColumn(column, functions.lit("-D"))
        job = replace(
            WriteJob.plan(store, overwrite=False, parallelism=tasks_of(spark)), made_from=newest, deletes=True
        )
        snapshot_id = write_frame(changes, job, None if store.schema.has_field(column) else column)
        deleted = 0 if snapshot_id is None else snapshots.read(store, snapshot_id).delta_record_count or 0
        maintain_after_commit(store, snapshot_id, runner_of(spark))
    nulls = [] if store.schema.nullable_key else [functions.col(quoted(name)).isNull().cast("int") for name in names]
    has_null = functions.greatest(*nulls, functions.lit(0), functions.lit(0))
    counts = distinct_keys.agg(functions.count("*").alias("keys"), functions.sum(has_null).alias("nulls")).first()
    skipped = SkippedKeys(int(counts["keys"]), deleted, int(counts["nulls"] or 0))
    if skipped.deleted < skipped.keys:
        _LOG.warning(
            "table %s: delete_keys skipped %d of %d keys: %d that the table does not have, %d with a null",
            store.name, skipped.keys - skipped.deleted, skipped.keys, skipped.absent, skipped.nulls,
        )  # fmt: skip
    if on_skipped is not None:
        on_skipped(skipped)
    return snapshot_id


def change_runs(spark: SparkSession) -> tuple[KeyedMerge, AppendRun]:
    """Return (function for keyed tables, function for append tables); each applies a change of rows in Spark tasks."""
    return partial(_by_bucket, spark), partial(_by_files, spark)


def _by_bucket(spark: SparkSession, change: KeyedChange, scan: Scan, additions: Additions | None = None) -> int | None:
    """Apply a change to a keyed table in one task per bucket, and make one commit on the driver.

    Args:
        spark: The session.
        change: The DELETE or UPDATE to apply.
        scan: Scan of the snapshot whose rows are changed.
        additions: Function that takes a snapshot id and returns the rows that a MERGE inserts in the same commit, or
            None. None without a MERGE.

    Returns:
        The id of the snapshot, or None if nothing was committed.
    """
    store = change.store
    if additions is not None and (store.bucket_mode is not BucketMode.FIXED or not scan.splits):
        return keyed.run(change, scan, additions)  # one process assigns buckets to new keys
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
        if additions is not None and all(outcome.error is None for outcome in outcomes):
            outcomes += _added(job, additions(scan.snapshot.id), outcomes)
    except BaseException:
        job.end(failed=True)
        raise
    return job.publish([outcome for outcome in outcomes if outcome.error is not None or outcome.answer])


def _added(job: WriteJob, rows: pa.Table | None, outcomes: Sequence[TaskOutcome]) -> list[TaskOutcome]:
    """Write the rows that a MERGE adds, with sequence numbers above those of the changed rows.

    On an error, the new files of ``outcomes`` and of the added rows are deleted.

    Args:
        job: The write.
        rows: The rows to add, or None.
        outcomes: Outcomes of the tasks that wrote the changed rows.

    Returns:
        The commit messages of the added rows, as outcomes of one more task.
    """
    if rows is None or not rows.num_rows:
        return []
    written = job.messages([outcome for outcome in outcomes if outcome.answer])
    with discard_on_failure(job.store, written):
        groups = (group for _, group in replace(job, assigns=False).routed(rows.to_batches(), 0, alone=True))
        number = len(outcomes)
        return [TaskOutcome(number, data) for data in job.write(groups, number, sequence_offset=SEQUENCES_PER_TASK)]


def _changed(job: WriteJob, change: KeyedChange, scan: Scan, payload: bytes) -> bytes:
    """Change the matching rows of one bucket, and return the commit message as bytes, or b"" if no row matched.

    Args:
        job: The write.
        change: The DELETE or UPDATE to apply.
        scan: The scan, without its splits.
        payload: JSON of the task number and the bucket's splits (Base64).
    """
    number, splits = parse_json(payload)

    def groups() -> Iterator[RoutedRows]:
        with change.writer(planned=job.history) as checker:
            for split in (Split.from_bytes(base64.b64decode(text)) for text in splits):
                with closing(read_split(scan.store, split, scan.columns, scan.filter)) as batches:
                    for rows, kinds in change.rows(batches):
                        yield RoutedRows(split.partition, split.bucket, *checker.check_rows(rows, kinds))

    messages = job.write(groups(), number)
    return messages[0] if messages else b""


def _by_files(spark: SparkSession, change: AppendChange, scan: Scan) -> list[PartOfChange]:
    """Apply a change to an append table in tasks of about equal size in bytes, and return the result of each task."""
    store, title = change.store, f"changing rows of table {change.store.name}"
    if not scan.splits:
        return []
    together: dict[object, list[Split]] = {}
    for number, split in enumerate(scan.splits):
        together.setdefault((split.partition, split.bucket) if change.by_bucket else number, []).append(split)
    pieces = list(together.values())
    groups = pack_units([sum(split.size for split in piece) for piece in pieces], _TASKS_PER_SLOT * slots_of(spark))
    texts: list[list[str]] = [[] for _ in range(max(groups) + 1)]
    for group, piece in zip(groups, pieces, strict=True):
        texts[group] += [base64.b64encode(split.to_bytes()).decode() for split in piece]
    folder, family = WriteFolder.plan(store), new_family()
    parts: list[PartOfChange] = []
    failed = True
    try:
        payloads = [json.dumps(splits).encode() for splits in texts]
        outcomes = run_tasks(spark, title, payloads, partial(_changed_files, change, family, folder))
        parts = [PartOfChange.from_bytes(outcome.answer) for outcome in outcomes if outcome.error is None]
        with discard_on_failure(store, [message for part in parts for message in part.messages]):
            raise_first(outcomes)
        failed = False
    finally:
        messages = [message for part in parts for message in part.messages]
        places = {place for split in scan.splits for place in store.write_dirs(split.partition, split.bucket)}
        folder.end(family, messages, places, failed=failed)
    return parts


def _changed_files(change: AppendChange, family: str, folder: WriteFolder, payload: bytes) -> bytes:
    """Change the rows of one task's splits, and return the changes as bytes (`PartOfChange.to_bytes`).

    Args:
        change: The DELETE or UPDATE to apply.
        family: Prefix of the UUIDs in the names of new files.
        folder: Folder in which the task notes that it writes files.
        payload: JSON list of the task's splits (Base64).
    """
    store = change.store.in_family(family)
    messages: Sequence[CommitMessage] = ()
    folder.begin(store.own_uuid)
    try:
        splits = [Split.from_bytes(base64.b64decode(text)) for text in parse_json(payload)]
        part = replace(change, store=store).apply_to(splits)
        messages = part.messages
        if any(message.written() for message in messages):
            folder.finish(store.own_uuid)
        else:
            folder.forget(store.own_uuid)
        return part.to_bytes()
    except BaseException:
        abort(store, messages)
        folder.forget(store.own_uuid)
        raise
