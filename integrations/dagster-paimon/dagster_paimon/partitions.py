"""Partitions of a Dagster asset as partitions of a Paimon table."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa

PARTITION_EXPR = "partition_expr"
"""Key of an asset's metadata that names the partition columns of its table, as Dagster's other IO managers use it."""


def partition_columns(partitions: dg.PartitionsDefinition, expression: object, asset: str) -> dict[str, str]:
    """Return the column of the table for each dimension of an asset's partitions.

    Args:
        partitions: partitions of the asset.
        expression: value of the metadata `partition_expr`: the name of a column, or, for an asset of several
            dimensions, names of columns by dimension.
        asset: name of the asset, for errors.

    Returns:
        Names of columns by dimension; the dimension is "" if the asset has only one.

    Raises:
        dagster.DagsterInvalidDefinitionError: the expression does not name one column for each dimension.
    """
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        dimensions = [dimension.name for dimension in partitions.partitions_defs]
        if isinstance(expression, Mapping) and sorted(expression) == sorted(dimensions):
            return {dimension: str(expression[dimension]) for dimension in dimensions}
        needed = f"{{{', '.join(f'{dimension!r}: <column>' for dimension in dimensions)}}}"
    elif isinstance(expression, str) and expression:
        return {"": expression}
    else:
        needed = "'<column>'"
    raise dg.DagsterInvalidDefinitionError(
        f"asset {asset} has partitions, but its metadata {PARTITION_EXPR!r} is {expression!r}; set it to {needed}, "
        "where <column> is a partition column of the table"
    )


def partition_values(
    partitions: dg.PartitionsDefinition, keys: Sequence[str], columns: Mapping[str, str], schema: pa.Schema
) -> list[dict[str, Any]]:
    """Return the values of the partition columns for some partitions of an asset.

    Args:
        partitions: partitions of the asset.
        keys: keys of the partitions.
        columns: names of columns by dimension (:func:`partition_columns`).
        schema: Arrow schema of the table.

    Returns:
        Values by column, one mapping for each key.

    Raises:
        ValueError: a key does not fit the type of its column.
    """
    return [
        {
            columns[dimension]: column_value(definition, text, schema.field(columns[dimension]))
            for dimension, (definition, text) in _dimensions(partitions, key).items()
        }
        for key in keys
    ]


def _dimensions(partitions: dg.PartitionsDefinition, key: str) -> dict[str, tuple[dg.PartitionsDefinition, str]]:
    """Return the definition and the key of each dimension of a partition."""
    if not isinstance(partitions, dg.MultiPartitionsDefinition):
        return {"": (partitions, key)}
    keys = partitions.get_partition_key_from_str(key).keys_by_dimension
    return {part.name: (part.partitions_def, keys[part.name]) for part in partitions.partitions_defs}


def column_value(partitions: dg.PartitionsDefinition, key: str, field: pa.Field) -> Any:
    """Return the value of a partition column for the key of one dimension.

    Args:
        partitions: definition of the dimension.
        key: key of a partition of the dimension.
        field: the column.

    Returns:
        The key itself for texts; the begin of the partition for a DATE or TIMESTAMP of a time-window partition; else
        the key, read as a value of the column's type.

    Raises:
        ValueError: the key does not fit the type.
    """
    kind = field.type
    if pa.types.is_string(kind):
        return key
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition) and pa.types.is_temporal(kind):
        begin = partitions.time_window_for_partition_key(key).start
        if pa.types.is_date(kind):
            return begin.date()
        return begin if kind.tz else begin.replace(tzinfo=None)
    try:
        if pa.types.is_date(kind):
            return dt.date.fromisoformat(key)
        return pa.array([key]).cast(kind)[0].as_py()
    except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"partition {key!r} is no value of the column {field.name} of type {kind}") from error


Groups = list[dict[str, list[Any]]]
"""Alternatives, each with the accepted values of every column."""


def _groups(values: Sequence[Mapping[str, Any]]) -> Groups:
    """Return few alternatives that together select exactly some partitions.

    Args:
        values: values of the partition columns, by column, of each partition; at least one.
    """
    distinct = {column: list(dict.fromkeys(value[column] for value in values)) for column in values[0]}
    partitions = {tuple(value.values()) for value in values}
    if math.prod(map(len, distinct.values())) == len(partitions):
        return [distinct]
    widest = max(distinct, key=lambda column: len(distinct[column]))
    groups: dict[tuple[Any, ...], dict[str, list[Any]]] = {}
    for value in values:
        others = {column: [item] for column, item in value.items() if column != widest}
        group = groups.setdefault(tuple(map(tuple, others.values())), {**others, widest: []})
        group[widest].append(value[widest])
    return list(groups.values())


def condition_of(values: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[list[tuple[str, str, list[Any]]]]:
    """Return the filter, as `lsm_core.Table.to_arrow` takes it, that selects some partitions.

    It is no text, because a text has at most 65,536 characters: too few for some thousand partitions.

    Args:
        values: values of the partition columns, by column, of each partition.
        columns: names of the partition columns.

    Returns:
        The filter; without partitions, a filter that selects no row.
    """
    if not values:
        return [[(columns[0], "in", [])]]
    return [[(column, "in", items) for column, items in group.items()] for group in _groups(values)]


def condition_text(values: Sequence[Mapping[str, Any]]) -> str:
    """Return the SQL condition that selects some partitions.

    Args:
        values: values of the partition columns, by column, of each partition; at least one.
    """
    return " OR ".join(
        f"({' AND '.join(_test(column, items) for column, items in group.items())})" for group in _groups(values)
    )


def _test(column: str, values: Sequence[Any]) -> str:
    literals = [_literal(value) for value in values]
    test = f"= {literals[0]}" if len(literals) == 1 else f"IN ({', '.join(literals)})"
    return f"{_quoted(column)} {test}"


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _literal(value: Any) -> str:
    """Return a value of a partition column as an SQL literal."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        text = value.replace("'", "''")
        return f"'{text}'"
    return str(value)
