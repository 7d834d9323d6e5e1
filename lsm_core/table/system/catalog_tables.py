"""`sys.tables`, `sys.all_table_options`, `sys.catalog_options`, `sys.partitions`: the whole warehouse as rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.format.partitions import partition_specs
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import snapshots
from lsm_core.metadata.live_files import totals
from lsm_core.metadata.store import TableStore
from lsm_core.options import mask_secrets
from lsm_core.read.fallback import partition_sources
from lsm_core.read.table_versions import Version
from lsm_core.table.system.view import table_of_columns, table_schema

_LOG = logging.getLogger(__name__)

TABLES: Final = table_schema(
    [
        ("database_name", "STRING"),
        ("table_name", "STRING"),
        ("table_type", "STRING"),
        ("partitioned", "BOOLEAN"),
        ("primary_key", "BOOLEAN"),
        ("owner", "STRING"),
        ("created_at", "BIGINT"),
        ("created_by", "STRING"),
        ("updated_at", "BIGINT"),
        ("updated_by", "STRING"),
        ("record_count", "BIGINT"),
        ("file_size_in_bytes", "BIGINT"),
        ("file_count", "BIGINT"),
        ("last_file_creation_time", "BIGINT"),
    ]
)
TABLE_OPTIONS: Final = table_schema(
    [("database_name", "STRING"), ("table_name", "STRING"), ("key", "STRING"), ("value", "STRING")]
)
CATALOG_OPTIONS: Final = table_schema([("key", "STRING NOT NULL"), ("value", "STRING NOT NULL")])
PARTITIONS: Final = table_schema(
    [
        ("database_name", "STRING"),
        ("table_name", "STRING"),
        ("partition_name", "STRING"),
        ("record_count", "BIGINT"),
        ("file_size_in_bytes", "BIGINT"),
        ("file_count", "BIGINT"),
        ("last_file_creation_time", "BIGINT"),
        ("done", "BOOLEAN"),
    ]
)


@dataclass(frozen=True)
class Warehouse:
    """Content of the `sys` tables.

    Attributes:
        options: options of the catalog.
        stores: tuples (database, table, `TableStore` of the table), one per table of the catalog. The last part is None
            if the metadata of the table cannot be read.
    """

    options: Mapping[str, str]
    stores: Iterable[tuple[str, str, TableStore | None]]


def tables(warehouse: Warehouse) -> Iterator[pa.Table]:
    """Yield one row per table.

    Columns that only catalog servers know are null. The row of an unreadable table has only the names of database and
    table.
    """
    columns: dict[str, list[Any]] = {name: [] for name in TABLES.field_names[:5]}
    for database, table, store in warehouse.stores:
        columns["database_name"].append(database)
        columns["table_name"].append(table)
        columns["table_type"].append(None if store is None else str(store.options.get("type")).lower())
        columns["partitioned"].append(None if store is None else bool(store.schema.partition_keys))
        columns["primary_key"].append(None if store is None else bool(store.schema.primary_keys))
    yield table_of_columns(TABLES, columns)


def all_table_options(warehouse: Warehouse) -> Iterator[pa.Table]:
    """Yield one row per option of each readable table; the table's path is one of the options."""
    for database, table, store in warehouse.stores:
        if store is None:
            continue
        options = {"path": store.root, **mask_secrets(store.schema.options)}
        yield table_of_columns(
            TABLE_OPTIONS,
            {
                "database_name": [database] * len(options),
                "table_name": [table] * len(options),
                "key": options.keys(),
                "value": options.values(),
            },
        )


def catalog_options(warehouse: Warehouse) -> Iterator[pa.Table]:
    """Yield one row per option of the catalog; secrets are not among them."""
    options = warehouse.options
    yield table_of_columns(CATALOG_OPTIONS, {"key": options.keys(), "value": options.values()})


def partitions(warehouse: Warehouse) -> Iterator[pa.Table]:
    """Yield one row per partition with files; names are those of the directories, unescaped, and times are epoch ms.

    An unreadable table has no rows; a warning is logged.
    """
    for database, table, store in warehouse.stores:
        try:
            rows = [] if store is None else _partitions_of(database, table, store)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one table, the others are shown
            _LOG.warning("table %s.%s is left out of sys.partitions: %s", database, table, error)
            continue
        if rows:
            yield pa.concat_tables(rows).sort_by("partition_name")


def _partitions_of(database: str, table: str, store: TableStore) -> list[pa.Table]:
    """Return the partitions of a table's branch, and of its fallback branch."""
    if not store.schema.partition_keys:
        return []
    sources = partition_sources(Version(snapshots.latest(store), store))
    return [
        _rows_of(database, table, version.store, version.snapshot, hidden)
        for version, hidden in sources
        if version.snapshot is not None
    ]


def _rows_of(database: str, table: str, store: TableStore, snapshot: Snapshot, hidden: frozenset[bytes]) -> pa.Table:
    sums = totals(store, snapshot, ["partition"])
    if hidden:
        is_hidden = pc.is_in(sums.column("partition"), pa.array(sorted(hidden), pa.binary()))
        sums = sums.filter(pc.invert(is_hidden))
    names = partition_specs(store.schema, sums.column("partition").to_pylist(), store.options)
    count = sums.num_rows
    columns = {
        "database_name": pa.repeat(pa.scalar(database), count),
        "table_name": pa.repeat(pa.scalar(table), count),
        "partition_name": pa.array(names, pa.string()),
        **{name: sums.column(name) for name in PARTITIONS.field_names[3:6]},
        "last_file_creation_time": sums.column("last_update_time"),
        "done": pa.repeat(pa.scalar(value=False), count),
    }
    return pa.table(columns)


GLOBAL_TABLES: Final[dict[str, tuple[TableSchema, Callable[[Warehouse], Iterator[pa.Table]]]]] = {
    "tables": (TABLES, tables),
    "all_table_options": (TABLE_OPTIONS, all_table_options),
    "catalog_options": (CATALOG_OPTIONS, catalog_options),
    "partitions": (PARTITIONS, partitions),
}
