"""What a Parquet footer says about a file's columns: bounds, null counts, and how large the values are once decoded."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lsm_core.format.stats import ColumnStats

_OFFSET_BYTES: Final = 4.0


def footer_values(footer: pq.FileMetaData, schema: pa.Schema | None = None) -> dict[str, ColumnStats]:
    """What the footer says about every top-level column of ``schema`` (None: as the footer tells it). Nested ones are unknown to it.

    Floating point columns have null counts only (footers leave NaN out), nor have INT96 timestamps and binaries bounds.
    """
    arrow = footer.schema.to_arrow_schema() if schema is None else schema
    leaves = leaf_indexes(arrow)
    return {name: _leaf_values(footer, leaf, arrow.field(name).type) for name, leaf in leaves.items()}


def group_bounds(footer: pq.FileMetaData, arrow: pa.Schema, name: str) -> tuple[pa.Array, pa.Array] | None:
    """Smallest and largest value of a top-level column in every row group, as its Arrow type.

    None where a row group does not say, and for types whose bounds footers do not hold as Java compares them.
    """
    leaf = leaf_indexes(arrow).get(name)
    if leaf is None or not footer.num_row_groups or _without_bounds(arrow.field(name).type):
        return None
    stored = arrow.field(name).type
    lows: list[pa.Array] = []
    highs: list[pa.Array] = []
    for group in range(footer.num_row_groups):
        stats = footer.row_group(group).column(leaf).statistics
        if stats is None or not stats.has_min_max:
            return None
        for side, raw in ((lows, stats.min_raw), (highs, stats.max_raw)):
            side.append(_logical(_plain(raw, pa.types.is_decimal(stored)), stored))
    return pa.concat_arrays(lows), pa.concat_arrays(highs)


def leaf_indexes(arrow: pa.Schema) -> dict[str, int]:
    """Index in the footer of each top-level column that is a single leaf."""
    indexes: dict[str, int] = {}
    at = 0
    for field in arrow:
        if not pa.types.is_nested(field.type):
            indexes[field.name] = at
        at += leaf_count(field.type)
    return indexes


def leaf_count(arrow: pa.DataType) -> int:
    """Columns that a value of the type takes in a Parquet file."""
    if not pa.types.is_nested(arrow):
        return 1
    if pa.types.is_map(arrow):
        return leaf_count(arrow.key_type) + leaf_count(arrow.item_type)
    return sum(leaf_count(arrow.field(i).type) for i in range(arrow.num_fields))


def plain_sizes(footer: pq.FileMetaData, names: Iterable[str]) -> dict[str, float]:
    """Average decoded bytes of a value of those of ``names`` whose pages hold the values themselves."""
    wanted = set(names)
    sizes: dict[str, float] = {}
    coded: set[str] = set()
    for group in range(footer.num_row_groups):
        described = footer.row_group(group)
        for position in range(described.num_columns):
            chunk = described.column(position)
            name = chunk.path_in_schema
            if name in wanted:
                if any("DICTIONARY" in code or code == "DELTA_BYTE_ARRAY" for code in chunk.encodings):
                    coded.add(name)
                sizes[name] = sizes.get(name, 0.0) + chunk.total_uncompressed_size
    rows = max(1, footer.num_rows)
    return {name: size / rows + _OFFSET_BYTES for name, size in sizes.items() if name not in coded}


def dictionary_texts(footer: pq.FileMetaData, names: Iterable[str]) -> list[str]:
    """Those of the text columns ``names`` of which every row group's values are stored as a dictionary and numbers into it.

    A column that gave up its dictionary half way has one too, but takes at least the four bytes of a plain value's length.
    """
    left = set(names)
    for group in range(footer.num_row_groups if left else 0):
        described = footer.row_group(group)
        for position in range(described.num_columns):
            chunk = described.column(position)
            if chunk.path_in_schema not in left:
                continue
            coded = any("DICTIONARY" in code for code in chunk.encodings)
            nulls = chunk.statistics.null_count if chunk.statistics is not None else 0
            if not coded or chunk.total_uncompressed_size > _OFFSET_BYTES * (chunk.num_values - (nulls or 0)):
                left.discard(chunk.path_in_schema)
    return [name for name in names if name in left]


def _leaf_values(footer: pq.FileMetaData, leaf: int, stored: pa.DataType) -> ColumnStats:
    nulls, raw = _fold_row_groups(footer, leaf, decimal=pa.types.is_decimal(stored))
    nothing = pa.nulls(1, stored)
    if raw is None or _without_bounds(stored):
        return ColumnStats(nothing, nothing, nulls)
    return ColumnStats(_logical(raw[0], stored), _logical(raw[1], stored), nulls)


def _without_bounds(stored: pa.DataType) -> bool:
    wide = pa.types.is_timestamp(stored) and stored.unit == "ns"
    return bool(wide or pa.types.is_floating(stored) or pa.types.is_binary(stored))


def _fold_row_groups(footer: pq.FileMetaData, leaf: int, decimal: bool) -> tuple[int | None, tuple[Any, Any] | None]:
    """Null count and raw (min, max) of a leaf; None where a row group does not say."""
    nulls: int | None = 0
    low: Any = None
    high: Any = None
    known = True
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group).num_rows
        if rows == 0:
            continue
        stats = footer.row_group(group).column(leaf).statistics
        if stats is None or not stats.has_null_count:
            nulls = None
        elif nulls is not None:
            nulls += stats.null_count
        if stats is not None and stats.has_min_max:
            group_low, group_high = _plain(stats.min_raw, decimal), _plain(stats.max_raw, decimal)
            low = group_low if low is None else min(low, group_low)
            high = group_high if high is None else max(high, group_high)
        elif nulls is None or stats is None or stats.null_count != rows:
            known = False
    return nulls, (low, high) if known and low is not None else None


def _plain(raw: Any, decimal: bool) -> Any:
    """A raw footer value in a form whose order is the column's (decimals as bytes are not)."""
    return int.from_bytes(raw, "big", signed=True) if decimal and isinstance(raw, bytes) else raw


def _logical(raw: Any, stored: pa.DataType) -> pa.Array:
    """A raw footer value as one value of the column's Arrow type."""
    if pa.types.is_decimal(stored):
        digits = tuple(int(digit) for digit in str(abs(raw)))
        return pa.array([Decimal((int(raw < 0), digits, -stored.scale))], stored)
    if pa.types.is_string(stored) or pa.types.is_large_string(stored):
        return pa.array([raw], pa.binary()).cast(stored)
    if pa.types.is_boolean(stored):
        return pa.array([raw], stored)
    integer = pa.array([raw], pa.int64() if stored.bit_width == 64 else pa.int32())
    return integer.view(stored) if stored.bit_width in (32, 64) else integer.cast(stored)


__all__ = ["dictionary_texts", "footer_values", "group_bounds", "leaf_count", "leaf_indexes", "plain_sizes"]
