"""Rows of the levels above level 0 for the keys of a window (a batch of sorted keys): one semi-join per window.

Compactions of level 0 need these rows: for the values of a lookup changelog, and for the positions in deletion vectors.
Windows come in key order, so each file is read forward at most once. Files and row groups are skipped by their key
range, keys by a bloom filter. Key columns are decoded first. Other columns are decoded only in row groups with hits
(rows of a lookup key).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Self

import numpy as np
import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.files import kv_read_schema
from lsm_core.files.reader import BATCH_ROWS, Evolution, open_source
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import key_names
from lsm_core.merge import KeySpec, NormalisedKeys, normalise_keys
from lsm_core.merge.keys import Ints
from lsm_core.metadata.indexes import DeletionFile, read_vector
from lsm_core.metadata.store import TableStore
from lsm_core.read.lookup.key_routing import SortedKeys, lower_bound, places_of, upper_bound
from lsm_core.read.lookup.rows_by_key import group_key_bounds, not_ruled_out


@dataclass(frozen=True, eq=False)
class Hits:
    """Rows of one file that have a lookup key (hits), in key order.

    Attributes:
        file: the file.
        lookup_rows: for each hit, the position of its key among the lookup keys.
        positions: for each hit, its row number in the file.
        rows: the hits with the columns of the requested schema; no columns if this schema is empty.
    """

    file: DataFileMeta
    lookup_rows: Ints
    positions: Ints
    rows: pa.RecordBatch


class RowsAbove:
    """Sorted runs of one bucket above level 0, searched for the keys of consecutive windows (key ranges).

    At most one file of a level is open. Use it in a ``with`` block, or call :meth:`close`.

    Source: ``LookupLevels``.
    """

    def __init__(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        files: Sequence[DataFileMeta],
        target: pa.Schema,
        *,
        deletions: Mapping[str, DeletionFile] | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        """Group the files by level.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            files: files of the levels to search, all above 0.
            target: columns of the found rows: `_KEY_*`, system and value columns; ``pa.schema([])`` for positions
                alone.
            deletions: deletion vectors by file name; the rows that they mark are not returned.
            batch_rows: number of rows that are decoded at once.
        """
        by_level = sorted(files, key=attrgetter("level"))
        if by_level and by_level[0].level < 1:
            raise ValueError(f"{by_level[0].file_name} is on level 0, whose files are not a sorted run")
        search = _Search(store, partition, bucket, target, dict(deletions or {}), batch_rows)
        self._runs = [_Run(search, list(run)) for _, run in groupby(by_level, key=attrgetter("level"))]

    def find(self, lookup_keys: SortedKeys) -> list[Hits]:
        """Return the rows of the lookup keys; each key's row comes from the lowest level that contains the key.

        A key without a row is in no result. A retract is returned like any row.

        Args:
            lookup_keys: keys in ascending order; no key may be smaller than a key of an earlier call.

        Raises:
            CorruptFile: a file is damaged or not in key order.
        """
        all_hits: list[Hits] = []
        remaining, rows = lookup_keys, np.arange(len(lookup_keys))
        for run in self._runs:
            if not len(remaining):
                break
            missed = np.ones(len(remaining), np.bool_)
            for hits in run.find(remaining):
                missed[hits.lookup_rows] = False
                all_hits.append(replace(hits, lookup_rows=rows[hits.lookup_rows]))
            remaining, rows = remaining.filter(missed), rows[missed]
        return all_hits

    def close(self) -> None:
        """Close the open files."""
        for run in self._runs:
            run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Search:
    """Bucket, columns and deletion vectors for all files of one search.

    Attributes:
        store: the table.
        partition: the bucket's partition, as BinaryRow bytes.
        bucket: number of the bucket.
        target: columns of the found rows.
        deletions: location of each file's deletion vector, by file name.
        batch_rows: number of rows that are decoded at once.
    """

    store: TableStore
    partition: bytes
    bucket: int
    target: pa.Schema
    deletions: Mapping[str, DeletionFile]
    batch_rows: int


class _Run:
    """Files of one level in key order, searched for batches of ascending keys (windows).

    The file in which the search for one window ended stays open for the next window.
    """

    def __init__(self, search: _Search, files: Sequence[DataFileMeta]) -> None:
        types = list(search.store.schema.trimmed_key_types)
        ends = [pa.array([getattr(file, end) for file in files], pa.binary()) for end in ("min_key", "max_key")]
        nullable = search.store.schema.nullable_key
        lows, highs = (normalise_keys(decode_rows(end, types), nullable=nullable) for end in ends)
        order, _ = lows.order(sorted_runs=False)
        self._search = search
        self._files = [files[i] for i in order]
        self._bounds = [(lows.scalar(int(i)), highs.scalar(int(i))) for i in order]
        self._open: tuple[int, _Cursor] | None = None

    def find(self, lookup_keys: SortedKeys) -> Iterator[Hits]:
        """Yield the rows with a key of ``lookup_keys``, in key order and file by file.

        :attr:`Hits.lookup_rows` are positions in ``lookup_keys``.
        """
        for number, (low, high) in enumerate(self._bounds):
            start, stop = lookup_keys.keys.bisect(low, right=False), lookup_keys.keys.bisect(high, right=True)
            if start < stop:
                yield from self._in_file(number, lookup_keys.slice(start, stop), start)

    def _in_file(self, number: int, lookup_keys: SortedKeys, start: int) -> Iterator[Hits]:
        file, search = self._files[number], self._search
        rows = np.arange(start, start + len(lookup_keys))
        remaining = not_ruled_out(search.store, search.partition, search.bucket, file, lookup_keys)
        if len(remaining) < len(lookup_keys):
            _, kept = places_of(remaining.keys, lookup_keys.keys)
            rows = rows[kept]
        if not len(remaining):
            return
        if self._open is None or self._open[0] != number:
            self.close()
            self._open = number, _Cursor(search, file)
        matches = list(self._open[1].find(remaining.keys))
        if matches:
            batch = pa.concat_batches([batch for _, _, batch in matches]) if len(matches) > 1 else matches[0][2]
            which, positions = (np.concatenate([part[i] for part in matches]) for i in (0, 1))
            yield Hits(file, rows[which], positions, batch)

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


class _Cursor:
    """Forward-only reader of one file: decodes keys batch by batch, and other columns only up to the last found row."""

    def __init__(self, search: _Search, file: DataFileMeta) -> None:
        store = search.store
        self._search = search
        self._source = source = open_source(store, search.partition, search.bucket, file, keep=True)
        vector = search.deletions.get(file.file_name)
        self._deleted = None if vector is None else read_vector(store, vector, file.row_count)
        self._spec = KeySpec.of(store.schema, table=store.name)
        names = list(key_names(store.schema))
        layout = kv_read_schema(store)
        self._keys = Evolution.of(store, file, source.schema, pa.schema([layout.field(n) for n in names]), source.path)
        whole = Evolution.of(store, file, source.schema, search.target, source.path)
        stored = set(self._keys.stored)
        # Columns decoded with the keys, and columns decoded for hits only.
        self._early = [not source.by_column or column.stored in stored for column in whole.columns]
        self._with_keys, self._without_keys = (
            replace(
                whole,
                target=pa.schema(
                    [c.field for c, early in zip(whole.columns, self._early, strict=True) if early is side]
                ),
                columns=tuple(c for c, early in zip(whole.columns, self._early, strict=True) if early is side),
            )
            for side in (True, False)
        )
        self._bounds = group_key_bounds(store, source, self._keys, names)
        self._offsets = np.cumsum([0, *source.group_rows])
        self._group = -1
        self._key_stream: Iterator[pa.RecordBatch] = iter(())
        self._held: pa.RecordBatch | None = None
        self._held_keys: NormalisedKeys | None = None
        self._first = 0
        """Row number, in its row group, of the first row of the batch in `_held`."""
        self._value_stream: Iterator[pa.RecordBatch] | None = None
        self._values: pa.RecordBatch | None = None
        self._values_first = 0

    def find(self, lookup_keys: NormalisedKeys) -> Iterator[tuple[Ints, Ints, pa.RecordBatch]]:
        """Yield batches of hits (rows of the file that have a key of ``lookup_keys``), in key order.

        Yields:
            (position of each hit's key in ``lookup_keys``, row number of each hit in the file, the target's columns of
            the hits).
        """
        last = lookup_keys.scalar(len(lookup_keys) - 1)
        while self._held_keys is not None or self._advance(lookup_keys):
            keys = self._held_keys
            assert keys is not None
            assert self._held is not None
            places, which = places_of(keys, lookup_keys)
            offset = int(self._offsets[self._group]) + self._first
            if len(places) and self._deleted is not None:
                kept = ~self._deleted.deleted_mask(offset, len(keys))[places]
                places, which = places[kept], which[kept]
            if len(places):
                rows = self._with_keys.apply(self._held.take(pa.array(places)), self._source.path)
                yield which, offset + places, self._join_columns(rows, self._first + places)
            if not keys.scalar(len(keys) - 1) < last:  # type: ignore[operator]
                return  # the next window may continue in this batch
            self._first += len(keys)
            self._held_keys = None

    def _advance(self, lookup_keys: NormalisedKeys) -> bool:
        """Read the next batch of the file's keys.

        Returns False when no further row group can contain one of ``lookup_keys``; nothing is read then.
        """
        while True:
            batch = next(self._key_stream, None)
            if batch is not None:
                if not batch.num_rows:
                    continue
                keys = self._spec.keys(self._keys.apply(batch, self._source.path))
                before = self._last_key
                if not keys.ascending() or (before is not None and keys.scalar(0) < before):  # type: ignore[operator]
                    raise CorruptFile(self._source.path, "its rows are not in key order")
                self._last_key = keys.scalar(len(keys) - 1)
                self._held, self._held_keys = batch, keys
                return True
            following = self._group + 1
            if self._bounds is not None:
                starts, stops = lower_bound(lookup_keys, self._bounds[0]), upper_bound(lookup_keys, self._bounds[1])
                holding = np.flatnonzero(stops[following:] > starts[following:])
                following = following + int(holding[0]) if len(holding) else len(starts)
                if following == len(starts):
                    return False  # skipped row groups may hold keys of a later window
            if following >= len(self._source.group_rows):
                return False
            self._group, self._first = following, 0
            stored = sorted({*self._keys.stored, *self._with_keys.stored})
            self._key_stream = self._source.batches(stored, self._search.batch_rows, [following])
            self._value_stream, self._values, self._values_first = None, None, 0

    _last_key: int | bytes | None = None

    def _join_columns(self, early: pa.RecordBatch, places: Ints) -> pa.RecordBatch:
        """Return the target's columns for the rows at positions ``places`` of the row group.

        ``early`` has the columns that were decoded together with the keys.
        """
        if not self._without_keys.columns:
            return early
        parts: list[pa.RecordBatch] = []
        done = 0
        while done < len(places):
            if self._values is None or places[done] >= self._values_first + self._values.num_rows:
                self._next_values()
                continue
            stop = int(np.searchsorted(places, self._values_first + self._values.num_rows))
            chosen = self._values.take(pa.array(places[done:stop] - self._values_first))
            parts.append(self._without_keys.apply(chosen, self._source.path))
            done = stop
        late = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
        columns = dict(zip(early.schema.names, early.columns, strict=True))
        columns.update(zip(late.schema.names, late.columns, strict=True))
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._search.target.names], schema=self._search.target
        )

    def _next_values(self) -> None:
        if self._value_stream is None:
            self._value_stream = self._source.batches(self._without_keys.stored, self._search.batch_rows, [self._group])
        if self._values is not None:
            self._values_first += self._values.num_rows
        self._values = next(self._value_stream, None)
        if self._values is None:
            raise CorruptFile(self._source.path, f"row group {self._group} has fewer rows than its footer states")

    def close(self) -> None:
        for stream in (self._key_stream, self._value_stream):
            if stream is not None and hasattr(stream, "close"):
                stream.close()
        self._source.close()
