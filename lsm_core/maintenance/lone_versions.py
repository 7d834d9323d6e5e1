"""Rows that a compaction with lookups makes of the only version of a key.

A read returns the only version of a key as it is stored, and no row if it is a retract. A compaction that looks up keys
merges this version like any other: a sum makes -5 of a retract of 5, and a sequence group without its sequence field
leaves its columns null. Java and Dredge do the same. So such a row is no difference between the snapshots before and
after a compaction.

Source: ``LookupChangelogMergeFunctionWrapper``, ``ReducerMergeFunctionWrapper``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.errors import RetractNotSupported
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.maintenance.canonical_values import canonical_rows
from lsm_core.maintenance.reference import builds_rows
from lsm_core.merge import ChangelogRules, Deduplicate, KeySpec, RunInput, merge_streams
from lsm_core.merge.changelog import Against
from lsm_core.merge.digest import value_hashes
from lsm_core.merge.engines.expire_rows import Living
from lsm_core.merge.engines.fold import NO_ROW
from lsm_core.merge.keys import Ints, Mask
from lsm_core.merge.rows import Piece, Rows, emit, merge_order, retracts
from lsm_core.metadata.indexes import DeletionFile
from lsm_core.metadata.store import TableStore
from lsm_core.read import read_bucket_merged
from lsm_core.read.merge_read import BucketMerge, BucketSource, Changes, sections_of

_STORED, _COMPACTED, _AFTER = range(3)
"""Rows before the compaction as reads return them, the same as the compaction merges them, and rows after it."""
_RULES: Final = ChangelogRules(Against.HIGH_LEVELS, produces=False)
Batches: TypeAlias = Generator[pa.RecordBatch, None, None]


@dataclass(frozen=True)
class BucketFiles:
    """Files of a bucket at one version of the table.

    Attributes:
        partition: partition bytes.
        bucket: number of the bucket.
        files: metadata of the files.
        deletions: deletion vectors by file name.
    """

    partition: bytes
    bucket: int
    files: Sequence[DataFileMeta]
    deletions: Mapping[str, DeletionFile]


def merges_lone_versions(store: TableStore) -> bool:
    """Return whether compactions of the table also merge keys with one version, which reads return as stored.

    Args:
        store: the table.
    """
    return bool(store.schema.primary_keys) and store.options.needs_lookup and builds_rows(store.options.raw)


def merges_stored_versions_later(store: TableStore) -> bool:
    """Return whether a compaction may change rows of which no newer version was written.

    A compaction keeps the only version of a key as it is stored, also if the field of a sequence group is null. The
    next compaction of the key merges this version, and the columns of the group become null. So neither a changelog nor
    the written rows tell when the row changed.

    Args:
        store: the table.
    """
    groups = any(key.endswith(".sequence-group") for key in store.options.raw)
    return groups and store.options.merge_engine == "partial-update" and merges_lone_versions(store)


def compacted_lone_versions(
    store: TableStore, before: BucketFiles, after: BucketFiles, living: Living | None = None
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the rows that differ from the rows after a compaction only because a key's only version was merged.

    A key counts only if its row after the compaction is exactly the merge of its only version.

    Args:
        store: the table; no row is yielded unless it `merges_lone_versions`.
        before: the bucket before the compaction.
        after: the bucket after the compaction.
        living: filter that drops expired rows (record-level expiry); None for all rows.

    Yields:
        Key-value rows before the compaction as they are stored, and the rows of the same keys as merged. Reads do not
        see the rows whose `_VALUE_KIND` is a retract.

    Raises:
        CorruptFile: a file cannot be read.
    """
    if not merges_lone_versions(store):
        return
    spec = KeySpec.of(store.schema, table=store.name)
    sides = [_read(store, before, living), _merge_all(store, before, living), _read(store, after, living)]
    inputs = [RunInput(_number_rows(rows, side), 0, side) for side, rows in enumerate(sides)]

    def choose(pieces: Sequence[Piece]) -> list[pa.RecordBatch]:
        return _choose_explained(store, spec, pieces) if pieces else []

    try:
        for batch in merge_streams(inputs, Deduplicate(spec), whole_keys=choose):
            stored = numpy_array(batch.column(SEQUENCE_NUMBER)) == _STORED
            yield batch.filter(arrow_array(stored)), batch.filter(arrow_array(~stored))
    except RetractNotSupported:  # no compaction can have merged such a version
        return
    finally:
        for rows in sides:
            rows.close()


def _read(store: TableStore, place: BucketFiles, living: Living | None) -> Batches:
    """Return the merged rows of a bucket as reads merge them, with deletes."""
    return read_bucket_merged(
        store,
        place.partition,
        place.bucket,
        list(place.files),
        keep_deletes=True,
        keep_system=True,
        deletions=place.deletions,
        living=living,
    )


def _merge_all(store: TableStore, place: BucketFiles, living: Living | None) -> Batches:
    """Yield the merged rows of a bucket as a compaction of all its files merges them, with deletes."""
    source = BucketSource(store, place.partition, place.bucket, deletions=place.deletions, living=living)
    changes = Changes(_RULES, store.options.num_levels, None, lambda _: None)
    merge = BucketMerge(source, store.schema.field_names, drop_delete=False, exact=True, changes=changes)
    for section in sections_of(store, list(place.files)):
        with closing(merge.section(section)) as batches:
            yield from batches


def _number_rows(rows: Batches, side: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows with the number of their side as sequence number."""
    for batch in rows:
        at = batch.schema.get_field_index(SEQUENCE_NUMBER)
        numbers = arrow_array(np.full(batch.num_rows, side, np.int64))
        yield batch.set_column(at, batch.schema.field(at), numbers)


def _choose_explained(store: TableStore, spec: KeySpec, pieces: Sequence[Piece]) -> list[pa.RecordBatch]:
    """Return the stored and merged rows of the keys that `compacted_lone_versions` yields."""
    rows = Rows.of(pieces)
    groups = merge_order(rows, spec)
    sides = rows.integers(SEQUENCE_NUMBER, np.int64)[groups.order]
    place = np.full((3, len(groups)), NO_ROW, np.int64)
    place[sides, np.repeat(np.arange(len(groups)), groups.ends - groups.starts)] = groups.order
    seen = (place != NO_ROW) & ~retracts(rows.integers(VALUE_KIND, np.int8))[place]
    stored, compacted, after = seen
    keys = np.flatnonzero(
        (place[_STORED] != NO_ROW) & (place[_COMPACTED] != NO_ROW) & (compacted == after) & (stored | compacted)
    )
    if not len(keys):
        return []
    # Values count only where both rows are seen; other keys compare a row with itself.
    merged = place[_COMPACTED][keys]
    pairs = [np.where(seen[side][keys] & compacted[keys], place[side][keys], merged) for side in (_STORED, _AFTER)]
    equal_before, equal_after = _equal_rows(store, rows, merged, pairs)
    explained = keys[((stored != compacted)[keys] | ~equal_before) & equal_after]
    return emit(rows, np.sort(place[:_AFTER, explained], axis=None))


def _equal_rows(store: TableStore, rows: Rows, merged: Ints, others: Sequence[Ints]) -> list[Mask]:
    """Return, for each array of row numbers in ``others``, a mask of the rows with the values of ``merged``."""
    equal = [np.ones(len(merged), np.bool_) for _ in others]
    chosen = [
        [canonical_rows(batch, store.schema, store.options.raw) for batch in emit(rows, numbers)]
        for numbers in (merged, *others)
    ]
    for name in store.schema.field_names:
        hashes = [np.concatenate([value_hashes(batch.column(name)) for batch in batches]) for batches in chosen]
        for mask, other in zip(equal, hashes[1:], strict=True):
            mask &= hashes[0] == other
    return equal
