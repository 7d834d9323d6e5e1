"""DELETE and UPDATE of an append table with deletion vectors.

Matching rows are marked as deleted, rows with new values are appended, and no data file is rewritten. Deletion vectors
and new rows are in one commit. If a concurrent commit removed the data files or changed the same index files, the
statement runs again on the new snapshot. After five attempts the statement fails with CommitConflict.

Source: Paimon `DeleteFromPaimonTableCommand`, `BaseAppendDeleteFileMaintainer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from lsm_core.commit import CommitMessage, Committer, abort, discard_on_failure
from lsm_core.errors import CommitConflict, ConflictKind
from lsm_core.files import AppendFileWriter, open_append
from lsm_core.files.vector_writer import change_vectors
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import ROW_ID, SEQUENCE_NUMBER
from lsm_core.metadata import manifests
from lsm_core.metadata.indexes import DeletionFile, read_vector, vector_files
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.manifests import tracks_rows, with_row_ids
from lsm_core.metadata.store import BucketMode, TableStore
from lsm_core.metadata.support import require_current
from lsm_core.read import Scan, Split
from lsm_core.read.predicate import Predicate
from lsm_core.write.row_changes.append_parts import (
    Additions,
    AppendChange,
    AppendRun,
    PartOfChange,
    Place,
    added_rows,
    here,
)
from lsm_core.write.row_changes.assign import Assignments, deleted_rows, matching_rows
from lsm_core.write.table_write import TableWrite

_ATTEMPTS: Final = 5
_RETRIED: Final = frozenset({ConflictKind.INPUTS_GONE, ConflictKind.INDEX_CHANGED})
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Marking(AppendChange):
    """DELETE or UPDATE that marks matching rows as deleted; an UPDATE also appends them with the new values."""

    @property
    def by_bucket(self) -> bool:
        """Whether one task must handle all splits of a bucket, because new rows get the bucket's sequence numbers."""
        return self.values is not None and self.store.bucket_mode is not BucketMode.UNAWARE

    def apply_to(self, splits: Iterable[Split]) -> PartOfChange:
        """Mark the matching rows of some splits as deleted, and for an UPDATE append the rows with the new values.

        Raises:
            InvalidData: a new value does not fit its column.
            CorruptFile: a file cannot be read.
        """
        store, assignments = self.store, self.assignments
        with ExitStack() as until_done:
            writer: TableWrite | _RowIdWriter | None = None
            if assignments is not None and tracks_rows(store):
                writer = until_done.enter_context(_RowIdWriter(store))
            elif assignments is not None:
                writer = until_done.enter_context(TableWrite(store))
            marked: dict[Place, dict[str, DeletionVector]] = {}
            names = list(self.predicate.columns)
            if writer is not None or self.predicate.by_position:
                names = list(store.schema.field_names)
            for split in splits:
                place = split.partition, split.bucket
                for file, deletion_file in zip(split.files, split.deletions, strict=True):
                    vector = _matching(
                        store, place, file, deletion_file, names, self.predicate, self.values, assignments, writer
                    )
                    if vector is not None:
                        marked.setdefault(place, {})[file.file_name] = vector
            return PartOfChange(writer.prepare_commit() if writer is not None and marked else (), marked)


def change(
    store: TableStore,
    plan: Callable[[], Scan],
    predicate: Predicate,
    values: Mapping[str, Any] | None,
    run: AppendRun = here,
    additions: Additions | None = None,
) -> int | None:
    """Delete or update the matching rows, and add the rows of ``additions``, in one commit.

    Matching rows are marked in deletion vectors; an update appends them with new values. A file whose rows are all
    marked is removed.

    Args:
        store: the table.
        plan: returns a scan of the newest snapshot; called again after a conflict.
        predicate: selects the rows.
        values: new value by column for an update, or None to delete the rows.
        run: applies the change to the splits of a scan, by default in this process.
        additions: returns new rows for the same commit, or None.

    Returns:
        The id of the snapshot, or None if nothing changed.

    Raises:
        InvalidData: a new value does not fit its column.
    """
    return _retried(store, plan, Marking(store, predicate, values), run, additions)


def _retried(
    store: TableStore, plan: Callable[[], Scan], marking: Marking, run: AppendRun, additions: Additions | None
) -> int | None:
    """Apply a change to an append table; after a conflict, retry with a new scan.

    Args:
        store: the table.
        plan: returns a new scan on each call.
        marking: the change.
        run: applies the change to the splits of a scan.
        additions: returns new rows for the same commit, or None.

    Returns:
        The id of the snapshot, or None if nothing changed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _change(store, plan(), marking, run, additions)
        except CommitConflict as conflict:
            if conflict.kind not in _RETRIED or attempt == _ATTEMPTS:
                raise
            _LOG.info("table %s: rows are marked again, on the newest version: %s", store.name, conflict)
    raise AssertionError("unreachable")


def _change(store: TableStore, scan: Scan, marking: Marking, run: AppendRun, additions: Additions | None) -> int | None:
    if scan.snapshot is None or not scan.splits:
        added = added_rows(store, additions, None if scan.snapshot is None else scan.snapshot.id)
        with discard_on_failure(store, added):
            return Committer(store).commit(added).snapshot_id if added else None
    partitions = sorted({split.partition for split in scan.splits})
    columns = ["partition", "bucket", "total_buckets", "schema_id", "file_name"]
    entries = manifests.live_entries(store, scan.snapshot, partitions=partitions, columns=columns)
    require_current(store, entries, "changing its rows")
    buckets = {(partition, bucket): (total, table) for partition, bucket, total, table in bucket_groups(entries)}
    messages: list[CommitMessage] = []
    with discard_on_failure(store, messages):
        changed: dict[Place, dict[str, DeletionVector]] = {}
        for part in run(marking, scan):
            messages += part.messages
            for place, vectors in part.vectors.items():
                changed.setdefault(place, {}).update(vectors)
        messages += added_rows(store, additions, scan.snapshot.id)
        if not changed:
            return Committer(store).commit(messages).snapshot_id if messages else None
        indexes = vector_files(store, scan.snapshot, partitions)
        files = _files_of(scan, changed)
        for place, vectors in changed.items():
            total, table = buckets[place]
            full = [file for file in files[place] if vectors[file.file_name].cardinality == file.row_count]
            emptied = {file.file_name for file in full}
            following = change_vectors(
                store,
                *place,
                indexes.get(place, ()),
                {name: None if name in emptied else vector for name, vector in vectors.items()},
                frozenset(table.column("file_name").to_pylist()),
            )
            message = CommitMessage(
                *place,
                total,
                deleted_files=tuple(full),
                new_index_files=following.new,
                deleted_index_files=following.deleted,
            )
            messages.append(message)
        return Committer(store).commit(messages).snapshot_id


def _files_of(scan: Scan, changed: Mapping[Place, Mapping[str, DeletionVector]]) -> dict[Place, list[DataFileMeta]]:
    """Return the files with marked rows, by bucket."""
    files_by_place: dict[Place, list[DataFileMeta]] = {}
    for split in scan.splits:
        vectors = changed.get((split.partition, split.bucket))
        if vectors:
            chosen = [file for file in split.files if file.file_name in vectors]
            files_by_place.setdefault((split.partition, split.bucket), []).extend(chosen)
    return files_by_place


def _matching(
    store: TableStore,
    place: Place,
    file: DataFileMeta,
    deletion_file: DeletionFile | None,
    names: list[str],
    predicate: Predicate,
    values: Mapping[str, Any] | None,
    assignments: Assignments | None,
    writer: TableWrite | _RowIdWriter | None,
) -> DeletionVector | None:
    """Return a file's deletion vector with the matching rows added to its deleted rows, or None if no row matches.

    Args:
        store: the table.
        place: partition and bucket of the file.
        file: the file.
        deletion_file: current deletion vector of the file, or None.
        names: columns to read.
        predicate: filter that matching rows meet.
        values: new values by column, which may also select rows to delete; None for a DELETE.
        assignments: compute the new rows; None for a DELETE.
        writer: receives the new rows; None for a DELETE.
    """
    old = None if deletion_file is None else read_vector(store, deletion_file, file.row_count)
    parts: list[DeletionVector] = []
    first = 0
    # Rows are counted as they lie in the file: those marked before are read, and left out here.
    if isinstance(writer, _RowIdWriter):
        source = open_append(writer.store, *place, file, columns=[*names, ROW_ID])
    else:
        source = open_append(store, *place, file, columns=names)
    with closing(source) as batches:  # type: ignore[type-var]
        for batch in batches:
            mask = matching_rows(batch, predicate)
            if old is not None and mask.any():
                mask &= ~old.deleted_mask(first, batch.num_rows)
            if mask.any():
                parts.append(DeletionVector.of(np.flatnonzero(mask) + first))
                if writer is not None and assignments is not None:
                    old_rows = batch.filter(pa.array(mask))
                    removed = deleted_rows(values, old_rows.select(names))
                    if removed is not None:
                        old_rows = old_rows.filter(pa.array(~removed))
                    changed = pa.Table.from_batches([assignments.apply(old_rows.select(names))])
                    if isinstance(writer, _RowIdWriter):
                        writer.write(place, changed, old_rows.column(ROW_ID))
                    else:
                        writer.write(changed)
            first += batch.num_rows
    if not parts:
        return None
    return DeletionVector.union([*parts, *([] if old is None else [old])])


class _RowIdWriter:
    """Writer that appends changed rows to a table with row tracking.

    The rows keep their `_ROW_ID`; their `_SEQUENCE_NUMBER` becomes the id of the snapshot that commits them. One file
    is open at a time. The exit of the ``with`` block deletes the files that :meth:`prepare_commit` did not return.
    """

    def __init__(self, store: TableStore) -> None:
        self.store = with_row_ids(store, unnumbered=True)
        self._open: tuple[Place, AppendFileWriter] | None = None
        self._messages: list[CommitMessage] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            self._open[1].abort()
        abort(self.store, self._messages)

    def write(self, place: Place, rows: pa.Table, ids: pa.Array) -> None:
        """Append rows with their `_ROW_ID` values ``ids`` to the bucket ``place`` (partition, bucket number)."""
        if self._open is not None and self._open[0] != place:
            self._close()
        if self._open is None:
            total = self.store.options.bucket
            self._open = place, AppendFileWriter(self.store, *place, total, file_source=SOURCE_APPEND)
        rows = rows.append_column(ROW_ID, ids).append_column(SEQUENCE_NUMBER, pa.nulls(len(rows), pa.int64()))
        for batch in rows.to_batches():
            self._open[1].write(batch)

    def _close(self) -> None:
        if self._open is not None:
            (place, writer), self._open = self._open, None
            files = tuple(writer.close())
            self._messages.append(CommitMessage(*place, writer.total_buckets, new_files=files))

    def prepare_commit(self) -> list[CommitMessage]:
        """Return messages of the written files; the caller owns these files from now on."""
        self._close()
        messages = list(self._messages)
        self._messages.clear()
        return messages
