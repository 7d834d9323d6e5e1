"""How values are told apart, ordered and written in Spark SQL: bit for bit, in the order of the format."""

from __future__ import annotations

from typing import Final

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import DataField
from lsm_core.spark.jobs.columns import quoted
from lsm_core.types import DataType, TypeRoot

FLOATS: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)


def exact(value: str, kind: DataType) -> str:
    """An expression whose equality is that of the value's bits: Spark holds -0.0 equal to 0.0, their texts differ."""
    return f"CAST({value} AS STRING)" if kind.root in FLOATS else value


def ordered(value: str, kind: DataType) -> str:
    """An expression that sorts as the format sorts the values: nulls first, -0.0 below 0.0, NaN greatest."""
    if kind.root not in FLOATS:
        return value
    return f"struct({value} AS v, CAST({value} AS STRING) <> '-0.0' AS s)"


def exact_parts(field: DataField, unordered: bool, table: str) -> list[str]:
    """Expressions that are all equal exactly where the column's values are the same; ``unordered``: arrays count as bags.

    Raises UnsupportedFeature for nested types other than arrays of plain values: Spark neither hashes nor compares maps.
    """
    name, kind = quoted(field.name), field.type
    if not kind.is_nested:
        return [f"{name} IS NULL", exact(name, kind)]
    element = kind.element
    if kind.root is not TypeRoot.ARRAY or element is None or element.is_nested:
        raise UnsupportedFeature(f"comparing column '{field.name}' of type {kind} on Spark", table)
    items = f"transform({name}, e -> {exact('e', element)})"
    items = f"sort_array({items})" if unordered else items
    # a hash passes over nulls inside an array
    return [f"{name} IS NULL", f"size({name})", f"transform({items}, e -> e IS NULL)", items]


def literal(text: str) -> str:
    """A text as Spark SQL reads it literally, whatever characters it holds."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


__all__ = ["FLOATS", "exact", "exact_parts", "literal", "ordered"]
