"""What changed between two versions: rows of the delta or changelog files between them, or a comparison of both as a whole."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import SnapshotNotFound
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.read.changes.choice import Choice
from lsm_core.read.changes.diff import differences
from lsm_core.read.changes.history import earliest_kept, read_kept
from lsm_core.read.changes.rows import Rows, file_rows
from lsm_core.read.changes.span import ScanMode, Span


def incremental(choice: Choice, span: Span) -> Rows:
    """The changed rows, snapshot by snapshot (mode diff: bucket by bucket), as batches of ``choice.schema``.

    Delta: rows of APPEND snapshots as they were written. Changelog: rows of changelog files of all snapshots but OVERWRITE ones.
    Both unmerged, as Java gives them: a key that changed twice comes twice. Diff: see :func:`differences`. Whole
    snapshots that expired still count where their changelog is kept. Raises SnapshotNotFound at once when the span is not
    there, UnsupportedFeature, CorruptFile. Source classes: ``IncrementalDeltaStartingScanner``, ``IncrementalDiffStartingScanner``.
    """
    store = choice.store
    require_readable(store)
    if span.empty:
        return _nothing()
    if span.mode is ScanMode.DIFF:
        assert span.start_version is not None
        assert span.end_version is not None
        return differences(choice, span.start_version, span.end_version)
    _require_there(store, span)
    return _between(choice, span)


def incremental_table(choice: Choice, span: Span) -> pa.Table:
    """The changed rows as one table, `_ROW_KIND` first."""
    with closing(incremental(choice, span)) as batches:
        return pa.Table.from_batches([choice.told(batch) for batch in batches], choice.text_schema)


def _nothing() -> Rows:
    yield from ()


def _between(choice: Choice, span: Span) -> Rows:
    for number in range(span.start + 1, span.end + 1):
        snapshot = read_kept(choice.store, number)
        with closing(file_rows(choice, _changed_files(choice.store, snapshot, span.mode))) as batches:
            yield from batches


def _changed_files(store: TableStore, snapshot: Snapshot, mode: ScanMode) -> pa.Table:
    if mode is ScanMode.CHANGELOG:
        wanted = snapshot.commit_kind is not CommitKind.OVERWRITE
        return changelog_files(store, snapshot) if wanted else manifests.entries_of(store, [])
    wanted = snapshot.commit_kind is CommitKind.APPEND
    return added_files(store, snapshot) if wanted else manifests.entries_of(store, [])


def added_files(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Entries of the data files that the snapshot added."""
    return _of_kind(manifests.delta_entries(store, snapshot), 0)


def removed_files(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Entries of the data files that the snapshot deleted."""
    return _of_kind(manifests.delta_entries(store, snapshot), 1)


def changelog_files(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Entries of the snapshot's changelog files."""
    return _of_kind(manifests.changelog_entries(store, snapshot), 0)


def _of_kind(entries: pa.Table, kind: int) -> pa.Table:
    return entries.filter(pc.equal(entries.column("kind"), kind))


def _require_there(store: TableStore, span: Span) -> None:
    first, last = earliest_kept(store), snapshots.latest_id(store)
    if first is None or last is None:
        raise SnapshotNotFound(
            f"table {store.name} has no snapshots {span.start} to {span.end}: nothing was committed yet"
        )
    if span.start < first - 1 or span.end > last:
        raise SnapshotNotFound(
            f"table {store.name} has no changes after snapshot {span.start} up to {span.end}; it keeps {first} to {last}",
            expired=span.start < first - 1,
        )


__all__ = ["added_files", "changelog_files", "incremental", "incremental_table", "removed_files"]
