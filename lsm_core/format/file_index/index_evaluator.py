"""Evaluation of one comparison of a filter with the indexes of one data file: whether rows may match, and which.

Source: ``FileIndexEvaluator``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from lsm_core.errors import CorruptFile
from lsm_core.format.file_index.bitmap import BitmapIndex
from lsm_core.format.file_index.bloom import BloomFilter, hashable, hashes_of
from lsm_core.format.file_index.index_container import EMPTY, Places, read_head
from lsm_core.format.file_index.range_bitmap import RangeIndex
from lsm_core.format.file_index.slices import SliceIndex
from lsm_core.format.file_index.values import Key, ValueEncoding, keys_of, kind_of, literals
from lsm_core.types import DataType

Fetch = Callable[[int, int], bytes]
BLOOM: Final = "bloom-filter"
_SAME: Final = {"==": "=", "<>": "!="}
_MAX_LITERALS: Final = 1_000
"""Largest number of literals that are looked up in an index; for more, the rows are tested without the index."""
_MAX_INDEX_BYTES: Final = 1 << 28
"""Largest index to load (bytes); above it the rows of the file are tested instead."""


class _Rows(Protocol):
    """Row index: an index that returns the rows with a given value.

    Attributes:
        rows: number of rows of the file.
        kind: encoding of the column's values.
    """

    rows: int
    kind: ValueEncoding

    def filled(self) -> BitMap: ...

    def equal(self, key: Key) -> BitMap: ...

    def below(self, key: Key) -> BitMap | None: ...


_ROW_INDEXES: Final[dict[str, type[BitmapIndex | SliceIndex | RangeIndex]]] = {
    "bitmap": BitmapIndex,
    "bsi": SliceIndex,
    "range-bitmap": RangeIndex,
}


class FileIndex:
    """Indexes of one data file, decoded on demand; unknown kinds of index exclude nothing.

    Columns have the names and types of the file's schema. For the values of one key of a map column, the name is that
    of :func:`map_key`. A damaged index raises :class:`CorruptFile` with ``path`` when it is used.
    """

    def __init__(self, places: Places, fetch: Fetch, path: str) -> None:
        self.path, self._places, self._fetch = path, places, fetch
        self._indexes: dict[tuple[str, str], Any] = {}

    @staticmethod
    def decode(data: bytes, path: str) -> FileIndex:
        """Return the indexes in a container: the content of an index file, or bytes embedded in a manifest entry."""
        return FileIndex(read_head(data, len(data), path), lambda start, length: data[start : start + length], path)

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Index types (`bloom-filter`, `bitmap` ...) of each column."""
        return {name: tuple(kinds) for name, kinds in self._places.items()}

    def sizes(self) -> list[tuple[str, str, int, bool]]:
        """Return column, index type, size in bytes and whether the column has only nulls, for each index."""
        return [
            (name, kind, length, start == EMPTY)
            for name, kinds in self._places.items()
            for kind, (start, length) in kinds.items()
        ]

    def may_match(self, column: str, data_type: DataType, op: str, values: pa.Array | pa.Scalar | None = None) -> bool:
        """Return whether any row of the file can satisfy ``column op values``; True if no index can decide.

        Args:
            column: name of the column.
            data_type: type of the column in the file.
            op: one of `= == != <> < <= > >= in`, `not in`, `is null`, `is not null`, `starts with`.
            values: the literal as a scalar, or the literals of a list as an array. Values that the type cannot
                represent exactly exclude nothing.

        Returns:
            False only if certainly no row matches.

        Raises:
            CorruptFile: an index is damaged.
        """
        op = _SAME.get(op, op)
        kinds = self._places.get(column, {})
        if any(start == EMPTY for start, _ in kinds.values()) and op != "is null":
            return False
        literal_values = _convert_literals(values, data_type)
        if (
            BLOOM in kinds
            and op in ("=", "in")
            and literal_values is not None
            and hashable(data_type)
            and len(literal_values) <= _MAX_LITERALS
            and kinds[BLOOM][1] <= _MAX_INDEX_BYTES
        ):
            lookup_values = literal_values
            if pa.types.is_floating(literal_values.type) and pc.any(pc.equal(literal_values, 0)).as_py():
                lookup_values = pa.concat_arrays(
                    [literal_values, pa.array([0.0, -0.0]).cast(literal_values.type)]
                )  # equal, with different bits
            bloom = self._load(column, BLOOM, lambda data: BloomFilter.from_bytes(data, self.path))
            if not bloom.may_contain(hashes_of(lookup_values, data_type)).any():
                return False
        matching = self._matching_rows(column, data_type, op, literal_values)
        return matching is None or len(matching[1]) > 0

    def may_contain(self, column: str, data_type: DataType, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Return a mask with False for each value that a bloom filter excludes.

        Values are compared as in Java: the two zeros differ, all NaN are equal.

        Args:
            column: name of the column.
            data_type: type of the column in the file.
            values: values of the type's Arrow type, without nulls.

        Returns:
            The mask; all True if the column has no bloom filter that can be used.

        Raises:
            CorruptFile: the filter is damaged.
        """
        place = self._places.get(column, {}).get(BLOOM)
        if place is None or not hashable(data_type) or place[1] > _MAX_INDEX_BYTES:
            return np.ones(len(values), np.bool_)
        if place[0] == EMPTY:
            return np.zeros(len(values), np.bool_)
        bloom = self._load(column, BLOOM, lambda data: BloomFilter.from_bytes(data, self.path))
        return bloom.may_contain(hashes_of(values, data_type))  # type: ignore[no-any-return]

    def row_mask(
        self, column: str, data_type: DataType, op: str, values: pa.Array | pa.Scalar | None, rows: int
    ) -> npt.NDArray[np.bool_] | None:
        """Return a mask that is False for rows that cannot match; True does not guarantee a match.

        Args:
            column: name of the column.
            data_type: type of the column in the file.
            op: the operator, one of those that :meth:`may_match` lists.
            values: the literal as a scalar, the literals of a list as an array, or None.
            rows: number of rows of the file.

        Returns:
            The mask, or None if the column has no row index that can decide.

        Raises:
            CorruptFile: an index is damaged, or its number of rows differs from ``rows``.
        """
        matching = self._matching_rows(column, data_type, _SAME.get(op, op), _convert_literals(values, data_type))
        if matching is None:
            return None
        if matching[0] != rows:
            raise CorruptFile(self.path, f"index of column '{column}' has {matching[0]} rows, but the file has {rows}")
        mask = np.zeros(rows, np.bool_)
        mask[np.asarray(matching[1].to_array(), np.int64)] = True
        return mask

    def _matching_rows(
        self, column: str, data_type: DataType, op: str, literal_values: pa.Array | None
    ) -> tuple[int, BitMap] | None:
        """Return the rows that can match by all row indexes of a column, or None if no index can decide.

        Args:
            column: name of the column.
            data_type: type of the column.
            op: operator of the test: one of `= != < <= > >= in`, `not in`, `is null`, `is not null`, `starts with`.
            literal_values: literals of the comparison; None if the operator takes none or if they cannot be converted
                to ``data_type``, so that only `is null` and `is not null` can be decided.

        Returns:
            The number of rows of the file, and the positions of the rows that can match.
        """
        kind = kind_of(data_type)
        matching: tuple[int, BitMap] | None = None
        for name, (start, length) in self._places.get(column, {}).items():
            make = _ROW_INDEXES.get(name)
            if make is None or kind is None or start == EMPTY or length > _MAX_INDEX_BYTES:
                continue
            index: _Rows = self._load(column, name, partial(make, kind=kind, path=self.path))
            passing = evaluate(
                index, op, None if literal_values is None else keys_of(literal_values, data_type), literal_values
            )
            if passing is not None:
                matching = (index.rows, passing if matching is None else matching[1] & passing)
        return matching

    def _load(self, column: str, name: str, make: Callable[[bytes], Any]) -> Any:
        if (column, name) not in self._indexes:
            self._indexes[column, name] = make(self._fetch(*self._places[column][name]))
        return self._indexes[column, name]


def evaluate(index: _Rows, op: str, keys: list[Key] | None, literal_values: pa.Array | None) -> BitMap | None:
    """Return the positions of the rows that can match by one row index, or None if the index cannot decide.

    Args:
        index: row index of one column (bitmap or bit-sliced).
        op: operator of the test: one of `= != < <= > >= in`, `not in`, `is null`, `is not null`, `starts with`.
        keys: literals in the index's encoding; None if there are none, so that only `is null` and `is not null` can be
            decided.
        literal_values: the same literals as an Arrow array, or None.
    """
    if op in ("is null", "is not null"):
        return index.filled() if op == "is not null" else BitMap(range(index.rows)) - index.filled()
    if keys is None or literal_values is None or len(keys) > _MAX_LITERALS:
        return None
    if index.kind.is_float and pc.any(pc.is_nan(literal_values)).as_py():
        return None
    if op in ("=", "in"):
        return _find_any(index, keys)
    if not index.kind.is_exact:
        return None
    if op in ("!=", "not in"):
        return index.filled() - _find_any(index, keys)
    return _find_ordered(index, op, keys[0]) if op in ("<", "<=", ">", ">=") and len(keys) == 1 else None


def _find_any(index: _Rows, keys: list[Key]) -> BitMap:
    """Return the rows that have one of the values ``keys``.

    For floats, -0.0 (key -1) and 0.0 (key 0) are equal, so each of them also finds the rows of the other.
    """
    lookup_keys = set(keys)
    if index.kind.is_float and lookup_keys & {-1, 0}:
        lookup_keys |= {-1, 0}
    return BitMap().union(*(index.equal(key) for key in lookup_keys))


def _find_ordered(index: _Rows, op: str, key: Key) -> BitMap | None:
    zero = index.kind.is_float and key in (-1, 0)
    low, high = (-1, 0) if zero else (key, key)
    if op in ("<", ">="):
        rows = index.below(low)
    else:
        smaller = index.below(high)
        rows = None if smaller is None else smaller | index.equal(high)
    if rows is None or op in ("<", "<="):
        return rows
    return index.filled() - rows


def _convert_literals(values: pa.Array | pa.Scalar | None, data_type: DataType) -> pa.Array | None:
    """Return the literals as an array of the column's own type without nulls, or None if they cannot be converted."""
    if values is None or (kind_of(data_type) is None and not hashable(data_type)):
        return None
    if isinstance(values, pa.Scalar):
        if not values.is_valid:
            return None
        values = pa.repeat(values, 1)
    converted = literals(values, data_type)
    return None if converted is None else converted.drop_null()


def map_key(column: str, key: str) -> str:
    """Return the column name under which a container stores the indexes of the values of map key ``key``."""
    return f"{column}##{key}"
