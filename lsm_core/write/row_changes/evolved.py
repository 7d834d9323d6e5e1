"""UPDATE, MERGE and DELETE of a data-evolution table: changed columns are written for all rows of their group of files.

A group of files with matching rows gets one file more, with the changed columns only, the same row ids, and the old
values of the other rows. Deleted rows are marked in the deletion vector of the group's oldest file. A concurrent commit
that changed columns of the same rows, or joined their files, is a conflict; the statement then runs again.

Source: ``MergeIntoPaimonDataEvolutionTable``, ``UpdatePaimonDataEvolutionTableCommand`` of Paimon's Spark connector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit import CommitMessage, Committer, discard_on_failure
from lsm_core.errors import CommitConflict, ConflictKind, UnsupportedFeature
from lsm_core.files import AppendFileWriter
from lsm_core.files.blob_writer import BlobFileWriter
from lsm_core.files.vector_writer import change_vectors
from lsm_core.format.deletion_vector import DeletionVector
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta, is_blob_file
from lsm_core.format.schema import ROW_ID
from lsm_core.metadata import manifests
from lsm_core.metadata.indexes import DeletionFile, read_vector, vector_files
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.metadata.manifests import with_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_current
from lsm_core.read import Scan, Split
from lsm_core.read.evolution import blob_columns, group_files, read_evolved, row_range
from lsm_core.read.predicate import Predicate
from lsm_core.types import TypeRoot
from lsm_core.write.row_changes.append_parts import (
    Additions,
    AppendChange,
    AppendRun,
    PartOfChange,
    Place,
    added_rows,
    here,
)
from lsm_core.write.row_changes.assign import ComputedValues, Mask, deleted_rows, matching_rows

_ATTEMPTS: Final = 5
_RETRIED: Final = frozenset({ConflictKind.INPUTS_GONE, ConflictKind.INDEX_CHANGED, ConflictKind.ROW_IDS})
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ColumnChange(AppendChange):
    """Change that writes the changed columns of whole groups of files, and marks deleted rows.

    Attributes:
        totals: number of buckets (`_TOTAL_BUCKETS`) in the manifest entries of each bucket.
    """

    totals: Mapping[Place, int]

    def apply_to(self, splits: Iterable[Split]) -> PartOfChange:
        """Write the changed columns of the groups with matching rows, and mark deleted rows.

        Raises:
            InvalidData: a new value does not fit its column.
            CorruptFile: a file cannot be read.
        """
        store = self.store
        messages: list[CommitMessage] = []
        marked: dict[Place, dict[str, DeletionVector]] = {}
        with discard_on_failure(store, messages):
            for split in splits:
                place = split.partition, split.bucket
                deletions = dict(zip((file.file_name for file in split.files), split.deletions, strict=True))
                for files in group_files(split.files, store.bucket_dir(*place)):
                    group = _Group(store, place, files, deletions)
                    matches = [*self._matches(group)]
                    if not any(mask.any() for mask in matches):
                        continue
                    written, removed = self._write_columns(group, matches)
                    if written:
                        messages.append(CommitMessage(*place, self.totals[place], new_files=tuple(written)))
                    if removed is not None:
                        marked.setdefault(place, {})[group.anchor.file_name] = removed
        return PartOfChange(messages, marked)

    def _matches(self, group: _Group) -> Iterator[Mask]:
        """Yield masks of the matching rows that are not deleted, batch by batch over the rows of a group."""
        store, names = self.store, list(self.predicate.columns)
        if self.predicate.by_position:
            names = list(store.schema.field_names)
        at = 0
        for batch in group.rows(names):
            mask = matching_rows(batch, self.predicate)
            if group.deleted is not None and mask.any():
                mask &= ~group.deleted.deleted_mask(at, batch.num_rows)
            at += batch.num_rows
            yield mask

    def _write_columns(
        self, group: _Group, matches: Sequence[Mask]
    ) -> tuple[list[DataFileMeta], DeletionVector | None]:
        """Return the files with the changed columns of a group, and the deleted rows or None.

        In files of BLOB values, unchanged rows have placeholders, which stand for the values in older files.

        Args:
            group: the group.
            matches: masks of the matching rows, which together cover all rows of the group.
        """
        store, assignments, matching = self.store, self.assignments, np.concatenate(matches)
        if assignments is None:
            return [], group.mark(np.flatnonzero(matching))
        removed: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        at, updated = 0, False
        writer = _ColumnWriter(store, group, self.totals[group.place], list(self.values or ()))
        try:
            for batch in group.rows(list(store.schema.field_names), without=self._unused_blobs()):
                mask = matching[at : at + batch.num_rows]
                delete = deleted_rows(self.values, batch)
                if delete is not None:
                    removed.append(np.flatnonzero(delete & mask) + at)
                    mask = mask & ~delete
                updated = updated or bool(mask.any())
                writer.write(assignments.apply_where(batch, mask) if mask.any() else batch, mask)
                at += batch.num_rows
            files = writer.close() if updated else []
            if not updated:
                writer.abort()
        except BaseException:
            writer.abort()
            raise
        marks = np.concatenate([*removed, np.zeros(0, np.int64)]).astype(np.int64)
        return files, (group.mark(marks) if len(marks) else None)

    def _unused_blobs(self) -> frozenset[str]:
        """Return the nullable BLOB columns that the new values do not read."""
        values = self.values
        if isinstance(values, ComputedValues):
            used: Iterable[str] | None = values.needed
        else:
            used = [str(value) for value in (values or {}).values() if isinstance(value, pc.Expression)]
        return frozenset(
            field.name
            for field in self.store.schema.fields
            if field.type.root is TypeRoot.BLOB
            and field.type.nullable
            and used is not None
            and not any(field.name in text for text in used)
        )


class _Group:
    """Files with the same row ids, and the rows of them that are deleted.

    Attributes:
        place: partition and bucket of the files.
        start: first row id.
        anchor: oldest file without BLOB values, whose deletion vector applies to the whole group.
        deleted: rows that are deleted already, or None.
    """

    def __init__(
        self,
        store: TableStore,
        place: Place,
        files: Sequence[DataFileMeta],
        deletions: Mapping[str, DeletionFile | None],
    ) -> None:
        self._store, self.place, self._files = store, place, files
        plain = [file for file in files if not is_blob_file(file.file_name)]
        self.anchor = min(plain, key=lambda file: (file.max_sequence_number, file.file_name))
        self.start, end = row_range(self.anchor, store.bucket_dir(*place))
        vectors = [vector for file in files if (vector := deletions.get(file.file_name)) is not None]
        if len(vectors) > 1:
            raise UnsupportedFeature("several deletion vectors for the same row ids", store.name)
        self.deleted = read_vector(store, vectors[0], end - self.start) if vectors else None

    def rows(self, names: Sequence[str], without: frozenset[str] = frozenset()) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the group, deleted rows too.

        Args:
            names: columns to return.
            without: columns to return as nulls.
        """
        store = with_row_ids(self._store)
        read = [name for name in names if name not in without] or [ROW_ID]
        with closing(read_evolved(store, self.place, self._files, {}, read)) as batches:
            for batch in batches:
                kinds = store.schema.arrow_schema
                columns = [
                    pa.nulls(batch.num_rows, kinds.field(name).type) if name in without else batch.column(name)
                    for name in names
                ]
                if not names:
                    yield batch
                    continue
                yield pa.RecordBatch.from_arrays(columns, schema=pa.schema([kinds.field(name) for name in names]))

    def mark(self, positions: np.ndarray[Any, Any]) -> DeletionVector:
        """Return the deletion vector of the group with further deleted positions."""
        return DeletionVector.union([DeletionVector.of(positions), *([] if self.deleted is None else [self.deleted])])


class _ColumnWriter:
    """Writer of the changed columns of one group: one file of plain columns, and files of each BLOB column."""

    def __init__(self, store: TableStore, group: _Group, total_buckets: int, columns: Sequence[str]) -> None:
        blobs = set(blob_columns(store))
        self._store, self._start = store, group.start
        self._plain = [name for name in store.schema.field_names if name in columns and name not in blobs]
        self._writer = AppendFileWriter(
            store, *group.place, total_buckets, file_source=SOURCE_APPEND, columns=self._plain, rolls=False
        )
        self._blobs = {
            name: BlobFileWriter(store, *group.place, name, SOURCE_APPEND) for name in columns if name in blobs
        }

    def write(self, batch: pa.RecordBatch, changed: Mask) -> None:
        """Write the changed columns of rows of the table; BLOB values only of the ``changed`` rows."""
        if self._plain:
            self._writer.write(batch.select(self._plain))
        for name, writer in self._blobs.items():
            values = batch.column(name)
            writer.write(pc.if_else(pa.array(changed), values, pa.scalar(None, values.type)), ~changed)

    def close(self) -> list[DataFileMeta]:
        """Return the written files with the row ids of the group.

        Raises:
            UnsupportedFeature: the plain columns do not fit into one file of the table's format.
        """
        files = self._writer.close()
        if len(files) > 1:
            feature = f"values that a file of format '{self._store.options.file_format}' cannot store"
            raise UnsupportedFeature(f"{feature}: set 'file.format' = 'parquet'", self._store.name)
        placed = [
            replace(file, first_row_id=self._start, min_sequence_number=0, max_sequence_number=0) for file in files
        ]
        for writer in self._blobs.values():
            at = self._start
            for file in writer.close():
                placed.append(replace(file, first_row_id=at))
                at += file.row_count
        return placed

    def abort(self) -> None:
        """Delete the written files."""
        self._writer.abort()
        for writer in self._blobs.values():
            writer.abort()


def require_deletable(store: TableStore) -> None:
    """Raise UnsupportedFeature if rows of a data-evolution table cannot be marked as deleted."""
    if not store.options.deletion_vectors_enabled:
        reason = "set 'deletion-vectors.enabled' = 'true'"
        feature = "DELETE with 'data-evolution.enabled' = 'true' without deletion vectors"
        raise UnsupportedFeature(f"{feature}: {reason}", store.name)


def change(
    store: TableStore,
    plan: Callable[[], Scan],
    predicate: Predicate,
    values: Mapping[str, Any] | None,
    run: AppendRun = here,
    additions: Additions | None = None,
) -> int | None:
    """Change or delete the matching rows, and add the rows of ``additions``, in one commit.

    Args:
        store: the table.
        plan: returns a scan of the newest snapshot; called again after a conflict.
        predicate: selects the rows.
        values: new value by column, or None to delete the rows.
        run: applies the change to the splits of a scan, by default in this process.
        additions: returns new rows for the same commit, or None.

    Returns:
        The id of the snapshot, or None if nothing changed.

    Raises:
        UnsupportedFeature: rows cannot be marked as deleted.
        InvalidData: a new value does not fit its column.
        CommitConflict: other commits changed the same rows at each attempt.
    """
    if values is None or (isinstance(values, ComputedValues) and values.deleted is not None):
        require_deletable(store)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _change(store, plan(), predicate, values, run, additions)
        except CommitConflict as conflict:
            if conflict.kind not in _RETRIED or attempt == _ATTEMPTS:
                raise
            _LOG.info("table %s: columns are changed again, on the newest version: %s", store.name, conflict)
    raise AssertionError("unreachable")


def _change(
    store: TableStore,
    scan: Scan,
    predicate: Predicate,
    values: Mapping[str, Any] | None,
    run: AppendRun,
    additions: Additions | None,
) -> int | None:
    messages: list[CommitMessage] = []
    with discard_on_failure(store, messages):
        if scan.snapshot is None or not scan.splits:
            messages += added_rows(store, additions, None if scan.snapshot is None else scan.snapshot.id)
            return Committer(store).commit(messages).snapshot_id if messages else None
        partitions = sorted({split.partition for split in scan.splits})
        columns = ["partition", "bucket", "total_buckets", "schema_id", "file_name"]
        entries = manifests.live_entries(store, scan.snapshot, partitions=partitions, columns=columns)
        require_current(store, entries, "changing its rows")
        buckets = {(partition, bucket): (total, table) for partition, bucket, total, table in bucket_groups(entries)}
        totals = {place: total for place, (total, _) in buckets.items()}
        marked: dict[Place, dict[str, DeletionVector]] = {}
        for part in run(ColumnChange(store, predicate, values, totals), scan):
            messages += part.messages
            for place, vectors in part.vectors.items():
                marked.setdefault(place, {}).update(vectors)
        messages += added_rows(store, additions, scan.snapshot.id)
        indexes = vector_files(store, scan.snapshot, partitions) if marked else {}
        for place, vectors in marked.items():
            total, table = buckets[place]
            present = frozenset(table.column("file_name").to_pylist())
            following = change_vectors(store, *place, indexes.get(place, ()), vectors, present)
            messages.append(
                CommitMessage(*place, total, new_index_files=following.new, deleted_index_files=following.deleted)
            )
        return Committer(store).commit(messages, columns_from=scan.snapshot.id).snapshot_id if messages else None
