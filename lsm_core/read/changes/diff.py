"""Comparison of two versions of a table key by key.

Source: ``IncrementalDiffSplitRead``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar
from lsm_core.errors import UnsupportedFeature
from lsm_core.files import SpilledRun, SpillSpace
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.format.snapshot import Snapshot
from lsm_core.merge import KeySpec, RunInput, merge_streams
from lsm_core.merge.engines.internal import Differences
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, require_in_place
from lsm_core.metadata.live_files import BucketGroup, bucket_groups, compacted_only
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.read.changes.changed_rows import Choice, Rows, merged_rows, plain_rows
from lsm_core.read.merge_read import sections_of
from lsm_core.read.prune import prune_buckets, prune_partitions
from lsm_core.read.scan import visible
from lsm_core.types import RowKind

Place = tuple[bytes, int]
_BEFORE: Final = 0
_AFTER: Final = 1
_HELD_BYTES: Final = 32 * 1024 * 1024
"""Arrow bytes of changed rows that may be held in memory; more rows are spilled to disk."""


@dataclass(frozen=True)
class _Side:
    """One bucket in one version: its visible files and their deletion vectors.

    Attributes:
        total_buckets: number of buckets that the partition's files were written with.
        entries: manifest entries of the bucket's files; None for an empty bucket.
        deletions: location of each file's deletion vector, by file name.
    """

    total_buckets: int = 0
    entries: pa.Table | None = None
    deletions: Mapping[str, DeletionFile] = field(default_factory=dict)

    def files(self) -> dict[tuple[str, DeletionFile | None], DataFileMeta]:
        """Return the files by (file name, deletion vector); the same key in both versions means the same rows."""
        files = [] if self.entries is None else [entry.file for entry in table_to_entries(self.entries)]
        return {(file.file_name, self.deletions.get(file.file_name)): file for file in files}


def differences(choice: Choice, before: Snapshot, after: Snapshot) -> Rows:
    """Yield the rows in which version ``after`` differs from version ``before``.

    A row whose key is new or whose value changed has the row kind stored in ``after``. For a removed key, the old row
    is returned as `-D`.

    Values are compared in all columns, not only in the chosen columns. Both versions are read with the schema of
    ``choice``. Append tables have no keys: all rows of files that only ``after`` has are returned. As in Java, this
    includes rows that a compaction only rewrote.

    Raises:
        UnsupportedFeature: the number of buckets changed between the versions.
    """
    sides = [_buckets(choice, snapshot) for snapshot in (before, after)]
    # Checked for each partition: the same row may be in a bucket of another number, whichever buckets hold files.
    totals = {partition: side.total_buckets for (partition, _), side in sides[_BEFORE].items()}
    for (partition, _), side in sides[_AFTER].items():
        if totals.get(partition, side.total_buckets) != side.total_buckets:
            numbers = f"{totals[partition]} and {side.total_buckets}"
            raise UnsupportedFeature(
                f"comparing versions with different numbers of buckets ({numbers})", choice.store.name
            )
    if choice.store.bucket_mode in (BucketMode.DYNAMIC, BucketMode.CROSS_PARTITION):
        yield from _between_buckets(choice, sides[_BEFORE], sides[_AFTER])
        return
    for place in sorted(sides[_BEFORE].keys() | sides[_AFTER].keys()):
        old, new = (side.pop(place, _Side()) for side in sides)
        if choice.store.has_primary_key:
            rows = _filter_rows(choice, _compare_bucket(choice, place, old, new))
        else:
            old_names = {name for name, _ in old.files()}
            added = [file for (name, _), file in new.files().items() if name not in old_names]
            rows = plain_rows(choice, place, added, new.deletions)
        with closing(rows) as batches:
            yield from batches


def _buckets(choice: Choice, snapshot: Snapshot) -> dict[Place, _Side]:
    """Return the visible files and deletion vectors of a snapshot by partition and bucket.

    Only partitions and buckets are pruned, not files: a changed value must be read in both versions.
    """
    store, predicate = choice.store, choice.predicate
    compacted = store.has_primary_key and compacted_only(store)
    entries = live_entries(store, snapshot, keep=partial(visible, store, compacted))
    require_in_place(store, snapshot, entries)
    entries = prune_partitions(store.schema, entries, predicate)
    entries = prune_buckets(store.schema, entries, predicate, store.options.bucket_function)
    vectors = deletion_vectors(store, snapshot)

    def side(group: BucketGroup) -> _Side:
        partition, bucket, total, part = group
        return _Side(total, part, vectors.get((partition, bucket), {}))

    return {(group[0], group[1]): side(group) for group in bucket_groups(entries)}


def _between_buckets(choice: Choice, before: Mapping[Place, _Side], after: Mapping[Place, _Side]) -> Rows:
    """Compare versions of a table whose keys may move to another bucket of their partition.

    The buckets are compared one by one. The differences of each bucket, in key order, are then merged by key over the
    partition. A row that only moved to another bucket is no change. A key that moved and changed appears once.
    If keys may also move between partitions, the rows that remove keys from a partition come before the rows that add
    keys to a partition.

    Args:
        choice: columns and filter.
        before: buckets of the older version, by partition and bucket.
        after: buckets of the newer version, by partition and bucket.
    """
    store = choice.store
    leaving_first = store.bucket_mode is BucketMode.CROSS_PARTITION
    with SpillSpace.of(store.options) as space:
        arrival_runs: list[SpilledRun] = []
        for _, places in groupby(sorted(before.keys() | after.keys()), key=itemgetter(0)):
            rows = _partition_differences(choice, space, list(places), before, after)
            if not leaving_first:
                yield from _filter_rows(choice, rows)
                continue
            arriving: list[pa.RecordBatch] = []
            waiting = 0
            with closing(_filter_rows(choice, rows)) as batches:
                for batch in batches:
                    leaves = pc.equal(batch.column(0), arrow_scalar(int(RowKind.DELETE), pa.int8()))
                    if (deletes := batch.filter(leaves)).num_rows:
                        yield deletes
                    if (inserts := batch.filter(pc.invert(leaves))).num_rows:
                        arriving.append(inserts)
                        waiting += inserts.nbytes
                    if waiting > _HELD_BYTES:
                        arrival_runs.append(space.spill(arriving, choice.schema))
                        arriving, waiting = [], 0
            if arriving:
                arrival_runs.append(space.spill(arriving, choice.schema))
        for run in arrival_runs:
            yield from run.batches()


def _partition_differences(
    choice: Choice,
    space: SpillSpace,
    places: Sequence[Place],
    before: Mapping[Place, _Side],
    after: Mapping[Place, _Side],
) -> Rows:
    """Yield the differences of the buckets of one partition, merged by key.

    Rows that only moved between buckets are dropped.

    Args:
        choice: columns and filter.
        space: local disk space for the sorted differences of each bucket.
        places: (partition, bucket) pairs of the buckets to compare.
        before: buckets of the older version, by partition and bucket.
        after: buckets of the newer version, by partition and bucket.
    """
    runs: list[SpilledRun] = []
    for place in places:
        rows = _compare_bucket(choice, place, before.get(place, _Side()), after.get(place, _Side()))
        with closing(rows) as batches:
            first = next(batches, None)
            if first is not None:
                runs.append(space.spill(chain([first], batches), first.schema))
    if len(runs) < 2:
        for run in runs:
            yield from run.batches()
    else:
        spec = KeySpec.of(choice.store.schema, table=choice.store.name)
        inputs = [RunInput(run.batches(), 0, age) for age, run in enumerate(runs)]
        yield from merge_streams(inputs, Differences(spec), key_spec=spec)
    for run in runs:
        run.delete()


def _filter_rows(choice: Choice, rows: Rows) -> Rows:
    """Yield the row kind and the chosen columns of the rows that pass the filter."""
    with closing(rows) as batches:
        for batch in batches:
            kept = choice.keep(batch, batch.column(VALUE_KIND))
            if kept.num_rows:
                yield kept


def _compare_bucket(choice: Choice, place: Place, old: _Side, new: _Side) -> Rows:
    """Merge the bucket's files of each version, then compare the two sorted streams.

    Files of sections that are equal in both versions are not opened.

    Yields:
        Differing rows in key order, with key, system and all value columns. The sequence number is 0 for rows of the
        older version.
    """
    olds, news = _differing_files(choice.store, old, new)
    if not olds and not news:
        return
    spec = KeySpec.of(choice.store.schema, table=choice.store.name)
    whole = replace(choice, columns=choice.store.schema.field_names, predicate=None)
    sides = (merged_rows(whole, place, olds, old.deletions), merged_rows(whole, place, news, new.deletions))
    with closing(sides[0]), closing(sides[1]):
        inputs = [RunInput(_mark_side(rows, age), 0, age) for age, rows in enumerate(sides)]
        yield from (batch for batch in merge_streams(inputs, Differences(spec), key_spec=spec) if batch.num_rows)


def _differing_files(store: TableStore, old: _Side, new: _Side) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """Return the files of the old and of the new version, without sections whose files are the same in both."""
    before, after = old.files(), new.files()
    if before.keys() == after.keys():
        return [], []
    together = {file.file_name: file for file in (*before.values(), *after.values())}
    shared = {name for name, _ in before.keys() & after.keys()}
    differ: set[str] = set()
    for section in sections_of(store, list(together.values())):
        names = {file.file_name for file in section.files}
        if not names <= shared:
            differ |= names
    return (
        [file for file in before.values() if file.file_name in differ],
        [file for file in after.values() if file.file_name in differ],
    )


def _mark_side(rows: Rows, age: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one version with ``age`` (0 older, 1 newer) as sequence number; older rows become deletes."""
    for batch in rows:
        batch = _replace_column(batch, SEQUENCE_NUMBER, np.full(batch.num_rows, age, np.int64))
        yield (
            batch if age else _replace_column(batch, VALUE_KIND, np.full(batch.num_rows, int(RowKind.DELETE), np.int8))
        )


def _replace_column(
    batch: pa.RecordBatch, name: str, values: np.ndarray[tuple[int], np.dtype[np.signedinteger]]
) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(place), arrow_array(values))
