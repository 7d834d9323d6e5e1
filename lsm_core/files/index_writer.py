"""File indexes, built while a data file is written.

A small index is stored in the manifest entry, a large one in a file beside the data file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import decimal_limbs, one_array, plain, valid_mask
from lsm_core.errors import InvalidOption
from lsm_core.format.file_index import (
    BLOOM,
    DEFAULT_BLOCK,
    DEFAULT_FPP,
    DEFAULT_ITEMS,
    BloomFilter,
    ValueRows,
    default_chunk,
    encode,
    encode_bitmap,
    encode_range,
    encode_slices,
    hashable,
    hashes_of,
    kind_of,
    map_key,
    numbers_of,
)
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions, memory_size
from lsm_core.types import DataType, TypeRoot, to_arrow

SUFFIX: Final = ".index"
BITMAP, BSI, RANGE_BITMAP = "bitmap", "bsi", "range-bitmap"
KINDS: Final = (BLOOM, BITMAP, BSI, RANGE_BITMAP)
_TEXTS: Final = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_NUMBERS: Final = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.DATE,
        TypeRoot.TIME,
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
        TypeRoot.DECIMAL,
    }
)
_MICRO_DIGITS: Final = 6
_LAYOUTS: Final = (1, 2)


class ColumnIndexer(Protocol):
    """Builder of the index of one column of one file."""

    def add(self, array: pa.Array) -> None:
        """Add the values of the next rows, as an array of the column type's Arrow type."""

    def finish(self) -> bytes | None:
        """Return the encoded index, or None if the index cannot represent the values."""


@dataclass(frozen=True)
class IndexedColumn:
    """Index to build for one column, or for the values of one key of a map column.

    Attributes:
        column: name of the column.
        key: key of the column's maps whose values are indexed; None to index the column itself.
        type: type of the indexed values.
        kind: index type, one of :data:`KINDS`.
        start: function that creates the index builder.
    """

    column: str
    key: str | None
    type: DataType
    kind: str
    start: Callable[[], ColumnIndexer]

    @property
    def name(self) -> str:
        """Name of the column in the index file or embedded index; for an index of one map key, it includes the key."""
        return self.column if self.key is None else map_key(self.column, self.key)


def indexed_columns(schema: TableSchema, options: TableOptions) -> tuple[IndexedColumn, ...]:
    """Return the indexes that options `file-index.<kind>.columns` request (`c`, or `c[k]` for a key of a map).

    Raises:
        InvalidOption: a column does not exist or cannot have the index; the error names table and option.
    """
    columns = []
    for kind in KINDS:
        text = options.raw.get(f"file-index.{kind}.columns")
        if text is not None:
            columns += [_column(schema, options, kind, name.strip()) for name in text.split(",")]
    return tuple(columns)


def _column(schema: TableSchema, options: TableOptions, index: str, name: str) -> IndexedColumn:
    option = f"file-index.{index}.columns"
    column, key = name, None
    if not schema.has_field(name) and "[" in name and name.endswith("]"):
        column, _, key = name[:-1].partition("[")
    if not schema.has_field(column):
        raise InvalidOption(option, name, f"columns of the table: {', '.join(schema.field_names)}", options.table)
    kind = schema.field(column).type
    if key is not None:
        if kind.root is not TypeRoot.MAP or kind.key is None or kind.key.root not in _TEXTS or kind.value is None:
            raise InvalidOption(option, name, f"a MAP with texts as keys, '{column}' is {kind}", options.table)
        kind = kind.value
    accepts, accepted = _ACCEPTED[index]
    if not accepts(kind):
        raise InvalidOption(option, name, f"{accepted}; '{column}' is {kind}", options.table)

    def setting(key_suffix: str, default: str) -> str:
        """Return the value of option `file-index.<kind>.<column>.<key_suffix>` for the column or map key.

        A map key without its own option has the value of its map column; ``default`` is used if neither is set.
        """
        own = options.text(f"file-index.{index}.{name}.{key_suffix}")
        return own or options.text(f"file-index.{index}.{column}.{key_suffix}") or default

    def size(key_suffix: str, default: int) -> int:
        return memory_size(setting(key_suffix, f"{default} b"), f"file-index.{index}.{name}.{key_suffix}")

    start: Callable[[], ColumnIndexer]
    if index == BLOOM:
        items, fpp = int(setting("items", str(DEFAULT_ITEMS))), float(setting("fpp", str(DEFAULT_FPP)))
        try:
            BloomFilter.sized(items, fpp)
        except ValueError as error:
            arguments = f"items {items}, fpp {fpp}"
            raise InvalidOption(f"file-index.{index}.{name}", arguments, str(error), options.table) from error
        start = lambda: _Bloom(kind, items, fpp)  # noqa: E731
    elif index == BITMAP:
        version, block = setting("version", str(_LAYOUTS[-1])), size("index-block-size", DEFAULT_BLOCK)
        if version not in map(str, _LAYOUTS):
            raise InvalidOption(f"file-index.{index}.{name}.version", version, "1 or 2", options.table)
        start = lambda: _Bitmap(kind, int(version), block)  # noqa: E731
    elif index == BSI:
        start = lambda: _Slices(kind)  # noqa: E731
    else:
        value_kind = kind_of(kind)
        assert value_kind is not None
        chunk = size("chunk-size", default_chunk(value_kind))
        start = lambda: _Range(kind, chunk)  # noqa: E731
    return IndexedColumn(column, key, kind, index, start)


def _has_bitmap(kind: DataType) -> bool:
    return kind_of(kind) is not None and kind.root is not TypeRoot.DECIMAL


def _has_slices(kind: DataType) -> bool:
    return kind.root in _NUMBERS


def _has_ranks(kind: DataType) -> bool:
    timestamp = kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
    return kind_of(kind) is not None and not (timestamp and (kind.precision or 0) > _MICRO_DIGITS)


_TIMES: Final = "whole or floating numbers, dates, times and timestamps"
_ACCEPTED: Final[dict[str, tuple[Callable[[DataType], bool], str]]] = {
    BLOOM: (hashable, f"columns of texts, bytes, {_TIMES}"),
    BITMAP: (_has_bitmap, f"columns of texts, booleans, {_TIMES}"),
    BSI: (_has_slices, "columns of whole numbers, decimals, dates, times and timestamps"),
    RANGE_BITMAP: (
        _has_ranks,
        f"columns of texts, booleans, {_TIMES} of at most 6 digits, and decimals of at most 18 digits",
    ),
}
"""Types for which Paimon builds each index, with a description."""


class _Bloom:
    def __init__(self, kind: DataType, items: int, fpp: float) -> None:
        self._kind, self._filter = kind, BloomFilter.sized(items, fpp)

    def add(self, array: pa.Array) -> None:
        self._filter.add(hashes_of(array, self._kind))

    def finish(self) -> bytes | None:
        return self._filter.to_bytes()


class _Values:
    """Common part of builders of indexes with a sorted dictionary of values, known after the file's last row."""

    def __init__(self, kind: DataType) -> None:
        value_kind = kind_of(kind)
        assert value_kind is not None
        self._rows = ValueRows(value_kind)

    def add(self, array: pa.Array) -> None:
        self._rows.add(array)


class _Bitmap(_Values):
    def __init__(self, kind: DataType, version: int, block: int) -> None:
        super().__init__(kind)
        self._layout = version, block

    def finish(self) -> bytes | None:
        return encode_bitmap(self._rows.finish(), *self._layout)


class _Range(_Values):
    def __init__(self, kind: DataType, chunk: int) -> None:
        super().__init__(kind)
        self._chunk = chunk

    def finish(self) -> bytes | None:
        return encode_range(self._rows.finish(), self._chunk)


class _Slices:
    """Builder of a bit-slice index (`bsi`), of 64-bit numbers; a file with a larger decimal gets none (Java fails)."""

    def __init__(self, kind: DataType) -> None:
        self._kind, self._fits = kind, True
        self._numbers: list[np.ndarray] = []
        self._valid: list[np.ndarray] = []

    def add(self, array: pa.Array) -> None:
        valid = valid_mask(array)
        numbers = numbers_of(array, self._kind)
        valid = np.ones(len(array), np.bool_) if valid is None else valid
        if self._kind.root is TypeRoot.DECIMAL:
            high, _ = decimal_limbs(array)
            self._fits = self._fits and bool((high == numbers >> np.int64(63))[valid].all())
        self._numbers.append(numbers)
        self._valid.append(valid)

    def finish(self) -> bytes | None:
        return encode_slices(np.concatenate(self._numbers), np.concatenate(self._valid)) if self._fits else None


class IndexWriter:
    """Writer of the indexes of data files, one file after another.

    A bloom filter takes its encoded size in memory. Every other index takes 4 to 9 bytes per row of the file, and a
    dictionary index also the distinct values.

    Source: ``DataFileIndexWriter``.
    """

    def __init__(self, store: TableStore, columns: tuple[IndexedColumn, ...]) -> None:
        self._store, self._columns = store, columns
        self._threshold = int(store.options.get("file-index.in-manifest-threshold"))
        self.built: frozenset[tuple[str, str]] = frozenset()
        """(column, index type) pairs of the last finished file."""
        self._start()

    @staticmethod
    def of(store: TableStore) -> IndexWriter | None:
        """Return a writer of the indexes that the table's options name, or None if they name no index.

        Raises:
            InvalidOption: a column of `file-index.<kind>.columns` does not exist or cannot have the index.
        """
        columns = indexed_columns(store.schema, store.options)
        return IndexWriter(store, columns) if columns else None

    def _start(self) -> None:
        self._indexers = [column.start() for column in self._columns]
        self._values = [False] * len(self._columns)

    def add(self, rows: pa.Table) -> None:
        """Add rows of the current file, deletes included, with the table's columns by name."""
        for number, (column, indexer) in enumerate(zip(self._columns, self._indexers, strict=True)):
            for chunk in rows.column(column.column).chunks:
                values = plain(chunk) if column.key is None else pc.map_lookup(chunk, pa.scalar(column.key), "first")
                values = one_array(values, to_arrow(column.type))
                self._values[number] |= values.null_count < len(values)
                indexer.add(values)

    def finish(self, path: str, meta: DataFileMeta, suffix: str = SUFFIX, *, beside: bool = False) -> DataFileMeta:
        """Add the collected indexes to a data file's metadata; write a large index to a side file.

        The next :meth:`add` belongs to the next file. The side file is at ``path`` + ``suffix``.

        Args:
            path: path of the data file.
            meta: metadata of the data file.
            suffix: end of the side file's name, which ends with :data:`SUFFIX`.
            beside: whether to write a small index to a side file, too.

        Returns:
            ``meta`` with the embedded index, or with the name of the side file.
        """
        indexes: dict[str, dict[str, bytes | None]] = {}
        for column, indexer, any_value in zip(self._columns, self._indexers, self._values, strict=True):
            index_bytes = indexer.finish()
            if index_bytes is not None:
                # Java marks only keys of maps so.
                only_nulls = column.key is not None and not any_value
                indexes.setdefault(column.name, {})[column.kind] = None if only_nulls else index_bytes
        self.built = frozenset((name, kind) for name, kinds in indexes.items() for kind in kinds)
        self._start()
        data = encode(indexes)
        if len(data) <= self._threshold and not beside:
            return replace(meta, embedded_index=data)
        with self._store.file_io.open_output(path + suffix) as sink:
            sink.write(data)
        return replace(meta, extra_files=(*meta.extra_files, meta.file_name + suffix))
