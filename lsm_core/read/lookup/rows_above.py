"""The rows that the levels above hold for the keys of a window: one sorted semi-join a window, where another engine asks a store key by key.

Compactions of level 0 need them: a lookup changelog for the values, deletion vectors for the positions. Windows come in key order,
so every file above is read forward, once at most, and only where keys can lie: files and row groups are left out by their key
range, keys by a bloom filter. Key columns are decoded first; the others only in row groups with hits, and taken for the hits.
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
from lsm_core.files.append_reader import BATCH_ROWS, open_source
from lsm_core.files.evolution import Evolution
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import key_names
from lsm_core.merge import KeySpec, NormalisedKeys, normalise_keys
from lsm_core.merge.comparable import Ints
from lsm_core.metadata.indexes import DeletionFile, read_vector
from lsm_core.metadata.store import TableStore
from lsm_core.read.lookup.key_routing import SortedKeys, lower_bound, places_of, upper_bound
from lsm_core.read.lookup.rows_by_key import group_key_bounds, not_ruled_out


@dataclass(frozen=True, eq=False)
class Hits:
    """Rows of one file whose keys were asked for, in key order: the asked key number ``asked[i]`` lies at row ``positions[i]`` of the file.

    ``rows``: the target's columns of these rows (a target without columns has none: the positions are all there is).
    """

    file: DataFileMeta
    asked: Ints
    positions: Ints
    rows: pa.RecordBatch


class RowsAbove:
    """Sorted runs of one bucket, one a level above 0, asked for the keys of window after window (Java `LookupLevels`).

    ``files``: of the levels to search, all above 0. ``target``: the columns wanted of hits, of `_KEY_*`, system and value columns;
    ``pa.schema([])`` for positions alone. ``deletions``: by file name, vectors of rows that are gone: they are no hits. At most
    one file a level is open. Use it in a ``with`` block, or :meth:`close` it.
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
        by_level = sorted(files, key=attrgetter("level"))
        if by_level and by_level[0].level < 1:
            raise ValueError(f"{by_level[0].file_name} lies on level 0, whose files are no sorted run")
        search = _Search(store, partition, bucket, target, dict(deletions or {}), batch_rows)
        self._runs = [_Run(search, list(run)) for _, run in groupby(by_level, key=attrgetter("level"))]

    def find(self, wanted: SortedKeys) -> list[Hits]:
        """Where the ``wanted`` keys lie, each in the lowest level that has it; keys that no level has are in none of the hits.

        ``wanted`` ascend, each once, and go on where the call before ended: no key is smaller than one asked for before. A row that
        retracts is a hit like any other. Raises CorruptFile naming the file that is damaged or not in key order.
        """
        found: list[Hits] = []
        left, rows = wanted, np.arange(len(wanted))
        for run in self._runs:
            if not len(left):
                break
            missed = np.ones(len(left), np.bool_)
            for hits in run.find(left):
                missed[hits.asked] = False
                found.append(replace(hits, asked=rows[hits.asked]))
            left, rows = left.filter(missed), rows[missed]
        return found

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
    """The bucket, columns and vectors that the files of one search share."""

    store: TableStore
    partition: bytes
    bucket: int
    target: pa.Schema
    deletions: Mapping[str, DeletionFile]
    batch_rows: int


class _Run:
    """The files of one level in key order; the one that a window ended in stays open for the next window."""

    def __init__(self, search: _Search, files: Sequence[DataFileMeta]) -> None:
        types = list(search.store.schema.trimmed_key_types)
        ends = [pa.array([getattr(file, end) for file in files], pa.binary()) for end in ("min_key", "max_key")]
        lows, highs = (normalise_keys(decode_rows(end, types)) for end in ends)
        order, _ = lows.order(sorted_runs=False)
        self._search = search
        self._files = [files[i] for i in order]
        self._bounds = [(lows.scalar(int(i)), highs.scalar(int(i))) for i in order]
        self._open: tuple[int, _Cursor] | None = None

    def find(self, wanted: SortedKeys) -> Iterator[Hits]:
        """Hits in key order, file by file; ``asked`` are places in ``wanted``."""
        for number, (low, high) in enumerate(self._bounds):
            start, stop = wanted.keys.bisect(low, right=False), wanted.keys.bisect(high, right=True)
            if start < stop:
                yield from self._in_file(number, wanted.slice(start, stop), start)

    def _in_file(self, number: int, wanted: SortedKeys, start: int) -> Iterator[Hits]:
        file, search = self._files[number], self._search
        rows = np.arange(start, start + len(wanted))
        asked = not_ruled_out(search.store, search.partition, search.bucket, file, wanted)
        if len(asked) < len(wanted):
            _, kept = places_of(asked.keys, wanted.keys)
            rows = rows[kept]
        if not len(asked):
            return
        if self._open is None or self._open[0] != number:
            self.close()
            self._open = number, _Cursor(search, file)
        found = list(self._open[1].find(asked.keys))
        if found:
            batch = pa.concat_batches([batch for _, _, batch in found]) if len(found) > 1 else found[0][2]
            which, positions = (np.concatenate([part[i] for part in found]) for i in (0, 1))
            yield Hits(file, rows[which], positions, batch)

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


class _Cursor:
    """One open file, read forward: keys batch by batch, other columns as far as hits need them."""

    def __init__(self, search: _Search, file: DataFileMeta) -> None:
        store = search.store
        self._search = search
        self._source = source = open_source(store, search.partition, search.bucket, file, keep=True)
        gone = search.deletions.get(file.file_name)
        self._deleted = None if gone is None else read_vector(store, gone, file.row_count)
        self._spec = KeySpec.of(store.schema, table=store.name)
        names = list(key_names(store.schema))
        layout = kv_read_schema(store)
        self._keys = Evolution.of(store, file, source.schema, pa.schema([layout.field(n) for n in names]), source.path)
        whole = Evolution.of(store, file, source.schema, search.target, source.path)
        stored = set(self._keys.stored)
        # what is decoded with the keys, and what for hits only
        self._early = [not source.by_column or column.stored in stored for column in whole.columns]
        self._with_keys, self._rest = (
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
        """Row number in its group of the first row of the batch that is held."""
        self._value_stream: Iterator[pa.RecordBatch] | None = None
        self._values: pa.RecordBatch | None = None
        self._values_first = 0

    def find(self, wanted: NormalisedKeys) -> Iterator[tuple[Ints, Ints, pa.RecordBatch]]:
        """Places in ``wanted``, positions in the file, and rows of the target, batch by batch."""
        last = wanted.scalar(len(wanted) - 1)
        while self._held_keys is not None or self._advance(wanted):
            keys = self._held_keys
            assert keys is not None
            assert self._held is not None
            places, which = places_of(keys, wanted)
            offset = int(self._offsets[self._group]) + self._first
            if len(places) and self._deleted is not None:
                kept = ~self._deleted.deleted_mask(offset, len(keys))[places]
                places, which = places[kept], which[kept]
            if len(places):
                rows = self._with_keys.apply(self._held.take(pa.array(places)), self._source.path)
                yield which, offset + places, self._joined(rows, self._first + places)
            if not keys.scalar(len(keys) - 1) < last:  # type: ignore[operator]
                return  # the next window may go on in this batch
            self._first += len(keys)
            self._held_keys = None

    def _advance(self, wanted: NormalisedKeys) -> bool:
        """Hold the next batch of keys; False where nothing of ``wanted`` can come any more, for now or for ever."""
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
                starts, stops = lower_bound(wanted, self._bounds[0]), upper_bound(wanted, self._bounds[1])
                holding = np.flatnonzero(stops[following:] > starts[following:])
                following = following + int(holding[0]) if len(holding) else len(starts)
                if following == len(starts):
                    return False  # groups passed over here may hold keys of a later window
            if following >= len(self._source.group_rows):
                return False
            self._group, self._first = following, 0
            stored = sorted({*self._keys.stored, *self._with_keys.stored})
            self._key_stream = self._source.batches(stored, self._search.batch_rows, [following])
            self._value_stream, self._values, self._values_first = None, None, 0

    _last_key: int | bytes | None = None

    def _joined(self, early: pa.RecordBatch, places: Ints) -> pa.RecordBatch:
        """The target's columns of the rows ``places`` of the group, of which those decoded with the keys are there."""
        if not self._rest.columns:
            return early
        parts: list[pa.RecordBatch] = []
        done = 0
        while done < len(places):
            if self._values is None or places[done] >= self._values_first + self._values.num_rows:
                self._next_values()
                continue
            stop = int(np.searchsorted(places, self._values_first + self._values.num_rows))
            chosen = self._values.take(pa.array(places[done:stop] - self._values_first))
            parts.append(self._rest.apply(chosen, self._source.path))
            done = stop
        late = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
        found = dict(zip(early.schema.names, early.columns, strict=True))
        found.update(zip(late.schema.names, late.columns, strict=True))
        return pa.RecordBatch.from_arrays(
            [found[name] for name in self._search.target.names], schema=self._search.target
        )

    def _next_values(self) -> None:
        if self._value_stream is None:
            self._value_stream = self._source.batches(self._rest.stored, self._search.batch_rows, [self._group])
        if self._values is not None:
            self._values_first += self._values.num_rows
        self._values = next(self._value_stream, None)
        if self._values is None:
            raise CorruptFile(self._source.path, f"row group {self._group} has fewer rows than its footer says")

    def close(self) -> None:
        for stream in (self._key_stream, self._value_stream):
            if stream is not None and hasattr(stream, "close"):
                stream.close()
        self._source.close()


__all__ = ["Hits", "RowsAbove"]
