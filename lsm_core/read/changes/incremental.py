"""Rows that changed between two versions, snapshot by snapshot, and the files that contain these rows."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable, require_whole_rows
from lsm_core.read.changes.changed_rows import Choice, Rows, file_rows
from lsm_core.read.changes.diff import differences
from lsm_core.read.changes.spans import ScanMode, Span, earliest_kept, read_kept
from lsm_core.read.scan import visible
from lsm_core.types import RowKind


def incremental(choice: Choice, span: Span) -> Rows:
    """Return the changed rows as batches of ``choice.schema``, snapshot by snapshot (mode diff: bucket by bucket).

    Mode delta reads the rows of APPEND snapshots as they were written. Mode changelog reads the changelog files of all
    snapshots except OVERWRITE snapshots. Both modes return unmerged rows, as in Java: a key that changed twice appears
    twice. Mode diff compares the rows of both versions.

    Expired snapshots are included while their changelog is kept.

    Raises:
        SnapshotNotFound: a snapshot of the span is not kept; raised by the call, before the first batch.
        UnsupportedFeature: the table or the comparison is not supported.
        CorruptFile: a metadata or data file is missing or damaged.

    Source: ``IncrementalDeltaStartingScanner``, ``IncrementalDiffStartingScanner``.
    """
    store = choice.store
    require_whole_rows(store, "reading changes of a table")
    require_readable(store, columns=choice.needed)
    if span.mode is ScanMode.DIFF and not span.empty:
        assert span.start_version is not None
        assert span.end_version is not None
        return differences(choice, span.start_version, span.end_version)
    if not span.empty:
        first, last = earliest_kept(store), snapshots.latest_id(store)
        if first is None or last is None:
            raise SnapshotNotFound(
                f"table {store.name} has no snapshots {span.start} to {span.end}: nothing was committed yet"
            )
        if span.start < first - 1 or span.end > last:
            raise SnapshotNotFound(
                f"table {store.name} has no changes after snapshot {span.start} up to {span.end}; "
                f"it keeps {first} to {last}",
                expired=span.start < first - 1,
            )
    return _by_snapshot(choice, span)


def incremental_table(choice: Choice, span: Span) -> pa.Table:
    """Return the changed rows as one table; its first column `_ROW_KIND` has "+I", "-U", "+U" or "-D" as text.

    Args:
        choice: table, columns and filter of the read.
        span: snapshots whose changes are read.
    """
    with closing(incremental(choice, span)) as batches:
        return pa.Table.from_batches([choice.with_text_kinds(batch) for batch in batches], choice.text_schema)


def _by_snapshot(choice: Choice, span: Span) -> Rows:
    """Yield the rows of changelog files (mode changelog) or of the files that APPEND snapshots added (mode delta).

    Changelog files of OVERWRITE snapshots are left out, and so are files of postponed rows, as in Java's batch reads.
    """
    for number in range(span.start + 1, span.end + 1):
        snapshot = read_kept(choice.store, number)
        kind = snapshot.commit_kind
        if span.mode is ScanMode.CHANGELOG:
            entries = changelog_files(choice.store, snapshot) if kind is not CommitKind.OVERWRITE else None
        else:
            entries = added_files(choice.store, snapshot) if kind is CommitKind.APPEND else None
        if entries is not None:
            with closing(file_rows(choice, visible(choice.store, compacted=False, entries=entries))) as batches:
                yield from batches


def added_files(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the entries (`ENTRY_SCHEMA`) of the data files that the snapshot added."""
    return _of_kind(manifests.delta_entries(store, snapshot), 0)


def removed_files(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the entries (`ENTRY_SCHEMA`) of the data files that the snapshot deleted."""
    return _of_kind(manifests.delta_entries(store, snapshot), 1)


def changelog_files(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Return the entries (`ENTRY_SCHEMA`) of the snapshot's changelog files.

    Raises:
        SnapshotNotFound: the changelog has expired, for example because only a tag keeps the snapshot (`expired` is
            set).
        CorruptFile: the changelog exists and cannot be read.
    """
    manifest_metas = manifests.changelog_list(store, snapshot)
    if manifest_metas is None:
        raise SnapshotNotFound(
            f"the changelog of snapshot {snapshot.id} of table {store.name} has expired (its list "
            f"{snapshot.changelog_manifest_list} was deleted): read changes from snapshot {snapshot.id + 1} on, "
            "or read the snapshot itself",
            expired=True,
        )
    return _of_kind(manifests.entries_of(store, manifest_metas), 0)


def _of_kind(entries: pa.Table, kind: int) -> pa.Table:
    return entries.filter(pc.equal(entries.column("kind"), arrow_scalar(kind)))


Batches = Generator[pa.RecordBatch, None, None]


def span_parts(span: Span) -> list[Span]:
    """Split a span into independently readable parts in order: one per snapshot; mode diff gives a single part."""
    if span.empty or span.mode is ScanMode.DIFF:
        return [] if span.empty else [span]
    return [replace(span, start=number, end=number + 1) for number in range(span.start, span.end)]


def span_values(choice: Choice, span: Span, limit: int | None = None) -> Batches:
    """Return the changed rows of a span without their row kinds.

    Args:
        choice: columns and filter.
        span: the span of snapshots.
        limit: largest number of rows; None for all.

    Returns:
        The batches. As in Java, mode diff leaves deleted rows out.
    """
    return _without_kinds(incremental(choice, span), span, limit)


def _without_kinds(rows: Batches, span: Span, left: int | None) -> Batches:
    with closing(rows) as batches:
        for batch in batches:
            if left == 0:
                return
            kept = batch
            if span.mode is ScanMode.DIFF:
                kept = batch.filter(pc.not_equal(batch.column(0), arrow_scalar(int(RowKind.DELETE))))
            kept = kept if left is None else kept.slice(0, left)
            left = None if left is None else left - kept.num_rows
            if kept.num_rows:
                yield kept.select(kept.schema.names[1:])
