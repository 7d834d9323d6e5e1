"""Bloom filters made while a data file is written: kept in its manifest entry when small, else in a file beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import InvalidOption
from lsm_core.format.file_index import (
    BLOOM,
    DEFAULT_FPP,
    DEFAULT_ITEMS,
    BloomFilter,
    encode,
    hashable,
    hashes_of,
    map_key,
)
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.schema import TableSchema
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions
from lsm_core.types import DataType, TypeRoot, to_arrow
from lsm_core.types.dictionaries import plain

SUFFIX: Final = ".index"
_PREFIX: Final = f"file-index.{BLOOM}."
_COLUMNS: Final = f"{_PREFIX}columns"
_TEXTS: Final = (TypeRoot.CHAR, TypeRoot.VARCHAR)


@dataclass(frozen=True)
class IndexedColumn:
    """One bloom filter to make: of ``column``, or of the values that its maps have for ``key``; ``type`` is theirs."""

    column: str
    key: str | None
    type: DataType
    items: int
    fpp: float

    @property
    def name(self) -> str:
        """What the container calls it."""
        return self.column if self.key is None else map_key(self.column, self.key)


def indexed_columns(schema: TableSchema, options: TableOptions) -> tuple[IndexedColumn, ...]:
    """What `file-index.bloom-filter.columns` asks for (`c`, or `c[k]` of a map). Raises InvalidOption naming table and option."""
    text = options.raw.get(_COLUMNS)
    if text is None:
        return ()
    return tuple(_column(schema, options, name.strip()) for name in text.split(","))


def _column(schema: TableSchema, options: TableOptions, name: str) -> IndexedColumn:
    column, key = name, None
    if not schema.has_field(name) and "[" in name and name.endswith("]"):
        column, _, key = name[:-1].partition("[")
    if not schema.has_field(column):
        raise InvalidOption(_COLUMNS, name, f"columns of the table: {', '.join(schema.field_names)}", options.table)
    kind = schema.field(column).type
    if key is not None:
        if kind.root is not TypeRoot.MAP or kind.key is None or kind.key.root not in _TEXTS or kind.value is None:
            raise InvalidOption(_COLUMNS, name, f"a MAP with texts as keys, '{column}' is {kind}", options.table)
        kind = kind.value
    if not hashable(kind):
        accepted = "columns of texts, bytes, whole or floating numbers, dates, times and timestamps"
        raise InvalidOption(_COLUMNS, name, f"{accepted}; '{column}' is {kind}", options.table)
    items, fpp = (_setting(options, name, column, setting) for setting in ("items", "fpp"))
    made = IndexedColumn(column, key, kind, int(items or DEFAULT_ITEMS), float(fpp or DEFAULT_FPP))
    try:
        BloomFilter.sized(made.items, made.fpp)
    except ValueError as error:
        raise InvalidOption(
            f"{_PREFIX}{name}", f"items {made.items}, fpp {made.fpp}", str(error), options.table
        ) from error
    return made


def _setting(options: TableOptions, name: str, column: str, setting: str) -> str | None:
    """A column's own setting; for a map's key, the map's where it has none."""
    own = options.text(f"{_PREFIX}{name}.{setting}")
    return options.text(f"{_PREFIX}{column}.{setting}") if own is None else own


class IndexWriter:
    """Filters of the data file being written, one file after another (Java `DataFileIndexWriter`)."""

    def __init__(self, store: TableStore, columns: tuple[IndexedColumn, ...]) -> None:
        self._store, self._columns = store, columns
        self._threshold = int(store.options.get("file-index.in-manifest-threshold"))
        self._filters = list(self._fresh())

    @staticmethod
    def of(store: TableStore) -> IndexWriter | None:
        """What the table's options ask for, None when they ask for nothing. Raises InvalidOption."""
        columns = indexed_columns(store.schema, store.options)
        return IndexWriter(store, columns) if columns else None

    def _fresh(self) -> Iterator[BloomFilter]:
        return (BloomFilter.sized(column.items, column.fpp) for column in self._columns)

    def add(self, rows: pa.Table) -> None:
        """See rows of the current file, deletes among them; they hold the table's columns by name."""
        for wanted, bloom in zip(self._columns, self._filters, strict=True):
            for chunk in rows.column(wanted.column).chunks:
                values = plain(chunk) if wanted.key is None else pc.map_lookup(chunk, pa.scalar(wanted.key), "first")
                bloom.add(hashes_of(one_array(values, to_arrow(wanted.type)), wanted.type))

    def finish(self, path: str, meta: DataFileMeta) -> DataFileMeta:
        """``meta`` of the data file at ``path`` with its index, written beside it when too large for the manifest.

        The next :meth:`add` starts another file. Raises what writing raises; the side file is at ``path`` + :data:`SUFFIX`.
        """
        named = zip(self._columns, self._filters, strict=True)
        data = encode({column.name: {BLOOM: bloom.to_bytes()} for column, bloom in named})
        self._filters = list(self._fresh())
        if len(data) <= self._threshold:
            return replace(meta, embedded_index=data)
        with self._store.file_io.open_output(path + SUFFIX) as sink:
            sink.write(data)
        return replace(meta, extra_files=(*meta.extra_files, meta.file_name + SUFFIX))


__all__ = ["SUFFIX", "IndexWriter", "IndexedColumn", "indexed_columns"]
