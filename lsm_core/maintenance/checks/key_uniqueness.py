"""Checks `unique_keys` (readers see each key once) and `equal_sequence_numbers` (versions of a key have an order)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.files import open_kv
from lsm_core.format.hashing import bucket_of, hash_rows
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.partitions import partition_text, partition_values
from lsm_core.format.schema import SEQUENCE_NUMBER
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.checks.bucket_sample import SampledBucket, draw_buckets, open_bucket
from lsm_core.maintenance.checks.outcome import CheckInput, CheckReport
from lsm_core.metadata.indexes import read_vector
from lsm_core.metadata.store import BucketMode
from lsm_core.read import plan_scan, read_split
from lsm_core.read.merge_read import as_tree

_MAX_KEYS: Final = 200_000
"""Maximum number of keys held in memory to find repeated keys; of more keys, a sample by hash is held."""
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_BUCKET: Final = "(bucket)"
_FILE: Final = "(file)"
_PARTITION: Final = "(partition)"


def unique_keys(check_input: CheckInput) -> CheckReport:
    """Check that readers see no key twice, and no key outside the bucket that lookups of the key read.

    If the bucket of a key does not follow from its hash, whole partitions are read. Memory holds a bounded sample of
    the keys that are read.

    Args:
        check_input: store, snapshot and limits.
    """
    store = check_input.store
    fixed = store.bucket_mode is BucketMode.FIXED
    sample = draw_buckets(check_input, partitions=not fixed)
    keys = list(store.schema.primary_keys)
    types = [store.schema.field(name).type for name in keys]
    partitions = {place[0] for place in sample.looked_at}
    chosen = set(sample.looked_at)
    scan = plan_scan(
        store,
        snapshot_id=check_input.snapshot.id,
        columns=keys,
        partitions=[partition_values(store.schema, binary) for binary in sorted(partitions)]
        if store.schema.partition_keys
        else None,
    )
    splits = [split for split in scan.splits if (split.partition, split.bucket) in chosen]
    expected = sum(split.row_count for split in splits)
    limit = None if expected <= _MAX_KEYS else np.uint64(_MAX_KEYS / expected * ((1 << 64) - 1))
    read, problems = 0, []
    moving = store.bucket_mode is BucketMode.CROSS_PARTITION
    numbers_of: dict[bytes, int] = {}
    kept: list[pa.RecordBatch] = []
    for split in splits:
        with closing(read_split(scan.store, split, keys)) as batches:
            for batch in batches:
                read += batch.num_rows
                if limit is not None:
                    columns = [batch.column(name) for name in keys]
                    ranks = (
                        np.asarray(hash_rows(columns, types)).view(np.uint32) * np.uint64(check_input.seed) * _SPREAD
                    )
                    batch = batch.filter(arrow_array(ranks < limit))
                bucket_numbers = arrow_array(np.full(batch.num_rows, split.bucket, np.int32))
                # Keys are unique in the whole table only if they can move between partitions.
                apart = 0 if moving else numbers_of.setdefault(split.partition, len(numbers_of))
                group_numbers = arrow_array(np.full(batch.num_rows, apart, np.int32))
                kept.append(batch.append_column(_BUCKET, bucket_numbers).append_column(_PARTITION, group_numbers))
                if fixed and sample.totals[split.partition]:
                    problems += _misplaced(
                        check_input, batch, split.partition, split.bucket, sample.totals[split.partition]
                    )
    looked_at = sum(batch.num_rows for batch in kept)
    if kept:
        grouped = pa.Table.from_batches(kept).group_by([*keys, _PARTITION], use_threads=False)
        counts = grouped.aggregate([(_BUCKET, "count"), (_BUCKET, "distinct")])
        twice = counts.filter(pc.greater(counts.column(f"{_BUCKET}_count"), 1))
        for row in twice.slice(0, 20).to_pylist():
            in_buckets = ", ".join(str(number) for number in sorted(row[f"{_BUCKET}_distinct"]))
            problems.append(
                f"key {_key_text(row, keys)} is there {row[f'{_BUCKET}_count']} times (buckets {in_buckets})"
            )
        extra = max(0, twice.num_rows - 20)
    else:
        extra = 0
    numbers = {**sample.numbers(read), "keys": looked_at}
    if problems:
        return check_input.fails(
            f"{len(problems) + extra} keys are repeated or misplaced: {problems[0]}", problems, **numbers
        )
    whole = (
        "" if looked_at == read and len(sample.looked_at) == sample.buckets else f" of a sample of {sample.rows:,} rows"
    )
    return check_input.passes(f"{looked_at:,} keys{whole} are unique", **numbers)


def _misplaced(check_input: CheckInput, batch: pa.RecordBatch, partition: bytes, bucket: int, total: int) -> list[str]:
    """Return a text for each of the first keys of a batch that the bucket function does not assign to ``bucket``.

    ``total`` is the number of buckets of the partition.
    """
    store = check_input.store
    columns = [batch.column(name) for name in store.schema.bucket_keys]
    if not columns or not batch.num_rows:
        return []
    expected_buckets = bucket_of(columns, store.schema.bucket_key_types, total, store.options.bucket_function)
    wrong = np.flatnonzero(expected_buckets != bucket)
    where = bucket_name(partition_text(store.schema, partition, store.options), bucket)
    keys = list(store.schema.primary_keys)
    return [
        f"key {_key_text(row, keys)} is in {where} and belongs into bucket {expected_buckets[at]} of {total}: "
        "lookups miss it"
        for at, row in zip(wrong[:20], batch.take(arrow_array(wrong[:20])).to_pylist(), strict=True)
    ]


def equal_sequence_numbers(check_input: CheckInput) -> CheckReport:
    """Check some buckets for versions of one key with equal sequence numbers.

    Only files whose key range and sequence range overlap those of a second file are opened, and only their keys are
    read.

    Args:
        check_input: store, snapshot and limits.
    """
    sample = draw_buckets(check_input)
    read = meeting = 0
    problems: list[str] = []
    for partition, bucket in sample.looked_at:
        opened = open_bucket(check_input, partition, bucket)
        files = _meeting(opened)
        meeting += len(files)
        rows, ties = _equal_versions(check_input, opened, files)
        read += rows
        problems += ties
    numbers = {**sample.numbers(read), "files_whose_ranges_meet": meeting}
    if problems:
        text = (
            f"{len(problems)} keys have two versions with one sequence number, as of two writers at once: {problems[0]}"
        )
        return check_input.fails(text, problems, **numbers)
    return check_input.passes(
        f"no key among {read:,} rows of {meeting} files that meet has two equal versions", **numbers
    )


def _meeting(opened: SampledBucket) -> list[DataFileMeta]:
    """Return the files of a bucket whose key range and sequence range both overlap those of another file."""
    shapes = as_tree(opened.place.store, opened.files)
    order = sorted(range(len(shapes)), key=lambda at: shapes[at].min_sequence)
    meeting: set[int] = set()
    open_now: list[int] = []
    for at in order:
        shape = shapes[at]
        open_now = [other for other in open_now if shapes[other].max_sequence >= shape.min_sequence]
        meetings = [
            other
            for other in open_now
            if shapes[other].max_key >= shape.min_key and shapes[other].min_key <= shape.max_key
        ]
        if meetings:
            meeting.update(meetings, [at])
        open_now.append(at)
    return [opened.files[at] for at in sorted(meeting)]


def _equal_versions(
    check_input: CheckInput, opened: SampledBucket, files: Sequence[DataFileMeta]
) -> tuple[int, list[str]]:
    """Find keys with two versions that have the same sequence number and the same values of `sequence.field`.

    Only the keys of the bucket's sample are compared.

    Returns:
        Number of rows read, and one text for each such key, at most 20.
    """
    place, store = opened.place, opened.place.store
    keys, fields = list(store.schema.trimmed_primary_keys), list(store.options.sequence_field)
    chosen = opened.sample(check_input.limits.keys * 16)
    read = 0
    parts: list[pa.Table] = []
    for file in files:
        for ranks, batch in _versions(opened, file, fields):
            read += batch.num_rows
            at = chosen.chosen(ranks)
            rows = batch.take(arrow_array(at))
            columns = [*place.keys(rows), rows.column(SEQUENCE_NUMBER), *(rows.column(name) for name in fields)]
            names = [*keys, SEQUENCE_NUMBER, *(f"by {name}" for name in fields)]
            file_names = pa.array([file.file_name], pa.string()).take(pa.array(np.zeros(len(at), np.int64)))
            parts.append(pa.table([*columns, file_names], names=[*names, _FILE]))
    if not parts:
        return read, []
    whole = pa.concat_tables(parts)
    counts = whole.group_by([name for name in whole.column_names if name != _FILE], use_threads=False).aggregate(
        [(_FILE, "count"), (_FILE, "distinct")]
    )
    ties = counts.filter(pc.greater(counts.column(f"{_FILE}_count"), 1))
    return read, [
        f"{opened.name}: key {_key_text(row, keys)} twice with sequence number {row[SEQUENCE_NUMBER]}, "
        f"in {' and '.join(sorted(row[f'{_FILE}_distinct']))}"
        for row in ties.slice(0, 20).to_pylist()
    ]


def _versions(
    opened: SampledBucket, file: DataFileMeta, fields: Sequence[str]
) -> Iterator[tuple[npt.NDArray[np.uint64], pa.RecordBatch]]:
    """Yield (rank of each row's key, rows) for the rows of a file that no deletion vector marks.

    A rank is a salted hash of the key; keys are sampled by their rank.

    Only keys, the columns ``fields`` (the table's sequence fields) and KV system columns are decoded.
    """
    place, vector = opened.place, opened.deletions.get(file.file_name)
    deleted = None if vector is None else read_vector(place.store, vector, file.row_count)
    reader = open_kv if place.within is None else place.within.open
    with closing(  # type: ignore[type-var]
        reader(place.store, place.partition, place.bucket, file, columns=list(fields), deleted=deleted)
    ) as batches:
        for batch in batches:
            yield place.ranks(batch), batch


def _key_text(row: dict[str, object], keys: Sequence[str]) -> str:
    return ", ".join(repr(row[name]) for name in keys)
