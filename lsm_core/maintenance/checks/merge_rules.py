"""merge_engine_rules: what readers see of a sample of keys is what the reference makes of the rows that were written, one at a time.

The rows are those of an older snapshot and all that writers added since, so that a compaction in between that changed an answer is found.
Where merging a part first may change an answer (an order-sensitive table, rows that expire) the live files alone are merged again.
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
from lsm_core.format.file_meta import DataFileMeta, table_to_entries
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.checks.bucket_sample import SampledBucket, draw_buckets, open_bucket
from lsm_core.maintenance.checks.outcome import CheckReport, Question
from lsm_core.maintenance.verify import ReferenceWitness
from lsm_core.merge.order_free import order_free
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import DeletionFile, deletion_vectors, read_vector
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.read.inputs import as_tree, sections_of
from lsm_core.read.merge_read import Merging
from lsm_core.read.prune.expired_files import expiry_of

_WRITTEN: Final = {CommitKind.APPEND, CommitKind.COMPACT, CommitKind.ANALYZE}


@dataclass(frozen=True)
class History:
    """What was there at ``base``, and what writers added in the snapshots ``since``, oldest first."""

    base: Snapshot
    since: tuple[Snapshot, ...] = ()

    @property
    def text(self) -> str:
        """``snapshot 3 and what 4 commits wrote since``."""
        writes = sum(one.commit_kind is CommitKind.APPEND for one in self.since)
        return f"snapshot {self.base.id}" + (f" and what {writes} commits wrote since" if self.since else "")


def merge_engine_rules(question: Question) -> CheckReport:
    """The verdict over the sampled keys of some buckets."""
    sample, history = draw_buckets(question), history_of(question)
    compared = read = 0
    problems: list[str] = []
    for partition, bucket in sample.looked_at:
        opened = open_bucket(question, partition, bucket)
        read += opened.rows
        try:
            compared += _compare(question, opened, history)
        except VerificationFailed as error:
            problems += [f"{opened.name}: {line.partition(': ')[2] or line}" for line in map(str, error.keys)]
    engine = question.store.options.merge_engine
    numbers = {
        **sample.numbers(read),
        "keys_compared": compared,
        "merge_engine": engine,
        "recomputed_from": history.text,
    }
    if problems:
        text = f"{engine} says otherwise than the table, from {history.text}: {problems[0]}"
        return question.fails(text, problems, **numbers)
    return question.passes(f"{compared:,} keys are what {engine} makes of {history.text}", **numbers)


def history_of(question: Question) -> History:
    """How far back the rows of today may be recomputed: through appends and compactions of one schema that only add and merge."""
    store, newest = question.store, question.snapshot
    fold = order_free(store.schema, store.options.raw, has_retracts=False, table=store.name)
    if not fold.ok or expiry_of(store) is not None or store.bucket_mode is BucketMode.POSTPONE:
        return History(newest)
    since: list[Snapshot] = []
    base = newest
    while len(since) < question.limits.history and base.commit_kind in _WRITTEN and base.schema_id == newest.schema_id:
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
    """Whether a commit of a writer adds files to level 0 and does nothing else."""
    delta = manifests.delta_entries(store, snapshot)
    adds = pc.and_(pc.equal(delta.column("kind"), 0), pc.equal(delta.column("level"), 0))
    return bool(pc.all(adds, min_count=0).as_py())


def _compare(question: Question, opened: SampledBucket, history: History) -> int:
    """Merge the rows of ``history`` row by row, and hold the result against what is read now; returns the number of keys compared.

    Raises VerificationFailed naming keys.
    """
    store, place = question.store, opened.place
    written, vectors = written_files(question, opened, history)
    witness = ReferenceWitness(place, written, None, question.limits.keys)
    counts: dict[str, int] = {}
    for file in written:
        gone = vectors.get(file.file_name)
        deleted = None if gone is None else read_vector(store, gone, file.row_count)
        reader = open_kv if place.within is None else place.within.open
        counts[file.file_name] = 0
        with closing(reader(store, place.partition, place.bucket, file, deleted=deleted)) as batches:  # type: ignore[type-var]
            for batch in batches:
                counts[file.file_name] += batch.num_rows
                witness.input(file, batch)
    merging = Merging(
        store,
        place.partition,
        place.bucket,
        store.schema.field_names,
        drop_delete=True,
        exact=True,
        deletions=opened.deletions,
        opener=None if place.within is None else place.within.open,
    )
    for section in sections_of(store, opened.files):
        with closing(merging.section(section)) as merged:
            for batch in merged:
                witness.handed(batch)
    return witness.verdict((), drop_delete=True, rows_read=counts)


def written_files(
    question: Question, opened: SampledBucket, history: History
) -> tuple[Sequence[DataFileMeta], dict[str, DeletionFile]]:
    """Return the files of the bucket in ``history`` with the deletion vectors of its base, or the live files where
    retracts make the order matter, or numbers of the bucket were used twice."""
    if not history.since:
        return opened.files, opened.deletions
    store, place = question.store, opened.place
    here, only = [place.partition], [place.bucket]
    tables = [manifests.live_entries(store, history.base, partitions=here, buckets=only)]
    for snapshot in history.since:
        if snapshot.commit_kind is CommitKind.APPEND:
            delta = manifests.delta_entries(store, snapshot)
            tables.append(manifests.keep_rows(delta, here, only, None))
    files = [entry.file for entry in table_to_entries(pa.concat_tables(tables))]
    if any(file.delete_row_count != 0 for file in files) and (
        _numbered_again(tables)
        or not order_free(store.schema, store.options.raw, has_retracts=True, table=store.name).ok
    ):
        return opened.files, opened.deletions
    if place.within is not None:
        shapes = as_tree(store, files)
        files = [file for file, shape in zip(files, shapes, strict=True) if place.within.meets(shape)]
    vectors = deletion_vectors(store, history.base, here, only)
    return files, vectors.get((place.partition, place.bucket), {})


def _numbered_again(tables: Sequence[pa.Table]) -> bool:
    """Return whether a bucket used sequence numbers twice.

    The number of a delete is free again once a compaction dropped it. What was written under it later would look older than the delete.

    Args:
        tables: entries (`ENTRY_SCHEMA`) of the bucket: those at first, then what each commit added.
    """
    highest = -1
    for table in tables:
        if not table.num_rows:
            continue
        if pc.min(table.column("min_sequence_number")).as_py() <= highest:
            return True
        highest = max(highest, pc.max(table.column("max_sequence_number")).as_py())
    return False


__all__ = ["History", "history_of", "merge_engine_rules", "written_files"]
