"""Range of keys of one bucket, and the files, row groups and rows in this range.

Large sections are compacted range by range.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files import open_kv
from lsm_core.files.formats import FileSource
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import KEY_PREFIX
from lsm_core.merge import KeySpec, key_bytes, normalise_keys
from lsm_core.metadata.store import TableStore
from lsm_core.tree import DataFile
from lsm_core.types.arrow import refit


@dataclass(frozen=True)
class KeyRange:
    """Range of keys, as BinaryRows of the trimmed primary key.

    Attributes:
        low: smallest key (inclusive); None for no bound.
        high: end of the range (exclusive); None for no bound.
    """

    low: bytes | None = None
    high: bytes | None = None

    def __post_init__(self) -> None:
        for bound in (self.low, self.high):
            if bound is not None and not isinstance(bound, bytes):
                raise ValueError(f"a key bound is {type(bound).__name__}, not bytes")

    @property
    def is_first(self) -> bool:
        """Whether the range has no lower bound, so that it is the first range of its section."""
        return self.low is None


class _Bound:
    """One bound of a key range, in each of the forms that comparisons need.

    Attributes:
        key: the key as order-preserving bytes.
        first_column: the first key column as order-preserving bytes.
        scalar: the key as a value that compares with normalised keys of rows.
    """

    def __init__(self, row: bytes, store: TableStore) -> None:
        columns = decode_rows(arrow_array([row], pa.binary()), store.schema.trimmed_key_types, "(key range)")
        self.key: bytes = key_bytes(columns)[0].as_py()
        self.first_column: bytes = key_bytes(columns[:1])[0].as_py()
        self.scalar = normalise_keys(columns, nullable=store.schema.nullable_key).scalar(0)


class KeyBounds:
    """A :class:`KeyRange` prepared for comparison with the files and rows of its table."""

    def __init__(self, store: TableStore, chosen: KeyRange) -> None:
        """Decode the bounds of a range.

        Raises:
            CorruptFile: the bounds are not ascending keys of the table.
        """
        self._store = store
        self._spec = KeySpec.of(store.schema, table=store.name)
        self._low = None if chosen.low is None else _Bound(chosen.low, store)
        self._high = None if chosen.high is None else _Bound(chosen.high, store)
        if self._low is not None and self._high is not None and not self._low.key < self._high.key:
            raise CorruptFile("(key range)", "its bounds do not ascend")

    def meets(self, shape: DataFile) -> bool:
        """Return whether a file may contain keys of the range, judged by the file's smallest and largest key."""
        return not (
            (self._low is not None and shape.max_key < self._low.key)
            or (self._high is not None and shape.min_key >= self._high.key)
        )

    def holds(self, shape: DataFile) -> bool:
        """Return whether all keys of a file are in the range."""
        return not (
            (self._low is not None and shape.min_key < self._low.key)
            or (self._high is not None and shape.max_key >= self._high.key)
        )

    def contains(self, key: int | bytes) -> bool:
        """Return whether a key, in the form of normalised keys of rows, is in the range."""
        return not (
            (self._low is not None and key < self._low.scalar)  # type: ignore[operator]
            or (self._high is not None and key >= self._high.scalar)  # type: ignore[operator]
        )

    def groups(self, meta: DataFileMeta, source: FileSource) -> list[int] | None:
        """Return the row groups of a file that may contain keys of the range, judged by the footer.

        Returns:
            Numbers of the row groups, or None if the footer has no usable bounds.
        """
        bounds = self._group_bounds(meta, source)
        if bounds is None:
            return None
        lows, highs = bounds
        inside = np.ones(len(lows), np.bool_)
        # Bounds of the first key column alone: a group that shares its value with a bound is read.
        if self._low is not None:
            inside &= np.array([high >= self._low.first_column for high in highs], np.bool_)
        if self._high is not None:
            alone = len(self._store.schema.trimmed_primary_keys) == 1
            last = self._high.first_column
            inside &= np.array([low < last if alone else low <= last for low in lows], np.bool_)
        return [int(group) for group in np.flatnonzero(inside)]

    def _group_bounds(self, meta: DataFileMeta, source: FileSource) -> tuple[list[bytes], list[bytes]] | None:
        """Return the smallest and the largest values of the first key column per row group, or None if unknown.

        The values are order-preserving bytes. ``meta`` is the file, and ``source`` is the same file, opened.
        """
        bounds = group_bounds_of_key(self._store, meta, source)
        if bounds is None:
            return None
        try:
            lows, highs = (key_bytes([side]).to_pylist() for side in bounds)
        except UnsupportedFeature:
            return None  # bounds that cannot be decoded as keys exclude nothing
        return lows, highs

    def rows(self, batch: pa.RecordBatch) -> tuple[int, int]:
        """Return the rows of an ascending batch that are in the range, as (first row, end); the end is exclusive.

        All keys of the batch are decoded only if a bound lies inside the batch. If rows are out of order, some may be
        missed: a caller that reads all ranges of a file must compare the total row count.
        """
        start, stop = 0, batch.num_rows
        if not stop:
            return 0, 0
        if self._low is not None and self._key(batch, 0) < self._low.scalar:  # type: ignore[operator]
            start = self._spec.keys(batch).bisect(self._low.scalar, right=False)
        if self._high is not None and self._key(batch, stop - 1) >= self._high.scalar:  # type: ignore[operator]
            stop = self._spec.keys(batch).bisect(self._high.scalar, right=False)
        return start, max(start, stop)

    def _key(self, batch: pa.RecordBatch, row: int) -> int | bytes:
        return self._spec.keys(batch.slice(row, 1)).scalar(0)

    def open(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        meta: DataFileMeta,
        *,
        without: Collection[int] = (),
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file whose keys are in the range; decoding stops at the end of the range.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            meta: manifest entry of the file.
            without: row groups that are not read.
            options: further arguments of `files.open_kv`.
        """

        def choose(source: FileSource) -> list[int] | None:
            groups = self.groups(meta, source)
            if not without:
                return groups
            return [n for n in (range(len(source.group_rows)) if groups is None else groups) if n not in without]

        batches = open_kv(store, partition, bucket, meta, row_groups=choose, **options)
        with closing(batches):  # type: ignore[type-var]
            for batch in batches:
                start, stop = self.rows(batch)
                if start < stop:
                    yield batch if stop - start == batch.num_rows else batch.slice(start, stop - start)
                if stop < batch.num_rows:  # the range ends in this batch
                    return


def group_bounds_of_key(store: TableStore, meta: DataFileMeta, source: FileSource) -> tuple[pa.Array, pa.Array] | None:
    """Return the smallest and the largest values of the first key column per row group, from the footer.

    Args:
        store: the table.
        meta: manifest entry of the file.
        source: the same file, opened.

    Returns:
        Arrays of the column's type in the table's schema, or None if the footer has no usable bounds.
    """
    if store.schema.nullable_key:  # statistics do not cover nulls
        return None
    key = store.schema.field(store.schema.trimmed_primary_keys[0])
    written = next((f.name for f in store.schema_of(meta.schema_id).fields if f.id == key.id), None)
    if written is None:
        return None
    present = set(source.schema.names)
    name = KEY_PREFIX + written if KEY_PREFIX + written in present else written
    bounds = source.group_bounds(name) if name in present else None
    if bounds is None:
        return None
    column_type = store.schema.arrow_schema.field(key.name).type
    try:
        low, high = (refit(side, column_type) for side in bounds)
    except pa.ArrowException:
        return None
    return low, high
