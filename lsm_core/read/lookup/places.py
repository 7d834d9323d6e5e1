"""Where asked keys can lie: partitions by their values, buckets by the bucket function, files by their key ranges. Metadata only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.file_meta import DataFileMeta, table_to_entries
from lsm_core.format.hashing import bucket_of
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import NormalisedKeys, normalise_keys
from lsm_core.merge.comparable import Ints, Mask
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.read.lookup.asked import Asked
from lsm_core.read.lookup.search import lower_bound, take, upper_bound
from lsm_core.read.scan import compacted_only, visible


@dataclass(frozen=True, eq=False)
class KeyRuns:
    """Keys of one bucket, ascending and distinct, with their columns: what files are searched for.

    ``columns``: the trimmed primary key's, in the table's types, row by row as ``keys``.
    """

    keys: NormalisedKeys
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> KeyRuns:
        """Keys ``start`` to before ``stop``, without copying."""
        return KeyRuns(self.keys.slice(start, stop), self.columns.slice(start, stop - start))

    def filter(self, mask: Mask) -> KeyRuns:
        """The keys where ``mask`` is true."""
        rows = np.flatnonzero(mask)
        return self if len(rows) == len(mask) else KeyRuns(take(self.keys, rows), self.columns.take(pa.array(rows)))


@dataclass(frozen=True, eq=False)
class BucketKeys:
    """The keys that can lie in one bucket, and its files that can hold some of them.

    ``rows``: which of the asked keys they are; ``spans``: by file name, the range of ``keys`` within the file's own.
    """

    partition: bytes
    bucket: int
    keys: KeyRuns
    rows: Ints
    files: tuple[DataFileMeta, ...]
    spans: Mapping[str, tuple[int, int]]
    deletions: Mapping[str, DeletionFile]


def buckets_of(store: TableStore, snapshot: Snapshot, asked: Asked) -> Iterator[BucketKeys]:
    """The buckets of ``snapshot`` that can hold asked keys, by partition bytes and bucket. Raises CorruptFile."""
    found = asked.partitions()
    codes, partitions = found if found is not None else (None, None)
    wanted = None if partitions is None else partitions.to_pylist()
    numbers = {} if wanted is None else {partition: number for number, partition in enumerate(wanted)}
    entries = live_entries(
        store, snapshot, partitions=wanted, keep=partial(visible, store, compacted_only(store)), buckets=None
    )
    vectors = deletion_vectors(store, snapshot, wanted)
    routes = _Routes(asked)
    for partition, bucket, _, part in bucket_groups(_routed(entries, routes, codes, numbers)):
        inside = routes.into(bucket, part)
        if codes is not None:
            inside &= codes == numbers[partition]
        rows = np.flatnonzero(inside)
        if len(rows):
            yield from _bucket(store, (partition, bucket), part, asked, rows, vectors.get((partition, bucket), {}))


class _Routes:
    """Which bucket each asked key belongs to, for every number of buckets that files were written with."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._known: dict[int, Ints] = {}

    def of(self, total: int) -> Ints | None:
        """A bucket per key; None where keys do not tell it (dynamic buckets)."""
        if total <= 0:
            return None
        if total not in self._known:
            store = self._asked.store
            columns = [self._asked.columns[name] for name in store.schema.bucket_keys]
            function = store.options.bucket_function
            self._known[total] = bucket_of(columns, store.schema.bucket_key_types, total, function).astype(np.int64)
        return self._known[total]

    def into(self, bucket: int, entries: pa.Table) -> Mask:
        """The keys that can lie in ``bucket``, given its ``entries``."""
        inside = np.zeros(len(self._asked), np.bool_)
        for total in pc.unique(entries.column("total_buckets")).to_pylist():
            route = self.of(total)
            inside |= True if route is None else route == bucket
        return inside


def _routed(entries: pa.Table, routes: _Routes, codes: Ints | None, numbers: Mapping[bytes, int]) -> pa.Table:
    """Entries of the buckets that some asked key belongs to."""
    totals = entries.column("total_buckets").to_numpy()
    buckets = entries.column("bucket").to_numpy().astype(np.int64)
    if codes is None:
        of_entry = np.zeros(entries.num_rows, np.int64)
    else:
        encoded = pc.dictionary_encode(one_array(entries.column("partition")))
        known = np.array([numbers.get(one, -1) for one in encoded.dictionary.to_pylist()], np.int64)
        of_entry = known[encoded.indices.to_numpy()] if entries.num_rows else np.zeros(0, np.int64)
    kept = np.zeros(entries.num_rows, np.bool_)
    for total in np.unique(totals):
        route = routes.of(int(total))
        if route is None:
            kept |= totals == total
            continue
        step = int(total)
        pairs = np.unique((0 if codes is None else codes) * step + route)
        kept |= (totals == total) & np.isin(of_entry * step + buckets, pairs)
    return entries if kept.all() else entries.filter(pa.array(kept))


def _bucket(
    store: TableStore,
    place: tuple[bytes, int],
    entries: pa.Table,
    asked: Asked,
    rows: Ints,
    deletions: Mapping[str, DeletionFile],
) -> Iterator[BucketKeys]:
    keys, rows = ordered_keys(asked, rows)
    ends = [
        normalise_keys(decode_rows(entries.column(name), list(store.schema.trimmed_key_types)))
        for name in ("min_key", "max_key")
    ]
    starts, stops = lower_bound(keys.keys, ends[0]), upper_bound(keys.keys, ends[1])
    held = np.flatnonzero(stops > starts)
    if not len(held):
        return
    files = tuple(entry.file for entry in table_to_entries(entries.take(pa.array(held))))
    spans = {file.file_name: (int(starts[at]), int(stops[at])) for file, at in zip(files, held, strict=True)}
    yield BucketKeys(*place, keys, rows, files, spans, deletions)


def ordered_keys(asked: Asked, rows: Ints) -> tuple[KeyRuns, Ints]:
    """The asked keys ``rows`` in the order of files, and ``rows`` in that order."""
    columns = asked.of_rows(rows, asked.store.schema.trimmed_primary_keys)
    keys = normalise_keys(columns.columns)
    order, _ = keys.order(sorted_runs=False)
    return KeyRuns(take(keys, order), columns.take(pa.array(order))), rows[order]


__all__ = ["BucketKeys", "KeyRuns", "buckets_of", "ordered_keys"]
