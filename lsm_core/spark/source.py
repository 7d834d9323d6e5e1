"""The Spark data source `dredge`: `spark.read.format("dredge")`, `df.write.format("dredge")`, and SQL views over both.

It takes no filters from Spark on purpose. Spark (4.1 to 4.3) keeps the reader that the first filtered query of a DataFrame made and hands
it to later queries of that DataFrame which push none: `df.where("k = 2").count()` followed by `df.count()` would count one key. The option
`filter` prunes files and rows instead, and means the same every time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition

from lsm_core.errors import InvalidOption
from lsm_core.metadata.store import TableStore
from lsm_core.read import Split, parse_filter, plan_scan, read_split, resolve
from lsm_core.read.changes import Choice, span_of_options, span_parts, span_values
from lsm_core.read.versions import startup
from lsm_core.spark.jobs.columns import fields_of, spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.sink import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "dredge"
OPTIONS: Final = ("warehouse", "table", "columns", "snapshot-id", "filter")
READ_OPTIONS: Final = ("scan.", "incremental-between")
"""Options of the table that a read may set begin with these (`scan.tag-name`, `incremental-between-scan-mode` ...)."""


def register(spark: SparkSession) -> None:
    """Make the format `dredge` known to a session."""
    spark.dataSource.register(TableSource)


def open_store(options: Mapping[str, str]) -> TableStore:
    """Open the table that a data source's options name (`warehouse`, `table`), with the reading options among them.

    Raises InvalidOption, TableNotFound.
    """
    reading = {key.lower(): text for key, text in options.items() if key.lower().startswith(READ_OPTIONS)}
    for key in options:
        if key.lower() not in OPTIONS and key.lower() not in reading:
            accepted = f"options of the data source: {', '.join(OPTIONS)}, and the table's that begin with "
            raise InvalidOption(key, options[key], accepted + " or ".join(READ_OPTIONS))
    for key in ("warehouse", "table"):
        if not options.get(key):
            raise InvalidOption(key, options.get(key), "a data source needs the options 'warehouse' and 'table'")
    from lsm_core.table import Catalog

    store: TableStore = Catalog(options["warehouse"]).table(options["table"]).store
    return store.copy(reading) if reading else store


class TableSource(DataSource):
    """A Paimon table, by the options in `OPTIONS`.

    `warehouse` (path), `table` ("db.name"), the table's own reading options (`READ_OPTIONS`), `columns` ("a,b"; default all), `snapshot-id` (default: the latest when the frame is first
    used; it stays that one), `filter` (JSON: [["k", ">", 3], ["s", "in", ["a"]]], and-ed, or a list of such lists, or-ed).
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the chosen columns as Spark DDL, as of the snapshot's time.

        Raises TableNotFound, ColumnNotFound, InvalidOption, SnapshotNotFound.
        """
        store = _as_read(open_store(self.options), _snapshot_id(self.options))
        return spark_ddl(fields_of(store.schema, _columns(self.options), store.name), store.name)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of this table."""
        return TableReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of this table; ``overwrite`` replaces the whole table."""
        options = {key: text for key, text in self.options.items() if key.lower() in OPTIONS}
        if len(options) < len(self.options):
            extra = next(key for key in self.options if key not in options)
            raise InvalidOption(extra, self.options[extra], "nothing where rows are written: it is for reading")
        return TableWriter(open_store(options).to_json(), overwrite)


class SplitPartition(InputPartition):
    """One split of the scan, as bytes; ``None`` stands for an empty table."""

    def __init__(self, split: bytes | None) -> None:
        super().__init__(split)


class SpanPartition(InputPartition):
    """A share of the changes that the options ask for: after one snapshot, up to and with another."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))


class TableReader(DataSourceReader):
    """Reads one snapshot: a Spark partition per split, Arrow batches out."""

    def __init__(self, options: dict[str, str]) -> None:
        # Spark ships this object to the tasks before it asks for partitions: all that `read` needs is known here.
        self._snapshot_id = _snapshot_id(options)
        store = _as_read(open_store(options), self._snapshot_id)
        self._store_text = store.to_json()
        self._columns = [field.name for field in fields_of(store.schema, _columns(options), store.name)]
        self._filter = _filter(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read: one partition per split, or per snapshot where changes are read."""
        store = TableStore.from_json(self._store_text)
        span = span_of_options(store) if self._snapshot_id is None else None
        if span is not None:
            Choice.of(store, self._columns, self._filter)
            return [SpanPartition(one.start, one.end) for one in span_parts(span)] or [SplitPartition(None)]
        scan = plan_scan(store, snapshot_id=self._snapshot_id, columns=self._columns, filter=self._filter)
        return [SplitPartition(split.to_bytes()) for split in scan.splits] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition in the Arrow types of `TableSource.schema`, filters applied."""
        store = TableStore.from_json(self._store_text)
        target = spark_arrow_schema(fields_of(store.schema, self._columns, store.name), store.name)
        if partition.value is None:
            return
        if isinstance(partition, SpanPartition):
            for batch in _changed(store, self._columns, self._filter, partition):
                yield to_spark(batch, target)
            return
        predicate = parse_filter(self._filter, store.schema, store.name)
        for batch in read_split(store, Split.from_bytes(partition.value), self._columns, predicate):
            yield to_spark(batch, target)


def _as_read(store: TableStore, snapshot_id: int | None) -> TableStore:
    """The table as of the schema that the version asked for is read with; changes are read with today's."""
    return store if snapshot_id is None and startup(store).changes else resolve(store, snapshot_id).store


def _changed(
    store: TableStore, columns: list[str], given: object, partition: SpanPartition
) -> Iterator[pa.RecordBatch]:
    span = span_of_options(store)
    assert span is not None
    start, end = partition.value
    return span_values(Choice.of(store, columns, given), replace(span, start=start, end=end))


def _columns(options: Mapping[str, str]) -> list[str] | None:
    text = options.get("columns")
    if not text:
        return None
    if text.startswith("["):  # a JSON list, for names that hold a comma
        return _json_columns(text)
    return [name.strip() for name in text.split(",")]


def _json_columns(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except ValueError as error:
        raise InvalidOption("columns", text, "names with commas between, or a JSON list of names") from error
    return [str(name) for name in names]


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


def _snapshot_id(options: Mapping[str, str]) -> int | None:
    text = options.get("snapshot-id")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOption("snapshot-id", text, "a snapshot's number") from error


__all__ = ["FORMAT", "OPTIONS", "TableSource", "open_store", "register"]
