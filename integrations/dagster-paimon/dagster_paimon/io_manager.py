"""`PaimonIOManager`: stores what an asset returns in a Paimon table, and loads tables as inputs of assets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import dagster as dg
import pyarrow as pa
from pydantic import Field

from dagster_paimon.frames import collect, is_spark_frame, read_as, schema_of
from dagster_paimon.partitions import PARTITION_EXPR, condition_of, condition_text, partition_columns, partition_values
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
        mode = _mode(context.definition_metadata.get("mode", self.mode), name)
        table = self._opened(catalog, name, obj, mode, columns, context.definition_metadata)
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

        Returns:
            The rows. None if the input depends on no partition and the table does not exist, as in the first partition
            of an asset that depends on its own previous partition.
        """
        upstream = context.upstream_output.definition_metadata if context.upstream_output is not None else {}
        name = self._table_name(context.asset_key, upstream)
        catalog = open_catalog(self.warehouse, self.catalog_options)
        if context.has_asset_partitions and not context.asset_partition_keys and _existing(catalog, name) is None:
            return None
        table = catalog.table(name)
        metadata = context.definition_metadata or {}
        condition = None
        if context.has_asset_partitions:
            expression = metadata.get(PARTITION_EXPR, upstream.get(PARTITION_EXPR))
            columns = partition_columns(context.asset_partitions_def, expression, context.asset_key.to_user_string())
            condition = condition_of(_values(context, table, columns), list(columns.values()))
        annotation = context.dagster_type.typing_type if context.dagster_type is not None else None
        return read_as(table, annotation, metadata.get("columns"), condition)

    def _table_name(self, key: dg.AssetKey, metadata: Mapping[str, Any] | None) -> str:
        """Return the name of an asset's table ("database.table")."""
        above = key.path[-2] if len(key.path) > 1 else self.database
        return f"{(metadata or {}).get('schema', above)}.{key.path[-1]}"

    def _opened(
        self,
        catalog: Catalog,
        name: str,
        rows: Any,
        mode: Mode,
        columns: Mapping[str, str],
        metadata: Mapping[str, Any],
    ) -> Table:
        """Return the table of an output, which is created if it is missing and the mode can be used."""
        table = _existing(catalog, name)
        primary_keys = _primary_keys(metadata, name) if table is None else table.primary_keys
        if mode == "upsert" and not primary_keys:
            remedy = "set the metadata 'primary_keys'" if table is None else "use the mode append or overwrite"
            raise dg.DagsterInvalidDefinitionError(
                f"table {name} has no primary key, so its rows cannot be upserted; {remedy}"
            )
        if table is None:
            table = catalog.create_table(
                name,
                schema_of(rows),
                ignore_if_exists=True,
                primary_keys=list(primary_keys),
                partition_keys=list(columns.values()),
                options=_table_options(metadata, name),
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
        merging = "merge" if self.merge_schema else None
        if mode != "overwrite":
            replaced: Any = None
            rows = _limited(rows, table, values) if values else rows
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
    present_values = _refuse_outside(collected, table, values)
    table.write(collected, overwrite=True, schema_mode=None if catalog is None else "merge")
    empty = [value for value in values if tuple(value.values()) not in present_values]
    if empty:
        table.drop_partitions(empty)


def _limited(rows: Any, table: Table, values: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows of which none lies outside the partitions of the run.

    A record batch reader is checked while it is read; its error ends the write before the commit.

    Raises:
        dagster.Failure: rows lie outside the partitions.
    """
    if is_spark_frame(rows):
        inside = f"coalesce({condition_text(values)}, false)"
        outside = rows.where(f"NOT {inside}").limit(1).collect()
        if outside:
            raise _outside_failure(table, list(values[0]), [str(tuple(outside[0][column] for column in values[0]))])
        return rows
    if not isinstance(rows, pa.RecordBatchReader):
        rows = collect(rows)
        _refuse_outside(rows, table, values)
        return rows

    def checked() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            _refuse_outside(pa.Table.from_batches([batch]), table, values)
            yield batch

    return pa.RecordBatchReader.from_batches(rows.schema, checked())


def _refuse_outside(rows: pa.Table, table: Table, values: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Return the partitions of rows, all of which are partitions of the run.

    Raises:
        dagster.Failure: rows lie outside the partitions of the run, or have no partition column.
    """
    columns = list(values[0])
    missing = [column for column in columns if column not in rows.column_names]
    if missing:
        raise dg.Failure(
            f"table {table.name}: the rows that the asset returned have no partition column {', '.join(missing)}; "
            "nothing is written"
        )
    present = rows.select(columns).group_by(columns).aggregate([])
    fields = pa.schema([(column, table.schema.arrow_schema.field(column).type) for column in columns])
    present_values = {tuple(row.values()) for row in present.cast(fields).to_pylist()}
    outside = sorted(map(str, present_values - {tuple(value.values()) for value in values}))
    if outside:
        raise _outside_failure(table, columns, outside)
    return present_values


def _outside_failure(table: Table, columns: Sequence[str], outside: Sequence[str]) -> dg.Failure:
    """Return the failure of a write with rows outside the partitions of the run."""
    return dg.Failure(
        f"table {table.name}: the asset returned rows of partitions {', '.join(outside[:5])} of {list(columns)}, which "
        "are not partitions of this run; nothing is written"
    )


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


def _primary_keys(metadata: Mapping[str, Any], table: str) -> Sequence[str]:
    """Return the key columns that the metadata of an asset names; one column may be a text."""
    names = metadata.get("primary_keys") or ()
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise dg.DagsterInvalidDefinitionError(
            f"table {table}: the metadata 'primary_keys' is {names!r}; it must be a list of names of columns"
        )
    return names


def _table_options(metadata: Mapping[str, Any], table: str) -> dict[str, str]:
    """Return the options that the metadata of an asset sets for its new table."""
    options = metadata.get("table_options") or {}
    if not isinstance(options, Mapping):
        raise dg.DagsterInvalidDefinitionError(
            f"table {table}: the metadata 'table_options' is {options!r}; it must have values by option, such as "
            "{'bucket': '2'}"
        )
    return {str(key): str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}


def _existing(catalog: Catalog, name: str) -> Table | None:
    """Return a table, or None if it does not exist."""
    try:
        return catalog.table(name)
    except (DatabaseNotFound, TableNotFound):
        return None
