"""Column statistics of data files: from a Parquet footer, cut down by the table's modes (format.md 5, Java `SimpleStatsConverter`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsm_core.errors import InvalidOption
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows
from lsm_core.format.file_meta import SimpleStats
from lsm_core.format.kv_layout import key_name
from lsm_core.format.schema import TableSchema
from lsm_core.options import TableOptions
from lsm_core.types import NESTED, DataType, TypeRoot, to_arrow

_MODE_KEY = "metadata.stats-mode"
_TRUNCATE = re.compile(r"truncate\(\s*(\d{1,9})\s*\)")
_LAST_CODE_POINT = 0x10FFFF
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000
_TEXT = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_FLOATS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_UNORDERED = NESTED | {
    TypeRoot.BINARY,
    TypeRoot.VARBINARY,
    TypeRoot.VARIANT,
    TypeRoot.BLOB,
    TypeRoot.GEOMETRY,
    TypeRoot.GEOGRAPHY,
}
_INT96_PRECISION = 6
_MAX_ALWAYS_EXACT = 128


@dataclass(frozen=True)
class StatsMode:
    """What is kept of a column: nothing, its null count, or bounds too (text cut to ``length`` code points, None: uncut)."""

    counts: bool
    bounds: bool
    length: int | None = None

    @staticmethod
    def parse(text: str, key: str = _MODE_KEY) -> StatsMode:
        """`none`, `counts`, `truncate(n)` or `full`; raises :class:`InvalidOption` naming ``key``."""
        name = text.strip().lower()
        if name in _NAMED_MODES:
            return _NAMED_MODES[name]
        match = _TRUNCATE.fullmatch(name)
        if match is None or int(match[1]) < 1:
            raise InvalidOption(key, text, "none, counts, truncate(n) or full")
        return StatsMode(counts=True, bounds=True, length=int(match[1]))


_NAMED_MODES: Final = {
    "none": StatsMode(counts=False, bounds=False),
    "counts": StatsMode(counts=True, bounds=False),
    "full": StatsMode(counts=True, bounds=True),
}
KEY_MODE: Final = StatsMode(counts=True, bounds=True, length=_MAX_ALWAYS_EXACT)
"""Keys and system columns, whatever the table says."""


@dataclass(frozen=True)
class ColumnStats:
    """Bounds of one column as Arrow arrays of one value (null: unknown), and its null count (None: unknown)."""

    minimum: pa.Array
    maximum: pa.Array
    null_count: int | None


def modes_of(schema: TableSchema, options: TableOptions, level: int) -> list[StatsMode]:
    """Mode of each table column for files of ``level``; raises :class:`InvalidOption` for a mode nobody knows."""
    general = _level_mode(options, level)
    thin_keys = set(schema.trimmed_primary_keys) if options.thin_mode else set()
    keep = int(options.get("metadata.stats-keep-first-n-columns"))
    modes = []
    for index, name in enumerate(schema.field_names):
        key = f"fields.{name}.stats-mode"
        own = options.raw.get(key)
        if own is not None:
            modes.append(StatsMode.parse(own, key))
        elif name in thin_keys:
            modes.append(KEY_MODE)
        else:
            modes.append(_NAMED_MODES["none"] if 0 <= keep <= index else general)
    return modes


def _level_mode(options: TableOptions, level: int) -> StatsMode:
    key = "metadata.stats-mode.per.level"
    for part in options.raw.get(key, "").split(","):
        where, _, mode = part.partition(":")
        if where.strip() == str(level):
            return StatsMode.parse(mode, key)
    return StatsMode.parse(options.stats_mode)


def value_stats(
    footer: pq.FileMetaData,
    schema: TableSchema,
    options: TableOptions,
    *,
    level: int = 0,
    nan_columns: Collection[str] | None = None,
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """`_VALUE_STATS` and `_VALUE_STATS_COLS` (None: all columns) of a Parquet file just written for ``schema``.

    ``nan_columns`` names the FLOAT and DOUBLE columns in which :func:`columns_with_nan` saw a NaN. Footers ignore NaN, but Paimon
    orders it above everything, so those columns (all of them when it is None: nobody looked) get no bounds, as with Java 1.3.
    """
    modes = modes_of(schema, options, level)
    types = [column.type for column in schema.fields]
    found = footer_stats(footer, schema.field_names, types, nan_columns)
    kept = [_apply(stats, mode, kind) for stats, mode, kind in zip(found, modes, types, strict=True)]
    if not options.get("metadata.stats-dense-store"):
        return _simple(kept, types), None
    # "Nothing known at all" is what drops a column from the dense form: mode none, and nested columns, for which
    # Parquet's footer has no statistics.
    dense = [i for i, mode in enumerate(modes) if mode.counts and types[i].root not in NESTED]
    names = None if len(dense) == len(modes) else tuple(schema.field_names[i] for i in dense)
    return _simple([kept[i] for i in dense], [types[i] for i in dense]), names


def key_stats(
    footer: pq.FileMetaData, schema: TableSchema, *, nan_columns: Collection[str] | None = None
) -> SimpleStats:
    """`_KEY_STATS` of a key-value file: trimmed primary key, read from `_KEY_*` or, in thin files, the value columns."""
    stored = set(footer.schema.to_arrow_schema().names)
    keys = schema.trimmed_primary_keys
    names = [key_name(name) if key_name(name) in stored else name for name in keys]
    nan = None if nan_columns is None else {*nan_columns, *(key_name(name) for name in nan_columns)}
    found = footer_stats(footer, names, schema.trimmed_key_types, nan)
    kept = [_apply(stats, KEY_MODE, kind) for stats, kind in zip(found, schema.trimmed_key_types, strict=True)]
    return _simple(kept, schema.trimmed_key_types)


def columns_with_nan(batch: pa.RecordBatch | pa.Table) -> frozenset[str]:
    """Names of floating point columns of ``batch`` that hold a NaN."""
    floats = [f.name for f in batch.schema if pa.types.is_floating(f.type)]
    return frozenset(name for name in floats if pc.any(pc.is_nan(batch.column(name))).as_py())


def footer_stats(
    footer: pq.FileMetaData, names: Sequence[str], types: Sequence[DataType], nan_columns: Collection[str] | None = None
) -> list[ColumnStats]:
    """Statistics of the named top-level columns over all row groups; a column that the file lacks is unknown."""
    arrow = footer.schema.to_arrow_schema()
    leaves = _leaf_indexes(arrow)
    result = []
    for name, kind in zip(names, types, strict=True):
        leaf = leaves.get(name)
        if leaf is None or kind.root in NESTED or kind.root is TypeRoot.VARIANT:
            result.append(_unknown(kind))
            continue
        nulls, bounds = _fold_row_groups(footer, leaf, decimal=pa.types.is_decimal(arrow.field(name).type))
        doubtful = kind.root in _FLOATS and (nan_columns is None or name in nan_columns)
        wide = kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and (kind.precision or 0) > _INT96_PRECISION
        if bounds is None or doubtful or wide or kind.root in _UNORDERED:
            result.append(_unknown(kind, nulls))
        else:
            low, high = (_logical(raw, arrow.field(name).type, to_arrow(kind)) for raw in bounds)
            result.append(ColumnStats(low, high, nulls))
    return result


def _unknown(kind: DataType, nulls: int | None = None) -> ColumnStats:
    nothing = pa.nulls(1, to_arrow(kind))
    return ColumnStats(nothing, nothing, nulls)


def _leaf_indexes(arrow: pa.Schema) -> dict[str, int]:
    """Index in the footer of each top-level column that is a single leaf."""
    indexes: dict[str, int] = {}
    at = 0
    for field in arrow:
        count = _leaves(field.type)
        if count == 1 and not pa.types.is_nested(field.type):
            indexes[field.name] = at
        at += count
    return indexes


def _leaves(arrow: pa.DataType) -> int:
    if not pa.types.is_nested(arrow):
        return 1
    if pa.types.is_map(arrow):
        return _leaves(arrow.key_type) + _leaves(arrow.item_type)
    return sum(_leaves(arrow.field(i).type) for i in range(arrow.num_fields))


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


def _logical(raw: Any, stored: pa.DataType, wanted: pa.DataType) -> pa.Array:
    """A raw footer value as one value of the wanted Arrow type."""
    if pa.types.is_decimal(stored):
        digits = tuple(int(digit) for digit in str(abs(raw)))
        return pa.array([Decimal((int(raw < 0), digits, -stored.scale))], stored).cast(wanted)
    if pa.types.is_string(stored) or pa.types.is_binary(stored) or pa.types.is_large_string(stored):
        return pa.array([raw], pa.binary()).cast(wanted)
    if pa.types.is_boolean(stored) or pa.types.is_floating(stored):
        return pa.array([raw], stored).cast(wanted)
    width = pa.int64() if stored.bit_width == 64 else pa.int32()
    integer = pa.array([raw], width)
    return (integer.view(stored) if stored.bit_width in (32, 64) else integer).cast(wanted)


def _apply(stats: ColumnStats, mode: StatsMode, kind: DataType) -> ColumnStats:
    if not mode.counts:
        return _unknown(kind)
    if not mode.bounds:
        return _unknown(kind, stats.null_count)
    if mode.length is None or kind.root not in _TEXT or stats.minimum.null_count:
        return stats
    low = truncate_min(stats.minimum[0].as_py(), mode.length)
    high = truncate_max(stats.maximum[0].as_py(), mode.length)
    if high is None:
        return _unknown(kind, stats.null_count)
    return ColumnStats(pa.array([low]), pa.array([high]), stats.null_count)


def truncate_min(text: str, length: int) -> str:
    """The first ``length`` code points: never above ``text``."""
    return text[:length]


def truncate_max(text: str, length: int) -> str | None:
    """A text of at most ``length`` code points not below ``text``: the cut one with its last possible code point raised.

    None when no code point can be raised. Surrogates are stepped over, since no UTF-8 holds them.
    """
    if len(text) <= length:
        return text
    for at in range(length - 1, -1, -1):
        raised = ord(text[at]) + 1
        if raised == _FIRST_SURROGATE:
            raised = _AFTER_SURROGATES
        if raised <= _LAST_CODE_POINT:
            return text[:at] + chr(raised)
    return None


def _simple(columns: Sequence[ColumnStats], types: Sequence[DataType]) -> SimpleStats:
    if not columns:
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    low = encode_rows([column.minimum for column in columns], types)[0].as_py()
    high = encode_rows([column.maximum for column in columns], types)[0].as_py()
    return SimpleStats(low, high, tuple(column.null_count for column in columns))


def stats_of_columns(columns: Sequence[pa.Array], types: Sequence[DataType]) -> SimpleStats:
    """Full statistics of Arrow columns in Java's order (NaN greatest, -0.0 < 0.0); unordered types have null counts only."""
    return _simple([_column_stats(column, kind) for column, kind in zip(columns, types, strict=True)], types)


def _column_stats(column: pa.Array, kind: DataType) -> ColumnStats:
    if kind.root in _UNORDERED or len(column) == column.null_count:
        return _unknown(kind, column.null_count)
    if kind.root in _FLOATS:
        low, high = _float_bounds(column.drop_null().to_numpy(zero_copy_only=False))
        return ColumnStats(pa.array([low], column.type), pa.array([high], column.type), column.null_count)
    bounds = pc.min_max(column)
    return ColumnStats(pa.repeat(bounds["min"], 1), pa.repeat(bounds["max"], 1), column.null_count)


def _float_bounds(values: Any) -> tuple[float, float]:
    nan = np.isnan(values)
    numbers = values[~nan]
    if not len(numbers):
        return float("nan"), float("nan")
    # Zero compares equal to its negative, so the sign decides: below zero first.
    low = numbers[np.lexsort((~np.signbit(numbers), numbers))[0]]
    high = float("nan") if nan.any() else numbers[np.lexsort((~np.signbit(numbers), numbers))[-1]]
    return float(low), float(high)
