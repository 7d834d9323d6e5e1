"""Conversion between rows of a table and the frames of pyarrow, pandas, Polars and PySpark.

A library is imported only if an asset uses its frames: pandas, Polars and PySpark are optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import NoneType
from typing import Any, Final, get_args

import pyarrow as pa

from lsm_core import Table

FRAMES: Final = (
    "pyarrow.Table, pyarrow.RecordBatchReader, pandas.DataFrame, polars.DataFrame, polars.LazyFrame, "
    "pyspark.sql.DataFrame, lsm_core.Table"
)


def kind_of(annotation: Any) -> str:
    """Return the kind of frame that a type stands for, such as "polars.LazyFrame".

    Args:
        annotation: class of a value, or type annotation of an input.

    Returns:
        The name of the library and of the class; "" for no annotation (`Any`, `None`).
    """
    if annotation is None or annotation is Any:
        return ""
    types = [item for item in get_args(annotation) if item is not NoneType]
    if len(types) == 1 and NoneType in get_args(annotation):
        return kind_of(types[0])
    if not isinstance(annotation, type):
        return str(annotation)
    return f"{annotation.__module__.partition('.')[0]}.{annotation.__name__}"


def is_spark_frame(value: object) -> bool:
    """Return whether a value is a DataFrame of PySpark, on a classic or a Connect session."""
    return kind_of(type(value)) == "pyspark.DataFrame"


def read_as(
    table: Table,
    annotation: Any,
    columns: Sequence[str] | None,
    condition: object,
) -> Any:
    """Read rows of a table's newest snapshot in the form that an input asks for.

    Args:
        table: the table.
        annotation: type annotation of the input; without one (`Any`, `None`) the rows are an Arrow table.
        columns: names of the columns to read, None for all.
        condition: filter as `lsm_core.Table.to_arrow` takes it, or None.

    Returns:
        A value of the annotated type. A record batch reader, a lazy frame and a DataFrame of Spark read later, in
        bounded memory.

    Raises:
        TypeError: no frame of this type can be read.
        lsm_core.errors.DredgeError: the table cannot be read.
    """
    match kind_of(annotation):
        case "lsm_core.Table":
            return table
        case "pyarrow.RecordBatchReader":
            schema = table.to_arrow(columns=columns, filter=condition, limit=0).schema
            return pa.RecordBatchReader.from_batches(schema, table.to_batches(columns=columns, filter=condition))
        case "pandas.DataFrame":
            return table.to_pandas(columns=columns, filter=condition)
        case "polars.DataFrame":
            return table.to_polars(columns=columns, filter=condition)
        case "polars.LazyFrame":
            return table.scan(columns=columns, filter=condition).to_polars()
        case "pyspark.DataFrame":
            from pyspark.sql import SparkSession

            from lsm_core.spark import read_table, spark_session

            session = SparkSession.getActiveSession() or spark_session()
            return read_table(session, table, columns=columns, filter=condition)
        case "pyarrow.Table" | "":
            return table.to_arrow(columns=columns, filter=condition)
        case kind:
            raise TypeError(f"table {table.name} cannot be read as {kind}; annotate the input with one of: {FRAMES}")


def schema_of(value: Any) -> pa.Schema:
    """Return the Arrow schema of a frame, without its rows where its library allows.

    Args:
        value: a frame of one of the types in `FRAMES`.

    Raises:
        TypeError: the value is no frame.
    """
    kind = kind_of(type(value))
    if kind == "pyspark.DataFrame":
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(value.schema)
    if kind == "pandas.DataFrame":
        return pa.Schema.from_pandas(value, preserve_index=False).remove_metadata()
    if kind == "polars.LazyFrame":
        import polars as pl

        return pl.DataFrame(schema=value.collect_schema()).to_arrow().schema
    if kind == "lsm_core.Table":
        return value.schema.arrow_schema
    if isinstance(value, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return value.schema
    with suppress(pa.ArrowInvalid):  # one column, such as a Series of Polars
        if hasattr(value, "__arrow_c_schema__"):
            return pa.schema(value)
        if hasattr(value, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(value).schema
    raise TypeError(f"rows of type {kind} cannot be written to a Paimon table; return one of: {FRAMES}")


def collect(value: Any) -> pa.Table:
    """Return the rows of a frame as an Arrow table in memory.

    Args:
        value: a frame of one of the types in `FRAMES`, but not of Spark.
    """
    kind = kind_of(type(value))
    if kind == "pandas.DataFrame":
        return pa.Table.from_pandas(value, preserve_index=False)
    if kind == "polars.LazyFrame":
        value = value.collect()
    return pa.table(value)
