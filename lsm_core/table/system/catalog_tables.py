"""`sys.tables`, `sys.all_table_options`, `sys.catalog_options`, `sys.partitions`: the whole warehouse as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lsm_core.format.partition_path import partition_specs
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.table.system.totals import totals
from lsm_core.table.system.view import of_columns, table_schema

if TYPE_CHECKING:
    from lsm_core.table.catalog import Catalog

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


def _stores(catalog: Catalog) -> Iterator[tuple[str, str, TableStore]]:
    for database in catalog.list_databases():
        for table in catalog.list_tables(database):
            yield database, table, catalog.store_as_stored(f"{database}.{table}")


def tables(catalog: Catalog) -> Iterator[pa.Table]:
    """One row a table; what only catalog servers know is null. Raises CorruptFile."""
    found = list(_stores(catalog))
    yield of_columns(
        TABLES,
        {
            "database_name": [database for database, _, _ in found],
            "table_name": [table for _, table, _ in found],
            "table_type": [str(store.options.get("type")).lower() for _, _, store in found],
            "partitioned": [bool(store.schema.partition_keys) for _, _, store in found],
            "primary_key": [bool(store.schema.primary_keys) for _, _, store in found],
        },
    )


def all_table_options(catalog: Catalog) -> Iterator[pa.Table]:
    """One row an option of a table, its path among them. Raises CorruptFile."""
    for database, table, store in _stores(catalog):
        options = {"path": store.root, **store.schema.options}
        yield of_columns(
            TABLE_OPTIONS,
            {
                "database_name": [database] * len(options),
                "table_name": [table] * len(options),
                "key": options.keys(),
                "value": options.values(),
            },
        )


def catalog_options(catalog: Catalog) -> Iterator[pa.Table]:
    """One row an option of the catalog; there are no secrets among them."""
    options = catalog.options.raw
    yield of_columns(CATALOG_OPTIONS, {"key": options.keys(), "value": options.values()})


def partitions(catalog: Catalog) -> Iterator[pa.Table]:
    """One row a partition with files, under the names of its directories unescaped; times in epoch ms. Raises CorruptFile."""
    for database, table, store in _stores(catalog):
        snapshot = snapshots.latest(store)
        if snapshot is None or not store.schema.partition_keys:
            continue
        found = totals(store, snapshot, ["partition"])
        names = partition_specs(store.schema, found.column("partition").to_pylist(), store.options)
        count = found.num_rows
        made = {
            "database_name": pa.repeat(pa.scalar(database), count),
            "table_name": pa.repeat(pa.scalar(table), count),
            "partition_name": pa.array(names, pa.string()),
            **{name: found.column(name) for name in PARTITIONS.field_names[3:6]},
            "last_file_creation_time": found.column("last_update_time"),
            "done": pa.repeat(pa.scalar(value=False), count),
        }
        yield pa.table(made).sort_by("partition_name")


GLOBAL_TABLES: Final[dict[str, tuple[TableSchema, Callable[[Catalog], Iterator[pa.Table]]]]] = {
    "tables": (TABLES, tables),
    "all_table_options": (TABLE_OPTIONS, all_table_options),
    "catalog_options": (CATALOG_OPTIONS, catalog_options),
    "partitions": (PARTITIONS, partitions),
}

__all__ = ["GLOBAL_TABLES"]
