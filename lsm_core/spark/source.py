"""The Spark data source `dredge`: `spark.read.format("dredge")`, `df.write.format("dredge")`, and SQL views over both.

It takes no filters from Spark on purpose. Spark (4.1 to 4.3) keeps the reader that the first filtered query of a DataFrame made and hands
it to later queries of that DataFrame which push none: `df.where("k = 2").count()` followed by `df.count()` would count one key. The option
`filter` prunes files and rows instead, and means the same every time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition

from lsm_core.errors import InvalidOption
from lsm_core.metadata.store import TableStore
from lsm_core.read import Split, parse_filter, plan_scan, read_split, resolve
from lsm_core.spark.jobs.columns import fields_of, spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.sink import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "dredge"
OPTIONS: Final = ("warehouse", "table", "columns", "snapshot-id", "filter")


def register(spark: SparkSession) -> None:
    """Make the format `dredge` known to a session."""
    spark.dataSource.register(TableSource)


def open_store(options: Mapping[str, str]) -> TableStore:
    """Open the table that a data source's options name: `warehouse` and `table`. Raises InvalidOption, TableNotFound."""
    for key in options:
        if key.lower() not in OPTIONS:
            raise InvalidOption(key, options[key], f"options of the data source: {', '.join(OPTIONS)}")
    for key in ("warehouse", "table"):
        if not options.get(key):
            raise InvalidOption(key, options.get(key), "a data source needs the options 'warehouse' and 'table'")
    from lsm_core.table import Catalog

    store: TableStore = Catalog(options["warehouse"]).table(options["table"]).store
    return store


class TableSource(DataSource):
    """A Paimon table, by the options in `OPTIONS`.

    `warehouse` (path), `table` ("db.name"), `columns` ("a,b"; default all), `snapshot-id` (default: the latest when the frame is first
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
        store = resolve(open_store(self.options), _snapshot_id(self.options)).store
        return spark_ddl(fields_of(store.schema, _columns(self.options), store.name), store.name)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of this table."""
        return TableReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of this table; ``overwrite`` replaces the whole table."""
        return TableWriter(open_store(self.options).to_json(), overwrite)


class SplitPartition(InputPartition):
    """One split of the scan, as bytes; ``None`` stands for an empty table."""

    def __init__(self, split: bytes | None) -> None:
        super().__init__(split)


class TableReader(DataSourceReader):
    """Reads one snapshot: a Spark partition per split, Arrow batches out."""

    def __init__(self, options: dict[str, str]) -> None:
        # Spark ships this object to the tasks before it asks for partitions: all that `read` needs is known here.
        self._snapshot_id = _snapshot_id(options)
        store = resolve(open_store(options), self._snapshot_id).store
        self._store_text = store.to_json()
        self._columns = [field.name for field in fields_of(store.schema, _columns(options), store.name)]
        self._filter = _filter(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the scan: one partition per split."""
        store = TableStore.from_json(self._store_text)
        scan = plan_scan(store, snapshot_id=self._snapshot_id, columns=self._columns, filter=self._filter)
        return [SplitPartition(split.to_bytes()) for split in scan.splits] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split in the Arrow types of `TableSource.schema`, filters applied."""
        store = TableStore.from_json(self._store_text)
        target = spark_arrow_schema(fields_of(store.schema, self._columns, store.name), store.name)
        if partition.value is None:
            return
        predicate = parse_filter(self._filter, store.schema, store.name)
        for batch in read_split(store, Split.from_bytes(partition.value), self._columns, predicate):
            yield to_spark(batch, target)


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
