"""A table as a DataFrame: files that need no merge go to Spark's own Parquet reader, the rest through Dredge's merge."""

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
from lsm_core.format.kv_layout import append_arrow_schema, kv_arrow_schema
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import tags
from lsm_core.metadata.row_tracking import stores_row_ids, with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions, whole_number
from lsm_core.read import Predicate, Scan, Split, plan_scan, read_split
from lsm_core.read.changes import Choice, Span, span_of_options, span_parts, span_values
from lsm_core.read.predicate import Conjunct
from lsm_core.read.sql_text import EXACT_TYPES
from lsm_core.read.table_versions import BETWEEN
from lsm_core.spark.session_catalog import table_of
from lsm_core.spark.spark_columns import fields_of, quoted, spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.spark_tasks import DEFAULT_SLOTS, Shipped, slots_of, store_of, translated, use_this_python
from lsm_core.storage import place_of
from lsm_core.types import TypeRoot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lsm_core.table.system.reader import ReadOnlyTable


_BATCH_ROWS = 65_536
_WIDEST: Final = 16 << 10
"""Bytes of a file for each of its rows. Spark's own readers decode 4,096 rows at a time (`columnarReaderBatchSize`), whatever their size."""


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
    """Return the merged rows of ``table`` at one version (default: the latest, fixed at this call) as a DataFrame.

    ``table``: a table, or its name where the session's setting `spark.dredge.warehouse` (else DREDGE_WAREHOUSE) names the warehouse.
    Columns come in table order or as asked for; timestamps as TIMESTAMP_NTZ (LTZ: TIMESTAMP). ``filter`` (as in `Table.to_arrow`) keeps
    the rows for which it is true and prunes files. The version is a snapshot's, a tag's, or the newest not younger than ``timestamp_ms``
    (epoch ms); ``incremental``: the rows that changed after one snapshot (or tag) up to and with another. Without any, options of the
    table that ask for another version or for changes (`Table.copy`) are obeyed. ``limit``: at most so many rows, of as few files as hold
    them. Of an append table that tracks rows `_ROW_ID` and `_SEQUENCE_NUMBER` may be named, too.

    Files that need no merging are one scan of Spark's own reader, which pushes down what follows on the frame; the others are merged by
    tasks that read ``columns`` only. `explain_read` tells which. Only metadata is read here. A system table is read by one task.
    Raises UnsupportedFeature, SnapshotNotFound, ColumnNotFound, InvalidFilter, InvalidOption, CorruptFile (a missing file), SparkFailed.
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
    scan = plan_scan(store, columns=columns, filter=filter, limit=limit, **version)
    ddl = spark_ddl(fields_of(scan.schema, scan.columns, scan.store.name), scan.store.name)
    with translated(f"reading table {scan.store.name}"):
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
    """The table with the span asked for among its options, and the version asked for. Raises InvalidOption for both, or two versions."""
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
    """How a read will be done. ``files`` and ``bytes`` (of all that the version holds) against those that are read after pruning.

    ``spark_files``: read by Spark's own reader, as they are; ``merged_files``: read by Dredge's ``tasks``, merged or filtered. ``filter``: what
    is tested, None without one. ``snapshot_id`` None: nothing was committed.
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
        """The same for people."""
        left = self.files - self.spark_files - self.merged_files
        return [
            f"{self.table}: snapshot {'-' if self.snapshot_id is None else self.snapshot_id}, columns {', '.join(self.columns)}",
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
    """Return how `read_table` would read: what is pushed down and pruned, which files Spark reads itself, and how many tasks read the rest.

    ``slots``: tasks that run at once. Needs no Spark; reads metadata only. Raises as `read_table`, and UnsupportedFeature for changes and
    system tables, whose rows one task makes.
    """
    store, version = _table_to_read(store_of(table), snapshot_id, tag, timestamp_ms, None)
    scan = plan_scan(store, columns=columns, filter=filter, limit=limit, **version)
    everything = plan_scan(store, columns=columns, **version).splits
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
        len(packed(merged_splits, slots, scan.store.options)),
    )


def packed(splits: Sequence[Split], slots: int, options: TableOptions) -> list[list[Split]]:
    """Return the splits task by task, in their order: at most `source.split.target-size` each, less where that would leave ``slots`` idle.

    A split counts at least `source.split.open-file-cost`; one that is larger than a task's share is a task.
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
    """The splits that Spark's own reader of each format gives as they are (filtered by Spark), and the others."""
    plain: dict[str, list[Split]] = {}
    merged_splits: list[Split] = []
    store = scan.store
    # Spark's own reader may know nothing of the store, or need its keys said another way; metadata know row ids, as a rule files do not.
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
    """The columns that are read: those of the answer, and behind them what only the filter looks at."""
    looked_at = () if scan.filter is None else scan.filter.columns
    return [*scan.columns, *(name for name in looked_at if name not in scan.columns)]


def _frames(spark: SparkSession, scan: Scan, ddl: str, limit: int | None) -> list[DataFrame]:
    """One frame for the files of each format that Spark reads itself, one for all that Dredge reads."""
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
    """The rows of a system table, made by one task."""
    fields = fields_of(table.schema_at(snapshot_id), columns, table.name)
    target = spark_arrow_schema(fields, table.name)

    with translated(f"reading table {table.name}"):
        made = Shipped(_made_of_metadata, table, columns, filter, snapshot_id, target)
        return spark.range(0, 1, 1, 1).mapInArrow(made, spark_ddl(fields, table.name))


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
    """The changed rows of a span without their kinds, a task a snapshot (a comparison is one task)."""
    ddl = spark_ddl(fields_of(choice.store.schema, choice.columns, choice.store.name), choice.store.name)
    parts = span_parts(span)
    with translated(f"reading changes of table {choice.store.name}"):
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
    store = TableStore.from_json(store_text)
    choice = Choice.of(store, names, predicate)
    target = spark_arrow_schema(fields_of(store.schema, names, store.name), store.name)
    whole = span_of_options(store)
    assert whole is not None
    for batch in batches:
        for place in range(batch.num_rows):  # one per snapshot
            start, end = (batch.column(name)[place].as_py() for name in ("start", "end"))
            for rows in span_values(choice, replace(whole, start=start, end=end)):
                yield from to_spark(rows, target)


# Of other types Spark's ORC reader says something else than the format does: days of the Julian calendar, timestamps in a time zone.
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
    """The format of a split whose rows Spark's own reader gives as they are; "" where it would not.

    Its files say what is ``needed`` as the schema does (``alike``: known by the number of the file's schema), no row is deleted, and their rows
    are not so wide that a batch of that reader, which counts rows alone, would not fit into memory.
    """
    if not split.raw or any(split.deletions):
        return ""
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
    """Whether Spark's own readers pass over a file of that name as if it were not there (`data-file.prefix` may begin so)."""
    return path.rpartition("/")[2].startswith(("_", "."))


def _same_columns(store: TableStore, schema_id: int, needed: Sequence[str]) -> bool:
    """Whether files of this schema hold the columns under the same names and types, or neither them nor others of their names in any case:
    Spark's readers take a column whose name differs in case alone for the one that is asked for.
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
    """Return a filter in Spark SQL that is true for the same rows; None where Spark compares otherwise (floating point, NaN) or may."""
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
    """One test in Spark SQL; None where it cannot be said exactly."""
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
    """A value of `EXACT_TYPES` in Spark SQL, whatever characters it holds."""
    if isinstance(value, str):
        return f"CAST(X'{value.encode().hex()}' AS STRING)"
    return f"DATE'{value.isoformat()}'" if isinstance(value, dt.date) else f"{value}L"


def _with_all_nans(stored: DataFrame, store: TableStore, names: Sequence[str]) -> DataFrame:
    """Return rows of files whose floating point columns Spark does not prune by.

    To Spark NaN is the greatest number. The least and greatest values in a file's footer leave NaN out, as the formats ask for, so a pruning
    `d > 5` or `d = 'NaN'` would lose its rows. Spark hands no test of an expression to its readers.
    """
    from pyspark.sql import functions

    def kept(name: str) -> Column:
        """Return the column, as an expression of the same values where it may hold NaN."""
        kind, column = store.schema.arrow_schema.field(name).type, functions.col(quoted(name))
        if pa.types.is_floating(kind):
            return functions.nanvl(column, column).alias(name)
        return functions.when(column.isNotNull(), column).alias(name) if _has_floating_field(kind) else column

    return stored.select(*map(kept, names))


def _has_floating_field(kind: pa.DataType) -> bool:
    """Return whether a struct has a floating point field, also one inside another struct: Spark tests elements of lists and maps by itself."""
    return pa.types.is_struct(kind) and any(
        pa.types.is_floating(field.type) or _has_floating_field(field.type) for field in kind
    )


def _stored(spark: SparkSession, kind: str, paths: Sequence[str], ddl: str) -> DataFrame:
    """The rows of files of one format, all in one scan."""
    if kind == "parquet":
        return parquet(spark, paths, ddl)
    return spark.read.schema(ddl).options(**_WHOLE).orc(list(paths))


_WHOLE: Final = {"__globPaths__": "false", "ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
"""How Spark's own readers are to read, whatever the session says: each file that is named, and no others; one that is lost or damaged is an error."""
_REBASED: Final = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
"""Days and times count in the calendar of today, in files of all times."""


_VERIFIED: Final = {"parquet.page.verify-checksum.enabled": "true"}
"""Page checksums are compared, which Spark's own Parquet reader leaves out by default."""


def parquet(spark: SparkSession, paths: Sequence[str], ddl: str) -> DataFrame:
    """Return the rows of Parquet files, columns as in ``ddl``.

    Paths are taken literally (a partition value may hold what Spark would read as a pattern), and directory names are not read as
    partition columns: the files hold them.
    """
    return spark.read.schema(ddl).options(**_WHOLE, **_REBASED, **_VERIFIED).parquet(*paths)


def stored_rows(spark: SparkSession, store: TableStore, paths: Sequence[str], fields: pa.Schema, ddl: str) -> DataFrame:
    """Return the rows of data files as they are stored, unmerged, and the name of each one's file in `__dredge_file`.

    ``fields`` and ``ddl`` tell the same columns. Spark reads files of this machine itself; those of an object store, and those that it would
    pass over as hidden, are opened, one by a task, as Dredge opens them.
    """
    if not place_of(store.root) and not any(map(_is_hidden, paths)):
        return parquet(spark, paths, ddl).selectExpr("*", "_metadata.file_name AS __dredge_file")
    target = fields.append(pa.field("__dredge_file", pa.string()))
    listed = pa.table([pa.array(range(len(paths)), pa.int32()), pa.array(paths, pa.string())], names=["task", "path"])
    spread = spark.createDataFrame(listed).repartitionById(max(len(paths), 1), "task")
    return spread.mapInArrow(Shipped(_opened_rows, store.to_json(), target), f"{ddl}, __dredge_file STRING")


def _opened_rows(store_text: str, target: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    file_io = TableStore.from_json(store_text).file_io
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
    """The rows of splits, several small ones merged (or read) by one task; starting tasks costs less than planning a data source."""
    tasks = packed(splits, slots_of(spark), store.options)
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
    """Refuse to read for a frame whose snapshot has expired: its rows would be old ones, as long as their files happen to be there.

    Args:
        store: The table.
        snapshot_id: The snapshot that the frame was planned on; None where nothing was committed.

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
    store = TableStore.from_json(store_text)
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


__all__ = [
    "ReadPlan",
    "condition_of",
    "explain_read",
    "packed",
    "parquet",
    "read_table",
    "require_kept",
    "stored_rows",
]
