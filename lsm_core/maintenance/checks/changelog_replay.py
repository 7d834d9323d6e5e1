"""changelog_replays: changes since an older snapshot, applied to what the table said then, give what it says now.

A changelog made by compactions tells what lies above level 0 (lookup) or on the highest level (full-compaction), so that is what is
compared; one of a writer's input tells all of the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.errors import SnapshotNotFound
from lsm_core.files import open_kv
from lsm_core.format.file_meta import DataFileMeta, table_to_entries
from lsm_core.format.kv_layout import VALUE_KIND
from lsm_core.format.partition_path import partition_text
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.checks.bucket_sample import draw_buckets
from lsm_core.maintenance.checks.outcome import CheckReport, Question
from lsm_core.maintenance.reference import key_order
from lsm_core.maintenance.reference.equality import same
from lsm_core.maintenance.reference.plain import plain_values
from lsm_core.maintenance.reference.sampling import Place, Sample
from lsm_core.maintenance.used_files import added
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import deletion_vectors
from lsm_core.metadata.store import TableStore
from lsm_core.read import read_bucket_merged
from lsm_core.read.prune.expired_files import expiry_of
from lsm_core.types.dictionaries import plain_batch

_ALL: Final = (1 << 64) - 1
_UPDATE_BEFORE, _DELETE = 1, 3
_TELLING: Final = {CommitKind.APPEND, CommitKind.COMPACT, CommitKind.ANALYZE}
Values = tuple[Any, ...]
State = dict[Any, tuple[Values, Values]]
"""By `key_order` of the bucket's key: that key and the compared columns, as plain values."""


def changelog_replays(question: Question) -> CheckReport:
    """The verdict over the sampled keys of some buckets, since the oldest snapshot from which only appends and compactions lead here."""
    store, newest = question.store, question.snapshot
    since = snapshots_to_replay(question)
    if not since:
        return question.passes("no older snapshot to replay from: nothing was compared", keys_compared=0)
    base = snapshots.read(store, since[0].id - 1)
    sample = draw_buckets(question)
    compared = told = read = 0
    problems: list[str] = []
    for partition, bucket in sample.looked_at:
        place = Place(store, partition, bucket, salt=question.seed)
        now = changelog_files(store, newest, place)
        rows = max((file.row_count for file in now), default=0)
        keys = Sample(
            None if rows <= question.limits.keys else min(_ALL, int(question.limits.keys / rows * _ALL)),
            np.empty(0, np.uint64),
        )
        replayed = stated_rows(question, base, place, keys)
        for snapshot in since:
            told += replay_changes(question, snapshot, place, keys, replayed)
        found = stated_rows(question, newest, place, keys)
        compared += len(replayed.keys() | found.keys())
        read += sum(file.row_count for file in now)
        name = bucket_name(partition_text(store.schema, partition, store.options), bucket)
        problems += [f"{name}: {line}" for line in _differences(replayed, found)]
    span = f"snapshot {base.id} to {newest.id}"
    numbers = {**sample.numbers(read), "keys_compared": compared, "changes_applied": told, "replayed": span}
    if problems:
        text = f"{len(problems)} keys are not what the changelog of {span} makes of them: {problems[0]}"
        return question.fails(text, problems, **numbers)
    return question.passes(f"{told:,} changes of {span} give the {compared:,} keys compared", **numbers)


def snapshots_to_replay(question: Question) -> list[Snapshot]:
    """The snapshots to replay, oldest first: back to one before which somebody overwrote, changed the schema, or history has expired.

    Rows that expire vanish in compactions without a change being told, so tables of such rows are not replayed.
    """
    store, newest = question.store, question.snapshot
    since: list[Snapshot] = []
    one = newest
    while expiry_of(store) is None and len(since) < question.limits.history and one.commit_kind in _TELLING:
        try:
            before = snapshots.read(store, one.id - 1)
        except SnapshotNotFound:
            break
        if before.schema_id != newest.schema_id or manifests.changelog_list(store, one) is None:
            break
        since.append(one)
        one = before
    return since[::-1]


def changelog_files(store: TableStore, snapshot: Snapshot, place: Place) -> list[DataFileMeta]:
    """The files of a bucket that the changelog tells of."""
    entries = manifests.live_entries(store, snapshot, partitions=[place.partition], buckets=[place.bucket])
    files = [entry.file for entry in table_to_entries(entries)]
    producer = store.options.changelog_producer
    lowest = {"input": 0, "lookup": 1}.get(producer, store.options.num_levels - 1)
    return [file for file in files if file.level >= lowest]


def stated_rows(question: Question, snapshot: Snapshot, place: Place, keys: Sample) -> State:
    """What the changelog told of up to ``snapshot``: the chosen keys' rows."""
    store = question.store
    vectors = deletion_vectors(store, snapshot, [place.partition], [place.bucket])
    merged = read_bucket_merged(
        store,
        place.partition,
        place.bucket,
        changelog_files(store, snapshot, place),
        keep_system=True,
        deletions=vectors.get((place.partition, place.bucket), {}),
    )
    with closing(merged) as batches:
        return {key_order(key): (key, values) for key, _, values in chosen_rows_of(store, place, keys, batches)}


def replay_changes(question: Question, snapshot: Snapshot, place: Place, keys: Sample, state: State) -> int:
    """Apply the changes of the chosen keys that a snapshot tells to ``state``, and return their number."""
    changes = 0
    for key, kind, values in told_changes(question, snapshot, place, keys):
        changes += 1
        if kind == _DELETE:
            state.pop(key_order(key), None)
        elif kind != _UPDATE_BEFORE:
            state[key_order(key)] = key, values
    return changes


def told_changes(
    question: Question, snapshot: Snapshot, place: Place, keys: Sample
) -> Iterable[tuple[Values, int, Values]]:
    """The changes of the chosen keys that a snapshot tells, in their order."""
    store = question.store
    told = manifests.keep_rows(
        added(manifests.changelog_entries(store, snapshot)), [place.partition], [place.bucket], None
    )
    files = [entry.file for entry in table_to_entries(told)]
    if store.options.changelog_producer == "input":
        files.sort(key=lambda file: file.min_sequence_number)
    for file in files:
        with closing(open_kv(store, place.partition, place.bucket, file)) as batches:  # type: ignore[type-var]
            yield from chosen_rows_of(store, place, keys, batches)


def chosen_rows_of(
    store: TableStore, place: Place, keys: Sample, batches: Iterable[pa.RecordBatch]
) -> Iterable[tuple[Values, int, Values]]:
    """Key, kind and compared columns of the rows of chosen keys, as plain values."""
    names = compared_columns(store)
    for batch in batches:
        rows = plain_batch(batch.take(arrow_array(keys.chosen(place.ranks(batch)))))
        if not rows.num_rows:
            continue
        parts = zip(*(plain_values(column) for column in place.keys(rows)), strict=True)
        values = zip(*(plain_values(rows.column(name)) for name in names), strict=True)
        yield from zip(parts, rows.column(VALUE_KIND).to_pylist(), values, strict=True)


def compared_columns(store: TableStore) -> list[str]:
    """Return the columns whose changes the changelog tells."""
    ignored = str(store.options.get("changelog-producer.row-deduplicate-ignore-fields") or "")
    left_out = {name.strip() for name in ignored.split(",")}
    return [name for name in store.schema.field_names if name not in left_out]


def _differences(replayed: State, found: State) -> list[str]:
    wrong = []
    for key in replayed.keys() | found.keys():
        name = ", ".join(repr(part[-1]) for part in key)
        if key not in found:
            wrong.append(f"key {name} is there by the changelog alone")
        elif key not in replayed:
            wrong.append(f"key {name} is there and the changelog never told it")
        elif same(replayed[key][1]) != same(found[key][1]):
            wrong.append(f"key {name} has another value than the changelog told last")
    return sorted(wrong)


__all__ = [
    "changelog_files",
    "changelog_replays",
    "chosen_rows_of",
    "compared_columns",
    "replay_changes",
    "snapshots_to_replay",
    "stated_rows",
]
