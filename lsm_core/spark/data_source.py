"""The Spark data source `dredge`: `spark.read.format("dredge")`, `df.write.format("dredge")`, and SQL views over both.

It takes filters from Spark where the option `push-filters` asks for it, and not by itself: Spark (4.1 to 4.3) keeps the reader that the
first filtered query of a DataFrame made and hands it to later queries of that DataFrame which push none, so `df.where("k = 2").count()`
followed by `df.count()` would count one key. The option `filter` prunes files and rows and means the same every time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from lsm_core.errors import DredgeError, InvalidOption, SnapshotNotFound, UnsupportedFeature
from lsm_core.metadata.row_tracking import COLUMNS as ROW_TRACKING
from lsm_core.metadata.row_tracking import tracks_rows, with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.options import READING, find_key, is_catalog_option
from lsm_core.read import Split, parse_filter, plan_scan, read_split, resolve
from lsm_core.read.changes import Choice, span_of_options, span_parts, span_values
from lsm_core.read.table_versions import startup
from lsm_core.spark.spark_columns import fields_of, require_schema, spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.spark_read import EXACT_TYPES, packed
from lsm_core.spark.spark_sink import IN_CATALOG, TableWriter
from lsm_core.spark.spark_tasks import require_workers, store_of, use_this_python
from lsm_core.spark.spark_write import DYNAMIC_OVERWRITE, numbered_commit, prepared
from lsm_core.table import Catalog, Table
from lsm_core.table.system.reader import ReadOnlyTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from lsm_core.format.schema import DataField, TableSchema
    from lsm_core.spark.spark_stream_read import StreamChoice

FORMAT: Final = "dredge"
_PLACE: Final = ("warehouse", "table")
PUSH_FILTERS: Final = "push-filters"
"""Whether Spark's own conditions reach the files: for a frame that one query uses once (see the module)."""
_SHORT: Final = {"tag": "scan.tag-name", "timestamp": "scan.timestamp"}
"""Options of the source for what the table's reading options say, too; a timestamp of digits is epoch ms."""
READ_OPTIONS: Final = (*_PLACE, "columns", "snapshot-id", *_SHORT, "branch", "filter", "limit", PUSH_FILTERS)
TABLE_READ_OPTIONS: Final = READING
"""Options of the table that a read may set begin with these (`scan.tag-name`, `incremental-between-scan-mode` ...)."""
MERGE_ON_READ: Final = "deletion-vectors.merge-on-read"
"""An option of the table that a read may set beside any choice of version."""
PARTITION_OVERWRITE_MODE: Final = "partitionoverwritemode"
"""Spark's option of one write, before the session's `spark.sql.sources.partitionOverwriteMode`; keys come in lower case."""
COMMIT_OPTIONS: Final = ("commit-user", "commit-identifier")
"""Name a commit that is to happen once: see `write_table`."""
ROW_KIND_COLUMN: Final = "row-kind-column"
"""Names the column of the frame that holds row kinds."""
MERGE_SCHEMA: Final = ("write.merge-schema", "write.merge-schema.explicit-cast")
"""Paimon's options of a write: columns that the frame alone has are added to the table, types widened; also where values may be lost."""
WRITE_OPTIONS: Final = (
    *_PLACE,
    PARTITION_OVERWRITE_MODE,
    DYNAMIC_OVERWRITE,
    *COMMIT_OPTIONS,
    ROW_KIND_COLUMN,
    *MERGE_SCHEMA,
)

_OF_STREAMS: Final = ("read.stream.", "read.changelog", "consumer", "streaming")
"""Options of streams alone, and those of tables that only streams obey, begin with these."""


def register(spark: SparkSession) -> None:
    """Make the format `dredge` known to a session, whose workers must have `lsm_core`: see `use_this_python`.

    Raises SparkFailed where they have not, naming their Python and what it lacks; only then, and where it cannot be known, a job is run.
    """
    if not use_this_python(spark):
        require_workers(spark)
    spark.dataSource.register(TableSource)


def table_to_read(options: Mapping[str, str]) -> Table:
    """Open the table, branch or system table that a reader's options name, with the table's own reading options on top.

    Raises InvalidOption for a key that is no option of a read and for two that choose a version, TableNotFound, UnsupportedFeature.
    """
    reading = {key: text for key, text in options.items() if key.startswith(TABLE_READ_OPTIONS) and find_key(key)}
    for short, key in _SHORT.items():
        if options.get(short):
            digits = short == "timestamp" and options[short].isdigit()
            reading["scan.timestamp-millis" if digits else key] = options[short]
    merging = {MERGE_ON_READ: options[MERGE_ON_READ]} if MERGE_ON_READ in options else {}
    accepted = f"{', '.join(READ_OPTIONS)}, {MERGE_ON_READ}, and the table's reading options (scan.*)"
    _check_keys(options, (*READ_OPTIONS, *reading, *merging), accepted)
    name, branch = options["table"], options.get("branch")
    if branch:
        if "$" in name:
            raise InvalidOption("branch", branch, f"the table alone beside it, not {name}")
        name = f"{name}$branch_{branch}"
    if options.get("snapshot-id") and reading:
        rival = next(iter(reading))
        raise InvalidOption(rival, reading[rival], "nothing beside snapshot-id: either of them chooses what is read")
    table = catalog_of(options).table(name)
    return table.copy({**reading, **merging}) if reading or merging else table


def table_to_write(options: Mapping[str, str]) -> TableStore:
    """Open the table or branch that a writer's options name, `dynamic-partition-overwrite` among its options if given.

    Raises InvalidOption for other keys, TableNotFound, UnsupportedFeature for a system table.
    """
    reading = next((key for key in options if key in READ_OPTIONS[2:] or key.startswith(TABLE_READ_OPTIONS)), None)
    if reading is not None:
        raise InvalidOption(reading, options[reading], "nothing where rows are written: it is for reading")
    _check_keys(options, WRITE_OPTIONS, ", ".join(WRITE_OPTIONS))
    store = store_of(catalog_of(options).table(options["table"]))
    chosen = options.get(DYNAMIC_OVERWRITE)
    return store if chosen is None else store.copy({DYNAMIC_OVERWRITE: chosen})


def catalog_of(options: Mapping[str, str]) -> Catalog:
    """The catalog that options of the data source name: `warehouse`, and any option of a catalog (`metastore`, `uri`, `lock.enabled` ...)."""
    return Catalog(options["warehouse"], {key: text for key, text in options.items() if is_catalog_option(key)})


def _check_keys(options: Mapping[str, str], known: Collection[str], accepted: str) -> None:
    if not options or any(key.startswith("option.") for key in options):
        raise UnsupportedFeature(IN_CATALOG)
    for key in options:
        if key not in known and not is_catalog_option(key):
            raise InvalidOption(key, options[key], f"options of the data source: {accepted}, and those of a catalog")
    for key in _PLACE:
        if not options.get(key):
            raise InvalidOption(key, options.get(key), "a data source needs the options 'warehouse' and 'table'")


def _switch(options: Mapping[str, str], key: str) -> bool:
    text = options.get(key, "false").strip().lower()
    if text not in ("true", "false"):
        raise InvalidOption(key, options[key], "true or false")
    return text == "true"


class TableSource(DataSource):
    """A Paimon table, branch or system table, by the options `READ_OPTIONS` and `WRITE_OPTIONS`.

    `warehouse` (path), `table` ("db.name", "db.name$branch_dev", "db.name$files"). Reads: the table's own reading options
    (`TABLE_READ_OPTIONS`), `columns` ("a,b"; default all; `_ROW_ID` and `_SEQUENCE_NUMBER` too where rows are tracked), `snapshot-id` (default: the latest when the frame is first used; it stays that
    one), `filter` (JSON: [["k", ">", 3], ["s", "in", ["a"]]], and-ed, or a list of such lists, or-ed). Writes: see `TableWriter`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({key.lower(): text for key, text in options.items()})

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the chosen columns as Spark DDL, as of the snapshot's time.

        Raises TableNotFound, ColumnNotFound, InvalidOption, SnapshotNotFound, UnsupportedFeature (an entry in Spark's catalog).
        """
        if any(key.startswith(_OF_STREAMS) for key in self.options):
            return self._stream().ddl
        table = table_to_read(self.options)
        try:
            return spark_ddl(self._fields(table), table.name)
        except SnapshotNotFound:
            if isinstance(table, ReadOnlyTable) or _snapshot_id(self.options) is not None:
                raise
            # a stream's start may have expired since it began; a batch says so when it is used
            return self._stream().ddl

    def _stream(self) -> StreamChoice:
        """What a stream reads, with the schema of its start where that is kept, else of today.

        Raises TableNotFound, InvalidOption, UnsupportedFeature for a system table or a Spark before 4.2.
        """
        name = self.options.get("table") or ""
        if find_spec("pyspark.sql.streaming.datasource") is None:
            raise UnsupportedFeature("readStream before Spark 4.2", name)
        from lsm_core.spark.spark_stream_read import OPTIONS, StreamChoice

        own = {key: text for key, text in self.options.items() if key.startswith(_OF_STREAMS)}
        unknown = next((key for key in own if key not in OPTIONS and not find_key(key)), None)
        if unknown is not None:
            raise InvalidOption(unknown, own[unknown], f"options of streams: {', '.join(OPTIONS)}", name)
        reading = {key: text for key, text in self.options.items() if key not in own}
        odd = next((key for key in ("snapshot-id", "limit", PUSH_FILTERS) if reading.get(key)), None)
        if odd is not None:
            raise InvalidOption(odd, reading[odd], "nothing in a stream; scan.snapshot-id is where one begins", name)
        table = table_to_read(reading)
        if isinstance(table, ReadOnlyTable):
            raise UnsupportedFeature("readStream of a system table", table.name)
        store = table.store.copy({key: text for key, text in own.items() if key not in OPTIONS})
        with suppress(SnapshotNotFound, UnsupportedFeature):
            store = resolve(store).store
        return StreamChoice.of(store, _columns(reading), _filter(reading), own)

    def _fields(self, table: Table | ReadOnlyTable) -> tuple[DataField, ...]:
        """The chosen columns of ``table``, as of the snapshot's time."""
        snapshot_id = _snapshot_id(self.options)
        if isinstance(table, ReadOnlyTable):
            return fields_of(table.schema_at(snapshot_id), _columns(self.options), table.name)
        store, columns, _ = _asked(table.store, self.options)
        return fields_of(store.schema, columns, table.name)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of this table. Raises InvalidOption for a ``schema`` that a user named and that is not the table's.

        Spark asks for it when a frame is first used: of a schema that was named it tells a data source nothing before.
        """
        table = table_to_read(self.options)
        require_schema(schema, self._fields(table), table.name)
        if isinstance(table, ReadOnlyTable):
            return SystemTableReader(dict(self.options))
        pushing = (self.options.get(PUSH_FILTERS) or "false").lower()
        if pushing not in ("true", "false"):
            raise InvalidOption(PUSH_FILTERS, pushing, "true or false", table.name)
        return (PushingReader if pushing == "true" else TableReader)(table.store, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of this table's changes. What `StreamReader` refuses, and :meth:`reader` of a ``schema`` that was named, its first
        question raises: of an error raised here Spark would speak of a bug of its own.
        """
        try:
            choice = self._stream()
            from lsm_core.spark.spark_stream_read import StreamReader

            choice.require(schema)
            return StreamReader(choice, self.options)
        except DredgeError as error:
            return RefusedStream(error)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        """Return the writer of one epoch; see `StreamWriter`. Raises InvalidOption also for options that batches alone obey, InvalidSchema for
        types that cannot be merged.

        Spark asks twice an epoch, for its tasks and for its commit: with `write.merge-schema` the first one alone finds something to change.
        """
        from lsm_core.spark.spark_stream_write import OF_SPARK, OPTIONS, StreamWriter

        store = table_to_write({key: text for key, text in self.options.items() if key not in (*OPTIONS, *OF_SPARK)})
        of_batches = (*COMMIT_OPTIONS, ROW_KIND_COLUMN, PARTITION_OVERWRITE_MODE, DYNAMIC_OVERWRITE)
        odd = next((key for key in of_batches if key in self.options), None)
        if odd is not None:
            accepted = f"nothing in a stream, which takes {', '.join((*OPTIONS, *MERGE_SCHEMA))} and a column _row_kind"
            raise InvalidOption(odd, self.options[odd], accepted, store.name)
        store, _ = self._merged(store, schema)
        return StreamWriter(store, schema.names, overwrite, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of this table or branch; ``overwrite`` as `TableWriter` says. Raises as `prepared` does, before any task runs."""
        store = table_to_write(self.options)
        numbered = numbered_commit(store, *(self.options.get(key) for key in COMMIT_OPTIONS))
        store, kinds = self._merged(store, schema)
        return TableWriter(store, overwrite, self.options.get(PARTITION_OVERWRITE_MODE), numbered, kinds)

    def _merged(self, store: TableStore, schema: StructType) -> tuple[TableStore, str | None]:
        """As `prepared`, by the options."""
        merging, explicit = (_switch(self.options, key) for key in MERGE_SCHEMA)
        catalog = catalog_of(self.options) if merging else None
        return prepared(store, schema, self.options.get(ROW_KIND_COLUMN), catalog, explicit_casts=explicit)


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be read: every question about its place raises why."""

    def __init__(self, error: DredgeError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Raise the error."""
        raise self._error

    def latestOffset(self, *given: Any) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Raise the error."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self._error


class SplitPartition(InputPartition):
    """Splits of the scan that one task reads, as bytes; none for an empty table."""

    def __init__(self, splits: tuple[bytes, ...] = ()) -> None:
        super().__init__(splits)


class SpanPartition(InputPartition):
    """A share of the changes that the options ask for: after one snapshot, up to and with another."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))


class TableReader(DataSourceReader):
    """Reads one snapshot: a Spark partition for some splits (`packed`), Arrow batches out; with a limit one partition that stops there."""

    def __init__(self, store: TableStore, options: Mapping[str, str]) -> None:
        # Spark ships this object to the tasks before it asks for partitions: all that `read` needs is known here.
        self._snapshot_id, self._filter, self._limit = _snapshot_id(options), _filter(options), _limit(options)
        store, self._columns, self._tracked = _asked(store, options)
        self._store_text = store.to_json()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read: one partition per split, or per snapshot where changes are read."""
        store = TableStore.from_json(self._store_text)
        span = span_of_options(store) if self._snapshot_id is None else None
        if span is not None:
            Choice.of(store, self._columns, self._filter)
            if self._limit is not None:
                raise InvalidOption("limit", self._limit, "nothing where changes are read", store.name)
            return [SpanPartition(one.start, one.end) for one in span_parts(span)] or [SplitPartition()]
        scan = plan_scan(
            store, snapshot_id=self._snapshot_id, columns=self._columns, filter=self._filter, limit=self._limit
        )
        tasks = packed(scan.splits, os.cpu_count() or 1, scan.store.options) if self._limit is None else [scan.splits]
        found = [SplitPartition(tuple(split.to_bytes() for split in splits)) for splits in tasks if splits]
        return found or [SplitPartition()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition in the Arrow types of `TableSource.schema`, filters applied."""
        store = TableStore.from_json(self._store_text)
        store = with_row_ids(store) if self._tracked else store
        target = spark_arrow_schema(fields_of(store.schema, self._columns, store.name), store.name)
        if isinstance(partition, SpanPartition):
            whole, (start, end) = span_of_options(store), partition.value
            assert whole is not None
            choice = Choice.of(store, self._columns, self._filter)
            for batch in span_values(choice, replace(whole, start=start, end=end)):
                yield to_spark(batch, target)
            return
        predicate = parse_filter(self._filter, store.schema, store.name)
        left = self._limit
        for data in partition.value:
            if left is not None and left <= 0:
                return
            for batch in read_split(store, Split.from_bytes(data), self._columns, predicate):
                yield to_spark(batch if left is None else batch.slice(0, left), target)
                left = None if left is None else left - batch.num_rows
                if left is not None and left <= 0:
                    return


class PushingReader(TableReader):
    """Takes the conditions of the query that Dredge tests as Spark does; the others stay Spark's.

    Spark raises an error of its own unless `spark.sql.python.filterPushdown.enabled` is true.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Keep the conditions that can be tested here, and yield those that cannot."""
        schema = TableStore.from_json(self._store_text).schema
        taken: list[tuple[str, str, Any]] = []
        for one in filters:
            test = spark_test(one, schema)
            if test is None:
                yield one
            else:
                taken.append(test)
        if taken:
            given = self._filter or [[]]
            groups = given if isinstance(given[0], list) else [given]
            self._filter = [[*group, *taken] for group in groups]


class SystemTableReader(DataSourceReader):
    """Reads a system table ("db.t$files", "sys.tables"): one Spark partition, as its rows are made of metadata."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the Arrow types of `TableSource.schema`, filter applied."""
        del partition
        table, snapshot_id = table_to_read(self._options), _snapshot_id(self._options)
        columns = _columns(self._options)
        assert isinstance(table, ReadOnlyTable)
        target = spark_arrow_schema(fields_of(table.schema_at(snapshot_id), columns, table.name), table.name)
        for batch in table.to_batches(columns, _filter(self._options), snapshot_id=snapshot_id):
            yield to_spark(batch, target)


def _as_read(store: TableStore, snapshot_id: int | None) -> TableStore:
    """The table as of the schema that the version asked for is read with; changes are read with today's."""
    return store if snapshot_id is None and startup(store).changes else resolve(store, snapshot_id).store


def _asked(store: TableStore, options: Mapping[str, str]) -> tuple[TableStore, list[str], bool]:
    """The table as it is read, the chosen columns, and whether columns or filter name those of row tracking, which it then has.

    Raises ColumnNotFound.
    """
    store = _as_read(store, _snapshot_id(options))
    given = _columns(options)
    columns = list(store.schema.field_names if given is None else given)
    tracked = tracks_rows(store)
    if tracked:
        with_ids = with_row_ids(store)
        predicate = parse_filter(_filter(options), with_ids.schema, store.name)
        tracked = bool({*columns, *(() if predicate is None else predicate.columns)}.intersection(ROW_TRACKING))
        store = with_ids if tracked else store
    fields_of(store.schema, columns, store.name)
    return store, columns, tracked


_COMPARISONS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
    StringStartsWith: "starts with",
}


def spark_test(given: Filter, schema: TableSchema) -> tuple[str, str, Any] | None:
    """A condition of Spark's as one test of a filter; None where Spark compares otherwise, or may (`EXACT_TYPES`)."""
    if isinstance(given, Not):
        child = given.child
        return (
            (child.attribute[0], "is not null", None) if isinstance(child, IsNull) and _is_own(child, schema) else None
        )
    if not _is_own(given, schema):
        return None
    column = given.attribute[0]
    if isinstance(given, IsNull | IsNotNull):
        return column, "is null" if isinstance(given, IsNull) else "is not null", None
    operator = _COMPARISONS.get(type(given))
    if operator is None or schema.field(column).type.root not in EXACT_TYPES:
        return None
    values = list(given.value) if isinstance(given, In) else [given.value]
    if not values or any(not isinstance(one, int | str | date) or isinstance(one, bool | datetime) for one in values):
        return None
    return column, operator, values if isinstance(given, In) else values[0]


def _is_own(given: Any, schema: TableSchema) -> bool:
    """Whether the condition is on a column, not on a part of one."""
    path: tuple[str, ...] = getattr(given, "attribute", ())
    return len(path) == 1 and schema.has_field(path[0])


def _columns(options: Mapping[str, str]) -> list[str] | None:
    text = options.get("columns")
    if not text:
        return None
    if text.startswith("["):  # a JSON list, for names that hold a comma
        try:
            return [str(name) for name in json.loads(text)]
        except ValueError as error:
            raise InvalidOption("columns", text, "names with commas between, or a JSON list of names") from error
    return [name.strip() for name in text.split(",")]


def _filter(options: Mapping[str, str]) -> list[Any] | None:
    """The option's JSON in the form of `lsm_core.read.parse_filter`: its innermost lists are conditions."""
    text = options.get("filter")
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidOption("filter", text, 'JSON: [["column", ">", 3], ...]') from error
    if not isinstance(value, list) or not all(isinstance(item, list) and item for item in value):
        raise InvalidOption("filter", text, 'JSON: [["column", ">", 3], ...]')
    if all(isinstance(item[0], list) for item in value):
        return [[tuple(condition) for condition in group] for group in value]
    return [tuple(condition) for condition in value]


def _limit(options: Mapping[str, str]) -> int | None:
    text = options.get("limit")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidOption("limit", text, "a number of rows")
    return int(text)


def _snapshot_id(options: Mapping[str, str]) -> int | None:
    text = options.get("snapshot-id")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOption("snapshot-id", text, "a snapshot's number") from error


__all__ = ["FORMAT", "READ_OPTIONS", "WRITE_OPTIONS", "TableSource", "register", "table_to_read", "table_to_write"]
