"""Texts of values in system tables: columns of manifest entries, and values as Java prints them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, one_array
from lsm_core.errors import DredgeError, UnsupportedFeature
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.schema import ROW_ID, SEQUENCE_NUMBER, DataField
from lsm_core.metadata.store import TableStore
from lsm_core.read.prune import decoded_rows
from lsm_core.types import DataType, TypeRoot, parse
from lsm_core.types.casts import CastError, cast_values
from lsm_core.types.casts.to_text import printed

NULL = "null"
_TEXTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BYTES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_NUMBERS = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.BOOLEAN})
_FRACTIONS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL})
_STAMPS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def internal_text(column: pa.Array, kind: DataType) -> pa.Array:
    """Return values as texts, as Java's `toString` prints Paimon's internal values.

    Dates and times are numbers, timestamps are printed as `LocalDateTime`. Bytes are in hex (Java prints an object's
    address). Nested values, which have no statistics, are null.
    """
    if kind.root in (TypeRoot.DATE, TypeRoot.TIME):
        return pc.cast(pc.cast(column, pa.int32()), pa.string())
    if kind.root in _STAMPS:
        return _local_date_time(column)
    if kind.root in _BYTES:
        return pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string())
    return _common(column, kind)


def cast_text(column: pa.Array, kind: DataType) -> pa.Array:
    """Return values as texts, as SQL's CAST to STRING prints them.

    Times and timestamps have as many fractional digits as their type. Timestamps with local time zone are in UTC.
    """
    if kind.root is TypeRoot.DATE:
        return _signed_year(pc.cast(column, pa.string()))
    if kind.root in (TypeRoot.TIME, *_STAMPS):
        naive = column if kind.root is TypeRoot.TIME else _naive(column)
        spare = _UNIT_DIGITS[naive.type.unit] - (kind.precision or 0)
        text = _signed_year(pc.cast(naive, pa.string()))
        cut = spare + (0 if kind.precision else 1)  # without digits the point goes too
        return pc.utf8_slice_codeunits(text, 0, -cut) if cut > 0 else text
    if kind.root in _BYTES:
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in column.to_pylist()], pa.string())
    return _common(column, kind)


def _common(column: pa.Array, kind: DataType) -> pa.Array:
    if kind.root in _TEXTS:
        return column
    if kind.root in _NUMBERS:
        return pc.cast(column, pa.string())
    if kind.root in _FRACTIONS:
        return printed(column, kind)
    return pa.nulls(len(column), pa.string())


def _naive(column: pa.Array) -> pa.Array:
    return column.cast(pa.int64()).cast(pa.timestamp(column.type.unit))


def _signed_year(text: pa.Array) -> pa.Array:
    """Add a plus to years beyond 9999, as Java does."""
    return pc.replace_substring_regex(text, r"^([0-9]{5,}-)", r"+\1")


def _local_date_time(column: pa.Array) -> pa.Array:
    """Return timestamps as Java's `LocalDateTime` prints them: no zero seconds, and 3, 6 or 9 digits of a fraction."""
    naive = _naive(column)
    text = pc.replace_substring(_signed_year(pc.cast(naive, pa.string())), " ", "T")
    for _ in range(_UNIT_DIGITS[naive.type.unit] // 3):
        text = pc.replace_substring_regex(text, r"(\.(?:[0-9]{3})*)000$", r"\1")
    return pc.replace_substring_regex(pc.utf8_rtrim(text, "."), r"(T[0-9]{2}:[0-9]{2}):00$", r"\1")


def listed(columns: Sequence[pa.Array], count: int, brackets: str) -> pa.Array:
    """Return ``count`` texts such as "{a, b}" from columns of texts; null values are printed as "null"."""
    return _join_texts([pc.fill_null(column, NULL) for column in columns], count, brackets)


def mapped(columns: Sequence[tuple[str, pa.Array]], count: int) -> pa.Array:
    """Return ``count`` texts such as "{x=a, y=b}", with the columns sorted by name as in Java's TreeMap."""
    named = sorted(columns, key=lambda column: column[0].encode("utf-16-be", "surrogatepass"))
    texts = [pc.binary_join_element_wise(f"{name}=", pc.fill_null(column, NULL), "") for name, column in named]
    return _join_texts(texts, count, "{}")


def _join_texts(texts: Sequence[pa.Array], count: int, brackets: str) -> pa.Array:
    if not texts:
        return pa.repeat(pa.scalar(brackets), count)
    inside = pc.binary_join_element_wise(*texts, ", ")
    return pc.binary_join_element_wise(brackets[0], inside, brackets[1], "")


_ARITY_BYTES: Final = 4
_LONG: Final = parse("BIGINT")
# What files of tables with row tracking hold beside the table's own columns.
_SYSTEM: Final = {ROW_ID: _LONG, SEQUENCE_NUMBER: _LONG}
_SEPARATOR: Final = "\x00"
_NO_ROW: Final = arrow_scalar(None, pa.binary())
_MICROS: Final = 6
_MOST_MICROS: Final = (2**63 - 1) // 1000
"""Largest distance from the epoch, in microseconds, that a nanosecond timestamp can represent."""


def partition_texts(store: TableStore, partitions: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return partitions as texts such as "{2024-01-01, 3}"; each distinct partition is formatted once."""
    encoded = pc.dictionary_encode(one_array(partitions))
    return row_texts(store, encoded.dictionary).take(encoded.indices)


def row_texts(store: TableStore, partitions: pa.Array) -> pa.Array:
    """Return serialised partitions as texts, formatting every row."""
    types = store.schema.partition_types
    columns = decode_rows(partitions, types) if types else []
    texts = [cast_text(column, kind) for column, kind in zip(columns, types, strict=True)]
    return listed(texts, len(partitions), "{}")


def paths(store: TableStore, entries: pa.Table) -> pa.Array:
    """Return the full path of every data file; the directory of a bucket is computed once."""
    encoded = pc.dictionary_encode(one_array(entries.column("partition")))
    buckets = entries.column("bucket").to_numpy().astype(np.int64)
    lowest = int(buckets.min(initial=0))
    span = int(buckets.max(initial=0)) - lowest + 1
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64) * span + (buckets - lowest)
    places, inverse = np.unique(codes, return_inverse=True)
    known = encoded.dictionary.to_pylist()
    places_of = [(known[code // span], int(code % span) + lowest) for code in places.tolist()]
    folders = [store.bucket_dirs(*place) for place in places_of]
    inverse, names = inverse.reshape(-1), one_array(entries.column("file_name"))
    first = pa.array([folder[0] for folder in folders], pa.string())
    inside = pc.binary_join_element_wise(first.take(pa.array(inverse)), names, "/")
    shared = np.array([len(folder) > 1 for folder in folders], dtype=bool)[inverse]
    if shared.any():  # rare partitions that two kinds of JDK wrote: each file is where its writer put it
        files = zip(inverse[shared].tolist(), names.filter(pa.array(shared)).to_pylist(), strict=True)
        written_paths = [store.data_path(places_of[place][0], places_of[place][1], name) for place, name in files]
        inside = pc.replace_with_mask(inside, pa.array(shared), pa.array(written_paths, pa.string()))
    return pc.coalesce(one_array(entries.column("external_path")), inside)


def key_texts(store: TableStore, entries: pa.Table, column: str) -> pa.Array:
    """Return keys as "[5, a]" by the schema of each file; null for files without keys, or sorted by other columns."""
    if not store.schema.primary_keys or store.options.clusters_keys:
        return pa.nulls(entries.num_rows, pa.string())
    parts = []
    for rows, part in _groups(one_array(entries.column("schema_id")), entries.select([column, "schema_id"])):
        types = store.schema_of(part.column("schema_id")[0].as_py()).trimmed_key_types
        blobs = one_array(part.column(column))
        if not types:
            parts.append((rows, pa.nulls(len(blobs), pa.string())))
            continue
        right = _of_arity(blobs, len(types))
        values = _decoded(pc.if_else(right, blobs, _NO_ROW), types)
        texts = listed([value.text() for value in values], len(blobs), "[]")
        parts.append((rows, pc.if_else(right, texts, pa.scalar(None, pa.string()))))
    return _scattered(parts, entries.num_rows)


def stats_texts(store: TableStore, entries: pa.Table) -> dict[str, pa.Array]:
    """Return null counts, minima and maxima of each file as texts over the current columns, such as "{a=1, b=null}".

    For files of older schemas, renamed columns have their new names, values are cast, and added columns are null in
    every row. If a file has no statistics of a column, the column's value is null.

    Returns:
        Texts by "null_value_counts", "min_value_stats" and "max_value_stats", one text per file.

    Source: Paimon `SimpleStatsEvolution`.
    """
    keys = pc.binary_join_element_wise(
        pc.cast(one_array(entries.column("schema_id")), pa.string()),
        _join_names(entries.column("value_stats_cols")),
        _join_names(entries.column("write_cols")),
        _SEPARATOR,
    )
    names = ("null_value_counts", "min_value_stats", "max_value_stats")
    parts: dict[str, list[tuple[np.ndarray[Any, Any], pa.Array]]] = {name: [] for name in names}
    for rows, part in _groups(keys, entries):
        texts = _stats_of_layout(store, part)
        for name, text in zip(names, texts, strict=True):
            parts[name].append((rows, text))
    return {name: _scattered(texts_of_groups, entries.num_rows) for name, texts_of_groups in parts.items()}


def _join_names(lists: pa.ChunkedArray) -> pa.Array:
    """Return lists of names as texts; a null list and an empty list have different texts."""
    flat = one_array(lists)
    texts = pc.binary_join(flat, _SEPARATOR)
    return pc.if_else(pc.is_valid(flat), pc.binary_join_element_wise("=", pc.fill_null(texts, ""), ""), "")


def _stats_of_layout(store: TableStore, part: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return (null counts, minima, maxima) of files as texts over the current columns, such as "{a=1, b=null}".

    Args:
        store: the table.
        part: entries of files whose statistics cover the same columns of one schema.
    """
    written = store.schema_of(part.column("schema_id")[0].as_py())
    dense, columns = (part.column(name)[0].as_py() for name in ("value_stats_cols", "write_cols"))
    names = dense if dense is not None else columns if columns is not None else list(written.field_names)
    types = [_SYSTEM.get(name) or (written.field(name).type if written.has_field(name) else None) for name in names]
    known = [kind for kind in types if kind is not None]
    readable = bool(known) and len(known) == len(types)
    sides = [
        _bounds(one_array(part.column(side)), known) if readable else [None] * len(names)
        for side in ("value_stats_min", "value_stats_max")
    ]
    counts = one_array(part.column("value_stats_nulls"))
    rows = pc.cast(one_array(part.column("row_count")), pa.string())
    nulls: list[tuple[str, pa.Array]] = []
    lows: list[tuple[str, pa.Array]] = []
    highs: list[tuple[str, pa.Array]] = []
    for field in store.schema.fields:
        old = next((candidate for candidate in written.fields if candidate.id == field.id), None)
        at = names.index(old.name) if old is not None and old.name in names else None
        nulls.append((field.name, rows if old is None else _counts(counts, at)))
        for texts, side in ((lows, sides[0]), (highs, sides[1])):
            column = None if at is None else side[at]
            texts.append((field.name, _bound(column, old, field, part.num_rows)))
    return mapped(nulls, part.num_rows), mapped(lows, part.num_rows), mapped(highs, part.num_rows)


def _bound(column: _Column | None, old: DataField | None, field: DataField, count: int) -> pa.Array:
    if column is None or old is None:
        return pa.nulls(count, pa.string())
    if old.type.with_nullable(nullable=True) == field.type.with_nullable(nullable=True):
        return column.text()
    try:
        return internal_text(cast_values(column.values, old.type, field.type), field.type)
    except (CastError, pa.ArrowException):  # a bound that today's type cannot hold is none
        return pa.nulls(count, pa.string())


def _counts(lists: pa.Array, at: int | None) -> pa.Array:
    """Return the null count of the column at index ``at`` for each file; null if the file has no null count.

    Args:
        lists: list of null counts per file, one count per column.
        at: index of the column, or None for a column without statistics.
    """
    if at is None:
        return pa.nulls(len(lists), pa.string())
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    slots = pa.array(ends - lengths + at, mask=lengths <= at)
    return pc.cast(pc.list_flatten(lists).take(slots), pa.string())


@dataclass(frozen=True)
class _Column:
    """Values of one column of serialised rows, such as the minima of a column in several files.

    Attributes:
        values: one value per row; null also if the row has a timestamp that Arrow cannot represent in nanoseconds.
        type: type of the values.
        coarse: the values of all rows, with timestamps truncated to microseconds; None if ``values`` has all rows.
    """

    values: pa.Array
    type: DataType
    coarse: pa.Array | None = None

    def text(self) -> pa.Array:
        """Return the values as texts, as Java's system tables print them; where ``values`` is null, from ``coarse``."""
        text = internal_text(self.values, self.type)
        return text if self.coarse is None else pc.coalesce(text, internal_text(self.coarse, self.type))


def _bounds(blobs: pa.Array, types: Sequence[DataType]) -> list[_Column] | list[None]:
    """Return the columns of serialised rows; a row with a wrong number of columns (usually 0) has only nulls.

    Args:
        blobs: serialised rows.
        types: type of each column.

    Returns:
        The columns, or None for each column if the rows cannot be read.
    """
    try:
        return _decoded(pc.if_else(_of_arity(blobs, len(types)), blobs, _NO_ROW), types)
    except DredgeError:  # statistics that cannot be read say nothing, and hide nothing else of the file
        return [None] * len(types)


def _decoded(blobs: pa.Array, types: Sequence[DataType]) -> list[_Column]:
    """Return the columns of serialised rows; rows with nanoseconds outside 1677 to 2262 are read to the microsecond."""
    try:
        return [_Column(values, kind) for values, kind in zip(decoded_rows(blobs, types), types, strict=True)]
    except UnsupportedFeature:
        fine = [kind.root in _STAMPS and (kind.precision or 0) > _MICROS for kind in types]
        rounded = [replace(kind, precision=_MICROS) if cut else kind for kind, cut in zip(types, fine, strict=True)]
        coarse = decoded_rows(blobs, rounded)
    beyond = np.zeros(len(blobs), np.bool_)
    for column, cut in zip(coarse, fine, strict=True):
        if cut:
            micros = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
            beyond |= np.abs(micros) >= _MOST_MICROS
    exact = decoded_rows(pc.if_else(pa.array(beyond), _NO_ROW, blobs), types)
    return [_Column(*column) for column in zip(exact, types, coarse, strict=True)]


def _of_arity(blobs: pa.Array, count: int) -> pa.Array:
    prefix = pc.binary_slice(blobs, 0, _ARITY_BYTES)
    return pc.equal(prefix, pa.scalar(count.to_bytes(_ARITY_BYTES, "big"), prefix.type))


def _groups(keys: pa.Array, entries: pa.Table) -> Iterator[tuple[np.ndarray[Any, Any], pa.Table]]:
    """Yield (positions of the rows, rows) for each distinct value of ``keys``."""
    encoded = pc.dictionary_encode(keys)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code in range(len(encoded.dictionary)):
        rows = np.flatnonzero(codes == code)
        yield rows, entries if len(rows) == entries.num_rows else entries.take(pa.array(rows))


def _scattered(parts: Sequence[tuple[np.ndarray[Any, Any], pa.Array]], count: int) -> pa.Array:
    """Return the values of all parts as one array, in the original order of the rows.

    Args:
        parts: pairs (original positions of the values, values).
        count: number of rows in all parts.
    """
    if not count:
        return pa.array([], pa.string())
    where = np.concatenate([rows for rows, _ in parts])
    back = np.empty(count, np.int64)
    back[where] = np.arange(count)
    return pa.concat_arrays([one_array(values) for _, values in parts]).take(pa.array(back))
