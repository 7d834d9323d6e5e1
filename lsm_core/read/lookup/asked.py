"""The keys that a lookup asks for: checked, in the table's types, each once, with the place where it came first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import ColumnNotFound, InvalidFilter, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows
from lsm_core.merge import normalise_keys
from lsm_core.merge.comparable import Ints, flat
from lsm_core.metadata.store import TableStore


@dataclass(frozen=True, eq=False)
class Asked:
    """Distinct keys, a row each: ``columns`` are the primary key's in the table's types, ``first`` where each was given first."""

    store: TableStore
    columns: dict[str, pa.Array]
    first: Ints

    def __len__(self) -> int:
        return len(self.first)

    def partitions(self) -> tuple[Ints, pa.Array] | None:
        """A number per key and the serialised partition of every number; None where keys do not tell the partition."""
        schema = self.store.schema
        if not schema.partition_keys:
            return np.zeros(len(self), np.int64), pa.array([EMPTY_ROW], pa.binary())
        if not set(schema.partition_keys) <= set(schema.primary_keys):
            return None
        rows = encode_rows([self.columns[name] for name in schema.partition_keys], schema.partition_types)
        encoded = pc.dictionary_encode(rows)
        return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary

    def of_rows(self, rows: Ints, names: tuple[str, ...]) -> pa.RecordBatch:
        """Key columns ``names`` of some of the keys."""
        at = pa.array(rows)
        return pa.RecordBatch.from_arrays([self.columns[name].take(at) for name in names], names=list(names))


def asked_keys(store: TableStore, keys: Any) -> Asked:
    """Check ``keys``: an Arrow table or batch with exactly the primary key's columns, in any order.

    Values of another width or unit count where the table's type holds them exactly. Raises UnsupportedFeature for a table
    without a primary key, ColumnNotFound for an unknown column, InvalidFilter naming table and column for one that is
    missing, is no key column or given twice, has another kind of values, or holds a null.
    """
    schema, table = store.schema, store.name
    if not schema.primary_keys:
        raise UnsupportedFeature("looking up rows of a table without a primary key", table)
    if not isinstance(keys, (pa.Table, pa.RecordBatch)):
        raise InvalidFilter(f"table {table}: the keys to look up are an Arrow table, not {type(keys).__name__}")
    _check_names(store, keys.schema.names)
    kinds = schema.arrow_schema
    columns = {
        name: _typed(flat(keys.column(name)), name, kinds.field(name).type, table) for name in schema.primary_keys
    }
    order, same = normalise_keys(list(columns.values())).order(sorted_runs=False) if keys.num_rows else _no_rows()
    # Rows of equal keys come in the order in which they were given.
    first = order[np.concatenate((np.ones(min(len(order), 1), np.bool_), ~same))]
    rows = pa.array(first)
    return Asked(store, {name: column.take(rows) for name, column in columns.items()}, first)


def _no_rows() -> tuple[Ints, Any]:
    return np.zeros(0, np.int64), np.zeros(0, np.bool_)


def _check_names(store: TableStore, names: list[str]) -> None:
    schema, table = store.schema, store.name
    wanted = ", ".join(schema.primary_keys)
    for name in names:
        if not schema.has_field(name):
            raise ColumnNotFound(table, name, schema.primary_keys)
        if name not in schema.primary_keys:
            raise InvalidFilter(f"table {table}: column '{name}' is no part of the primary key ({wanted})")
    if len(set(names)) != len(names):
        raise InvalidFilter(f"table {table}: a key column is given twice: {', '.join(names)}")
    missing = [name for name in schema.primary_keys if name not in names]
    if missing:
        raise InvalidFilter(f"table {table}: keys without column '{missing[0]}'; a key has {wanted}")


def _typed(column: pa.Array, name: str, kind: pa.DataType, table: str) -> pa.Array:
    if column.null_count:
        raise InvalidFilter(f"table {table}: key column '{name}' holds a null")
    if column.type.equals(kind):
        return column
    family = next((test for test in _FAMILIES if test(kind)), None)
    wrong = f"table {table}: key column '{name}' is {kind}, not {column.type}"
    if pa.types.is_null(column.type) and not len(column):
        return pa.array([], kind)
    if family is None or not (family(column.type) or (_is_decimal(kind) and pa.types.is_integer(column.type))):
        raise InvalidFilter(wrong)
    if pa.types.is_timestamp(kind) and (kind.tz is None) is not (column.type.tz is None):
        raise InvalidFilter(wrong)
    try:
        wide = column.cast(_WIDE) if _is_decimal(kind) and pa.types.is_integer(column.type) else column
        cast = wide.cast(kind)
    except pa.ArrowException as error:
        raise InvalidFilter(f"{wrong}: {error}") from error
    if pa.types.is_floating(kind) and not _same_floats(column, cast):
        raise InvalidFilter(f"{wrong}: a value that it cannot hold exactly")
    return cast


def _same_floats(given: pa.Array, cast: pa.Array) -> bool:
    """Arrow rounds to narrower floating point types without a word."""
    before, after = (side.to_numpy(zero_copy_only=False).astype(np.float64) for side in (given, cast))
    return bool(((before == after) | (np.isnan(before) & np.isnan(after))).all())


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


_FAMILIES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_integer,
    pa.types.is_floating,
    _is_decimal,
    _is_text,
    _is_bytes,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_boolean,
)
_WIDE: Final = pa.decimal256(76, 0)

__all__ = ["Asked", "asked_keys"]
