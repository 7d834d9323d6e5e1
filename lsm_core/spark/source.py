"""The Spark data source `dredge`: `spark.read.format("dredge")`, `df.write.format("dredge")`, and SQL views over both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
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
    StringStartsWith,
)

from lsm_core.errors import InvalidOption
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.read import Predicate, Split, parse_filter, plan_scan, read_split
from lsm_core.spark.jobs.columns import fields_of, spark_arrow_schema, spark_ddl, to_spark
from lsm_core.spark.session import PUSHDOWN
from lsm_core.spark.sink import TableWriter
from lsm_core.types import TypeRoot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "dredge"
OPTIONS: Final = ("warehouse", "table", "columns", "snapshot-id")
STORE_OPTION: Final = "dredge.store"
SPLITS_OPTION: Final = "dredge.splits"
_OWN: Final = (*OPTIONS, STORE_OPTION, SPLITS_OPTION, "path")

# Spark holds NaN equal to itself and above all numbers, Arrow does not: such columns are filtered by Spark alone.
_FLOATS: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_COMPARISONS: Final[tuple[tuple[type[Filter], str], ...]] = (
    (EqualTo, "="),
    (GreaterThan, ">"),
    (GreaterThanOrEqual, ">="),
    (LessThan, "<"),
    (LessThanOrEqual, "<="),
    (StringStartsWith, "starts with"),
    (In, "in"),
)


def register(spark: SparkSession) -> None:
    """Make the format `dredge` known to a session; again after changing `spark.sql.python.filterPushdown.enabled`.

    Spark refuses a reader that can push filters while that setting is off, so each setting has a class of its own.
    """
    pushdown = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(PushdownSource if pushdown else TableSource)


def open_store(options: Mapping[str, str]) -> TableStore:
    """Open the table that a data source's options name: `warehouse` and `table`. Raises InvalidOption, TableNotFound."""
    for key in options:
        if key.lower() not in _OWN:
            raise InvalidOption(key, options[key], f"options of the data source: {', '.join(OPTIONS)}")
    shipped = options.get(STORE_OPTION)
    if shipped:
        return TableStore.from_json(shipped)
    for key in ("warehouse", "table"):
        if not options.get(key):
            raise InvalidOption(key, options.get(key), "a data source needs the options 'warehouse' and 'table'")
    from lsm_core.table import Catalog  # noqa: PLC0415  (workers that get a shipped store never need the catalog)

    store: TableStore = Catalog(options["warehouse"]).table(options["table"]).store
    return store


class TableSource(DataSource):
    """A Paimon table: `warehouse` (path), `table` ("db.name"), `columns` ("a,b"; default all), `snapshot-id` (default latest)."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the chosen columns as Spark DDL. Raises TableNotFound, ColumnNotFound, InvalidOption."""
        store = open_store(self.options)
        return spark_ddl(fields_of(store.schema, _columns(self.options), store.name), store.name)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of this table, without filters."""
        return TableReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of this table; ``overwrite`` replaces the whole table."""
        return TableWriter(open_store(self.options).to_json(), overwrite)


class PushdownSource(TableSource):
    """The same, also using Spark's filters to leave out files and rows."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader that takes filters."""
        return PushdownReader(dict(self.options))


class SplitPartition(InputPartition):
    """One split of the scan, as bytes; ``None`` stands for an empty table."""

    def __init__(self, split: bytes | None) -> None:
        super().__init__(split)


class TableReader(DataSourceReader):
    """Reads one snapshot: a Spark partition per split, Arrow batches out."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._filter: list[tuple[Any, ...]] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the scan: one partition per split."""
        store = open_store(self._options)
        scan = plan_scan(
            store, snapshot_id=_snapshot_id(self._options), columns=_columns(self._options), filter=self._filter or None
        )
        merged_only = self._options.get(SPLITS_OPTION) == "merged"
        chosen = [split for split in scan.splits if not (merged_only and split.raw)]
        self._plan = (store.to_json(), list(scan.columns))
        return [SplitPartition(split.to_bytes()) for split in chosen] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split in the Arrow types of `TableSource.schema`, filters applied."""
        text, columns = self._plan
        store = TableStore.from_json(text)
        target = spark_arrow_schema(fields_of(store.schema, columns, store.name), store.name)
        if partition.value is None:
            return
        predicate = self._predicate(store.schema, store.name)
        for batch in read_split(store, Split.from_bytes(partition.value), columns, predicate):
            yield to_spark(batch, target)

    def _predicate(self, schema: TableSchema, table: str) -> Predicate | None:
        return parse_filter(self._filter, schema, table) if self._filter else None


class PushdownReader(TableReader):
    """Also takes filters: they prune files and rows here, and Spark still checks every row itself."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Keep what means the same to Arrow and to Spark, and hand all of them back."""
        schema = open_store(self._options).schema
        found = [_condition(one, schema) for one in filters]
        self._filter = [one for one in found if one is not None]
        yield from filters


def _condition(one: Filter, schema: TableSchema) -> tuple[Any, ...] | None:
    """Return a filter of Spark in Dredge's form; ``None`` when it stays with Spark."""
    path = getattr(one, "attribute", None)
    if not isinstance(path, tuple) or len(path) != 1 or not schema.has_field(path[0]):
        return None
    column = path[0]
    if isinstance(one, IsNull):
        return column, "is null"
    if isinstance(one, IsNotNull):
        return column, "is not null"
    if schema.field(column).type.root in _FLOATS:
        return None
    for kind, op in _COMPARISONS:
        if type(one) is kind:
            value = one.value
            return None if value is None else (column, op, list(value) if op == "in" else value)
    return None


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


def _snapshot_id(options: Mapping[str, str]) -> int | None:
    text = options.get("snapshot-id")
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOption("snapshot-id", text, "a snapshot's number") from error


__all__ = ["FORMAT", "OPTIONS", "SPLITS_OPTION", "STORE_OPTION", "PushdownSource", "TableSource", "open_store", "register"]
