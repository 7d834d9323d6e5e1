"""DELETE and UPDATE of an append table with deletion vectors: rows are marked where they lie, new values are appended, no file is rewritten.

Source: Paimon's Spark commands on such tables (`DeleteFromPaimonTableCommand`, `BaseAppendDeleteFileMaintainer`). Vectors and
new rows are one commit. A commit that took the files, or changed the same index files, meanwhile makes the statement run again
on what the table is then; it fails with CommitConflict when that happens too often. Rows that came meanwhile are looked at then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Final, Self

import numpy as np
import pyarrow as pa

from lsm_core.commit import CommitMessage, Committer, abort, discard_on_failure
from lsm_core.errors import CommitConflict, ConflictKind
from lsm_core.files import AppendFileWriter, open_append
from lsm_core.files.vector_writer import change_vectors
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.file_meta import SOURCE_APPEND, DataFileMeta
from lsm_core.format.kv_layout import ROW_ID, SEQUENCE_NUMBER
from lsm_core.metadata import manifests, support
from lsm_core.metadata.indexes import DeletionFile, read_vector, vector_files
from lsm_core.metadata.row_tracking import tracks_rows, with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.read import Scan
from lsm_core.read.predicate import Predicate
from lsm_core.write.row_changes.assign import Assignments, matches
from lsm_core.write.table_write import TableWrite

_ATTEMPTS: Final = 5
_RETRIED: Final = frozenset({ConflictKind.INPUTS_GONE, ConflictKind.INDEX_CHANGED})
_LOG = logging.getLogger(__name__)
Place = tuple[bytes, int]


def delete(store: TableStore, plan: Callable[[], Scan], predicate: Predicate) -> int | None:
    """Mark the matching rows as deleted; a file that holds no other goes. None: no row matched."""
    return _retried(store, plan, predicate, None)


def update(store: TableStore, plan: Callable[[], Scan], predicate: Predicate, assignments: Assignments) -> int | None:
    """Mark the matching rows and append them again with new values. None: no row matched. Raises InvalidData for values that do not fit."""
    return _retried(store, plan, predicate, assignments)


def _retried(
    store: TableStore, plan: Callable[[], Scan], predicate: Predicate, assignments: Assignments | None
) -> int | None:
    """``plan`` gives the scan of the newest version, asked at every attempt."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _change(store, plan(), predicate, assignments)
        except CommitConflict as conflict:
            if conflict.kind not in _RETRIED or attempt == _ATTEMPTS:
                raise
            _LOG.info("table %s: rows are marked again, on the newest version: %s", store.name, conflict)
    raise AssertionError("unreachable")


def _change(store: TableStore, scan: Scan, predicate: Predicate, assignments: Assignments | None) -> int | None:
    if scan.snapshot is None or not scan.splits:
        return None
    partitions = sorted({split.partition for split in scan.splits})
    columns = ["partition", "bucket", "total_buckets", "schema_id", "file_name"]
    entries = manifests.live_entries(store, scan.snapshot, partitions=partitions, columns=columns)
    support.require_current(store, entries, "changing its rows")
    buckets = {(partition, bucket): (total, table) for partition, bucket, total, table in bucket_groups(entries)}
    messages: list[CommitMessage] = []
    with ExitStack() as until_done:
        until_done.enter_context(discard_on_failure(store, messages))
        writer: TableWrite | _RowIdWriter | None = None
        if assignments is not None:
            if tracks_rows(store):
                writer = until_done.enter_context(_RowIdWriter(store))
            else:
                writer = until_done.enter_context(TableWrite(store))
        changed = _marked(store, scan, predicate, assignments, writer)
        indexes = vector_files(store, scan.snapshot, partitions)
        for place, vectors in changed.items():
            total, table = buckets[place]
            full = [file for file, vector in vectors.values() if vector.cardinality == file.row_count]
            gone = {file.file_name for file in full}
            change = change_vectors(
                store,
                *place,
                indexes.get(place, ()),
                {name: None if name in gone else vector for name, (_, vector) in vectors.items()},
                frozenset(table.column("file_name").to_pylist()),
            )
            made = CommitMessage(
                *place,
                total,
                deleted_files=tuple(full),
                new_index_files=change.new,
                deleted_index_files=change.deleted,
            )
            messages.append(made)
        if not messages:
            return None
        if writer is not None:
            messages += writer.prepare_commit()
        return Committer(store).commit(messages).snapshot_id


def _marked(
    store: TableStore,
    scan: Scan,
    predicate: Predicate,
    assignments: Assignments | None,
    writer: TableWrite | _RowIdWriter | None,
) -> dict[Place, dict[str, tuple[DataFileMeta, DeletionVector]]]:
    """Vectors of the files in which rows match, old marks included; the rows go to ``writer`` with their new values."""
    found: dict[Place, dict[str, tuple[DataFileMeta, DeletionVector]]] = {}
    names = list(predicate.columns)
    if writer is not None or predicate.by_position:
        names = list(store.schema.field_names)
    for split in scan.splits:
        place = split.partition, split.bucket
        for file, gone in zip(split.files, split.deletions, strict=True):
            vector = _matching(store, place, file, gone, names, predicate, assignments, writer)
            if vector is not None:
                found.setdefault(place, {})[file.file_name] = file, vector
    return found


def _matching(
    store: TableStore,
    place: Place,
    file: DataFileMeta,
    gone: DeletionFile | None,
    names: list[str],
    predicate: Predicate,
    assignments: Assignments | None,
    writer: TableWrite | _RowIdWriter | None,
) -> DeletionVector | None:
    """The vector of ``file`` with the living rows that match; None where none does."""
    old = None if gone is None else read_vector(store, gone, file.row_count)
    parts: list[DeletionVector] = []
    first = 0
    # Rows are counted as they lie in the file: those marked before are read, and left out here.
    if isinstance(writer, _RowIdWriter):
        source = open_append(writer.store, *place, file, columns=[*names, ROW_ID])
    else:
        source = open_append(store, *place, file, columns=names)
    with closing(source) as batches:  # type: ignore[type-var]
        for batch in batches:
            mask = matches(batch, predicate.expression)
            if old is not None and mask.any():
                mask &= ~old.deleted_mask(first, batch.num_rows)
            if mask.any():
                parts.append(DeletionVector.of(np.flatnonzero(mask) + first))
                if writer is not None and assignments is not None:
                    old_rows = batch.filter(pa.array(mask))
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
    """Appends changed rows of a table that tracks rows: they keep their `_ROW_ID`, and their `_SEQUENCE_NUMBER` is the snapshot that commits them.

    One file is open at a time. Leaving the block deletes what :meth:`prepare_commit` has not handed out.
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
        """Append ``rows``, which have ``ids``, to a bucket."""
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
        """Messages of the files written; they are the caller's from now on."""
        self._close()
        found = list(self._messages)
        self._messages.clear()
        return found


__all__ = ["delete", "update"]
