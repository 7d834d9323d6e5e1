"""`PaimonIOManager`: stores what an asset returns in a Paimon table, and loads tables as inputs of assets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args

import dagster as dg
import pyarrow as pa
from pydantic import Field

from dagster_paimon.frames import collect, is_spark_frame, read_as, schema_of
from dagster_paimon.partitions import PARTITION_EXPR, condition_text, partition_columns, partition_values
from dagster_paimon.resource import open_catalog
from dagster_paimon.table_metadata import snapshot_metadata, table_metadata
from lsm_core import Catalog, Table
from lsm_core.errors import DatabaseNotFound, TableNotFound

Mode = Literal["overwrite", "append", "upsert"]


class PaimonIOManager(dg.ConfigurableIOManager):
    """IO manager that stores each asset in a table of a Paimon warehouse.

    The last part of an asset's key is the name of its table. The part before it is the database, if there is one; the
    metadata `schema` of the asset has priority, and ``database`` is the default. A missing table is created with the
    columns of the first rows.

    An asset returns rows as a `pyarrow.Table` or `RecordBatchReader`, a frame of pandas, Polars (also lazy) or PySpark,
    or `None` if it wrote its table itself. The annotation of an input selects the form in which a table is loaded.

    A run of a partitioned asset replaces exactly its own partitions. The metadata `partition_expr` names the partition
    column of the table, or one column for each dimension. Rows outside the partitions of the run are refused.

    Metadata of an asset:
        schema: database of the table.
        partition_expr: partition column, or columns by dimension.
        primary_keys: list of key columns of a table that is created.
        table_options: options of a table that is created, by key.
        mode: mode of this asset, see ``mode``.
        columns: on an input, list of the columns to load.

    Examples:
        ```python
        import dagster as dg
        import polars as pl
        from dagster_paimon import PaimonIOManager


        @dg.asset(metadata={"primary_keys": ["id"], "mode": "upsert"})
        def orders() -> pl.DataFrame:
            return pl.DataFrame({"id": [1, 2], "amount": [9.5, 3.0]})


        @dg.asset
        def total(orders: pl.LazyFrame) -> pl.DataFrame:
            return orders.select(pl.col("amount").sum()).collect()


        io_manager = PaimonIOManager(warehouse="/data/warehouse", database="shop")
        defs = dg.Definitions([orders, total], resources={"io_manager": io_manager})
        ```
    """

    warehouse: str = Field(description="location of the tables: a folder or an address such as s3://bucket/folder")
    catalog_options: dict[str, str] = Field(
        default_factory=dict, description="options of the catalog (metastore, s3.endpoint, ...); no secrets"
    )
    database: str = Field("default", description="database of assets whose key has one part")
    mode: Mode = Field(
        "overwrite",
        description=(
            "overwrite: replace all rows, or those of the run's partitions; append: add rows; upsert: replace rows by "
            "primary key"
        ),
    )
    merge_schema: bool = Field(
        default=False,
        description="whether columns that only the rows have are added to the table, and types are widened",
    )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write the rows of an output to its table, in one commit, and add metadata of the table.

        Args:
            context: context of the output.
            obj: rows, or None if the asset wrote its table itself.

        Raises:
            TypeError: the output is no frame.
            dagster.DagsterInvalidDefinitionError: the metadata of the asset cannot be used.
            lsm_core.errors.DredgeError: the rows cannot be written; nothing is committed.
        """
        name = self._table_name(context.asset_key, context.definition_metadata)
        catalog = open_catalog(self.warehouse, self.catalog_options)
        if obj is None:
            table = _existing(catalog, name)
            if table is not None:
                context.add_output_metadata(table_metadata(table))
            return
        columns = _partition_columns(context)
        table = self._opened(catalog, name, obj, columns, context.definition_metadata)
        mode = _mode(context.definition_metadata.get("mode", self.mode), name)
        values = _values(context, table, columns) if columns else []
        before = table.latest_snapshot()
        self._write(catalog, table, obj, mode, values)
        context.add_output_metadata(snapshot_metadata(table.refresh(), before, partitioned=bool(columns)))

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the rows of a table, of the partitions that the input depends on.

        Args:
            context: context of the input.

        Raises:
            TypeError: the annotation of the input is no frame.
            lsm_core.errors.DredgeError: the table cannot be read.
        """
        upstream = context.upstream_output.definition_metadata if context.upstream_output is not None else {}
        name = self._table_name(context.asset_key, upstream)
        table = open_catalog(self.warehouse, self.catalog_options).table(name)
        metadata = context.definition_metadata or {}
        condition = None
        if context.has_asset_partitions:
            expression = metadata.get(PARTITION_EXPR, upstream.get(PARTITION_EXPR))
            columns = partition_columns(context.asset_partitions_def, expression, context.asset_key.to_user_string())
            condition = condition_text(_values(context, table, columns))
        annotation = context.dagster_type.typing_type if context.dagster_type is not None else None
        return read_as(table, annotation, metadata.get("columns"), condition)

    def _table_name(self, key: dg.AssetKey, metadata: Mapping[str, Any] | None) -> str:
        """Return the name of an asset's table ("database.table")."""
        above = key.path[-2] if len(key.path) > 1 else self.database
        return f"{(metadata or {}).get('schema', above)}.{key.path[-1]}"

    def _opened(
        self, catalog: Catalog, name: str, rows: Any, columns: Mapping[str, str], metadata: Mapping[str, Any]
    ) -> Table:
        """Return the table of an output, which is created if it is missing."""
        table = _existing(catalog, name)
        if table is None:
            table = catalog.create_table(
                name,
                schema_of(rows),
                ignore_if_exists=True,
                primary_keys=list(metadata.get("primary_keys", ())),
                partition_keys=list(columns.values()),
                options={str(key): str(value) for key, value in dict(metadata.get("table_options", {})).items()},
                create_database=True,
            )
        unpartitioned = [column for column in columns.values() if column not in table.partition_keys]
        if unpartitioned:
            raise dg.DagsterInvalidDefinitionError(
                f"table {name} is partitioned by {list(table.partition_keys)}, not by {unpartitioned}; the metadata "
                f"{PARTITION_EXPR!r} must name partition columns"
            )
        return table

    def _write(
        self, catalog: Catalog, table: Table, rows: Any, mode: Mode, values: Sequence[Mapping[str, Any]]
    ) -> None:
        """Write rows.

        Args:
            catalog: catalog of the table.
            table: the table.
            rows: the rows.
            mode: whether rows are replaced.
            values: values of the partition columns of the run's partitions; none for an asset without partitions.
        """
        if mode == "upsert" and not table.primary_keys:
            raise dg.DagsterInvalidDefinitionError(
                f"table {table.name} has no primary key, so its rows cannot be upserted; use the mode append or "
                "overwrite"
            )
        merging = "merge" if self.merge_schema else None
        if mode != "overwrite":
            replaced: Any = None
        elif len(values) == 1:
            replaced = values[0]
        elif values:
            _replace_partitions(catalog if self.merge_schema else None, table, rows, values)
            return
        else:  # all rows are replaced, also those of partitions that the new rows do not have
            table, replaced = table.copy({"dynamic-partition-overwrite": "false"}), True
        if is_spark_frame(rows):
            from lsm_core.spark import write_table

            write_table(rows, table, overwrite=replaced, merge_schema=catalog if self.merge_schema else None)
        else:
            table.write(rows, overwrite=replaced, schema_mode=merging)


def _replace_partitions(catalog: Catalog | None, table: Table, rows: Any, values: Sequence[Mapping[str, Any]]) -> None:
    """Replace several partitions by rows.

    Rows that are not a frame of Spark are collected in memory first. Partitions without new rows are emptied by a
    second commit.

    Args:
        catalog: catalog of the table, to merge the schema of the rows; None for no schema merging.
        table: the table.
        rows: the rows.
        values: values of the partition columns, by column, of each partition.

    Raises:
        dagster.Failure: rows lie outside the partitions.
    """
    if is_spark_frame(rows):
        from lsm_core.spark import write_table

        write_table(rows, table, overwrite=condition_text(values), merge_schema=catalog)
        return
    collected = collect(rows)
    columns = list(values[0])
    present = collected.select(columns).group_by(columns).aggregate([])
    fields = pa.schema([table.schema.arrow_schema.field(column) for column in columns])
    present_values = {tuple(row.values()) for row in present.cast(fields).to_pylist()}
    outside = sorted(map(str, present_values - {tuple(value.values()) for value in values}))
    if outside:
        raise dg.Failure(
            f"table {table.name}: the asset returned rows of partitions {', '.join(outside[:5])} of {columns}, which "
            "are not partitions of this run; nothing is written"
        )
    table.write(collected, overwrite=True, schema_mode=None if catalog is None else "merge")
    empty = [value for value in values if tuple(value.values()) not in present_values]
    if empty:
        table.drop_partitions(empty)


def _partition_columns(context: dg.OutputContext) -> dict[str, str]:
    """Return the partition columns of an output by dimension; none for an asset without partitions."""
    if not context.has_asset_partitions:
        return {}
    expression = context.definition_metadata.get(PARTITION_EXPR)
    return partition_columns(context.asset_partitions_def, expression, context.asset_key.to_user_string())


def _values(
    context: dg.OutputContext | dg.InputContext, table: Table, columns: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the values of the partition columns for the partitions of an output or input."""
    return partition_values(
        context.asset_partitions_def, context.asset_partition_keys, columns, table.schema.arrow_schema
    )


def _mode(value: object, table: str) -> Mode:
    """Return a valid mode."""
    for mode in get_args(Mode):
        if value == mode:
            return cast("Mode", mode)
    raise dg.DagsterInvalidDefinitionError(
        f"table {table}: the metadata 'mode' is {value!r}; it must be one of {', '.join(get_args(Mode))}"
    )


def _existing(catalog: Catalog, name: str) -> Table | None:
    """Return a table, or None if it does not exist."""
    try:
        return catalog.table(name)
    except (DatabaseNotFound, TableNotFound):
        return None
