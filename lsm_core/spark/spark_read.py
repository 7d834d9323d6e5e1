"""Batch reads of a table as a Spark DataFrame.

Files that need no merge are read by Spark's own reader. All other files are merged by tasks that run Dredge's reader.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.errors import InvalidOption, SnapshotNotFound
from lsm_core.files.formats import open_source
from lsm_core.format.schema import TableSchema, append_arrow_schema, kv_arrow_schema
from lsm_core.metadata import tags
from lsm_core.metadata.manifests import stores_row_ids, with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions, whole_number
from lsm_core.read import Predicate, Scan, Split, read_split
from lsm_core.read.changes import Choice, Span, span_of_options, span_parts, span_values
from lsm_core.read.fallback import plan_read
from lsm_core.read.predicate import Conjunct
from lsm_core.read.read_tags import protected
from lsm_core.read.split_ranges import cut_for_workers
from lsm_core.read.sql_text import EXACT_TYPES
from lsm_core.read.table_versions import BETWEEN
from lsm_core.spark.session_catalog import table_of
from lsm_core.spark.spark_columns import fields_of, quoted, spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.spark_tasks import (
    DEFAULT_SLOTS,
    Shipped,
    shipped_store,
    slots_of,
    store_of,
    translate_errors,
    use_this_python,
)
from lsm_core.storage import place_of
from lsm_core.types import TypeRoot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lsm_core.table.system.reader import ReadOnlyTable


_BATCH_ROWS = 65_536
_WIDEST: Final = 16 << 10
"""Maximum average bytes per row of a file for Spark's own readers.

Spark's readers decode 4,096 rows at a time (`columnarReaderBatchSize`), so wide rows need much memory.
"""


def read_table(
    spark: SparkSession,
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    filter: object = None,  # noqa: A002  (the public name, engine.md)
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: int | None = None,
    incremental: tuple[int | str, int | str] | None = None,
    limit: int | None = None,
) -> DataFrame:
    """Return the merged rows of one version of a table as a DataFrame.

    The version is fixed at this call and defaults to the latest snapshot. Without a version argument, options of the
    table that choose a version or a range of changes (`Table.copy`) apply.

    Files that need no merge become one scan of Spark's own reader, which pushes down later operations on the frame.
    Dredge's tasks merge the remaining files and read ``columns`` only. `explain_read` reports which files are merged.
    This call reads metadata only. A system table is read by one task.

    Args:
        spark: The session that reads.
        table: A table, or its name if the session's setting `spark.dredge.warehouse` (or the environment variable
            DREDGE_WAREHOUSE) names the warehouse.
        columns: The columns to return, in this order; None for all, in table order. Timestamps are TIMESTAMP_NTZ (LTZ:
            TIMESTAMP). Append tables with row tracking also offer `_ROW_ID` and `_SEQUENCE_NUMBER`.
        filter: Condition on the rows: an Arrow expression, a list of tuples, or SQL text. Only rows for which the
            condition is true are returned; the condition also prunes files.
        snapshot_id: The snapshot to read.
        tag: The tag to read.
        timestamp_ms: Read the newest snapshot committed at or before this time (epoch ms).
        incremental: Return the rows that changed after the first snapshot (or tag), up to and including the second.
        limit: Maximum number of rows, taken from as few files as hold them.

    Raises:
        UnsupportedFeature: The table has a feature that Dredge cannot read.
        SnapshotNotFound: The version does not exist or has expired.
        ColumnNotFound: The table has no such column.
        InvalidFilter: The filter cannot be evaluated on this table.
        InvalidOption: Two versions are named, or an argument does not apply to this table.
        CorruptFile: A file is missing or damaged.
        SparkFailed: The Spark job failed.
    """
    from lsm_core.table.system.reader import ReadOnlyTable

    use_this_python(spark)
    table = table_of(spark, table)
    if isinstance(table, ReadOnlyTable):
        _refuse_for_system(table.name, tag=tag, timestamp_ms=timestamp_ms, incremental=incremental)
        rows = _system_rows(spark, table, columns, filter, snapshot_id)
        return rows if limit is None else rows.limit(whole_number(limit, "limit", table.name, least=0))
    store, version = _table_to_read(store_of(table, spark), snapshot_id, tag, timestamp_ms, incremental)
    span = None if version else span_of_options(store)
    if span is not None:
        changed = _changes(spark, Choice.of(store, columns, filter), span)
        return changed if limit is None else changed.limit(whole_number(limit, "limit", store.name, least=0))
    scan = protected(plan_read(store, columns=columns, filter=filter, limit=limit, **version))
    ddl = spark_ddl(fields_of(scan.schema, scan.columns, scan.store.name), scan.store.name)
    with translate_errors(f"reading table {scan.store.name}"):
        frames = _frames(spark, scan, ddl, limit)
        if not frames:
            return spark.createDataFrame([], ddl)
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.unionAll(frame)
        return rows if limit is None else rows.limit(limit)


def _table_to_read(
    store: TableStore,
    snapshot_id: int | None,
    tag: str | None,
    timestamp_ms: int | None,
    incremental: tuple[int | str, int | str] | None,
) -> tuple[TableStore, dict[str, Any]]:
    """Return the table to read, and the version arguments that are set, by name.

    If ``incremental`` (two snapshot ids or tags) is set, it becomes the table's option `incremental-between`, and no
    version argument is returned. Raises InvalidOption if the caller names a version and ``incremental``.
    """
    named = {"snapshot_id": snapshot_id, "tag": tag, "timestamp_ms": timestamp_ms}
    version = {name: value for name, value in named.items() if value is not None}
    if incremental is None:
        return store, version
    if version:
        name = next(iter(version))
        raise InvalidOption(name, version[name], "nothing beside incremental", store.name)
    start, end = incremental
    return store.copy({BETWEEN: f"{start},{end}"}), {}


def _refuse_for_system(name: str, **arguments: object) -> None:
    for key, value in arguments.items():
        if value is not None:
            raise InvalidOption(key, value, "nothing for a system table but snapshot_id", name)


@dataclass(frozen=True)
class ReadPlan:
    """Division of a read between Spark's own reader and Dredge's tasks, with its size before and after pruning.

    Attributes:
        table: Name of the table.
        snapshot_id: The snapshot that is read; None if nothing has been committed.
        columns: The columns that are returned.
        filter: The condition that is evaluated; None without a filter.
        files: Number of files of the version.
        bytes: Bytes of all files of the version.
        spark_files: Number of files that Spark's own reader reads unchanged.
        spark_bytes: Bytes of these files.
        merged_files: Number of files that Dredge's tasks read, merged or filtered.
        merged_bytes: Bytes of these files.
        tasks: Number of Dredge's tasks.
    """

    table: str
    snapshot_id: int | None
    columns: tuple[str, ...]
    filter: str | None
    files: int
    bytes: int
    spark_files: int
    spark_bytes: int
    merged_files: int
    merged_bytes: int
    tasks: int

    def lines(self) -> list[str]:
        """Return the plan as lines of text for people."""
        left = self.files - self.spark_files - self.merged_files
        snapshot = "-" if self.snapshot_id is None else self.snapshot_id
        return [
            f"{self.table}: snapshot {snapshot}, columns {', '.join(self.columns)}",
            f"  pushed filter: {self.filter or 'none'}; {left} of {self.files} files ({self.bytes:,} bytes) pruned",
            f"  Spark's own reader: {self.spark_files} files ({self.spark_bytes:,} bytes)",
            f"  Dredge: {self.merged_files} files ({self.merged_bytes:,} bytes) in {self.tasks} tasks",
        ]


def explain_read(
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    filter: object = None,  # noqa: A002  (the public name, engine.md)
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp_ms: int | None = None,
    limit: int | None = None,
    slots: int = DEFAULT_SLOTS,
) -> ReadPlan:
    """Return the plan by which `read_table` would read, without Spark.

    Reads metadata only.

    Args:
        table: A table, or its name if DREDGE_WAREHOUSE names the warehouse.
        columns: Names of the columns to read; None for all.
        filter: Condition on the rows, or None.
        snapshot_id: Id of the snapshot to read, or None.
        tag: Name of the tag to read, or None.
        timestamp_ms: Read the newest snapshot committed until this time (epoch ms), or None.
        limit: Maximum number of rows; None for all.
        slots: Number of tasks that run at once.

    Returns:
        The pushed filter, the pruned files, the files for Spark's own reader, and the number of tasks for the other
            files.

    Raises:
        UnsupportedFeature: The read is of changes or of a system table, which one task reads. Other errors are those of
            `read_table`.
    """
    store, version = _table_to_read(store_of(table), snapshot_id, tag, timestamp_ms, None)
    scan = plan_read(store, columns=columns, filter=filter, limit=limit, **version)
    everything = plan_read(store, columns=columns, **version).splits
    plain, merged_splits = _divided(scan)
    raw = [split for splits in plain.values() for split in splits]
    return ReadPlan(
        scan.store.name,
        None if scan.snapshot is None else scan.snapshot.id,
        scan.columns,
        None if scan.filter is None else str(scan.filter.expression),
        sum(split.file_count for split in everything),
        sum(split.size for split in everything),
        sum(split.file_count for split in raw),
        sum(split.size for split in raw),
        sum(split.file_count for split in merged_splits),
        sum(split.size for split in merged_splits),
        len(pack_splits(cut_for_workers(scan.store, merged_splits, slots), slots, scan.store.options)),
    )


def pack_splits(splits: Sequence[Split], slots: int, options: TableOptions) -> list[list[Split]]:
    """Group splits into tasks and keep their order.

    A split counts as at least `source.split.open-file-cost` bytes. A split larger than the bytes per task is a task of
    its own.

    Args:
        splits: The splits to read.
        slots: Number of tasks that run at once. Tasks shrink if some of the slots would otherwise be idle.
        options: Options of the table; a task has at most `source.split.target-size` bytes.
    """
    weights = [max(split.size, options.open_file_cost) for split in splits]
    share = min(options.source_split_target, max(options.open_file_cost, sum(weights) // max(slots, 1)))
    tasks: list[list[Split]] = []
    room = 0
    for split, weight in zip(splits, weights, strict=True):
        if not tasks or weight > room:
            tasks.append([])
            room = share
        tasks[-1].append(split)
        room -= weight
    return tasks


def _divided(scan: Scan) -> tuple[dict[str, list[Split]], list[Split]]:
    """Return the splits that Spark's own readers read, by file format, and the splits that Dredge's tasks read."""
    plain: dict[str, list[Split]] = {}
    merged_splits: list[Split] = []
    store = scan.store
    # Spark may have no connector for the object store, or need other credential settings.
    # Row ids come from metadata; files usually do not store them.
    able = not place_of(store.root) and not stores_row_ids(store.schema)
    able = able and (scan.filter is None or condition_of(scan.filter, store.schema) is not None)
    needed = _needed(scan)
    alike: dict[int, bool] = {}
    for split in scan.splits:
        kind = _stored_as(store, split, needed, alike) if able else ""
        if kind:
            plain.setdefault(kind, []).append(split)
        else:
            merged_splits.append(split)
    return plain, merged_splits


def _needed(scan: Scan) -> list[str]:
    """Return the columns to read: the columns of the result, followed by those that only the filter uses."""
    looked_at = () if scan.filter is None else scan.filter.columns
    return [*scan.columns, *(name for name in looked_at if name not in scan.columns)]


def _frames(spark: SparkSession, scan: Scan, ddl: str, limit: int | None) -> list[DataFrame]:
    """Return one DataFrame per file format that Spark reads itself, and one for all splits that Dredge's tasks read.

    Args:
        spark: The session.
        scan: The planned read.
        ddl: Columns of the result as Spark DDL.
        limit: Number of rows after which each of Dredge's tasks stops reading; None for no limit.
    """
    store, needed = scan.store, _needed(scan)
    plain, merged_splits = _divided(scan)
    frames: list[DataFrame] = []
    for kind, splits in plain.items():
        paths = [store.data_path(split.partition, split.bucket, file) for split in splits for file in split.files]
        stored = _stored(spark, kind, paths, spark_ddl(fields_of(store.schema, needed, store.name), store.name))
        stored = _with_all_nans(stored, store, needed)
        if scan.filter is not None:
            condition = condition_of(scan.filter, store.schema)
            assert condition is not None
            stored = stored.where(condition)
        frames.append(stored.select(*map(quoted, scan.columns)))
    if merged_splits:
        frames.append(_merged(spark, store, scan, merged_splits, ddl, limit))
    return frames


def _system_rows(
    spark: SparkSession,
    table: ReadOnlyTable,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002
    snapshot_id: int | None,
) -> DataFrame:
    """Return ``columns`` (None: all) of a system table's rows, which one task reads."""
    fields = fields_of(table.schema_at(snapshot_id), columns, table.name)
    target = spark_arrow_schema(fields, table.name)

    with translate_errors(f"reading table {table.name}"):
        rows = Shipped(_made_of_metadata, table, columns, filter, snapshot_id, target)
        return spark.range(0, 1, 1, 1).mapInArrow(rows, spark_ddl(fields, table.name))


def _made_of_metadata(
    table: ReadOnlyTable,
    columns: Sequence[str] | None,
    filter: object,  # noqa: A002
    snapshot_id: int | None,
    target: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            for rows in table.to_batches(columns, filter, snapshot_id=snapshot_id):
                yield from to_spark(rows, target)


def _changes(spark: SparkSession, choice: Choice, span: Span) -> DataFrame:
    """Return the changed rows of a range of snapshots without row kinds, by one task per part (`span_parts`)."""
    ddl = spark_ddl(fields_of(choice.store.schema, choice.columns, choice.store.name), choice.store.name)
    parts = span_parts(span)
    with translate_errors(f"reading changes of table {choice.store.name}"):
        if not parts:
            return spark.createDataFrame([], ddl)
        columns = [
            pa.array(range(len(parts)), pa.int32()),
            pa.array([part.start for part in parts], pa.int64()),
            pa.array([part.end for part in parts], pa.int64()),
        ]
        listed = spark.createDataFrame(pa.table(columns, names=["task", "start", "end"])).repartitionById(
            len(parts), "task"
        )
        return listed.mapInArrow(Shipped(_changed_rows, choice.store.to_json(), choice.columns, choice.predicate), ddl)


def _changed_rows(
    store_text: str, names: Sequence[str], predicate: Predicate | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    store = shipped_store(store_text)
    choice = Choice.of(store, names, predicate)
    target = spark_arrow_schema(fields_of(store.schema, names, store.name), store.name)
    whole = span_of_options(store)
    assert whole is not None
    for batch in batches:
        for place in range(batch.num_rows):  # one per snapshot
            start, end = (batch.column(name)[place].as_py() for name in ("start", "end"))
            for rows in span_values(choice, replace(whole, start=start, end=end)):
                yield from to_spark(rows, target)


# Spark's ORC reader returns other values than the format defines for all other types: it reads dates in the Julian
# calendar and timestamps in a time zone.
_ORC_TYPES: Final = frozenset(
    {
        TypeRoot.BOOLEAN,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
        TypeRoot.VARCHAR,
        TypeRoot.VARBINARY,
    }
)

_ANY_LENGTH: Final = frozenset(
    {
        TypeRoot.CHAR,
        TypeRoot.VARCHAR,
        TypeRoot.BINARY,
        TypeRoot.VARBINARY,
        TypeRoot.VARIANT,
        TypeRoot.ARRAY,
        TypeRoot.MULTISET,
        TypeRoot.MAP,
        TypeRoot.ROW,
    }
)


def _stored_as(store: TableStore, split: Split, needed: Sequence[str], alike: dict[int, bool]) -> str:
    """Return the format of a split that Spark's own reader reads correctly, or "" if Dredge must read it.

    Spark reads a split if all its files store the ``needed`` columns as the schema describes them, and no row is
    deleted. The rows must also be narrow, because Spark's reader limits the rows of a batch and not its bytes.
    ``alike`` caches by schema id whether the columns are stored so.
    """
    if not split.raw or any(split.deletions) or split.origin is not None:
        return ""
    if any(
        inner.root in (TypeRoot.VARIANT, TypeRoot.BLOB)
        for name in needed
        for inner in store.schema.field(name).type.with_inner()
    ):
        return ""  # files may be shredded, or hold descriptors of other files
    widths = [file.file_size / max(1, file.row_count) for file in split.files]
    if max(widths, default=0) > _WIDEST and any(store.schema.field(name).type.root in _ANY_LENGTH for name in needed):
        return ""
    kinds = {file.file_name.rpartition(".")[2] for file in split.files}
    if any(_is_hidden(file.file_name) for file in split.files):
        return ""
    if len(kinds) != 1 or not kinds <= {"parquet", "orc"}:
        return ""
    for number in {file.schema_id for file in split.files} - alike.keys():
        alike[number] = _same_columns(store, number, needed)
    if not all(alike[file.schema_id] for file in split.files):
        return ""
    (kind,) = kinds
    if kind == "orc" and any(store.schema.field(name).type.root not in _ORC_TYPES for name in needed):
        return ""
    return kind


def _is_hidden(path: str) -> bool:
    """Return whether Spark's own readers skip a file of this name (`data-file.prefix` may begin with "_" or ".")."""
    return path.rpartition("/")[2].startswith(("_", "."))


def _same_columns(store: TableStore, schema_id: int, needed: Sequence[str]) -> bool:
    """Return whether each needed column is stored with its current name and type, or not at all, in files of a schema.

    Spark's readers match names without regard to case, so a column whose name differs only in case must not exist
    either.
    """
    then = store.schema if schema_id == store.schema.id else store.schema_of(schema_id)
    by_id = {field.id: field for field in then.fields}
    layout = kv_arrow_schema(then) if then.primary_keys else append_arrow_schema(then)
    stored = Counter(name.lower() for name in layout.names)
    for name in needed:
        now = store.schema.field(name)
        old = by_id.get(now.id)
        if old is None and not stored[name.lower()]:
            continue  # Spark and the format fill it with nulls
        if old is None or old.name != now.name or old.type != now.type or stored[name.lower()] > 1:
            return False
    return True


def condition_of(predicate: Predicate, schema: TableSchema) -> str | None:
    """Return a filter as Spark SQL that is true for the same rows.

    Returns:
        The condition. None if the filter is not a combination of simple tests, or if Spark may compare its values
            differently from Dredge (floating point, NaN).
    """
    if predicate.groups is None or not predicate.groups:
        return None
    sides: list[str] = []
    for group in predicate.groups:
        tests = [_test_text(test, schema) for test in group]
        if not tests or None in tests:
            return None
        sides.append("(" + " AND ".join(map(str, tests)) + ")")
    return " OR ".join(sides)


def _test_text(test: Conjunct, schema: TableSchema) -> str | None:
    """Return one test as Spark SQL, or None if Spark SQL cannot express it exactly."""
    column, field = quoted(test.column), schema.field(test.column)
    if test.op in ("is null", "is not null"):
        return f"{column} {test.op.upper()}"
    if field.type.root not in EXACT_TYPES or test.others:
        return None
    arrow = schema.arrow_schema.field(test.column).type
    value = test.value
    if value is None or value.type != arrow:
        return None
    if isinstance(value, pa.Array):
        listed = [_literal(item) for item in value.to_pylist()]
        return f"{column} {test.op.upper()} ({', '.join(listed)})" if listed and value.null_count == 0 else None
    if not value.is_valid:
        return None
    if test.op == "starts with":
        return f"startswith({column}, {_literal(value.as_py())})"
    return f"{column} {'=' if test.op == '==' else test.op} {_literal(value.as_py())}"


def _literal(value: Any) -> str:
    """Return a value of `EXACT_TYPES` as a Spark SQL literal that is safe for all characters."""
    if isinstance(value, str):
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"DATE'{value.isoformat()}'" if isinstance(value, dt.date) else f"{value}L"


def _with_all_nans(stored: DataFrame, store: TableStore, names: Sequence[str]) -> DataFrame:
    """Return the frame with floating point columns as expressions, so that Spark does not prune files by them.

    To Spark NaN is the greatest number. The statistics in a file's footer leave NaN out, as the formats require, so
    pruning by `d > 5` or `d = 'NaN'` would lose rows. Spark pushes no test of an expression down to its readers.
    """
    from pyspark.sql import functions

    def kept(name: str) -> Column:
        """Return the column, as an expression with the same values if it may hold NaN."""
        kind, column = store.schema.arrow_schema.field(name).type, functions.col(quoted(name))
        if pa.types.is_floating(kind):
            return functions.nanvl(column, column).alias(name)
        return functions.when(column.isNotNull(), column).alias(name) if _has_floating_field(kind) else column

    return stored.select(*map(kept, names))


def _has_floating_field(kind: pa.DataType) -> bool:
    """Return whether a struct has a floating point field at any depth.

    Lists and maps need no check: Spark does not push tests of their elements down.
    """
    return pa.types.is_struct(kind) and any(
        pa.types.is_floating(field.type) or _has_floating_field(field.type) for field in kind
    )


def _stored(spark: SparkSession, kind: str, paths: Sequence[str], ddl: str) -> DataFrame:
    """Return the rows of files of one format as one scan."""
    if kind == "parquet":
        return parquet(spark, paths, ddl)
    return spark.read.schema(ddl).options(**_WHOLE).orc(list(paths))


_WHOLE: Final = {"__globPaths__": "false", "ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""Options that override the session: Spark reads exactly the named files, and a missing or damaged file is an error."""
_REBASED: Final = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
"""Options that read dates and times of all files in the proleptic Gregorian calendar."""


_VERIFIED: Final = {"parquet.page.verify-checksum.enabled": "true"}
"""Option that verifies page checksums, which Spark's own Parquet reader skips by default."""


def parquet(spark: SparkSession, paths: Sequence[str], ddl: str) -> DataFrame:
    """Return the rows of Parquet files with the columns of ``ddl``.

    Paths are taken literally, because a partition value may contain characters of a glob pattern. Directory names are
    not read as partition columns, because the files store these columns.
    """
    return spark.read.schema(ddl).options(**_WHOLE, **_REBASED, **_VERIFIED).parquet(*paths)


def stored_rows(spark: SparkSession, store: TableStore, paths: Sequence[str], fields: pa.Schema, ddl: str) -> DataFrame:
    """Return the rows of data files as stored, without a merge, with the file name in column `__dredge_file`.

    Spark reads local files itself. Dredge's tasks open the files of an object store, and files that Spark would skip as
    hidden, one file per task.

    Args:
        spark: The session that reads.
        store: The table.
        paths: The data files.
        fields: Arrow schema of the columns to read.
        ddl: The columns of ``fields`` as Spark DDL.
    """
    if not place_of(store.root) and not any(map(_is_hidden, paths)):
        return parquet(spark, paths, ddl).selectExpr("*", "_metadata.file_name AS __dredge_file")
    target = fields.append(pa.field("__dredge_file", pa.string()))
    listed = pa.table([pa.array(range(len(paths)), pa.int32()), pa.array(paths, pa.string())], names=["task", "path"])
    spread = spark.createDataFrame(listed).repartitionById(max(len(paths), 1), "task")
    return spread.mapInArrow(Shipped(_opened_rows, store.to_json(), target), f"{ddl}, __dredge_file STRING")


def _opened_rows(store_text: str, target: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    file_io = shipped_store(store_text).file_io
    for path in (path for batch in batches for path in batch.column("path").to_pylist()):  # one a file
        source = open_source(file_io, path)
        try:
            names = [name for name in target.names if name in source.schema.names]
            for rows in source.batches(names, _BATCH_ROWS):
                count = rows.num_rows
                columns = [
                    rows.column(name) if name in names else pa.nulls(count, target.field(name).type)
                    for name in target.names[:-1]
                ]
                columns.append(pa.array([path.rpartition("/")[2]]).take(pa.array(np.zeros(count, np.int32))))
                yield from to_spark(pa.RecordBatch.from_arrays(columns, names=target.names), target)
        finally:
            source.close()


def _merged(
    spark: SparkSession, store: TableStore, scan: Scan, splits: Sequence[Split], ddl: str, limit: int | None
) -> DataFrame:
    """Return the rows of splits that Dredge reads, several small splits per task.

    Tasks over listed splits start faster than the planning of a data source.

    Args:
        spark: The session.
        store: The table.
        scan: The read, with its columns, filter and snapshot.
        splits: The splits to read.
        ddl: Columns of the result as Spark DDL.
        limit: Number of rows after which a task stops reading; None for no limit.
    """
    slots = slots_of(spark)
    if limit is None:
        splits = cut_for_workers(store, splits, slots)
    tasks = pack_splits(splits, slots, store.options)
    numbers = [number for number, together in enumerate(tasks) for _ in together]
    rows = [
        pa.array(numbers, pa.int32()),
        pa.array([split.to_bytes() for task in tasks for split in task], pa.binary()),
    ]
    listed = spark.createDataFrame(pa.table(rows, names=["task", "split"])).repartitionById(len(tasks), "task")
    tracked = stores_row_ids(store.schema)
    number = None if scan.snapshot is None else scan.snapshot.id
    return listed.mapInArrow(
        Shipped(_merged_rows, store.to_json(), scan.columns, scan.filter, tracked, limit, number), ddl
    )


def require_kept(store: TableStore, snapshot_id: int | None) -> None:
    """Raise an error if the snapshot of a frame has expired.

    Without this check a frame would return outdated rows for as long as their files still exist.

    Args:
        store: The table.
        snapshot_id: The snapshot that the frame was planned on; None if nothing had been committed.

    Raises:
        SnapshotNotFound: The snapshot has expired, and no tag keeps it.
    """
    if snapshot_id is None:
        return
    try:
        tags.find_snapshot(store, snapshot_id)
    except SnapshotNotFound as error:
        why = (
            f"this frame of table {store.name} was planned on snapshot {snapshot_id}, which has expired: "
            "load the table again, or call lsm_core.spark.read_table or refresh again"
        )
        raise SnapshotNotFound(why, error.expired) from error


def _merged_rows(
    store_text: str,
    columns: Sequence[str],
    predicate: Predicate | None,
    tracked: bool,
    limit: int | None,
    snapshot_id: int | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    store = shipped_store(store_text)
    require_kept(store, snapshot_id)
    store = with_row_ids(store) if tracked else store
    target = spark_arrow_schema(fields_of(store.schema, columns, store.name), store.name)
    left = limit
    for batch in batches:
        for place in range(batch.num_rows):  # one per split
            if left is not None and left <= 0:
                return
            split = Split.from_bytes(batch.column("split")[place].as_py())
            for rows in read_split(store, split, columns, predicate):
                yield from to_spark(rows, target)
                left = None if left is None else left - rows.num_rows
                if left is not None and left <= 0:
                    return
