"""Column statistics of data files, reduced according to the table's modes (format.md 5).

Source: ``SimpleStatsConverter``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.errors import InvalidOption
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows
from lsm_core.format.schema import TableSchema, key_name
from lsm_core.options import PaimonVersion, TableOptions
from lsm_core.types import NESTED, DataType, TypeRoot, to_arrow

_MODE_KEY = "metadata.stats-mode"
_LEVEL_MODE_KEY = "metadata.stats-mode.per.level"
_TRUNCATE = re.compile(r"truncate\(\s*(\d{1,9})\s*\)")
_LAST_CODE_POINT = 0x10FFFF
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000
_TEXT = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_FLOATS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_BYTES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_UNORDERED = NESTED | {
    TypeRoot.VARIANT,
    TypeRoot.BLOB,
    TypeRoot.GEOMETRY,
    TypeRoot.GEOGRAPHY,
    TypeRoot.UNKNOWN,
}
_MAX_ALWAYS_EXACT = 128


@dataclass(frozen=True)
class SimpleStats:
    """Statistics of some columns (Java `SimpleStats`).

    Attributes:
        min_values: minimum of each column, as a serialised BinaryRow.
        max_values: maximum of each column, as a serialised BinaryRow of the same arity.
        null_counts: number of nulls of each column, None if unknown.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...] | None = ()


EMPTY_STATS: Final = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


@dataclass(frozen=True)
class StatsMode:
    """Statistics to keep for a column.

    Attributes:
        counts: whether to keep the null count.
        bounds: whether to keep minimum and maximum.
        length: code points to which text bounds are truncated, or None.
    """

    counts: bool
    bounds: bool
    length: int | None = None

    @staticmethod
    def parse(text: str, key: str = _MODE_KEY) -> StatsMode:
        """Parse `none`, `counts`, `truncate(n)` or `full`.

        Raises:
            InvalidOption: the text is not a mode; the message names ``key``.
        """
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
"""Mode of keys and system columns, regardless of the table's options."""


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of one column.

    Attributes:
        minimum: smallest value as an Arrow array of one value, null if unknown.
        maximum: largest value as an Arrow array of one value, null if unknown.
        null_count: number of nulls, or None if unknown.
    """

    minimum: pa.Array
    maximum: pa.Array
    null_count: int | None


ColumnValues = Mapping[str, ColumnStats]
"""Statistics of a file's columns by stored column name; a column without statistics is absent."""


def modes_of(schema: TableSchema, options: TableOptions, level: int) -> list[StatsMode]:
    """Return the mode of each table column for files of a level.

    Raises:
        InvalidOption: a mode is invalid.
    """
    level_mode = options.get(_LEVEL_MODE_KEY).get(str(level))
    general = (
        StatsMode.parse(options.stats_mode) if level_mode is None else StatsMode.parse(level_mode, _LEVEL_MODE_KEY)
    )
    thin_keys = set(schema.trimmed_primary_keys) if options.thin_mode else set()
    keep = int(options.get("metadata.stats-keep-first-n-columns"))
    modes = []
    for index, name in enumerate(schema.field_names):
        key = f"fields.{name}.stats-mode"
        column_mode = options.raw.get(key)
        if column_mode is not None:
            modes.append(StatsMode.parse(column_mode, key))
        elif name in thin_keys:
            modes.append(KEY_MODE)
        else:
            modes.append(_NAMED_MODES["none"] if 0 <= keep <= index else general)
    return modes


def value_stats(
    values: ColumnValues, schema: TableSchema, options: TableOptions, *, level: int = 0
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """Return `_VALUE_STATS` and `_VALUE_STATS_COLS` of a newly written file.

    Args:
        values: statistics of the file's stored columns; the statistics of an absent column are unknown.
        schema: the table's schema.
        options: the table's options.
        level: level of the file.

    Returns:
        The statistics, and the names of the columns that they cover (None for all columns).

    Raises:
        InvalidOption: a statistics mode is invalid.
    """
    modes = modes_of(schema, options, level)
    types = [column.type for column in schema.fields]
    unordered = _UNORDERED if options.paimon_version.at_least(PaimonVersion.V2_0) else _UNORDERED | _BYTES
    known = [_column_stats(values, name, kind, unordered) for name, kind in zip(schema.field_names, types, strict=True)]
    reduced = [_apply(stats, mode, kind) for stats, mode, kind in zip(known, modes, types, strict=True)]
    if not options.get("metadata.stats-dense-store"):
        return _to_simple_stats(reduced, types), None
    # The dense form omits columns without any statistics (mode none, or nested in Parquet).
    dense_columns = [
        i for i, stats in enumerate(reduced) if stats.null_count is not None or not stats.minimum.null_count
    ]
    names = None if len(dense_columns) == len(modes) else tuple(schema.field_names[i] for i in dense_columns)
    return _to_simple_stats([reduced[i] for i in dense_columns], [types[i] for i in dense_columns]), names


def key_stats(values: ColumnValues, schema: TableSchema) -> SimpleStats:
    """Return `_KEY_STATS` of a key-value file.

    The statistics cover the trimmed primary key, from `_KEY_*` columns or, in thin files, from the value columns.

    Args:
        values: bounds and null counts of the file's columns, by name.
        schema: the table's schema.
    """
    types = schema.trimmed_key_types
    names = [key_name(name) if key_name(name) in values else name for name in schema.trimmed_primary_keys]
    known = [_column_stats(values, name, kind, _UNORDERED | _BYTES) for name, kind in zip(names, types, strict=True)]
    return _to_simple_stats([_apply(stats, KEY_MODE, kind) for stats, kind in zip(known, types, strict=True)], types)


def _column_stats(values: ColumnValues, name: str, kind: DataType, unordered: AbstractSet[TypeRoot]) -> ColumnStats:
    """Return the statistics of a column, with bounds cast to its type; bounds may be unknown.

    Args:
        values: bounds and null counts of the file's columns, by name.
        name: name of the column in the file.
        kind: type of the column.
        unordered: types without bounds.
    """
    stats = values.get(name)
    if stats is None:
        return _unknown(kind)
    if kind.root in unordered or stats.minimum.null_count or stats.maximum.null_count:
        return _unknown(kind, stats.null_count)
    arrow = to_arrow(kind)
    return ColumnStats(stats.minimum.cast(arrow), stats.maximum.cast(arrow), stats.null_count)


def _unknown(kind: DataType, nulls: int | None = None) -> ColumnStats:
    nothing = pa.nulls(1, to_arrow(kind))
    return ColumnStats(nothing, nothing, nulls)


def _apply(stats: ColumnStats, mode: StatsMode, kind: DataType) -> ColumnStats:
    if not mode.counts:
        return _unknown(kind)
    if not mode.bounds:
        return _unknown(kind, stats.null_count)
    if mode.length is None or kind.root not in _TEXT | _BYTES or stats.minimum.null_count:
        return stats
    if kind.root in _BYTES:
        return _truncate_bytes(stats, mode.length)
    low = truncate_min(stats.minimum[0].as_py(), mode.length)
    high = truncate_max(stats.maximum[0].as_py(), mode.length)
    if high is None:
        return _unknown(kind, stats.null_count)
    return ColumnStats(arrow_array([low]), arrow_array([high]), stats.null_count)


def _truncate_bytes(stats: ColumnStats, length: int) -> ColumnStats:
    """Return the statistics of a BINARY column with bounds of at most ``length`` bytes; none if no byte can be raised.

    Source: ``TruncateSimpleColStatsCollector`` (Paimon 2.0).
    """
    low, high = stats.minimum[0].as_py(), stats.maximum[0].as_py()
    if len(high) > length:
        kept = high[:length].rstrip(b"\xff")
        if not kept:
            nothing = pa.nulls(1, stats.minimum.type)
            return ColumnStats(nothing, nothing, stats.null_count)
        high = kept[:-1] + bytes([kept[-1] + 1])
    kind = stats.minimum.type
    return ColumnStats(arrow_array([low[:length]], kind), arrow_array([high], kind), stats.null_count)


def truncate_min(text: str, length: int) -> str:
    """Return a lower bound of ``text``: its first ``length`` code points."""
    return text[:length]


def truncate_max(text: str, length: int) -> str | None:
    """Return an upper bound of ``text`` with at most ``length`` code points.

    A longer text is truncated after the last code point that can be increased, and this code point is increased.
    Surrogates are skipped, because UTF-8 cannot encode them.

    Returns:
        The text, or None if no code point can be increased.
    """
    if len(text) <= length:
        return text
    for position in range(length - 1, -1, -1):
        raised = ord(text[position]) + 1
        if raised == _FIRST_SURROGATE:
            raised = _AFTER_SURROGATES
        if raised <= _LAST_CODE_POINT:
            return text[:position] + chr(raised)
    return None


def _to_simple_stats(columns: Sequence[ColumnStats], types: Sequence[DataType]) -> SimpleStats:
    if not columns:
        return SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
    low = encode_rows([column.minimum for column in columns], types)[0].as_py()
    high = encode_rows([column.maximum for column in columns], types)[0].as_py()
    return SimpleStats(low, high, tuple(column.null_count for column in columns))


def stats_of_columns(columns: Sequence[pa.Array], types: Sequence[DataType]) -> SimpleStats:
    """Return full statistics of Arrow columns in Java's order (NaN greatest, -0.0 < 0.0).

    Types without an order get null counts only.
    """
    statistics = []
    for column, kind in zip(columns, types, strict=True):
        if kind.root in _UNORDERED | _BYTES or len(column) == column.null_count:
            statistics.append(_unknown(kind, column.null_count))
            continue
        if kind.root in _FLOATS:
            bounds = float_bounds(numpy_array(column.drop_null()))
            low, high = (arrow_array([bound], column.type) for bound in bounds)
        else:
            ends = pc.min_max(column)
            low, high = (pa.repeat(ends[name], 1) for name in ("min", "max"))
        statistics.append(ColumnStats(low, high, column.null_count))
    return _to_simple_stats(statistics, types)


def float_bounds(values: Any) -> tuple[float, float]:
    """Return (smallest value, largest value) of a non-empty array in Java's order.

    NaN is above all other values, and -0.0 is below 0.0.
    """
    high = values.max()
    if not np.isnan(high):
        return _choose_zero(values, values.min(), negative=True), _choose_zero(values, high, negative=False)
    numbers = values[~np.isnan(values)]
    return (_choose_zero(numbers, numbers.min(), negative=True) if len(numbers) else float("nan")), float("nan")


def _choose_zero(values: Any, bound: Any, *, negative: bool) -> float:
    """Return ``bound``; if it is zero, with the sign of the lowest or highest zero in ``values`` (-0.0 < 0.0).

    ``negative`` selects the lowest zero, for a lower bound.
    """
    if bound != 0:
        return float(bound)
    signs = np.signbit(values[values == 0])
    return -0.0 if (signs.any() if negative else signs.all()) else 0.0
