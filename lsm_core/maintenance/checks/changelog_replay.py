"""Check `changelog_replays`: the rows of an older snapshot plus the changelog since then give the current rows.

A changelog written by compactions covers the rows above level 0 (lookup) or on the highest level (full-compaction), so
only these rows are compared. A changelog of the writers' input covers all rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, plain_batch
from lsm_core.errors import SnapshotNotFound
from lsm_core.files import open_kv
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.partitions import partition_text
from lsm_core.format.schema import VALUE_KIND
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.checks.bucket_sample import draw_buckets
from lsm_core.maintenance.checks.outcome import CheckInput, CheckReport
from lsm_core.maintenance.lone_versions import merges_stored_versions_later
from lsm_core.maintenance.reference import key_order
from lsm_core.maintenance.reference.comparison import ResultComparison
from lsm_core.maintenance.reference.sampling import Place, Sample
from lsm_core.maintenance.reference.values import plain_values
from lsm_core.maintenance.used_files import select_added
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import deletion_vectors
from lsm_core.metadata.live_files import entries_of_buckets
from lsm_core.metadata.store import TableStore
from lsm_core.read import read_bucket_merged
from lsm_core.read.prune import expiry_of

_ALL: Final = (1 << 64) - 1
_UPDATE_BEFORE, _DELETE = 1, 3
_REPLAYABLE: Final = {CommitKind.APPEND, CommitKind.COMPACT, CommitKind.ANALYZE}
Values = tuple[Any, ...]
State = dict[Any, tuple[Values, Values]]
"""Rows of a bucket by `key_order` of the key: the key's values, and the values of the compared columns."""


def changelog_replays(check_input: CheckInput) -> CheckReport:
    """Check that an older snapshot plus its later changelog gives the current rows, for sampled keys of some buckets.

    Args:
        check_input: store, snapshot and limits.
    """
    store, newest = check_input.store, check_input.snapshot
    since = snapshots_to_replay(check_input)
    if not since:
        reason = "no older snapshot to replay from"
        if merges_stored_versions_later(store):
            reason = "compactions merge stored versions later, and no change shows it"
        return check_input.passes(f"{reason}: nothing was compared", keys_compared=0)
    base = snapshots.read(store, since[0].id - 1)
    sample = draw_buckets(check_input)
    compared = applied = read = 0
    problems: list[str] = []
    for partition, bucket in sample.looked_at:
        place = Place(store, partition, bucket, salt=check_input.seed)
        now = changelog_files(store, newest, place)
        rows = max((file.row_count for file in now), default=0)
        keys = Sample(
            None if rows <= check_input.limits.keys else min(_ALL, int(check_input.limits.keys / rows * _ALL)),
            np.empty(0, np.uint64),
        )
        replayed = logged_rows(check_input, base, place, keys)
        for snapshot in since:
            applied += replay_changes(check_input, snapshot, place, keys, replayed)
        current = logged_rows(check_input, newest, place, keys)
        compared += len(replayed.keys() | current.keys())
        read += sum(file.row_count for file in now)
        name = bucket_name(partition_text(store.schema, partition, store.options), bucket)
        problems += [f"{name}: {line}" for line in _differences(store, replayed, current)]
    span = f"snapshot {base.id} to {newest.id}"
    numbers = {**sample.numbers(read), "keys_compared": compared, "changes_applied": applied, "replayed": span}
    if problems:
        text = f"{len(problems)} keys differ from the replayed changelog of {span}: {problems[0]}"
        return check_input.fails(text, problems, **numbers)
    return check_input.passes(f"{applied:,} changes of {span} give the {compared:,} keys compared", **numbers)


def snapshots_to_replay(check_input: CheckInput) -> list[Snapshot]:
    """Return the snapshots to replay, oldest first, back to an overwrite, a schema change or the start of the history.

    The list also ends at a snapshot whose changelog has expired, and has at most `limits.history` snapshots. The list
    is empty if nothing can be replayed.
    Tables with record-level expiry are not replayed, because compactions remove expired rows without emitting changes.
    Neither are tables whose compactions merge stored versions later (`merges_stored_versions_later`).

    Args:
        check_input: store, newest snapshot and limits.
    """
    store, newest = check_input.store, check_input.snapshot
    since: list[Snapshot] = []
    snapshot = newest
    if expiry_of(store) is not None or merges_stored_versions_later(store):
        return since
    while len(since) < check_input.limits.history and snapshot.commit_kind in _REPLAYABLE:
        try:
            before = snapshots.read(store, snapshot.id - 1)
        except SnapshotNotFound:
            break
        if before.schema_id != newest.schema_id or manifests.changelog_list(store, snapshot) is None:
            break
        since.append(snapshot)
        snapshot = before
    while since and _ends_overwrite(since[-1], snapshot):
        snapshot = since.pop()
    return since[::-1]


def _ends_overwrite(snapshot: Snapshot, before: Snapshot) -> bool:
    """Return whether a compaction without changelog belongs to the overwrite before it.

    Java's writer commits both at the end of one write, and no changelog for the rows that they wrote.
    """
    return (
        snapshot.commit_kind is CommitKind.COMPACT
        and snapshot.changelog_manifest_list is None
        and before.commit_kind is CommitKind.OVERWRITE
        and (snapshot.commit_user, snapshot.commit_identifier) == (before.commit_user, before.commit_identifier)
    )


def changelog_files(store: TableStore, snapshot: Snapshot, place: Place) -> list[DataFileMeta]:
    """Return the files of a bucket whose rows the changelog covers.

    Args:
        store: the table.
        snapshot: snapshot with the files.
        place: the bucket.
    """
    entries = entries_of_buckets(store, snapshot, place.partition, [place.bucket])
    files = [entry.file for entry in table_to_entries(entries)]
    producer = store.options.changelog_producer
    lowest = {"input": 0, "lookup": 1}.get(producer, store.options.num_levels - 1)
    return [file for file in files if file.level >= lowest]


def logged_rows(check_input: CheckInput, snapshot: Snapshot, place: Place, keys: Sample) -> State:
    """Return the rows of the chosen keys that the changelog up to ``snapshot`` covers: key and values by sort key.

    Args:
        check_input: store and limits.
        snapshot: snapshot to read.
        place: the bucket.
        keys: the chosen keys.
    """
    store = check_input.store
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


def replay_changes(check_input: CheckInput, snapshot: Snapshot, place: Place, keys: Sample, state: State) -> int:
    """Apply a snapshot's changes of the chosen keys to ``state``.

    Args:
        check_input: store and limits.
        snapshot: snapshot with the changelog.
        place: the bucket.
        keys: the chosen keys.
        state: rows by key; it is modified.

    Returns:
        Number of applied changes.
    """
    changes = 0
    for key, kind, values in read_changes(check_input, snapshot, place, keys):
        changes += 1
        if kind == _DELETE:
            state.pop(key_order(key), None)
        elif kind != _UPDATE_BEFORE:
            state[key_order(key)] = key, values
    return changes


def read_changes(
    check_input: CheckInput, snapshot: Snapshot, place: Place, keys: Sample
) -> Iterable[tuple[Values, int, Values]]:
    """Yield the changes of the chosen keys in a snapshot's changelog, in order.

    Args:
        check_input: store and limits.
        snapshot: snapshot with the changelog.
        place: the bucket.
        keys: the chosen keys.

    Yields:
        Key, row kind and values of the compared columns.
    """
    store = check_input.store
    entries = manifests.keep_rows(
        select_added(manifests.changelog_entries(store, snapshot)), [place.partition], [place.bucket], None
    )
    files = [entry.file for entry in table_to_entries(entries)]
    if store.options.changelog_producer == "input":
        files.sort(key=lambda file: file.min_sequence_number)
    for file in files:
        with closing(open_kv(store, place.partition, place.bucket, file)) as batches:  # type: ignore[type-var]
            yield from chosen_rows_of(store, place, keys, batches)


def chosen_rows_of(
    store: TableStore, place: Place, keys: Sample, batches: Iterable[pa.RecordBatch]
) -> Iterable[tuple[Values, int, Values]]:
    """Yield the rows of chosen keys as plain values.

    Args:
        store: the table.
        place: the bucket.
        keys: the chosen keys.
        batches: rows with Paimon's KV columns (keys, sequence number, row kind, values).

    Yields:
        Key, row kind and values of the compared columns.
    """
    names = compared_columns(store)
    for batch in batches:
        rows = plain_batch(batch.take(arrow_array(keys.chosen(place.ranks(batch)))))
        if not rows.num_rows:
            continue
        parts = zip(*(plain_values(column) for column in place.keys(rows)), strict=True)
        values = zip(*(plain_values(rows.column(name)) for name in names), strict=True)
        yield from zip(parts, rows.column(VALUE_KIND).to_pylist(), values, strict=True)


def compared_columns(store: TableStore) -> list[str]:
    """Return the columns whose changes the changelog covers.

    Args:
        store: the table.
    """
    ignored = str(store.options.get("changelog-producer.row-deduplicate-ignore-fields") or "")
    left_out = {name.strip() for name in ignored.split(",")}
    return [name for name in store.schema.field_names if name not in left_out]


def _differences(store: TableStore, replayed: State, current: State) -> list[str]:
    rows = ResultComparison(store.schema, store.options.raw)
    places = [store.schema.field_names.index(name) for name in compared_columns(store)]
    wrong = []
    for key in replayed.keys() | current.keys():
        name = ", ".join(repr(part[-1]) for part in key)
        if key not in current:
            wrong.append(f"key {name} is in the changelog, but not in the table")
        elif key not in replayed:
            wrong.append(f"key {name} is in the table, but not in the changelog")
        elif rows.differing(places, replayed[key][1], current[key][1]):
            wrong.append(f"key {name} has another value than its last change in the changelog")
    return sorted(wrong)
