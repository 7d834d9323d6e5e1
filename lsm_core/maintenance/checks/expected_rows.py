"""Rows that readers must see for a sample of keys, recomputed from the stored files.

The expected rows come from one of three sources that are independent of the reader: the merge engine's rules applied to
the written versions, the changelog applied to an older snapshot, and the rows before a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from lsm_core.arrays import arrow_array, numpy_array, plain_batch
from lsm_core.errors import InvalidOption, SnapshotNotFound
from lsm_core.files import open_kv
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.partitions import partition_values
from lsm_core.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.format.snapshot import CommitKind
from lsm_core.maintenance.checks.bucket_sample import SampledBucket, draw_units, open_bucket, sample_of
from lsm_core.maintenance.checks.changelog_replay import (
    changelog_files,
    compared_columns,
    logged_rows,
    replay_changes,
    snapshots_to_replay,
)
from lsm_core.maintenance.checks.merge_rules import find_written_files, history_of
from lsm_core.maintenance.checks.outcome import CheckInput
from lsm_core.maintenance.lone_versions import BucketFiles, compacted_lone_versions, merges_lone_versions
from lsm_core.maintenance.reference import Row, key_order, merge_by_key
from lsm_core.maintenance.reference.changes import ChangeRules, merge_with_changes
from lsm_core.maintenance.reference.merging import living
from lsm_core.maintenance.reference.sampling import Place, RowCollector, Sample
from lsm_core.maintenance.reference.values import plain_values
from lsm_core.maintenance.verify import files_by_age
from lsm_core.merge.rows import retracts
from lsm_core.metadata import snapshots
from lsm_core.metadata.indexes import deletion_vectors, read_vector
from lsm_core.metadata.live_files import entries_of_buckets
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.read import read_bucket_merged
from lsm_core.read.prune import expiry_of

_KEEPING_ROWS: Final = {CommitKind.COMPACT, CommitKind.ANALYZE}
Values = tuple[Any, ...]


@dataclass(frozen=True)
class ExpectedRow:
    """Row that readers must see for one key.

    Attributes:
        key: values of the primary key's columns.
        values: values of the compared columns, None where readers must not see the key.
        versions: the versions that were merged into the row. If they are known, float sums of readers may differ from
            ``values`` in the last bits.
    """

    key: Values
    values: Values | None
    versions: Sequence[Row] = ()


@dataclass(frozen=True)
class ExpectedRows:
    """Rows that readers must see for a sample of keys.

    Attributes:
        basis: source of the rows, or the reason why nothing is compared.
        columns: names of the compared columns.
        parts: function that yields one mapping per sampled bucket, from the sort key of a key to its expected row.
        buckets: number of sampled buckets.
    """

    basis: str
    columns: Sequence[str] = ()
    parts: Callable[[], Iterator[Mapping[Any, ExpectedRow]]] = field(default=lambda: iter(()))
    buckets: int = 0


def merge_by_rules(check_input: CheckInput) -> ExpectedRows:
    """Return the rows that the reference implementation computes from the written versions for the merge engine.

    The versions are the rows of an older snapshot and all rows that writers added since. A key is not compared if a
    version has expired, or if a version is on level 0 while readers skip level 0.

    Args:
        check_input: store, snapshot and limits.
    """
    store, sample, history = check_input.store, draw_units(check_input), history_of(check_input)

    def parts() -> Iterator[Mapping[Any, ExpectedRow]]:
        for partition, bucket in sample.looked_at:
            opened = open_bucket(check_input, partition, bucket)
            written, vectors = find_written_files(check_input, opened, history)
            catch = RowCollector(opened.place, opened.sample(check_input.limits.keys), check_input.limits.keys)
            for file in written:
                vector = vectors.get(file.file_name)
                deleted = None if vector is None else read_vector(store, vector, file.row_count)
                for batch in _batches(opened.place, file, store.schema.field_names, deleted):
                    catch.add(file.file_name, batch)
            catch.drop_early_rows()
            known = {file.file_name for file in written}
            unknown = [file for file in opened.files if file.file_name not in known]
            hidden = [file for file in opened.files if file.level == 0 and store.options.batch_scan_skips_level0]
            rows = _versions(
                store, [(catch.table(file.file_name), file.level, age) for file, age in files_by_age(written)]
            )
            yield _merge_by_rules(opened, rows, _keys(opened.place, catch, unknown), _keys(opened.place, catch, hidden))

    return ExpectedRows(history.text, store.schema.field_names, parts, len(sample.looked_at))


def _merge_by_rules(
    opened: SampledBucket, rows: Sequence[Row], stored: Sequence[Values], hidden: Sequence[Values]
) -> Mapping[Any, ExpectedRow]:
    """Merge ``rows`` with the reference implementation; return the rows that a read must return, by sort key.

    Args:
        opened: the bucket.
        rows: written versions of the sampled keys.
        stored: further keys; a read must not return a row for those without a merge result.
        hidden: keys to leave out, because batch reads skip some of their versions.
    """
    store, raw = opened.place.store, opened.place.store.options.raw
    expired: set[Any] = set()
    if expiry_of(store) is not None:
        alive = set(map(id, living(rows, store.schema, raw, store.clock.now_ms())))
        expired = {key_order(row.key) for row in rows if id(row) not in alive}
    if store.options.needs_lookup and store.options.merge_engine != "first-row":
        # Of the levels above 0 the lowest one holds the row that was looked up in the others.
        outcomes, _ = merge_with_changes(
            rows, store.schema, raw, drop_delete=True, comparison=ChangeRules(None, lone_as_is=True)
        )
    else:
        outcomes = merge_by_key(rows, store.schema, raw, drop_delete=True)
    versions: dict[Any, list[Row]] = {}
    for row in rows:
        versions.setdefault(key_order(row.key), []).append(row)
    left_out = expired | {key_order(key) for key in hidden}
    whole = _PrimaryKeyMapping(store, opened.place.partition)
    expected = {}
    for key in stored:
        if key_order(key) not in outcomes and key_order(key) not in left_out:
            expected[whole.order(key)] = ExpectedRow(whole.key(key), None)
    for key, outcome in outcomes.items():
        if key not in left_out:
            of_key = versions[key]
            full = whole.key(of_key[0].key)
            expected[key_order(full)] = ExpectedRow(full, None if outcome is None else outcome.values, of_key)
    return expected


def replay_changelog(check_input: CheckInput) -> ExpectedRows:
    """Return the rows of an older snapshot with all later changes of the changelog applied.

    A changelog written by compactions does not cover rows below its level; keys of such rows are not compared.

    Args:
        check_input: store, snapshot and limits.
    """
    store, newest = check_input.store, check_input.snapshot
    since = snapshots_to_replay(check_input)
    if not since:
        return ExpectedRows("no older snapshot to replay from: nothing was compared")
    base, sample = snapshots.read(store, since[0].id - 1), draw_units(check_input)

    def parts() -> Iterator[Mapping[Any, ExpectedRow]]:
        for partition, bucket in sample.looked_at:
            opened = open_bucket(check_input, partition, bucket)
            place, keys = Place(store, partition, bucket, salt=check_input.seed), opened.sample(check_input.limits.keys)
            replayed = logged_rows(check_input, base, place, keys)
            for snapshot in since:
                replay_changes(check_input, snapshot, place, keys, replayed)
            covered = {file.file_name for file in changelog_files(store, newest, place)}
            live = _live_files(store, newest.id, place)
            seen = [file for file in live if file.level > 0 or not store.options.batch_scan_skips_level0]
            waiting = {
                key_order(key) for file in seen if file.file_name not in covered for key in _keys_of(place, file, keys)
            }
            stored = [key for file in live if file.file_name in covered for key in _keys_of(place, file, keys)]
            whole = _PrimaryKeyMapping(store, partition)
            expected = {whole.order(key): ExpectedRow(whole.key(key), None) for key in stored}
            expected |= {whole.order(key): ExpectedRow(whole.key(key), values) for key, values in replayed.values()}
            yield {order: row for order, row in expected.items() if whole.bucket_key_order(row.key) not in waiting}

    basis = f"the changelog of snapshot {base.id} to {newest.id}"
    return ExpectedRows(basis, compared_columns(store), parts, len(sample.looked_at))


def rows_before(check_input: CheckInput, before: int | None = None) -> ExpectedRows:
    """Return the merged rows of the snapshot before a compaction.

    If the compaction merged the only version of a key (`lone_versions`), the key has the merged row.

    Args:
        check_input: store, snapshot after the compaction, and limits.
        before: id of the snapshot before the compaction, None for the direct predecessor.

    Raises:
        InvalidOption: the table has no primary key, ``before`` is not an older snapshot, or a snapshot after ``before``
            is neither a compaction nor only statistics.
        SnapshotNotFound: the snapshot ``before`` has expired.
    """
    store, after = check_input.store, check_input.snapshot
    earlier = after.id - 1 if before is None else before
    if not store.schema.primary_keys:
        raise InvalidOption("table", store.name, "one with a primary key; `dredge verify` compares append tables")
    if earlier >= after.id or earlier < 1:
        raise InvalidOption("before", earlier, f"a snapshot before {after.id}", store.name)
    if expiry_of(store) is not None:
        return ExpectedRows("rows expire by `record-level.expire-time`: nothing was compared")
    for number in range(earlier + 1, after.id + 1):
        between = snapshots.read(store, number)
        if between.commit_kind not in _KEEPING_ROWS:
            accepted = (
                f"the snapshot of a compaction; snapshot {number} is {between.commit_kind.value}, which changes rows"
            )
            raise InvalidOption("snapshot_id", after.id, accepted, store.name)
    if snapshots.try_read(store, earlier) is None:
        raise SnapshotNotFound(f"table {store.name}: snapshot {earlier} has expired", expired=True)
    if store.bucket_mode is BucketMode.POSTPONE:
        return ExpectedRows("rows of postponed buckets become visible by compactions: nothing was compared")
    moving = store.bucket_mode is not BucketMode.FIXED
    sample = draw_units(check_input)
    units: dict[tuple[bytes, int | None], list[int]] = {}
    for partition, bucket in sample.looked_at:
        units.setdefault((partition, None if moving else bucket), []).append(bucket)

    def parts() -> Iterator[Mapping[Any, ExpectedRow]]:
        for (partition, only_bucket), buckets in units.items():
            yield _rows_of_unit(check_input, earlier, partition, only_bucket, buckets)

    return ExpectedRows(f"snapshot {earlier}", store.schema.field_names, parts, len(sample.looked_at))


def _rows_of_unit(
    check_input: CheckInput, before: int, partition: bytes, only_bucket: int | None, buckets: Sequence[int]
) -> Mapping[Any, ExpectedRow]:
    """Return the sampled rows in snapshot ``before`` of a bucket, or of a partition if keys may move between buckets.

    Args:
        check_input: store, snapshot after the compaction, and limits.
        before: id of the earlier snapshot.
        partition: partition in Paimon's binary form.
        only_bucket: the only bucket to read, None for all buckets of the partition.
        buckets: the sampled buckets.
    """
    store, after = check_input.store, check_input.snapshot.id
    places = [Place(store, partition, bucket, salt=check_input.seed) for bucket in buckets]
    live = [(place, file) for place in places for file in _live_files(store, after, place)]
    keys = sample_of([file for _, file in live], check_input.limits.keys)
    whole = _PrimaryKeyMapping(store, partition)
    expected: dict[Any, ExpectedRow] = {}
    hidden: set[Any] = set()
    for place, file in live:
        file_keys = _keys_of(place, file, keys)
        expected |= {whole.order(key): ExpectedRow(whole.key(key), None) for key in file_keys}
        if file.level == 0 and store.options.batch_scan_skips_level0:
            hidden.update(whole.order(key) for key in file_keys)
    snapshot = snapshots.read(store, before)
    bucket_filter = None if only_bucket is None else [only_bucket]
    vectors, vectors_after = (
        deletion_vectors(store, some, [partition], bucket_filter) for some in (snapshot, check_input.snapshot)
    )
    entries = entries_of_buckets(store, snapshot, partition, bucket_filter)
    by_bucket: dict[int, list[DataFileMeta]] = {}
    for entry in table_to_entries(entries):
        by_bucket.setdefault(entry.bucket, []).append(entry.file)
    for bucket, files in by_bucket.items():
        place = Place(store, partition, bucket, salt=check_input.seed)
        bucket_vectors = vectors.get((partition, bucket), {})

        def add(batch: pa.RecordBatch, place: Place = place, *, exists: bool = True) -> None:
            rows = plain_batch(batch.take(arrow_array(keys.chosen(place.ranks(batch)))))
            values = _tuples([rows.column(name) for name in store.schema.field_names])
            expected.update(
                (whole.order(key), ExpectedRow(whole.key(key), row if exists else None))
                for key, row in zip(_tuples(place.keys(rows)), values, strict=True)
            )

        with closing(read_bucket_merged(store, partition, bucket, files, deletions=bucket_vectors)) as batches:
            for batch in batches:
                add(batch)
        if not merges_lone_versions(store):
            continue
        earlier = BucketFiles(partition, bucket, files, bucket_vectors)
        later_vectors = vectors_after.get((partition, bucket), {})
        later = BucketFiles(partition, bucket, _live_files(store, after, place), later_vectors)
        for _, merged in compacted_lone_versions(store, earlier, later):
            removed = retracts(numpy_array(merged.column(VALUE_KIND)))
            add(merged.filter(arrow_array(~removed)))
            add(merged.filter(arrow_array(removed)), exists=False)
    return {order: row for order, row in expected.items() if order not in hidden}


class _PrimaryKeyMapping:
    """Mapping from the keys of buckets, which lack the partition's columns, to primary keys of one partition."""

    def __init__(self, store: TableStore, partition: bytes) -> None:
        schema = store.schema
        trimmed = list(schema.trimmed_primary_keys)
        shared = partition_values(schema, partition)
        self._parts: list[tuple[int | None, Any]] = []
        for name in schema.primary_keys:
            if name in trimmed:
                self._parts.append((trimmed.index(name), None))
            else:
                column = pa.array([shared[name]], schema.arrow_schema.field(name).type)
                self._parts.append((None, plain_values(column)[0]))

    def key(self, trimmed: Values) -> Values:
        """Return the primary key for a key as stored in the bucket (``trimmed``)."""
        return tuple(value if at is None else trimmed[at] for at, value in self._parts)

    def order(self, trimmed: Values) -> Any:
        """Return the sort key of the primary key for a key as stored in the bucket (``trimmed``)."""
        return key_order(self.key(trimmed))

    def bucket_key_order(self, key: Values) -> Any:
        """Return the sort key of the part of a primary key that its bucket stores."""
        places = [(at, i) for i, (at, _) in enumerate(self._parts) if at is not None]
        return key_order([key[i] for _, i in sorted(places)])


def _versions(store: TableStore, tables: Sequence[tuple[pa.Table | None, int, int]]) -> list[Row]:
    """Return the stored versions in tables of KV rows.

    Args:
        store: the table.
        tables: tuples of KV rows (None for no rows), level, and age rank (larger = newer) of the file of these rows.
    """
    schema, versions = store.schema, list[Row]()
    for table, level, age in tables:
        if table is None:
            continue
        keys = _tuples([table.column(KEY_PREFIX + name) for name in schema.trimmed_primary_keys])
        order = _tuples([table.column(name) for name in store.options.sequence_field]) or [()] * table.num_rows
        values = _tuples([table.column(name) for name in schema.field_names])
        system = zip(*(table.column(name).to_pylist() for name in (SEQUENCE_NUMBER, VALUE_KIND)), strict=True)
        parts = zip(keys, order, system, values, strict=True)
        versions += [Row(key, by, sequence, kind, row, level, age) for key, by, (sequence, kind), row in parts]
    return versions


def _tuples(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Values]:
    return list(zip(*map(plain_values, columns), strict=True))


def _live_files(store: TableStore, snapshot_id: int, place: Place) -> list[DataFileMeta]:
    """Return the live files of the bucket ``place`` in a snapshot."""
    snapshot = snapshots.read(store, snapshot_id)
    entries = entries_of_buckets(store, snapshot, place.partition, [place.bucket])
    return [entry.file for entry in table_to_entries(entries)]


def _batches(place: Place, file: DataFileMeta, columns: Sequence[str], deleted: Any = None) -> Iterator[pa.RecordBatch]:
    """Yield the KV rows of a file whose keys are in the key range of ``place`` (bucket and key range).

    ``columns`` are the value columns to read. Rows in the deletion vector ``deleted`` are left out (None: no vector).
    """
    reader = open_kv if place.within is None else place.within.open
    opened = reader(place.store, place.partition, place.bucket, file, columns=list(columns), deleted=deleted)
    with closing(opened) as batches:  # type: ignore[type-var]
        yield from batches


def _keys(place: Place, catch: RowCollector, files: Sequence[DataFileMeta]) -> list[Values]:
    """Return the keys in ``files`` that belong to the sample for which ``catch`` collects rows at the moment."""
    keys: list[Values] = []
    for file in files:
        for batch in _batches(place, file, []):
            keys += _tuples(place.keys(plain_batch(batch.take(arrow_array(catch.places(batch))))))
    return keys


def _keys_of(place: Place, file: DataFileMeta, keys: Sample) -> list[Values]:
    """Return the keys of a file that belong to the sample ``keys`` and to the key range of ``place``."""
    sampled: list[Values] = []
    for batch in _batches(place, file, []):
        sampled += _tuples(place.keys(plain_batch(batch.take(arrow_array(keys.chosen(place.ranks(batch)))))))
    return sampled
