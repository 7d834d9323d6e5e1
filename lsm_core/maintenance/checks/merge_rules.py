"""Check `merge_engine_rules`: for a sample of keys, readers see the rows that the reference implementation computes.

The reference merges the rows of an older snapshot and all rows that writers added since, so a compaction in between
that changed a row is detected. If merging some versions before others may change the result (an order-sensitive table,
rows that expire), only the live files are merged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import SnapshotNotFound, VerificationFailed
from lsm_core.files import open_kv
from lsm_core.format.manifest import SOURCE_COMPACT, DataFileMeta, table_to_entries
from lsm_core.format.schema import VALUE_KIND
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.checks.bucket_sample import SampledBucket, draw_buckets, open_bucket
from lsm_core.maintenance.checks.outcome import CheckInput, CheckReport
from lsm_core.maintenance.lone_versions import merges_stored_versions_later
from lsm_core.maintenance.verify import ReferenceWitness
from lsm_core.merge.order_free import order_free
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, read_vector
from lsm_core.metadata.live_files import entries_of_buckets
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.read.merge_read import BucketMerge, BucketSource, as_tree, sections_of
from lsm_core.read.prune import expiry_of
from lsm_core.types import RowKind

_WRITTEN: Final = {CommitKind.APPEND, CommitKind.COMPACT, CommitKind.ANALYZE}


@dataclass(frozen=True)
class History:
    """Snapshots whose rows the reference implementation merges again.

    Attributes:
        base: snapshot whose rows are read.
        since: snapshots after ``base`` whose written rows are added, oldest first.
    """

    base: Snapshot
    since: tuple[Snapshot, ...] = ()

    @property
    def text(self) -> str:
        """Description for people, for example ``snapshot 3 and what 4 commits wrote since``."""
        writes = sum(snapshot.commit_kind is CommitKind.APPEND for snapshot in self.since)
        return f"snapshot {self.base.id}" + (f" and what {writes} commits wrote since" if self.since else "")


def merge_engine_rules(check_input: CheckInput) -> CheckReport:
    """Compare the rows that readers see for sampled keys with the rows that the reference implementation merges.

    Args:
        check_input: store, snapshot and limits.
    """
    sample, history = draw_buckets(check_input), history_of(check_input)
    compared = read = 0
    problems: list[str] = []
    for partition, bucket in sample.looked_at:
        opened = open_bucket(check_input, partition, bucket)
        read += opened.rows
        try:
            compared += _compare(check_input, opened, history)
        except VerificationFailed as error:
            problems += [f"{opened.name}: {line.partition(': ')[2] or line}" for line in map(str, error.keys)]
    engine = check_input.store.options.merge_engine
    numbers = {
        **sample.numbers(read),
        "keys_compared": compared,
        "merge_engine": engine,
        "recomputed_from": history.text,
    }
    if problems:
        text = f"{engine} says otherwise than the table, from {history.text}: {problems[0]}"
        return check_input.fails(text, problems, **numbers)
    return check_input.passes(f"{compared:,} keys are what {engine} makes of {history.text}", **numbers)


def history_of(check_input: CheckInput) -> History:
    """Return the longest run of snapshots, back from the newest one, whose written rows can be merged again.

    All of these snapshots have the newest schema, and are compactions, ANALYZE commits, or appends that only add files.
    If the order of merging may change the result, rows can expire, the table has postponed buckets, or compactions
    merge stored versions later (`merges_stored_versions_later`), only the newest snapshot is returned.

    Args:
        check_input: store, newest snapshot and limits; `limits.history` bounds the number of snapshots.
    """
    store, newest = check_input.store, check_input.snapshot
    fold = order_free(store.schema, store.options.raw, has_retracts=False, table=store.name)
    if not fold.ok or expiry_of(store) is not None or store.bucket_mode is BucketMode.POSTPONE:
        return History(newest)
    if merges_stored_versions_later(store):
        return History(newest)
    since: list[Snapshot] = []
    base = newest
    while (
        len(since) < check_input.limits.history and base.commit_kind in _WRITTEN and base.schema_id == newest.schema_id
    ):
        if base.commit_kind is CommitKind.APPEND and not _only_adds(store, base):
            break
        try:
            before = snapshots.read(store, base.id - 1)
        except SnapshotNotFound:
            break
        if before.schema_id != newest.schema_id:
            break
        since.append(base)
        base = before
    return History(base, tuple(reversed(since)))


def _only_adds(store: TableStore, snapshot: Snapshot) -> bool:
    """Return whether a writer's commit only adds files to level 0."""
    delta = manifests.delta_entries(store, snapshot)
    adds = pc.and_(pc.equal(delta.column("kind"), 0), pc.equal(delta.column("level"), 0))
    return bool(pc.all(adds, min_count=0).as_py())


def _compare(check_input: CheckInput, opened: SampledBucket, history: History) -> int:
    """Merge the rows of ``history`` row by row, compare the result with a read, and return the number of compared keys.

    Raises:
        VerificationFailed: keys differ; the message names them.
    """
    store, place = check_input.store, opened.place
    written, vectors = find_written_files(check_input, opened, history)
    witness = ReferenceWitness(place, written, None, check_input.limits.keys)
    counts: dict[str, int] = {}
    for file in written:
        vector = vectors.get(file.file_name)
        deleted = None if vector is None else read_vector(store, vector, file.row_count)
        reader = open_kv if place.within is None else place.within.open
        counts[file.file_name] = 0
        opened_file = reader(store, place.partition, place.bucket, file, deleted=deleted)
        with closing(opened_file) as batches:  # type: ignore[type-var]
            for batch in batches:
                counts[file.file_name] += batch.num_rows
                witness.add_input(file, _updates_as_inserts(batch))
    opener = None if place.within is None else place.within.open
    source = BucketSource(store, place.partition, place.bucket, deletions=opened.deletions, opener=opener)
    merge = BucketMerge(source, store.schema.field_names, drop_delete=True, exact=True)
    for section in sections_of(store, opened.files):
        with closing(merge.section(section)) as merged:
            for batch in merged:
                witness.add_written(_updates_as_inserts(batch))
    return witness.verify((), drop_delete=True, rows_read=counts)


def find_written_files(
    check_input: CheckInput, opened: SampledBucket, history: History
) -> tuple[Sequence[DataFileMeta], dict[str, DeletionFile]]:
    """Return the files that hold the written rows of a bucket, with their deletion vectors.

    Args:
        check_input: store, snapshot and limits.
        opened: the bucket.
        history: source of the rows.

    Returns:
        Files of the base snapshot and of later appends, with the deletion vectors of the base by file name. In three
            cases the live files instead: the history has no later snapshot; files have retracts, and the order of
            merging may change the result, a compaction may have dropped a retract that a built row lacks, or the
            bucket used sequence numbers twice; or the table is ordered by snapshot, and files are numbered otherwise.
    """
    if not history.since:
        return opened.files, opened.deletions
    store, place = check_input.store, opened.place
    partitions, buckets = [place.partition], [place.bucket]
    tables = [entries_of_buckets(store, history.base, place.partition, buckets)]
    for snapshot in history.since:
        if snapshot.commit_kind is CommitKind.APPEND:
            delta = manifests.delta_entries(store, snapshot)
            tables.append(manifests.keep_rows(delta, partitions, buckets, None))
    files = [entry.file for entry in table_to_entries(pa.concat_tables(tables))]
    if any(file.delete_row_count != 0 for file in files) and (
        store.options.merge_engine != "deduplicate"
        or _numbered_again(tables)
        or not order_free(store.schema, store.options.raw, has_retracts=True, table=store.name).ok
    ):
        return opened.files, opened.deletions
    if place.within is not None:
        shapes = as_tree(store, files)
        files = [file for file, shape in zip(files, shapes, strict=True) if place.within.meets(shape)]
    if store.options.snapshot_ordering and not all(map(_has_snapshot_number, files)):
        return opened.files, opened.deletions
    vectors = deletion_vectors(store, history.base, partitions, buckets)
    return files, vectors.get((place.partition, place.bucket), {})


def _updates_as_inserts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with +U as +I: merging and readers treat both alike, and compactions may store either."""
    kinds = batch.column(VALUE_KIND)
    inserts = pc.if_else(pc.equal(kinds, int(RowKind.UPDATE_AFTER)), pa.scalar(int(RowKind.INSERT), kinds.type), kinds)
    return batch.set_column(batch.schema.get_field_index(VALUE_KIND), VALUE_KIND, inserts)


def _has_snapshot_number(file: DataFileMeta) -> bool:
    """Return whether all rows of a file have one sequence number, that of its snapshot, or a compaction wrote the file.

    Paimon 1.4 ignores `sequence.snapshot-ordering`: its files keep the numbers of its writers.
    """
    return file.file_source == SOURCE_COMPACT or file.min_sequence_number == file.max_sequence_number


def _numbered_again(tables: Sequence[pa.Table]) -> bool:
    """Return whether a bucket used sequence numbers twice.

    After a compaction dropped a delete, a writer may use the delete's sequence number again. A row with this number
    would look older than the delete.

    Args:
        tables: entries (`ENTRY_SCHEMA`) of the bucket: first those of the base, then those that each commit added.
    """
    highest = -1
    for table in tables:
        if not table.num_rows:
            continue
        if pc.min(table.column("min_sequence_number")).as_py() <= highest:
            return True
        highest = max(highest, pc.max(table.column("max_sequence_number")).as_py())
    return False
