"""Evaluates one comparison of a filter on the indexes of one data file: which rows can pass, or whether any can (Java `FileIndexEvaluator`)."""

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
from lsm_core.format.file_index.values import Key, Kind, keys_of, kind_of, literals
from lsm_core.types import DataType

Fetch = Callable[[int, int], bytes]
BLOOM: Final = "bloom-filter"
_SAME: Final = {"==": "=", "<>": "!="}
_MOST_LITERALS: Final = 1_000
"""Longer lists are not looked up one by one: their rows are tested anyway."""
_LARGEST: Final = 1 << 28
"""An index above this many bytes is not worth its memory: the file's rows are tested."""


class _Rows(Protocol):
    """An index that knows the rows of values."""

    rows: int
    kind: Kind

    def filled(self) -> BitMap: ...

    def equal(self, key: Key) -> BitMap: ...

    def below(self, key: Key) -> BitMap | None: ...


_ROW_INDEXES: Final[dict[str, type[BitmapIndex | SliceIndex | RangeIndex]]] = {
    "bitmap": BitmapIndex,
    "bsi": SliceIndex,
    "range-bitmap": RangeIndex,
}


class FileIndex:
    """Indexes of one data file, decoded as far as they are asked. Kinds of index it does not know prove nothing.

    Column names and types are those of the schema that the file was written with; the value `k` of a map column `c`
    is named by :func:`map_key`. Damage raises :class:`CorruptFile` naming ``path``, when it is met.
    """

    def __init__(self, places: Places, fetch: Fetch, path: str) -> None:
        self.path, self._places, self._fetch = path, places, fetch
        self._known: dict[tuple[str, str], Any] = {}

    @staticmethod
    def decode(data: bytes, path: str) -> FileIndex:
        """A whole container (an embedded index, or a side file already read)."""
        return FileIndex(read_head(data, len(data), path), lambda start, length: data[start : start + length], path)

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Kinds of index by column."""
        return {name: tuple(kinds) for name, kinds in self._places.items()}

    def may_match(self, column: str, data_type: DataType, op: str, values: pa.Array | pa.Scalar | None = None) -> bool:
        """Whether any row of the file can pass ``column op values``; True when no index knows.

        ``op``: `= == != <> < <= > >= in`, `not in`, `is null`, `is not null`, `starts with`; ``values``: a scalar or the
        array of a list. Values that the column's type cannot hold exactly prove nothing.
        """
        op = _SAME.get(op, op)
        kinds = self._places.get(column, {})
        if any(start == EMPTY for start, _ in kinds.values()) and op != "is null":
            return False
        given = _given(values, data_type)
        if (
            BLOOM in kinds
            and op in ("=", "in")
            and given is not None
            and hashable(data_type)
            and len(given) <= _MOST_LITERALS
            and kinds[BLOOM][1] <= _LARGEST
        ):
            wanted = given
            if pa.types.is_floating(given.type) and pc.any(pc.equal(given, 0)).as_py():
                wanted = pa.concat_arrays([given, pa.array([0.0, -0.0]).cast(given.type)])  # equal, with different bits
            bloom = self._load(column, BLOOM, lambda data: BloomFilter.from_bytes(data, self.path))
            if not bloom.may_contain(hashes_of(wanted, data_type)).any():
                return False
        found = self._passing(column, data_type, op, given)
        return found is None or len(found[1]) > 0

    def may_contain(self, column: str, data_type: DataType, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Per value (of the type's Arrow type, without nulls): False where a bloom filter says that no row has it.

        Values are the same as Java compares them: the two zeros differ, all NaN are one.
        """
        place = self._places.get(column, {}).get(BLOOM)
        if place is None or not hashable(data_type) or place[1] > _LARGEST:
            return np.ones(len(values), np.bool_)
        if place[0] == EMPTY:
            return np.zeros(len(values), np.bool_)
        found = self._load(column, BLOOM, lambda data: BloomFilter.from_bytes(data, self.path))
        return found.may_contain(hashes_of(values, data_type))  # type: ignore[no-any-return]

    def row_mask(
        self, column: str, data_type: DataType, op: str, values: pa.Array | pa.Scalar | None, rows: int
    ) -> npt.NDArray[np.bool_] | None:
        """False at the rows (of ``rows`` in the file) that cannot pass; None when no index knows rows.

        True is no promise: test the rows still. Raises :class:`CorruptFile` when an index is about another number of rows.
        """
        found = self._passing(column, data_type, _SAME.get(op, op), _given(values, data_type))
        if found is None:
            return None
        if found[0] != rows:
            raise CorruptFile(self.path, f"index of column '{column}' is about {found[0]} rows, the file has {rows}")
        mask = np.zeros(rows, np.bool_)
        mask[np.asarray(found[1].to_array(), np.int64)] = True
        return mask

    def _passing(self, column: str, data_type: DataType, op: str, given: pa.Array | None) -> tuple[int, BitMap] | None:
        """(rows of the file, those that can pass) by all indexes that know rows; None without one."""
        kind = kind_of(data_type)
        found: tuple[int, BitMap] | None = None
        for name, (start, length) in self._places.get(column, {}).items():
            make = _ROW_INDEXES.get(name)
            if make is None or kind is None or start == EMPTY or length > _LARGEST:
                continue
            known: _Rows = self._load(column, name, partial(make, kind=kind, path=self.path))
            passing = evaluate(known, op, None if given is None else keys_of(given, data_type), given)
            if passing is not None:
                found = (known.rows, passing if found is None else found[1] & passing)
        return found

    def _load(self, column: str, name: str, make: Callable[[bytes], Any]) -> Any:
        if (column, name) not in self._known:
            self._known[column, name] = make(self._fetch(*self._places[column][name]))
        return self._known[column, name]


def evaluate(index: _Rows, op: str, keys: list[Key] | None, given: pa.Array | None) -> BitMap | None:
    """Rows that can pass a test, None when the index cannot tell; ``given``: the literals that ``keys`` came from."""
    if op in ("is null", "is not null"):
        return index.filled() if op == "is not null" else BitMap(range(index.rows)) - index.filled()
    if keys is None or given is None or len(keys) > _MOST_LITERALS:
        return None
    if index.kind.is_float and pc.any(pc.is_nan(given)).as_py():
        return None
    if op in ("=", "in"):
        return _any_of(index, keys)
    if not index.kind.is_exact:
        return None
    if op in ("!=", "not in"):
        return index.filled() - _any_of(index, keys)
    return _ordered(index, op, keys[0]) if op in ("<", "<=", ">", ">=") and len(keys) == 1 else None


def _any_of(index: _Rows, keys: list[Key]) -> BitMap:
    """Rows of any of the values; the two zeros of floats (numbered -1 and 0) are equal."""
    wanted = set(keys)
    if index.kind.is_float and wanted & {-1, 0}:
        wanted |= {-1, 0}
    return BitMap().union(*(index.equal(key) for key in wanted))


def _ordered(index: _Rows, op: str, key: Key) -> BitMap | None:
    zero = index.kind.is_float and key in (-1, 0)
    low, high = (-1, 0) if zero else (key, key)
    if op in ("<", ">="):
        found = index.below(low)
    else:
        smaller = index.below(high)
        found = None if smaller is None else smaller | index.equal(high)
    if found is None or op in ("<", "<="):
        return found
    return index.filled() - found


def _given(values: pa.Array | pa.Scalar | None, data_type: DataType) -> pa.Array | None:
    """The literals as an array of the column's own type without nulls; None when they cannot be had so."""
    if values is None or (kind_of(data_type) is None and not hashable(data_type)):
        return None
    if isinstance(values, pa.Scalar):
        if not values.is_valid:
            return None
        values = pa.repeat(values, 1)
    found = literals(values, data_type)
    return None if found is None else found.drop_null()


def map_key(column: str, key: str) -> str:
    """Name under which the index of a map column's value is kept."""
    return f"{column}##{key}"


__all__ = ["BLOOM", "FileIndex", "evaluate", "map_key"]
